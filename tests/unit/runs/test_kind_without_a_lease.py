"""A kind of cluster that keeps no lease: `lease: state` is its only place, and the cluster is not asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import ConfigError
from orchestrator.model.policy import LeasePlace
from orchestrator.runs.dead_run import lease_record
from orchestrator.runs.kinds import PortsOfKind, ReachedCluster


class _WithoutLease(PortsOfKind):
    @property
    def cluster(self) -> ReachedCluster:
        raise AssertionError("not asked")


def _ports() -> Any:
    way: Any = SimpleNamespace(file=SimpleNamespace(spec=SimpleNamespace(kind="toy")))
    return _WithoutLease(way)


def test_its_lease_in_the_cluster_is_refused_with_the_key() -> None:
    with pytest.raises(ConfigError, match="kind `toy` keeps no lease: write `lease: state`"):
        lease_record(_ports(), LeasePlace.CLUSTER, "uuid", lambda _read, otherwise: otherwise)


def test_its_lease_in_the_state_is_read_there() -> None:
    assert lease_record(_ports(), LeasePlace.STATE, "uuid", lambda _read, otherwise: otherwise) is None
