"""One whole run of a seed, kills and all, and what must hold of it by the world's own truth."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from orchestrator.engine.evolve import replay
from orchestrator.engine.kinds.elasticsearch.settings import ALLOCATION, EXCLUSIONS
from orchestrator.engine.state import RunState
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import Moment, RebootHost, StopNode, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent, Event, PhaseEntered, RunStarted, StoodDown, WaveStarted
from orchestrator.model.gate_event import GateClosed
from orchestrator.model.observation import Level, ServiceState
from orchestrator.model.overlap import Overlapping
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.runtime.codec import decode_record, encode_record, from_text, to_text
from orchestrator.simulation import allocation, deciders, machines
from orchestrator.simulation.mishaps import Crash, Seams, SettingMeddled, SettingsRefused
from orchestrator.simulation.parts import SimIndex
from orchestrator.simulation.run import Simulation
from tests.simulation import merged, tuned
from tests.simulation.chance import ATTEMPTS, Afterwards, Chance, chance, world_of
from tests.simulation.play import StuckError, plan_of, play

_WORLD_HEALS_SECONDS = 8000.0
_LEASE_RUNS_OUT_SECONDS = 95.0
_MOST_TURNS = 2500
"""Several times what the longest run needs, with the short limits of its policy."""

_BY_THE_MAKING = frozenset(
    {
        "budget_not_exceeded",
        "capacity_remains",
        "every_role_keeps_a_member",
        "every_shard_keeps_started_copies",
        "master_quorum_survives",
        "selected_hosts_ready",
        "zero_replica_indices",
    }
)
_GO_TOGETHER = re.compile(r"; ([^;]+) go together, being on one machine: ")
_PEOPLE_SECONDS = 120.0
"""Whoever repaired something sees that it works before they go on."""


class BrokenError(AssertionError):
    """A property does not hold.

    Attributes:
        rule: `safety`, `machines`, `tuning`, `merging`, `invariant`, `liveness`, `restoration`,
            `completeness`, `replay` or `defect`.
    """

    def __init__(self, rule: str, said: str) -> None:
        super().__init__(f"{rule}: {said}")
        self.rule = rule


@dataclass(slots=True, kw_only=True)
class Told:
    """What came of a seed.

    Attributes:
        overlapped: waves that stopped while copies of others recovered.
        together: waves in which nodes of one machine went together; `reboots`, of a machine with several.
        waited: gates that were found closed, or could not be read.
    """

    seed: int
    nodes: int
    attempts: int
    outcome: Outcome
    happened: Counter[str]
    overlapped: int
    together: int
    reboots: int
    waited: int


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


class Life:
    """A cluster with the runs on it, one after the other, until one is done.

    Attributes:
        simulation: the run in hand; `past` are those that another machine has taken over from.
        stops_before: by the program, of each node, before the run in hand.
    """

    def __init__(self, drawn: Chance) -> None:
        self.drawn, self.world = drawn, world_of(drawn)
        self.simulation = Simulation(self.world, plan=drawn.plan, trips=drawn.trips)
        self.past: list[Simulation] = []
        self.stops_before: dict[NodeName, int] = {}
        self.found = self.world.settings()
        self.began = self.world.agenda.now
        self.replicas = {uuid: index.replicas for uuid, index in self.world.indices.items()}

    def live(self) -> Told:
        """Until a run is done, or held for a reason that the plan told of."""
        plan = plan_of(self.world, self.drawn.wanted) if self.drawn.planned else None
        waves = plan.waves if plan is not None and not plan.holds else ()
        state = self.simulation.begin(self.drawn.wanted, planned=tuple(wave.nodes for wave in waves))
        for attempt in range(ATTEMPTS):
            state, ended = self._attempt(attempt, state)
            if ended and self._over(state):
                return self._told(attempt + 1, state)
            state = self._taken_up(attempt, state, ended=ended)
        raise BrokenError("liveness", f"not done after {ATTEMPTS} attempts: {state.outcome} {state.message}")

    def _attempt(self, attempt: int, state: RunState) -> tuple[RunState, bool]:
        """The state at the end of an attempt, and whether it ended by itself."""
        drawn, simulation = self.drawn, self.simulation
        simulation.hosts.seams = Noting(simulation)
        offset = drawn.crashes[attempt] if attempt < len(drawn.crashes) else None
        simulation.seams.crash_at = None if offset is None else len(simulation.seams.passed) + offset
        ended, told = True, list[Event]()
        try:
            state = play(simulation, state, told=told, most_turns=_MOST_TURNS, reads=drawn.reads)
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
        if self.world.violations:
            raise BrokenError("safety", "; ".join(self.world.violations))
        self._judge_machines()
        if ended:
            self._judge_end(state, told)
            simulation.let_go(state)
        return state, ended

    def _over(self, state: RunState) -> bool:
        if state.outcome is Outcome.DONE:
            self._judge_done(state)
            return True
        held = state.outcome is Outcome.HELD
        return held and (self._holds_for_a_whole_machine(state) or self._holds_by_its_making)

    @cached_property
    def _holds_by_its_making(self) -> bool:
        """Whether the cluster as it was at the beginning cannot spare its nodes, however long one waits."""
        holds = plan_of(world_of(self.drawn), self.drawn.wanted).holds
        return any(hold.predicate in _BY_THE_MAKING for hold in holds)

    def _holds_for_a_whole_machine(self, state: RunState) -> bool:
        """Whether a machine cannot go whole, by where copies and votes are now: its operator has to act."""
        said = _GO_TOGETHER.search(state.message)
        if said is None:
            return False
        names = said.group(1).split(", ")
        if len({self.world.nodes[NodeName(name)].machine for name in names}) > 1:
            raise BrokenError("machines", f"not one machine: {state.message}")
        return self.drawn.wanted.goes_by_machine

    # Between two attempts -----------------------------------------------------------------------------

    def _taken_up(self, attempt: int, state: RunState, *, ended: bool) -> RunState:
        world = self.world
        world.agenda.advance(_WORLD_HEALS_SECONDS if ended else self.drawn.pauses[attempt])
        who = self.drawn.afterwards[attempt]
        if ended or who is Afterwards.ELSEWHERE:
            self._repair(state, ended=ended)
        while world.agenda.now < self.simulation.fate.disk_full_until:
            # Nobody can begin anything before the disk under the state file has room again.
            world.agenda.advance(self.simulation.fate.disk_full_until - world.agenda.now)
        if state.repairs is not None:
            # Another machine's run that puts back: once it has, a run of its own follows.
            return self._begin_elsewhere() if state.outcome is Outcome.RESTORED else self.simulation.restore()
        if who is Afterwards.ELSEWHERE:
            return self._begin_elsewhere()
        if who is Afterwards.RESTORE and not state.restoring:
            return self.simulation.restore()
        return self.simulation.resume(retry_failed=True)

    def _begin_elsewhere(self) -> RunState:
        """Another bastion: once the lease has run out it puts back what is owed, then begins a run anew."""
        self.world.agenda.advance(_LEASE_RUNS_OUT_SECONDS)
        if self.world.master is None:
            self.world.agenda.advance(_WORLD_HEALS_SECONDS)
            self._repair(None, ended=True)
        self.past.append(self.simulation)
        self.simulation = self.simulation.elsewhere(f"run-{len(self.past) + 1}")
        self.simulation.fate.happened["another machine takes over"] += 1
        self.stops_before = {node.name: node.restarts_by_us for node in self.world.nodes.values()}
        # Begun anew again and again, a run of many nodes never ends within a `--timeout` that spans a few:
        # whoever begins after the first sets none.
        wanted = replace(self.drawn.wanted, timeout=None)
        return self.simulation.take_over(wanted) or self.simulation.begin(wanted)

    def _repair(self, state: RunState | None, *, ended: bool) -> None:
        """What only people can do: undo what bars a run, start what died or was reported as failed."""
        world, fate = self.world, self.simulation.fate
        persistent, transient = world.settings()
        for (level, key), meddled in list(world.meddled.items()):
            stands = (persistent if level is Level.PERSISTENT else transient).get(key)
            theirs = bool(meddled) and stands is not None and meddled[-1].value == stands
            if theirs and (key == ALLOCATION or key.startswith(EXCLUSIONS)):
                fate.befall(SettingMeddled(key=key, value=None, level=level))
        if world.refuse_settings is not None:
            fate.befall(SettingsRefused(reason=""))
        failed = [n.name for n in state.nodes.values() if n.phase is NodePhase.FAILED] if state else []
        for node in world.nodes.values():
            theirs = node.service is ServiceState.FAILED and not node.stopped_by_us
            if theirs or (ended and (node.name in failed or state is None)):
                node.starts_that_fail = 0
                machines.start(world, node)
        if ended:
            tuned.repair(world)
            for _, shard in deciders.shards_of(world):
                shard.failing = 0
            allocation.retry_failed(world)
            world.agenda.advance(_PEOPLE_SECONDS)

    # What must hold --------------------------------------------------------------------------------------

    def _judge_machines(self) -> None:
        """A wave takes all nodes of a machine that are still to be restarted, where they go together."""
        if not self.drawn.wanted.goes_by_machine:
            return
        phases: dict[NodeName, str] = {}
        for event in (record.event for record in self.simulation.journal.records):
            match event:
                case RunStarted(nodes=nodes):
                    phases = dict.fromkeys(nodes, NodePhase.PENDING.value)
                case PhaseEntered(node=node, to=to) if node is not None:
                    phases[node] = to
                case WaveStarted(wave=wave):
                    going = {self.world.nodes[name].machine for name in wave.nodes}
                    pending = [name for name, phase in phases.items() if phase == NodePhase.PENDING.value]
                    left = [name for name in pending if self.world.nodes[name].machine in going]
                    if not set(left) <= set(wave.nodes):
                        raise BrokenError("machines", f"wave {wave.nodes} splits {left}")

    def _judge_end(self, state: RunState, told: list[Event]) -> None:
        if state.phase is not Phase.ENDED:
            raise BrokenError("liveness", f"the program ends in {state.phase}")
        left = next((event.left for event in reversed(told) if isinstance(event, StoodDown)), ())
        not_restored = state.outcome is Outcome.NOT_RESTORED
        for said, name in self._not_as_found():
            if not not_restored or not any(name in line for line in left):
                raise BrokenError("restoration", f"{said}: {state.outcome}, said to be left: {left}")
        if not_restored:
            return
        ours = [node.name for node in self.world.nodes.values() if node.stopped_by_us and not node.process]
        failed = [name for name, node in state.nodes.items() if node.phase is NodePhase.FAILED]
        if not set(ours) <= set(failed):
            raise BrokenError("restoration", f"{ours} left down as {state.outcome}, failed: {failed}")

    def _not_as_found(self) -> list[tuple[str, str]]:
        """What is otherwise than it was found, and by what name the program would say so."""
        world = self.world
        wrong = []
        for level, before, now in zip(Level, self.found, world.settings(), strict=True):
            for key in sorted({*before, *now}):
                wanted = world.may_stand(level, key, before.get(key))
                if now.get(key) not in wanted:
                    should = " or ".join(str(value) for value in wanted)
                    wrong.append((f"{key} ({level.value}) is {now.get(key)} and should be {should}", key))
        wrong += [
            (f"{index.name} has {index.replicas} replicas", index.name)
            for index in world.indices.values()
            if index.auto_expand is None and index.replicas not in self._replicas_of(index)
        ]
        ours = [name for name in world.exclusions if name not in world.excluded_by_others]
        wrong += [(f"{name} is excluded from voting", name) for name in ours]
        return wrong

    def _replicas_of(self, index: SimIndex) -> tuple[int | None, ...]:
        """How many it may have: as many as were found, or as the playbook wants them after a load.

        One that was made during the run is another index, whatever its name: it has what its maker gave it.
        """
        merge = self.drawn.wanted.merge
        put_right = merge.put_right.number_of_replicas if merge and index.name.startswith("posts-") else None
        return (self.replicas.get(index.uuid, index.made_with), put_right)

    def _judge_done(self, state: RunState) -> None:
        self._judge_tuning()
        many = merged.unmerged(self.world, state, self.began)
        if many:
            raise BrokenError("merging", f"done, and not merged: {'; '.join(many)}")
        world = self.world
        # A node that dies or is restarted by hand, missed only when the last wave has recovered, is none of
        # the run.
        entered = [r for r in self.simulation.journal.records if isinstance(r.event, PhaseEntered)]
        recovered = max((r.at for r in entered if r.event.to == Phase.SETTLED.value), default=0.0)
        unnoticed = recovered - self.simulation.clock.ahead - world.detection_seconds
        since = [what for at, what in world.story if at >= unnoticed]
        gone = {what.removesuffix(" dies").removesuffix(" left") for what in since}
        if not any(what.endswith((" dies", " left")) for what in since):
            self._judge_copies(since)
        for name in state.nodes:
            node = world.nodes[name]
            stops = node.restarts_by_us - self.stops_before.get(name, 0)
            if not node.joined and (name not in gone or node.stopped_by_us):
                raise BrokenError("completeness", f"{name} is away at the end")
            if node.life == 1:
                raise BrokenError("completeness", f"{name} was not restarted")
            if stops > 1 and not state.policy.reboot:
                raise BrokenError("completeness", f"{name} was stopped {stops} times")
            hooks = [moment for node, moment, _ in self.simulation.hosts.hooks if node == name]
            if hooks and hooks[-1] != Moment.AFTER_RECOVERY.value:
                raise BrokenError(
                    "completeness", f"{name} is left out of service: its last hook is {hooks[-1]}"
                )

    def _judge_tuning(self) -> None:
        """What was gone through is as wanted, or was told; a change done late may come after that."""
        if self.drawn.wanted.tune is None:
            return
        wrong = [*tuned.untold(self.world, self._events), *tuned.unheeded(self._events)]
        if wrong:
            raise BrokenError("tuning", "; ".join(wrong))

    def _judge_copies(self, since: list[str]) -> None:
        """Every copy is back that was there before the run, but for what happened `since` the last look."""
        for _, shard in deciders.shards_of(self.world):
            missing = sum(not copy.serves for copy in shard.copies)
            seen = not any(str(shard.id) in what.split() for what in since)
            if seen and missing > self.world.unassigned_before[shard.id]:
                raise BrokenError("completeness", f"{missing} copies of {shard.id} are missing at the end")

    def _told(self, attempts: int, state: RunState) -> Told:
        return Told(
            seed=self.drawn.seed,
            nodes=len(self.world.nodes),
            attempts=attempts,
            outcome=state.outcome or Outcome.DONE,
            happened=self.simulation.fate.happened,
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
            read = [decode_record(from_text(to_text(encode_record(record)))) for record in records]
            if replay(run.run, read) != replay(run.run, records):
                raise BrokenError("replay", "what is read from the journal is not what was lived")

    def trace(self) -> str:
        """A digest of all that happened; the same seed has the same one, wherever it runs."""
        digest = blake2b(digest_size=8)
        for at, what in self.world.story:
            digest.update(f"{at:.6f} {what}\n".encode())
        for run in (*self.past, self.simulation):
            for record in run.journal.records:
                digest.update(to_text(encode_record(record)).encode())
        return digest.hexdigest()


_READ_BACK = 10
"""One run of so many is read back from its journal's text."""


def live(seed: int) -> Told:
    """The run of that seed.

    Raises:
        BrokenError: a property does not hold.
    """
    life = Life(chance(seed))
    told = life.live()
    if seed % _READ_BACK == 0:
        life.judge_replay()
    return told
