"""Every accepted generation of Elasticsearch and OpenSearch, on three real nodes of it.

All of it is done on each: plan, both strategies, merge and restart, a kill in the middle of a wave and its
repair, under load. On the later ones it is done in the middle of an upgrade from the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.model.action import Done, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.runtime.waiting import SystemClock
from tests.integration.generations import (
    PLAYBOOK,
    ROLES,
    Nameless,
    Story,
    assert_settings,
    everything,
    kill_in_mid_wave,
    merged,
    prepare,
    restarted_once,
    run,
    small_lab,
    under_load,
)
from tests.integration.restarting import held_by, orchestrate
from tests.lab.distributions import find_distribution
from tests.lab.nodes import LabCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.fixtures_processes import Show

pytestmark = pytest.mark.real
in_generations = pytest.mark.part(name="generations")

VERSIONS = ("0.90.13", "1.1.2", "1.4.5", "1.7.6", "2.4.6", "7.5.2")
"""Those that no upgrade below ends on."""
UPGRADES = (
    ("5.6.16", "6.8.23"),
    ("6.8.23", "7.17.28"),
    ("7.17.28", "8.19.0"),
    ("8.19.0", "9.1.0"),
    ("opensearch-1.3.20", "opensearch-2.19.0"),
    ("opensearch-2.19.0", "opensearch-3.1.0"),
    ("opensearch-3.1.0", "opensearch-3.3.0"),
)


@in_generations
def test_nodes_of_1_7_without_names_are_restarted_by_address(tmp_path: Path, show: Show) -> None:
    """Names and ids are new at each start; every node is restarted once, and one of them is named by hand."""
    story = Story("1.7.6 without node.name")
    with LabCluster.start(version="1.7.6", heap_mb=256, settings={"node.name": ""}) as lab:
        nameless = Nameless(lab)
        names = nameless.names()
        assert not set(names.values()) & {node.name for node in lab.nodes}
        before = prepare(lab)

        def all_of_them() -> None:
            run(nameless, tmp_path, story, "restart")

        under_load(lab, lambda: restarted_once(lab, story, all_of_them), story)
        assert_settings(lab, before, story)
        after = nameless.names()
        assert set(after) == set(names)
        assert all(after[address] != names[address] for address in names), (names, after)
        first, *_ = names
        one = lambda: run(nameless, tmp_path, story, "restart", "--only", first)  # noqa: E731  (said once)
        restarted_once(lab, story, one, (nameless.node_at(first),))
        story.add(f"names {sorted(names.values())}, then {sorted(after.values())}")
    show(str(story))


@in_generations
@pytest.mark.parametrize("version", VERSIONS)
def test_every_command_on_each_generation_under_load(tmp_path: Path, show: Show, version: str) -> None:
    story = Story(version)
    with small_lab(version) as lab:
        everything(lab, tmp_path, story)
    show(str(story))


@pytest.mark.part(name="mixed")
def test_runs_in_an_upgrade_see_one_lease(tmp_path: Path, show: Show) -> None:
    """Nodes on both sides of 7.8: the lease is one by every endpoint, and lives through the upgrade."""
    story = Story("7.5.2 and 7.17.28")
    record = LeaseRecord(epoch=1, run="r1", owner="ops@here", process="b/1/2", started="2026-11-01T00:00:00Z")
    with small_lab("7.5.2") as lab:
        before = prepare(lab)
        _upgraded(lab, "es1")
        for holder, other in (("es1", "es2"), ("es2", "es1")):
            with _lease(lab, holder) as mine, _lease(lab, other) as theirs:
                assert mine.create(record) == Done()
                assert theirs.read() == record
                assert isinstance(theirs.create(replace(record, run="r2")), Refused)
                assert mine.remove(1) == Done()
                assert theirs.read() is None
        restarted_once(lab, story, lambda: run(lab, tmp_path, story, "restart", "--only", "es1"), ("es1",))
        assert_settings(lab, before, story)
        with _lease(lab, "es2") as lease, _lease(lab, "es1") as newer:
            assert lease.create(record) == Done()
            for name in ("es2", "es3"):
                _upgraded(lab, name)
                assert newer.write(replace(record, heartbeat=2)) == Done()
            assert lease.read() == newer.read() == replace(record, heartbeat=2)
            assert newer.remove(1) == Done()
        restarted_once(lab, story, lambda: run(lab, tmp_path, story, "restart"))
        assert_settings(lab, before, story)
    show(str(story))


@pytest.mark.part(name="mixed")
@pytest.mark.parametrize(("older", "newer"), UPGRADES, ids=[" to ".join(pair) for pair in UPGRADES])
def test_restarts_in_the_middle_of_an_upgrade(tmp_path: Path, show: Show, older: str, newer: str) -> None:
    """Upgraded nodes are restarted and put right; an older one is held, with nothing stopped or left."""
    story = Story(f"{older} to {newer}")
    with small_lab(older) as lab:
        before = prepare(lab)

        def all_of_it() -> None:
            for name, left in (("es2", "es1"), ("es1", "es3")):
                _upgraded(lab, name, newer)
                run(lab, tmp_path, story, "plan", "--only", name)
                only = partial(run, lab, tmp_path, story, "restart", "--only", name)
                restarted_once(lab, story, only, (name,))
                assert_settings(lab, before, story)
                restarted_once(lab, story, partial(_held, lab, tmp_path, story, left), ())
                assert_settings(lab, before, story)
            kill_in_mid_wave(lab, tmp_path, story)
            assert_settings(lab, before, story)
            _upgraded(lab, "es3", newer)
            zone = partial(run, lab, tmp_path, story, "restart", "--strategy", "zone")
            restarted_once(lab, story, zone)

        under_load(lab, all_of_it, story)
        lab.distribution = find_distribution(newer)
        merged(lab, tmp_path, story)
        assert_settings(lab, before, story)
    show(str(story))


def _held(lab: LabCluster, folder: Path, story: Story, name: str) -> None:
    """An older node would not get back the copies whose primary is on a newer one by then."""
    playbook = {**PLAYBOOK, "deadlines": {**PLAYBOOK["deadlines"], "hold": "5s"}}
    code, lines = orchestrate(lab, folder, "restart", "--only", name, playbook=playbook)
    story.add(f"restart --only {name}: exit {code}, {sorted(held_by(lines))}")
    assert (code, {predicate for predicate, _ in held_by(lines)}) == (3, {"version_order"}), lines[-1]


def _upgraded(lab: LabCluster, name: str, version: str = "7.17.28") -> None:
    """Somebody upgrades a node; its copies come back."""
    lab.upgrade(name, version)
    if version in ROLES:
        lab.configure(name, {"node.roles": ROLES[version]})
    lab.stop_nodes([name])
    lab.start_nodes([name])
    lab.wait_ready(status="green")


@contextmanager
def _lease(lab: LabCluster, name: str) -> Iterator[ElasticsearchLease]:
    """The lease as a run through this endpoint sees it."""
    with closing(ElasticsearchClient(Access(endpoints=(lab.endpoint(name),)), clock=SystemClock())) as client:
        yield ElasticsearchLease(client)
