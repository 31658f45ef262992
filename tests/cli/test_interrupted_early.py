"""A signal before there is a run: the exit code of the contract, and the summary, whichever signal it is.

And a signal while a run begins: from the first call for the lease on, it counts whenever it comes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.model.phase import Request
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from tests.cli.console import LIMIT_SECONDS, SCRIPT, Console
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import Asked, Wire

PROBE = "/_nodes/_local/http"
LEASE = "/_component_template/orchestrate-lease-1"
AS_FROM_A_TERMINAL = ("env", "--default-signal")
"""Whatever the tests were told to ignore: a job in the background ignores SIGINT, one under nohup SIGHUP."""


@contextmanager
def _at_the_first_look(
    console: Console, *before: str
) -> Iterator[tuple[subprocess.Popen[str], threading.Event]]:
    """A plan that waits for the cluster's first answer, which comes once the event is set."""
    with SmallCluster() as server, _waiting(console, server, "plan", PROBE, *before) as started:
        yield started


@contextmanager
def _waiting(
    console: Console, server: SmallCluster, command: str, path: str, *before: str
) -> Iterator[tuple[subprocess.Popen[str], threading.Event]]:
    """A command that waits for the answer to a path, which comes once the event is set."""
    looked, go = threading.Event(), threading.Event()
    (answer,) = server.answers[path]

    def late(asked: Asked, wire: Wire) -> None:
        looked.set()
        go.wait(LIMIT_SECONDS)
        answer(asked, wire)

    server.on(path, late)
    file = server.write_file(console.folder)
    yes = ("--yes",) if command == "restart" else ()
    process = subprocess.Popen(  # noqa: S603  (the program under test)
        [*before, str(SCRIPT), command, "--cluster", file, *yes, "--output", "json"],
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
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


WHILE_LOADED = """
import os, signal, sys

SIGNAL, MODULE = sys.argv.pop(1), sys.argv.pop(1)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            os.kill(os.getpid(), getattr(signal, SIGNAL))

sys.meta_path.insert(0, Finder())
from orchestrator.cli.main import main
main()
"""
"""The console script, which gets the signal of its first argument when the module of its second is loaded."""


def script(console: Console, source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a changed console script as from a terminal."""
    return subprocess.run(  # noqa: S603  (the program under test)
        [*AS_FROM_A_TERMINAL, sys.executable, "-c", source, *words],
        check=False,
        capture_output=True,
        cwd=console.folder,
        env=console.variables(),
        text=True,
        timeout=LIMIT_SECONDS,
    )


@pytest.mark.parametrize(
    ("number", "module"),
    [
        (signal.SIGINT, "orchestrator.cli.run_commands"),
        (signal.SIGTERM, "orchestrator.runs"),
        (signal.SIGHUP, "sqlalchemy"),
    ],
)
def test_a_signal_while_the_program_loads_has_its_exit_code(
    console: Console, number: signal.Signals, module: str
) -> None:
    """Some of it is loaded at once, and some when the command is known."""
    plan = ("plan", "--cluster", "lab", "--output", "json")
    ended = script(console, WHILE_LOADED, number.name, module, *plan)
    assert ended.returncode == 5, ended.stderr
    (last,) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert (last["event"], last["outcome"], last["exit_code"]) == ("summary", "refused", 5)
    assert ended.stderr == "orchestrate: interrupted before anything was changed\n"


AFTER_THE_WORK = """
import os, signal
from orchestrator.cli import context
from orchestrator.cli.main import main
from orchestrator.cli.work import status

def worked(*_words, **_flags):
    around = context.context_of(context.Output.TEXT)
    requests = context._SignalRequests(around)
    with requests.during(lambda: None):
        pass
    requests.close()
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()

status.show_status = worked
main()
"""
"""The console script, which gets a signal after it has worked and let go of its own handlers."""


def test_a_signal_after_the_work_is_reported_as_after_it(console: Console) -> None:
    ended = script(console, AFTER_THE_WORK, "status")
    assert ended.returncode == 5, ended.stderr
    assert "before anything was changed" not in ended.stderr
    assert "after its work: `orchestrate status`" in ended.stderr


def test_under_nohup_a_command_outlives_its_terminal(console: Console) -> None:
    with _at_the_first_look(console, *AS_FROM_A_TERMINAL, "nohup") as (process, go):
        process.send_signal(signal.SIGHUP)
        go.set()
        out, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode in {0, 3}  # 3 where packages are installed on this machine just now
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["plan", "summary"]


def test_a_signal_while_the_lease_is_taken_releases_it(console: Console) -> None:
    """The cluster takes its time over the record."""
    with SmallCluster() as server:
        with _waiting(console, server, "restart", LEASE, *AS_FROM_A_TERMINAL) as (process, go):
            process.send_signal(signal.SIGTERM)
            time.sleep(1.0)
            go.set()
            out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert server.templates == {}
    assert process.returncode == 5, err
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["summary"]
    assert err == "orchestrate: interrupted while taking the lease; nothing was changed\n"
    with closing(open_store(f"sqlite:///{console.state}", {}, access=DatabaseUse.READ)) as store:
        assert store.runs() == ()
        assert store.lease("uuid").read() is None


def test_a_signal_between_two_waits_is_not_forgotten(tmp_path: Path) -> None:
    """After the lease was taken and before the run listens; and on a second connection."""
    file = tmp_path / "lab.yml"
    file.write_text(json.dumps({"kind": "elasticsearch", "name": "lab", "endpoints": ["http://127.0.0.1:9"]}))
    context, missed = context_of(Output.TEXT), list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _frame: missed.append(number))
    try:
        with context.connect(context.ports(context.cluster(str(file))), None) as connection:
            requests = connection.process.requests
            with requests(lambda: None) as asked:
                assert asked() == (Request.NONE, "")
            signal.raise_signal(signal.SIGTERM)
            with requests(lambda: None) as asked:
                _until(lambda: asked() == (Request.INTERRUPT, "SIGTERM"))
        with (
            context.connect(context.ports(context.cluster(str(file))), None) as again,
            again.process.requests(lambda: None) as asked,
        ):
            assert asked() == (Request.INTERRUPT, "SIGTERM")
        assert missed == []
        signal.raise_signal(signal.SIGTERM)
        assert missed == [signal.SIGTERM], "a closed connection catches no more"
    finally:
        signal.signal(signal.SIGTERM, before)


def _until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10.0
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)
