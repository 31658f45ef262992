"""Runs left to chance: a cluster, a policy, mishaps and kills made from one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from orchestrator.elasticsearch.rules.settings import BANDWIDTH, EXCLUSIONS
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import NodeName, Zone
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Awareness,
    Deadlines,
    Hook,
    Hooks,
    Policy,
    Selection,
    Strategy,
    Together,
    ZeroReplicas,
)
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Mishap, Trip, What
from orchestrator.simulation.world import World
from tests.simulation import (
    at_night,
    balanced,
    gated,
    index_mishaps,
    managed,
    merged,
    nights,
    node_mishaps,
    odd,
    program_mishaps,
    safe_sets,
    tuned,
    upgrading,
)
from tests.simulation.balanced import Endpoints, Gateway
from tests.simulation.play import policy
from tests.simulation.shapes import Shape, build, in_pairs, shape

ORDINARY = True
"""Whether seeds draw what ordinary nights bring, and the mishaps that came with it, unless told otherwise."""

ATTEMPTS = 20
_LARGE = 12
"""Nodes above which a run is told to restart only some: one node takes as long as in a small cluster."""

_FEWEST_IN_PAIRS = 5
"""Of fewer nodes two are more than a cluster can spare at once."""

_COPIED_LONG = (8 << 30, 24 << 30)
"""Of an index that keeps nothing to replay: a returning copy takes about 25 or 75 s, a node's absence 15."""

_VERBS = (
    "set_allocation",
    "restore_allocation",
    "restore_settings",
    "flush",
    "stop",
    "start",
    "reboot",
    "set_replicas",
    "probe_settings",
    "retry_failed",
    "exclude_from_voting",
    "clear_voting_exclusions",
    "hook_before_stop",
    "hook_after_recovery",
)
_HOOKS = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    while_stopped=(Hook(run="tune {node}"),),
    after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
)

PLANNED = 0.125
"""How many of the runs had a plan before: to make one costs as much as to live half of the run."""


class Afterwards(Enum):
    """Who takes up what an attempt left."""

    RESUME = "resume"
    RESTORE = "restore"
    ELSEWHERE = "another machine, with what stands in the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a seed means for a run on any kind of cluster."""

    seed: int
    wanted: Policy
    planned: bool  # a plan was shown, so that its waves bound those of the run
    plan: tuple[Mishap, ...]
    trips: tuple[Trip, ...]
    # points at which the attempts are killed, one each, counted from the attempt's beginning
    crashes: tuple[int, ...]
    pauses: tuple[float, ...]  # seconds after each attempt until somebody takes it up
    afterwards: tuple[Afterwards, ...]  # who does, attempt by attempt
    reads: ReadingOrder  # in which order the world is read: on a real run either may come first
    skew: float = 0.0  # seconds by which the clocks of other machines are ahead of that of the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance(Drawn):
    """What a seed means; printed when its run fails."""

    shape: Shape
    task_list: bool = True  # the version tells of force-merges that run
    ordinary: bool = False  # nothing but ordinary mishaps happens, so that the run must end well
    jitter: float = 0.0  # how far durations vary
    # what is behind those of the cluster file; None: every request arrives
    endpoints: Endpoints | None = None


def chance(seed: int, *, ordinary: bool | None = None) -> Chance:
    """The run of that seed; with or without what ordinary nights bring, None = as `ORDINARY` says."""
    drawn = _chance(seed)
    if ORDINARY if ordinary is None else ordinary:
        names = [NodeName(node.name) for node in drawn.shape.nodes]
        drawn = replace(odd.by_chance(by_chance(drawn)), endpoints=balanced.by_chance(seed, names))
    upgrades = drawn.wanted.upgrade is not None
    return replace(drawn, plan=upgrading.unchanged(drawn.plan)) if upgrades else drawn


