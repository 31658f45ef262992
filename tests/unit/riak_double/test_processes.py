"""Real processes of the double: what can go wrong, HTTP, older versions, and that all of it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.doubles.riak_double.daemon import Node
from tests.doubles.riak_double.settings import read_own, read_riaks
from tests.riak_nodes import LAUNCHER, PYTHON, RiakCommand, RiakNode, riak_nodes, wait_until
from tests.riak_transcripts import STATS, wrapper_recordings

PACE = 0.02
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def _two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RiakNode, ...]]:
    with riak_nodes(tmp_path_factory.mktemp("two"), 2, pace=PACE) as nodes:
        yield nodes


@pytest.fixture
def two(_two: tuple[RiakNode, ...]) -> tuple[RiakNode, ...]:
    for node in _two:
        node.faults()
        if not node.alive:
            assert node.riak("daemon").returncode == 0
    return _two


def test_stats_has_the_recorded_fields_and_the_state_of_the_node(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
    # It looks for hints in all partitions; those of the other node's wait until they were seen.
    dev1.faults(vnodes="none", handoff="stalls")
    wait_until(lambda: dev1.stats()["riak_kv_vnodes_running"] == 0, "vnodes go on running")
    dev1.faults(handoff="stalls")
    wait_until(lambda: dev1.stats()["riak_kv_vnodes_running"] == 16, "the vnodes do not run")
    found, recorded = dev1.stats(), json.loads(STATS.read_text())
    assert list(found) == list(recorded)
    changed = {key for key in found if found[key] != recorded[key]}
    assert changed <= {
        "connected_nodes",
        "riak_kv_vnodes_running",
        "riak_pipe_vnodes_running",
        "ring_members",
        "ring_ownership",
        "sys_logical_processors",
    }
    assert found["connected_nodes"] == [dev2.name]
    assert found["ring_ownership"] == f"[{{'{dev2.name}',8}},{{'{dev1.name}',8}}]"
    assert dev2.riak("stop").returncode == 0
    assert dev1.stats()["connected_nodes"] == []
    assert dev1.stats()["ring_members"] == [dev1.name, dev2.name]


def test_ping_answers_200_while_no_vnode_runs(two: tuple[RiakNode, ...]) -> None:
    dev1, _ = two
    dev1.faults(vnodes="none")
    wait_until(lambda: dev1.stats()["riak_kv_vnodes_running"] == 0, "vnodes go on running")
    assert dev1.get("/ping") == (200, "OK")
    assert dev1.riak("ping").stdout == "pong\n"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"stop": "hangs"}, ("stop",)),
        ({"wait_for_service": "never"}, ("admin", "wait-for-service", "riak_kv")),
    ],
)
def test_a_command_that_never_ends(
    two: tuple[RiakNode, ...], fault: dict[str, str], words: tuple[str, ...]
) -> None:
    dev1, _ = two
    dev1.faults(**fault)
    assert dev1.riak(*words, seconds=1).returncode == 124
    assert dev1.alive


@pytest.mark.parametrize("word", ["start", "daemon"])
def test_a_start_that_loops_for_ever(two: tuple[RiakNode, ...], word: str) -> None:
    dev1, _ = two
    assert dev1.riak("stop").returncode == 0
    dev1.faults(**{word: "loops-down"})
    assert dev1.riak(word, seconds=1).returncode == 124
    assert not dev1.alive
    dev1.faults(**{word: "loops"})
    with subprocess.Popen([str(dev1.command), word], start_new_session=True) as looping:  # noqa: S603  (the double)
        try:
            wait_until(lambda: dev1.alive, "it starts no node")
            with pytest.raises(subprocess.TimeoutExpired):
                looping.wait(0.5)
        finally:
            os.killpg(looping.pid, signal.SIGKILL)
    assert dev1.alive


def test_the_number_of_its_process_is_never_read_in_part(two: tuple[RiakNode, ...]) -> None:
    dev1, _ = two
    before = dev1.pid
    with (dev1.folder / "state" / "pid").open() as file:
        assert dev1.riak("stop").returncode == 0
        assert dev1.riak("daemon").returncode == 0
        assert int(file.read()) == before != dev1.pid


def test_a_node_notes_its_process_itself(two: tuple[RiakNode, ...]) -> None:
    dev1, _ = two
    assert dev1.riak("stop").returncode == 0
    (dev1.folder / "state" / "pid").unlink()
    # As if the command that started it had been killed before it had noted the number.
    node = LAUNCHER.parent / "riak-double-node"
    environment = {**os.environ, "RIAK_DOUBLE_HOME": str(dev1.folder)}
    with subprocess.Popen([PYTHON, "-E", "-S", node], env=environment) as process:  # noqa: S603  (the double)
        try:
            wait_until(lambda: dev1.pid == process.pid, "it does not note its number")
        finally:
            process.kill()


def test_a_stop_that_is_refused_and_a_node_that_dies_after_its_start(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
    dev1.faults(stop="refused")
    refused = dev1.riak("stop")
    assert (refused.returncode, refused.stdout, dev1.alive) == (1, "", True)
    dev1.faults(dies="20")
    assert dev1.riak("stop").returncode == 0
    assert dev1.riak("daemon").returncode == 0
    wait_until(lambda: not dev1.alive, "it does not die")
    assert dev1.riak("ping").returncode == 1
    assert "down!" in dev2.riak("admin", "cluster", "status").stdout


def test_the_packaged_command_exits_0_for_everything_but_what_only_a_double_says(tmp_path: Path) -> None:
    """Recorded on a real 3.2.1, where a word of `riak start` was not kept."""
    with riak_nodes(tmp_path, 2, pace=PACE, command=RiakCommand.PACKAGED) as (node, _):
        assert node.riak("daemon").returncode == 0
        assert node.riak("stop").returncode == 0
        up = {recording.command: recording.output for recording in wrapper_recordings()[2:3]}
        down = {recording.command: recording.output for recording in wrapper_recordings()[:2]}
        for command, text in down.items():
            said = node.riak(command.split()[1])
            assert (said.returncode, said.stdout) == (0, text.replace("dev2@127.0.0.2", node.name))
        assert node.riak("admin", "transfers").returncode == 0
        assert node.riak("config").returncode == 0
        started = node.riak("start")
        begin, end = wrapper_recordings()[3].output.strip().split(" … ")
        words = [line for line in started.stdout.splitlines() if not line.startswith("!!!!")]
        assert (started.returncode, len(words)) == (0, 1)
        assert words[0].startswith(begin)
        assert words[0].endswith(end)
        assert [(node.riak("ping").returncode, node.riak("ping").stdout)] == [(0, up["riak ping"])]
        node.faults(stop="refused")
        refused = node.riak("stop")
        assert (refused.returncode, refused.stdout, node.alive) == (0, "", True)
        assert node.riak("start").stdout == "Node is already running!\n"
        assert node.riak("admin", "nobody-recorded-this").returncode == 99
        assert node.double("nonsense").returncode == 2


def test_a_late_ping_output_cut_short_and_terms_wrapped_elsewhere(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
    dev1.faults(transfers="12")
    assert len(dev1.riak("admin", "transfers").stdout) == 12
    dev1.faults(width="50")
    assert dev1.riak("admin", "ringready").stdout.count("\n") == 3
    dev1.faults(ping="1e6")
    assert dev1.riak("stop").returncode == 0
    assert dev1.riak("daemon").returncode == 0
    assert dev1.alive
    assert dev1.riak("ping").returncode == 1
    assert f"Node '{dev1.name}' could not be contacted" in dev2.riak("admin", "transfers").stdout
    dev1.end()
    dev1.faults(ping="50")
    assert dev1.riak("daemon").returncode == 0
    wait_until(lambda: dev1.riak("ping").returncode == 0, "it never answers")


def test_a_peer_that_hangs_counts_as_down_until_it_goes_on(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
    os.kill(dev2.pid, signal.SIGSTOP)
    try:
        assert f"Node '{dev2.name}' could not be contacted" in dev1.riak("admin", "transfers").stdout
        assert dev1.stats()["connected_nodes"] == []
    finally:
        os.kill(dev2.pid, signal.SIGCONT)
    wait_until(lambda: dev1.stats()["connected_nodes"] == [dev2.name], "it stays away")


@pytest.mark.parametrize("answer", [b"", b"0 1 0", b"0 1 0 5\npon", b"0 1 0 5\npong\n"])
def test_an_answer_that_is_cut_is_none(tmp_path: Path, answer: bytes) -> None:
    with riak_nodes(tmp_path, 1, pace=PACE) as (node,), socket.socket() as listener:
        port = re.search(r"(?m)^port = (\d+)$", (node.folder / "double.conf").read_text())
        assert port is not None
        listener.bind(("127.0.0.1", int(port[1])))
        listener.listen()

        def say() -> None:
            asked, _ = listener.accept()
            with asked:
                asked.recv(1000)
                asked.sendall(answer)

        speaker = threading.Thread(target=say, daemon=True)
        speaker.start()
        done = node.riak("ping")
        speaker.join(10)
        whole = answer.endswith(b"\n")
        assert (done.returncode, done.stdout == "pong\n") == ((0, True) if whole else (1, False))
        assert whole or "not responding" in done.stdout


def test_what_nobody_recorded_and_what_is_no_fault_is_refused_aloud(two: tuple[RiakNode, ...]) -> None:
    dev1, _ = two
    odd = dev1.riak("admin", "cluster", "force-replace")
    assert (odd.returncode, odd.stdout) == (99, "")
    assert "nobody has recorded" in odd.stderr
    assert dev1.double("faults", "nonsense=1").returncode == 99
    assert dev1.riak("ping").returncode == 0
    (dev1.folder / "faults").write_text("nonsense = 1\n")
    misread = dev1.riak("ping")
    assert (misread.returncode, misread.stdout) == (99, "")
    assert "there are start, daemon" in misread.stderr
    dev1.faults()
    assert dev1.riak("ping").returncode == 0


def test_a_limit_set_across_the_cluster_reaches_the_peer(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
    assert dev1.riak("admin", "transfer-limit", "6").returncode == 0
    assert "|      6       |" in dev2.riak("admin", "show", "transfer_limit").stdout
    assert dev1.riak("admin", "transfer-limit", dev2.name, "5").stdout == (
        f"Set transfer limit for '{dev2.name}' to 5\nok\n"
    )
    assert "|      5       |" in dev2.riak("admin", "show", "transfer_limit").stdout


@pytest.mark.parametrize("version", ["1.4.12", "2.9.10", "3.0.16"])
def test_older_versions_differ_as_the_field_notes_say(tmp_path: Path, version: str) -> None:
    admin = version.startswith("3.")
    with riak_nodes(tmp_path, 2, pace=PACE, version=version) as (dev1, dev2):
        ask = (lambda *words: dev1.riak("admin", *words)) if admin else dev1.riak_admin
        gone = ask("ringready")
        assert (gone.returncode, gone.stdout, gone.stderr) == (1, "", "Node did not respond to ping!\n")
        assert dev1.riak("daemon").returncode == 0
        down = ask("ringready")
        assert down.returncode == 1
        assert down.stdout == f"FALSE ['{dev2.name}'] down.  All nodes need to be up to check.\n"
        word, other = ("pid", "getpid") if admin else ("getpid", "pid")
        assert dev1.riak(word).stdout == f"{dev1.pid}\n"
        assert (dev1.riak(other).returncode, dev1.riak(other).stdout) == (99, "")
        word, other = ("versions", "version") if admin else ("version", "versions")
        assert version in dev1.riak(word).stdout
        assert dev1.riak(other).returncode == 99
        wait_until(lambda: ask("services").stdout == "[riak_kv,riak_pipe,riak_repl]\n", "no services")
        quoted = f"--      '{dev1.name}'\n" in ask("member-status").stdout
        assert quoted is not admin
        assert ask("transfers").stdout.endswith(f"Node '{dev2.name}' could not be contacted\n")
        other = dev1.riak_admin("ringready") if admin else dev1.riak("admin", "ringready")
        assert other.returncode == 99


def test_three_join_and_become_one_cluster(tmp_path: Path) -> None:
    with riak_nodes(tmp_path, 3, pace=PACE, formed=False) as nodes:
        dev1, *others = nodes
        for node in nodes:
            assert node.riak("daemon").returncode == 0
        assert dev1.riak("admin", "cluster", "plan").stdout == "There are no staged changes\nok\n"
        for node in others:
            assert node.riak("admin", "cluster", "join", dev1.name).returncode == 0
        assert dev1.riak("admin", "cluster", "commit").returncode == 0
        wait_until(
            lambda: (
                "No pending changes." in others[1].riak("admin", "ring-status").stdout
                and "TRUE" in others[1].riak("admin", "ringready").stdout
                and len(others[1].stats()["ring_members"]) == 3
            ),
            "they do not become one",
        )
        assert "37.5" in others[0].riak("admin", "member-status").stdout


def test_nodes_end_with_the_with_and_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    with riak_nodes(tmp_path / "first", 2, pace=PACE) as nodes:
        for node in nodes:
            assert node.riak("daemon").returncode == 0
        assert all(node.alive for node in nodes)
    assert not any(node.alive for node in nodes)
    (tmp_path / "second").mkdir()
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from tests.riak_nodes import riak_nodes
        with riak_nodes(Path({str(tmp_path / "second")!r}), 1, pace={PACE}) as (node,):
            assert node.riak("daemon").returncode == 0
            print(node.pid, flush=True)
            time.sleep(600)
    """)
    with subprocess.Popen(  # noqa: S603  (this Python)
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        node = Path(f"/proc/{int(parent.stdout.readline())}/cmdline")
        assert b"riak-double-node" in node.read_bytes()
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not node.exists(), "it outlives the process that made it")


def test_a_clock_and_commands_that_write_at_once_do_not_end_the_node(tmp_path: Path) -> None:
    """What outlives a node is written by whichever thread changed it."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "riak.conf").write_text("nodename = dev1@127.0.0.1\n")
    (tmp_path / "double.conf").write_text(f"etc = {tmp_path / 'etc'}\nstate = {tmp_path}\n")
    own = read_own({"RIAK_DOUBLE_HOME": str(tmp_path)})
    node = Node(own, read_riaks(own))
    with ThreadPoolExecutor(max_workers=8) as pool:
        for written in [pool.submit(node.keep) for _ in range(400)]:
            written.result()
    assert json.loads((tmp_path / "ring.json").read_text())["ring"]["members"] == {"dev1@127.0.0.1": "valid"}
