"""What the program of 26 November 2026 (c10690cd) has left behind is read, and restored, for good.

`tests/data/kept/state.sql` is a dump of its state database after nine simulated runs on Elasticsearch and one
on Riak; the journal of each is cut here where the run enters a phase, as if it had been killed there.
`leases.json` has records of its lease as they stood in a cluster. More is in `tests/cli/test_kept_files.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from orchestrator.elasticsearch.access import Access as ClusterAccess
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.encoding import encode_event
from orchestrator.model.event import PhaseEntered, Record
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.work_event import InstallEnded
from orchestrator.runs.past_runs import past_run_of
from orchestrator.runs.unfinished import restore_run, resume_run
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.runtime.waiting import SystemClock
from orchestrator.simulation import machines
from orchestrator.simulation.world import World
from orchestrator.view.history import history_text, past_run
from orchestrator.view.status import status_object, status_text
from tests.cli.small_cluster import SmallCluster
from tests.kept import KEPT, lost, write_state
from tests.kept import kept as kept_file
from tests.simulation.play import cluster
from tests.simulation.program import Simulation
from tests.simulation.ringed import ringed
from tests.simulation.ways import world_of

RUNS = ("node", "zone", "overlap", "machines", "tuned", "merged", "riak", "upgrade", "resumed")
DOWN = (NodePhase.STOPPED, NodePhase.STARTING)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its state file, whole."""
    file = tmp_path_factory.mktemp("kept") / "state.db"
    write_state(file)
    return file


@pytest.fixture
def kept(database: Path) -> Iterator[StateStore]:
    store = open_store(f"sqlite:///{database}", {}, access=DatabaseUse.READ)
    yield store
    store.close()


@cache
def _cuts(run: str) -> dict[str, int]:
    """Where the journal of a run enters each phase of a run and of a node for the first time."""
    found: dict[str, int] = {}
    with closing(sqlite3.connect(":memory:")) as raw, raw:
        raw.executescript((KEPT / "state.sql").read_text(encoding="utf-8"))
        rows = raw.execute("SELECT sequence, event FROM events WHERE run = ? ORDER BY sequence", (run,))
        for sequence, text in rows:
            event = json.loads(text)
            if event["event"] == "phase_entered" and event["to"] != Phase.ENDED.value:
                found.setdefault(f"{'node' if event['node'] else 'run'} {event['to']}", sequence)
    return found


def test_no_name_or_value_of_an_event_is_lost(kept: StateStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as raw, raw:
        rows = raw.execute("SELECT run, sequence, event FROM events").fetchall()
    now = {(each.run, each.sequence): each.event for run in RUNS for each in kept.replay(run)}
    assert len(rows) == len(now) > 1200
    for run, sequence, text in rows:
        old, new = json.loads(text), json.loads(json.dumps(encode_event(now[run, sequence])))
        assert lost(new, old) == [], (run, sequence)


def test_status_and_history_show_every_run(kept: StateStore) -> None:
    past = [past_run(kept.replay(entry.run), entry.outcome) for entry in kept.runs()]
    assert {one.run for one in past if one} == set(RUNS)
    lines = history_text([one for one in past if one])
    for run in RUNS:
        assert run in lines
        records = kept.replay(run)
        for cut in _cuts(run).values():
            state = replay(run, records[: cut + 1])
            text = status_text(state, records[: cut + 1], now=records[cut].at + 60.0)
            assert run in text
            assert "not_put_back" in json.loads(json.dumps(status_object(state, records[: cut + 1], now=0.0)))


def _as_left(run: str, state: RunState, records: tuple[Record, ...]) -> World:
    """A cluster as the run had it: settings that were changed, nodes that were down, or upgraded."""
    if run == "riak":
        world: World = ringed()
    else:
        world = cluster(3) if run in ("upgrade", "resumed") else world_of(run)
    for (level, key), change in state.unrestored.settings.items():
        world.set(level, key, change.wanted)
    for name, node in state.nodes.items():
        if node.phase in DOWN:
            machines.stop(world, world.nodes[name])
    for event in (record.event for record in records):
        if isinstance(event, InstallEnded) and state.begun.policy.upgrade is not None:
            world.nodes[event.node].version = state.begun.policy.upgrade.target
    return world


@contextmanager
def _killed(run: str, cut: int, file: Path) -> Iterator[tuple[World, tuple[dict[str, Any], ...], Simulation]]:
    """The world as the run left it at this cut, its settings before the run, and a process to take it up."""
    write_state(file, run, cut)
    records = _records(file, run)
    assert isinstance(records[-1].event, PhaseEntered)
    state = replay(run, records)
    world = _as_left(run, state, records)
    found = _without(world, state)
    engine = create_engine(f"sqlite:///{file}")
    yield world, found, Simulation(world, run=run, policy=state.begun.policy, state=engine)
    engine.dispose()


def _taken_up(run: str, folder: Path, subtests: pytest.Subtests, outcome: Outcome) -> None:
    """By `restore` or `resume`, after a kill in each phase: it ends so, and everything is as found."""
    take_up = restore_run if outcome is Outcome.RESTORED else resume_run
    for phase, cut in _cuts(run).items():
        killed = _killed(run, cut, folder / f"{phase}.db")
        with subtests.test(phase=phase), killed as (world, found, simulation):
            with simulation.connect() as connection:
                store = connection.state(DatabaseUse.WRITE)
                (entry,) = store.runs()
                ended = take_up(connection, store, past_run_of(store, entry))
            assert ended.outcome is outcome, ended.message
            if run != "merged":  # whose merges this world was not asked for by the run that it sees
                assert world.violations == []
            assert world.settings() == found
            assert all(node.process for node in world.nodes.values())


@pytest.mark.parametrize("run", RUNS)
def test_killed_in_any_phase_it_is_restored(run: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    _taken_up(run, tmp_path, subtests, Outcome.RESTORED)


@pytest.mark.parametrize("run", RUNS)
def test_killed_in_any_phase_resume_run_works(run: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Or it would have to refuse before any change; today it refuses none."""
    _taken_up(run, tmp_path, subtests, Outcome.DONE)


def _records(file: Path, run: str) -> tuple[Record, ...]:
    store = open_store(f"sqlite:///{file}", {}, access=DatabaseUse.READ)
    try:
        return store.replay(run)
    finally:
        store.close()


def _without(world: World, state: RunState) -> tuple[dict[str, Any], ...]:
    """The settings of the cluster before the run, by its journal."""
    levels = tuple(dict(level) for level in world.settings())
    for (level, key), change in state.unrestored.settings.items():
        values = levels[level.value != "persistent"]
        values.pop(key, None)
        if change.found is not None:
            values[key] = change.found
    return levels


def test_its_leases_are_read() -> None:
    bodies = kept_file("leases")
    for body in bodies:
        with SmallCluster() as server:
            server.legacy[body["index_patterns"][0].removeprefix("-")] = body
            client = ElasticsearchClient(ClusterAccess(endpoints=(server.url,)), clock=SystemClock())
            record = ElasticsearchLease(client).read()
            client.close()
        text = body["aliases"]["orchestrate"]["filter"]["term"]["orchestrate"]
        old = json.loads(text)
        assert record.run == old["run"]
        assert [(debt.level.value, debt.key, debt.found, debt.wanted) for debt in record.debts] == [
            (debt["level"], debt["key"], debt["found"], debt["wanted"]) for debt in old["debts"]
        ]
