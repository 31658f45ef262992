"""One whole run of a seed, kills and all, and what must hold of it by the world's own truth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import inf

from orchestrator.engine.state import RunState
from orchestrator.model.action import StopNode
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName, Role, ShardId
from orchestrator.model.event import (
    ActionSent,
    NotWaitedFor,
    OwedAgain,
    PhaseEntered,
    RestoreBegun,
    RunResumed,
    RunStarted,
    TakenDown,
    WaveFinished,
    WaveStarted,
)
from orchestrator.model.observation import Level, SettingValue
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.reading import Instant
from orchestrator.model.work_event import Upgraded
from orchestrator.simulation import allocation, deciders, machines, turns
from orchestrator.simulation.facts import AbsentCopy
from orchestrator.simulation.mishaps import How, SettingMeddled
from orchestrator.simulation.parts import SimCopy, SimIndex
from tests.simulation import merged, odd, tuned, upgrading
from tests.simulation.balanced import Gateway
from tests.simulation.chance import Chance, chance, world_of
from tests.simulation.chance_riak import FIRST, chance_riak
from tests.simulation.lived import NOBODY_STARTS, AnyLife, BrokenError, Told
from tests.simulation.play import plan_holds_for
from tests.simulation.program_mishaps import SettingsRefused
from tests.simulation.wide_riak import RiakLife

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
_WAITS_FOR_NOTHING = 300.0
"""A run continues within so long once every copy is back that its wave took down."""
_RISES_SECONDS = 60.0
"""A node that people start is up within it; the next run may end within a second."""

_PEOPLE_SECONDS = 120.0
"""Whoever repaired something sees that it works before they go on."""


class Life(AnyLife):
    """A cluster with the runs on it, one after the other, until one is done."""

    def __init__(self, drawn: Chance) -> None:
        super().__init__(drawn, world_of(drawn))
        self.drawn = drawn
        self.found = self.world.settings()
        self.replicas = {uuid: index.replicas for uuid, index in self.world.indices.items()}
        self.versions = {node.name: (node.version, node.zone) for node in self.world.nodes.values()}
        self.patient = drawn.ordinary
        self.forgotten: dict[Level, SettingValue | None] = {}
        self.held = ""
        self.simulation.fate.happened += drawn.endpoints.kinds if drawn.endpoints is not None else Counter()

    def drawn_kinds(self) -> Counter[str]:
        """How often each kind of mishap was drawn for this life, endpoints too."""
        endpoints = self.drawn.endpoints
        return super().drawn_kinds() + (Counter() if endpoints is None else endpoints.kinds)

    def _ruled(self) -> Counter[str]:
        """What the program held for or foresaw; and endpoints that answered for a node that was avoided."""
        befell = [what for fate in {run.fate: None for run in self._all} for _, what in fate.befell]
        gateway, found = self.world.endpoints, odd.met(befell, self._events)
        if isinstance(gateway, Gateway):
            found += Counter({kind: 1 for kind, times in gateway.met.items() if times})
        return found

    def _cannot_be(self, state: RunState) -> bool:
        return (
            self._holds_for_a_whole_machine(state)
            or self._holds_for_a_copy_too_many(state)
            or self._holds_by_its_making
        )

    @cached_property
    def _holds_by_its_making(self) -> bool:
        """Whether the cluster as it was at the beginning cannot spare its nodes, however long one waits.

        A plan ends at the pause that was asked for, so one without it is asked.
        """
        whole = replace(self.drawn.wanted, pause_after=None)
        return plan_holds_for(world_of(self.drawn), whole, _BY_THE_MAKING)

    def _holds_for_a_whole_machine(self, state: RunState) -> bool:
        """Whether a machine cannot go whole, by where copies and votes are now: its operator has to act."""
        said = _GO_TOGETHER.search(state.message)
        if said is None:
            return False
        names = said.group(1).split(", ")
        if len({self.world.nodes[NodeName(name)].machine for name in names}) > 1:
            raise BrokenError("machines", f"not one machine: {state.message}")
        return self.drawn.wanted.goes_by_machine

    def _holds_for_a_copy_too_many(self, state: RunState) -> bool:
        """Whether it holds again, after repairs, for a copy that no node would take, by these deciders too.

        A node that was away has left more copies of an index in a zone than its share: its operator has to
        take a replica away, or accept the index by name.
        """
        again, self.held = self.held == state.message, state.message
        return again and any(
            "copies_can_return (" in state.message
            and _names(state.message, index)
            and not deciders.may_return(self.world, index, shard, self.world.nodes[copy.node])
            for index, shard in deciders.shards_of(self.world)
            for copy in shard.started
            if copy.node is not None
        )

    def _forgotten(self) -> None:
        """What stands now is what the next run finds, and no limit that was raised can be told from others'.

        Disabled allocation can: the next run must hold and name it, and people then set it as it was
        (`_repair`). A run that is done beside it is none. Nodes that are down are missed, and started.
        """
        before, self.found = self.found, self.world.settings()
        for level, was, now in zip(Level, before, self.found, strict=True):
            if was.get(ALLOCATION) != now.get(ALLOCATION):
                self.forgotten[level] = was.get(ALLOCATION)
        for node in self.world.nodes.values():
            machines.start(self.world, node)
        self.world.agenda.advance(_RISES_SECONDS)

    def _repair(self, state: RunState | None, *, ended: bool) -> None:
        """What only people can do: undo what bars a run, start what died or was reported as failed."""
        world, fate = self.world, self.simulation.fate
        if state is not None and ended and ALLOCATION in state.message:
            for level, value in self.forgotten.items():
                world.set(level, ALLOCATION, value)
                self.found[level is Level.TRANSIENT][ALLOCATION] = value
            self.forgotten = {}
        persistent, transient = world.settings()
        for (level, key), meddled in list(world.meddled.items()):
            stands = (persistent if level is Level.PERSISTENT else transient).get(key)
            theirs = bool(meddled) and stands is not None and meddled[-1].value == stands
            if theirs and (key == ALLOCATION or key.startswith(deciders.OF_PLACES)):
                fate.befall(SettingMeddled(key=key, value=None, level=level))
        if world.refuse_settings is not None:
            fate.befall(SettingsRefused(reason=""))
        for index in list(world.indices.values()):
            named = state is None or _names(state.message, index)
            if ended and named and index.ruled_at >= self.began:
                allocation.rule(world, index, {})
        for node in self._left_to_people(state, ended=ended):
            node.starts_that_fail = 0
            machines.start(world, node)
        if ended:
            for node in world.nodes.values():
                node.crashes = 0
                version, node.zone = self.versions[node.name]
                if self.drawn.wanted.upgrade is None:
                    node.version = version
            self._give_up_what_is_lost()
            tuned.repair(world)
            for _, shard in deciders.shards_of(world):
                shard.failing = 0
            allocation.retry_failed(world)
            world.agenda.advance(_PEOPLE_SECONDS)

    def _help_without_a_master(self) -> None:
        """Start the nodes that died by themselves, as the refusal says, once the program has done its part.

        A node that the program stopped and could start is for the program: without that start no run begins.
        """
        nodes = self.world.nodes.values()
        left = [node for node in nodes if node.stopped_by_us and not node.process]
        if self.world.master is None and not any(self._could_be_started(node) for node in left):
            for node in nodes:
                if node.service in NOBODY_STARTS and not node.stopped_by_us:
                    machines.start(self.world, node)

    def _give_up_what_is_lost(self) -> None:
        """Delete indices that lie on no disk any more, or whose restore has failed."""
        for index, shard in list(deciders.shards_of(self.world)):
            gone = not shard.started and not shard.primary.fresh
            if shard.never or (gone and not shard.in_sync & set(shard.on_disk.values())):
                self.world.delete_index(index.name)

    # What must hold --------------------------------------------------------------------------------------

    def _over(self, state: RunState) -> bool:
        """Ordinary mishaps end no attempt but one that somebody interrupted."""
        over = super()._over(state)
        restored = state.outcome is Outcome.RESTORED  # asked for, by `restore`
        asked = restored or self.simulation.fate.request is not Request.NONE
        if not over:
            self._judge_foreseen()
        if not over and self.drawn.ordinary and not asked:
            raise BrokenError("ordinary", f"{state.outcome}: {state.message}")
        return over

    def _judge_foreseen(self) -> None:
        """No attempt waits to its limit for a copy that no node takes, by rules older than its first stop."""
        records = [r for r in self.simulation.happened() if r.at >= self.attempt_began]
        entered = [
            (r.at, r.event.to) for r in records if isinstance(r.event, PhaseEntered) and not r.event.node
        ]
        spent = {(to, then): until - at for (at, to), (until, then) in pairwise(entered)}
        waited_out = spent.get((Phase.REASSIGNED.value, Phase.STANDING_DOWN.value), 0.0)
        stops = [
            r.at for r in records if isinstance(r.event, ActionSent) and isinstance(r.event.action, StopNode)
        ]
        if waited_out < self.drawn.wanted.deadlines.recover or not stops:
            return
        began = stops[0]
        waited = [found for shard in self.world.missing if (found := self.world.placement.shard(shard))]
        foreseen = [
            self.began <= max(index.ruled_at, self.world.ruled_at) < began
            and all(copy.state is not CopyState.INITIALIZING for copy in shard.copies)
            and not deciders.has_place(self.world, index, shard)
            for index, shard in waited
        ]
        if foreseen and all(foreseen):
            raise BrokenError("foreseen", f"{waited[0][1].id} is waited for, and no node takes it")

    def _judge_waves(self) -> None:
        """A wave takes all nodes of a machine that are still to be restarted, where they go together.

        Judged when a stop is sent: a node that a lost stop of ours takes down late, or that another run left
        in hand, is a wave in which it is only started, and nobody chose it.
        """
        if not self.drawn.wanted.goes_by_machine:
            return
        phases: dict[NodeName, str] = {}
        split = ""
        for event in (record.event for record in self.simulation.journal.records):
            match event:
                case RunStarted(nodes=nodes):
                    phases = dict.fromkeys(nodes, NodePhase.PENDING.value)
                case PhaseEntered(node=node, to=to) if node is not None:
                    phases[node] = to
                case ActionSent(action=StopNode()) if split:
                    raise BrokenError("machines", split)
                case WaveStarted(wave=wave):
                    going = {self.world.nodes[name].machine for name in wave.nodes}
                    pending = [name for name, phase in phases.items() if phase == NodePhase.PENDING.value]
                    left = [name for name in pending if self.world.nodes[name].machine in going]
                    whole = set(left) <= set(wave.nodes)
                    split = "" if whole else f"wave {wave.nodes} splits {left}"

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
        others = index.wanted_by_others
        put_right = merge.put_right.number_of_replicas if merge and index.name.startswith("posts-") else None
        found = self.replicas.get(index.uuid, index.made_with)
        return (found, put_right) if others is None else (others, put_right)

    def _judge_done(self, state: RunState) -> None:
        if self.forgotten:
            raise BrokenError("restoration", f"done, and {ALLOCATION} is as a killed run left it")
        self._judge_tuning()
        # A node that this run never had, and that joined after its end, is none of its promise.
        ended = state.in_phase.since - self.simulation.clock.ahead
        came = {what.removesuffix(" joined") for at, what in self.world.story if at > ended}
        left = {*upgrading.left_behind(self.world, state)} - (came - {*state.nodes})
        if left:
            raise BrokenError("completeness", f"done, and not upgraded: {', '.join(sorted(left))}")
        written = [record.event for record in self.simulation.journal.records]
        many = merged.unmerged(self.world, state, self.began, written)
        if many:
            raise BrokenError("merging", f"done, and not merged: {'; '.join(many)}")
        world = self.world
        # A node that dies or is restarted by hand, missed only when the last wave has recovered, is none of
        # the run.
        unnoticed = self._settled() - world.detection_seconds
        since = [what for at, what in world.story if at >= unnoticed]
        gone = {what.removesuffix(" dies").removesuffix(" left") for what in since}
        if not any(what.endswith((" dies", " left")) for what in since):
            self._judge_copies(since)
        for name in state.nodes:
            node = world.nodes[name]
            began, attempt = self.simulation.began, self.attempt_began
            others = [e for e in self._events if isinstance(e, Upgraded) and e.node == name and e.by_others]
            lacks = turns.lacking(
                node, state.begun.policy, began, attempt, self._as_found, by_others=bool(others)
            )
            if lacks:
                raise BrokenError("completeness", "; ".join(lacks))
            stops = node.restarts_by_us - self.stops_before.get(name, 0) - self._stops_of_others(name)
            spared = not (node.holds_data or Role.MASTER in node.roles) and not node.stopped_by_us
            if not node.joined and not spared and (name not in gone or node.stopped_by_us):
                raise BrokenError("completeness", f"{name} is away at the end")
            again = sum(isinstance(event, OwedAgain) and event.node == name for event in self._events)
            if stops > 1 + again and not self._may_stop_again:
                raise BrokenError("completeness", f"{name} was stopped {stops} times")
        if self.drawn.ordinary:
            self._judge_waits()

    @property
    def _may_stop_again(self) -> bool:
        """Whether a turn can need more than one stop: something may be left to do while the node is down.

        A stop that is done so late that it was sent again counts twice.
        """
        wanted = self.drawn.wanted
        if any(trip.verb == "stop" and trip.how is How.LATE for trip in self.drawn.trips):
            return True
        return wanted.reboot or wanted.tune is not None or bool(wanted.hooks.while_stopped)

    def _judge_waits(self) -> None:
        """A run does not wait on for copies that the wave did not take down.

        Sent back from the choice of a wave it does: no candidate may be stopped while they recover.
        """
        entered = [
            (record.at, record.event)
            for record in self.simulation.happened()
            if isinstance(record.event, RunResumed | RestoreBegun | PhaseEntered)
            and getattr(record.event, "node", None) is None
        ]
        for (since, event), (until, then) in pairwise(entered):
            if not isinstance(event, PhaseEntered) or event.to != Phase.REASSIGNED.value:
                continue
            if event.from_ == Phase.GATED.value:
                continue
            if not isinstance(then, PhaseEntered):
                continue  # the program was killed meanwhile
            turned = [each for each in self.world.whole if each[0] <= until]
            at, whole = turned[-1] if turned else (since, True)
            if whole and until - max(at, since) > _WAITS_FOR_NOTHING:
                waited = until - max(at, since)
                raise BrokenError("ordinary", f"waits {waited:.0f} s for copies that were not on the wave")

    def _judge_tuning(self) -> None:
        """What was gone through is as wanted, or was told; a change done late may come after that."""
        if self.drawn.wanted.tune is None:
            return
        wrong = [*tuned.untold(self.world, self._events), *tuned.unheeded(self._events)]
        if wrong:
            raise BrokenError("tuning", "; ".join(wrong))

    def _judge_copies(self, since: list[str]) -> None:
        """Every copy is back that was there before the run, but for what happened `since` the last look."""
        for index, shard in deciders.shards_of(self.world):
            if max(index.made_at, index.changed_at, index.ruled_at) > self.began:
                continue  # what somebody made or changed during the run is for them to wait for
            missing = sum(not copy.serves for copy in shard.copies) - _on_their_way(shard.copies)
            seen = not any(str(shard.id) in what.split() for what in since)
            joined = sum(node.holds_data and node.joined for node in self.world.nodes.values())
            places = min(joined, deciders.places_for(self.world, index, shard))
            added = self._added_by_others(index)
            missing, without_place = missing - added, len(shard.copies) - added - places
            excused = max(self.world.missing_before[shard.id], without_place)
            serving = sum(copy.serves for copy in shard.copies)
            if seen and missing > excused and missing > self._reported_missing(shard.id, serving):
                raise BrokenError("completeness", f"{missing} copies of {shard.id} are missing at the end")

    def _as_found(self, at: Instant, absent: AbsentCopy) -> bool:
        index, shard = self.world.placement.shard(absent.shard) or (None, None)
        if index is not None and shard is not None and not deciders.has_place(self.world, index, shard):
            return True
        return absent.had - absent.serving <= self._reported_missing(absent.shard, absent.serving, until=at)

    def _reported_missing(self, shard: ShardId, serving: int, until: Instant = inf) -> int:
        """How many copies the run has said that it does not wait for: a wave finds and leaves the shard so.

        None while fewer serve than when a wave last took some down that it did not bring back, whichever of
        the copies without a place the cluster builds first: those are the wave's own.
        """
        events = (
            record.event
            for run in (*self.past, self.simulation)
            for record in run.happened()
            if record.at <= until
        )
        key, said, owed, left = (shard.index_uuid, shard.number), 0, dict[int, int](), set[int]()
        for event in events:
            match event:
                case TakenDown(number=wave, indices=indices):
                    here = [each.started for each in indices if each.index_uuid == shard.index_uuid]
                    counts = [count for each in here for number, count in each if number == shard.number]
                    owed |= dict.fromkeys([wave] if counts else [], max(counts, default=0))
                case NotWaitedFor(shards=shards):
                    counts = [one.count for one in shards if (one.index_uuid, one.number) == key]
                    said = max(said, *counts, 0)
                    left |= owed.keys() if counts else set()
                case WaveFinished(number=wave) if wave not in left:
                    owed.pop(wave, None)
                case RunStarted():
                    owed, left = {}, set()
        return 0 if owed and serving < owed[max(owed)] else said

    def _added_by_others(self, index: SimIndex) -> int:
        """How many replicas others have added during the run: those are for them to wait for."""
        found = self.replicas.get(index.uuid)
        if found is None or index.wanted_by_others is None:
            return 0
        return max(0, index.wanted_by_others - found)


def _names(message: str, index: SimIndex) -> bool:
    return re.search(rf"index {re.escape(index.name)}(?![\w.-])", message) is not None


def _on_their_way(copies: Iterable[SimCopy]) -> int:
    """How many copies are rebuilt that were lost with a node that left by itself: no wave waits for these.

    Of a shard that has more copies without a place, the cluster may rebuild any of them instead.
    """
    away = [copy for copy in copies if not copy.serves]
    left = sum(copy.left_alone for copy in away)
    return min(left, sum(copy.state is CopyState.INITIALIZING for copy in away))


def life_of(seed: int, *, ordinary: bool | None = None) -> AnyLife:
    """The life of that seed: from `chance_riak.FIRST` on it is one on a Riak cluster."""
    return RiakLife(chance_riak(seed)) if seed >= FIRST else Life(chance(seed, ordinary=ordinary))


_READ_BACK = 10
"""One run of so many is read back from its journal's text."""


def live(seed: int, *, ordinary: bool | None = None) -> Told:
    """The run of that seed; with or without what ordinary nights bring, None = as seeds are drawn.

    Raises:
        BrokenError: a property does not hold.
    """
    return tell(life_of(seed, ordinary=ordinary))


def tell(life: AnyLife) -> Told:
    """Live it, and read one in ten back from its journal.

    Raises:
        BrokenError: a property does not hold.
    """
    told, seed = life.live(), life.means.seed
    if seed % _READ_BACK == 0:
        life.judge_replay()
    return told
