"""The program's side of the benchmark: `orchestrate restart --yes` in a process of its own, with its cost.

`python -m tests.benchmarks.program STRATEGY CLUSTER_FILE STATE_FILE RESULT.json [PLAYBOOK]` does what the
command does, by the same functions, and then writes down what only the process itself knows: its CPU seconds,
its largest memory, and what it sent to the cluster.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from orchestrator.cli.fresh import prepare
from orchestrator.cli.options import Output
from orchestrator.cli.surroundings import surroundings
from orchestrator.config.policy import Overrides
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster


def main(strategy: str, cluster: str, state: str, result: str, playbook: str | None = None) -> int:
    around = surroundings(Output.TEXT)
    overrides = Overrides(strategy=strategy, reason="benchmark")
    url = f"sqlite:///{state}"
    began = around.clock.now()
    file = around.cluster(cluster)
    with prepare(file, around, playbook=playbook, overrides=overrides, state_url=url) as fresh:
        code = fresh.run(None)
        assert isinstance(fresh.world.cluster, ElasticsearchCluster)
        traffic = fresh.world.cluster.traffic
    own = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "exit_code": int(code),
        "seconds_in_the_run": around.clock.now() - began,
        "requests": traffic.requests,
        "bytes_sent": traffic.bytes_sent,
        "bytes_received": traffic.bytes_received,
        "cpu_seconds": own.ru_utime + own.ru_stime,
        "peak_mb": own.ru_maxrss / 1024,
    }
    Path(result).write_text(json.dumps(figures), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
