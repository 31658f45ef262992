"""Runs that upgrade: the policy, and by chance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Policy, Selection
from orchestrator.model.upgrade import ML_UPGRADE_MODE, InstallStep, Upgrade
from orchestrator.simulation.mishaps import Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation.nights import HOWS
from tests.simulation.node_mishaps import ReturnsChanged
from tests.simulation.play import policy

TARGET = "9.2.0"
"""Simulated nodes begin with 9.1.0."""
STEPS = (InstallStep(run="install {version}"), InstallStep(run="plugins {version}", as_root=False))


def wanted(target: str = TARGET, **changes: object) -> Upgrade:
    """An upgrade of two steps."""
    upgrade = Upgrade(target=target, install=STEPS, installed="is it {version}")
    return replace(upgrade, **changes)


def upgrading(**changes: object) -> Policy:
    """The shipped playbook with an upgrade of two steps."""
    return policy(**{"upgrade": wanted(), **changes})


def by_chance(seed: int) -> tuple[Upgrade | None, tuple[Trip, ...]]:
    """In one run of six the nodes are upgraded; by dice of its own, so that all else of a seed stays."""
    dice = Random(f"upgrade {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() < 5 / 6:
        return None, ()
    steps = STEPS[: dice.choice((1, 2))]
    trips = tuple(
        Trip(
            verb="install",
            how=dice.choice(HOWS),
            first=dice.randint(1, 4),
            times=dice.choice((1, 1, 2)),
            late=dice.uniform(11.0, 60.0),
        )
        for _ in range(dice.choice((0, 0, 1, 2)))
    )
    return Upgrade(target=TARGET, install=steps, installed=dice.choice((None, "is it {version}"))), trips


def disks_by_chance(world: World, seed: int, *, fails: bool) -> None:
    """How long steps take, which of them fail once, if any may, and whether it has machine learning."""
    dice = Random(f"disks {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    for node in world.nodes.values():
        node.disk.seconds = dice.choice((3.0, 20.0, 60.0))
        node.disk.fails = int(fails and dice.random() < 0.05)
    if dice.random() < 0.5:
        world.persistent[ML_UPGRADE_MODE] = dice.choice(("false", "false", "true"))


def unchanged(plan: Iterable[Mishap]) -> tuple[Mishap, ...]:
    """The mishaps less those that put another version on a disk: no install could be told from them."""
    return tuple(
        replace(one, what=replace(one.what, version=None)) if isinstance(one.what, ReturnsChanged) else one
        for one in plan
    )


def left_behind(world: World, state: RunState) -> list[NodeName]:
    """Nodes without the target that the end of a run does not name, whichever run was to upgrade them."""
    upgrade = state.begun.policy.upgrade
    if upgrade is None or state.begun.policy.selection != Selection():
        return []
    others = [node for node in world.nodes.values() if node.joined and node.version != upgrade.target]
    return [node.name for node in others if f"{node.name} {node.version}" not in state.message]
