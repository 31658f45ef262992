"""The loop: observe, decide, commit, act, record, listen. It has no opinion of its own.

What it does guarantee is the order. Events are committed before anything is done on their strength; if the
commit fails, nothing disruptive is done any more: the run stands down, and what a stand-down does (starts,
restores) is done without a journal if need be. The record in the cluster is brought up to the state before
the state is acted on, so that another bastion can always put the cluster back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.engine.decide import decide
from orchestrator.engine.decision import Decision
from orchestrator.engine.evolve import evolve
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError
from orchestrator.model.action import (
    Action,
    Done,
    ExcludeFromVoting,
    Purpose,
    SetReplicas,
    StopNode,
    WriteSettings,
)
from orchestrator.model.event import (
    ActionFailed,
    Event,
    LeaseLost,
    LeaseRegained,
    Record,
    Requested,
    StandingDown,
    run_phase,
)
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.ports import (
    Clock,
    ClusterPort,
    GatePort,
    HostPort,
    Journal,
    LeaseKeeper,
    Listener,
    Reporter,
)
from orchestrator.runtime.executor import Executor
from orchestrator.runtime.lookout import Lookout, Order

Asked = Callable[[], tuple[Request, str]]
"""The strongest request so far, and by whom: signals and the requests that other terminals left."""

_DEFECTS_BORNE = 3
"""The first leads to the stand-down; a stand-down that meets more of them has little left to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world as one run is given it.

    Attributes:
        gates: None where the playbook has none; one that it has is closed then.
    """

    cluster: ClusterPort
    hosts: HostPort
    lease: LeaseKeeper
    journal: Journal
    clock: Clock
    listener: Listener
    reporter: Reporter
    gates: GatePort | None = None


class Loop:
    """Drives one run until it has ended.

    Args:
        state: of the run, as begun or replayed.
        ports: its world.
        asked: what people want of it.
        workers: hosts worked on at once.
        reads: in which order the world is read.
    """

    def __init__(
        self,
        state: RunState,
        ports: Ports,
        *,
        asked: Asked,
        workers: int = 16,
        reads: Order = Order.AT_ONCE,
    ) -> None:
        self.state = state
        self._ports, self._asked = ports, asked
        self._lookout = Lookout(
            ports.cluster, ports.hosts, ports.lease, ports.clock, gates=ports.gates, order=reads
        )
        self._executor = Executor(ports.cluster, ports.hosts, workers=workers)
        self._unwritten: list[Event] = []
        self._sequence = 0

    def run(self) -> RunState:
        """Go on until the run has ended; the state that it ended in.

        A defect must not leave a node down and allocation withheld: the run stands down first, as far as the
        defect lets it, and the defect is raised then.

        Raises:
            SafetyViolation: a decision broke a rule of the program's own.
            Exception: any other defect of the program.
        """
        defects: list[Exception] = []
        while not self._ended():
            try:
                self._heed()
                self.turn(self._lookout.observe(self.state))
            except Exception as defect:  # raised again below, once everything is put back
                defects.append(defect)
                if len(defects) > _DEFECTS_BORNE or self._ended():
                    raise defects[0] from defect
                self._stand_down_on(defect)
        if self.state.outcome is not None:
            self._ports.reporter.finished(self.state, self.state.outcome)
        if defects:
            raise defects[0]
        return self.state

    def _ended(self) -> bool:
        return self.state.phase is Phase.ENDED

    def _stand_down_on(self, defect: Exception) -> None:
        """Go over to putting everything back; what was under way may have been done."""
        reason = f"a defect of the program: {type(defect).__name__}: {defect}"
        events: list[Event] = [
            ActionFailed(action=action, reason=reason, in_doubt=True) for action in self.state.in_flight
        ]
        if self.state.phase is not Phase.STANDING_DOWN:
            events.append(StandingDown(reason=reason, outcome=Outcome.FAILED))
            events.append(run_phase(self.state.phase, Phase.STANDING_DOWN, why=reason))
        if events:
            self._write(events)

    def turn(self, observation: Observation) -> None:
        """One decision and what follows from it."""
        decision = decide(self.state, observation, self._ports.clock.now())
        if not self._commit(decision):
            return
        self._ports.reporter.waiting(self.state, decision)
        if decision.actions:
            self._act(decision.actions)
        elif decision.watch is not None:
            self._ports.listener.listen(decision.watch)

    def _heed(self) -> None:
        """Write down what was asked, and a lease that is lost, once each."""
        request, by = self._asked()
        news: list[Event] = []
        if request > self.state.request:
            news.append(Requested(request=request, by=by))
        lease = self._ports.lease.view()
        if not lease.held and self.state.lease_lost is None:
            news.append(LeaseLost(reason=f"the lease is lost to {lease.holder}"))
        if lease.held and self.state.lease_lost is not None:
            news.append(LeaseRegained(holder=lease.holder))
        if news:
            self._write(news)

    def _commit(self, decision: Decision) -> bool:
        """Write the decision's events; False when they could not be and may not be acted on."""
        if not decision.events:
            return True
        if self._write(decision.events, binding=self._may_act_unjournalled()):
            return True
        self._give_up_on_the_journal()
        return False

    def _may_act_unjournalled(self) -> bool:
        """Starts and restores go on without a journal; `resume` recognises them from the world."""
        return self.state.phase is Phase.STANDING_DOWN

    def _give_up_on_the_journal(self) -> None:
        reason = (
            "the journal cannot be written: free space or repair the state file, then "
            f"`orchestrate resume {self.state.run}`"
        )
        events: list[Event] = [StandingDown(reason=reason, outcome=Outcome.FAILED)]
        events.append(run_phase(self.state.phase, Phase.STANDING_DOWN, why=reason))
        self._write(events, binding=True)

    def _write(self, events: Sequence[Event], *, binding: bool = True) -> bool:
        """Commit events and let the state follow.

        Args:
            events: in order.
            binding: what they tell has happened or must happen whether or not it can be written; it is
                written later, in its order, if the journal heals.
        """
        at = self._ports.clock.now()
        backlog = [*self._unwritten, *events]
        try:
            records = self._ports.journal.append(backlog, at)
            self._unwritten = []
        except JournalError:
            if not binding:
                return False
            self._unwritten = backlog
            records = [Record(run=self.state.run, sequence=0, at=at, event=event) for event in events]
        else:
            records = records[len(records) - len(events) :]
        for record in records:
            self.state = evolve(self.state, record)
        self._ports.reporter.events(records)
        return True

    def _act(self, actions: Sequence[Action]) -> None:
        published = self._ports.lease.publish(self.state)
        if not isinstance(published, Done):
            barred = [action for action in actions if self._needs_record(action)]
            if barred:
                reason = f"the record in the cluster could not be written: {published.reason}"
                self._write(
                    [ActionFailed(action=action, reason=reason, in_doubt=False) for action in actions]
                )
                return
        self._write(self._executor.perform(actions))

    @staticmethod
    def _needs_record(action: Action) -> bool:
        """What another bastion could not put back without the record. Starts and restores never wait."""
        match action:
            case WriteSettings(purpose=purpose):
                return purpose not in (Purpose.REASSIGN, Purpose.PUT_BACK)
            case SetReplicas(found=found, wanted=wanted):
                return wanted > found
            case StopNode() | ExcludeFromVoting():
                return True
            case _:
                return False
