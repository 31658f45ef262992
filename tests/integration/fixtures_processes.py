"""Clusters of real server processes for tests: `process_cluster("9.1.0")`.

Registered by the conftest at the root.
A boot costs ten seconds, so a cluster is kept for the session and brought back to a fresh state for each test
that asks for it; asking for another version ends the one that runs. A cluster that a test has upgraded is one
of its new version from then on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.killing import QUICKEST
from tests.lab.distributions import find_distribution
from tests.lab.errors import LabError, LabNodeError
from tests.lab.layout import THREE_ZONES, LabNode
from tests.lab.nodes import LabCluster
from tests.lab.reset import reset
from tests.lab.security import Security
from tests.tools import lacking

ProcessCluster = Callable[..., LabCluster]
Show = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    nodes: tuple[LabNode, ...]
    settings: tuple[tuple[str, str], ...]
    security: Security | None


class Keeper:
    """Holds at most one cluster: the machine has two cores."""

    def __init__(self) -> None:
        self._wanted: _Wanted | None = None
        self._cluster: LabCluster | None = None

    def get(
        self,
        version: str,
        *,
        nodes: tuple[LabNode, ...] = THREE_ZONES,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
        anew: bool = False,
    ) -> LabCluster:
        distribution = find_distribution(version)
        wanted = _Wanted(nodes=nodes, settings=tuple(sorted((settings or {}).items())), security=security)
        kept = self._cluster if self._wanted == wanted and not anew else None
        if kept is not None and kept.installed == {distribution}:
            with contextlib.suppress(LabError):  # whatever the last test did to it, then start from nothing
                kept.distribution = distribution  # a test may have upgraded it
                reset(kept)
                return kept
        self.close()
        self._cluster = LabCluster.start(version=version, nodes=nodes, settings=settings, security=security)
        self._wanted = wanted
        return self._cluster

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


@pytest.hookimpl(tryfirst=True)  # before the groups are put first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring tests on one version together, as a change of cluster costs a boot. Others keep their places."""
    places = [place for place, item in enumerate(items) if item.get_closest_marker("real")]
    ordered = sorted((items[place] for place in places), key=_version)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _version(item: pytest.Item) -> str:
    """The parameter of that name, else `CLUSTER` of its module, else the quickest."""
    callspec = getattr(item, "callspec", None)
    given = callspec.params.get("version") if callspec else None
    return str(given or getattr(getattr(item, "module", None), "CLUSTER", QUICKEST))


@pytest.fixture(scope="session")
def _process_clusters() -> Iterator[Keeper]:
    keeper = Keeper()
    yield keeper
    keeper.close()


@pytest.fixture
def process_cluster(_process_clusters: Keeper) -> ProcessCluster:
    """Gives a running, fresh cluster: `process_cluster(version, nodes=…, settings=…, security=…)`.

    Three nodes in three zones unless `nodes` says otherwise; no TLS and no users without `security`.
    Asking again in the same test gives the same cluster, brought back to a fresh state; with `anew=True` it
    is ended, and another one started.
    """

    def get(version: str, **wanted: Any) -> LabCluster:
        try:
            return _process_clusters.get(version, **wanted)
        except LabNodeError:
            raise
        except LabError as error:  # no Java that fits, or no Maven
            lacking(str(error))

    return get


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Shows figures and stories although output is captured: they are part of what a test shows."""

    def shown(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return shown
