"""`pause`, `stop` and `restore` without a run and without --cluster: which run is meant, and who is asked."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from contextlib import closing

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RunFinished, RunStarted
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Kind, Policy
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import StateStore, open_store
from tests.cli.console import Console
from tests.cli.runs import entry

RUN, OTHER = "20261121-0413-x7k2", "20261122-0413-y8l3"
REQUESTS = {"pause": Request.PAUSE, "stop": Request.STOP}


def begin(store: StateStore, name: str, cluster: str = "lab", outcome: Outcome | None = None) -> None:
    """A run of this process, under way; or ended."""
    started = RunStarted(
        cluster=cluster,
        cluster_uuid="uuid",
        version="8.19.0",
        policy=Policy(kind=Kind.ELASTICSEARCH, cluster=cluster),
        nodes=(NodeName("es1"),),
        operator="ann",
        host="bastion",
        cluster_file="nowhere.yml",
    )
    journal = store.create_run(entry(name, str(current_process()), cluster=cluster))
    ended = [] if outcome is None else [RunFinished(outcome=outcome, exit_code=0, seconds=1.0)]
    journal.append([started, *ended], 1000.0 + len(store.runs()))


def asked(store: StateStore, name: str) -> Request:
    return store.journal(name).request()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """A terminal at which somebody types this; what is printed there."""

    def make(typed: str) -> Terminal:
        out = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        monkeypatch.setattr("sys.stdout", out)
        return out

    return make


@pytest.mark.parametrize("verb", REQUESTS)
def test_on_a_terminal_the_run_is_named_and_asked_for(
    store: StateStore, terminal: Callable[[str], Terminal], console: Console, verb: str
) -> None:
    begin(store, RUN)
    shown = terminal("n\n")
    assert run([verb]) == ExitCode.INTERRUPTED
    question = shown.getvalue()
    for named in (verb.capitalize(), RUN, "lab", "under way", str(console.state)):
        assert named in question
    assert asked(store, RUN) is Request.NONE
    terminal("y\n")
    assert run([verb]) == ExitCode.DONE
    assert asked(store, RUN) is REQUESTS[verb]


@pytest.mark.parametrize("verb", REQUESTS)
@pytest.mark.parametrize("named", [[RUN], ["--yes"]])
def test_who_names_the_run_or_says_yes_is_not_asked(
    store: StateStore, terminal: Callable[[str], Terminal], verb: str, named: list[str]
) -> None:
    begin(store, RUN)
    shown = terminal("")
    assert run([verb, *named]) == ExitCode.DONE
    assert "?" not in shown.getvalue()
    assert asked(store, RUN) is REQUESTS[verb]


@pytest.mark.parametrize("verb", REQUESTS)
def test_without_a_terminal_the_only_run_is_taken_with_a_warning(
    store: StateStore, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    begin(store, RUN)
    assert run([verb]) == ExitCode.DONE
    warned = capsys.readouterr().err
    assert warned.startswith(f"warning: `orchestrate {verb}` was given no run and acts on run {RUN} on lab")
    assert f"`{store.command(verb, RUN)}`" in warned
    assert run([verb, "--yes"]) == ExitCode.DONE
    named = capsys.readouterr().err
    assert "warning" not in named
    assert f"{verb}: run {RUN} on lab" in named


@pytest.mark.parametrize("verb", [*REQUESTS, "restore"])
@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_an_ambiguous_run_changes_nothing_and_lists_all(
    store: StateStore, capsys: pytest.CaptureFixture[str], verb: str, yes: list[str]
) -> None:
    begin(store, RUN)
    begin(store, OTHER, "other")
    before = [store.replay(name) for name in (RUN, OTHER)]
    assert run([verb, *yes]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert RUN in said
    assert OTHER in said
    assert [asked(store, name) for name in (RUN, OTHER)] == [Request.NONE, Request.NONE]
    assert [store.replay(name) for name in (RUN, OTHER)] == before


def test_a_restore_that_is_not_confirmed_touches_nothing(
    store: StateStore, terminal: Callable[[str], Terminal]
) -> None:
    begin(store, RUN)
    shown = terminal("n\n")
    assert run(["restore"]) == ExitCode.INTERRUPTED
    assert shown.getvalue().startswith(f"Restore run {RUN} on lab")
    assert len(store.replay(RUN)) == 1


@pytest.mark.parametrize("ended", [(), (Outcome.DONE,), (Outcome.INTERRUPTED, Outcome.DONE)])
def test_a_restore_with_nothing_to_restore_is_done(
    store: StateStore, capsys: pytest.CaptureFixture[str], ended: tuple[Outcome, ...]
) -> None:
    """No run, a run that is done, and an unfinished run whose changes a later run has restored."""
    for name, outcome in zip((RUN, OTHER), ended, strict=False):
        begin(store, name, outcome=outcome)
    for how in ([], ["--yes"], ["--output", "json"]):
        assert run(["restore", *how]) == ExitCode.DONE
        said = capsys.readouterr()
        assert "nothing to restore" in said.err
        assert ('"outcome": "done"' in said.out) is ("json" in how)


def test_a_stop_of_a_paused_run_names_what_continues_it(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(store, RUN, outcome=Outcome.PAUSED)
    assert run(["stop", "--yes"]) == ExitCode.USAGE
    advice = f"run {RUN} has ended (paused): continue it with `{store.command('resume', RUN)}`"
    assert advice in capsys.readouterr().err


def test_a_resume_of_a_run_that_is_done_reaches_no_cluster(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cluster file is nowhere, so that any connection would fail."""
    begin(store, RUN, outcome=Outcome.DONE)
    assert run(["resume", RUN, "--yes"]) == ExitCode.DONE
    assert f"run {RUN} is over: it ended done" in capsys.readouterr().err


