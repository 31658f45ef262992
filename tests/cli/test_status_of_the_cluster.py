"""`status` where a journal ends before the changes in it were restored: the cluster has what is so now.

Besides the full disk, these inputs were written down before the fix: a database that another process keeps
locked, a folder of the state that became read-only, and a process that was killed between its last restore
and the commit.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.engine.fold import replay
from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.event import Event, GoodReading, PhaseEntered, RunFinished, RunStarted
from orchestrator.model.host_event import AccessRefused
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Refusal
from orchestrator.runs import cluster_now
from orchestrator.runtime import database
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.store import StateStore, open_store
from tests.cli.console import Console
from tests.cli.runs import RUN, entry
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import hang
from tests.simulation import play
from tests.tools import heeding_modes

ALIVE = str(current_process())
GONE = str(replace(current_process(), pid=2**22 + 1, started=1))  # above the highest pid that Linux gives
SINCE = "1970-01-01T00:16:40Z"
UNKNOWN = f"not restored: unknown since {SINCE}, "
UNWRITTEN = "the state could not be written"
READ = "read from the cluster now"

Status = Callable[..., str]


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]) -> Status:
    """Runs `status`; what it prints."""

    def shown(*words: str) -> str:
        assert run(["status", RUN, *words]) == ExitCode.DONE
        return capsys.readouterr().out

    return shown


def until_the_stop(file: str, kind: Kind = Kind.ELASTICSEARCH) -> list[Event]:
    """The events of a run until its first node stops: allocation is disabled, and limits are raised."""
    world = play.cluster(3)
    world.name = "lab"
    simulation, _ = play.run(world, wanted=play.policy(cluster="lab"))
    events: list[Event] = []
    for record in simulation.journal.records:
        event = record.event
        if isinstance(event, RunStarted):
            event = replace(event, cluster="lab", cluster_uuid="uuid", cluster_file=file)
            event = replace(event, policy=replace(event.policy, kind=kind))
        events.append(event)
        if isinstance(event, PhaseEntered) and event.to == NodePhase.STOPPING.value:
            return events
    raise AssertionError("no node was stopped")


def begun(store: StateStore, file: str, process: str = GONE) -> SqlJournal:
    """The run in the state, until its first node stops."""
    journal = store.create_run(entry(RUN, process))
    journal.append(until_the_stop(file), 1000.0)
    return journal


def changed(store: StateStore, cluster: SmallCluster) -> None:
    """The cluster has the values that the run has set."""
    for change in replay(RUN, store.replay(RUN)).unrestored.settings.values():
        cluster.settings[change.level.value][change.key] = change.wanted


def test_a_run_that_restored_everything_before_the_kill(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    """Its process was killed between its last restore and the commit."""
    begun(store, cluster.write_file(console.folder))
    said = status()
    assert f"not restored: nothing, {READ}; the journal ends at {SINCE}\n" in said
    assert "; now absent (restored)\n" in said
    assert "node es2: stopping; now a member of the cluster (restored)\n" in said
    assert UNWRITTEN not in said
    assert f"to close the run: orchestrate restore {RUN}" in said
    assert "to restore:" not in said
    assert not [asked for asked in cluster.asked if asked.method != "GET"], "it only reads"
    assert not [asked for asked in cluster.asked if "template" in asked.path], "no lease"


def test_changes_that_are_there_and_changes_by_others(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    begun(store, cluster.write_file(console.folder))
    changed(store, cluster)
    keys = sorted(cluster.settings[Level.PERSISTENT.value])
    cluster.settings[Level.PERSISTENT.value][keys[-1]] = "42"
    said = status()
    assert f"not restored: {len(keys) - 1} of {len(keys) + 1} listed changes, {READ};" in said
    assert "; now 42 (changed outside this run)\n" in said
    assert "; now primaries (not restored)\n" in said
    assert f"to restore: orchestrate restore {RUN}" in said
    found = json.loads(status("--output", "json").splitlines()[0])
    assert len(found["not_put_back"]) == len(keys) + 1
    assert found["unwritten"] is False
    changes: list[dict[str, Any]] = found["cluster_now"]["changes"]
    assert [one["listed"] for one in changes] == found["not_put_back"]
    assert [one["found"] for one in changes].count("changed") == 1
    assert changes[-1] == {
        "listed": "node es2: stopping",
        "found": "restored",
        "now": "a member of the cluster",
    }
    assert found["cluster_now"]["why_not"] is None


def test_a_node_that_is_no_member(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    begun(store, cluster.write_file(console.folder))
    cluster.nodes = {node: name for node, name in cluster.nodes.items() if name != "es2"}
    assert "node es2: stopping; now not a member (not restored)\n" in status()


def test_a_cluster_out_of_reach(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    begun(store, cluster.write_file(console.folder))
    cluster.__exit__(None, None, None)
    said = status()
    assert f"{UNKNOWN}the last record of the journal; the cluster was not read: " in said
    assert f"to restore: orchestrate restore {RUN}" in said
    found = json.loads(status("--output", "json").splitlines()[0])
    assert (found["cluster_now"]["read_at"], found["cluster_now"]["changes"]) == (None, [])
    assert found["cluster_now"]["why_not"]


def test_a_riak_cluster_is_not_read(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    journal = store.create_run(entry(RUN, GONE))
    journal.append(until_the_stop(cluster.write_file(console.folder), Kind.RIAK), 1000.0)
    assert "the cluster was not read: a Riak cluster is read by commands on its hosts" in status()
    assert cluster.asked == []


def test_what_a_run_said_at_its_end_is_certain_until_then(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    journal = begun(store, cluster.write_file(console.folder))
    journal.append([RunFinished(outcome=Outcome.NOT_RESTORED, exit_code=8, seconds=1.0)], 1001.0)
    assert f"not restored: nothing, {READ}; the journal ends at " in status()
    cluster.__exit__(None, None, None)
    assert "not restored: 5 when the run ended; the cluster was not read: " in status()


def test_a_cluster_that_does_not_answer_is_left_out(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    begun(store, cluster.write_file(console.folder))
    cluster.on("/_nodes/_local/http", hang)
    began = time.monotonic()
    assert "the cluster was not read: it has not answered within 3s" in status()
    assert time.monotonic() - began < cluster_now.LIMIT + 2


def test_a_defect_in_the_comparison_does_not_hide_the_journal(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    status: Status,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("hunter2")

    begun(store, cluster.write_file(console.folder))
    monkeypatch.setattr(cluster_now, "_read", fails)
    said = status()
    assert "the cluster was not read: a defect of the program: KeyError;" in said
    assert "hunter2" not in said
    assert f"to restore: orchestrate restore {RUN}" in said


@pytest.mark.parametrize("ago", [0.0, 61.0])
def test_a_secret_refused_a_moment_ago_is_not_sent_again(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    status: Status,
    ago: float,
) -> None:
    refusal = Refusal(endpoint=cluster.url, credentials="user op", source="env:PW")
    journal = begun(store, cluster.write_file(console.folder))
    journal.append([AccessRefused(refusal=refusal, reading=True)], time.time() - ago)
    said = "(401; secret from env:PW) a moment ago"
    assert (said in status()) is (ago == 0.0)
    assert (cluster.asked == []) is (ago == 0.0)


def test_a_missing_secret_and_another_cluster_are_named(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    basic = {"username": "op", "password": "env:NO_SUCH_PASSWORD"}
    begun(store, cluster.write_file(console.folder, auth={"basic": basic}))
    assert "NO_SUCH_PASSWORD" in status().split("the cluster was not read: ")[1]
    assert cluster.asked == []
    cluster.write_file(console.folder, name="other")
    assert "`name` is 'other'" in status()


def test_a_full_disk_is_known_later(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    status: Status,
    capsys: pytest.CaptureFixture[str],
) -> None:
    journal = begun(store, cluster.write_file(console.folder))
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(JournalError, match="no space is left on its disk"):
        journal.append([GoodReading(count=1)] * 1000, 2.0)
    assert f"not restored: nothing, {READ}; the journal ends at {SINCE}, {UNWRITTEN}\n" in status()
    assert json.loads(status("--output", "json").splitlines()[0])["unwritten"] is True
    assert run(["history"]) == ExitCode.DONE
    past = capsys.readouterr().out
    assert f"outcome unknown, {UNWRITTEN}; `status` reads the cluster: {RUN}" in past
    cluster.__exit__(None, None, None)
    assert f"{UNKNOWN}{UNWRITTEN}; the cluster was not read: " in status()
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    journal.append([GoodReading(count=1)] * 1000, 2.0)
    assert UNWRITTEN not in status(), "the last events are written after all"


def test_a_locked_database_is_known_later(
    console: Console,
    cluster: SmallCluster,
    status: Status,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process of the run is alive: what it restores now is not in its journal either."""
    url = f"sqlite:///{console.state}"
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    store = open_store(url, {}, access=Access.WRITE)
    journal = begun(store, cluster.write_file(console.folder), ALIVE)
    with sqlite3.connect(console.state, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="kept it locked"):
            journal.append([GoodReading(count=1)], 2.0)
        said = status("--state", url)
        assert f"not restored: nothing, {READ}; the journal ends at {SINCE}, {UNWRITTEN}\n" in said
        other.execute("ROLLBACK")
    journal.append([GoodReading(count=1)], 2.0)
    assert UNWRITTEN not in status("--state", url)
    store.close()


APPENDS = """
import sys
from orchestrator.errors import JournalError
from orchestrator.model.event import GoodReading
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
journal = open_store(sys.argv[1], {}, access=Access.READ).journal(sys.argv[2])
journal._begun = True
try:
    journal.append([GoodReading(count=1)], 2.0)
except JournalError as error:
    print("not written:", error)
"""


def test_a_folder_that_became_read_only(
    console: Console, cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    """No mark can be made there: the cause stays unknown, and the cluster is read."""
    begun(store, cluster.write_file(console.folder))
    console.state.parent.chmod(0o555)
    url = f"sqlite:///{console.state}"
    try:
        done = subprocess.run(  # noqa: S603  (our own script)
            [*heeding_modes(), sys.executable, "-c", APPENDS, url, RUN],
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.stdout.startswith("not written: "), done.stderr
        assert f"not restored: nothing, {READ}; the journal ends at {SINCE}" in status()
    finally:
        console.state.parent.chmod(0o755)
