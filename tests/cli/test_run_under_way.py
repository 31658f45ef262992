"""Commands beside a run that is under way on this machine: it keeps the cluster until it is asked to stop."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from orchestrator.runtime.waiting import POLL_SECONDS
from tests.cli.console import SCRIPT, Console
from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

BOOK = """kind: elasticsearch
hooks:
  before_stop: [{run: "while [ ! -e '%s' ]; do sleep 0.2; done", local: true, timeout: 5m}]
"""


def test_a_live_run_is_neither_resumed_nor_taken_over(
    console: Console, process_cluster: ProcessCluster
) -> None:
    lab = process_cluster("opensearch-2.19.0")
    file = lab.write_cluster_file(console.folder / "lab.yml")
    go = console.folder / "go"
    book = console.folder / "book.yml"
    book.write_text(BOOK % go)
    lives = lab.pids()
    process = subprocess.Popen(  # noqa: S603  (the program under test)
        [
            str(SCRIPT),
            "restart",
            "--cluster",
            str(file),
            "--playbook",
            str(book),
            "--yes",
            "--output",
            "json",
        ],
        cwd=console.folder,
        env=console.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        run = _until(process.stdout, "wave_started")
        for line in (
            "resume --yes",
            f"resume {run} --yes",
            f"restore {run}",
            f"restart --cluster {file} --yes",
            f"restart --cluster {file} --yes --state sqlite:///{_other(console)}",
        ):
            said = console.run(*line.split(), "--output", "json")
            assert said.code == 6, (line, said)
            assert run in said.message, line
            assert f"wait for it (`orchestrate status {run} --watch" in said.message, line
            assert "), or end it with `orchestrate stop" in said.message, line
            assert said.lines[-1]["outcome"] == "refused"
        asked = console.run("stop", run)
        assert asked.code == 0, asked
        time.sleep(2 * POLL_SECONDS)  # a run notices a request within one of them, and nobody else can tell
        go.touch()
        last = [json.loads(line) for line in process.stdout][-1]
        assert process.wait(60) == 5
        assert (last["outcome"], last["exit_code"]) == ("interrupted", 5)
    finally:
        go.touch()
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert lab.pids() == lives
    settings = lab.client.ask("GET", "/_cluster/settings?flat_settings=true")
    assert settings == {"persistent": {}, "transient": {}}


def _until(lines: Iterable[str], event: str) -> str:
    for line in lines:
        told = json.loads(line)
        if told["event"] == event:
            return str(told["run"])
    raise AssertionError(f"the run ended before {event}")


def _other(console: Console) -> Path:
    """The state file of another account, or of another bastion."""
    return console.folder / "other.db"