def by_chance(drawn: Chance) -> Chance:
    """A third of the runs stays as it was, a third has an ordinary night, a third has both and worse.

    By dice of its own, so that all else of a seed stays.
    """
    dice = Random(f"ordinary {drawn.seed}")  # noqa: S311  (repeatable, and secret to nobody)
    which = dice.random()
    if which < 1 / 3:
        return drawn
    names = [NodeName(node.name) for node in drawn.shape.nodes]
    plan, trips = nights.ordinary(dice, names)
    jitter = dice.choice((0.0, 0.3, 0.6))
    if which < 2 / 3:
        crashes = drawn.crashes[:1] if dice.random() < 0.25 else ()
        wanted = nights.patient(drawn.wanted)
        return replace(
            drawn, wanted=wanted, plan=plan, trips=trips, crashes=crashes, ordinary=True, jitter=jitter
        )
    worse, worse_trips = nights.worse(dice, names, drawn.shape.zones)
    return replace(
        drawn,
        plan=(*drawn.plan, *plan, *worse),
        trips=(*drawn.trips, *trips, *worse_trips),
        jitter=jitter,
    )


def _chance(seed: int) -> Chance:
    dice = Random(seed)  # noqa: S311  (repeatable, and secret to nobody)
    drawn, overlap = _overlap(seed, shape(dice))
    drawn, paired = _paired(seed, drawn)
    drawn, merging = merged.by_chance(seed, drawn)
    names = [NodeName(node.name) for node in drawn.nodes]
    far = 60 + 10 * len(names)
    tune, tune_trips = tuned.by_chance(seed)
    upgrade, upgrade_trips = upgrading.by_chance(seed)
    gates = gated.by_chance(seed)
    night = at_night.by_chance(seed, names)
    wanted = _policy(dice, drawn)
    ways = (*[Afterwards.RESUME] * 3, Afterwards.RESTORE, Afterwards.ELSEWHERE)
    return Chance(
        seed=seed,
        shape=drawn,
        wanted=safe_sets.by_chance(
            seed,
            gates.wanted(
                paired(
                    replace(
                        wanted,
                        hooks=some_moments(seed, wanted.hooks),
                        overlap_recovery=overlap,
                        tune=tune,
                        upgrade=upgrade,
                        merge=merging.wanted if merging else None,
                    )
                )
            ),
        ),
        planned=dice.random() < PLANNED,
        plan=(
            *(_mishap(dice, names) for _ in range(dice.choice((0, 1, 1, 2, 3, 5)))),
            *(merging.plan if merging else ()),
            *gates.plan,
            *managed.by_chance(seed, names),
            *night.plan,
        ),
        trips=(
            *(_trip(dice) for _ in range(dice.choice((0, 0, 1, 2, 4)))),
            *tune_trips,
            *upgrade_trips,
            *(merging.trips if merging else ()),
        ),
        crashes=tuple(dice.randint(2, far) for _ in range(dice.choice((0, 1, 1, 2, 3)))),
        pauses=tuple(dice.choice((0.5, 5.0, 60.0, 900.0)) for _ in range(ATTEMPTS)),
        afterwards=tuple(dice.choice(ways) for _ in range(ATTEMPTS)),
        reads=dice.choice((ReadingOrder.CLUSTER_FIRST, ReadingOrder.HOSTS_FIRST)),
        task_list=merging is None or merging.task_list,
        skew=night.skew,
    )


