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
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.fold import replay
from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.event import Event, GoodReading, PhaseEntered, RunFinished, RunStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Refusal
from orchestrator.model.work_event import AccessRefused
from orchestrator.runs import past_runs
from orchestrator.runtime import database
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.view.text import day_and_minute
from tests.cli.console import Console
from tests.cli.runs import RUN, entry, events_of
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import hang
from tests.tools import heeding_modes

ALIVE = str(current_process())
GONE = str(replace(current_process(), pid=2**22 + 1, started=1))  # above the highest pid that Linux gives
SINCE = day_and_minute(1000.0)
WHAT = "4 settings, es2"
UNKNOWN = f"NOT RESTORED: {WHAT}, as of {SINCE}, "
NOTHING = f"Restored: nothing is left of {WHAT}; "
UNWRITTEN = "the state could not be written"
READ = "read from the cluster now"
EITHER = f"Now         continue, or only restore:\n    orchestrate resume {RUN}"

Status = Callable[..., str]


@pytest.fixture
def status(console: Console) -> Status:
    """Runs `status`; what it prints."""

    def shown(*words: str) -> str:
        said = console.run("status", RUN, *words)
        assert said.code == ExitCode.DONE
        return said.out

    return shown


def until_the_stop() -> tuple[Event, ...]:
    """The events of a run until its first node stops: allocation is disabled, and limits are raised."""
    events = events_of("lab")
    stops = [isinstance(one, PhaseEntered) and one.to == NodePhase.STOPPING.value for one in events]
    return events[: stops.index(True) + 1]


def begin(store: StateStore, file: str, process: str = GONE, kind: Kind = Kind.ELASTICSEARCH) -> SqlJournal:
    """The run in the state, until its first node stops."""
    started, *more = until_the_stop()
    assert isinstance(started, RunStarted)
    policy = replace(started.policy, kind=kind)
    started = replace(started, cluster="lab", cluster_uuid="uuid", cluster_file=file, policy=policy)
    journal = store.create_run(entry(RUN, process))
    journal.append([started, *more], 1000.0)
    return journal


@pytest.fixture
def journal(store: StateStore, file: str) -> SqlJournal:
    return begin(store, file)


@pytest.mark.usefixtures("journal")
def test_a_run_that_restored_everything_before_the_kill(cluster: SmallCluster, status: Status) -> None:
    """Its process was killed between its last restore and the commit."""
    said = status()
    assert f"{NOTHING}{READ}; the journal ends at {SINCE}\n" in said
    assert ": not set, as before\n" in said
    assert "  es2: a member of the cluster, as before\n" in said
    assert UNWRITTEN not in said
    assert said.endswith(f"Now         continue:\n    orchestrate resume {RUN}\n")
    assert not [asked for asked in cluster.asked if asked.method != "GET"], "it only reads"
    assert not [asked for asked in cluster.asked if "template" in asked.path], "no lease"


@pytest.mark.usefixtures("journal")
def test_changes_that_are_there_and_changes_by_others(
    cluster: SmallCluster, store: StateStore, status: Status
) -> None:
    for change in replay(RUN, store.replay(RUN)).unrestored.settings.values():
        cluster.settings[change.level.value][change.key] = change.wanted
    keys = sorted(cluster.settings[Level.PERSISTENT.value])
    cluster.settings[Level.PERSISTENT.value][keys[-1]] = "42"
    said = status()
    assert f"NOT RESTORED: {len(keys) - 1} settings; {READ};" in said
    assert ": not set → 42 (changed outside this run)\n" in said
    assert "  cluster.routing.allocation.enable: not set → primaries\n" in said
    assert f"{EITHER}\n    orchestrate restore {RUN}\n" in said
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


@pytest.mark.usefixtures("journal")
def test_a_node_that_is_no_member_is_not_restored(cluster: SmallCluster, status: Status) -> None:
    cluster.nodes = {node: name for node, name in cluster.nodes.items() if name != "es2"}
    assert "  es2: not a member\n" in status()


