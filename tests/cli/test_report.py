"""`report` and `history --html`: what is written, where, for whom, and what is printed."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Record
from orchestrator.runs.connection import Connection
from orchestrator.runs.from_file import connect
from orchestrator.runs.report import facts_of_run, write_at_end, write_page
from orchestrator.runtime import tables
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.sampling import Sampler
from orchestrator.runtime.store import open_store
from orchestrator.simulation.mishaps import Mishap, StartsFail
from orchestrator.view.report.facts import as_json
from orchestrator.view.report.page import run_page
from tests.cli.console import Console, Said
from tests.cli.runs import RUN, ended_run
from tests.simulation.play import cluster, killed, play, policy
from tests.simulation.program import Simulation


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def rows(said: Said) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(said.out)))


def test_the_page_of_the_newest_run_is_beside_the_state(console: Console) -> None:
    ended_run(console, run="20261001-0300-aaaa", at=1.0)
    ended_run(console, at=2.0)
    said = console.run("report")
    page = console.home / "reports" / f"{RUN}.html"
    *end, last = said.out.splitlines()
    assert (said.code, last) == (ExitCode.DONE, f"report: {page}")
    assert any(" nodes restarted in " in line for line in end), "the end of the run is shown again"
    assert (mode(page), mode(page.parent)) == (0o600, 0o700)
    text = page.read_text()
    assert f"Run {RUN}" in text
    assert "Not recorded" in text, "of a run without samples"
    older = console.run("report", "aaaa").out
    assert older.endswith(f"\nreport: {page.parent}/20261001-0300-aaaa.html\n")


def test_one_run_is_shown_with_the_time_of_each_node(console: Console) -> None:
    """`history RUN` and `report RUN` are one view; `history` writes no page."""
    ended_run(console)
    said = console.run("history", RUN.rpartition("-")[2])
    assert said.code == ExitCode.DONE, said.err
    assert not (console.home / "reports").exists()
    shown = said.out.splitlines()
    assert shown[0].split() == ["NODE", "DOWN", "RECOVERY", "IN", "ALL", "OF", "THE", "RUN"]
    nodes = [line.split() for line in shown[1 : shown.index("")]]
    assert {row[0] for row in nodes} == {"es1", "es2", "es3"}
    assert {len(row) for row in nodes} == {5}
    reported = console.run("report", RUN)
    assert reported.out.splitlines()[:-1] == shown
    figures = [console.run(command, RUN, "--output", "json").lines[0] for command in ("history", "report")]
    assert figures[0]["event"] == figures[1]["event"] == "report"
    unknown = console.run("history", "nosuch")
    assert (unknown.code, "there is no run nosuch" in unknown.err) == (ExitCode.USAGE, True)


def test_figures_are_printed_without_a_page(console: Console) -> None:
    ended_run(console)
    said = console.run("report", "--output", "json")
    (found,) = [line for line in said.lines if line["event"] == "report"]
    assert (found["run"], found["nodes_restarted"], found["outcome"]) == (RUN, 3, "done")
    table = rows(console.run("report", "--output", "csv"))
    assert {row["node"]: float(row["seconds"] or 0) for row in table} == {
        node: found["node_seconds"].get(node, 0.0) for node in ("es1", "es2", "es3")
    }
    assert not (console.home / "reports").exists()


def test_a_page_goes_to_the_file_that_is_named(console: Console) -> None:
    ended_run(console)
    wanted = console.folder / "report.html"
    wanted.write_text("<!doctype html>an older page")
    said = console.run("report", "--html", "report.html", "--output", "csv")
    assert said.err == "report: report.html\n"
    assert len(rows(said)) == 3
    assert wanted.read_text().startswith("<!doctype html>")
    assert mode(wanted) == 0o600
    refused = console.run("report", "--html", str(console.folder))
    assert refused.code == ExitCode.USAGE
    assert "the page cannot be saved" in refused.err
    assert console.run("report", "nosuch").code == ExitCode.USAGE


@pytest.mark.parametrize("command", ["report", "history"])
def test_a_page_replaces_no_other_file(console: Console, command: str) -> None:
    """Such as the state, from which it is made."""
    ended_run(console)
    (console.folder / "empty").touch()
    (console.folder / "link").symlink_to(console.state)
    before = console.state.read_bytes()
    for path in (str(console.state), "link"):
        said = console.run(command, "--html", path)
        assert said.code == ExitCode.USAGE
        assert said.message == f"{path}: the page cannot be saved: another file is there"
    assert console.state.read_bytes() == before
    for _ in range(2):
        assert console.run(command, "--html", "empty").code == ExitCode.DONE


def test_history_links_the_pages_that_there_are(console: Console) -> None:
    ended_run(console, run="20261001-0300-aaaa", at=1.0)
    ended_run(console, at=2.0)
    console.run("report")
    said = console.run("history", "--html", str(console.folder / "past.html"), "--output", "csv")
    assert said.code == ExitCode.DONE
    assert {row["run"] for row in rows(said)} == {RUN, "20261001-0300-aaaa"}
    text = (console.folder / "past.html").read_text()
    assert f"reports/{RUN}.html" in text
    assert "reports/20261001-0300-aaaa.html" not in text


def test_a_cell_is_no_formula(console: Console) -> None:
    ended_run(console, cluster="=cmd|' /C calc'!A0")
    assert [row["cluster"] for row in rows(console.run("report", "--output", "csv"))] == [
        "'=cmd|' /C calc'!A0"
    ] * 3


def test_a_secret_of_the_cluster_file_is_in_no_page(console: Console) -> None:
    secret = "correct-horse-battery"  # noqa: S105  (an example)
    (console.folder / "lab.yml").write_text(
        "kind: elasticsearch\nname: lab\nendpoints: ['http://127.0.0.1:1']\nauth: {api_key: 'file:key'}\n"
        "hosts: {connect: local}\n"
    )
    (console.folder / "key").write_text(secret)
    ended_run(console)
    with closing(sqlite3.connect(console.state)) as state, state:
        state.execute(
            "update events set event = replace(event, '\"ann\"', ?)", (f'"ann {secret} token=s3s4m3"',)
        )
    said = console.run("report", "--cluster", "./lab.yml", "--html", "page.html", "--output", "json")
    assert said.code == ExitCode.DONE, said.err
    (found,) = [line for line in said.lines if line["event"] == "report"]
    for text in (json.dumps(found), (console.folder / "page.html").read_text()):
        assert "ann [redacted] token=[redacted]" in text
        assert secret not in text


# At the end of a run ---------------------------------------------------------------------------------


class Ended:
    """A simulated run whose state is a file, and what was said at its end."""

    def __init__(self, folder: Path, *, waves: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.said = folder, list[str]()
        engine = create_engine(f"sqlite:///{folder}/state.db")
        tables.ready(engine, DatabaseUse.WRITE)
        (folder / "state.db").chmod(0o600)
        world = cluster(3)
        simulation = Simulation(world, state=engine, sampler=Sampler)
        state = simulation.begin(policy())
        if waves:
            play(simulation, state)
        simulation.flush()
        engine.dispose()
        self.run = simulation.run
        process = replace(simulation.attempt.connection.process, tell=self.said.append)
        self.connection: Connection = replace(
            simulation.attempt.connection,
            process=process,
            state=lambda access: open_store(f"sqlite:///{folder}/state.db", {}, access=access),
        )

    def write(self) -> list[str]:
        write_at_end(self.connection, self.run, lambda text: text)
        return self.said


def test_a_run_writes_its_page_at_its_end(tmp_path: Path) -> None:
    ended = Ended(tmp_path / "own")
    page = ended.folder / "reports" / "run-1.html"
    assert ended.write() == [f"report: {page}"]
    assert (mode(page), mode(page.parent)) == (0o600, 0o700)
    assert "green for" in page.read_text().lower()


def test_the_page_of_an_unfinished_run_has_the_next_command(tmp_path: Path) -> None:
    world = cluster(3)
    simulation = Simulation(world, plan=[Mishap(what=StartsFail(node=NodeName("es2"), times=9))])
    play(simulation, simulation.begin(policy()))
    facts = facts_of_run(simulation.run, simulation.records(simulation.run), lambda text: text)
    assert facts["next"] == {
        "first": "repair es2, then ",
        "command": "orchestrate resume run-1 --retry-failed",
    }
    page = run_page(facts)
    assert "Next: repair es2, then <code>orchestrate resume run-1 --retry-failed</code>" in page
    assert facts["nodes_failed"] == ["es2"]
    done = Ended(tmp_path)
    with closing(open_store(f"sqlite:///{tmp_path}/state.db", {}, access=DatabaseUse.READ)) as store:
        assert facts_of_run(done.run, store.replay(done.run), lambda text: text)["next"] is None


def test_a_killed_run_has_no_next_if_another_restored_it() -> None:
    simulation = Simulation(cluster(3))
    state = simulation.begin(policy())
    simulation.seams.crash_at = len(simulation.seams.passed) + 60
    assert killed(simulation, state)
    simulation.seams.crash_at = None
    records = simulation.records(simulation.run)

    def found(records: Sequence[Record], outcome: str | None) -> tuple[object, object]:
        facts = facts_of_run(simulation.run, records, lambda text: text, outcome=outcome)
        return facts["outcome"], facts["next"]

    assert found(records, None) == (None, {"first": "", "command": "orchestrate restore run-1"})
    assert found(records, "restored") == ("restored", None)
    play(simulation, simulation.restore())
    after = simulation.records(simulation.run)
    assert found(after, "restored") == ("restored", {"first": "", "command": "orchestrate resume run-1"})


def test_colleagues_may_write_into_the_folder_of_a_shared_state(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team").chmod(0o2770)
    ended = Ended(tmp_path / "team")
    ended.write()
    page = ended.folder / "reports" / "run-1.html"
    assert (mode(page), mode(page.parent)) == (0o600, 0o2770)


def test_a_folder_for_pages_is_made_where_no_state_file_is(tmp_path: Path) -> None:
    """As with the state in PostgreSQL."""
    folder = tmp_path / "state" / "orchestrate" / "reports"
    write_page(folder / "run-1.html", "page", folder=folder)
    assert (mode(folder), mode(folder.parent), mode(folder / "run-1.html")) == (0o700, 0o700, 0o600)


def test_a_run_without_a_wave_writes_no_page(tmp_path: Path) -> None:
    ended = Ended(tmp_path, waves=False)
    assert ended.write() == []
    assert not (tmp_path / "reports").exists()


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    (tmp_path / "reports").write_text("in the way")
    (warning,) = ended.write()
    assert warning.startswith("warning: the report of run run-1 was not written: ")
    assert warning.endswith("`orchestrate report run-1 --html FILE` writes it")


def test_json_and_page_of_a_simulated_run_are_one_fold(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    with closing(open_store(f"sqlite:///{tmp_path}/state.db", {}, access=DatabaseUse.READ)) as store:
        facts: Any = as_json(facts_of_run(ended.run, store.replay(ended.run), lambda text: text))
    assert [sample["health"] for sample in facts["samples"]][:2] == ["green", "yellow"]
    assert sum(facts["health_seconds"].values()) == pytest.approx(facts["seconds"], abs=0.01)


def test_a_connection_of_a_cluster_file_writes_the_page(console: Console) -> None:
    file = console.folder / "lab.yml"
    file.write_text("kind: elasticsearch\nname: lab\nendpoints: ['http://127.0.0.1:1']\n")
    ended_run(console)
    said = list[str]()
    with connect(file, state=console.url, tell=said.append) as connection:
        connection.process.ended(RUN)
    assert said == [f"report: {console.home}/reports/{RUN}.html"]
