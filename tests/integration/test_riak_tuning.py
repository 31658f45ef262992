"""`tune check` and `diagnose` on a Riak cluster file, over SSH: hosts of nodes that are down too."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.operating import PROGRAM
from tests.integration.riak_processes import RiakProcesses, riak_processes

NODES = {f"dev{number}@127.0.0.1" for number in (1, 2, 3)}
SECONDS = 120.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path / "lab", 3, pace=0.02, ring_size=16) as lab:
        yield lab


def orchestrate(lab: RiakProcesses, folder: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Its exit code, its JSON lines and what it said beside them."""
    file = folder / "lab.yml"
    file.write_text(json.dumps(lab.cluster_document()), encoding="utf-8")
    done = subprocess.run(  # noqa: S603  (the program under test)
        [*PROGRAM, *words, "--cluster", str(file), "--output", "json"],
        env={**os.environ, "HOME": str(folder), "ORCHESTRATE_STATE": f"sqlite:///{folder}/state.db"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_hosts_are_checked_and_sampled_with_a_node_down_and_with_all_of_them_down(
    lab: RiakProcesses, tmp_path: Path
) -> None:
    for down in (lab.nodes[1:2], lab.nodes):
        for node in down:
            node.end()
        _, lines, said = orchestrate(lab, tmp_path, "tune", "check", "--profile", "riak")
        checked = {line["node"] for line in lines if line["event"] == "tunable"}
        assert (checked, lines[-1]["hosts"], lines[-1]["unreachable"]) == (NODES, 3, []), said
        assert "no node of the cluster is called so" not in said
        code, lines, said = orchestrate(lab, tmp_path, "diagnose", "--sample", "1s")
        assert code in (0, 3), said  # what this machine suffers from is its own affair
        assert "read 3 of 3 hosts" in said
        assert lines[-1]["unread"] == []