@pytest.mark.usefixtures("journal")
def test_a_cluster_that_cannot_be_read_is_left_out(
    cluster: SmallCluster, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs, its reading has a defect, or nothing listens: the journal is shown."""
    cluster.on("/_nodes/_local/http", hang)
    monkeypatch.setattr(past_runs, "LIMIT", 1.0)
    assert "the cluster was not read: it has not answered within 1s" in status()
    cluster.__exit__(None, None, None)
    said = status()
    assert f"{UNKNOWN}the last record of the journal; the cluster was not read: " in said
    assert f"{EITHER}\n    orchestrate restore {RUN}\n" in said
    now = json.loads(status("--output", "json").splitlines()[0])["cluster_now"]
    assert (now["read_at"], now["changes"], bool(now["why_not"])) == (None, [], True)

    def fails(*_: object) -> None:
        raise KeyError("hunter2")

    monkeypatch.setattr(past_runs, "_read", fails)
    said = status()
    assert "the cluster was not read: a defect of the program: KeyError\n" in said
    assert "hunter2" not in said
    assert f"{EITHER}\n    orchestrate restore {RUN}\n" in said


def test_a_riak_cluster_is_not_read(
    cluster: SmallCluster, store: StateStore, file: str, status: Status
) -> None:
    begin(store, file, kind=Kind.RIAK)
    assert "the cluster was not read: a Riak cluster is read by commands on its hosts" in status()
    assert cluster.asked == []


def test_what_a_run_named_at_its_end_is_certain_until_then(
    cluster: SmallCluster, journal: SqlJournal, status: Status
) -> None:
    journal.append([RunFinished(outcome=Outcome.NOT_RESTORED, exit_code=8, seconds=1.0)], 1001.0)
    assert f"{NOTHING}{READ}; the journal ends at " in status()
    cluster.__exit__(None, None, None)
    assert f"NOT RESTORED when the run ended: {WHAT}; the cluster was not read: " in status()


@pytest.mark.parametrize("ago", [0.0, 61.0])
def test_a_secret_refused_a_moment_ago_is_not_sent_again(
    cluster: SmallCluster, journal: SqlJournal, status: Status, ago: float
) -> None:
    refusal = Refusal(endpoint=cluster.url, credentials="user op", source="env:PW")
    journal.append([AccessRefused(refusal=refusal, reading=True)], time.time() - ago)
    said = "(401; secret from env:PW) a moment ago"
    assert (said in status()) is (ago == 0.0)
    assert (cluster.asked == []) is (ago == 0.0)


@pytest.mark.usefixtures("journal")
def test_a_missing_secret_and_another_cluster_are_named(
    console: Console, cluster: SmallCluster, status: Status
) -> None:
    basic = {"username": "op", "password": "env:NO_SUCH_PASSWORD"}
    cluster.write_file(console.folder, auth={"basic": basic})
    assert "NO_SUCH_PASSWORD" in status().split("the cluster was not read: ")[1]
    assert cluster.asked == []
    cluster.write_file(console.folder, name="other")
    assert "`name` is 'other'" in status()


def test_a_full_disk_is_known_later(
    console: Console, cluster: SmallCluster, store: StateStore, journal: SqlJournal, status: Status
) -> None:
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(JournalError, match="no space is left on its disk"):
        journal.append([GoodReading(count=1)] * 1000, 2.0)
    assert f"{NOTHING}{READ}; the journal ends at {SINCE}, {UNWRITTEN}\n" in status()
    assert json.loads(status("--output", "json").splitlines()[0])["unwritten"] is True
    past = console.run("history")
    assert past.code == ExitCode.DONE
    assert f"outcome unknown, {UNWRITTEN}; `status` reads the cluster: {RUN}" in past.out
    cluster.__exit__(None, None, None)
    assert f"{UNKNOWN}{UNWRITTEN}; the cluster was not read: " in status()
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    journal.append([GoodReading(count=1)] * 1000, 2.0)
    assert UNWRITTEN not in status(), "the last events are written after all"


def test_a_locked_database_is_known_later(
    console: Console, file: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the run is alive: what it restores now is not in its journal either."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    store = open_store(console.url, {}, access=DatabaseUse.WRITE)
    journal = begin(store, file, ALIVE)
    with closing(sqlite3.connect(console.state, isolation_level=None)) as other, other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="kept it locked"):
            journal.append([GoodReading(count=1)], 2.0)
        assert f"{NOTHING}{READ}; the journal ends at {SINCE}, {UNWRITTEN}\n" in status()
        other.execute("ROLLBACK")
    journal.append([GoodReading(count=1)], 2.0)
    assert UNWRITTEN not in status()
    store.close()


APPENDS = """
import sys
from orchestrator.errors import JournalError
from orchestrator.model.event import GoodReading
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
journal = open_store(sys.argv[1], {}, access=DatabaseUse.READ).journal(sys.argv[2])
journal._begun = True
try:
    journal.append([GoodReading(count=1)], 2.0)
except JournalError as error:
    print("not written:", error)
"""


@pytest.mark.usefixtures("journal")
def test_a_folder_that_became_read_only(console: Console, status: Status) -> None:
    """No mark can be made there: the cause stays unknown, and the cluster is read."""
    console.state.parent.chmod(0o555)
    try:
        done = subprocess.run(  # noqa: S603  (our own script)
            [*heeding_modes(), sys.executable, "-c", APPENDS, console.url, RUN],
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.stdout.startswith("not written: "), done.stderr
        assert f"{NOTHING}{READ}; the journal ends at {SINCE}" in status()
    finally:
        console.state.parent.chmod(0o755)
