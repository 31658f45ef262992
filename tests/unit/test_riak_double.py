"""The double of Riak itself: what the program's tests take for a node, against recordings of a real one.

- The recorded texts: equal bytes and exit codes, from the state that was recorded. What varies between two
  recordings of a state (names, counts, moments, the process number) is part of it: `riak_staging.py` sets it.
  Left out: what neither the program nor a test asks (`NOT_ASKED`), and a ring that changes.
- The recorded program, played again on processes. The machine's own are left out: the host's name in a node
  that was never started, and the limit of open files. A recording that was cut off (exit code 124) is
  compared as far as it goes.
- States: nodes on one clock go through them in the recording's order and in about its time. Where numbers
  vary from reading to reading, every digit is `#`.
- What was not recorded is held to the published source, and to what the double says elsewhere: the program's
  parsers are written from the same source, so they alone prove little.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from orchestrator.riak.output import CommandOutput, RiakDialect
from orchestrator.riak.parse_node import parse_stats
from orchestrator.riak.parse_ring import parse_cluster_status, parse_partitions, ring_of
from tests.doubles.riak_double.commands import answer
from tests.doubles.riak_double.daemon import Node
from tests.doubles.riak_double.machine import INACTIVITY_SECONDS
from tests.doubles.riak_double.report import View
from tests.doubles.riak_double.ring import (
    RECORDED_THREE,
    SPACING,
    claim,
    fallbacks,
    formed,
    preference_list,
)
from tests.doubles.riak_double.settings import read_own, read_riaks
from tests.doubles.riak_double.stats import stats
from tests.fakes.riak_meanings import DIALECT
from tests.fakes.riak_staging import staged
from tests.fakes.riak_world import World
from tests.riak_nodes import LAUNCHER, PYTHON, RiakCommand, RiakNode, riak_nodes, wait_until
from tests.riak_transcripts import (
    COMMANDS,
    STATS,
    TIMELINE,
    Recording,
    recordings,
    wrapper_recordings,
)

PACE = 0.02


# Every recorded text, from a state that was set -------------------------------------------------------------

RECORDED = [*recordings(COMMANDS), *recordings(TIMELINE)]
OF_THE_PROGRAM = re.compile(r"riak (daemon|start|stop|versions)|riak admin wait-for-service .*")
"""What the program says by itself or loops on: `test_recorded_program.py` has these."""
DOWN = {"stopped", "stoppedgen", "killed"}
NOT_ASKED = re.compile(
    r"riak (eval|rpc erlang|rpc riak_core_node_watcher services|restart|status|chkconfig|config"
    r"|admin (ring-status|member-status|handoff|vnode-status|aae-status|ensemble-status|describe|services"
    r"|status|set|down"
    r"|show (handoff|riak_core|nosuch)|cluster (plan|partition-count|join|commit)"
    r"|transfer-limit (\d+|abc)$)).*"
)
"""What neither the program nor a test asks a node: the double does not have it."""
RING_CHANGES = re.compile(r"join|joining\d|commit|cfg|sched")
"""States that the double does not have: its ring is as it was formed, and no setting changes."""
MARKED_DOWN = next(each.line for each in RECORDED if each.command.startswith("riak admin down "))
"""From here on the state `misc` has a member that is marked as down, which the double does not have."""
OF_THE_DOUBLE = [
    each
    for each in RECORDED
    if not NOT_ASKED.fullmatch(each.command)
    and not RING_CHANGES.fullmatch(each.state)
    and (each.state != "misc" or each.line < MARKED_DOWN)
]
OF_A_RUNNING_NODE = [
    each for each in OF_THE_DOUBLE if each.state not in DOWN and not OF_THE_PROGRAM.fullmatch(each.command)
]


def printed(recording: Recording) -> tuple[str, int]:
    words = shlex.split(recording.command.removeprefix("riak ").replace("['", "[\\'").replace("']", "\\']"))
    return answer(words, staged(recording)).said.whole, 0


def test_a_running_node_answers_as_recorded(subtests: pytest.Subtests) -> None:
    for recording in OF_A_RUNNING_NODE:
        with subtests.test(recording.name):
            assert printed(recording) == (recording.text, recording.exit)


def test_the_recordings_are_all_there() -> None:
    assert (len(RECORDED), len(OF_A_RUNNING_NODE)) == (537, 387)


# What the recorded program says by itself, on processes -----------------------------------------------------

OTHERS = [each for each in OF_THE_DOUBLE if each.file == COMMANDS.name and each not in OF_A_RUNNING_NODE]


class Session:
    """Nodes that go through the recorder's states."""

    def __init__(self, nodes: tuple[RiakNode, ...]) -> None:
        self.nodes = {node.name.partition("@")[0]: node for node in nodes}
        self.said: dict[int, tuple[str, int | None]] = {}

    def play(self, *states: str) -> None:
        for recording in OTHERS:
            if recording.state in states:
                self._play(recording)

    def _play(self, recording: Recording) -> None:
        node = self.nodes[recording.node]
        words = recording.command.split()[1:]
        if recording.exit is None:
            self.said[recording.line] = (node.printing(recording.text.count("\n"), *words), None)
        else:
            done = node.riak(*words)
            assert done.stderr == ""
            self.said[recording.line] = (done.stdout, done.returncode)


