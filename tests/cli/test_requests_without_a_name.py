"""`pause`, `stop` and `restore` without a run and without --cluster: which run is meant, and who is asked."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from dataclasses import replace

import pytest

from orchestrator.errors import ExitCode
from orchestrator.model.event import RunFinished
from orchestrator.model.phase import Outcome, Request
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import StateStore, open_store
from tests.cli.console import Console
from tests.cli.runs import entry, started

RUN, OTHER = "20261121-0413-x7k2", "20261122-0413-y8l3"
REQUESTS = {"pause": Request.PAUSE, "stop": Request.STOP}


def begin(store: StateStore, name: str, cluster: str = "lab", outcome: Outcome | None = None) -> None:
    """A run of this process, under way; or ended."""
    journal = store.create_run(entry(name, str(current_process()), cluster=cluster))
    ended = [] if outcome is None else [RunFinished(outcome=outcome, exit_code=0, seconds=1.0)]
    begun = started(cluster, cluster_file="nowhere.yml")
    journal.append([begun, *ended], 1000.0 + len(store.runs()))


def asked(store: StateStore, name: str) -> Request:
    return store.journal(name).asked()[0]


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_request_names_the_run_and_asks(store: StateStore, console: Console, verb: str) -> None:
    begin(store, RUN)
    said = console.run(verb, typed="n\n")
    assert said.code == ExitCode.INTERRUPTED
    for named in (verb.capitalize(), RUN, "lab", "under way", str(console.state)):
        assert named in said.out
    assert asked(store, RUN) is Request.NONE
    assert console.run(verb, typed="y\n").code == ExitCode.DONE
    assert asked(store, RUN) is REQUESTS[verb]


@pytest.mark.parametrize("verb", REQUESTS)
@pytest.mark.parametrize("named", [RUN, "--yes"])
def test_a_named_run_or_yes_is_no_question(
    store: StateStore, console: Console, verb: str, named: str
) -> None:
    begin(store, RUN)
    said = console.run(verb, named, typed="")
    assert (said.code, "?" in said.out) == (ExitCode.DONE, False)
    assert asked(store, RUN) is REQUESTS[verb]


@pytest.mark.parametrize("verb", REQUESTS)
def test_without_a_terminal_the_only_run_is_taken_with_a_warning(
    store: StateStore, console: Console, verb: str
) -> None:
    begin(store, RUN)
    said = console.run(verb)
    assert said.code == ExitCode.DONE
    warning = f"warning: `orchestrate {verb}` was given no run and acts on run {RUN} on lab"
    assert said.err.startswith(warning)
    assert f"`{store.command(verb, RUN)}`" in said.err
    said = console.run(verb, "--yes")
    assert (said.code, "warning" in said.err) == (ExitCode.DONE, False)
    assert f"{verb}: run {RUN} on lab" in said.err


@pytest.mark.parametrize("verb", [*REQUESTS, "restore"])
def test_an_ambiguous_run_changes_nothing_and_lists_all(
    store: StateStore, console: Console, verb: str
) -> None:
    begin(store, RUN)
    begin(store, OTHER, "other")
    before = [store.replay(name) for name in (RUN, OTHER)]
    for yes in ((), ("--yes",)):
        said = console.run(verb, *yes)
        assert (said.code, RUN in said.err, OTHER in said.err) == (ExitCode.USAGE, True, True)
        assert [asked(store, name) for name in (RUN, OTHER)] == [Request.NONE, Request.NONE]
        assert [store.replay(name) for name in (RUN, OTHER)] == before


def test_a_restore_that_is_not_confirmed_changes_nothing(store: StateStore, console: Console) -> None:
    begin(store, RUN)
    said = console.run("restore", typed="n\n")
    assert said.code == ExitCode.INTERRUPTED
    assert said.out.startswith(f"Restore run {RUN} on lab")
    assert len(store.replay(RUN)) == 1


@pytest.mark.parametrize("ended", [(), (Outcome.DONE,), (Outcome.INTERRUPTED, Outcome.DONE)])
def test_a_restore_with_nothing_to_restore_is_done(
    store: StateStore, console: Console, ended: tuple[Outcome, ...]
) -> None:
    """No run, a run that is done, and an unfinished run whose changes a later run has restored."""
    for name, outcome in zip((RUN, OTHER), ended, strict=False):
        begin(store, name, outcome=outcome)
    for how in ((), ("--yes",), ("--output", "json")):
        said = console.run("restore", *how)
        assert (said.code, "nothing to restore" in said.err) == (ExitCode.DONE, True)
        assert ('"outcome": "done"' in said.out) is ("json" in how)


def test_a_stop_of_a_paused_run_names_what_continues_it(store: StateStore, console: Console) -> None:
    begin(store, RUN, outcome=Outcome.PAUSED)
    said = console.run("stop", "--yes")
    advice = f"run {RUN} has ended (paused): continue it with `{store.command('resume', RUN)}`"
    assert (said.code, advice in said.err) == (ExitCode.USAGE, True)


def test_a_resume_of_a_run_that_is_done_reaches_no_cluster(store: StateStore, console: Console) -> None:
    """Its cluster file is nowhere, so that any connection would fail."""
    begin(store, RUN, outcome=Outcome.DONE)
    said = console.run("resume", RUN, "--yes")
    assert (said.code, f"run {RUN} is over: it ended done" in said.err) == (ExitCode.DONE, True)


def test_status_shows_that_another_run_restored_the_changes(store: StateStore, console: Console) -> None:
    begin(store, RUN)
    store.close_run(RUN, Outcome.RESTORED, 2000.0)
    said = console.run("status", RUN)
    assert said.code == ExitCode.DONE
    assert "another run has restored what it changed" in said.out


def _advised(lines: str) -> list[list[str]]:
    """The commands of this program in an output, as a shell reads them."""
    found = re.findall(r"(orchestrate [a-z]+ [^`\n]*)", lines)
    return [shlex.split(line.replace(" --retry-failed", ""))[1:] for line in found]


def test_each_advised_command_finds_the_run_where_it_is(console: Console) -> None:
    """The state is on another disk, and named by `--state` alone."""
    url = f"sqlite:///{console.home}/other place/state.db"
    (console.home / "other place").mkdir()
    with closing(open_store(url, {}, access=DatabaseUse.WRITE)) as store:
        begin(store, RUN, outcome=Outcome.DONE)
        begin(store, OTHER)
    there = replace(console, environment={"ORCHESTRATE_STATE": ""})
    commands = (("restore", "--yes"), ("resume", "--yes"), ("resume", "nope"), ("stop", OTHER))
    said = [there.run(*words, "--state", url) for words in commands]
    advised = _advised("".join(one.out + one.err for one in said))
    assert {words[0] for words in advised} >= {"status", "restore", "resume", "history"}
    for words in advised:
        assert words[-2:] == ["--state", url], words
        assert "there is no run" not in there.run(*words).err, words


def test_a_passed_run_is_restored_after_a_question_only(store: StateStore, console: Console) -> None:
    """Neither journal shows the order; the dates do, and may be of two clocks."""
    begin(store, RUN, outcome=Outcome.DONE)
    begin(store, OTHER)
    for how in ((), ("--yes",), ("--output", "json")):
        said = console.run("restore", *how)
        assert said.code == ExitCode.USAGE
        for command in (f"restore {OTHER} --state", f"status {RUN} --state"):
            assert command in said.out + said.err
    said = console.run("restore", typed="n\n")
    assert (said.code, f"Restore run {OTHER}?" in said.out) == (ExitCode.INTERRUPTED, True)
    assert len(store.replay(OTHER)) == 1
    said = console.run("restore", typed="y\n")
    assert (said.code, "nowhere.yml" in said.err) == (ExitCode.USAGE, True)
