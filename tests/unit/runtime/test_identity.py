from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.runtime.identity import (
    current_process,
    host_name,
    new_run_id,
    operator_name,
    provably_alive,
    provably_gone,
    suspended_pid,
)


def child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def test_a_process_that_ended_is_gone_as_a_zombie_already() -> None:
    process = child()
    identity = str(replace(current_process(), pid=process.pid, started=started(process.pid)))
    assert provably_alive(identity)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}").exists(), "it is a zombie that nobody has waited for"
    assert provably_gone(identity)
    assert not provably_alive(identity)
    process.communicate()
    assert provably_gone(identity)


def test_a_suspended_process_is_alive_and_named() -> None:
    process = child()
    identity = str(replace(current_process(), pid=process.pid, started=started(process.pid)))
    assert suspended_pid(identity) is None
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert suspended_pid(identity) == process.pid
    assert provably_alive(identity)
    assert suspended_pid(str(replace(current_process(), pid=process.pid, started=1))) is None
    process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
    assert suspended_pid(identity) is None
    process.communicate()
    assert suspended_pid(identity) is None


@pytest.mark.parametrize("changed", [{"boot": "another"}, {"namespace": "1"}])
def test_nothing_is_proven_of_another_boot_or_container(changed: dict[str, str]) -> None:
    """Containers share the boot id of their machine: a pid of another one says nothing here."""
    elsewhere = str(replace(current_process(), pid=2**22 + 1, **changed))
    assert not provably_gone(elsewhere)
    assert not provably_alive(elsewhere)


def test_nothing_is_proven_of_what_is_no_identity(subtests: pytest.Subtests) -> None:
    here = current_process()
    mine = f"{here.boot}/{here.namespace}"
    for text in [
        "",
        "x",
        "a/b/c/d",
        "a/b/-1/2",
        "///",
        "//1/2",
        f"{mine}/0/1",
        f"{mine}/{10**30}/1",
        f"{mine}/²/1",
    ]:
        with subtests.test(text=text):
            assert not provably_gone(text)
            assert not provably_alive(text)


def _refused(_pid: int, _signal: int) -> None:
    raise PermissionError


def test_a_hidden_process_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `hidepid` a process of somebody else is not in /proc, and runs."""
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[7]")
    assert not provably_gone(f"b/7/{os.getpid()}/5", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", _refused)
        assert not provably_gone(f"b/7/{os.getpid()}/5", tmp_path), "what may not be signalled exists"
    assert not provably_alive(f"b/7/{os.getpid()}/5", tmp_path)
    assert provably_gone(f"b/7/{2**22 + 1}/5", tmp_path)


def test_a_name_with_brackets_and_blanks_does_not_mislead(tmp_path: Path) -> None:
    link = tmp_path / "a) b ("
    link.symlink_to(sys.executable)
    process = subprocess.Popen([link, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)  # noqa: S603  (this interpreter)
    identity = str(replace(current_process(), pid=process.pid, started=started(process.pid)))
    assert provably_alive(identity)
    process.communicate()


def test_run_ids_sort_by_time_and_are_told_apart() -> None:
    chance = random.Random(7)  # noqa: S311  (a seed: the example is the same each time)
    first = new_run_id(1_795_234_380.0, chance)
    assert first.startswith("20261121-0413-")
    assert len(first) == 18
    second = new_run_id(1_795_234_380.0, chance)
    assert first != second
    assert max(first, second) < new_run_id(1_795_234_440.0, chance)
    assert not set("01ilo") & set(first.rsplit("-", 1)[1])


def test_the_operator_is_who_called_sudo() -> None:
    account = operator_name({})
    assert account
    assert operator_name({"SUDO_USER": "anna"}) == f"anna (as {account})"
    assert operator_name({"SUDO_USER": account}) == account
    assert operator_name({"LOGNAME": "somebody"}) == account
    assert host_name()