def wait_for_service(asked: RiakNode, node: RiakNode) -> None:
    assert asked.riak("admin", "wait-for-service", "riak_kv", node.name).returncode == 0


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with riak_nodes(tmp_path_factory.mktemp("riak"), 3, pace=PACE) as nodes:
        played = Session(nodes)
        dev1, dev2, dev3 = nodes
        played.play("stopped")
        for node in (dev2, dev3):
            assert node.riak("daemon").returncode == 0
        played.play("start", "already", "single", "badnode", "stopping", "dev2down", "stoppedgen")
        for again in (("restarted", "stop2"), ("stopgen",)):
            assert dev2.riak("daemon").returncode == 0
            wait_for_service(dev1, dev2)
            played.play(*again)
        played.play("stopclaimant")
        dev3.end()
        played.play("killed")
        yield played


def expected(recording: Recording) -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = recording.text.replace("riak@vm", f"riak@{socket.gethostname()}")
    if "ulimit" in text:
        text = text.replace("20000", str(limit)) if limit < 65536 else ""
    return text


def test_the_program_says_what_was_recorded(subtests: pytest.Subtests, session: Session) -> None:
    for recording in OTHERS:
        with subtests.test(recording.name):
            text, code = session.said[recording.line]
            assert (text, code) == (expected(recording), recording.exit)


# Rings ------------------------------------------------------------------------------------------------------

SIZES = (16, 32, 64, 128)


def node_names(count: int) -> list[str]:
    return [f"riak{number:02}@10.0.0.{number}" for number in range(1, count + 1)]


def test_a_ring_is_spread_over_its_nodes(subtests: pytest.Subtests) -> None:
    """Any four partitions in a row have different owners, those over the end too."""
    for count, size in product((*range(3, 11), 16), SIZES):
        with subtests.test(count=count, size=size):
            ring = formed(node_names(count), size)
            for wanted, first in product(range(1, min(SPACING, count) + 1), range(size)):
                owners = [ring.owners[number] for number in preference_list(ring, first, wanted)]
                assert len(set(owners)) == wanted or count == 3, (first, owners)
            owned = [len(ring.owned(name)) for name in ring.members]
            assert sum(owned) == size
            assert max(owned) - min(owned) <= 1
            one, *others = ring.members
            assert set().union(*fallbacks(ring, frozenset(others)).values()) == ring.owned(one)
    three = node_names(3)
    assert claim(three, 16) == tuple(three[number] for number in RECORDED_THREE)
    assert RECORDED_THREE == (0, 1, 1, 2, 0, 1, 2, 2, 0, 1, 2, 0, 0, 1, 2, 0)


