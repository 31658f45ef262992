"""The last line of `--output json` is the summary, whatever the command."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from orchestrator.cli.context import context_of, left_at_once
from orchestrator.cli.options import Output
from orchestrator.engine.state import RunState, Unrestored
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Requested
from orchestrator.model.phase import Request
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.store import StateStore
from tests.cli.console import Console
from tests.cli.runs import entry, started
from tests.cli.small_cluster import NODES, SmallCluster
from tests.ports import free_port

RUN = "20261121-0413-x7k2"
Ends = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ends(console: Console) -> Ends:
    """Run a command with `--output json`; its lines, the last one checked."""

    def check(*command: str, code: ExitCode = ExitCode.DONE, outcome: str = "done") -> list[dict[str, Any]]:
        said = console.run(*command, "--output", "json")
        last = said.lines[-1]
        assert said.code == code
        assert (last["event"], last["outcome"], last["exit_code"]) == ("summary", outcome, code)
        assert all({"ts", "run", "event"} <= set(line) for line in said.lines)
        return said.lines

    return check


@pytest.fixture
def journal(store: StateStore) -> SqlJournal:
    """Of a run in the state file, of a process that lives: this one."""
    journal = store.create_run(entry(RUN, str(current_process())))
    journal.append([started(cluster_file="lab.yml")], 1000.0)
    return journal


@pytest.mark.parametrize("output", Output)
def test_the_last_words_of_a_second_signal(output: Output) -> None:
    state = RunState(run=RUN, unrestored=Unrestored(excluded=frozenset({NodeName("es1\x1b[2J")})))
    words = left_at_once(state, context_of(output))
    assert r"NOT RESTORED: excluded from voting: es1\x1b[2J" in words.error
    assert words.error.replace("\n", "").isprintable()
    if output is Output.JSON:
        assert json.loads(words.output)["exit_code"] == ExitCode.NOT_RESTORED


ASKED = f"run {RUN} on lab was already asked by anna@bastion1 to"


@pytest.mark.parametrize("command", ["pause", "stop"])
@pytest.mark.usefixtures("journal")
def test_a_request_that_the_run_has_not_read_is_repeated(command: str, ends: Ends, console: Console) -> None:
    """Also where the journal cannot be read, as that of a later version."""
    for again in range(3):
        if again == 2:
            with closing(sqlite3.connect(console.state)) as state, state:
                state.execute('UPDATE events SET event = \'{"event": "of_later"}\'')
        (only,) = ends(command)
        assert only["run"] == RUN
        assert only["message"].startswith(f"asked run {RUN} on lab to ")


def test_a_request_that_the_run_has_read_adds_nothing(ends: Ends, journal: SqlJournal) -> None:
    journal.append([Requested(request=Request.PAUSE, by="anna@bastion1")], 1001.0)
    (only,) = ends("pause")
    assert only["message"].startswith(f"{ASKED} pause")
    (only,) = ends("stop")
    assert only["message"].startswith(f"asked run {RUN} on lab to "), "it is stronger"


@pytest.mark.parametrize("stronger", [Request.STOP, Request.INTERRUPT])
def test_a_milder_request_after_a_stronger_one(stronger: Request, ends: Ends, journal: SqlJournal) -> None:
    journal.append([Requested(request=stronger, by="anna@bastion1")], 1001.0)
    (only,) = ends("pause")
    assert only["message"].startswith(f"{ASKED} stand down now; this request to pause adds nothing")


@pytest.mark.usefixtures("journal")
def test_status_and_history_end_with_a_summary(ends: Ends) -> None:
    assert [(line["event"], line["run"]) for line in ends("status")] == [("status", RUN), ("summary", RUN)]
    lines = ends("history")
    assert [line["event"] for line in lines] == ["past_run", "summary"]
    assert lines[-1]["runs"] == 1


def test_plan_and_validate_end_with_a_summary(ends: Ends, cluster: SmallCluster, console: Console) -> None:
    """Of `validate`: a run needs one endpoint that answers; when its node goes down it needs the next."""
    lines = ends("plan", "--cluster", cluster.write_file(console.folder))
    assert [line["event"] for line in lines] == ["plan", "summary"]
    held = {"code": ExitCode.HELD, "outcome": "held"}
    file = cluster.write_file(console.folder, expect={"nodes": 4})
    assert ends("restart", "--dry-run", "--cluster", file, **held)[-1]["holds"]
    service = {"manager": "command", "stop": "no-such-program", "start": "true", "status": "true"}
    file = cluster.write_file(console.folder, hosts={"service": service})
    assert ends("validate", "--cluster", file, **held)[-1]["bad"] > 0
    nowhere = f"http://127.0.0.1:{free_port()}"
    file = cluster.write_file(console.folder, endpoints=[cluster.url, nowhere])
    lines = ends("validate", "--cluster", file, **held)
    points = {line["good"]: line["message"] for line in lines if line.get("point") == "endpoint"}
    assert points[True] == f"{cluster.url} answers"
    assert nowhere in points[False]
    assert lines[-1]["bad"] == 1


def test_a_node_name_cannot_drive_the_terminal(console: Console) -> None:
    with SmallCluster((*NODES, "es4\x1b[2J")) as server:
        file = server.write_file(console.folder, expect={"nodes": 4})
        whole = (("plan", "--steps"), ("validate", "--verbose"))
        said = [console.run(*words, "--cluster", file) for words in whole]
    assert [one.code for one in said] == [ExitCode.DONE] * 2
    shown = said[0].out + said[1].out
    assert "\x1b" not in shown
    assert shown.count(r"es4\x1b[2J") > 4


def test_restore_without_a_record_ends_with_a_summary(
    ends: Ends, cluster: SmallCluster, console: Console, file: str
) -> None:
    console.state.touch()
    (only,) = ends("restore", "--cluster", file)
    assert only["left"] == []
    assert cluster.templates == {}
