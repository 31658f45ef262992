"""What `orchestrate plan` costs by the size of the cluster: `python -m tests.benchmarks.plan_size 100x10000`.

The command runs in a process of its own and asks a cluster that is played on loopback (`large_cluster`).
Only the machines of the nodes are not asked: all are as they should be. Beside the costs of the whole process
stands the CPU after its first question, without that of the network. Figures, no assertions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from orchestrator.elasticsearch import connection
from orchestrator.elasticsearch.connection import bounded_node
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Strategy
from orchestrator.tuning.tuner import TunableHosts
from orchestrator.view.text import table
from tests.benchmarks.large_cluster import NAME, Size, played, size

SIZES: Final = ("30x2000", "100x10000", "300x30000", "1000x100000", "5000x1000000")
MEASURE: Final = "--measure"
_RUNNING: Final = HostView(service=ServiceState.RUNNING, detail="running", boot_id="b", may_control=True)


def measured(arguments: Sequence[str], result: Path) -> None:
    """Run the command here, and write down what it cost."""
    reading, began = [0.0], [0.0]

    def running(_: TunableHosts, nodes: Collection[NodeName], **__: Any) -> Mapping[NodeName, HostView]:
        return dict.fromkeys(nodes, _RUNNING)

    def counting(*options: Any) -> Any:
        class Counted(bounded_node(*options)):
            def perform_request(self, *asked: Any, **more: Any) -> Any:
                before = time.process_time()
                began[0] = began[0] or before
                answer = super().perform_request(*asked, **more)
                reading[0] += time.process_time() - before
                return answer

        return Counted

    from orchestrator.cli.program import run_heeding  # noqa: PLC0415  (loaded by the one process that is measured)

    wall = time.monotonic()
    with patch.object(TunableHosts, "observe", running), patch.object(connection, "bounded_node", counting):
        code = run_heeding(arguments, [])
    spent = time.process_time()
    own = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "exit": code,
        "wall": time.monotonic() - wall,
        "cpu": spent,
        "after": spent - began[0] - reading[0],
        "mb": own.ru_maxrss / 1024,
    }
    result.write_text(json.dumps(figures), encoding="utf-8")


def _plan(folder: Path, url: str, wanted: Size, strategy: Strategy) -> dict[str, float]:
    cluster, result, output = (folder / name for name in ("large.yml", "result.json", "plan.json"))
    hosts = {"connect": "local", "sudo": False, "service": {"manager": "systemd"}}
    document = {"kind": "elasticsearch", "name": NAME, "endpoints": [url], "hosts": hosts}
    cluster.write_text(json.dumps({**document, "expect": {"nodes": wanted.nodes}}), encoding="utf-8")
    plan = ["plan", "--cluster", str(cluster), "--strategy", strategy.value, "--output", "json"]
    command = [sys.executable, "-m", "tests.benchmarks.plan_size", MEASURE, str(result), *plan]
    with output.open("wb") as written:
        subprocess.run(  # noqa: S603  (the program under test)
            [*command, "--state", f"sqlite:///{folder / 'state.db'}"],
            check=True,
            stdout=written,
            env={**os.environ, "HOME": str(folder)},
        )
    made = json.loads(output.read_text(encoding="utf-8").splitlines()[0])
    assert not made["holds"], made["holds"]
    figures: dict[str, float] = json.loads(result.read_text(encoding="utf-8"))
    return figures | {"waves": len(made["waves"])}


def main(words: Sequence[str] | None = None) -> None:
    """Measure each size with each strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, help="such as 100x10000: nodes and copies")
    parser.add_argument("--strategy", nargs="*", default=[each.value for each in Strategy])
    options, rows = parser.parse_args(words), []
    for wanted in map(size, options.sizes):
        with TemporaryDirectory(prefix="orchestrate-bench-") as folder, played(wanted) as url:
            for strategy in map(Strategy, options.strategy):
                cost = _plan(Path(folder), url, wanted, strategy)
                a_copy = f"{1e6 * cost['after'] / wanted.copies:.0f}"
                seconds = (f"{cost[key]:.2f}" for key in ("wall", "cpu", "after"))
                rows.append(
                    (str(wanted), strategy.value, f"{cost['waves']}", *seconds, a_copy, f"{cost['mb']:.0f}")
                )
                print(*rows[-1], flush=True)  # noqa: T201  (a program's output)
    head = ("nodes x copies", "strategy", "waves", "wall s", "CPU s", "after the answers", "µs a copy", "MB")
    print("", *table(head, rows, numbers=range(2, len(head))), sep="\n")  # noqa: T201  (the same)


if __name__ == "__main__":
    if MEASURE in sys.argv[1:2]:
        measured(sys.argv[3:], Path(sys.argv[2]))
    else:
        main()
