"""Checks that the parts of a reading fit together, so that a cluster can be made of it.

A snapshot is a file that people cut and edit, and a node may leave between two answers of a real cluster. A
part that names something that another part lacks is refused here with a clear message. Later it would be a
KeyError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import astuple
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.model.cluster import ShardCopy, ShardId
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant, Unknown
from orchestrator.model.riak import RiakView

_LATEST: Final[Instant] = 1e11
"""The year 5138: times up to here can be formatted, and hours can be added to them."""
_READINGS: Final = 100
"""Maximum number of good readings in a row that a playbook may require."""
_NAMED: Final = 8
"""Maximum number of names in a message."""


def require_coherent(started: RunStarted, view: ClusterView, at: Instant) -> None:
    """Check the parts of a cluster, and of the run on it.

    Raises:
        UsageError: a part does not fit the others; the message names the first one.
    """
    for wrong in (*_of_the_run(started, view, at), *_of_the_cluster(view)):
        raise UsageError(f"cannot be rehearsed: {wrong}; the parts of the reading do not fit together")


def _of_the_run(started: RunStarted, view: ClusterView, at: Instant) -> Iterator[str]:
    if started.policy.merge is not None or started.indices:
        yield "the run merges indices, and a restart alone is rehearsed"
    if (started.policy.kind is Kind.RIAK) != (view.riak is not None):
        yield f"the run is one on {started.policy.kind.value}, and the reading is of another kind of cluster"
    if not 0.0 <= at < _LATEST:
        yield f"it was read at {at}, which is no time"
    if min(astuple(started.policy.deadlines)) < 0.0:
        yield "a deadline is below nothing"
    if not 0 < started.policy.settle_consecutive <= _READINGS:
        yield f"{started.policy.settle_consecutive} good readings in a row are waited for"
    if not started.nodes:
        yield "the run restarts no node"
    yield from _twice(started.nodes, "the run names")
    yield from _strangers(started.nodes, _members(view), "the run restarts")


def _of_the_cluster(view: ClusterView) -> Iterator[str]:
    names = [node.name for node in view.nodes]
    if not names:
        yield "the reading lists no node that is up"
    yield from _twice(names, "the reading lists")
    yield from _strangers([view.master] if view.master else (), _members(view), "the master is")
    if view.riak is not None:
        yield from _of_the_ring(view.riak, names, _members(view))
        return
    yield from _twice([index.name for index in view.indices], "the reading lists index")
    indices = {(index.uuid, index.name) for index in view.indices}
    for shard, copies in view.shards.items():
        if (shard.index_uuid, shard.index) not in indices:
            yield f"there are copies of {shard}, and no such index"
        yield from _of_a_shard(shard, copies, names)


def _of_a_shard(shard: ShardId, copies: Collection[ShardCopy], names: Collection[str]) -> Iterator[str]:
    primaries = sum(copy.primary for copy in copies)
    if primaries != 1:
        yield f"{shard} has {primaries} primaries"
    on = [copy.node for copy in copies if copy.started and copy.node is not None]
    yield from _twice(on, f"copies of {shard} are on")
    yield from _strangers(on, names, f"a copy of {shard} is on")


def _of_the_ring(riak: RiakView, up: Collection[str], members: Collection[str]) -> Iterator[str]:
    """Parts that were not read are reported by the code that needs them."""
    yield from _strangers(up, members, "the node that is up is")
    if not isinstance(riak.cluster, Unknown):
        yield from _twice([member.node for member in riak.cluster.members], "the members are")
    if not isinstance(riak.ring, Unknown):
        if not riak.ring.owners:
            yield "the ring has no partition"
        yield from _strangers(riak.ring.owners, members, "partitions belong to")
    if not isinstance(riak.n_vals, Unknown) and (not riak.n_vals or min(riak.n_vals) < 1):
        yield "no n_val is in use"


def _members(view: ClusterView) -> Collection[str]:
    """Names of the members; for Riak including those that are down."""
    if view.riak is None:
        return {node.name for node in view.nodes}
    cluster = view.riak.cluster
    if isinstance(cluster, Unknown):
        raise UsageError(f"cannot be rehearsed: the members could not be read: {cluster.reason}")
    return {member.node for member in cluster.members}


def _twice(names: Iterable[str], what: str) -> Iterator[str]:
    more = sorted(name for name, count in Counter(names).items() if count > 1)
    if more:
        yield f"{what} {_listed(more)} twice"


def _strangers(names: Iterable[str], members: Collection[str], what: str) -> Iterator[str]:
    strangers = sorted({*names} - {*members})
    if strangers:
        yield f"{what} {_listed(strangers)}, no member of the cluster"


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
