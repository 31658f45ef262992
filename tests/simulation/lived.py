"""What every whole run of a seed has in common: attempts that end or are killed, and who takes them up."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError, LeaseError, NotRestored, SafetyViolation
from orchestrator.model.action import RebootHost, StopNode, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import encode_event
from orchestrator.model.event import (
    ActionConfirmed,
    ActionSent,
    Event,
    GateClosed,
    Overlapping,
    PhaseEntered,
    RunStarted,
    StoodDown,
    WaveStarted,
)
from orchestrator.model.observation import ServiceState
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Instant
from orchestrator.runs.simulated import Common
from orchestrator.runtime.codec import record_of, row, to_text
from orchestrator.runtime.lease import LeaseRefused, LeaseUnreachable
from orchestrator.simulation.agenda import Guest
from orchestrator.simulation.mishaps import Crash, ProgramStalls, Seams, Trip, Unreadable
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World
from tests.simulation import at_night
from tests.simulation.chance import ATTEMPTS, Afterwards, Drawn
from tests.simulation.node_mishaps import HostAnswersLate
from tests.simulation.play import StuckError, plan_of, play
from tests.simulation.program import Simulation
from tests.simulation.program_mishaps import CredentialsRefused, TakenOver

_WHOLE = 10
"""In one life of so many the journal is followed at each event, not at the end of an attempt, and a process
that takes a run up reads it from its text."""
_WORLD_HEALS_SECONDS = 8000.0
_RESUMES_A_RESTORE = 3
"""In one life of so many, people resume the run of another machine that has restored what a dead one left."""
_BEGINS_AGAIN_SECONDS = 600.0
_BEGINNINGS = 20
"""So often somebody tries to begin, resume or restore a run, so far apart, before it must be possible."""
_NEXT_LOOK_SECONDS = 2.0
"""Between two attempts of a machine to take over a run that may have stood still in the meantime."""
_MOST_TURNS = 2500
"""Several times what the longest run needs, with the short limits of its policy."""
_PATIENT_TURNS = 30_000
"""The same for one whose limits outlast an ordinary night."""
_LONGEST_SECONDS = 48 * 3600.0
NOBODY_STARTS = (ServiceState.FAILED, ServiceState.STOPPED)
"""A node that died, or was taken down by a stop so late that it is nobody's: people start it."""
_NOT_RUN = re.compile("after_recovery hooks did not run on ([^;]+)")
_JUST_NOW = 300.0
"""What has kept a node from being started until so long ago excuses that it is down."""


class BrokenError(AssertionError):
    """A property does not hold.

    Attributes:
        rule: `safety`, `machines`, `tuning`, `merging`, `invariant`, `liveness`, `restoration`,
            `completeness`, `ordinary`, `replay` or `defect`.
    """

    def __init__(self, rule: str, said: str) -> None:
        super().__init__(f"{rule}: {said}")
        self.rule = rule


@dataclass(slots=True, kw_only=True)
class Told:
    """What came of a seed."""

    seed: int
    nodes: int
    attempts: int
    outcome: Outcome
    happened: Counter[str]
    overlapped: int  # waves that stopped while copies of others recovered
    together: int  # waves in which nodes of one machine went together; `reboots`, of a machine with several
    reboots: int
    waited: int  # gates that were found closed, or could not be read
    ruled: Counter[str]  # mishaps that met the rule of the program that is about them, by kind


