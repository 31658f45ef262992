"""`make test` shares its tests out over processes: none is left out, and no server is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workers import SLOW

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 120.0
_TESTS = """
import os, pathlib, time
import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def server():
    pid = os.getpid()
    try:  # it may be told to end while it starts
        (HERE / f"up-{pid}").touch()
        yield pid
    finally:
        (HERE / f"ending-{pid}").touch()
        time.sleep(0.5)
        (HERE / f"down-{pid}").touch()


def test_quick(): pass


@pytest.mark.docker
def test_on_hosts(server): pass


@pytest.mark.docker
def test_on_hosts_too(server): pass


@pytest.mark.real
def test_on_nodes_too(server): pass


@pytest.mark.real
def test_on_nodes(server):
    fifo = os.environ.get("FIFO")
    if fifo:
        with open(fifo, "w") as told:
            told.write("waiting")
        (HERE / "waiting").touch()
        time.sleep(100)


@pytest.mark.parametrize("number", range(20))
def test_beside(number):
    if "WRONG" in os.environ and number == 7:
        while "FIFO" in os.environ and not (HERE / "waiting").exists():
            time.sleep(0.01)  # with -x an earlier failure would end the other process before it waits
        assert False
"""


@contextmanager
def _session(folder: Path, *options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "test_shared_out.py").write_text(_TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  real: x\n  docker: x\n  slow: x\n")
    usual = ("-p", "tests.workers", "-p", "no:cacheprovider", "--numprocesses=2", "--dist=loadgroup")
    with subprocess.Popen(  # noqa: S603  (this Python)
        [sys.executable, "-m", "pytest", str(folder), "--no-loadscope-reorder", *usual, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as session:
        try:
            yield session
        finally:
            session.kill()


def _names(folder: Path, beginning: str) -> list[str]:
    return sorted(path.name.removeprefix(beginning) for path in folder.glob(f"{beginning}*"))


def test_each_kind_of_server_is_started_in_one_process_and_ended(tmp_path: Path) -> None:
    with _session(tmp_path, "-v") as session:
        said, _ = session.communicate(timeout=_SECONDS)
    assert session.returncode == 0, said
    assert "25 passed" in said.splitlines()[-1]
    assert len(_names(tmp_path, "up-")) == 2
    assert _names(tmp_path, "down-") == _names(tmp_path, "up-")
    done = re.findall(r"\[(gw\d)\] .*PASSED \S+::(\w+)", said)
    where = {test: process for process, test in done}
    assert where["test_on_hosts"] == where["test_on_hosts_too"] != where["test_on_nodes"], said
    assert where["test_on_nodes"] == where["test_on_nodes_too"], said
    first = dict(reversed(done))  # what each process did first
    assert all(test.startswith("test_on_") for test in first.values()), said


def test_a_failure_is_named_and_counted_in_the_last_line(tmp_path: Path) -> None:
    with _session(tmp_path, WRONG="1") as session:
        said, _ = session.communicate(timeout=_SECONDS)
    assert session.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 24 passed" in said.splitlines()[-1]
    assert said.count("FAILED test_shared_out.py::test_beside[7]") == 2, "at once, and in the summary"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("by", ["process", "terminal"])
def test_one_that_is_told_to_end_ends_its_servers(tmp_path: Path, number: signal.Signals, by: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with _session(tmp_path, FIFO=str(tmp_path / "fifo")) as session:
        assert (tmp_path / "fifo").read_text() == "waiting"
        if by == "process":
            session.send_signal(number)
        else:  # which signals all of them
            os.killpg(session.pid, number)
        said, _ = session.communicate(timeout=_SECONDS)
    assert session.returncode == pytest.ExitCode.INTERRUPTED, said
    assert _names(tmp_path, "down-") == _names(tmp_path, "up-") != []


def test_one_that_is_ending_its_servers_is_not_interrupted_in_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with _session(tmp_path, FIFO=str(tmp_path / "fifo")) as session:
        assert (tmp_path / "fifo").read_text() == "waiting"
        while not _names(tmp_path, "ending-"):  # the process of the other tests has done them all
            assert session.poll() is None
            time.sleep(0.01)
        os.killpg(session.pid, signal.SIGINT)
        said, _ = session.communicate(timeout=_SECONDS)
    assert session.returncode == pytest.ExitCode.INTERRUPTED, said
    assert _names(tmp_path, "down-") == _names(tmp_path, "up-") != []


def test_with_x_the_servers_of_the_other_process_are_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with _session(tmp_path, "-x", FIFO=str(tmp_path / "fifo"), WRONG="1") as session:
        assert (tmp_path / "fifo").read_text() == "waiting"
        said, _ = session.communicate(timeout=_SECONDS)
    assert session.returncode == pytest.ExitCode.INTERRUPTED, said
    assert _names(tmp_path, "down-") == _names(tmp_path, "up-") != []


def test_what_is_said_to_be_slow_is_there() -> None:
    assert [name for name in SLOW if not (ROOT / name.partition("::")[0]).exists()] == []
