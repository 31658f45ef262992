"""Hosts with values that a profile wants otherwise."""

from __future__ import annotations

from random import Random

from orchestrator.model.action import action_name
from orchestrator.model.event import (
    ActionSent,
    Event,
    RestoreBegun,
    RunResumed,
    RunStarted,
    StandingDown,
    WorkDone,
)
from orchestrator.model.phase import Work
from orchestrator.model.tuning import OnFailure, TuningProfile, TuningSetting
from orchestrator.model.work_event import TuningMissed
from orchestrator.simulation.mishaps import Trip
from orchestrator.simulation.tuning import UNREADABLE
from orchestrator.simulation.world import World
from tests.simulation.nights import HOWS

WANTED = {"vm.swappiness": "1", "vm.zone_reclaim_mode": "0", "transparent_hugepage.enabled": "never"}


def profile(*stopping: str) -> TuningProfile:
    """All of `WANTED`; those that are named stop the run when they cannot be set."""
    return TuningProfile(
        name="elasticsearch",
        applies_to="elasticsearch",
        settings=tuple(
            TuningSetting(
                tunable=name,
                wanted=value,
                on_failure=OnFailure.STOP if name in stopping else OnFailure.WARN,
            )
            for name, value in WANTED.items()
        ),
    )


def detune(world: World, *, value: str = "found") -> World:
    """The same world with every tunable of every host otherwise."""
    for node in world.nodes.values():
        node.kernel.update(dict.fromkeys(WANTED, value))
    return world


def by_chance(seed: int) -> tuple[TuningProfile | None, tuple[Trip, ...]]:
    """In two runs of five hosts are tuned; by dice of its own, so that all else of a seed stays."""
    dice = Random(f"tuning {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() < 0.6:
        return None, ()
    stopping = [name for name in WANTED if dice.random() < 0.3]
    trips = tuple(
        Trip(
            verb="tune",
            how=dice.choice(HOWS),
            first=dice.randint(1, 6),
            times=dice.choice((1, 1, 2)),
            late=dice.uniform(11.0, 60.0),
        )
        for _ in range(dice.choice((0, 0, 1, 2)))
    )
    return profile(*stopping), trips


def detune_by_chance(world: World, seed: int) -> None:
    """Most values otherwise than wanted, and on at most two hosts one that cannot be read."""
    dice = Random(f"kernels {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    for node in world.nodes.values():
        node.kernel.update({name: f"found-{node.name}" for name in WANTED if dice.random() < 0.7})
    for name in dice.sample(sorted(world.nodes), 2):
        if dice.random() < 0.3:
            world.nodes[name].kernel[dice.choice(sorted(WANTED))] = UNREADABLE


def repair(world: World) -> None:
    """What people do about a value that cannot be read."""
    for node in world.nodes.values():
        node.kernel.update({name: "repaired" for name, found in node.kernel.items() if found == UNREADABLE})


def unheeded(events: list[Event]) -> list[str]:
    """Tunables that were to stop the run, after which it did something other than stand down."""
    wrong: list[str] = []
    grave: TuningMissed | None = None
    for event in events:
        if isinstance(event, TuningMissed) and event.on_failure is OnFailure.STOP:
            grave = event
        elif isinstance(event, StandingDown | RunResumed | RestoreBegun | RunStarted):
            grave = None
        elif isinstance(event, ActionSent) and grave is not None:
            wrong.append(f"{action_name(event.action)} after {grave.tunable} of {grave.node} was missed")
            grave = None
    return wrong


def untold(world: World, events: list[Event]) -> list[str]:
    """What is not as wanted on hosts whose tuning was gone through, and of which nothing was said."""
    through = {event.node for event in events if isinstance(event, WorkDone) and event.work is Work.TUNING}
    said = {(event.node, event.tunable) for event in events if isinstance(event, TuningMissed)}
    return [
        f"{name}: {tunable} is {found}"
        for name in sorted(through)
        for tunable, found in sorted(world.nodes[name].kernel.items())
        if found != WANTED[tunable] and not said & {(name, tunable), (name, "")}
    ]
