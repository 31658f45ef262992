"""A signal before there is a run: the exit code of the contract, and the summary, whichever signal it is."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.console import LIMIT_SECONDS, SCRIPT, Console
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import Asked, Wire

PROBE = "/_nodes/_local/http"
AS_FROM_A_TERMINAL = ("env", "--default-signal")
"""Whatever the tests were told to ignore: a job in the background ignores SIGINT, one under nohup SIGHUP."""


@contextmanager
def _at_the_first_look(
    console: Console, *before: str
) -> Iterator[tuple[subprocess.Popen[str], threading.Event]]:
    """A plan that waits for the cluster's first answer, which comes once the event is set."""
    looked, go = threading.Event(), threading.Event()
    with SmallCluster() as server:
        (answer,) = server.answers[PROBE]

        def late(asked: Asked, wire: Wire) -> None:
            looked.set()
            go.wait(LIMIT_SECONDS)
            answer(asked, wire)

        server.on(PROBE, late)
        process = subprocess.Popen(  # noqa: S603  (the program under test)
            [
                *before,
                str(SCRIPT),
                "plan",
                "--cluster",
                server.write_file(console.folder),
                "--output",
                "json",
            ],
            cwd=console.folder,
            env=console.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert looked.wait(LIMIT_SECONDS)
            yield process, go
        finally:
            go.set()
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_the_code_of_the_contract(
    console: Console, number: signal.Signals
) -> None:
    with _at_the_first_look(console, *AS_FROM_A_TERMINAL) as (process, _):
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 5
    (last,) = [json.loads(line) for line in out.splitlines()]
    assert (last["event"], last["outcome"], last["exit_code"]) == ("summary", "refused", 5)
    assert err == "orchestrate: interrupted before anything was changed\n"


def test_under_nohup_a_command_outlives_its_terminal(console: Console) -> None:
    with _at_the_first_look(console, *AS_FROM_A_TERMINAL, "nohup") as (process, go):
        process.send_signal(signal.SIGHUP)
        go.set()
        out, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["plan", "summary"]