class Noting(Seams):
    """The seams of a run's hosts; notes what is done there before the journal tells of it."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def point(self, what: str) -> None:
        simulation = self._simulation
        for verb, kind in (("stop", StopNode), ("tune", TuneHost)):
            if what.startswith(f"after {verb} of "):
                done = sum(isinstance(action, kind) for action in simulation.hosts.sent)
                sent = [r.event.action for r in simulation.journal.records if isinstance(r.event, ActionSent)]
                if done > sum(isinstance(action, kind) for action in sent):
                    simulation.world.violations.append(f"{what} that was not written down first")
        simulation.seams.point(what)


class AnyLife:
    """A cluster with the runs on it, one after the other, until one is done.

    Attributes:
        simulation: the run in hand; `past` are those that another machine has taken over from.
        stops_before: by the program, of each node, before the run in hand.
        attempt_began: when the latest attempt did.
        patient: the limits of its policy outlast an ordinary night.
    """

    def __init__(self, drawn: Drawn, world: World) -> None:
        self.means, self.world = drawn, world
        self._whole = drawn.seed % _WHOLE == 0
        common = Common(reads_text=self._whole)
        self.simulation = Simulation(world, plan=drawn.plan, trips=drawn.trips, common=common)
        self._all = [self.simulation]
        self.past: list[Simulation] = []
        self.patient = False
        self.stops_before: dict[NodeName, int] = {}
        self.began = self.attempt_began = world.agenda.now
        self.simulation.fate.successor = self._succeed
        self._successors: list[tuple[Guest, list[tuple[Simulation, RunState]]]] = []

    def live(self) -> Told:
        """Until a run is done, or held for a reason that the plan told of."""
        try:
            return self._live()
        finally:
            self.world.agenda.dismiss()
            for simulation in self._all:
                simulation.close()

    def _live(self) -> Told:
        plan = plan_of(self.world, self.means.wanted) if self.means.planned else None
        waves = plan.waves if plan is not None and not plan.holds else ()
        planned = tuple(wave.nodes for wave in waves)
        state = self._surely(lambda: self.simulation.begin(self.means.wanted, planned=planned))
        for attempt in range(ATTEMPTS):
            state, ended = self._attempt(attempt, state)
            if ended and self._over(state):
                return self._told(attempt + 1, state)
            state = self._taken_up(attempt, state, ended=ended)
        raise BrokenError("liveness", f"not done after {ATTEMPTS} attempts: {state.outcome} {state.message}")

    @property
    def programs(self) -> tuple[Simulation, ...]:
        """Every program that was at work on this cluster, in the order in which they came."""
        return tuple(self._all)

    # What differs between kinds of cluster ------------------------------------------------------------

    def _seams(self) -> Seams:
        """The seams of a run's hosts."""
        return Noting(self.simulation)

    def _cannot_be(self, state: RunState) -> bool:
        """Whether the run is held for what no time and no repair ends."""
        raise NotImplementedError

    def _repair(self, state: RunState | None, *, ended: bool) -> None:
        """What only people can do."""
        raise NotImplementedError

    def _help_without_a_master(self) -> None:
        """What people do whose run was refused because the cluster has no master."""

    def _forgotten(self) -> None:
        """A killed run's journal is torn, and its record removed by hand: nobody knows what it changed."""

    def _judge_waves(self) -> None:
        """What must hold of the waves so far."""

    def _not_as_found(self) -> list[tuple[str, str]]:
        """What is otherwise than it was found, and by what name the program would say so."""
        raise NotImplementedError

    def _judge_done(self, state: RunState) -> None:
        """What must hold of a run that says that it is done."""
        raise NotImplementedError

    def _ruled(self) -> Counter[str]:
        """How often mishaps met the rule that is about them, by kind."""
        return Counter()

    # One attempt after the other -----------------------------------------------------------------------

    def _attempt(self, attempt: int, state: RunState) -> tuple[RunState, bool]:
        """The state at the end of an attempt, and whether it ended by itself."""
        drawn, simulation = self.means, self.simulation
        self.attempt_began = self.world.agenda.now
        simulation.hosts.seams = self._seams()
        offset = drawn.crashes[attempt] if attempt < len(drawn.crashes) else None
        simulation.seams.crash_at = None if offset is None else len(simulation.seams.passed) + offset
        ended, told = True, list[Event]()
        try:
            most_turns = _PATIENT_TURNS if self.patient else _MOST_TURNS
            state = play(
                simulation,
                state,
                told=told,
                most_turns=most_turns,
                reads=drawn.reads,
                at_the_end=not self._whole,
            )
        except Crash:
            simulation.fate.happened["the program is killed"] += 1
            ended = False
        except StuckError as stuck:
            raise BrokenError("liveness", str(stuck)) from stuck
        except SafetyViolation as violation:
            raise BrokenError("defect", str(violation)) from violation
        except AssertionError as wrong:
            raise BrokenError("replay" if "replay" in str(wrong) else "invariant", str(wrong)) from wrong
        simulation.seams.crash_at = None
        deposed = simulation.deposed
        self._outlive_successors()
        if self.world.violations:
            raise BrokenError("safety", "; ".join(self.world.violations))
        if deposed and any(ran for _, ran in self._successors):
            return self._succeeded(), True
        self._judge_waves()
        self._judge_refusals()
        if ended:
            self._judge_end(state, told)
        return state, ended

    def _over(self, state: RunState) -> bool:
        if state.outcome is Outcome.DONE:
            self._judge_done(state)
            return True
        if state.outcome is Outcome.HELD and self._cannot_be(state):
            self._judge_in_service()
            return True
        return False

    # Two processes at a time ---------------------------------------------------------------------------

    def _succeed(self, what: TakenOver) -> None:
        """Another machine takes over, once the lease of this process has run out."""
        ended: list[tuple[Simulation, RunState]] = []
        guest = self.world.agenda.invite(lambda: self._live_beside(self.simulation, what, ended))
        self._successors.append((guest, ended))

    def _live_beside(
        self, first: Simulation, what: TakenOver, ended: list[tuple[Simulation, RunState]]
    ) -> None:
        """The life of the successor; `ended` is filled with each of its runs and how it ended."""
        world, wanted = self.world, replace(self.means.wanted, timeout=None, pause_after=None)
        other = first.successor(f"{first.run}-taken")
        self._all.append(other)
        gives_up = world.agenda.now + what.seconds + _WORLD_HEALS_SECONDS
        state: RunState | None = None
        while True:
            if first is not self.simulation or first.deposed:
                return  # the run was taken over by other people meanwhile
            if first.fate.lease_holder is None:
                try:
                    state = other.take_over(wanted)
                except (LeaseError, NotRestored):  # the first one is alive, no master, or refused credentials
                    if world.agenda.now > gives_up:
                        return
                    world.agenda.advance(_NEXT_LOOK_SECONDS)
                    continue
            if first.fate.lease_holder is not None:
                return  # no other machine can know of the run: somebody has removed its record
            break
        first.fate.happened["two processes at a time"] += 1
        if state is not None:
            state = play(other, state, most_turns=_PATIENT_TURNS, reads=self.means.reads)
            ended.append((other, state))
        if what.restarts and (state is None or state.outcome is Outcome.RESTORED):
            again = other.successor(f"{first.run}-again")
            self._all.append(again)
            state = self._surely(lambda: again.begin(wanted))
            state = play(again, state, most_turns=_PATIENT_TURNS, reads=self.means.reads)
            ended.append((again, state))

    def _surely(self, begins: Callable[[], RunState]) -> RunState:
        """Begin, resume or restore; again a while later where the lease or the journal does not allow it."""
        for _ in range(_BEGINNINGS):
            try:
                return begins()
            except (LeaseError, JournalError, NotRestored) as error:  # the last: with refused credentials
                said = str(error)
                if isinstance(error, LeaseUnreachable) and not isinstance(error, LeaseRefused):
                    self._help_without_a_master()
                self.world.agenda.advance(_BEGINS_AGAIN_SECONDS)
        raise BrokenError("liveness", f"no run can be begun: {said}")

    def _outlive_successors(self) -> None:
        """Let the other processes come to their end.

        Raises:
            BrokenError: one of them failed, or does not end.
        """
        for guest, _ in self._successors:
            if not self.world.agenda.until(lambda guest=guest: guest.over, _LONGEST_SECONDS):
                raise BrokenError("liveness", "the process that took over does not end")
            match guest.failure:
                case None:
                    pass
                case StuckError() as stuck:
                    raise BrokenError("liveness", f"the process that took over: {stuck}") from stuck
                case AssertionError() as wrong:
                    raise BrokenError("invariant", f"the process that took over: {wrong}") from wrong
                case failure:
                    raise BrokenError("defect", f"the process that took over: {failure!r}") from failure

    def _stops_of_others(self, name: NodeName) -> int:
        """Stops by machines that took over between two attempts and came to their end."""
        runs = [run for _, ended in self._successors for run, _ in ended]
        stopped = ActionConfirmed(action=StopNode(node=name))
        return sum(record.event == stopped for run in runs for record in run.journal.records)

    def _succeeded(self) -> RunState:
        """The run was taken over: what is left is judged now that the successor has ended too."""
        runs = [run for _, ran in self._successors for run in ran]
        self._successors = []
        self.past += [self.simulation, *(simulation for simulation, _ in runs[:-1])]
        self.stops_before = {
            node.name: sum(fact.what == "stopped" and fact.at < runs[-1][0].began for fact in node.facts)
            for node in self.world.nodes.values()
        }
        self.simulation, state = runs[-1]
        self._judge_end(state, [record.event for record in self.simulation.journal.records])
        return state

    # Between two attempts -----------------------------------------------------------------------------

    def _taken_up(self, attempt: int, state: RunState, *, ended: bool) -> RunState:
        world = self.world
        world.agenda.advance(_WORLD_HEALS_SECONDS if ended else self.means.pauses[attempt])
        self._outlive_successors()
        who = self.means.afterwards[attempt]
        if self.simulation.fate.torn:
            who = Afterwards.ELSEWHERE  # nobody can read the journal again
            unrestored = not ended or state.outcome is Outcome.NOT_RESTORED  # only its operator knows
            if unrestored and self.simulation.fate.lease_holder is not None:
                self._forgotten()
        elif who is Afterwards.ELSEWHERE and self._unknown_elsewhere:
            who = Afterwards.RESUME
        if ended or who is Afterwards.ELSEWHERE:
            self._repair(state, ended=ended)
        self._undo_by_hand()
        while not self.simulation.fate.torn and world.agenda.now < self.simulation.fate.disk_full_until:
            # Nobody can begin anything before the disk under the state file has room again.
            world.agenda.advance(self.simulation.fate.disk_full_until - world.agenda.now)
            if who is Afterwards.ELSEWHERE and self._unknown_elsewhere:
                who = Afterwards.RESUME  # by now
        if state.begun.repairs is not None and not self.simulation.fate.torn:
            # Another machine's run that puts back: once it has, a run of its own follows.
            if state.outcome is Outcome.RESTORED:
                if self.means.seed % _RESUMES_A_RESTORE == 0:
                    self._resume_what_is_restored()
                return self._begin_elsewhere()
            return self._here_or_elsewhere(self.simulation.restore)
        if who is Afterwards.ELSEWHERE:
            for node in world.nodes.values():
                named = f"hook after_recovery on {node.name}" in state.message or node.name in _unserved(
                    state
                )
                if ended and named:
                    node.to_undo.clear()  # another run cannot know of it: whoever reads that does it by hand
            return self._begin_elsewhere()
        if who is Afterwards.RESTORE and not state.process.restoring:
            return self._here_or_elsewhere(self.simulation.restore)
        return self._here_or_elsewhere(lambda: self.simulation.resume(retry_failed=True))

    @property
    def _unknown_elsewhere(self) -> bool:
        """Whether no other machine can know of the run: somebody has removed its record."""
        return self.simulation.fate.lease_holder is not None

    def _resume_what_is_restored(self) -> None:
        """A run that only restored what another one left has no node to restart, also if it is resumed."""
        try:
            state = self._surely(self.simulation.resume)
        except BrokenError:
            if self.simulation.fate.torn:
                return
            raise
        play(self.simulation, state, most_turns=_PATIENT_TURNS, reads=self.means.reads)
        sent = (
            one.event.action for one in self.simulation.journal.records if isinstance(one.event, ActionSent)
        )
        stopped = [action.node for action in sent if isinstance(action, StopNode)]
        if stopped:
            raise BrokenError("safety", f"{stopped} stopped by a run that only restores, when it was resumed")

    def _here_or_elsewhere(self, begins: Callable[[], RunState]) -> RunState:
        """This machine goes on; another one, where its journal was damaged for good meanwhile."""
        try:
            return self._surely(begins)
        except BrokenError:
            if not self.simulation.fate.torn:
                raise
        if self.simulation.leases.in_force is None:
            self._forgotten()
        return self._begin_elsewhere()

    def _begin_elsewhere(self) -> RunState:
        """Another bastion: once the lease has run out it puts back what is owed, then begins a run anew."""
        self.past.append(self.simulation)
        self.simulation.fate.clock_ahead += self.means.skew
        self.simulation = self.simulation.elsewhere(f"run-{len(self.past) + 1}")
        self._all.append(self.simulation)
        self.simulation.fate.happened["another machine takes over"] += 1
        self.simulation.fate.happened["a machine has another clock"] += self.means.skew != 0.0
        self.stops_before = {node.name: node.restarts_by_us for node in self.world.nodes.values()}
        # Begun anew again and again, a run of many nodes never ends within a `--timeout` that spans a few:
        # whoever begins after the first sets none.
        wanted = replace(self.means.wanted, timeout=None)
        simulation = self.simulation

        def begins() -> RunState:
            if (
                self.world.master is None
            ):  # nobody but people can help a cluster that no other machine can ask
                self.world.agenda.advance(_WORLD_HEALS_SECONDS)
                self._repair(None, ended=True)
            return simulation.take_over(wanted) or simulation.begin(wanted)

        return self._here_or_elsewhere(begins)

    # What must hold --------------------------------------------------------------------------------------

    def _judge_end(self, state: RunState, told: list[Event]) -> None:
        if state.phase is not Phase.ENDED:
            raise BrokenError("liveness", f"the program ends in {state.phase}")
        left = next((event.left for event in reversed(told) if isinstance(event, StoodDown)), ())
        not_restored = state.outcome is Outcome.NOT_RESTORED
        for said, name in self._not_as_found():
            if not not_restored or not any(name in line for line in left):
                raise BrokenError("restoration", f"{said}: {state.outcome}, said to be left: {left}")
        if not_restored and state.process.refused is None:
            return
        ours = [node.name for node in self.world.nodes.values() if node.stopped_by_us and not node.process]
        failed = self._failed(state)
        if not set(ours) <= set(failed):
            raise BrokenError("restoration", f"{ours} left down as {state.outcome}, failed: {failed}")
        startable = [name for name in ours if self._could_be_started(self.world.nodes[name])]
        if startable:
            raise BrokenError("restoration", f"{startable} left down, though a start works")

    def _judge_refusals(self) -> None:
        """A refusal of the credentials is named, bars every stop, and ends the run at its limit.

        A cluster that nobody can reach refuses nobody: the refusal counts from when it answers again.
        """
        simulation, every = self.simulation, self.simulation.happened()
        began = next((one for one in every if isinstance(one.event, RunStarted)), None)
        here = [one for one in every if one.at >= self.attempt_began and one is not began]
        befell = simulation.fate.befell
        asleep = ProgramStalls | TakenOver
        unread = [(at, at + what.seconds) for at, what in befell if isinstance(what, Unreadable | asleep)]
        refused = [
            seen
            for at, what in befell
            if isinstance(what, CredentialsRefused)
            and not what.writes
            and at >= self.attempt_began
            and (seen := max((end for begin, end in unread if begin <= at < end), default=at))
            < at + what.seconds - at_night.NAMED_SECONDS
        ]
        records = [*([began] if began else []), *here]
        still = sum(what.seconds for _, what in befell if isinstance(what, asleep))
        late = [what.takes for _, what in befell if isinstance(what, HostAnswersLate)]
        still += 2 * max(late, default=0.0)  # a turn reads the hosts, and decides by the reading before it
        wrong = at_night.broken_rule(records, refused, still, simulation.fate.happened)
        if wrong is not None:
            raise BrokenError("refused", wrong)

    def _settled(self) -> Instant:
        """When the last wave of the run was back with all its copies; 0 if none was."""
        entered = [r for r in self.simulation.happened() if isinstance(r.event, PhaseEntered)]
        return max((r.at for r in entered if r.event.to == Phase.SETTLED.value), default=0.0)

    def _failed(self, state: RunState) -> list[NodeName]:
        """Nodes that were named as failed, by this run or by one of another machine that stopped them last.

        That one has ended, and its record went with it: this program cannot know of what it left.
        """
        failed = [name for name, node in state.nodes.items() if node.phase is NodePhase.FAILED]
        return failed + [name for name, _ in self._failed_by_others()]

    def _left_to_people(self, state: RunState | None, *, ended: bool) -> list[SimNode]:
        """Nodes that only people start: those that died, or that a run named as failed when it ended."""
        named = self._failed(state) if state and ended else [name for name, _ in self._failed_by_others()]
        return [
            node
            for node in self.world.nodes.values()
            if (node.service in NOBODY_STARTS and not node.stopped_by_us)
            or node.name in named
            or (ended and state is None)
        ]

    def _failed_by_others(self) -> Iterator[tuple[NodeName, RunState]]:
        """Nodes that a run of another machine had in hand last and named as failed, and how it ended.

        It stopped them, or found them stopped when it took our run over; no stop came after its end.
        """
        for other, end in (each for _, ended in self._successors for each in ended):
            until = other.happened()[-1].at
            for name, node in end.nodes.items():
                if node.phase is NodePhase.FAILED and 0.0 < self.world.nodes[name].stop_sent <= until:
                    yield name, end

    def _undo_by_hand(self) -> None:
        """People put a node into service of which another machine's run said that its hooks did not run.

        The run in hand, which is resumed, cannot know of it.
        """
        for name, end in self._failed_by_others():
            if name in _unserved(end):
                self.world.nodes[name].to_undo.clear()

    def _could_be_started(self, node: SimNode) -> bool:
        """Whether nothing has kept a node from being started, as far as its machine knows."""
        now = self.world.agenda.now
        kept = max(node.unreachable_until, node.hangs_until, node.refuses_until) > now - _JUST_NOW
        starts = [what for _, what in self.simulation.fate.befell if isinstance(what, Trip)]
        tripped = any(trip.verb in ("start", "reboot") for trip in starts)
        booting = node.service is ServiceState.STOPPING or node.stop_hangs
        unseen = node.ended > self.world.last_read
        return not (kept or tripped or booting or unseen or node.failed_starts or node.starts_that_fail)

    def _judge_in_service(self) -> None:
        """Every node that runs is in service: after_recovery follows before_stop and the stop."""
        for node in self.world.nodes.values():
            if node.to_undo and node.joined and node.present:
                raise BrokenError(
                    "completeness", f"{node.name} is left out of service: after_recovery did not run"
                )

    def _told(self, attempts: int, state: RunState) -> Told:
        return Told(
            seed=self.means.seed,
            nodes=len(self.world.nodes),
            attempts=attempts,
            outcome=state.outcome or Outcome.DONE,
            happened=self.simulation.fate.happened,
            ruled=self._ruled(),
            overlapped=self._overlapped(),
            together=sum(
                isinstance(event, WaveStarted) and bool(event.wave.machines) for event in self._events
            ),
            reboots=sum(
                isinstance(event, ActionSent)
                and isinstance(event.action, RebootHost)
                and bool(event.action.also)
                for event in self._events
            ),
            waited=sum(isinstance(event, GateClosed) for event in self._events),
        )

    def drawn_kinds(self) -> Counter[str]:
        """How often each kind of mishap was drawn for this life."""
        return Counter(
            [
                *(type(mishap.what).__name__ for mishap in self.means.plan),
                *(f"verb {trip.how.value}" for trip in self.means.trips),
            ]
        )

    def met(self) -> Counter[tuple[str, str]]:
        """In which phase of a run each mishap came about, as the journals tell."""
        entered = sorted(
            (record.at, record.event.to)
            for run in (*self.past, self.simulation)
            for record in run.happened(run.run)
            if isinstance(record.event, PhaseEntered) and record.event.node is None
        )
        moments = [at for at, _ in entered]
        met: Counter[tuple[str, str]] = Counter()
        for at, what in self.simulation.fate.befell:
            name = f"verb {what.how.value}" if isinstance(what, Trip) else type(what).__name__
            place = bisect_right(moments, at)
            met[name, entered[place - 1][1] if place else Phase.PREPARING.value] += 1
        return met

    @property
    def _events(self) -> list[Event]:
        return [record.event for run in (*self.past, self.simulation) for record in run.journal.records]

    def _overlapped(self) -> int:
        """Waves that stopped by a reading in which copies of others were on their way."""
        return sum(isinstance(event, Overlapping) and bool(event.shards) for event in self._events)

    def judge_replay(self) -> None:
        """What is read from the journals is what was lived."""
        for run in (*self.past, self.simulation):
            records = run.journal.records
            read = [record_of(**row(record)) for record in records]
            if replay(run.run, read) != replay(run.run, records):
                raise BrokenError("replay", "what is read from the journal is not what was lived")

    def trace(self) -> str:
        """A digest of all that happened; the same seed has the same one, wherever it runs."""
        digest = blake2b(digest_size=8)
        for at, what in self.world.story:
            digest.update(f"{at:.6f} {what}\n".encode())
        for run in (*self.past, self.simulation):
            for record in run.journal.records:
                digest.update(to_text({**row(record), "event": encode_event(record.event)}).encode())
        return digest.hexdigest()


def _unserved(state: RunState) -> list[str]:
    """Nodes of which a run said at its end that their hooks after recovery did not run."""
    said = _NOT_RUN.search(state.message)
    return said.group(1).split(", ") if said is not None else []