# States that it goes through by itself, on one clock --------------------------------------------------------

DEV1, DEV2, DEV3 = NAMES = tuple(f"dev{number}@127.0.0.1" for number in (1, 2, 3))
SETTLED_SECONDS = 400.0


def without_digits(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def shape(text: str) -> str:
    """Which lines `transfers` has, in order, without their numbers."""
    kinds = re.findall(r"currently down|does not have|waiting to|No transfers|transfer type|contacted", text)
    return " ".join(kinds)


def recorded_text(state: str, command: str) -> str:
    return next(each.text for each in recordings() if (each.state, each.command) == (state, command))


def settled(**faults: str) -> World:
    world = World(names=NAMES)
    world.run(SETTLED_SECONDS)
    for name in NAMES:
        world.set(name, **faults)
    return world


def test_a_settled_cluster_says_what_was_recorded() -> None:
    world = settled()
    assert world.ask(DEV1, "admin cluster status") == recorded_text("settled", "riak admin cluster status")
    assert world.ask(DEV1, "admin transfers") == recorded_text("pre", "riak admin transfers")


def test_a_node_down_is_what_was_recorded(subtests: pytest.Subtests) -> None:
    """The trap too: `No transfers active` stands there while the node is down."""
    for gone, asked, state, commands in [
        (
            DEV2,
            DEV1,
            "dev2down",
            ["ringready", "transfers", "cluster status"],
        ),
        (DEV1, DEV3, "claimantdown", ["cluster status", "ringready"]),
    ]:
        world = settled()
        world.stop(gone)
        world.run(5)
        for command in commands:
            with subtests.test(state, command=command):
                assert world.ask(asked, f"admin {command}") == recorded_text(state, f"riak admin {command}")


def test_with_writes_the_fallbacks_are_as_many_as_recorded() -> None:
    world = settled(writes="on")
    world.stop(DEV2)
    world.run(5)
    said = recorded_text("dev2down+writes", "riak admin transfers")
    assert world.ask(DEV1, "admin transfers") == said


def test_the_drain_after_a_restart_follows_the_time_line() -> None:
    world = settled(writes="on")
    world.stop(DEV2)
    world.run(30)
    world.start(DEV2)
    began, shapes, active, quiet, last_active = world.now, [], 0.0, 0.0, world.now
    first_waiting = 0.0
    while "No transfers" not in (text := world.ask(DEV1, "admin transfers")):
        assert world.now - began < 300, text
        if not shapes or shape(text) != shapes[-1]:
            shapes.append(shape(text))
        if "'dev2@127.0.0.1' waiting to handoff 11" in text and not first_waiting:
            first_waiting = world.now - began
        if "transfer type" in text:
            active = active or world.now - began
            last_active = world.now
        quiet = max(quiet, world.now - last_active)
        world.run(0.5)
    moments = [each for each in recordings(TIMELINE) if each.command == "riak admin transfers"]
    assert without_digits(text) == without_digits(moments[-1].text)
    assert [shape(each.text) for each in moments[:2]] == [shapes[0], shapes[2]]
    assert first_waiting == pytest.approx(10, abs=2)
    assert active == pytest.approx(77, abs=15)  # nothing moves before, though all waits
    assert quiet >= INACTIVITY_SECONDS
    assert 120 <= world.now - began <= 240  # two to four minutes; 174 s in the recording
    in_flight = next(each for each in moments if "transfer type" in each.text)
    assert in_flight.moment is not None
    assert in_flight.moment == pytest.approx(active, abs=15)


def test_after_a_restart_without_writes_fallbacks_drain() -> None:
    world = settled()
    world.stop(DEV2)
    world.run(30)
    world.start(DEV2)
    seen = []
    for _ in range(24):
        world.run(0.5)
        seen.append(world.ask(DEV1, "admin transfers"))
    just_up = [each.text for each in recordings() if re.fullmatch(r"justup\d", each.state)]
    assert [text for text in just_up if text not in seen] == []
    assert world.machines[DEV2].vnodes == set(range(16))


def test_service_is_up_long_before_the_vnodes_run() -> None:
    world = settled()
    world.stop(DEV2)
    world.start(DEV2)
    world.run(1.5)
    view = world.view(DEV1)
    assert view.others[DEV2].services
    assert view.others[DEV2].vnodes == frozenset()
    assert world.ask(DEV1, "admin ringready").startswith("TRUE")


def test_a_raised_transfer_limit_lasts_until_a_restart() -> None:
    took = {}
    for limit in (1, 8):
        world = settled(writes="on")
        world.stop(DEV2)
        world.run(5)
        world.start(DEV2)
        for name in NAMES:
            world.ask(DEV1, f"admin transfer-limit {name} {limit}")
        most = 0
        began = world.now
        while "No transfers" not in world.ask(DEV1, "admin transfers"):
            most = max(most, *(len(machine.running) for machine in world.machines.values()))
            assert most <= limit
            world.run(0.5)
        took[limit] = (most, world.now - began)
    assert took[8] > (took[1][0], 0.0)
    assert took[8][1] < took[1][1]
    world.stop(DEV1)
    world.start(DEV1)
    assert re.search(r"\n    2        'dev1", world.ask(DEV2, "admin transfer-limit"))
    assert re.search(r"\n    8        'dev3", world.ask(DEV2, "admin transfer-limit"))


# What was not recorded, as the published source has it ------------------------------------------------------

FIVE = tuple(f"riak{number}@127.0.0.1" for number in range(1, 6))
FIRST, SECOND = FIVE[:2]


def settled_five() -> World:
    world = World(names=FIVE, size=64)
    world.run(300)
    return world


def read(view: View, words: str) -> tuple[CommandOutput, RiakDialect]:
    """What `riak admin WORDS` prints, and how the program reads it."""
    return CommandOutput(exit=0, stdout=answer(["admin", *words.split()], view).said.whole), DIALECT


def ring_told(view: View) -> object:
    counted = parse_stats(json.dumps(stats(view)))
    owned = {}
    for name in FIVE:
        found = parse_partitions(*read(view, f"cluster partitions -n {name}"))
        assert found.node == name
        owned[found.node] = found.owned
    return ring_of(owned, counted)


def test_partitions_and_stats_have_the_same_ring() -> None:
    """Also of a node that is down, or starts: what it owns is `stopped` until it runs."""
    world = settled_five()
    before = ring_told(world.view(FIRST))
    assert getattr(before, "owners", None) == world.view(FIRST).ring.owners
    own = len(world.view(FIRST).ring.owned(SECOND))
    kinds = []
    world.stop(SECOND)
    for seconds in (0, 3, 12):
        if seconds == 3:
            world.start(SECOND)
        world.run(seconds)
        text = read(world.view(FIRST), f"cluster partitions -n {SECOND}")[0].stdout
        kinds.append([text.count(f"{kind} |") for kind in ("primary", "stopped")])
        assert ring_told(world.view(FIRST)) == before
    assert kinds[0] == [1, own]  # a line of dashes where there is none
    assert kinds[1][1] > 1
    assert kinds[2] == [own, 1]
    assert text.count("|secondary|") == 64 - own


def test_locations_are_beside_members_that_are_up_or_down() -> None:
    """A column of `cluster status` from the first location on."""
    world = settled_five()
    world.stop(SECOND)
    view = replace(world.view(FIRST), locations={FIRST: "rack a", SECOND: "rack b"})
    status = parse_cluster_status(*read(view, "cluster status"))
    expected = {name: {FIRST: "rack a", SECOND: "rack b"}.get(name) for name in FIVE}
    assert {each.node: each.location for each in status.members} == expected
    assert "location" not in read(world.view(FIRST), "cluster status")[0].stdout


# Processes --------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


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


def test_stats_has_the_recorded_fields(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
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


def test_the_packaged_command_exits_0_but_for_the_doubles_own(tmp_path: Path) -> None:
    """Recorded on a real 3.2.1, where a word of `riak start` was not kept."""
    with riak_nodes(tmp_path, 2, pace=PACE, command=RiakCommand.PACKAGED) as (node, _):
        assert node.riak("daemon").returncode == 0
        assert node.riak("stop").returncode == 0
        up = {recording.command: recording.text for recording in wrapper_recordings()[2:3]}
        down = {recording.command: recording.text for recording in wrapper_recordings()[:2]}
        for command, text in down.items():
            said = node.riak(command.split()[1])
            assert (said.returncode, said.stdout) == (0, text.replace("dev2@127.0.0.2", node.name))
        assert node.riak("admin", "transfers").returncode == 0
        started = node.riak("start")
        begin, end = wrapper_recordings()[3].text.strip().split(" … ")
        words = [line for line in started.stdout.splitlines() if not line.startswith("!!!!")]
        assert (started.returncode, len(words)) == (0, 1)
        assert words[0].startswith(begin)
        assert words[0].endswith(end)
        assert [(node.riak("ping").returncode, node.riak("ping").stdout)] == [(0, up["riak ping"])]
        assert node.riak("start").stdout == "Node is already running!\n"
        assert node.riak("admin", "nobody-recorded-this").returncode == 99
        assert node.double("nonsense").returncode == 2


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


def test_what_was_not_recorded_and_unknown_faults_are_refused(two: tuple[RiakNode, ...]) -> None:
    dev1, _ = two
    for words in (["admin", "cluster", "force-replace"], ["getpid"], ["config"]):
        odd = dev1.riak(*words)
        assert (odd.returncode, odd.stdout) == (99, "")
        assert "there is no answer to" in odd.stderr
    assert dev1.double("faults", "nonsense=1").returncode == 99
    assert dev1.riak("ping").returncode == 0
    (dev1.folder / "faults").write_text("nonsense = 1\n")
    misread = dev1.riak("ping")
    assert (misread.returncode, misread.stdout) == (99, "")
    assert "there are start, vnodes" in misread.stderr
    dev1.faults()
    assert dev1.riak("ping").returncode == 0


def test_a_limit_that_one_node_sets_reaches_the_other(two: tuple[RiakNode, ...]) -> None:
    dev1, dev2 = two
    assert dev1.riak("admin", "transfer-limit", dev2.name, "5").stdout == (
        f"Set transfer limit for '{dev2.name}' to 5\nok\n"
    )
    assert "|      5       |" in dev2.riak("admin", "show", "transfer_limit").stdout


def test_nodes_end_with_their_parent(tmp_path: Path) -> None:
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
        assert b"riak-double-node" in node.read_bytes()  # type: ignore[attr-defined]
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not node.exists(), "it outlives the process that made it")  # type: ignore[attr-defined]


def test_writers_at_once_do_not_end_the_node(tmp_path: Path) -> None:
    """What outlives a node is written by whichever thread changed it."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "riak.conf").write_text("nodename = dev1@127.0.0.1\n")
    (tmp_path / "double.conf").write_text(f"etc = {tmp_path / 'etc'}\nstate = {tmp_path}\n")
    own = read_own({"RIAK_DOUBLE_HOME": str(tmp_path)})
    node = Node(own, read_riaks(own))
    with ThreadPoolExecutor(max_workers=8) as pool:
        for written in [pool.submit(node.keep) for _ in range(400)]:
            written.result()
    assert json.loads((tmp_path / "hints.json").read_text()) == []
