"""What an upgrade is held by, case by case: paths, indices, settings of files, snapshots, hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.kinds.predicates import Question
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant, Unknown
from orchestrator.model.upgrade import Deprecation
from orchestrator.simulation.facts import FIT, READY
from tests.simulation.play import cluster
from tests.simulation.upgrading import wanted
from tests.unit.engine.asking import cluster_of, findings, question, seeing, viewing, wanting

ES1 = NodeName("es1")


def asking(*versions: str, to: str, distribution: str = "elasticsearch", **shown: object) -> Question:
    """Before an upgrade; the nodes run these versions, the first ones one each and the others the last."""
    asked = question(cluster(3), wave=("es1",))
    nodes = cluster_of(asked.observation.cluster).nodes
    nodes = tuple(replace(node, version=versions[min(n, len(versions) - 1)]) for n, node in enumerate(nodes))
    finding = replace(FIT, **shown)
    ready = dict.fromkeys((node.name for node in nodes), READY)
    asked = viewing(asked, nodes=nodes, distribution=distribution)
    return wanting(seeing(asked, upgrade=finding, readiness=ready), upgrade=wanted(to))


def said(found: list[tuple[str, str]]) -> str:
    return "; ".join(f"{subject}: {evidence}" for subject, evidence in found)


# The path ------------------------------------


@pytest.mark.parametrize(
    ("distribution", "version", "to"),
    [
        ("elasticsearch", "5.6.16", "6.8.23"),
        ("elasticsearch", "6.8.0", "7.17.28"),
        ("elasticsearch", "7.17.0", "8.19.0"),
        ("elasticsearch", "8.18.0", "9.0.0"),
        ("elasticsearch", "8.19.3", "9.1.4"),
        ("elasticsearch", "2.3.0", "2.4.6"),
        ("elasticsearch", "9.1.0", "9.1.4"),
        ("elasticsearch", "9.0.0", "9.1.0"),
        ("opensearch", "1.3.20", "2.19.1"),
        ("opensearch", "2.19.0", "3.1.0"),
    ],
)
def test_a_rolling_upgrade_is_possible(distribution: str, version: str, to: str) -> None:
    assert findings(asking(version, to=to, distribution=distribution), "upgrade_path_is_supported") == []


@pytest.mark.parametrize(
    ("distribution", "version", "to", "says"),
    [
        ("elasticsearch", "5.5.3", "6.8.23", "upgrade to 5.6 first"),
        ("elasticsearch", "6.7.2", "7.17.28", "upgrade to 6.8 first"),
        ("elasticsearch", "7.16.3", "8.19.0", "upgrade to 7.17 first"),
        ("elasticsearch", "8.17.9", "9.1.0", "upgrade to 8.18 first"),
        ("elasticsearch", "7.17.28", "9.1.0", "upgrade to the last 8.x first: no major version"),
        ("elasticsearch", "2.4.6", "5.6.16", "with the whole cluster down"),
        ("elasticsearch", "0.90.13", "1.7.6", "with the whole cluster down"),
        ("elasticsearch", "9.1.0", "10.0.0", "no way from 9.x to another"),
        ("another", "1.0.0", "2.0.0", "no way from 1.x to another"),
        ("elasticsearch", "snapshot", "9.1.0", "its version is not understood"),
        ("opensearch", "1.2.4", "2.19.1", "upgrade to 1.3 first"),
        ("opensearch", "2.18.0", "3.1.0", "upgrade to 2.19 first"),
        ("opensearch", "1.3.20", "3.1.0", "upgrade to the last 2.x first"),
    ],
)
def test_a_rolling_upgrade_is_not_possible(distribution: str, version: str, to: str, says: str) -> None:
    found = findings(asking(version, to=to, distribution=distribution), "upgrade_path_is_supported")
    assert [subject for subject, _ in found] == [f"version {version}"]
    assert says in said(found)


def test_every_version_of_a_mixed_cluster_is_asked() -> None:
    found = findings(asking("8.19.0", "8.17.0", to="9.1.0"), "upgrade_path_is_supported")
    assert [subject for subject, _ in found] == ["version 8.17.0"]


def test_a_newer_node_is_named_with_its_version() -> None:
    asked = asking("9.2.0", "9.1.0", to="9.1.0")
    assert findings(asked, "upgrade_path_is_supported") == []
    assert said(findings(asked, "no_node_is_newer")) == "nodes: es1 with 9.2.0: newer than 9.1.0"
    assert findings(asking("9.1.0", to="9.1.0"), "no_node_is_newer") == []


# Indices ------------------------------------


@pytest.mark.parametrize(
    ("distribution", "version", "to", "created", "opens"),
    [
        ("elasticsearch", "8.19.0", "9.1.0", "8", True),
        ("elasticsearch", "8.19.0", "9.1.0", "7.17.28", False),
        ("elasticsearch", "7.17.28", "8.19.0", "7.0.0", True),
        ("elasticsearch", "7.17.28", "8.19.0", "6.8.23", False),
        ("elasticsearch", "9.0.0", "9.1.0", "7.17.28", True),
        ("elasticsearch", "8.19.0", "9.1.0", "unknown", False),
        ("opensearch", "1.3.20", "2.19.1", "1.0.0", True),
        ("opensearch", "1.3.20", "2.19.1", "7.10.2", True),
        ("opensearch", "1.3.20", "2.19.1", "6.8.23", False),
        ("opensearch", "2.19.0", "3.1.0", "2.0.0", True),
        ("opensearch", "2.19.0", "3.1.0", "1.3.20", False),
        ("opensearch", "2.19.0", "3.1.0", "7.10.2", False),
    ],
)
def test_indices_of_the_major_before_are_opened(
    distribution: str, version: str, to: str, created: str, *, opens: bool
) -> None:
    asked = asking(version, to=to, distribution=distribution, created={"logs": created})
    found = findings(asked, "indices_open_in_target")
    assert (found == []) is opens, found
    assert opens or f"logs: created by {created}" in said(found)


@pytest.mark.parametrize(
    ("distribution", "version", "to", "created", "opens"),
    [
        ("elasticsearch", "8.19.0", "9.1.0", "7.17.28", True),
        ("elasticsearch", "8.19.0", "9.1.0", "6.8.23", False),
        ("elasticsearch", "7.17.28", "8.19.0", "6.8.23", False),
        ("opensearch", "2.19.0", "3.1.0", "1.3.20", False),
    ],
)
def test_only_elasticsearch_9_opens_old_read_only_ones(
    distribution: str, version: str, to: str, created: str, *, opens: bool
) -> None:
    asked = asking(
        version,
        to=to,
        distribution=distribution,
        created={"logs": created},
        read_only=frozenset({"logs"}),
    )
    assert (findings(asked, "indices_open_in_target") == []) is opens


def test_one_old_node_makes_it_a_change_of_the_major() -> None:
    asked = asking("9.1.0", "8.19.0", to="9.1.0", created={"logs": "7.17.28"})
    assert findings(asked, "indices_open_in_target")
    critical = asking(
        "9.1.0", "8.19.0", to="9.1.0", deprecations=(Deprecation(subject="index logs", message="old"),)
    )
    assert findings(critical, "no_critical_deprecations") == [("index logs", "old")]
    within = asking("9.0.0", to="9.1.0", deprecations=(Deprecation(subject="index logs", message="old"),))
    assert findings(within, "no_critical_deprecations") == []


# Settings of files ------------------------------------


@pytest.mark.parametrize(
    ("version", "to", "setting", "refused"),
    [
        ("7.17.28", "8.19.0", "node.master", True),
        ("7.17.28", "8.19.0", "node.master.x", False),
        ("7.17.28", "8.19.0", "discovery.zen.minimum_master_nodes", True),
        ("7.17.28", "8.19.0", "discovery.zenith", False),
        ("7.17.28", "8.19.0", "discovery.seed_hosts", False),
        ("7.16.0", "7.17.28", "node.master", False),
        ("8.18.0", "9.1.0", "node.master", False),
        ("6.8.23", "7.17.28", "http.enabled", True),
        ("5.6.16", "6.8.23", "script.inline", True),
        ("snapshot", "8.19.0", "node.master", True),
    ],
)
def test_settings_that_the_target_refuses(version: str, to: str, setting: str, *, refused: bool) -> None:
    found = findings(
        asking(version, to=to, settings={ES1: ("cluster.name", setting)}), "settings_known_to_target"
    )
    assert [subject for subject, _ in found] == ([setting] if refused else [])
    assert not refused or "files of es1" in said(found)


# Snapshots ------------------------------------


@pytest.mark.parametrize(
    ("age", "says"),
    [(3599.0, ""), (3600.0, ""), (3601.0, "the youngest, repo/nightly, is 1 h old (1 h allowed)")],
)
def test_a_snapshot_is_young_enough(age: Instant, says: str) -> None:
    asked = asking("9.0.0", to="9.1.0")
    ended = asked.observation.at - age
    asked = seeing(asked, upgrade=replace(FIT, snapshot_ended=ended, snapshot="repo/nightly"))
    asked = wanting(asked, upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))
    found = findings(asked, "snapshot_is_recent")
    assert says in said(found)
    assert bool(found) is bool(says)


def test_without_a_snapshot_none_is_recent() -> None:
    asked = wanting(asking("9.0.0", to="9.1.0"), upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))
    assert "there is no finished snapshot" in said(findings(asked, "snapshot_is_recent"))
    unread = seeing(asked, upgrade=replace(FIT, snapshot_ended=Unknown(reason="repository s3: timed out")))
    assert "timed out" in said(findings(unread, "snapshot_is_recent"))
    assert findings(wanting(unread, upgrade=wanted("9.1.0")), "snapshot_is_recent") == [], "none is needed"


# Hosts ------------------------------------


@pytest.mark.parametrize(
    ("free", "says"),
    [(2 << 30, ""), ((2 << 30) - 1, "2.0 GiB are free"), (0, "0.0 GiB"), (None, "was not read")],
)
def test_a_host_needs_room_that_was_read(free: int | None, says: str) -> None:
    asked = asking("9.0.0", to="9.1.0")
    ready = {**asked.observation.readiness, ES1: replace(READY, free_bytes=free)}
    found = findings(seeing(asked, readiness=ready), "disk_space_for_install")
    assert says in said(found)
    assert [subject for subject, _ in found] == (["host of es1"] if says else [])


def test_a_host_that_was_not_asked_cannot_install() -> None:
    asked = asking("9.0.0", to="9.1.0")
    ready = {name: one for name, one in asked.observation.readiness.items() if name != ES1}
    assert findings(seeing(asked, readiness=ready), "hosts_can_install") == [("host of es1", "not asked yet")]
