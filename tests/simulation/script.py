"""A script: verbs, mishaps and waits on a simulated cluster, with no program at work, and what it tells."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.model.action import (
    ClusterAction,
    ForceMerge,
    HostAction,
    Purpose,
    RebootHost,
    SettingChange,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import EVERYTHING, Level
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import How, Trip, What
from orchestrator.simulation.world import World
from tests.simulation.play import cluster
from tests.simulation.program import Simulation
from tests.simulation.scene import ES2

WITHHELD: Final = SettingChange(level=Level.PERSISTENT, key=ALLOCATION, found=None, wanted="primaries")


@dataclass(frozen=True, slots=True)
class Tells:
    """A step at which something is told."""

    of: Callable[[Simulation], object]


Step = Callable[[Simulation], object] | float | What | Tells
"""A verb or something else that is done, seconds that pass, what befalls now, or what is told."""


class Script:
    """Verbs on a world that is read when it begins, with allocation off.

    Args:
        name: what it shows.
        steps: what is done, one after the other.
        trips: verbs that go wrong.
        of: the world.
        begins: begins a run; None = there is none.
        ready: what is done before the steps.
    """

    def __init__(
        self,
        name: str,
        *steps: Step,
        trips: Sequence[Trip] = (),
        of: Callable[[], World] = cluster,
        begins: Step | None = None,
        ready: Sequence[Step] | None = None,
    ) -> None:
        self.name, self.trips, self.of = name, trips, of
        ready = (withhold, read) if ready is None else ready
        self.steps: Sequence[Step] = (*([] if begins is None else [begins]), *ready, *steps)
        self.said: list[str] = []

    def play(self) -> Simulation:
        simulation = Simulation(self.of(), trips=self.trips)
        for step in self.steps:
            if isinstance(step, Tells):
                self.said.append(str(step.of(simulation)))
            elif isinstance(step, float):
                simulation.world.agenda.advance(step)
            elif callable(step):
                step(simulation)
            else:
                simulation.fate.befall(step)
        return simulation


def told(simulation: Simulation) -> list[str]:
    """What the judge says."""
    return [said.partition(": ")[2] for said in simulation.world.violations]


def same_as_recorded(scripts: Sequence[Script], recorded: Path) -> bool:
    """Whether each tells what is in that file, which `ORCHESTRATE_REWRITE_GOLDEN=1` writes: read it."""
    found = ""
    for each in scripts:
        judged = told(each.play())
        found += "\n    ".join((each.name, *each.said, *judged)) + "\n"
    if os.environ.get("ORCHESTRATE_REWRITE_GOLDEN"):
        recorded.write_text(found, encoding="utf-8")
    assert found == recorded.read_text(encoding="utf-8")
    return len({each.name for each in scripts}) == len(scripts)


def read(simulation: Simulation) -> None:
    simulation.cluster.observe(EVERYTHING)
    simulation.cluster.bulk(tuple(simulation.world.indices))


def set_to(change: SettingChange, simulation: Simulation) -> None:
    simulation.cluster.perform(WriteSettings(changes=(change,), purpose=Purpose.WITHHOLD))


withhold: Final = partial(set_to, WITHHELD)
enable: Final = partial(set_to, WITHHELD.undone())


def on_hosts(action: HostAction) -> Step:
    return lambda simulation: simulation.hosts.perform(action)


def stop(node: NodeName) -> Step:
    return on_hosts(StopNode(node=node))


def start(node: NodeName) -> Step:
    return on_hosts(StartNode(node=node))


def reboot(node: NodeName, *also: NodeName) -> Step:
    return on_hosts(RebootHost(node=node, also=also))


def on_cluster(action: ClusterAction) -> Step:
    return lambda simulation: simulation.cluster.perform(action)


def answer(action: ClusterAction) -> Tells:
    """Send it, and tell the kind of its answer."""
    return Tells(lambda simulation: type(simulation.cluster.perform(action)).__name__)


def forced(name: str = "posts-1", most: int = 5) -> ForceMerge:
    return ForceMerge(index=name, index_uuid=f"{name}-uuid", max_segments=most)


def merge(name: str = "posts-1", *, most: int = 5) -> Step:
    return on_cluster(forced(name, most))


def given(**values: object) -> Step:
    """Attributes of the world."""
    return lambda simulation: [setattr(simulation.world, name, value) for name, value in values.items()]


def comes_back(node: NodeName) -> Sequence[Step]:
    """Somebody else restarts the node."""
    return (mishaps.NodeDies(node=node, back_after=0.5), 12.0, read)


def late(seconds: float, node: NodeName | None = ES2) -> Sequence[Trip]:
    return (Trip(verb="stop", target=node, how=How.LATE, late=seconds),)
