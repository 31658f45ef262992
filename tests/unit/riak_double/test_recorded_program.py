"""What the recorded program said by itself, played again on real processes in the order of the recording.

The rule is equality of output and exit code, with three exceptions, all of them the machine's: the host's
name in a node that was never started, the limit of open files, and the folder and time of day in what
`chkconfig` prints. A recording that the recorder cut off (exit code 124) is compared line by line, for as
many lines as it has; that the command goes on by itself is part of it.
"""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.riak_double.lasting import SECONDS
from tests.riak_nodes import RiakNode, riak_nodes
from tests.riak_transcripts import CUT_OFF, Recording, recordings
from tests.unit.riak_double.test_recorded_texts import OF_A_RUNNING_NODE

PACE = 0.02
OTHERS = [each for each in recordings() if each not in OF_A_RUNNING_NODE]


class Session:
    """Nodes that go through the recorder's states."""

    def __init__(self, nodes: tuple[RiakNode, ...]) -> None:
        self.nodes = {node.name.partition("@")[0]: node for node in nodes}
        self.said: dict[int, tuple[str, int]] = {}

    def play(self, *states: str) -> None:
        for recording in OTHERS:
            if recording.state in states:
                self._play(recording)

    def _play(self, recording: Recording) -> None:
        node = self.nodes[recording.node]
        words = recording.command.split()[1:]
        if recording.code == CUT_OFF:
            self.said[recording.line] = (node.printing(recording.output.count("\n"), *words), CUT_OFF)
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
        assert dev3.double("end").returncode == 0
        played.play("killed")
        conf = dev1.folder / "etc" / "riak.conf"
        assert dev1.riak("daemon").returncode == 0
        conf.write_text(re.sub(r"(?m)^(erlang.schedulers.\w+) = 2$", r"\1 = 1", conf.read_text()))
        played.play("sched", "cfg")
        yield played


def expected(recording: Recording, session: Session) -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = recording.output.replace("riak@vm", f"riak@{socket.gethostname()}")
    if "ulimit" in text:
        text = text.replace("20000", str(limit)) if limit < 65536 else ""
    root = session.nodes[recording.node].folder / "state"
    return masked(text.replace("<riak>", str(root)))


def masked(text: str) -> str:
    return re.sub(r"app(\.\d\d){0,1}(\.\d+)+\.config", "app.DATE.config", text)


@pytest.mark.parametrize("recording", OTHERS, ids=lambda each: each.name)
def test_the_program_says_what_was_recorded(session: Session, recording: Recording) -> None:
    text, code = session.said[recording.line]
    assert (masked(text), code) == (expected(recording, session), recording.code)


@pytest.mark.parametrize("word", [*SECONDS, "admin"])
def test_commands_take_about_as_long_as_recorded(word: str) -> None:
    """Every duration of the double is within the recorded ones, which vary with the recorder's machine."""
    taken = [
        each.seconds
        for each in recordings()
        if each.seconds and each.code != CUT_OFF and each.command.split()[1] == word
    ]
    assert word in {"", "start"} or 0.95 * min(taken) <= SECONDS.get(word, SECONDS[""]) <= max(taken)


def test_schedulers_change_with_stop_and_start_and_not_with_restart(tmp_path: Path) -> None:
    with riak_nodes(tmp_path, 1, pace=0.02) as (node,):
        conf = node.folder / "etc" / "riak.conf"
        asked = "{erlang:system_info(schedulers), erlang:system_info(schedulers_online)}."
        assert node.riak("daemon").returncode == 0
        conf.write_text(re.sub(r"(?m)^(erlang.schedulers.\w+) = 2$", r"\1 = 1", conf.read_text()))
        assert node.riak("restart").returncode == 0
        assert node.riak("eval", asked).stdout == "{2,2}\n"
        assert "[smp:2:2]" in node.stats()["sys_system_version"]
        assert node.riak("stop").returncode == 0
        assert node.riak("daemon").returncode == 0
        assert node.riak("eval", asked).stdout == "{1,1}\n"
        assert "[smp:1:1] [ds:1:1:10]" in node.stats()["sys_system_version"]
        assert node.riak("rpc", "erlang", "system_info", "[schedulers]").stdout == "1\n"
