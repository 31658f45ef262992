"""What a person at a terminal sees of runs on real nodes; the commands that endings name do what they say."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.model.event import Record
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from tests import ports
from tests.integration.killing import (
    KILLED,
    PLAYBOOK,
    QUICKEST,
    Bastion,
    assert_put_back,
    assert_restarted_once,
    entered,
    prepare,
    truth,
)
from tests.integration.nursery import BESIDE, DOOMED
from tests.lab.recorded import NOW, OVER, Recording
from tests.lab.terminal import Terminal

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]

DONE, HELD, FAILED, INTERRUPTED, LEASED, PAUSED = 0, 3, 4, 5, 6, 9
TWO = ("es1", "es2")
ONLY_TWO = "--only es1 --only es2"
BOOK = {**PLAYBOOK, "deadlines": {**PLAYBOOK["deadlines"], "hold": "5s", "start": "20s"}}
_COMMAND = re.compile(r"\borchestrate (?:[^\n\\`]|\\\n)+")


@dataclass(kw_only=True)
class Person:
    """Somebody at a terminal, with a state, a cluster file and a shell of their own."""

    bastion: Bastion
    show: Show
    open: ExitStack  # ends what is left running
    _path: str = field(init=False)

    def __post_init__(self) -> None:
        tools = self.bastion.folder / "bin"
        tools.mkdir()
        program = tools / "orchestrate"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {DOOMED} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        self._path = f"{tools}:/usr/bin:/bin"

    def begin(self, line: str) -> Terminal:
        """Type a line into a shell."""
        environment = {**BESIDE, **self.bastion._environment(self.bastion._told()), "PATH": self._path}
        terminal = Terminal(
            ["/bin/sh", "-c", f"exec {line}"], folder=self.bastion.folder, environment=environment
        )
        return self.open.enter_context(terminal)

    def restart(self, options: str = ONLY_TWO) -> Terminal:
        """Begin a restart."""
        return self.begin(f"orchestrate restart --cluster {self.bastion.file} --yes {options}")

    def until(self, terminal: Terminal, phase: str, seconds: float = 300.0) -> None:
        """Wait until a node has entered this phase."""
        wanted, limit = entered(phase), time.monotonic() + seconds
        while not any(wanted(*seam) for seam in self.bastion.passed()):
            assert terminal.runs, terminal.text
            assert time.monotonic() < limit, terminal.text
            time.sleep(0.02)

    def end(self, terminal: Terminal) -> tuple[int, str]:
        """Wait for the end; the exit code, and all that was on the screen, which is shown."""
        code = terminal.end()
        self.show(f"{terminal.text}(exit code {code})\n")
        return code, terminal.text

    def type(self, line: str) -> tuple[int, str]:
        """Type a line, agree if the program asks, and wait for the end."""
        self.show(f"$ {line}")
        terminal = self.begin(line)
        while terminal.runs and "[y/N]" not in terminal.text:
            time.sleep(0.05)
        if terminal.runs:
            terminal.type("y\n")
        return self.end(terminal)

    def records(self) -> tuple[Record, ...]:
        """The journal of the only run."""
        store = open_store(f"sqlite:///{self.bastion.folder}/state.db", {}, access=DatabaseUse.READ)
        try:
            (run,) = store.runs()
            return store.replay(run.run)
        finally:
            store.close()


PersonOf = Callable[..., Person]


@pytest.fixture
def person_of(bastion_of: BastionOf, show: Show) -> Iterator[PersonOf]:
    """Makes a person: `person_of(lab, "name")`, with further fields of their bastion."""
    with ExitStack() as stack:

        def make(lab: LabCluster, name: str = "me", **fields: Any) -> Person:
            return Person(bastion=bastion_of(lab, name, playbook=BOOK, **fields), show=show, open=stack)

        yield make


def command_in(text: str) -> str:
    """The last command on the screen, as it is selected and pasted: it may have several lines."""
    found = _COMMAND.findall(text)
    assert found, text
    return str(found[-1]).strip()


def assert_status_names_it_too(me: Person, text: str) -> None:
    """One end has one next command, however wide a screen is."""
    screens = (me.type("orchestrate status")[1], text)
    words = [shlex.split(command_in(each).replace("\\\n", "")) for each in screens]
    assert words[0] == words[1]


def test_the_bar_and_the_signs_follow_the_journal(
    process_cluster: ProcessCluster, person_of: PersonOf, show: Show
) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    terminal = me.restart("")
    assert me.end(terminal)[0] == DONE
    assert_restarted_once(lab, before)
    nodes = [node.name for node in lab.nodes]
    recording = Recording(terminal.looks, me.records(), nodes)
    show("\n".join(recording.lines()))
    signs = recording.signs()
    assert not [one for one in signs if one.ahead]
    assert recording.went_back() == []
    for node in nodes:
        seen = {(one.sign, one.step) for one in signs if one.node == node}
        assert seen & {(NOW, "start"), (NOW, "join")}, f"no look shows where {node} is"
        assert (OVER, "done") in seen, node
        assert recording.moves(node) > 0, f"the bar stands still while {node} is restarted"


def test_a_message_that_is_not_delivered_is_a_warning(
    process_cluster: ProcessCluster, person_of: PersonOf
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    (closed,) = ports.free_ports(1)
    me = person_of(lab, document={"notify": [{"url": f"http://127.0.0.1:{closed}/", "on": ["done"]}]})
    code, text = me.end(me.restart())
    assert code == DONE
    assert f"http://127.0.0.1:{closed}" in text
    assert_restarted_once(lab, before, nodes=TWO)


def test_nothing_to_do_names_no_command(process_cluster: ProcessCluster, person_of: PersonOf) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    code, text = me.end(me.restart("--started-before 2020-01-01T00:00:00Z"))
    assert (code, _COMMAND.findall(text)) == (DONE, [])
    assert truth(lab) == before


def test_a_held_run_goes_on_once_its_cause_is_gone(
    process_cluster: ProcessCluster, person_of: PersonOf
) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    nowhere = {"number_of_shards": 1, "number_of_replicas": 1, "routing.allocation.require._name": "nowhere"}
    lab.client.ask("PUT", "/stuck?wait_for_active_shards=0", {"settings": {"index": nowhere}})
    code, text = me.end(me.restart())
    assert code == HELD
    assert "index stuck" in text
    assert truth(lab).lives == before.lives
    lab.client.ask("DELETE", "/stuck")
    assert me.type(command_in(text))[0] == DONE
    assert_restarted_once(lab, before, nodes=TWO)


def test_a_failed_run_goes_on_once_its_node_is_repaired(
    process_cluster: ProcessCluster, person_of: PersonOf
) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    lab.configure("es2", {"no.such.setting": "1"})
    code, text = me.end(me.restart())
    assert code == FAILED
    assert "unknown setting [no.such.setting]" in " ".join(text.split())
    assert truth(lab).settings == before.settings
    assert_status_names_it_too(me, text)
    lab.configure("es2", {})
    code, text = me.type(command_in(text))
    assert (code, _COMMAND.findall(text)) == (DONE, [])
    after = truth(lab)
    assert {name for name in before.lives if after.lives[name] != before.lives[name]} == set(TWO)
    assert after.settings == before.settings


@pytest.mark.parametrize(
    ("act", "expected"), [("stop", INTERRUPTED), ("pause", PAUSED), ("Ctrl-C", INTERRUPTED)]
)
def test_a_run_that_was_asked_to_end_goes_on(
    process_cluster: ProcessCluster, person_of: PersonOf, act: str, expected: int
) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    run = me.restart()
    me.until(run, "stopping")
    if act == "Ctrl-C":
        run.type("\x03")
    else:
        assert me.type(f"orchestrate {act}")[0] == DONE
    code, text = me.end(run)
    assert code == expected
    assert_put_back(lab, before, text)
    assert_status_names_it_too(me, text)
    assert me.type(command_in(text))[0] == DONE
    assert_restarted_once(lab, before, nodes=TWO)


def killed(me: Person) -> None:
    """A run that dies while a node is down."""
    run = me.restart()
    me.until(run, "stopped")
    run.send(signal.SIGKILL)
    assert me.end(run)[0] == KILLED


def test_a_restart_restores_first_what_a_killed_run_left(
    process_cluster: ProcessCluster, person_of: PersonOf
) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    killed(me)
    me.type("orchestrate status")
    me.type(f"orchestrate plan --cluster {me.bastion.file} {ONLY_TWO}")
    code, text = me.type(f"orchestrate restart --cluster {me.bastion.file} --only es3")
    assert code == DONE, text
    lab.wait_ready(status="green")
    after = truth(lab)
    assert (after.settings, after.leases) == (before.settings, ())
    assert after.lives["es3"] != before.lives["es3"]
    assert set(after.lives) == set(before.lives)


def test_a_killed_run_is_restored_by_hand_and_goes_on(
    process_cluster: ProcessCluster, person_of: PersonOf
) -> None:
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab)
    killed(me)
    restore = command_in(me.type("orchestrate status")[1])
    assert restore.startswith("orchestrate restore ")
    code, text = me.type(restore)
    assert code == DONE
    assert_put_back(lab, before, text)
    assert_status_names_it_too(me, text)
    assert me.type(command_in(text))[0] == DONE
    assert_restarted_once(lab, before, nodes=TWO)


def test_a_deposed_run_goes_on_after_the_other(process_cluster: ProcessCluster, person_of: PersonOf) -> None:
    """It is suspended for longer than its lease lasts, and cannot be looked for, as on another machine."""
    lab = process_cluster(QUICKEST)
    before, me = prepare(lab), person_of(lab, foreign=True, expiry=4.0)
    run = me.restart()
    me.until(run, "starting")
    run.send(signal.SIGSTOP)
    me.bastion.foreign = False
    code, text = me.end(me.restart("--only es3"))
    assert code == DONE, text
    run.send(signal.SIGCONT)
    code, text = me.end(run)
    assert code == LEASED
    assert me.type(command_in(text))[0] == DONE
    assert_restarted_once(lab, before)
