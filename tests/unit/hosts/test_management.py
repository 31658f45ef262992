"""Which tools count as at work on a host: by recorded lines, and by real processes of this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.hosts import management
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.script import Section, read_sections, sections, untranslated
from tests.fakes.cases import cases
from tests.tools import by_shell, needs

PRETENDED = "not-"
CAT = needs("cat")


def test_who_is_at_work(subtests: pytest.Subtests) -> None:
    for line, (said,) in cases("hosts/at_work.txt"):
        with subtests.test(line=line):
            expected = () if said == "nothing" else (said,)
            assert management.read_at_work(Section(exit=0, text=line)) == expected


def test_a_process_is_named_once() -> None:
    lines = "812 dpkg dpkg -i x.deb\n812 lock /var/lib/dpkg/lock\n813 lock /var/lib/rpm/.rpm.lock\n"
    said = ("dpkg (process 812)", "process 813 has locked /var/lib/rpm/.rpm.lock")
    assert management.read_at_work(Section(exit=0, text=lines)) == said
    assert management.read_at_work(None) == ()


def _read(script: str = management.SCRIPT, *, by: str = "sh") -> tuple[str, ...]:
    line = by_shell(by, untranslated(sections([("at-work", script)])))
    outcome = LocalConnection({}).run(line, timeout=60.0)
    assert isinstance(outcome, CommandResult)
    return management.read_at_work(read_sections(outcome.stdout.replace(PRETENDED, ""))["at-work"])


@pytest.mark.parametrize("by", ["sh", "busybox"])
@pytest.mark.parametrize(("name", "words"), [("puppet", ["agent", "-t"]), ("chef-client", [])])
def test_a_real_process_is_found_until_it_ends(tmp_path: Path, name: str, words: list[str], by: str) -> None:
    script = management.SCRIPT.replace(f"{name}|", f"{PRETENDED}{name}|")
    # By the line of its status, here the one that every process has: this one counts as a container's.
    elsewhere = script.replace("^NSpid:[[:space:]]+[0-9]+[[:space:]]+[0-9]", "^NSpid:[[:space:]]+[0-9]+")
    assert len({script, elsewhere, management.SCRIPT}) == 3
    with _pretended(tmp_path / f"{PRETENDED}{name}", words) as process:
        said = f"{name} (process {process.pid})"
        limit = time.monotonic() + 30
        while said not in _read(script, by=by):
            assert time.monotonic() < limit, _read(script, by=by)
        assert said not in _read(elsewhere, by=by), "a process of a container is passed over"
    assert said not in _read(script, by=by)


@pytest.mark.xdist_group("at-work")  # each would find the processes of the other
@pytest.mark.parametrize("by", ["sh", "busybox"])
def test_work_that_is_begun_elsewhere_is_found(subtests: pytest.Subtests, by: str) -> None:
    """By real processes with such command lines; not by the reader's own."""
    assert not [said for said in _read(by=by) if "Salt" in said]
    for said, line in {
        "Salt": "/usr/bin/salt-minion ProcessPayload(jid=2026)",
        "Ansible": "/bin/sh -c echo BECOME-SUCCESS-qkzdjx ; /usr/bin/python3",
    }.items():
        process = subprocess.Popen([line], executable=CAT, stdin=subprocess.PIPE)  # noqa: S603  (its own)
        with subtests.test(line), process:
            assert f"{said} (process {process.pid})" in _read(by=by)
            assert process.stdin is not None
            process.stdin.close()


@contextlib.contextmanager
def _pretended(program: Path, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process under a name that no other reader of this machine looks for."""
    program.write_text("#!/bin/sh\nread -r line\n")
    program.chmod(0o755)
    with subprocess.Popen([program, *words], stdin=subprocess.PIPE) as process:  # noqa: S603  (its own)
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


@pytest.mark.parametrize("by", ["sh", "busybox"])
def test_a_real_lock_is_found_until_it_is_released(tmp_path: Path, by: str) -> None:
    lock = tmp_path / "lock-frontend"
    script = management.SCRIPT.replace("/var/lib/dpkg/lock-frontend", str(lock))
    assert script != management.SCRIPT
    said = f"process {os.getpid()} has locked {lock}"
    with lock.open("w") as file:
        assert said not in _read(script, by=by)
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert said in _read(script, by=by)
        fcntl.lockf(file, fcntl.LOCK_UN)
        assert said not in _read(script, by=by)


@pytest.mark.parametrize("by", ["sh", "busybox"])
def test_a_lock_on_another_file_system_is_of_another_file(tmp_path: Path, by: str) -> None:
    """Files of two file systems may have the same number, such as one in the image of a container."""
    lock = tmp_path / "lock-frontend"
    script = management.SCRIPT.replace("/var/lib/dpkg/lock-frontend", str(lock))
    said = f"process {os.getpid()} has locked {lock}"
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        inode, device = os.fstat(file.fileno()).st_ino, os.fstat(file.fileno()).st_dev
        mount = next(str(p) for p in (lock, *lock.parents) if p.is_mount())
        for at, seen in {
            f"{inode} {device} {mount}": True,
            f"{inode} {device} m": True,
            f"{inode} 77 {mount}": True,
            f"{inode} 77 /proc": False,
            f"{inode + 1} {device} {mount}": False,
        }.items():
            told = script.replace("""$(stat -c '%i %d %m' "$file" 2>/dev/null)""", f"'{at}'")
            assert told != script
            assert (said in _read(told, by=by)) == seen, at
