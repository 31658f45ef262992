"""A whole run of a large simulated cluster: `python -m tests.benchmarks.large_run 200x30000 1000x100000`.

Nodes, and copies in all, each shard with one replica, in three zones. The real loop drives the run; what the
imitated cluster itself takes of the processor is measured apart, and is not the program's. Memory is that of
both, at the end of every tenth of the run. Beside it, how often the run read while copies recovered, for each
hour of recovery. Figures, no assertions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record
from orchestrator.model.observation import Look
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Strategy
from orchestrator.model.reading import Instant
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.records import SimulatedClock, SimulatedListener
from orchestrator.simulation.world import World
from orchestrator.view.text import duration, table
from tests.simulation.play import policy

SIZES: Final = ("30x2000", "200x30000")
ZONES: Final = "abc"
_SHARDS: Final = 50
_COPY_BYTES: Final = 20 << 30
_AT_REST: Final = frozenset({NodePhase.RECOVERED, NodePhase.FAILED, NodePhase.SKIPPED})

_CALLS: Final[Mapping[type, tuple[str, ...]]] = {
    SimulatedCluster: ("observe", "perform", "watch"),
    SimulatedHosts: ("observe", "perform", "watch"),
    SimulatedListener: ("listen",),
    SimulatedClock: ("wait",),
}
HEADINGS: Final = (
    "nodes x copies",
    "strategy",
    "ended",
    "simulated",
    "CPU of the program",
    "of the time",
    "CPU of the world",
    "memory, MB",
    "turns",
    "readings an hour of recovery",
    "with finished ones",
)


@dataclass(slots=True)
class Watcher:
    """Follows one run: turns, memory at each tenth of its nodes, and what was read while copies recovered.

    Attributes:
        world: processor seconds of the imitated cluster.
        recovering: seconds of the run in which it waited for copies.
    """

    nodes: int
    now: Callable[[], Instant]
    world: float = 0.0
    turns: int = 0
    memory: list[int] = field(default_factory=list)
    recovering: float = 0.0
    read: Counter[Look] = field(default_factory=Counter)
    phase: Phase = Phase.PREPARING
    since: float = 0.0
    inside: bool = False

    def events(self, records: Sequence[Record]) -> None:
        """Nothing is shown."""

    def waiting(self, state: RunState, decision: Decision) -> None:  # noqa: ARG002
        self.turns += 1
        done = sum(len(state.nodes.of(phase)) for phase in _AT_REST)
        if done * 10 >= self.nodes * (len(self.memory) + 1):
            self.memory.append(resident())
        self.phase = state.phase

    def finished(self, state: RunState, outcome: Outcome) -> None:  # noqa: ARG002
        self.memory.append(resident())

    def looked(self, look: Collection[Look]) -> None:
        """A reading begins."""
        if self.phase is Phase.REASSIGNED:
            self.recovering += self.now() - self.since
            self.read.update(look)
        self.since = self.now()

    @contextmanager
    def in_the_world(self) -> Iterator[None]:
        """The processor's time in this block is the imitated cluster's."""
        if self.inside:
            yield
            return
        self.inside, began = True, time.process_time()
        try:
            yield
        finally:
            self.inside = False
            self.world += time.process_time() - began


@contextmanager
def _measured(watcher: Watcher) -> Iterator[None]:
    """All calls of the program to the imitated cluster and its hosts are timed, and its readings counted."""

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*args: Any, **named: Any) -> Any:
            if call.__name__ == "observe" and isinstance(args[0], SimulatedCluster):
                watcher.looked(args[1])
            with watcher.in_the_world():
                return call(*args, **named)

        return timing

    with ExitStack() as stack:
        for owner, names in _CALLS.items():
            for name in names:
                stack.enter_context(patch.object(owner, name, timed(getattr(owner, name))))
        yield


def resident() -> int:
    """Megabytes of this process's memory now."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def clustered(nodes: int, copies: int) -> World:
    """A healthy cluster; indices of fifty shards, so that copies are spread over all nodes.

    Each copy that comes back copies a part of its files, as after a long time away.
    """
    world = World(seed=1)
    for number in range(nodes):
        world.add_node(f"es{number + 1}", zone=ZONES[number % len(ZONES)])
    spread = [*world.nodes][: nodes - nodes % len(ZONES)]  # the next node is always in another zone
    for number in range(max(1, copies // (2 * _SHARDS))):
        first = number * _SHARDS % len(spread)
        index = world.add_index(
            f"logs-{number}",
            shards=_SHARDS,
            replicas=1,
            size=_COPY_BYTES,
            places=[*spread[first:], *spread[:first]],
        )
        index.keeps = 0.0
    return world


def ran(nodes: int, copies: int, strategy: Strategy, *, overlap: bool) -> list[str]:
    """The figures of one run as a row."""
    world = clustered(nodes, copies)
    simulation = Simulation(world)
    watcher = Watcher(nodes=nodes, now=lambda: world.agenda.now)
    began = time.process_time()
    with _measured(watcher):
        at = world.agenda.now
        state = simulation.begin(
            policy(
                strategy=strategy,
                overlap_recovery=overlap,
                max_unavailable=1 if strategy is Strategy.NODE else None,
                zone_attribute="zone" if strategy is Strategy.ZONE else None,
            )
        )
        state = simulation.drive(state, watcher)
    passed, own = world.agenda.now - at, time.process_time() - began - watcher.world
    hours = max(watcher.recovering / 3600, 1e-9)
    outcome = state.process.standing_down.outcome.value if state.process.standing_down else "done"
    sys.stderr.write(f"{state.message}\n")
    return [
        f"{nodes} x {copies}",
        f"{strategy.value}, overlap" if overlap else strategy.value,
        outcome,
        duration(passed),
        f"{own:.1f} s",
        f"{100 * own / passed:.2f} %",
        f"{watcher.world:.0f} s",
        "/".join(map(str, watcher.memory)),
        str(watcher.turns),
        f"{watcher.read[Look.CLUSTER] / hours:.0f}",
        f"{watcher.read[Look.FINISHED] / hours:.0f}",
    ]


def main() -> None:
    """Print the table, one row a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=list(SIZES), metavar="NODESxCOPIES")
    parser.add_argument("--strategy", choices=[each.value for each in Strategy], default="zone")
    parser.add_argument("--overlap", action="store_true", help="with `overlap_recovery`")
    options = parser.parse_args()
    rows = []
    for text in options.sizes:
        nodes, _, copies = text.partition("x")
        rows.append(ran(int(nodes), int(copies), Strategy(options.strategy), overlap=options.overlap))
        sys.stdout.write("\n".join([*table(HEADINGS, rows[-1:]), ""]))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
