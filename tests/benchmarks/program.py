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

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import prepared_run
from orchestrator.config.policy import Overrides
from orchestrator.runs.attempt import exit_code
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster


def main(strategy: str, cluster: str, state: str, result: str, playbook: str | None = None) -> int:
    context = context_of(Output.TEXT)
    overrides = Overrides(strategy=strategy, reason="benchmark")
    url = f"sqlite:///{state}"
    began = context.clock.now()
    file = context.cluster(cluster)
    with prepared_run(context, file, playbook=playbook, overrides=overrides, state=url) as prepared:
        code = exit_code(prepared.run(None))
        reached = prepared.connection.ports.cluster
        assert isinstance(reached, ElasticsearchCluster)
        traffic = reached.traffic
    own = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "exit_code": int(code),
        "seconds_in_the_run": context.clock.now() - began,
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
