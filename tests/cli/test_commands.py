"""Every command as a user meets it: help, wrong words, no terminal, JSON, a reader that has gone."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import typer.main

from orchestrator.cli.program import app
from orchestrator.errors import ExitCode
from orchestrator.model.event import Event, RunFinished
from orchestrator.model.phase import Outcome
from orchestrator.runtime.state_file import SHARED_FOLDER
from orchestrator.runtime.store import StateStore
from tests.cli.console import LIMIT_SECONDS, SCRIPT, Console
from tests.cli.runs import RUN, ended_run, entry, started

COMMANDS = (
    *("restart", "upgrade", "post-bulk-index", "force-merge", "plan", "apply", "resume", "restore", "pause"),
    *("stop", "status", "history", "report", "serve", "init", "notify", "validate", "rehearse", "tune"),
    *("diagnose", "explain"),
)
LEAVES = (*(set(COMMANDS) - {"tune", "notify"}), "tune check", "tune apply", "tune revert", "notify test")
NAMING_A_CLUSTER = set(LEAVES) - {"apply", "explain"}
CHANGING = {
    *("restart", "post-bulk-index", "force-merge", "apply", "resume", "restore", "pause", "stop"),
    *("tune apply", "tune revert"),
}
CLUSTER = "kind: elasticsearch\nname: prod\nendpoints: ['http://127.0.0.1:1']\n"


def test_the_commands_are_those_of_the_contract() -> None:
    group = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)  # type: ignore[attr-defined]  # a group has commands


def test_help_of_every_command_names_its_flags(console: Console, subtests: pytest.Subtests) -> None:
    """A cluster where it names one, `--yes` where it changes something."""
    for command in LEAVES:
        with subtests.test(command=command):
            said = console.run(*command.split(), "--help")
            assert (said.code, said.err) == (0, "")
            assert said.out.startswith(f"Usage: orchestrate {command} ")
            assert ("--cluster" in said.out) >= (command in NAMING_A_CLUSTER)
            assert ("--yes" in said.out) >= (command in CHANGING)


def test_the_script_alone_shows_commands_and_its_version(console: Console) -> None:
    said = console.script()
    assert (said.code, said.err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"[ ,]{command}(,|\n)", said.out)
    assert console.run("--version").out == f"orchestrate {version('orchestrator')}\n"
    for group in ("tune", "notify"):
        assert console.run(group).out == console.run(group, "--help").out
    narrow = replace(console, environment={"COLUMNS": "80"}).run("--help").out.strip().splitlines()
    assert narrow[0].startswith("Usage: ")
    assert [line for line in narrow[1:] if line.endswith("...")] == [], "no summary of a command is cut"


def test_help_shows_defaults_and_what_is_required(console: Console, subtests: pytest.Subtests) -> None:
    largest = "as many as the largest zone has, without zones a third)."
    for command, option, shown in [
        ("post-bulk-index", " --index", "[required]"),
        ("force-merge", " --index", "[required]"),
        ("force-merge", " --cluster", "[required]"),
        ("restart", "--strategy", "Default: that of the playbook, or `node`."),
        ("restart", "--max-unavailable", f"or 1 (with `zone`: the whole zone; with `shard-safe`: {largest}"),
        ("restart", "--no-tune", "Default: if the playbook names a profile."),
    ]:
        with subtests.test(command=command, option=option):
            said = " ".join(console.run(command, "--help").out.split())
            assert shown in said.partition(f"{option} ")[2].partition(" --")[0]


QUESTION = "there is no terminal for the question: check with "


def _left_run(store: StateStore, *events: Event) -> None:
    """A run in the state, of which these events are known."""
    store.create_run(entry(RUN, "boot/1/2/3")).append([started(), *events], 1.0)


def test_resume_without_a_terminal_names_status(console: Console, store: StateStore) -> None:
    _left_run(store)
    said = console.run("resume")
    look = f"`orchestrate status {RUN} --state {console.url}`"
    assert (said.code, said.message) == (ExitCode.USAGE, f"{QUESTION}{look}, then add --yes")


def test_restore_of_a_run_that_is_done_changes_nothing(console: Console, store: StateStore) -> None:
    _left_run(store, RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0))
    said = console.run("restore", RUN)
    assert (said.code, said.message) == (0, f"✓ run {RUN} has nothing to restore: it ended done")
    (past,) = console.run("history", "--output", "json").lines[:-1]
    assert past["outcome"] == "done"


def test_json_ends_with_the_summary_of_a_refusal(console: Console, subtests: pytest.Subtests) -> None:
    for line in (
        "bogus --output json",
        "plan --cluster nope --output json",
        "status nope --output json",
        "plan --output=json",
    ):
        with subtests.test(line=line):
            said = console.run(*line.split())
            (summary,) = said.lines
            assert (summary["event"], summary["outcome"], summary["run"]) == ("summary", "refused", None)
            assert said.code == summary["exit_code"] == ExitCode.USAGE
            assert summary["message"] == said.message
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", summary["ts"])


def test_restore_of_an_unreachable_cluster_makes_no_state(console: Console) -> None:
    (console.folder / "prod.yml").write_text(CLUSTER)
    said = console.run("restore", "--cluster", "prod.yml")
    assert said.code != ExitCode.DONE
    assert "Connection refused" in said.err
    assert not console.state.exists()


WITHOUT_IT = "without it `orchestrate restore --cluster NAME` works from the record in the cluster"


def test_a_state_file_that_is_missing_or_damaged_is_left(console: Console, subtests: pytest.Subtests) -> None:
    missing = (
        f"state file {console.state}: there is no such file; no run was begun with it yet, or it was lost"
    )
    for content, says in (
        (None, missing),
        ("", "it is empty"),
        ("once upon a time\n" * 100, "not an SQLite"),
    ):
        for line in ("resume --yes", "restore", "stop", "pause", "status", "status nope", "history"):
            with subtests.test(line=line, content=content):
                if content is not None:
                    console.state.write_text(content)
                said = console.run(*line.split())
                none = not content and line in {"status", "history"}
                assert said.code == (ExitCode.DONE if none else ExitCode.USAGE)
                assert said.out == ("No runs yet.\n" if none else "")
                (only,) = said.err.splitlines()
                assert only.startswith("state file" if none else "orchestrate: ")
                assert says in only
                if content is None or line in {"resume --yes", "restore", "status"}:
                    assert WITHOUT_IT in only
                assert (console.state.read_text() if console.state.exists() else None) == content


def test_without_any_run_there_is_none_yet(console: Console, subtests: pytest.Subtests) -> None:
    """The usual place has no state, and a state of another cluster's runs is none of a named one."""
    usual = replace(console, environment={"ORCHESTRATE_STATE": ""})
    for line in ("status", "status --watch", "history", "history --html page.html", "report"):
        with subtests.test(line=line):
            said = usual.run(*line.split())
            assert (said.code, said.out, said.err) == (ExitCode.DONE, "No runs yet.\n", "")
    assert list(console.folder.iterdir()) == []
    for line in ("status", "history", "report"):
        with subtests.test(line=line, output="json"):
            said = usual.run(*line.split(), "--output", "json")
            (summary,) = said.lines
            assert (said.code, summary["event"], summary["outcome"]) == (ExitCode.DONE, "summary", "done")
    assert usual.run("history", "--output", "csv").out == ""
    for line in ("status nope", "report nope", f"status --state {console.url}"):
        assert usual.run(*line.split()).code == ExitCode.USAGE, line


