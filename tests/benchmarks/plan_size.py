"""What a plan costs by the size of the cluster: `python -m tests.benchmarks.plan_size 30x2000 100x10000`.

A cluster of three zones, two copies a shard, nodes with data and three voters, as the program has it once the
answers are parsed. Prints seconds of CPU and the largest memory of a process that makes one plan, and how
they grow. Figures, no assertions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.plan import make_plan
from orchestrator.merging import decide
from orchestrator.model.action import action_name
from orchestrator.model.cluster import (
    CopyState,
    Health,
    Incarnation,
    Index,
    Node,
    NodeName,
    Role,
    ShardCopy,
    ShardId,
)
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import (
    Activity,
    ClusterView,
    Disk,
    HealthView,
    HostView,
    Observation,
    ServiceState,
    SettingsView,
)
from orchestrator.model.policy import Awareness, Kind, Policy, Strategy
from orchestrator.view.text import table

SIZES: Final = ("30x2000", "100x10000", "300x30000")
ZONES: Final = "abc"
SHARDS_AN_INDEX: Final = 5
VERSION: Final = "9.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """So many nodes, and so many copies of shards."""

    nodes: int
    copies: int

    def __str__(self) -> str:
        return f"{self.nodes} x {self.copies}"


def size(text: str) -> Size:
    """`NODESxCOPIES`.

    Raises:
        ValueError: it is not of that form.
    """
    nodes, _, copies = text.partition("x")
    return Size(nodes=int(nodes), copies=int(copies))


def _name(number: int) -> NodeName:
    return NodeName(f"es{number:04}")


def _nodes(wanted: Size) -> Iterator[Node]:
    for number in range(wanted.nodes):
        roles = {Role.DATA, Role.MASTER} if number < len(ZONES) else {Role.DATA}
        yield Node(
            name=_name(number),
            node_id=f"id-{number}",
            incarnation=Incarnation(ephemeral_id=f"life-{number}", started_at_ms=1_700_000_000_000 + number),
            roles=frozenset(roles),
            version=VERSION,
            address=f"10.0.{number // 250}.{number % 250 + 1}",
            attributes={"zone": ZONES[number % len(ZONES)]},
        )


def _copies(wanted: Size) -> Iterator[ShardCopy]:
    """Two of each shard in two zones, spread evenly."""
    whole = wanted.nodes - wanted.nodes % len(ZONES)  # as many in each zone
    for number in range(wanted.copies // 2):
        index, shard = divmod(number, SHARDS_AN_INDEX)
        place = ShardId(index=f"logs-{index:06}", index_uuid=f"uuid-{index}", number=shard)
        step = 1 + 3 * (number // whole % (whole // 3))
        for primary, at in ((True, number), (False, number + step)):
            yield ShardCopy(
                shard=place,
                primary=primary,
                state=CopyState.STARTED,
                node=_name(at % whole),
                allocation_id=f"{number}-{primary}",
            )


def observation(wanted: Size) -> Observation:
    """A healthy cluster of that size, everything read."""
    nodes, copies = tuple(_nodes(wanted)), tuple(_copies(wanted))
    in_sync: dict[str, dict[int, frozenset[str]]] = {}
    names = {copy.shard.index_uuid: copy.shard.index for copy in copies}
    for copy in copies:
        known = in_sync.setdefault(copy.shard.index_uuid, {})
        known[copy.shard.number] = known.get(copy.shard.number, frozenset()) | {str(copy.allocation_id)}
    view = ClusterView(
        name="large",
        uuid="u",
        version=VERSION,
        distribution="elasticsearch",
        state_version=1,
        master=_name(0),
        nodes=nodes,
        indices=tuple(Index(name=names[each], uuid=each, in_sync=in_sync[each]) for each in names),
        copies=copies,
        voters=frozenset(node.node_id for node in nodes if node.master_eligible),
    )
    running = HostView(service=ServiceState.RUNNING, detail="running", boot_id="b", may_control=True)
    health = HealthView(
        status=Health.GREEN,
        settled=True,
        nodes=wanted.nodes,
        active_shards=len(copies),
        initializing_shards=0,
        relocating_shards=0,
        unassigned_shards=0,
        pending_tasks=0,
        oldest_task=0.0,
    )
    return Observation(
        at=0.0,
        cluster=view,
        settings=SettingsView(),
        health=health,
        recoveries=(),
        activity=Activity(),
        disks={node.name: Disk(used_share=0.5, over_low=False, over_high=False) for node in nodes},
        hosts={node.name: running for node in nodes},
    )


def _measured(wanted: Size, strategy: Strategy) -> tuple[int, float, float]:
    """Waves, seconds of CPU, and MB of memory at most."""
    seen = observation(wanted)
    assert isinstance(seen.cluster, ClusterView)
    policy = Policy(
        kind=Kind.ELASTICSEARCH,
        cluster="large",
        strategy=strategy,
        max_unavailable=1 if strategy is Strategy.NODE else None,
        zone_attribute="zone",
        awareness=Awareness(attributes=("zone",)),
        expect_nodes=wanted.nodes,
    )
    started = RunStarted(
        cluster="large",
        cluster_uuid="u",
        version=VERSION,
        distribution="elasticsearch",
        policy=policy,
        nodes=tuple(node.name for node in seen.cluster.nodes),
        operator="bench",
        host="here",
        addresses={node.name: node.address for node in seen.cluster.nodes},
    )
    began = time.process_time()
    plan = make_plan(started, seen, decide=decide, describe=action_name, times={})
    spent = time.process_time() - began
    assert not plan.holds, plan.holds
    assert {name for wave in plan.waves for name in wave.nodes} == {*started.nodes}
    return len(plan.waves), spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(words: Sequence[str] | None = None) -> None:
    """Measure each size, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, help="such as 100x10000: nodes and copies")
    rows = []
    for wanted in map(size, parser.parse_args(words).sizes):
        for strategy in (Strategy.NODE, Strategy.ZONE):
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                waves, spent, memory = alone.apply(_measured, (wanted, strategy))
            a_copy = 1e6 * spent / wanted.copies
            figures = (f"{waves}", f"{spent:.2f}", f"{a_copy:.0f}", f"{memory:.0f}")
            rows.append((str(wanted), strategy.value, *figures))
            print(*rows[-1], flush=True)  # noqa: T201  (a program's output)
    head = ("nodes x copies", "strategy", "waves", "CPU s", "µs a copy", "MB")
    print("", *table(head, rows, numbers=range(2, len(head))), sep="\n")  # noqa: T201  (the same)


if __name__ == "__main__":
    main()
