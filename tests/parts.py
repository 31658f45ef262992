"""The parts of `make test-all`: what each shows, and which changes call for it.

A test that is not in `make test` is marked `part(name=…)`. `python -m tests.parts BASE` prints the parts that
the changes since the commit `BASE` call for.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Part:
    """One part."""

    shows: str  # what its tests show, for the contributors' page
    paths: tuple[str, ...]  # it is run for a change below one of them


_ELASTICSEARCH: Final = ("orchestrator/engine", "orchestrator/elasticsearch", "tests/lab")
_HOSTS: Final = ("orchestrator/hosts", "tests/integration/hosts")
_RUNS: Final = ("orchestrator/engine", "orchestrator/runs", "orchestrator/runtime")

PARTS: Final = {
    "airflow": Part("tasks in a real Airflow", ("orchestrator/airflow",)),
    "around": Part(
        "messages, silences, metrics and alert rules of runs: real receivers, bad ones, kills at each call",
        ("configs/observability", "orchestrator/around", "orchestrator/runs"),
    ),
    "browser": Part("live pages in a real browser", ("orchestrator/serve", "orchestrator/view/report")),
    "gates": Part(
        "gates on a real RabbitMQ, a real Prometheus and a real Alertmanager", ("orchestrator/runtime",)
    ),
    "generations": Part("restarts on one version of each generation of the servers", _ELASTICSEARCH),
    "hosts": Part("restarts of real hosts with systemd and sshd: under load, with faults, when due", _HOSTS),
    "kills": Part("chains of SIGKILL on real nodes: a kill at every event", _RUNS),
    "long": Part(
        "without servers: every field of an answer, every step of tuning, a solver's optimum, the site",
        ("docs", "orchestrator"),
    ),
    "merges": Part("merges of a bulk load on real nodes: whole, killed", _RUNS),
    "mixed": Part(
        "restarts in the middle of an upgrade by hand, from each version to the next", _ELASTICSEARCH
    ),
    "nights": Part("mishaps at night on real hosts, and the line that names each", (*_HOSTS, *_RUNS)),
    "nodes": Part(
        "waves of zones, signals, two bastions, rights of the shipped role, what a terminal shows",
        (*_RUNS, "orchestrator/view"),
    ),
    "ordinary": Part("ordinary nights of seven nodes, and stops beside a recovery", _RUNS),
    "postgres": Part(
        "the state in a real PostgreSQL: several machines, connections cut at every commit, failing servers",
        ("orchestrator/runtime",),
    ),
    "riak": Part("hosts with a stand-in for Riak", ("orchestrator/riak", "tests/doubles")),
    "services": Part("systemd, sysv, Docker and command lines on real hosts: rights, locks, units", _HOSTS),
    "soak": Part("5,000 drawn runs, and kills at every point of a simulated run", _RUNS),
    "tuning": Part("kernels, boots and tuned on real hosts", ("orchestrator/tuning",)),
    "upgrades": Part("major version by major version, held and killed upgrades", _ELASTICSEARCH),
    "versions": Part("answers and leases of servers of each generation", _ELASTICSEARCH),
}
"""By name, as in `make test-NAME`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a part that no command runs."""
    for item in items:
        mark = item.get_closest_marker("part")
        if mark and mark.kwargs.get("name") not in PARTS:
            raise pytest.UsageError(f"{item.nodeid}: no part of tests/parts.py is {mark}")


def called_for(changed: Collection[str]) -> Iterator[str]:
    """The parts that changes of these files call for."""
    for name, part in PARTS.items():
        if any(file.startswith(f"{path}/") for file in changed for path in part.paths):
            yield name


def main(base: str) -> int:
    """Print the parts that a change since this commit calls for, on one line."""
    words = ("git", "-C", str(ROOT), "diff", "--name-only", base, "--")
    listed = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  (git)
    if listed.returncode != 0:
        sys.stderr.write(listed.stderr)
        return 2
    sys.stdout.write(" ".join(called_for(listed.stdout.splitlines())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
