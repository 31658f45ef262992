"""Runs on Riak clusters left to chance: a ring, a policy, mishaps and kills made from one seed.

Their seeds begin where those of other clusters end, so that each of these means what it always did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Policy,
    Selection,
    Strategy,
)
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation import mishaps, riak_mishaps
from orchestrator.simulation.mishaps import Mishap, Trip, What
from orchestrator.simulation.riak import RiakWorld
from tests.fakes.riak_rings import claimed, names
from tests.simulation import gated, managed, node_mishaps, program_mishaps, safe_sets
from tests.simulation.chance import ATTEMPTS, PLANNED, Afterwards, Drawn, some_moments
from tests.simulation.nights import HOWS
from tests.simulation.ringed import RAISED, riak_policy

FIRST: Final = 1_000_000_000
"""From this seed on a run is one on a Riak cluster."""

_RINGS: Final = ((3, 16), (4, 16), (5, 16), (5, 32), (5, 64), (5, 64), (6, 64), (7, 64), (8, 64), (9, 128))
"""Nodes and partitions. Some cannot keep the quorum of every list: their runs are held, and must be."""

_HASTENED: Final = 4
"""In every fourth seed handoff is hastened, and vnodes of others are found in steps."""
_LARGER_RINGS: Final = ((5, 64), (6, 64), (7, 64), (8, 64), (8, 64), (9, 128), (12, 64))
"""Most with nodes that share no preference list."""
_NINE: Final = 9
_IN_SETS: Final = (3, 6)
_VERBS: Final = (
    "raise_limits",
    "restore_settings",
    "probe_settings",
    "stop",
    "stop",
    "start",
    "start",
    "reboot",
    "hook_before_stop",
    "hook_after_recovery",
)
_SEAMS: Final = ("raise_limits", "stop", "start", "stop", "start", "restore_settings")
_HOOKS: Final = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    while_stopped=(Hook(run="schedulers {node}"),),
    after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakShape:
    """A Riak cluster as it is before the run."""

    nodes: int
    partitions: int
    n_vals: frozenset[int]
    # of the nodes, by number; as many as nodes where each has one of its own, none without any
    locations: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]  # of the nodes, as in their files and as in their memory
    written: bool  # keys keep coming
    queues: bool  # a manager queues a start behind a stop; Riak's own script does not
    inactivity: float  # `vnode_inactivity_timeout`, in seconds, and `handing`, of one hand-off
    handing: float
    starting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakChance(Drawn):
    """What a seed means on a Riak cluster; printed when its run fails."""

    ring: RiakShape


def chance_riak(seed: int) -> RiakChance:
    """The run of that seed."""
    dice = Random(f"riak {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    ring, sets = _shape(dice), _sets(seed)
    if sets is not None and not sets.located:
        ring = _without_locations(seed, ring)
    members = list(names(ring.nodes))
    far = 40 + 25 * ring.nodes
    gates = gated.by_chance(seed)
    wanted = replace(_policy(dice, ring, members), hasten_handoff=seed % _HASTENED == 0)
    wanted = wanted if sets is None else _in_sets(wanted, sets)
    stuck = _stuck(seed, members)
    if stuck:  # so that it is seen that they stay
        wanted = replace(wanted, deadlines=replace(wanted.deadlines, hold=2400.0), timeout=None)
    ways = (*[Afterwards.RESUME] * 3, Afterwards.RESTORE, Afterwards.ELSEWHERE)
    return RiakChance(
        seed=seed,
        ring=ring,
        wanted=gates.wanted(replace(wanted, hooks=some_moments(seed, wanted.hooks))),
        planned=dice.random() < PLANNED,
        plan=(
            *(_mishap(dice, members) for _ in range(dice.choice((0, 1, 1, 2, 3, 5)))),
            *gates.plan,
            *managed.by_chance(seed, members),
            *_worse(seed, members),
            *stuck,
        ),
        trips=tuple(_trip(dice) for _ in range(dice.choice((0, 0, 1, 2, 4)))),
        crashes=tuple(dice.randint(2, far) for _ in range(dice.choice((0, 1, 1, 2, 3)))),
        pauses=tuple(dice.choice((0.5, 5.0, 60.0, 900.0)) for _ in range(ATTEMPTS)),
        afterwards=tuple(dice.choice(ways) for _ in range(ATTEMPTS)),
        reads=dice.choice((ReadingOrder.CLUSTER_FIRST, ReadingOrder.HOSTS_FIRST)),
    )


def _shape(dice: Random) -> RiakShape:
    nodes, partitions = dice.choice(_RINGS)
    racks = dice.choice((nodes, nodes, max(2, nodes // 2)))
    files = [dice.choice((2, 2, 2, 3, 16)) for _ in range(nodes)]
    return RiakShape(
        nodes=nodes,
        partitions=partitions,
        n_vals=dice.choice((frozenset({3}), frozenset({3}), frozenset({3}), frozenset({3, 5}))),
        locations=tuple(number % racks for number in range(nodes)),
        limits=tuple((each, dice.choice((each, each, 4, 16))) for each in files),
        written=dice.random() < 0.8,
        queues=dice.random() < 0.5,
        inactivity=dice.choice((60.0, 60.0, 20.0, 200.0)),
        handing=dice.choice((0.5, 4.0)),
        starting=dice.choice((4.0, 8.0, 30.0)),
    )


def _policy(dice: Random, ring: RiakShape, members: list[NodeName]) -> Policy:
    by_location = len(set(ring.locations)) < ring.nodes and dice.random() < 0.7
    budget = dice.choice((None, None, 2)) if by_location else 1
    only = tuple(dice.sample(members, 3)) if dice.random() < 0.15 else ()
    return riak_policy(
        strategy=Strategy.ZONE if by_location else Strategy.NODE,
        max_unavailable=budget,
        selection=Selection(only=only),
        transfer_limit=dice.choice((RAISED, RAISED, RAISED, None)),
        hooks=_HOOKS if dice.random() < 0.4 else Hooks(),
        settle_consecutive=dice.choice((1, 2, 3)),
        reboot=dice.random() < 0.1,
        deadlines=Deadlines(
            stop=120.0, start=120.0, rejoin=120.0, recover=900.0, hold=600.0, withheld=1800.0, reboot=300.0
        ),
        pause_after=dice.choice((None, None, None, 1, 2)),
        timeout=dice.choice((None, None, None, None, 600.0)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sets:
    """The largest sets as a strategy."""

    budget: int | None  # `max_unavailable`
    located: bool  # the ring keeps its locations; otherwise it has none, and enough nodes for sets of several


def _sets(seed: int) -> _Sets | None:
    """In two runs of nine, by dice of its own; seeds that tests name have other strategies."""
    if seed % _NINE not in _IN_SETS:
        return None
    dice = Random(f"riak sets {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    return _Sets(budget=dice.choice((None, None, None, 2, 3, 9)), located=dice.random() < 1 / 4)


def _without_locations(seed: int, ring: RiakShape) -> RiakShape:
    dice = Random(f"riak sets and rings {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    nodes, partitions = dice.choice(_LARGER_RINGS)
    limits = tuple(dice.choice(((2, 2), (2, 2), (2, 16), (3, 4), (16, 16))) for _ in range(nodes))
    return replace(ring, nodes=nodes, partitions=partitions, locations=(), limits=limits)


def _in_sets(wanted: Policy, sets: _Sets) -> Policy:
    wanted = replace(wanted, strategy=Strategy.SHARD_SAFE, max_unavailable=sets.budget)
    return wanted if sets.located else replace(wanted, zone_attribute=None)


def _trip(dice: Random) -> Trip:
    verb = dice.choice(_VERBS)
    return Trip(
        verb=verb,
        how=dice.choice(HOWS),
        first=dice.randint(1, 4),
        times=dice.choice((1, 1, 2)),
        late=dice.uniform(11.0, 29.0 if verb == "stop" else 60.0),
    )


def _mishap(dice: Random, members: list[NodeName]) -> Mishap:
    node = dice.choice(members)
    return _placed(dice, members, node, _what(dice, node))


def _placed(dice: Random, members: list[NodeName], node: NodeName, what: What) -> Mishap:
    """At some moment, or right after a verb, often one for the very node that it befalls."""
    if dice.random() < 0.35:
        return Mishap(what=what, after=dice.uniform(0.0, 120.0 * len(members)))
    after = dice.choice((0.0, 0.05, 1.0, 5.0, 9.0, 40.0, 80.0))
    if dice.random() < 0.5:
        target = node if dice.random() < 0.6 else dice.choice(members)
        return Mishap(what=what, verb=dice.choice(("stop", "stop", "start")), target=target, after=after)
    return Mishap(what=what, verb=dice.choice(_SEAMS), nth=dice.randint(1, 4), after=after)


def _worse(seed: int, members: list[NodeName]) -> tuple[Mishap, ...]:
    """In a third of the runs one of the mishaps of a node, its host or the program that are worst."""
    dice = Random(f"riak worse {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() > 1 / 3:
        return ()
    node = dice.choice(members)
    choices: tuple[What, ...] = (
        node_mishaps.DiesAgain(
            node=node,
            times=dice.choice((1, 2, 4)),
            after=dice.choice((1.0, 5.0, 30.0)),
            back_after=dice.choice((None, None, 10.0)),
        ),
        node_mishaps.HostRefuses(node=node, seconds=dice.choice((60.0, 900.0)), key=dice.random() < 0.5),
        node_mishaps.RebootHangs(node=node),
        program_mishaps.JournalFails(reason="database is locked", seconds=dice.choice((3.0, 60.0))),
        program_mishaps.JournalFails(reason="attempt to write a readonly database", seconds=300.0),
        program_mishaps.TakenOver(seconds=dice.choice((110.0, 150.0, 400.0))),
        program_mishaps.TakenOver(seconds=dice.choice((110.0, 150.0, 400.0))),
    )
    return (_placed(dice, members, node, dice.choice(choices)),)


def _stuck(seed: int, members: list[NodeName]) -> tuple[Mishap, ...]:
    """In a fifth of the runs partitions wait for handoff for good, nearly always since before the run."""
    dice = Random(f"riak stuck {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() > 1 / 5:
        return ()
    drawn = []
    for holder in dice.sample(members, dice.choice((1, 1, 2, len(members)))):
        cures = dice.choice(((False, False), (False, False), (True, False), (False, True)))
        what = riak_mishaps.HandoffSticks(
            holder=holder, partitions=dice.randint(1, 4), holder_cures=cures[0], owner_cures=cures[1]
        )
        late = dice.random() < 1 / 10
        drawn.append(_placed(dice, members, holder, what) if late else Mishap(what=what))
    return tuple(drawn)


def _what(dice: Random, node: NodeName) -> What:
    limit = f"transfer_limit.{node}"
    choices: tuple[What, ...] = (
        mishaps.NodeDies(node=node, back_after=dice.choice((5.0, 60.0, 300.0, 5000.0, None))),
        node_mishaps.RestartedByHand(node=node),
        mishaps.HostCutOff(node=node, seconds=dice.choice((20.0, 700.0))),
        node_mishaps.HostHangs(node=node, seconds=dice.choice((15.0, 90.0)), does=dice.random() < 0.5),
        mishaps.StopHangs(node=node, repaired_after=2000.0),
        mishaps.StartsFail(node=node, times=dice.choice((1, 2, 3, 9))),
        mishaps.RisesByItself(node=node, after=dice.choice((0.1, 2.0))),
        mishaps.SettingMeddled(key=limit, value=dice.choice(("1", "5")), level=Level.TRANSIENT),
        mishaps.SettingMeddled(key=limit, value=dice.choice(("5", "12")), level=Level.TRANSIENT),
        program_mishaps.SettingsRefused(reason="Failed to set transfer limit"),
        mishaps.Unreadable(seconds=dice.choice((5.0, 900.0))),
        mishaps.ProgramStalls(seconds=dice.choice((20.0, 70.0, 600.0))),
        program_mishaps.ClockSet(seconds=dice.choice((-86400.0, -40.0, 40.0, 3600.0))),
        mishaps.LeaseRemoved(),
        mishaps.LeaseUnrefreshed(seconds=dice.choice((50.0, 200.0))),
        mishaps.DiskFull(seconds=dice.choice((10.0, 600.0))),
        mishaps.PersonAsked(request=dice.choice((Request.PAUSE, Request.STOP, Request.INTERRUPT))),
        riak_mishaps.HandoffStalls(seconds=dice.choice((60.0, 600.0, 4000.0))),
        riak_mishaps.HandoffStalls(seconds=dice.choice((30.0, 300.0))),
        riak_mishaps.OwnershipMoves(
            to=node, partitions=dice.randint(1, 3), seconds=dice.choice((10.0, 200.0, 3000.0))
        ),
        riak_mishaps.OwnershipMoves(to=node, partitions=1, seconds=dice.choice((30.0, 90.0))),
        riak_mishaps.MemberJoins(node=NodeName("riak@new"), seconds=dice.choice((20.0, 400.0))),
        riak_mishaps.ClaimantMoves(to=node),
        riak_mishaps.ServiceNeverUp(node=node),
        riak_mishaps.VnodesHalt(node=node, most=dice.randint(0, 4)),
    )
    return dice.choice(choices)


def world_of(drawn: RiakChance) -> RiakWorld:
    """The world of a seed, as it is before the run."""
    ring = drawn.ring
    world = RiakWorld(claimed(ring.nodes, ring.partitions), n_vals=ring.n_vals, seed=drawn.seed)
    world.written, world.queues_starts = ring.written, ring.queues
    world.rolling = drawn.wanted.hasten_handoff
    world.inactivity, world.handing_seconds = ring.inactivity, ring.handing
    members = names(ring.nodes)
    for name, (configured, limit) in zip(members, ring.limits, strict=True):
        world.configure(name, configured=configured, limit=limit)
        world.nodes[name].start_seconds = ring.starting
    for name, location in zip(members, ring.locations, strict=False):
        world.nodes[name].zone = f"rack-{location}"
    world.allowed_down = _allowed_down(drawn.wanted, ring)
    world.across_zones = safe_sets.across_zones(drawn.wanted)
    return world


def _allowed_down(wanted: Policy, ring: RiakShape) -> int:
    if wanted.strategy is Strategy.NODE:
        return 1
    if not ring.locations:
        return wanted.max_unavailable or max(1, ring.nodes // 3)
    largest = max(ring.locations.count(each) for each in ring.locations)
    return min(wanted.max_unavailable or largest, largest)


def without_gates(drawn: RiakChance) -> RiakChance:
    """The same run with no gate to wait for."""
    return replace(drawn, wanted=replace(drawn.wanted, gates=()))
