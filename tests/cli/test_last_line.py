"""The last line of `--output json` is the summary, whatever the command."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from socket import socket
from typing import Any

import pytest

from orchestrator.cli.context import context_of, left_at_once
from orchestrator.cli.options import Output
from orchestrator.cli.program import run
from orchestrator.engine.state import RunState, Unrestored
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Requested, RunStarted
from orchestrator.model.phase import Request
from orchestrator.model.policy import Kind, Policy
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.runs import entry
from tests.cli.small_cluster import NODES, SmallCluster

RUN = "20261121-0413-x7k2"
Ends = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture
def ends(console: Console, capsys: pytest.CaptureFixture[str]) -> Ends:
    """Run a command with `--output json`; its lines, the last one checked."""

    def check(*command: str, code: ExitCode = ExitCode.DONE, outcome: str = "done") -> list[dict[str, Any]]:
        state = f"sqlite:///{console.state}"
        given = () if command[0] == "validate" else ("--state", state)
        assert run([*command, *given, "--output", "json"]) == code
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        last = lines[-1]
        assert (last["event"], last["outcome"], last["exit_code"]) == ("summary", outcome, code)
        assert all({"ts", "run", "event"} <= set(line) for line in lines)
        return lines

    return check


@pytest.fixture
def under_way(console: Console) -> None:
    """A run in the state file, of a process that lives: this one."""
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    listed = entry(RUN, str(current_process()))
    started = RunStarted(
        cluster="lab",
        cluster_uuid="uuid",
        version="8.19.0",
        distribution="elasticsearch",
        policy=Policy(kind=Kind.ELASTICSEARCH, cluster="lab"),
        nodes=NODES,  # type: ignore[arg-type]  # names
        operator="anna",
        host="bastion1",
        addresses={},
        cluster_file="lab.yml",
    )
    store.create_run(listed).append([started], 1000.0)
    store.close()


@pytest.mark.parametrize("output", Output)
def test_the_last_words_of_a_second_signal(output: Output) -> None:
    state = RunState(run=RUN, unrestored=Unrestored(excluded=frozenset({NodeName("es1\x1b[2J")})))
    words = left_at_once(state, context_of(output))
    assert r"NOT RESTORED: excluded from voting: es1\x1b[2J" in words.error
    assert words.error.replace("\n", "").isprintable()
    if output is Output.JSON:
        assert json.loads(words.output)["exit_code"] == ExitCode.NOT_RESTORED


@pytest.mark.parametrize("command", ["pause", "stop"])
@pytest.mark.usefixtures("under_way")
def test_a_request_that_was_left(command: str, ends: Ends) -> None:
    (only,) = ends(command)
    assert only["run"] == RUN
    assert only["message"].startswith(f"asked run {RUN} on lab to ")
    (again,) = ends(command)
    assert again["message"].startswith(f"asked run {RUN} on lab to "), "the run has not read it yet"


@pytest.mark.parametrize("command", ["pause", "stop"])
@pytest.mark.usefixtures("under_way")
def test_a_request_needs_no_journal_that_can_be_read(command: str, ends: Ends, console: Console) -> None:
    """As that of a run that a later version of the program began."""
    with closing(sqlite3.connect(console.state)) as state, state:
        state.execute('UPDATE events SET event = \'{"event": "of_later"}\'')
    (only,) = ends(command)
    assert only["message"].startswith(f"asked run {RUN} on lab to ")


@pytest.mark.usefixtures("under_way")
def test_a_request_that_the_run_has_read_already(ends: Ends, console: Console) -> None:
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    journal = store.journal(RUN)
    journal.append([Requested(request=Request.PAUSE, by="anna@bastion1")], 1001.0)
    store.close()
    (only,) = ends("pause")
    assert only["message"].startswith(f"run {RUN} on lab was already asked by anna@bastion1 to pause")
    (only,) = ends("stop")
    assert only["message"].startswith(f"asked run {RUN} on lab to ")


@pytest.mark.usefixtures("under_way")
def test_status(ends: Ends) -> None:
    assert [(line["event"], line["run"]) for line in ends("status")] == [("status", RUN), ("summary", RUN)]


@pytest.mark.usefixtures("under_way")
def test_history(ends: Ends) -> None:
    lines = ends("history")
    assert [line["event"] for line in lines] == ["past_run", "summary"]
    assert lines[-1]["runs"] == 1


def test_a_plan(ends: Ends, cluster: SmallCluster, console: Console) -> None:
    console.state.touch()
    lines = ends("plan", "--cluster", cluster.write_file(console.folder))
    assert [line["event"] for line in lines] == ["plan", "summary"]


def test_a_plan_for_people_cannot_drive_the_terminal(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    with SmallCluster((*NODES, "es4\x1b[2J")) as server:
        file = server.write_file(console.folder, expect={"nodes": 4})
        state = f"sqlite:///{console.state}"
        assert run(["plan", "--cluster", file, "--state", state]) == ExitCode.DONE
        assert run(["validate", "--cluster", file]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert said.count(r"es4\x1b[2J") > 4


def test_a_dry_run_that_is_held(ends: Ends, cluster: SmallCluster, console: Console) -> None:
    console.state.touch()
    file = cluster.write_file(console.folder, expect={"nodes": 4})
    lines = ends("restart", "--dry-run", "--cluster", file, code=ExitCode.HELD, outcome="held")
    assert lines[-1]["holds"]


def test_what_validate_finds(ends: Ends, cluster: SmallCluster, console: Console) -> None:
    service = {"manager": "command", "stop": "no-such-program", "start": "true", "status": "true"}
    file = cluster.write_file(console.folder, hosts={"service": service})
    lines = ends("validate", "--cluster", file, code=ExitCode.HELD, outcome="held")
    assert lines[-1]["bad"] > 0


def test_validate_asks_every_endpoint(ends: Ends, cluster: SmallCluster, console: Console) -> None:
    """A run needs one that answers; when its node goes down it needs the next."""
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        file = cluster.write_file(console.folder, endpoints=[cluster.url, nowhere])
        lines = ends("validate", "--cluster", file, code=ExitCode.HELD, outcome="held")
    told = {line["good"]: line["message"] for line in lines if line.get("point") == "endpoint"}
    assert told[True] == f"{cluster.url} answers"
    assert nowhere in told[False]
    assert lines[-1]["bad"] == 1


def test_a_restore_that_owes_nothing(ends: Ends, cluster: SmallCluster, console: Console) -> None:
    console.state.touch()
    (only,) = ends("restore", "--cluster", cluster.write_file(console.folder))
    assert only["left"] == []
    assert cluster.templates == {}


@pytest.mark.parametrize("stronger", [Request.STOP, Request.INTERRUPT])
@pytest.mark.usefixtures("under_way")
def test_a_milder_request_after_a_stronger_one(stronger: Request, ends: Ends, console: Console) -> None:
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    store.journal(RUN).append([Requested(request=stronger, by="anna@bastion1")], 1001.0)
    store.close()
    (only,) = ends("pause")
    assert only["message"].startswith(
        f"run {RUN} on lab was already asked by anna@bastion1 to stand down now; this request to pause"
        " adds nothing"
    )
