"""Every command as a user meets it: help, wrong words, no terminal, JSON, a reader that has gone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import typer.main

from orchestrator.cli.program import app, run
from orchestrator.config.lookup import URLS
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, RunFinished, RunStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind, Policy
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from tests.cli.console import LIMIT_SECONDS, SCRIPT, Console
from tests.cli.runs import ended_run, entry
from tests.cli.small_cluster import SmallCluster

COMMANDS = (
    "restart",
    "upgrade",
    "post-bulk-index",
    "force-merge",
    "plan",
    "apply",
    "resume",
    "restore",
    "pause",
    "stop",
    "status",
    "history",
    "init",
    "validate",
    "rehearse",
    "tune",
    "diagnose",
    "explain",
)
CLUSTER = "kind: elasticsearch\nname: prod\nendpoints: ['http://127.0.0.1:1']\n"


def test_the_commands_are_those_of_the_contract() -> None:
    group = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)  # type: ignore[attr-defined]  # a group has commands


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"orchestrate {version('orchestrator')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Usage: orchestrate {command} ")
    assert said.err == ""


def test_the_script_alone_shows_what_there_is(console: Console) -> None:
    said = console.run()
    assert (said.code, said.err) == (0, "")
    for command in COMMANDS:
        assert f"\n  {command} " in said.out


OF_TUNE = ("tune check", "tune apply", "tune revert")
NAMING_A_CLUSTER = (*(set(COMMANDS) - {"apply", "explain", "tune"}), *OF_TUNE)


@pytest.mark.parametrize("command", sorted(NAMING_A_CLUSTER))
def test_every_command_that_names_a_cluster_takes_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--help"]) == 0
    assert "--cluster" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        "restart",
        "post-bulk-index",
        "force-merge",
        "apply",
        "resume",
        "restore",
        "pause",
        "stop",
        "tune apply",
        "tune revert",
    ],
)
def test_every_command_that_changes_something_takes_yes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--help"]) == 0
    assert "--yes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bogus", "No such command 'bogus'; see `orchestrate --help`"),
        (
            "restrt",
            "No such command 'restrt'. Did you mean 'restart', 'restore'? See `orchestrate --help`",
        ),
        ("restart", "Missing option '--cluster'; see `orchestrate restart --help`"),
        ("restart prod", "The cluster is an option: --cluster prod; see `orchestrate restart --help`"),
        (
            "restart http://ann:secret@es1:9200",
            "The cluster is an option: --cluster NAME_OR_PATH; see `orchestrate restart --help`",
        ),
        ("restart a/b.yml", "The cluster is an option: --cluster a/b.yml; see `orchestrate restart --help`"),
        ("restart --only es1", "Missing option '--cluster'; see `orchestrate restart --help`"),
        (
            "plan --cluster http://ann:secret@es1:9200",
            f"a URL is not the name of a cluster: name its file. {URLS}",
        ),
        ("plan --cluster no/prod.yml", "no/prod.yml: there is no such cluster file"),
        (
            "rehearse --cluster x --seed -1",
            "Invalid value for '--seed': must be at least 0; see `orchestrate rehearse --help`",
        ),
        (
            "restart --clster prod",
            "No such option: --clster. Did you mean --cluster? See `orchestrate restart --help`",
        ),
        ("restart --cluster", "Option '--cluster' requires an argument; see `orchestrate --help`"),
        ("restart --cluster x --bogus", "No such option: --bogus; see `orchestrate restart --help`"),
        (
            "restart --cluster x y",
            "Unexpected argument (y); see `orchestrate restart --help`",
        ),
        (
            "plan --cluster x --output xml",
            (
                "Invalid value for '--output': 'xml' is not one of 'text', 'plain', 'json'; "
                "see `orchestrate plan --help`"
            ),
        ),
        (
            "plan --cluster x --pause-after two",
            "Invalid value for '--pause-after': must be a whole number; see `orchestrate plan --help`",
        ),
        ("apply", "Missing argument 'PLAN.JSON'; see `orchestrate apply --help`"),
        ("restart --cluster a --yes --cluster b", "--cluster is given twice; give it once"),
        ("plan --cluster=a --strategy node --strategy=zone", "--strategy is given twice; give it once"),
        ("tune check --cluster a --profile x --profile y", "--profile is given twice; give it once"),
        ("init --endpoint a --endpoint b", "--endpoint is given twice; give it once"),
        ("status -- --state --state", "Unexpected argument (--state); see `orchestrate status --help`"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"orchestrate: {message}\n"


def _files(console: Console, playbook: str = "kind: elasticsearch\n") -> tuple[str, str]:
    cluster, book = console.folder / "prod.yml", console.folder / "book.yml"
    cluster.write_text(CLUSTER)
    book.write_text(playbook)
    return str(cluster), str(book)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("notify: []", "book.yml:2: notify: not in this version"),
    ],
)
def test_keys_of_a_later_version_are_refused_as_such(
    console: Console, capsys: pytest.CaptureFixture[str], keys: str, message: str
) -> None:
    cluster, book = _files(console, f"kind: elasticsearch\n{keys}\n")
    assert run(["plan", "--cluster", cluster, "--playbook", book]) == 2
    assert capsys.readouterr().err == f"orchestrate: {console.folder}/{message}\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--strategy nod", "--strategy nod: unknown; did you mean `node`?"),
        (
            "--max-unavailable 0",
            "--max-unavailable 0: must be a whole number of at least 1, or a percentage such as 10%",
        ),
        (
            "--disable-predicate nonsense_rule",
            "--disable-predicate nonsense_rule: there is no such predicate; known: observation_is_fresh, ",
        ),
        (
            "--disable-predicate ring_ready=es1",
            "--disable-predicate ring_ready: this is a predicate of riak clusters, and this cluster is ",
        ),
        (
            "--disable-predicate lease_is_held",
            "--disable-predicate lease_is_held: this one cannot be switched off",
        ),
        ("--pause-after 0", "--pause-after 0: must be at least 1"),
        ("--timeout 10", "--timeout 10: must be a duration with its unit, such as 90s, 10m, 8h or 30d"),
        ("--only es1 --exclude es1", "--only es1 and --exclude es1 contradict each other"),
        ("--only es1 --only es1 --exclude *", "--exclude '*': leaves no node to restart"),
    ],
)
def test_wrong_flags_are_told_before_the_cluster_is_asked(
    console: Console, capsys: pytest.CaptureFixture[str], flags: str, message: str
) -> None:
    """Nothing listens at the endpoint: a message about the flag shows that it was looked at first."""
    cluster, book = _files(console)
    assert run(["plan", "--cluster", cluster, "--playbook", book, *flags.split()]) == 2
    assert capsys.readouterr().err.startswith(f"orchestrate: {message}")


def test_the_pages_help_tells_the_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["restart", "--help"]) == 0
    assert "node" in re.search(r"--strategy.*", capsys.readouterr().out)[0]  # type: ignore[index]  # or it fails


def test_a_restart_without_terminal_and_yes_begins_nothing(console: Console) -> None:
    cluster, _ = _files(console)
    said = console.run("restart", "--cluster", cluster)
    assert said.code == 2
    assert said.message == "there is no terminal for the question: check with `--dry-run`, then add --yes"
    assert not console.state.exists()


def _left_run(console: Console, *events: Event) -> str:
    """A state file with one run in it, of which `events` are told; its id."""
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    listed = entry("20261101-0300-abcd", "boot/1/2/3", cluster="prod", uuid="u")
    journal = store.create_run(listed)
    policy = Policy(kind=Kind.ELASTICSEARCH, cluster="prod")
    begun = RunStarted(
        cluster="prod",
        cluster_uuid="u",
        version="9.1.0",
        policy=policy,
        nodes=(NodeName("es1"),),
        operator="ann",
        host="bastion",
    )
    journal.append([begun, *events], 1.0)
    store.close()
    return listed.run


def test_without_a_terminal_and_without_yes_a_run_is_not_resumed(console: Console) -> None:
    run_id = _left_run(console)
    said = console.run("resume")
    assert said.code == 2
    look = f"`orchestrate status {run_id} --state sqlite:///{console.state}`"
    assert said.message == f"there is no terminal for the question: check with {look}, then add --yes"


def test_a_run_that_is_done_owes_nothing_and_stays_done(console: Console) -> None:
    run_id = _left_run(console, RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0))
    said = console.run("restore", run_id)
    assert (said.code, said.message) == (0, f"run {run_id} has nothing to restore: it ended done")
    (past,) = console.run("history", "--output", "json").lines[:-1]
    assert past["outcome"] == "done"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("restart --cluster {cluster} --timeout 5", "--timeout 5: must be a duration"),
        ("resume", "there is no such file; no run was begun with it yet, or it was lost"),
        ("apply {plan}", "is no saved plan"),
    ],
)
def test_wrong_flags_are_reported_before_a_missing_terminal(
    console: Console, line: str, message: str
) -> None:
    cluster, _ = _files(console)
    plan = console.folder / "plan.json"
    plan.write_text("{}")
    said = console.run(*line.format(cluster=cluster, plan=plan).split())
    assert said.code == 2
    assert message in said.message
    assert not console.state.exists()


@pytest.mark.parametrize("line", ["bogus", "plan --cluster nope", "status"])
def test_json_ends_with_the_summary_of_a_refusal(console: Console, line: str) -> None:
    said = console.run(*line.split(), "--output", "json")
    assert said.code == 2
    assert [each["event"] for each in said.lines] == ["summary"]
    summary = said.lines[-1]
    assert (summary["outcome"], summary["exit_code"], summary["run"]) == ("refused", 2, None)
    assert summary["message"] == said.message
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", summary["ts"])


def test_a_wrong_name_of_a_node_comes_before_the_question(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    with SmallCluster() as cluster:
        file = cluster.write_file(console.folder)
        state = f"sqlite:///{console.state}"
        for words, says in (("--only es9", "no node is called es9"), ("--only es1", "there is no terminal")):
            line = ["restart", "--cluster", file, *words.split(), "--state", state]
            assert run(line) == ExitCode.USAGE
            assert says in capsys.readouterr().err


def test_a_node_that_is_down_is_not_taken_for_a_wrong_name(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    with SmallCluster() as cluster:
        for expected, says in ((4, "es1, es2, es3: 4 are expected, so start what is down\n"), (3, "es3\n")):
            file = cluster.write_file(console.folder, expect={"nodes": expected})
            assert run(["plan", "--cluster", file, "--only", "es4"]) == ExitCode.USAGE
            assert capsys.readouterr().err.endswith(says)


def test_a_restore_of_an_unreachable_cluster_makes_no_state(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    (console.folder / "prod.yml").write_text(CLUSTER)
    line = ["restore", "--cluster", str(console.folder / "prod.yml"), "--state", f"sqlite:///{console.state}"]
    assert run(line) != ExitCode.DONE
    assert "Connection refused" in capsys.readouterr().err
    assert not console.state.exists()


WITHOUT_IT = "without it `orchestrate restore --cluster NAME` works from the record in the cluster"


@pytest.mark.parametrize("line", ["resume --yes", "restore", "stop", "pause", "status", "history"])
def test_what_needs_a_run_makes_no_state_file(
    console: Console, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert run([*line.split(), "--state", f"sqlite:///{console.state}"]) == 2
    said = "there is no such file; no run was begun with it yet, or it was lost"
    assert capsys.readouterr().err == f"orchestrate: state file {console.state}: {said}; {WITHOUT_IT}\n"
    assert not console.state.exists()


@pytest.mark.parametrize("line", ["resume --yes", "restore", "status"])
@pytest.mark.parametrize("content", ["", "once upon a time\n" * 100])
def test_a_lost_state_names_the_way_without_it(
    console: Console, capsys: pytest.CaptureFixture[str], line: str, content: str
) -> None:
    console.state.write_text(content)
    assert run([*line.split(), "--state", f"sqlite:///{console.state}"]) == 2
    said = capsys.readouterr().err
    assert WITHOUT_IT in said
    assert ("it is empty" in said) is (content == "")
    assert console.state.read_text() == content


def test_a_state_file_that_cannot_be_read_is_told_once(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    console.state.write_text("once upon a time\n" * 100)
    assert run(["restore", "--state", f"sqlite:///{console.state}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orchestrate: ")
    assert "not an SQLite database" in line


def test_a_message_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--cluster", "/\x1b[2J\u202e.yml"]) == 2
    assert capsys.readouterr().err == "orchestrate: /\\x1b[2J\\u202e.yml: there is no such cluster file\n"


def test_no_colour_where_none_is_wanted(console: Console) -> None:
    coloured = Console(home=console.home, folder=console.folder, environment={"NO_COLOR": "1"})
    for said in (coloured.run("--help"), coloured.run("plan", "--cluster", "nope"), console.run("--help")):
        assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_given_to_the_shells(console: Console, shell: str) -> None:
    """Asked as a shell's start-up file asks: `--show-completion` goes by the process that it is run from."""
    asked = {"_ORCHESTRATE_COMPLETE": f"source_{shell}"}
    said = Console(home=console.home, folder=console.folder, environment=asked).run()
    assert said.code == 0, said.err
    assert "_ORCHESTRATE_COMPLETE" in said.out


