"""The kernels of the simulated machines: their values, and the drift that a profile finds.

A tunable is one value here. Tests on real hosts show what real tunables read and write.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.model.action import ActionResult, Done, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading
from orchestrator.model.tuning import (
    HostTuning,
    TunableState,
    TuningProfile,
    TuningSetting,
    ValueChange,
    Verdict,
)
from orchestrator.simulation.judge import delay
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World

FOLDER = "/proc/sys/"
UNREADABLE = "?"
"""A value that its host does not report."""


def read(nodes: Iterable[SimNode], profile: TuningProfile) -> dict[NodeName, Reading[HostTuning]]:
    """Compare these machines with a profile."""
    return {
        node.name: HostTuning(states=tuple(_state(node, setting) for setting in profile.settings))
        for node in nodes
    }


def _state(node: SimNode, setting: TuningSetting) -> TunableState:
    wanted = str(setting.wanted)
    found = node.kernel.get(setting.tunable, wanted)
    verdict = Verdict.OK if found == wanted else Verdict.UNKNOWN if found == UNREADABLE else Verdict.DRIFT
    change = ValueChange(path=FOLDER + setting.tunable, found=found, wanted=wanted)
    return TunableState(
        tunable=setting.tunable,
        wanted=wanted,
        running=found,
        at_boot=found,
        verdict=verdict,
        detail="it cannot be read" if verdict is Verdict.UNKNOWN else "",
        changes=(change,) if verdict is Verdict.DRIFT else (),
        on_failure=setting.on_failure,
    )


def tune(node: SimNode, action: TuneHost) -> ActionResult:
    """Make the changes."""
    for change in action.changes:
        if isinstance(change, ValueChange):
            node.kernel[change.path.removeprefix(FOLDER)] = change.wanted
    return Done(output="read back")


def judge(world: World, node: SimNode) -> None:
    """Record that a host is tuned while its node runs, or while its shards wait for the start."""
    delay(world, node, "tuning")
    seen = node.began + node.join_seconds < world.last_read
    if node.process and not node.stopped_by_us and seen:
        world.violated(f"{node.name} is tuned while it runs")
