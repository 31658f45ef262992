"""When a Riak node is back, and when the cluster has handed off what the node missed.

`riak ping` and `/ping` answer while no vnode runs; vnodes come up for some ten seconds after a start;
and a node that has just started has hints of its own to hand off (all recorded on 3.2.1). So a node is back
only when all of these agree: the node itself, a peer, the ring, and the count of its vnodes. It has recovered
when two nodes report no transfers. A small restart drains for minutes, mostly without a moving transfer, so
no stretch of waiting counts as a stall.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.engine.kinds.predicates import evidence_of
from orchestrator.engine.kinds.riak.hasten import unstarted
from orchestrator.engine.kinds.riak.predicates import unclean
from orchestrator.engine.kinds.riak.waiting import held
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import BaselineRecorded
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import RiakView, SignsOfLife


def baseline_of(view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
    """The members that are up, and their lives. None may be missing at the start: predicates check that."""
    lives = {node.name: node.incarnation for node in view.nodes}
    partitions = view.riak.ring_size if view.riak is not None else None
    return BaselineRecorded(missing=(), incarnations=lives, boots=boots, partitions=partitions)


def not_back(view: ClusterView, node: NodeName) -> str | None:
    """What a node that is up lacks to count as back; None when it lacks nothing."""
    return next(_lacking(view, node), None)


def _lacking(view: ClusterView, node: NodeName) -> Iterator[str]:
    riak = view.riak
    if riak is None:
        yield "the ring was not read"
        return
    signs = riak.signs.get(node, SignsOfLife())
    if isinstance(signs.ping, Unknown) or not signs.ping:
        yield f"/ping: {signs.ping.reason if isinstance(signs.ping, Unknown) else 'no answer'}"
    yield from _vnodes_run(riak, signs, node)
    yield from _peers_see(riak, view, node)
    # Only commands show the rest. They run once the checks above pass.
    yield from _ring_agrees(riak, view)
    if isinstance(signs.service, Unknown):
        yield f"riak_kv, asked of a peer: {signs.service.reason}"
    elif not signs.service.up:
        yield f"riak_kv is not up, asked of a peer: {signs.service.last}"


def _ring_agrees(riak: RiakView, view: ClusterView) -> Iterator[str]:
    ready = riak.ring_ready
    if isinstance(ready, Unknown):
        yield f"ringready: {ready.reason}"
    elif not ready.agreed:
        apart = ", ".join((*ready.down, *ready.differing)) or "the nodes"
        yield f"ringready: {apart} do not agree on the ring"
    elif not view.members.keys() <= set(ready.nodes):
        unasked = ", ".join(sorted(view.members.keys() - set(ready.nodes)))
        yield f"ringready: {unasked} did not answer"


def _peers_see(riak: RiakView, view: ClusterView, node: NodeName) -> Iterator[str]:
    for peer in (name for name in view.members if name != node):
        stats = riak.signs.get(peer, SignsOfLife()).stats
        if isinstance(stats, Unknown):
            yield f"whether {peer} is connected to it is unknown: {stats.reason}"
        elif node not in stats.connected:
            yield f"{peer} is not connected to it"


def _vnodes_run(riak: RiakView, signs: SignsOfLife, node: NodeName) -> Iterator[str]:
    stats = signs.stats
    if isinstance(stats, Unknown):
        yield f"its vnodes cannot be counted: {stats.reason}"
        return
    owned = stats.ownership.get(node, 0)
    members = () if isinstance(riak.cluster, Unknown) else riak.cluster.members
    if not owned and any(each.node == node and each.ring_share for each in members):
        yield "its own ring gives it no partitions, and that of the cluster does"
    if stats.kv_vnodes < owned:
        yield f"{stats.kv_vnodes} of its {owned} vnodes run"


def unsettled(state: RunState, view: ClusterView) -> str | None:
    """Transfers that still run or are unknown, for people; None when two nodes report no transfers.

    What waited before the stop is not waited for. The counters in `/stats` can prove that handoff still runs.
    They never prove that it is done.
    """
    if view.riak is None:
        return "the transfers were not read"
    if view.riak.beyond:
        return f"{sum(view.riak.beyond.values())} vnodes to be handed off to their owners, by /stats"
    found = next(unclean(view.riak, held(state.handoff.left)), None)
    return unstarted(state, view.riak) if found is None else f"{found[0]}: {evidence_of(found[1])}"
