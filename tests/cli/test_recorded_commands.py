"""A journal that others can write: what it would run is shown, and runs only with a person's agreement."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, LeaseError, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RunFinished
from orchestrator.model.gate import (
    CommandGate,
    Gate,
    HttpAccess,
    HttpJsonGate,
    Within,
)
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import (
    Hook,
    Hooks,
    Kind,
    Policy,
)
from orchestrator.runs.api import resume as resume_by_api
from orchestrator.runs.from_file import connect
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from tests.cli.console import Console, Said
from tests.cli.runs import RUN, entry, leave, record_of, started
from tests.cli.small_cluster import SmallCluster

ACCEPT = "--accept-recorded-commands"
REPAIR = "20261102-0300-efgh"
VERBS = ["resume", "restore"]


class Stage:
    """A team's state with two runs: one was interrupted, and a node of the other is out of service.

    Another run holds the cluster: a command that is not refused ends there.
    """

    def __init__(self, console: Console, cluster: SmallCluster) -> None:
        self.console, self.cluster = console, cluster
        self.folder = folder = console.folder
        self.book = folder / "ours.yml"
        self.file = cluster.write_file(folder, playbook=str(self.book))
        self.state = folder / "state" / "state.db"
        self.state.parent.mkdir()
        self.state.parent.chmod(0o2770)
        self.url = f"sqlite:///{self.state}"
        self.write_book(self.hook("here"))
        leave(cluster, record_of("another", str(current_process())))

    def hook(self, what: str) -> str:
        return f"echo {what} {{node}}"

    def write_book(self, *after_recovery: str) -> None:
        hooks = {"after_recovery": [{"run": line, "local": True} for line in after_recovery]}
        self.book.write_text(json.dumps({"kind": "elasticsearch", "hooks": hooks}))

    def record(self, *after_recovery: str, gates: tuple[Gate, ...] = (), then: str | None = None) -> None:
        """Write both runs, with these commands in their policy."""
        hooks = Hooks(after_recovery=tuple(Hook(run=line, local=True) for line in after_recovery))
        policy = Policy(kind=Kind.ELASTICSEARCH, cluster="lab", playbook="ours", hooks=hooks, gates=gates)
        begun = started(policy=policy, operator="ben", cluster_file=self.file)
        other = replace(policy, hooks=Hooks(before_stop=(Hook(run=then or ""),)))
        again = [] if then is None else [replace(begun, policy=other)]
        repair = replace(begun, repairs=RUN, out_of_service=(NodeName("es1"),))
        ended = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=1.0)
        store = open_store(self.url, {}, access=DatabaseUse.WRITE)
        store.create_run(entry(RUN, "boot/1/2/3")).append([begun, *again, ended], 1.0)
        store.create_run(entry(REPAIR, "boot/1/2/3")).append([repair, ended], 2.0)
        store.close()

    def do(self, verb: str, *more: str, typed: str | None = None) -> Said:
        name = REPAIR if verb == "restore" else RUN
        return self.console.run(verb, name, "--state", self.url, *more, typed=typed)


@pytest.fixture
def stage(console: Console, cluster: SmallCluster) -> Stage:
    return Stage(console, cluster)


@pytest.mark.parametrize("verb", VERBS)
def test_commands_of_the_playbook_need_no_question(stage: Stage, verb: str) -> None:
    stage.record(stage.hook("here"))
    assert stage.do(verb, "--yes").code == ExitCode.LEASED


@pytest.mark.parametrize("verb", VERBS)
def test_other_commands_do_not_run_unattended(stage: Stage, verb: str) -> None:
    """Each is shown whole, on one line; `--yes` was meant for another question."""
    planted = stage.hook("planted") + " " * 400
    stage.record(planted + "\n  all checks passed")
    before = stage.state.read_bytes()
    shown = (
        f"  hooks.after_recovery[0].run: recorded `{planted}\\n  all checks passed`, now "
        f"`{stage.hook('here')}`\n"
    )
    for more in ((), ("--output", "json")):
        said = stage.do(verb, "--yes", *more)
        text = said.lines[-1]["message"] if more else said.err
        assert (said.code, shown in text) == (ExitCode.USAGE, True)
        assert f"add {ACCEPT} (--yes is not enough)" in text
        assert stage.state.read_bytes() == before


@pytest.mark.parametrize("verb", VERBS)
def test_other_commands_need_a_flag_or_an_answer(stage: Stage, verb: str) -> None:
    stage.record(stage.hook("planted"))
    first = "y\n" if verb == "resume" else ""
    for more, typed, code in (
        ((ACCEPT, "--yes"), None, ExitCode.LEASED),
        ((), f"{first}y\n", ExitCode.LEASED),
        ((), f"{first}n\n", ExitCode.INTERRUPTED),
    ):
        said = stage.do(verb, *more, typed=typed)
        assert (said.code, f"recorded `{stage.hook('planted')}`" in said.err) == (code, True)


def test_a_command_that_is_no_hook_is_one_too(stage: Stage) -> None:
    """A gate runs on this machine, and the secret of another one may be a command."""
    at = HttpAccess(url="http://127.0.0.1:1/", bearer="command:sh -c 'touch x'")
    sent = HttpJsonGate(name="sent", at=at, path="a", within=Within(maximum=1))
    planted = CommandGate(name="planted", run="touch x", folder="/")
    stage.record(stage.hook("here"), gates=(planted, sent))
    said = stage.do("resume", "--yes")
    assert said.code == ExitCode.USAGE
    assert "  gates[0].run: recorded `touch x`, now nothing\n" in said.err
    assert "  gates[1].at.bearer: recorded `command:sh -c 'touch x'`, now nothing\n" in said.err


def test_a_second_beginning_in_the_journal_counts(stage: Stage) -> None:
    """A run obeys the last one."""
    stage.record(stage.hook("here"), then=stage.hook("planted"))
    assert stage.do("resume", "--yes").code == ExitCode.USAGE


def test_without_a_playbook_everything_recorded_is_shown(stage: Stage) -> None:
    stage.record(stage.hook("here"))
    stage.book.unlink()
    said = stage.do("resume", "--yes")
    assert said.code == ExitCode.USAGE
    assert "differs from its playbook, which cannot be used" in said.err
    assert f"recorded `{stage.hook('here')}`, now nothing" in said.err


def test_a_restore_asks_only_for_what_it_can_run(stage: Stage) -> None:
    """At night a node has to come up, whatever else has changed in the playbook."""
    stage.record(stage.hook("here"), gates=(CommandGate(name="other", run="true", folder="/"),))
    assert stage.do("restore", "--yes").code == ExitCode.LEASED
    stage.write_book()
    all_in_service = stage.console.run("restore", RUN, "--state", stage.url, "--yes")
    assert all_in_service.code == ExitCode.LEASED
    assert stage.do("restore", "--yes").code == ExitCode.USAGE


@pytest.mark.parametrize("verb", VERBS)
def test_a_state_of_one_account_is_its_own(stage: Stage, verb: str) -> None:
    stage.state.parent.chmod(0o700)
    stage.record(stage.hook("planted"))
    assert stage.do(verb, "--yes").code == ExitCode.LEASED


def test_a_program_is_asked_by_an_argument(stage: Stage) -> None:
    stage.record(stage.hook("planted"))
    with connect(stage.file, state=stage.url) as connection:
        with pytest.raises(UsageError, match="recorded"):
            next(resume_by_api(connection, RUN))
        with pytest.raises(LeaseError):
            next(resume_by_api(connection, RUN, accept_recorded_commands=True))


@pytest.mark.parametrize("verb", VERBS)
def test_a_journal_names_no_cluster_file_of_the_group(stage: Stage, verb: str) -> None:
    """It would name another playbook to compare with, and commands of its own, such as that of a password."""
    canary = stage.folder / "canary"
    stage.record(stage.hook("here"))
    planted = stage.state.parent / "planted.yml"
    password = f"command:sh -c 'touch {canary}; echo secret'"
    content = json.loads(Path(stage.file).read_text())
    planted.write_text(json.dumps({**content, "auth": {"basic": {"username": "x", "password": password}}}))
    with closing(sqlite3.connect(stage.state)) as state, state:
        state.execute("update events set event = replace(event, ?, ?)", (stage.file, str(planted)))
    said = stage.do(verb, "--yes")
    assert (said.code, "name the cluster file with --cluster" in said.err) == (ExitCode.USAGE, True)
    assert not canary.exists()
    assert stage.do(verb, "--yes", "--cluster", stage.file).code == ExitCode.LEASED
    assert not canary.exists()
