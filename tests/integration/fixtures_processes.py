"""Clusters of real server processes for tests: `process_cluster("9.1.0")`.

Registered by the conftest at the root.
A boot costs ten seconds, so a cluster is kept for the session and brought back to a fresh state for each test
that asks for it; asking for another version ends the one that runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from orchestrator.lab.errors import LabError
from orchestrator.lab.layout import THREE_ZONES, LabNode
from orchestrator.lab.nodes import LabCluster
from orchestrator.lab.reset import reset
from orchestrator.lab.security import Security

ProcessCluster = Callable[..., LabCluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    version: str
    nodes: tuple[LabNode, ...]
    settings: tuple[tuple[str, str], ...]
    security: Security | None


class _Keeper:
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
        wanted = _Wanted(
            version=version, nodes=nodes, settings=tuple(sorted((settings or {}).items())), security=security
        )
        if self._cluster is not None and self._wanted == wanted and not anew:
            with contextlib.suppress(LabError):  # whatever the last test did to it, then start from nothing
                reset(self._cluster)
                return self._cluster
        self.close()
        self._cluster = LabCluster.start(version=version, nodes=nodes, settings=settings, security=security)
        self._wanted = wanted
        return self._cluster

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


@pytest.fixture(scope="session")
def _process_clusters() -> Iterator[_Keeper]:
    keeper = _Keeper()
    yield keeper
    keeper.close()


@pytest.fixture
def process_cluster(_process_clusters: _Keeper) -> ProcessCluster:
    """Gives a running, fresh cluster: `process_cluster(version, nodes=…, settings=…, security=…)`.

    Three nodes in three zones unless `nodes` says otherwise; no TLS and no users without `security`.
    Asking again in the same test gives the same cluster, brought back to a fresh state; with `anew=True` it
    is ended, and another one started.
    """
    return _process_clusters.get
