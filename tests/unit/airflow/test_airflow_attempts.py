"""Starts of a program that outlive their starter: found again, never doubled, told to stop once."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import orchestrator.airflow.attempt as of_attempts
from orchestrator.airflow.attempt import Attempt, Condition, Mark
from orchestrator.airflow.attempts import AttemptError, Start, attempts, find_or_start, token
from orchestrator.airflow.command import Selection, restart
from orchestrator.runtime.identity import host_name, parse_identity, provably_gone

ROOT = Path(__file__).parents[3]
STAND_IN = ROOT / "tests/fakes/stand_in_orchestrate.py"
RUN = "20270101-0000-abcd"
SECONDS = 30.0


class Told:
    """The stand-in's folder: what it is to do, and what it has done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def do(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def said(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def starts(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.said("starts")]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told(tmp_path / "stand-in")
    monkeypatch.setenv("STAND_IN", str(told.folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the launcher is a process of its own
    return told


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A task instance's; what runs in it ends with the test."""
    folder = tmp_path / "runs" / token("loads", "settle", "one")
    yield folder
    told = Told(tmp_path / "stand-in")
    for pid in [int(str(begun["pid"])) for begun in told.starts]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(program=[sys.executable, str(STAND_IN)], words=["restart"], directory=str(tmp_path))


def _await(what: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)


def _started(told: Told, attempt: Attempt | None = None) -> None:
    """Once: of several tries, too. With an attempt, its run has an id as well."""
    _await(lambda: bool(told.starts) and (attempt is None or bool(attempt.new_lines(0)[0])))
    assert len(told.starts) == 1


def _ended(attempt: Attempt) -> None:
    attempt.wait(SECONDS)
    assert attempt.condition() is Condition.GONE


def test_a_start_runs_on_by_itself_and_its_end_can_be_read(folder: Path, start: Start, told: Told) -> None:
    attempt, new = find_or_start(folder, start)
    assert new
    assert attempt.condition() is Condition.RUNNING, "known from the first moment on"
    _started(told)
    identity = parse_identity(attempt.process.read_text().split("\n")[0])
    assert identity is not None
    assert told.starts[0]["pid"] == identity.pid, "the process written down is the program itself"
    assert told.starts[0]["group"] == identity.pid != os.getpgrp(), "no signal to our group reaches it"
    told.do("go")
    _ended(attempt)
    ending = attempt.ending()
    assert ending.run == RUN
    assert ending.summary is not None
    assert ending.summary["exit_code"] == 0
    assert folder.stat().st_mode & 0o077 == 0, "an output names hosts and indices: nobody else's"


@pytest.mark.parametrize("descriptor", [True, False])
def test_an_end_is_waited_for_and_seen_at_once(
    monkeypatch: pytest.MonkeyPatch, folder: Path, start: Start, told: Told, *, descriptor: bool
) -> None:
    """Also of a process that is no child, where Linux gives no descriptor of it."""

    def refuse(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    if not descriptor:
        monkeypatch.setattr(os, "pidfd_open", refuse)
    attempt, _ = find_or_start(folder, start)
    began = time.monotonic()
    attempt.wait(0.3)
    assert time.monotonic() - began >= 0.3, "it runs: all the seconds are waited"
    assert attempt.condition() is Condition.RUNNING
    told.do("go")
    for _ in range(2):  # of what is gone nothing is waited for
        _ended(attempt)
    assert time.monotonic() - began < SECONDS


def test_tries_at_one_moment_start_it_once(folder: Path, start: Start, told: Told) -> None:
    found: list[tuple[Attempt, bool]] = []
    threads = [threading.Thread(target=lambda: found.append(find_or_start(folder, start))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [new for _, new in found].count(True) == 1
    assert len({attempt.folder for attempt, _ in found}) == 1
    _started(told)


def test_a_starter_killed_early_leaves_no_gap(folder: Path, start: Start, told: Told, tmp_path: Path) -> None:
    # A Python of the launcher's that dawdles before it writes who it is; its starter is killed meanwhile.
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import sys, time\nif 'orchestrator.airflow.launch' in sys.orig_argv:\n"
        f"    open({str(slow / 'begun')!r}, 'w').close()\n    time.sleep(1.5)\n"
    )
    code = (
        "import sys; from pathlib import Path\nfrom orchestrator.airflow.attempts import *\n"
        "find_or_start(Path(sys.argv[1]), Start(program=sys.argv[2:], words=['restart']))\n"
    )
    starter = subprocess.Popen(  # noqa: S603  (this Python)
        [sys.executable, "-c", code, str(folder), *start.program],
        env={**os.environ, "PYTHONPATH": f"{slow}:{ROOT}"},
    )
    _await((slow / "begun").exists)
    starter.kill()
    starter.wait()
    assert not told.starts, "the launcher was too fast: this shows nothing"
    attempt, new = find_or_start(folder, start)
    assert not new, "a second one was started beside the first"
    assert attempt.condition() is Condition.RUNNING
    _started(told)


def test_an_end_is_reported_once_and_the_next_try_starts_again(
    folder: Path, start: Start, told: Told
) -> None:
    told.do("go")
    told.do("exit-code", "3")
    first, _ = find_or_start(folder, start)
    _ended(first)
    assert find_or_start(folder, start) == (first, False)
    first.mark(Mark.REPORTED)
    second, new = find_or_start(folder, start)
    assert new
    assert second != first
    _ended(second)
    assert len(told.starts) == 2


def test_a_killed_program_is_started_anew(folder: Path, start: Start, told: Told) -> None:
    first, _ = find_or_start(folder, start)
    _started(told)
    os.kill(int(str(told.starts[0]["pid"])), signal.SIGKILL)
    _ended(first)
    assert first.ending().summary is None
    assert find_or_start(folder, start)[1]


def test_a_program_that_is_not_there_says_so(folder: Path, start: Start, told: Told) -> None:
    attempt, _ = find_or_start(folder, replace(start, program=["no-such-orchestrate"]))
    _ended(attempt)
    assert attempt.ending().summary is None
    assert "no-such-orchestrate cannot be started: No such file" in attempt.ending().errors
    assert told.starts == []


@pytest.mark.parametrize(("kept", "left"), [(2, ["2", "3"]), (1, ["3"]), (5, ["1", "2", "3"])])
def test_old_starts_are_removed_and_numbers_go_on(
    folder: Path, start: Start, told: Told, kept: int, left: list[str]
) -> None:
    told.do("go")
    for _ in range(3):
        attempt, _new = find_or_start(folder, start, kept=kept)
        _ended(attempt)
        attempt.mark(Mark.REPORTED)
    assert [one.folder.name for one in attempts(folder)] == left


def _moved(attempt: Attempt, *, host: str = "", **changed: object) -> None:
    """As if it had been started elsewhere: in another boot or PID namespace, on a machine of that name."""
    identity = parse_identity(attempt.process.read_text().split("\n")[0])
    assert identity is not None
    inode = attempt.output.stat().st_ino
    attempt.process.write_text(f"{replace(identity, **changed)}\n{host or attempt.host}\n{inode}\n")


def _mounted_as(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount of any path: of one in UTF-8, that of its parent was taken."""
    mounts, descriptor = folder / "mountinfo", os.open(folder, os.O_RDONLY)
    said = Path(f"/proc/self/fdinfo/{descriptor}").read_text().split()
    os.close(descriptor)
    number = said[said.index("mnt_id:") + 1]
    mounts.write_text(
        f"0 1 8:1 / / rw - ext4 /dev/sda1 rw\n{number} 0 0:32 / /home/jörg rw - {kind} server:/x rw\n"
    )
    monkeypatch.setattr(of_attempts, "_MOUNTS", mounts)


WHERE: dict[str, dict[str, object]] = {
    "here": {},
    "container-of-that-name": {"namespace": "1"},
    "container": {"namespace": "1", "host": "other"},
    "other-boot": {"boot": "b", "host": "other"},
    "machine-of-that-name": {"boot": "b"},
    "reused": {"started": 1},
    "no-proc": {"boot": "", "namespace": ""},
}


def test_what_proves_that_a_program_runs_or_ended(
    folder: Path, start: Start, told: Told, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Never the name of a machine: containers on the host's network share it, and clones of machines."""
    runs, gone, elsewhere = Condition.RUNNING, Condition.GONE, Condition.ELSEWHERE
    attempt, _ = find_or_start(folder, start)
    assert attempt.host == host_name()
    mine = attempt.process.read_text()
    for kind in ("ext4", "nfs4"):
        _mounted_as(kind, folder, monkeypatch)
        for name, changed in WHERE.items():
            with subtests.test(name, kind=kind):
                attempt.process.write_text(mine)
                _moved(attempt, **changed)
                assert attempt.condition() is runs
    attempt.process.write_text(mine)
    told.do("go")
    _ended(attempt)
    for kind in ("ext4", "overlay", "nfs4", "fuse.s3fs", "virtiofs"):
        _mounted_as(kind, folder, monkeypatch)
        for name, changed in WHERE.items():
            with subtests.test(f"{name} ended", kind=kind):
                attempt.process.write_text(mine)
                _moved(attempt, **changed)
                proven = kind in ("ext4", "overlay") or name in ("here", "reused")
                assert attempt.condition() is (gone if proven else elsewhere)


def test_a_start_that_cannot_be_read_is_not_gone(folder: Path, start: Start, told: Told) -> None:
    assert Attempt(folder / "nowhere").condition() is Condition.ELSEWHERE
    attempt, _ = find_or_start(folder, start)
    _started(told)
    attempt.process.rename(folder / "kept")
    attempt.process.mkdir()
    assert attempt.condition() is Condition.ELSEWHERE, "an error of the file is not its absence"
    attempt.process.rmdir()
    attempt.process.write_text("half an iden")
    assert attempt.condition() is Condition.RUNNING, "it holds the lock of its output"


def test_a_start_that_may_run_elsewhere_is_not_doubled(
    folder: Path, start: Start, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.do("go")
    attempt, _ = find_or_start(folder, start)
    _ended(attempt)
    _moved(attempt, boot="another-boot", host="bastion2")
    _mounted_as("nfs", folder, monkeypatch)
    with pytest.raises(AttemptError, match=r"on bastion2 .* one machine serves; .* remove that folder"):
        find_or_start(folder, start)


def test_a_program_outlives_the_prefix_that_was_killed(folder: Path, start: Start, told: Told) -> None:
    """`sudo` was killed; what it has started restarts nodes, and a second one would be started beside it."""
    prefix = ["sh", "-c", '"$@"; true', "prefix"]
    attempt, _ = find_or_start(folder, replace(start, program=[*prefix, *start.program]))
    _started(told)
    identity = parse_identity(attempt.process.read_text().split("\n")[0])
    assert identity is not None
    assert identity.pid != told.starts[0]["pid"]
    os.kill(identity.pid, signal.SIGKILL)
    _await(lambda: provably_gone(str(identity)))
    assert find_or_start(folder, start) == (attempt, False)
    told.do("go")
    _ended(attempt)


def test_a_lock_of_another_file_decides_nothing(folder: Path, start: Start, told: Told) -> None:
    """Its output was rotated, restored or copied, or an older version has started it, without the lock."""
    attempt, _ = find_or_start(folder, start)
    _started(told)
    _moved(attempt, namespace="1")
    attempt.output.rename(attempt.folder / "output.jsonl.1")
    attempt.output.touch()
    assert attempt.condition() is Condition.ELSEWHERE
    attempt.process.write_text("\n".join(attempt.process.read_text().splitlines()[:2]))
    assert attempt.condition() is Condition.ELSEWHERE


def test_a_reported_end_is_known_everywhere(
    folder: Path, start: Start, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared folder, the next try on another machine was refused for ever."""
    told.do("go")
    attempt, _ = find_or_start(folder, start)
    _ended(attempt)
    attempt.mark(Mark.REPORTED)
    _moved(attempt, boot="another-boot", host="bastion2")
    _mounted_as("nfs", folder, monkeypatch)
    assert find_or_start(folder, start)[1]


def test_no_signal_reaches_a_process_of_another_container(folder: Path, start: Start, told: Told) -> None:
    """Its pid is that of another process here."""
    told.do("stop-fails")
    attempt, _ = find_or_start(folder, start)
    _started(told, attempt)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        mine = attempt.process.read_text()
        _moved(attempt, namespace="1", pid=bystander.pid)
        began = time.monotonic()
        attempt.wait(0.2)
        assert time.monotonic() - began >= 0.2
        assert "no signal reaches it: it runs in another container" in attempt.ask_to_stop()
        assert bystander.poll() is None
        attempt.process.write_text(mine)
        assert "sent SIGTERM to process" in attempt.ask_to_stop(), "nothing was sent before"
        bystander.kill()
    _ended(attempt)


CODED = "hunter2%2Fhunter2"
STATES = (
    f"postgresql+psycopg://ann:{CODED}@db/state",
    f"postgresql://db/state?user=ann&password={CODED}&sslmode=require",
    f"mysql+pymysql://:{CODED}@db:3306/state",
)


@pytest.mark.parametrize("state", STATES)
def test_the_password_of_the_state_is_only_in_the_environment(
    folder: Path, start: Start, told: Told, state: str
) -> None:
    told.do("stop-fails")
    attempt, _ = find_or_start(
        folder, replace(start, state=state, words=restart(Selection(cluster="prod", state=state)))
    )
    _started(told, attempt)
    assert told.starts[0]["state"] == state
    pid = told.starts[0]["pid"]
    attempt.ask_to_stop()
    assert [json.loads(line)["state"] for line in told.said("stops")] == [state], "from any process"
    read = [Path(f"/proc/{pid}/cmdline"), told.folder / "words"]
    told.do(
        "words", json.dumps([told.starts[0]["words"], *(json.loads(i)["words"] for i in told.said("stops"))])
    )
    for file in (*read, *(each for each in attempt.folder.iterdir() if each != attempt.state)):
        assert b"hunter2" not in file.read_bytes(), file
    assert attempt.state.stat().st_mode & 0o777 == 0o600
    with attempt.errors.open("a") as errors:
        errors.write(f"could not connect to {state} as password='hunter2/hunter2'\n")
    _ended(attempt)
    with attempt.output.open("a") as output:
        output.write(json.dumps({"event": "summary", "message": f"could not connect to {state}"}) + "\n")
    assert "hunter2" not in str(attempt.ending()), "nor in the result of the task"
    attempt.mark(Mark.REPORTED)
    assert not attempt.state.exists()


@pytest.mark.parametrize("where", ["program", "words"])
def test_a_password_in_the_command_line_is_refused(start: Start, where: str) -> None:
    for text in (f"--state={STATES[0]}", STATES[1], f"ORCHESTRATE_STATE={STATES[2]}"):
        with pytest.raises(ValueError, match="give it as `state`") as caught:
            replace(start, **{where: ["env", text]})
        assert "hunter2" not in str(caught.value)


def test_a_run_is_stopped_by_the_programs_own_command(folder: Path, start: Start, told: Told) -> None:
    attempt, _ = find_or_start(folder, replace(start, state="sqlite:////s.db"))
    _started(told, attempt)
    assert attempt.ask_to_stop() == f"asked run {RUN} to stand down"
    _ended(attempt)
    assert [json.loads(line)["words"] for line in told.said("stops")] == [
        ["stop", RUN, "--output=json", "--state=sqlite:////s.db"]
    ]
    assert told.said("signals") == []
    summary = attempt.ending().summary
    assert summary is not None
    assert summary["exit_code"] == 5


@pytest.mark.parametrize("because", ["no-run-yet", "stop-fails"])
def test_a_run_that_cannot_be_asked_gets_a_single_signal(
    folder: Path, start: Start, told: Told, because: str
) -> None:
    told.do(because)
    told.do("stand-down-seconds", "2")
    attempt, _ = find_or_start(folder, start)
    _started(told)
    if because == "stop-fails":
        _started(told, attempt)
    assert "sent SIGTERM" in attempt.ask_to_stop()
    _await(lambda: bool(told.said("signals")))
    assert "it was sent SIGTERM before" in attempt.ask_to_stop()
    _ended(attempt)
    assert told.said("signals") == ["SIGTERM"], "a second signal leaves settings not put back"


def test_lines_are_read_whole_and_once(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    assert attempt.new_lines(0) == ([], 0)
    attempt.output.write_bytes(b"one\ntw")
    assert attempt.new_lines(0) == (["one"], 4)
    attempt.output.write_bytes(b"one\ntwo\n")
    assert attempt.new_lines(4) == (["two"], 8)


def test_each_task_instance_has_its_own_folder_with_any_name() -> None:
    instances = [("a", "b", "run"), ("a", "b", "run2"), ("a", "c", "run"), ("a.b", "", "run")]
    names = {token(*one) for one in (*instances, ("a", "b", "run", 0), ("../..", "/etc", "x"))}
    assert len(names) == 6
    assert all("/" not in name and not name.startswith(".") for name in names)


def test_all_but_the_tasks_needs_nothing_but_python() -> None:
    # Airflow pins its own versions of much that the program uses: the two must be able to live apart.
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import orchestrator.airflow.attempts, orchestrator.airflow.launch"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