def test_status_knows_that_another_run_restored_the_changes(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(store, RUN)
    store.close_run(RUN, Outcome.RESTORED, 2000.0)
    assert run(["status", RUN]) == ExitCode.DONE
    assert "not restored: nothing; another run has restored what it changed" in capsys.readouterr().out


def test_no_summary_of_a_command_is_cut_in_the_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == ExitCode.DONE
    usage, *lines = capsys.readouterr().out.strip().splitlines()
    assert usage.startswith("Usage: ")
    assert [line for line in lines if line.endswith("...")] == []


def _typed(lines: str) -> list[list[str]]:
    """The commands of this program in an output, as a shell reads them."""
    found = re.findall(r"(orchestrate [a-z]+ [^`\n]*)", lines)
    return [shlex.split(line.replace(" --retry-failed", ""))[1:] for line in found]


def test_each_advised_command_finds_the_run_where_it_is(
    console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state is on another disk, and named by `--state` alone."""
    monkeypatch.delenv("ORCHESTRATE_STATE", raising=False)
    url = f"sqlite:///{console.state.parent}/other place/state.db"
    (console.state.parent / "other place").mkdir()
    with closing(open_store(url, {}, access=Access.WRITE)) as store:
        begin(store, RUN, outcome=Outcome.DONE)
        begin(store, OTHER)
    said = ""
    for words in (["restore", "--yes"], ["resume", "--yes"], ["resume", "nope"], ["stop", OTHER]):
        run([*words, "--state", url])
        output = capsys.readouterr()
        said += output.out + output.err
    advised = _typed(said)
    assert {words[0] for words in advised} >= {"status", "restore", "resume", "history"}
    for words in advised:
        assert words[-2:] == ["--state", url], words
        run(words)
        assert "there is no run" not in capsys.readouterr().err, words


def test_a_passed_run_is_restored_after_a_question_only(
    store: StateStore, terminal: Callable[[str], Terminal], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither journal shows the order; the dates do, and may be of two clocks."""
    begin(store, RUN, outcome=Outcome.DONE)
    begin(store, OTHER)
    for how in ([], ["--yes"], ["--output", "json"]):
        assert run(["restore", *how]) == ExitCode.USAGE
        refused = capsys.readouterr()
        for command in (f"restore {OTHER} --state", f"status {RUN} --state"):
            assert command in refused.out + refused.err
    shown = terminal("n\n")
    assert run(["restore"]) == ExitCode.INTERRUPTED
    assert f"Restore run {OTHER}?" in shown.getvalue()
    assert len(store.replay(OTHER)) == 1
    terminal("y\n")
    assert run(["restore"]) == ExitCode.USAGE
    assert "nowhere.yml" in capsys.readouterr().err