def some_moments(seed: int, hooks: Hooks) -> Hooks:
    """In every other run the moments are drawn one by one: hooks at one of them need none at another.

    By dice of its own, as overlap is.
    """
    dice = Random(f"moments {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() < 0.5:
        return hooks
    kept = [dice.random() < 0.5 for _ in range(3)]
    return Hooks(
        before_stop=hooks.before_stop if kept[0] else (),
        while_stopped=hooks.while_stopped if kept[1] else (),
        after_recovery=hooks.after_recovery if kept[2] else (),
    )


def _overlap(seed: int, drawn: Shape) -> tuple[Shape, bool]:
    """With `overlap_recovery` in every other run, and then mostly with recoveries longer than an absence.

    By dice of its own, so that all else of a seed is the same with it and without. An index without replicas
    stays small: the one that it is given is copied whole, and the gates hold for no longer than minutes here.
    """
    dice = Random(f"overlap {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    overlap = dice.random() < 0.5
    if not overlap or dice.random() < 0.2:
        return drawn, overlap
    indices = tuple(
        replace(index, keeps=5.0, size=dice.choice(_COPIED_LONG))
        if index.written and index.replicas and dice.random() < 0.8
        else index
        for index in drawn.indices
    )
    return replace(drawn, indices=indices), overlap


def _paired(seed: int, drawn: Shape) -> tuple[Shape, Callable[[Policy], Policy]]:
    """In one run of four two nodes on each machine, mostly restarted together, and often with a reboot.

    By dice of its own, as overlap is.
    """
    dice = Random(f"machines {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if len(drawn.nodes) < _FEWEST_IN_PAIRS or dice.random() < 0.75:
        return drawn, lambda wanted: wanted
    together = dice.choice(
        (Together.ALWAYS, Together.ALWAYS, Together.REBOOT, Together.REBOOT, Together.NEVER)
    )
    reboot, budget = dice.random() < 0.5, dice.choice((None, None, None, 2, 1))

    def paired(wanted: Policy) -> Policy:
        wanted = replace(wanted, together=together, reboot=reboot)
        by_zone = wanted.strategy is Strategy.ZONE
        return replace(wanted, max_unavailable=budget) if wanted.goes_by_machine and not by_zone else wanted

    return in_pairs(drawn), paired


def _policy(dice: Random, drawn: Shape) -> Policy:
    by_zone = bool(drawn.zones) and dice.random() < 0.5
    budget = dice.choice((None, None, 1, 2, 3)) if by_zone else 1
    names = [node.name for node in drawn.nodes]
    only: tuple[str, ...] = ()
    if len(names) > (_LARGE if not by_zone else 2 * _LARGE) or dice.random() < 0.1:
        only = tuple(dice.sample(names, min(len(names), 5 if not by_zone else 15)))
    return policy(
        strategy=Strategy.ZONE if by_zone else Strategy.NODE,
        zone_attribute="zone" if drawn.zones else None,
        awareness=Awareness(
            attributes=("zone",) if drawn.awareness else (),
            forced=tuple(Zone(zone) for zone in drawn.zones) if drawn.awareness == "forced" else (),
        ),
        max_unavailable=budget,
        selection=Selection(only=only),
        min_capacity=dice.choice((0.5, 0.5, 0.3)),
        master_step_down=dice.random() < 0.4,
        zero_replicas=dice.choice((ZeroReplicas.ADD_REPLICA, ZeroReplicas.ADD_REPLICA, ZeroReplicas.ACCEPT)),
        zero_replicas_accepted=("*",),
        hooks=_HOOKS if dice.random() < 0.5 else Hooks(),
        settle_consecutive=dice.choice((1, 2, 3)),
        flush=dice.random() < 0.8,
        reboot=dice.random() < 0.15,
        deadlines=Deadlines(
            stop=120.0,
            start=120.0,
            rejoin=120.0,
            recover=900.0,
            withheld=dice.choice((600.0, 1800.0)),
            hold=240.0,
            reboot=300.0,
        ),
        pause_after=dice.choice((None, None, None, 1, 2)),
        timeout=dice.choice((None, None, None, None, 300.0)),
    )


def _trip(dice: Random) -> Trip:
    how = dice.choice(nights.HOWS)
    verb = dice.choice(_VERBS)
    # A stop that a host does after half a minute of silence is beyond what the run waits for.
    longest = 29.0 if verb == "stop" else 60.0
    return Trip(
        verb=verb,
        how=how,
        first=dice.randint(1, 4),
        times=dice.choice((1, 1, 2)),
        late=dice.uniform(11.0, longest),
    )


def _mishap(dice: Random, names: list[NodeName]) -> Mishap:
    """At some moment, or right after a verb, often one for the very node that it befalls."""
    node = dice.choice(names)
    if dice.random() < 0.15:
        return _race(dice, names, node)
    what = _what(dice, node, dice.randint(0, 9999))
    if dice.random() < 0.4:
        return Mishap(what=what, after=dice.uniform(0.0, 30.0 * min(len(names), 10)))
    after = dice.choice((0.0, 0.05, 1.0, 5.0, 9.0))
    if dice.random() < 0.5:
        target = node if dice.random() < 0.6 else dice.choice(names)
        return Mishap(what=what, verb=dice.choice(("stop", "stop", "start")), target=target, after=after)
    verb = dice.choice(("set_allocation", "stop", "start", "restore_allocation", "flush"))
    return Mishap(what=what, verb=verb, nth=dice.randint(1, 4), after=after)


def _race(dice: Random, names: list[NodeName], node: NodeName) -> Mishap:
    """What no check can close: it happens between the last reading and the stop, or while the node goes."""
    after = dice.choice((0.0, 1.0))
    made = mishaps.IndexMade(name=f"raced-{node}", on=node, replicas=dice.choice((0, 1)))
    other = dice.choice([name for name in names if name != node])
    return dice.choice(
        (
            Mishap(what=made, verb="stop", target=node, after=after),
            Mishap(
                what=mishaps.NodeDies(node=other, back_after=300.0), verb="stop", target=node, after=after
            ),
            Mishap(what=mishaps.LeaseRemoved(), verb=dice.choice(("flush", "stop")), after=after),
        )
    )


def _what(dice: Random, node: NodeName, number: int) -> What:
    choices: tuple[What, ...] = (
        mishaps.NodeDies(node=node, back_after=dice.choice((5.0, 300.0, 5000.0, None))),
        mishaps.HostCutOff(node=node, seconds=dice.choice((20.0, 700.0))),
        node_mishaps.HostHangs(node=node, seconds=dice.choice((15.0, 90.0)), does=dice.random() < 0.5),
        node_mishaps.RestartedByHand(node=node),
        mishaps.IndexMade(name=f"new-{number}", on=node, replicas=dice.choice((0, 1))),
        index_mishaps.RolledOver(index="logs", to=f"logs-{number}"),
        mishaps.SnapshotBegun(name=f"repo/nightly-{number}", seconds=dice.choice((20.0, 600.0))),
        node_mishaps.VoterExcluded(node=node, seconds=dice.choice((30.0, 600.0))),
        mishaps.SettingMeddled(key=ALLOCATION, value=dice.choice(("none", "all", None))),
        mishaps.SettingMeddled(key=BANDWIDTH, value="80mb", level=Level.TRANSIENT),
        mishaps.SettingMeddled(key=f"{EXCLUSIONS}_name", value=node),
        program_mishaps.SettingsRefused(reason="400 archived settings"),
        mishaps.Unreadable(seconds=dice.choice((5.0, 900.0))),
        program_mishaps.StaleReadings(seconds=dice.choice((3.0, 60.0))),
        mishaps.ProgramStalls(seconds=dice.choice((20.0, 70.0, 600.0))),
        program_mishaps.ClockSet(seconds=dice.choice((-86400.0, -40.0, 40.0, 3600.0))),
        mishaps.LeaseRemoved(),
        mishaps.LeaseUnrefreshed(seconds=dice.choice((50.0, 200.0))),
        mishaps.DiskFull(seconds=dice.choice((10.0, 600.0))),
        mishaps.PersonAsked(request=dice.choice((Request.PAUSE, Request.STOP, Request.INTERRUPT))),
        mishaps.StopHangs(node=node, repaired_after=2000.0),
        mishaps.StartsFail(node=node, times=dice.choice((1, 2, 3))),
        mishaps.RisesByItself(node=node, after=dice.choice((0.1, 2.0))),
        mishaps.AllocationsFail(index="logs", times=dice.choice((2, 5, 12))),
    )
    return dice.choice(choices)


def world_of(drawn: Chance) -> World:
    """The world of a seed, as it is before the run."""
    world = build(drawn.shape, seed=drawn.seed)
    world.allowed_down = drawn.wanted.max_unavailable or len(drawn.shape.nodes)
    world.forced.task_list = drawn.task_list
    world.jitter = drawn.jitter
    world.one_machine = drawn.wanted.strategy is Strategy.NODE
    world.across_zones = safe_sets.across_zones(drawn.wanted)
    odd.name_hosts(world)
    world.endpoints = Gateway(world, drawn.endpoints) if drawn.endpoints is not None else None
    if drawn.wanted.zero_replicas is ZeroReplicas.ACCEPT:
        world.exempt_without_replicas = drawn.wanted.zero_replicas_accepted
    if drawn.wanted.tune is not None:
        tuned.detune_by_chance(world, drawn.seed)
        if drawn.ordinary:
            tuned.repair(world)
    if drawn.wanted.upgrade is not None:
        upgrading.disks_by_chance(world, drawn.seed, fails=not drawn.ordinary)
    return world
