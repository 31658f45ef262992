"""`nodectl` on a small process instead of a server: what it starts, whom it signals, whom it leaves alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import leftovers, nodectl

SERVER = textwrap.dedent(
    """
    import os, signal, socket, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else lambda *_: os._exit(143))
    sys.stdout.write(sys.stdin.read())
    sys.stdout.flush()
    if "dies" in sys.argv:
        sys.exit("no room on the device")
    listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    while True:
        signal.pause()
    """
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "lab"
    folder.mkdir()
    shutil.copyfile(nodectl.__file__, folder / "nodectl.py")
    (folder / "nodectl").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {folder}/nodectl.py "$@"\n')
    shutil.copyfile(Path(nodectl.__file__).with_name("nodestatus.sh"), folder / "nodestatus")
    for command in ("nodectl", "nodestatus"):
        (folder / command).chmod(0o755)
    yield folder
    for node in folder.glob("*/launch.json"):
        nodectl.send_and_wait(node.parent, signal.SIGKILL, 10)


def make_node(lab: Path, name: str, *how: str) -> Path:
    node = lab / name
    node.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (node / "server.py").write_text(SERVER)
    launch = {
        "command": [sys.executable, str(node / "server.py"), str(node), str(port), *how],
        "directory": "/",
        "environment": {},
        "stdin": base64.b64encode(b"what it is told\n").decode(),
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "http_host": "127.0.0.1",
        "http_port": port,
    }
    (node / "launch.json").write_text(json.dumps(launch))
    return node


def run(lab: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(lab / "nodectl.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  (our own)


def status(lab: Path, name: str) -> tuple[int, str, str]:
    """What both ways of asking say: they must say the same."""
    slow = run(lab, "status", name)
    quick = subprocess.run(  # noqa: S603  (our own)
        [str(lab / "nodestatus"), name], capture_output=True, text=True, timeout=60, check=False
    )
    said = (slow.returncode, slow.stdout, slow.stderr)
    assert (quick.returncode, quick.stdout, quick.stderr) == said
    return said


def test_start_status_stop(lab: Path) -> None:
    node = make_node(lab, "es1")
    assert status(lab, "es1") == (nodectl.NOT_RUNNING, "es1 is not running\n", "")
    assert run(lab, "start", "es1").returncode == 0
    pid = nodectl.running_pid(node)
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0), "a session of its own: it outlives ours"
    assert (node / "console.log").read_text() == "what it is told\n"
    assert status(lab, "es1") == (0, f"es1 runs as {pid}\n", "")
    assert run(lab, "start", "es1").stdout == "es1 is already running\n"
    assert nodectl.running_pid(node) == pid
    assert run(lab, "stop", "es1").returncode == 0
    assert nodectl.start_time(pid) is None
    assert status(lab, "es1")[0] == nodectl.NOT_RUNNING
    assert run(lab, "stop", "es1").returncode == 0


def test_a_death_during_the_start_is_told_with_its_last_words(lab: Path) -> None:
    make_node(lab, "es1", "dies")
    outcome = run(lab, "start", "es1")
    assert outcome.returncode == 1
    assert "no room on the device" in outcome.stderr


def test_a_program_that_is_not_there_is_named(lab: Path) -> None:
    node = make_node(lab, "es1")
    launch = json.loads((node / "launch.json").read_text())
    launch["command"][0] = "/no/such/java"
    (node / "launch.json").write_text(json.dumps(launch))
    outcome = run(lab, "start", "es1")
    assert outcome.returncode == 1
    assert "cannot be started" in outcome.stderr
    assert "No such file" in outcome.stderr


def test_a_node_that_does_not_listen_to_sigterm_is_not_killed(lab: Path) -> None:
    node = make_node(lab, "es1", "deaf")
    assert run(lab, "start", "es1").returncode == 0
    assert nodectl.stop(node, 0.2) == 1
    assert nodectl.running_pid(node) is not None


def test_a_process_that_is_not_provably_ours_is_never_signalled(lab: Path) -> None:
    node = make_node(lab, "es1")
    assert run(lab, "start", "es1").returncode == 0
    pid = nodectl.running_pid(node)
    assert pid is not None
    true = json.loads((node / "node.pid").read_text())
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        for forgery in (
            {"start_time": true["start_time"] - 1},
            {"boot_id": "another boot"},
            {"pid": stranger.pid, "start_time": nodectl.start_time(stranger.pid)},
        ):
            (node / "node.pid").write_text(json.dumps(true | forgery))
            assert status(lab, "es1")[0] == nodectl.NOT_RUNNING
            assert nodectl.send_and_wait(node, signal.SIGKILL, 0.2)
            assert stranger.poll() is None
            assert nodectl.start_time(pid) is not None
        stranger.kill()
    (node / "node.pid").write_text(json.dumps(true))


def test_usage(lab: Path) -> None:
    make_node(lab, "es1")
    assert run(lab).returncode == 2
    assert run(lab, "restart", "es1").returncode == 2
    assert status(lab, "es9")[0] == status(lab, "../es1")[0] == 2
    unknown = run(lab, "stop", "../es1")
    assert unknown.returncode == 2
    assert "there are: es1" in unknown.stderr


def test_a_sweep_takes_what_a_dead_owner_left_and_nothing_else(lab: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    node = make_node(lab, "es1")
    assert run(lab, "start", "es1").returncode == 0
    leftovers.register(cache, lab)
    assert leftovers.sweep(cache) == ()
    assert nodectl.running_pid(node) is not None
    (entry,) = (cache / "labs").iterdir()
    record = json.loads(entry.read_text())
    record["owner"]["start_time"] -= 1  # the id was used again by another process
    entry.write_text(json.dumps(record))
    assert leftovers.sweep(cache) == (lab,)
    assert not lab.exists()
    assert list((cache / "labs").iterdir()) == []
