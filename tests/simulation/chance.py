"""Runs left to chance: a world, a policy and mishaps made from one seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, Policy, Strategy, ZeroReplicas
from orchestrator.simulation import mishaps
from orchestrator.simulation.allocation import shards_of
from orchestrator.simulation.mishaps import How, Mishap, Trip, What
from orchestrator.simulation.world import World
from tests.simulation.play import policy
from tests.simulation.zones import ZONED

ALLOCATION = "cluster.routing.allocation.enable"
_VERBS = (
    "set_allocation",
    "restore_allocation",
    "restore_settings",
    "flush",
    "stop",
    "start",
    "set_replicas",
    "probe_settings",
    "exclude_from_voting",
    "clear_voting_exclusions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What a seed means; printed when its run fails.

    Attributes:
        crashes: points at which the attempts are killed, one each, counted from the attempt's beginning.
        restores: whether a killed attempt is followed by `restore` rather than `resume`, attempt by attempt.
    """

    seed: int
    nodes: int
    wanted: Policy
    plan: tuple[Mishap, ...]
    trips: tuple[Trip, ...]
    crashes: tuple[int, ...]
    restores: tuple[bool, ...]


def chance(seed: int) -> Chance:
    """The run of that seed."""
    dice = Random(seed)  # noqa: S311  (repeatable, and secret to nobody)
    nodes = dice.choice((3, 3, 4, 5, 6))
    names = [NodeName(f"es{n}") for n in range(1, nodes + 1)]
    hooks = Hooks(
        before_stop=(Hook(run="depool {node}"),),
        while_stopped=(Hook(run="tune {node}"),),
        after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
    )
    by_zone = _strategy(seed)
    wanted = policy(
        **by_zone,
        **_overlap(seed),
        master_step_down=dice.random() < 0.5,
        zero_replicas=ZeroReplicas.ADD_REPLICA,
        hooks=hooks if dice.random() < 0.4 else Hooks(),
        deadlines=replace(Deadlines(), hold=1200.0, recover=3600.0),
        pause_after=dice.choice((None, None, None, 1)),
    )
    return Chance(
        seed=seed,
        nodes=nodes,
        wanted=wanted,
        plan=tuple(_mishap(dice, names) for _ in range(dice.choice((0, 1, 1, 2, 3, 5)))),
        trips=tuple(_trip(dice) for _ in range(dice.choice((0, 0, 1, 2, 4)))),
        crashes=tuple(dice.randint(2, 90) for _ in range(dice.choice((0, 1, 1, 2, 3, 5)))),
        restores=tuple(dice.random() < 0.3 for _ in range(20)),
    )


def _strategy(seed: int) -> dict[str, object]:
    """Zone by zone in every other run, with a budget and without."""
    dice = Random(seed + 2)  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() < 0.5:
        return {}
    return {**ZONED, "max_unavailable": dice.choice((None, None, 1, 2))}


def _overlap(seed: int) -> dict[str, object]:
    """With overlap in every other run."""
    dice = Random(seed + 3)  # noqa: S311  (repeatable, and secret to nobody)
    return {"overlap_recovery": True} if dice.random() < 0.5 else {}


def _trip(dice: Random) -> Trip:
    how = dice.choice(list(How))
    verb = dice.choice(_VERBS)
    # A stop that a host does after half a minute of silence is beyond what the run waits for.
    longest = 29.0 if verb == "stop" else 60.0
    return Trip(
        verb=verb,
        how=how,
        first=dice.randint(1, 3),
        times=dice.choice((1, 1, 2)),
        late=dice.uniform(11.0, longest),
    )


def _mishap(dice: Random, names: list[NodeName]) -> Mishap:
    what = _what(dice, dice.choice(names), dice.randint(0, 999))
    if dice.random() < 0.5:
        return Mishap(what=what, after=dice.uniform(0.0, 120.0))
    verb = dice.choice(("set_allocation", "stop", "start", "restore_allocation", "flush"))
    return Mishap(what=what, verb=verb, nth=dice.randint(1, 3), after=dice.choice((0.0, 0.05, 1.0, 9.0)))


def _what(dice: Random, node: NodeName, number: int) -> What:
    choices: tuple[What, ...] = (
        mishaps.NodeDies(node=node, back_after=dice.choice((5.0, 300.0, 5000.0))),
        mishaps.HostCutOff(node=node, seconds=dice.choice((20.0, 700.0))),
        mishaps.IndexMade(name=f"new-{number}", on=node, replicas=dice.choice((0, 1))),
        mishaps.SettingMeddled(key=ALLOCATION, value=dice.choice(("none", "all", None))),
        mishaps.SettingMeddled(key="indices.recovery.max_bytes_per_sec", value="80mb", level=Level.TRANSIENT),
        mishaps.Unreadable(seconds=dice.choice((5.0, 900.0))),
        mishaps.StaleReadings(seconds=dice.choice((3.0, 60.0))),
        mishaps.LeaseTaken(),
        mishaps.Asked(request=dice.choice((Request.PAUSE, Request.STOP, Request.INTERRUPT))),
        mishaps.StopHangs(node=node, repaired_after=2000.0),
        mishaps.StartsFail(node=node, times=dice.choice((1, 2, 3))),
        mishaps.RisesByItself(node=node, after=dice.choice((0.1, 2.0))),
        mishaps.AllocationsFail(index="logs", times=dice.choice((2, 5, 12))),
    )
    return dice.choice(choices)


def world_of(drawn: Chance) -> World:
    """The world of a seed, as it is before the run."""
    dice = Random(drawn.seed + 1)  # noqa: S311  (repeatable, and secret to nobody)
    world = World(seed=drawn.seed)
    if drawn.wanted.strategy is Strategy.ZONE:
        world.allowed_down = drawn.wanted.max_unavailable or drawn.nodes
    world.detection_seconds = dice.choice((0.0, 0.0, 3.0, 30.0))
    for number in range(1, drawn.nodes + 1):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    world.add_index("logs", shards=dice.randint(1, drawn.nodes), replicas=dice.choice((1, 1, 2)))
    world.add_index("archive", shards=2, replicas=1, written=False, size=dice.choice((1 << 20, 4 << 30)))
    if drawn.wanted.overlap_recovery:
        for _, shard in shards_of(world):
            shard.size = dice.choice((1 << 20, 4 << 30, 300 << 30))
    if dice.random() < 0.3:
        world.add_index("bare", shards=1, replicas=0)
    if dice.random() < 0.5:
        world.set(Level.PERSISTENT, ALLOCATION, "all")
    if dice.random() < 0.3:
        world.set(Level.TRANSIENT, ALLOCATION, "all")
    if dice.random() < 0.3:
        world.set(Level.TRANSIENT, "indices.recovery.max_bytes_per_sec", "20mb")
    return world
