"""What a wait for recovery costs the cluster: `python -m tests.benchmarks.waiting`.

One of six real nodes is restarted, comes back with an empty disk, and is filled slowly. While its copies
recover, every request of the program is counted, for each hour of such a wait: reads, long polls, writes (the
lease's are the only ones) and bytes. A long poll or a health with `wait_for_events` is a task in the master's
queue that changes nothing.

With `--imitated 200x30000` the answers come from a played cluster of that size (`large_cluster`): what one
reading costs, and what the readings of a first hour come to if the state never moves and if it always has.
Figures, no assertions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import prepared_run
from orchestrator.config.policy import Overrides
from orchestrator.engine.phases import READS
from orchestrator.engine.situation import pause_after
from orchestrator.model.observation import Look
from orchestrator.model.phase import Phase
from orchestrator.model.reading import Unknown
from orchestrator.runs.attempt import exit_code
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.lookout import Lookout
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.view.text import size, table
from tests.benchmarks.__main__ import HEAP_MB, SIX, fill
from tests.benchmarks.large_cluster import Size, played
from tests.benchmarks.large_cluster import size as size_of
from tests.lab.nodes import LabCluster
from tests.lab.seed import SeedIndex, seed

SLOW: Final = "256kb"
MB_A_NODE: Final = 60
SECONDS_AN_HOUR: Final = 3600
READINGS: Final = 10


@dataclass(slots=True)
class Counted:
    """What was sent while the wave's copies recovered.

    Attributes:
        waited: seconds of that.
        requests: by kind.
        received: bytes of the answers.
    """

    phase: Phase = Phase.PREPARING
    since: float = 0.0
    waited: float = 0.0
    received: int = 0
    requests: dict[str, int] = field(default_factory=dict)

    def look(self, phase: Phase) -> None:
        """A reading begins."""
        now = time.monotonic()
        if self.phase is Phase.REASSIGNED:
            self.waited += now - self.since
        self.phase, self.since = phase, now

    def sent(self, request: Any, received: int) -> None:
        """A request was answered."""
        if self.phase is not Phase.REASSIGNED:
            return
        params = request.params or {}
        kind = "writes" if request.method != "GET" else "reads"
        if "wait_for_active_shards" in params or "wait_for_nodes" in params:
            kind = "long polls"
        self.requests[kind] = self.requests.get(kind, 0) + 1
        self.received += received
        if "wait_for_events" in params:
            self.requests["tasks"] = self.requests.get("tasks", 0) + 1


def main() -> int:
    """Print the figures of one wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="9.1.0")
    parser.add_argument("--imitated", type=size_of, metavar="NODESxCOPIES", help="a played cluster instead")
    options = parser.parse_args()
    if options.imitated is not None:
        return imitate(options.imitated)
    counted = Counted()
    with (
        TemporaryDirectory(prefix="orchestrate-waiting-") as temporary,
        LabCluster.start(version=options.version, nodes=SIX, name="bench", heap_mb=HEAP_MB) as lab,
    ):
        folder = Path(temporary)
        seed(
            lab.client,
            [SeedIndex(name=f"bench-{number:02}", shards=6, documents=300) for number in range(20)],
        )
        fill(lab.client, MB_A_NODE * len(SIX))
        settings = {"persistent": {"indices.recovery.max_bytes_per_sec": SLOW}}
        lab.client.ask("PUT", "/_cluster/settings", settings)
        code = _restart(lab, folder, counted)
    hours = counted.waited / SECONDS_AN_HOUR
    kinds = ("reads", "long polls", "writes", "tasks")
    rows = [
        (
            f"{counted.waited:.0f} s",
            *(f"{counted.requests.get(kind, 0) / hours:.0f}" for kind in kinds),
            size(int(counted.received / hours)),
        )
    ]
    sys.stdout.write(
        "\n".join([*table(("waited", *(f"{kind} an hour" for kind in kinds), "bytes an hour"), rows), ""])
    )
    return code


