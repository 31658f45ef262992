"""A signal while Riak's commands do not answer: each has a limit of a minute, and nobody waits for them.

The nodes are those of the double, each behind an sshd of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.console import SCRIPT
from tests.integration.killing import entered
from tests.integration.riak_processes import RiakProcesses, riak_processes

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf

INTERRUPTED = 5
LIMIT_SECONDS = 55.0
"""Less than one command may take; a reading sends several after each other."""
AS_FROM_A_TERMINAL = ("env", "--default-signal")
"""Tests that run in the background were told to ignore SIGINT."""
SIGNALS = [signal.SIGINT, signal.SIGTERM]
PLAYBOOK: Mapping[str, Any] = {"kind": "riak", "deadlines": {"hold": "20m"}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path_factory.mktemp("riak"), 3, pace=0.02, ring_size=16) as processes:
        yield processes


def await_file(path: Path) -> None:
    limit = time.monotonic() + 60.0
    while not path.exists():
        assert time.monotonic() < limit, f"{path} was not made"
        time.sleep(0.02)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_without_changes_ends_though_no_command_answers(
    lab: RiakProcesses, bastion_of: BastionOf, number: signal.Signals
) -> None:
    bastion = bastion_of(lab, playbook=PLAYBOOK)
    limits = lab.limits()
    assert lab.nodes[2].riak("stop").returncode == 0
    try:
        with lab.watched() as watch:
            run = bastion.begin_restart()
            bastion.await_seam(run, entered("gated", node=""))  # where a node that is down holds it
            with lab.silent() as asked:
                await_file(asked)
                run.send_signal(number)
                assert bastion.end(run, LIMIT_SECONDS) == INTERRUPTED, bastion.story()
                assert "everything is restored" in bastion.said[-1], bastion.story()
        assert max(watch.starts().values()) == 0
    finally:
        assert lab.nodes[2].riak("start").returncode == 0
        lab.wait_ready()
    assert lab.limits() == limits
    assert list(lab.leases.iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", ["plan", "restart", "validate"])
def test_a_command_ends_before_there_is_a_run(
    lab: RiakProcesses, bastion_of: BastionOf, number: signal.Signals, command: str
) -> None:
    bastion = bastion_of(lab, playbook=PLAYBOOK)
    yes = ("--yes",) if command == "restart" else ()
    begun = subprocess.Popen(  # noqa: S603  (the program under test)
        [*AS_FROM_A_TERMINAL, str(SCRIPT), command, "--cluster", str(bastion.file), *yes],
        env={**os.environ, "HOME": str(bastion.folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with lab.silent() as asked:
            await_file(asked)
            begun.send_signal(number)
            said, _ = begun.communicate(timeout=LIMIT_SECONDS)
    finally:
        begun.kill()
        begun.communicate()
    assert begun.returncode == INTERRUPTED, said
    assert "interrupted before anything was changed" in said
    assert list(lab.leases.iterdir()) == []
