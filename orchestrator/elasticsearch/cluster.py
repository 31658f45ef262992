"""The port to an Elasticsearch or OpenSearch cluster: reading, acting, listening."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import OnlyThrough
from orchestrator.elasticsearch.act import perform, requests_for, watch_for
from orchestrator.elasticsearch.bulk import BulkReader
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.connection import Traffic
from orchestrator.elasticsearch.dialect import NEWEST
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.observe import Observer
from orchestrator.elasticsearch.parse import parse_data_paths
from orchestrator.elasticsearch.resolve import parse_resolution
from orchestrator.model.action import ActionResult, ClusterAction, ForceHandoff, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import BulkView, Resolution
from orchestrator.model.observation import ClusterWatch, Look
from orchestrator.model.reading import Reading, Seconds
from orchestrator.ports import ClusterReadings

_NOT_OURS: Final = "only Riak hands anything off"


class ElasticsearchCluster:
    """`ClusterPort` over HTTP.

    Args:
        client: the way to the cluster; the lease shares it.
    """

    def __init__(self, client: ElasticsearchClient) -> None:
        self._client = client
        self._observer = Observer(client)
        self._bulk = BulkReader(client)
        self._restarted: frozenset[NodeName] = frozenset()

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the requested parts. Finished recoveries are those of nodes that were once avoided."""
        return self._observer.observe(look, restarted=self._restarted)

    def bulk(self, uuids: Collection[str]) -> Reading[BulkView]:
        """Read segments, writes, merges and settings of these indices only.

        A deleted index is left out. A closed index can be neither read nor merged, so it is only listed under
        `closed`. The result is `Unknown` if a started copy could not be read.
        """
        return reading(self._bulk.read, uuids)

    def perform(self, action: ClusterAction) -> ActionResult:
        """Perform the action once; retry only if the first try certainly did nothing."""
        if isinstance(action, ForceHandoff):
            return Refused(reason=_NOT_OURS)
        return perform(self._client, action)

    def describe(self, action: ClusterAction) -> str:
        """The exact call on one line.

        If the cluster's version is unknown, this is the call for the newest version.
        """
        if isinstance(action, ForceHandoff):
            return f"({_NOT_OURS})"
        dialect = self._client.spoken or self._client.dialect()
        spoken = NEWEST if isinstance(dialect, Fault) else dialect
        return "; then ".join(map(str, requests_for(action, spoken)))

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Long-poll: True once the condition seems to hold, False after a time-out or a lost connection."""
        return watch_for(self._client, watch, timeout)

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes so far."""
        return self._client.traffic

    def endpoints(self) -> Mapping[str, str | None]:
        """The problem of each endpoint; None if it answers."""
        return self._client.endpoints()

    def only_through(self, together: Iterable[Collection[NodeName]]) -> OnlyThrough | None:
        """The nodes through which alone the cluster can be reached from here, if they go down `together`."""
        return self._client.only_through(together)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Send nothing to these nodes where anything else answers: they go down or are down."""
        self._restarted |= frozenset(nodes)
        self._client.avoid(nodes)

    def data_paths(self) -> Reading[Mapping[NodeName, tuple[str, ...]]]:
        """The data paths of each node, as seen by the node's own process.

        In a container they differ from those on the host: `hosts.data` of the cluster file overrides them.
        """
        return reading(lambda: parse_data_paths(self._client.body(calls.data_paths())))

    def resolve(self, patterns: Sequence[str]) -> Reading[Resolution]:
        """Resolve names, globs, aliases and data streams to indices; one call.

        Patterns that name another cluster (`cluster:index`) match nothing: no name here has a colon.
        """

        def resolved() -> Resolution:
            self._client.dialect_to_read()
            return parse_resolution(self._client.body(calls.names(self._client.limits)), patterns)

        return reading(resolved)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