def test_no_colour_where_none_is_wanted(console: Console) -> None:
    plain = replace(console, environment={"NO_COLOR": "1"})
    for said in (plain.run("--help"), plain.run("plan", "--cluster", "nope"), console.run("--help")):
        assert "\x1b" not in said.out + said.err


def test_completion_in_every_shell(console: Console, subtests: pytest.Subtests) -> None:
    """Asked as a shell's start-up file asks: `--show-completion` goes by the process that it is run from."""
    for shell in ("bash", "zsh", "fish"):
        with subtests.test(shell=shell):
            said = replace(console, environment={"_ORCHESTRATE_COMPLETE": f"source_{shell}"}).run()
            assert said.code == 0, said.err
            assert "_ORCHESTRATE_COMPLETE" in said.out


def _into(console: Console, output: int, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  (the program under test)
        [SCRIPT, *line.split()],
        env=console.variables(),
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_a_reader_that_has_gone_is_no_error(console: Console, subtests: pytest.Subtests) -> None:
    """As `orchestrate … | head -0` does."""
    ended_run(console)
    for line in ("restart --help", "history --output json"):
        with subtests.test(line=line):
            reading, writing = os.pipe()
            os.close(reading)
            try:
                done = _into(console, writing, line)
            finally:
                os.close(writing)
            assert done.stderr == ""
            assert done.returncode in {0, 141}  # 1 is a defect


def test_an_output_that_is_full_is_named(console: Console) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = _into(console, full.fileno(), "restart --help")
    assert done.stderr == "orchestrate: standard output cannot be written: No space left on device\n"
    assert done.returncode == ExitCode.USAGE


def test_a_closed_stream_is_no_defect(console: Console, subtests: pytest.Subtests) -> None:
    """As of a job that is started with `>&-`."""
    ended_run(console)
    for line, code in (("history", ExitCode.DONE), ("explain bogus", ExitCode.USAGE)):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            with subtests.test(line=line, closed=closed):
                said = console.run(*line.split(), before=("sh", "-c", f'exec "$@" {closed}', "sh"))
                assert said.code == code
                assert "Traceback" not in said.err


@pytest.mark.skipif(SHARED_FOLDER.exists(), reason=f"this machine has a state of its own in {SHARED_FOLDER}")
def test_status_and_history_of_a_cluster_name_the_state(console: Console) -> None:
    """The usual place: a state file that is named and is not there is another error."""
    folder = console.home / "states"
    (console.folder / "configs/clusters").mkdir(parents=True)
    (console.folder / "configs/clusters/prod.yml").write_text(CLUSTER)
    usual = replace(console, environment={"ORCHESTRATE_STATE": "", "XDG_STATE_HOME": str(folder)})
    status, history = (usual.run(command, "--cluster", "prod") for command in ("status", "history"))
    assert (status.code, history.code) == (ExitCode.USAGE, ExitCode.USAGE)
    assert status.err == history.err
    assert "/state.db" in history.err
    assert not folder.exists()


def test_no_message_repeats_a_login_or_fills_the_screen(console: Console) -> None:
    for line in ("explain {}", "{}", "status --output {}", "plan --cluster lab --bogus={}"):
        for word in ("https://ann:hunter2@es1:9200", "x" * 100_000):
            said = console.run(*line.format(word).split())
            assert said.code == ExitCode.USAGE
            assert "hunter2" not in said.err
            assert len(said.err) < 2000
