"""Long polls: the cluster answers when it is ready, so no repeated requests are needed."""

from __future__ import annotations

from typing import Final, assert_never

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.request import HttpRequest, get
from orchestrator.model.observation import ClusterWatch, CopiesActive, MasterElected, NodesJoined
from orchestrator.model.reading import Seconds

_MARGIN_SECONDS: Final = 2.0
"""Extra time for the answer, so that the server's own time-out arrives as an answer."""


def watch_request(watch: ClusterWatch, timeout: Seconds, dialect: Dialect) -> HttpRequest:
    """The long-poll request. Health waits on the master; a node without a master waits as long for one."""
    match watch:
        case NodesJoined(count=count):
            # `>=` is written as `ge(…)` too; this form needs no quoting.
            wanted = {"wait_for_nodes": f"ge({count})"}
        case CopiesActive(count=count):
            wanted = {"wait_for_active_shards": str(count)}
        case MasterElected():
            wanted = {}
        case _:
            assert_never(watch)
    allowed = calls.seconds(timeout)
    return get(
        "/_cluster/health",
        params=wanted | {"wait_for_events": "languid", "timeout": allowed, dialect.master_timeout: allowed},
        accept=frozenset({408}),
        silence=timeout + _MARGIN_SECONDS,
    )


def watch_for(client: ElasticsearchClient, watch: ClusterWatch, timeout: Seconds) -> bool:
    """Wait: True once the condition seems to hold, False after a time-out or a lost connection."""
    dialect = client.dialect()
    if isinstance(dialect, Fault):
        return False
    outcome = client.once(watch_request(watch, timeout, dialect))
    if isinstance(outcome, Fault) or not isinstance(outcome.body, dict):
        return False
    return outcome.body.get("timed_out") is False