def test_completion_completes(console: Console) -> None:
    words = {"_ORCHESTRATE_COMPLETE": "complete_bash", "COMP_WORDS": "orchestrate res", "COMP_CWORD": "1"}
    said = Console(home=console.home, folder=console.folder, environment=words).run()
    assert said.out.split() == ["restart", "resume", "restore"], said.err


@pytest.mark.parametrize("output", [["--output", "json"], ["--output=json"]])
def test_a_wrong_command_line_ends_with_a_summary_in_json(
    output: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *output]) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["event"], said["exit_code"]) == ("summary", 2)


@pytest.mark.parametrize("line", ["--help", "restart --help", "history --output json"])
def test_a_reader_that_has_gone_is_no_error(console: Console, line: str) -> None:
    """As `orchestrate … | head -0` does."""
    ended_run(console)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(  # noqa: S603  (the program under test)
            [str(SCRIPT), *line.split()],
            check=False,
            env=console.variables(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode in {0, 141}  # 1 is a defect


def test_json_lines_hold_one_object_each(console: Console) -> None:
    said = console.run("history", "--output", "json", "--state", f"sqlite:///{console.home}/none.db")
    assert said.code == 2
    assert [json.loads(line)["event"] for line in said.out.splitlines()] == ["summary"]


def test_an_output_that_is_full_is_said_to_be(console: Console) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(  # noqa: S603  (the program under test)
            [SCRIPT, "restart", "--help"],
            env=console.variables(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    assert ended.stderr == "orchestrate: standard output cannot be written: No space left on device\n"
    assert ended.returncode == ExitCode.USAGE


@pytest.mark.parametrize("command", ["post-bulk-index", "force-merge"])
def test_help_marks_what_is_required(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run([command, "--help"]) == ExitCode.DONE
    said = " ".join(capsys.readouterr().out.split())
    for option in ("--index", "--cluster"):
        assert "[required]" in said.partition(f" {option} ")[2].partition(" --")[0], option


@pytest.mark.parametrize(
    ("option", "default"),
    [
        ("--strategy", "Default: that of the playbook, or `node`."),
        (
            "--max-unavailable",
            (
                "Default: that of the playbook, or 1 (with `zone`: the whole zone; with `shard- safe`: "
                "as many as the largest zone has, without zones a third)."
            ),
        ),
        ("--no-tune", "Default: if the playbook names a profile."),
    ],
)
def test_help_shows_what_holds_without_an_option(
    capsys: pytest.CaptureFixture[str], option: str, default: str
) -> None:
    assert run(["restart", "--help"]) == ExitCode.DONE
    said = " ".join(capsys.readouterr().out.split())
    assert default in said.partition(f"{option} ")[2].partition(" --")[0]


@pytest.mark.parametrize("of", [(), ("--cluster", "prod")])
def test_status_and_history_without_a_run_name_the_state(console: Console, of: tuple[str, ...]) -> None:
    """The usual place: a state file that is named and is not there is another error."""
    folder = console.home / "states"
    (console.folder / "configs/clusters").mkdir(parents=True)
    (console.folder / "configs/clusters/prod.yml").write_text(CLUSTER)
    usual = replace(console, environment={"ORCHESTRATE_STATE": "", "XDG_STATE_HOME": str(folder)})
    status, history = (usual.run(command, *of) for command in ("status", "history"))
    assert (status.code, history.code) == (2, 2)
    assert status.err == history.err
    assert "/state.db" in history.err
    assert not folder.exists()


@pytest.mark.parametrize("line", ["explain {}", "{}", "status --output {}", "plan --cluster lab --bogus={}"])
def test_no_message_repeats_a_login_or_fills_the_screen(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in ("https://ann:hunter2@es1:9200", "x" * 100_000):
        assert run(line.format(word).split()) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert "hunter2" not in said
        assert len(said) < 2000
