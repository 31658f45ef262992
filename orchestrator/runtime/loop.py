"""The loop: observe, decide, commit, act, record, listen. It makes no decisions of its own.

It guarantees:

- The order. Events are committed before any action that depends on them. If the commit fails, nothing
  disruptive is done any more: the run stands down, if necessary without a journal (starts, restores). The
  record in the cluster is updated before the actions, so that another bastion can always restore the cluster.
- A deposed process (another one took over its lease or its journal) sends only starts of nodes that are not
  the successor's, and no longer writes to a journal that the successor writes.
- A defect of the program leaves no node down and no allocation disabled, as far as that is possible without a
  reading or a decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from orchestrator.engine import refusals, silence
from orchestrator.engine.fold import evolve
from orchestrator.engine.progress import MAY_BE_DOWN
from orchestrator.engine.silence import Heard
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import DeposedError, JournalError
from orchestrator.kinds import decide
from orchestrator.model.action import Action, Done, RebootHost, StopNode, action_name, action_target
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionFailed,
    ActionSent,
    Deposed,
    Event,
    LeaseLost,
    LeaseRegained,
    Record,
    Requested,
    StandingDown,
    run_phase,
)
from orchestrator.model.observation import LeaseView, Observation, Successor
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.ports import (
    Clock,
    ClusterPort,
    GatePort,
    HostPort,
    Journal,
    LeaseKeeper,
    Listener,
    Reporter,
    Surroundings,
)
from orchestrator.runtime.database import CommitInDoubt
from orchestrator.runtime.executor import Executor, VerbDefect
from orchestrator.runtime.guard import barred, blind_restores, blind_starts, busy_hosts, unsent
from orchestrator.runtime.lookout import Lookout, ReadingOrder
from orchestrator.runtime.sampling import Sampling, no_samples
from orchestrator.runtime.waiting import Asked
from orchestrator.untrusted import visible

_DEFECTS_BORNE: Final = 3
"""Defects after which the run still tries a regular stand-down. One more ends it."""
_DEFECT_PAUSE: Final[Seconds] = 2.0
"""Between a defect and the next try: its cause may pass."""
_DOUBT_TRIES: Final = 5
"""How often the journal is tried after a commit in doubt or at the end of a run, `_DEFECT_PAUSE` apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one run."""

    cluster: ClusterPort
    hosts: HostPort
    lease: LeaseKeeper
    journal: Journal
    clock: Clock
    listener: Listener
    reporter: Reporter
    gates: GatePort | None = None  # None if the playbook has no gates; if it has some, they count as closed
    sample: Sampling = no_samples  # records readings for the report
    around: Surroundings | None = None  # None if nothing surrounds the run


class Loop:
    """Drives one run until it has ended.

    Args:
        state: state of the run, new or replayed.
        ports: the ports of the run.
        asked: requests to the run: signals and requests from other terminals.
        workers: maximum of hosts in parallel.
        reads: order of reading cluster and hosts.
    """

    def __init__(
        self,
        state: RunState,
        ports: Ports,
        *,
        asked: Asked,
        workers: int = 16,
        reads: ReadingOrder = ReadingOrder.AT_ONCE,
    ) -> None:
        self.state = state
        self._ports, self._asked = ports, asked
        self._lookout = Lookout(
            ports.cluster, ports.hosts, ports.lease, ports.clock, gates=ports.gates, order=reads
        )
        self._executor = Executor(ports.cluster, ports.hosts, workers=workers)
        self._unwritten: list[Event] = []
        self._trouble = ""
        self._samples: list[Event] = []
        self._journal_is_ours = True
        self._busy: set[NodeName] = set()
        self._last = Decision()

    def run(self) -> RunState:
        """Continue until the run has ended. Returns its last state.

        A defect must not leave a node down and allocation disabled. So the run stands down first, as far as
        the defect allows, and nodes are started without a reading; then the defect is raised, with a note
        that names the run and says what was sent.

        Raises:
            SafetyViolation: a decision broke a rule of the program's own.
            Exception: any other defect of the program.
        """
        defects: list[Exception] = []
        sent: dict[str, str] = {}
        while not self._ended() and len(defects) <= _DEFECTS_BORNE:
            try:
                self._heed()
                observation = self._lookout.observe(
                    self.state, self._last, unwanted=self._asked_more, heard=self._heard
                )
                self._heed()  # a reading may take long: after a signal during it no stop is sent
                if observation is not None:
                    self.turn(observation)
            except Exception as defect:  # noqa: BLE001  (raised below, after nodes and settings are handled)
                defects.append(defect)
                if not self._ended():
                    sent |= self._survive(defect, again=len(defects) > 1)
        self._catch_up()
        if self._ports.around is not None:
            self._ports.around.ended(self.state)
            self._heed_surroundings()
        if defects:
            defects[0].add_note(self._note_of_defect(sent))
        if self.state.outcome is not None:
            self._ports.reporter.finished(self.state, self.state.outcome)
        if defects:
            raise defects[0]
        return self.state

    @property
    def unwritten(self) -> int:
        """Number of events that could not be written into the journal."""
        return len(self._unwritten)

    def _ended(self) -> bool:
        return self.state.phase is Phase.ENDED

    def _survive(self, defect: Exception, *, again: bool) -> dict[str, str]:
        """After a defect, take the steps that need neither a reading nor a decision.

        The regular stand-down follows, if the defect allows it: it reads the cluster, starts nodes and waits
        for them before it restores allocation. So the first defect only sends starts, which never harm.

        Args:
            defect: the error.
            again: an earlier defect occurred: the regular stand-down may fail, so allocation is enabled too.

        Returns:
            The result of each action sent, in words.
        """
        self._busy |= busy_hosts(self.state)
        said: dict[str, str] = {}
        try:
            self._stand_down_on(defect)
        except Exception as other:  # noqa: BLE001  (nodes are started in any case)
            said["the stand-down"] = f"could not be noted: {other!r}"
        starts = blind_starts(self.state, busy=self._busy)
        blind: tuple[Action, ...] = (*starts, *(blind_restores(self.state) if again else ()))
        for action in blind:
            said[f"{action_name(action)} {action_target(action)}"] = self._send_blindly(action)
        try:
            self._ports.clock.wait(_DEFECT_PAUSE)
        except Exception as other:  # noqa: BLE001  (only a pause)
            said["the pause"] = f"failed: {other!r}"
        return said

    def _stand_down_on(self, defect: Exception) -> None:
        """Start to stand down; actions whose outcome is not recorded may have been done."""
        reason = f"a defect of the program: {type(defect).__name__}: {defect}"
        flying = self.state.process.in_flight
        events: list[Event] = [ActionFailed(action=one, reason=reason, in_doubt=True) for one in flying]
        if self.state.phase is not Phase.STANDING_DOWN:
            events.append(StandingDown(reason=reason, outcome=Outcome.FAILED))
            events.append(run_phase(self.state.phase, Phase.STANDING_DOWN, why=reason))
        if events:
            self._write(events)

    def _send_blindly(self, action: Action) -> str:
        """Send one action, even if everything else fails. Returns the result in words.

        An error of the journal, a view or the fold must not prevent the action. If the check of the lease
        raises, that does not count as a successor.
        """
        troubles: list[str] = []
        try:
            kept = self._barred((action,), needs_record=False)
            if kept:
                return f"not sent: {kept[0]}"
        except Exception as error:  # noqa: BLE001  (see above)
            troubles.append(f"the lease could not be checked: {error!r}")
        try:
            self._write([ActionSent(action=action)])
        except Exception as error:  # noqa: BLE001  (see above)
            troubles.append(f"could not be written down: {error!r}")
        try:
            outcomes: Sequence[Event] = self._executor.perform((action,))
        except VerbDefect as defect:
            outcomes = defect.outcomes
        said = "sent"
        for outcome in outcomes:
            if isinstance(outcome, ActionFailed):
                said = f"{'in doubt' if outcome.in_doubt else 'refused'}: {outcome.reason}"
        try:
            self._write(outcomes)
        except Exception as error:  # noqa: BLE001  (see above)
            troubles.append(f"its outcome could not be written down: {error!r}")
        return "; ".join((said, *troubles))

    def _note_of_defect(self, sent: Mapping[str, str]) -> str:
        run, resume, restore = self.state.run, self.state.command("resume"), self.state.command("restore")
        lines = [f"run {run}: its journal shows what it did; `{resume}` continues it, and"]
        lines.append(f"`{restore}` only restores the cluster")
        if not self._ended():
            lines += [f"  after the defect, {what}: {how}" for what, how in sent.items()]
            still = "was not started: a hook or an install step may still run there"
            lines += [f"  {node} {still}" for node in sorted(self._busy)]
        return "\n".join(map(visible, lines))

    def turn(self, observation: Observation) -> None:
        """One decision and its actions."""
        self._heed_refusals(refusals.of_reading(self.state, observation.cluster, self._ports.clock.now()))
        self._samples += self._ports.sample(observation)
        decision = decide(self.state, observation, self._ports.clock.now())
        self._last = decision
        if not self._commit(decision):
            return
        self._ports.reporter.waiting(self.state, decision)
        if decision.actions:
            self._act(decision.actions)
        elif decision.watch is not None:
            if samples := self._sampled():
                with suppress(CommitInDoubt):  # they are kept, and written with the next events
                    self._write(samples, binding=False)
            self._ports.listener.listen(decision.watch)

    def _sampled(self) -> Sequence[Event]:
        """The samples since the last commit. They are committed with other events, or while the run waits.

        So none delays an action. If the journal cannot be written, they are lost.
        """
        samples, self._samples = self._samples, []
        return samples

    def _asked_more(self) -> bool:
        return self._asked()[0] > self.state.process.request

    def _heard(self, heard: Mapping[NodeName, Heard]) -> None:
        """Journal who fell silent or answers again. While a reading goes on, the last wait is shown on."""
        news = silence.news(self.state, heard, self._ports.clock.now())
        if news:
            self._write(news)
        if any(one.open for one in heard.values()):
            self._ports.reporter.waiting(self.state, self._last)

    def _heed(self) -> None:
        """Journal requests, a lost lease and a successor, once each."""
        if self._asked_more():
            request, by = self._asked()
            self._write([Requested(request=request, by=by)])
        self._heed_surroundings()
        self._heed_lease(self._ports.lease.view())

    def _heed_surroundings(self) -> None:
        news = self._ports.around.news() if self._ports.around is not None else ()
        if news:
            self._write(news)

    def _heed_refusals(self, news: Sequence[Event]) -> None:
        if news:
            self._write(news)

    def _heed_lease(self, lease: LeaseView) -> None:
        successor = lease.successor
        if successor is not None and successor.run == self.state.run:
            self._journal_is_ours = False  # another event of ours would block the successor's events
        news: list[Event] = []
        if not lease.held and self.state.process.lease_lost is None:
            news.append(LeaseLost(reason=f"the lease is lost: {lease.holder}"))
        if lease.held and self.state.process.lease_lost is not None:
            news.append(LeaseRegained(holder=lease.holder))
        if successor is not None and self.state.process.deposed is None:
            news.append(self._deposed(successor))
        if news:
            self._write(news)

    def _deposed(self, successor: Successor, *, by_journal: bool = False) -> Deposed:
        """The event. A process that resumes from our journal has every node of our current wave."""
        ours = [node.name for node in self.state.nodes_in(*MAY_BE_DOWN)]
        theirs = (*successor.in_hand, *(ours if by_journal or successor.run == self.state.run else ()))
        return Deposed(
            successor=successor.run,
            owner=successor.owner,
            epoch=successor.epoch,
            in_hand=tuple(dict.fromkeys(theirs)),
        )

    def _commit(self, decision: Decision) -> bool:
        """Write the decision's events; False if they could not be written and its actions may not be sent."""
        if not decision.events:
            return True
        try:
            events = (*self._sampled(), *decision.events)
            if self._write(events, binding=self._may_act_unjournalled()):
                return True
        except CommitInDoubt as doubt:
            if self._settle(decision, doubt):
                return False  # decide again: the reading is too old now
        if self._journal_is_ours and self.state.phase not in (Phase.STANDING_DOWN, Phase.ENDED):
            self._give_up_on_the_journal()
        return False

    def _may_act_unjournalled(self) -> bool:
        """Starts and restores continue without a journal; `resume` finds them in the cluster and hosts."""
        return self.state.phase is Phase.STANDING_DOWN or not self._journal_is_ours

    def _settle(self, decision: Decision, doubt: CommitInDoubt) -> bool:
        """After a commit in doubt: keep its events, send no actions. Returns whether the journal works."""
        self._write([unsent(action, str(doubt)) for action in decision.actions])
        return self._catch_up()

    def _catch_up(self) -> bool:
        """Wait a little for the journal to take the events that it did not take. Returns whether it did."""
        until = self._ports.clock.now() + _DOUBT_TRIES * _DEFECT_PAUSE  # one try of a locked file takes long
        for _ in range(_DOUBT_TRIES):
            if not self._unwritten or self._ports.clock.now() >= until:
                break
            self._ports.clock.wait(_DEFECT_PAUSE)
            self._write([])
        return not self._unwritten

    def _give_up_on_the_journal(self) -> None:
        reason = f"the journal cannot be written: {self._trouble}"
        down = run_phase(self.state.phase, Phase.STANDING_DOWN, why=reason)
        self._write([StandingDown(reason=reason, outcome=Outcome.FAILED), down], binding=True)

    def _write(self, events: Sequence[Event], *, binding: bool = True) -> bool:
        """Commit events and update the state; False if neither was done.

        Args:
            events: in order.
            binding: the events have happened or must happen even if they cannot be written. They are written
                later, in order, if the journal works again.

        Raises:
            CommitInDoubt: they are in the state, and may be in the journal. Only if they are not binding.
        """
        if not self._journal_is_ours:
            self._follow(self._unjournalled(events))
            return True
        at = self._ports.clock.now()
        backlog = [*self._unwritten, *events]
        try:
            records = self._ports.journal.append(backlog, at)
            self._unwritten = []
        except DeposedError as error:
            self._journal_is_ours, self._unwritten = False, []
            if binding:
                self._follow(self._unjournalled(events))
            if self.state.process.deposed is None:
                found = Successor(run=error.run, owner=error.owner, epoch=error.epoch)
                self._follow(self._unjournalled([self._deposed(found, by_journal=True)]))
            return binding
        except CommitInDoubt as error:
            self._trouble, self._unwritten = str(error), backlog
            self._follow(self._unjournalled(events))
            if not binding:
                raise
            return True
        except JournalError as error:
            self._trouble = str(error)
            if not binding:
                return False
            self._unwritten = backlog
            records = self._unjournalled(events)
        else:
            records = records[len(records) - len(events) :] if events else ()
        self._follow(records)
        return True

    def _unjournalled(self, events: Sequence[Event]) -> Sequence[Record]:
        at = self._ports.clock.now()
        return [Record(run=self.state.run, sequence=0, at=at, event=event) for event in events]

    def _follow(self, records: Sequence[Record]) -> None:
        for record in records:
            self.state = evolve(self.state, record)
        if records:
            self._ports.reporter.events(records)

    def _act(self, actions: Sequence[Action]) -> None:
        if self._ports.around is not None and any(isinstance(one, StopNode | RebootHost) for one in actions):
            self._ports.around.before_stop()
        kept = self._barred(actions)
        if kept:
            passes = self.state.process.deposed is None
            self._write([unsent(actions[n], why, passes=passes) for n, why in sorted(kept.items())])
        sent = [action for number, action in enumerate(actions) if number not in kept]
        if not sent:
            return
        try:
            outcomes = self._executor.perform(sent)
            self._write(outcomes)
            self._heed_refusals(refusals.of_outcomes(self.state, outcomes, self._ports.clock.now()))
        except VerbDefect as defect:
            self._write(defect.outcomes)
            if isinstance(defect.__cause__, Exception):
                raise defect.__cause__ from None
            raise

    def _barred(self, actions: Sequence[Action], *, needs_record: bool = True) -> dict[int, str]:
        """The actions that may not be sent, by their places, each with the reason.

        The lease is read first if its last refresh is too old: a suspended process may have been deposed in
        the meantime.

        Args:
            actions: the decided actions.
            needs_record: bar actions that another bastion could not undo while the record is not written.
        """
        lease = self._ports.lease.confirm()
        if not isinstance(lease, Unknown):
            self._heed_lease(lease)
        wanted = needs_record and self.state.process.deposed is None
        record = self._ports.lease.publish(self.state) if wanted else Done()
        return barred(actions, deposed=self.state.process.deposed, lease=lease, record=record)
