"""A scripted server of Elasticsearch with clients of it, and a cluster of Riak, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.elasticsearch.access import Access, RequestLimits
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from tests.fakes.scripted_http import ScriptedServer
from tests.riak_nodes import RIAK_COMMANDS, name_of
from tests.unit.clusters.riak_cluster import Staged, staged
from tests.unit.clusters.scripted import RealClock, be

PATIENT = RequestLimits(connect=10.0, silence=20.0, answer=30.0)
"""For servers that answer, however loaded this machine is."""


@pytest.fixture
def clock() -> RealClock:
    return RealClock()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield be(running)


@pytest.fixture
def client(clock: Any) -> Iterator[Callable[..., ElasticsearchClient]]:
    """Opens a client of these URLs; the fields of its `Access` by name."""
    opened: list[ElasticsearchClient] = []

    def open_client(*urls: str, limits: RequestLimits = PATIENT, redact: Any = None, **access: Any) -> Any:
        reached = Access(endpoints=urls, **access)
        opened.append(ElasticsearchClient(reached, clock=clock, limits=limits, redact=redact))
        return opened[-1]

    yield open_client
    for each in opened:
        each.close()


@pytest.fixture
def port(server: ScriptedServer, client: Callable[..., ElasticsearchClient]) -> ElasticsearchCluster:
    return ElasticsearchCluster(client(server.url))


@pytest.fixture(params=RIAK_COMMANDS, ids=name_of)
def stage(request: pytest.FixtureRequest) -> Iterator[Staged]:
    """Three nodes of Riak, with the exit codes of the release's own command, or of the packaged one."""
    with staged(request.param) as each:
        yield each