def readings_an_hour() -> int:
    """How often a run reads in the first hour of a wait in which nothing starts."""
    count, at = 0, 0.0
    while at < SECONDS_AN_HOUR:
        count, at = count + 1, at + pause_after(at)
    return count


def imitate(wanted: Size) -> int:
    """Print what readings of a cluster of that size cost while copies recover."""
    rows = []
    for moving in (False, True):
        with played(wanted, moving=moving) as url:
            client = ElasticsearchClient(Access(endpoints=(url,)), clock=SystemClock())
            port = ElasticsearchCluster(client)
            look = READS[Phase.REASSIGNED].look - {Look.HOSTS}
            read = port.observe(look)
            assert not isinstance(read.cluster, Unknown), read.cluster
            assert not isinstance(read.recoveries, Unknown), read.recoveries
            before, received, began = (
                client.traffic.requests,
                client.traffic.bytes_received,
                time.process_time(),
            )
            for _ in range(READINGS):
                port.observe(look)
            requests = (client.traffic.requests - before) / READINGS
            taken = (client.traffic.bytes_received - received) / READINGS
            cpu = (time.process_time() - began) / READINGS
            client.close()
        hour = readings_an_hour()
        rows.append(
            (
                f"{wanted}",
                "always" if moving else "never",
                f"{requests:.0f}",
                size(int(taken)),
                f"{1000 * cpu:.0f} ms",
                f"{hour}",
                f"{hour * requests:.0f}",
                size(int(hour * taken)),
                f"{hour * cpu / SECONDS_AN_HOUR:.2%}",
            )
        )
    heads = (
        "nodes x copies",
        "the state moved",
        "requests a reading",
        "bytes",
        "CPU here",
        "readings an hour",
        "requests",
        "bytes",
        "CPU of the time",
    )
    sys.stdout.write("\n".join([*table(heads, rows), ""]))
    return 0


def _restart(lab: LabCluster, folder: Path, counted: Counted) -> int:
    """`orchestrate restart --only es1`, with its requests counted."""
    wiped = f"{lab.directory}/{{node}}/data/indices {lab.directory}/{{node}}/data/nodes/0/indices"
    playbook = folder / "slowly.yml"
    told = {
        "kind": "elasticsearch",
        "recovery_limits": {"max_bytes_per_sec": None},
        "hooks": {"while_stopped": [{"run": f"rm -rf {wiped}"}]},
        "deadlines": {"recover": "1h"},
    }
    playbook.write_text(json.dumps(told), encoding="utf-8")
    context = context_of(Output.TEXT)
    file = context.cluster(str(lab.write_cluster_file(folder / "bench.yml")))
    overrides = Overrides(only=("es1",), reason="benchmark")
    with (
        patch.object(Lookout, "observe", _looking(counted)),
        patch.object(ElasticsearchClient, "_attempt", _sending(counted)),
        prepared_run(
            context,
            file,
            playbook=str(playbook),
            overrides=overrides,
            state=f"sqlite:///{folder / 'state.db'}",
        ) as prepared,
    ):
        return int(exit_code(prepared.run(None)))


def _looking(counted: Counted) -> Callable[..., Any]:
    observe = Lookout.observe

    def looking(self: Lookout, state: Any, *more: Any, **named: Any) -> Any:
        counted.look(state.phase)
        return observe(self, state, *more, **named)

    return looking


def _sending(counted: Counted) -> Callable[..., Any]:
    attempt = ElasticsearchClient._attempt

    def sending(self: ElasticsearchClient, request: Any, *more: Any, **named: Any) -> Any:
        before = self.traffic.bytes_received
        answer = attempt(self, request, *more, **named)
        counted.sent(request, self.traffic.bytes_received - before)
        return answer

    return sending


if __name__ == "__main__":
    sys.exit(main())
