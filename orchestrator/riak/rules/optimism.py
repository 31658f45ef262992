"""The ring with every member up: for plans, and to find holds that only follow from members that are down."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.predicates import Predicate, Question
from orchestrator.model.action import Action, ForceHandoff, StartNode
from orchestrator.model.cluster import Incarnation, Node, NodeName, Role
from orchestrator.model.event import Hold
from orchestrator.model.observation import ClusterView, HostView, Observation, ServiceState, SettingsView
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.riak import (
    Availability,
    NodeStats,
    PartitionCount,
    RiakView,
    RingReady,
    ServiceWait,
    SignsOfLife,
    Transfers,
    timer_key,
)
from orchestrator.riak.rules.predicates import ALL_MEMBERS_UP
from orchestrator.riak.rules.recovery import ASKED_AT_LEAST, against


def played(seen: Observation, action: Action) -> Observation:
    """The reading that a plan expects once handoff was forced, or after the start of a node."""
    view = seen.cluster
    if isinstance(view, Unknown) or view.riak is None:
        return seen
    riak = view.riak
    match action:
        case ForceHandoff():
            riak = at_rest(view, riak)
        case StartNode(node=name):
            riak = just_back(view, riak, name, seen.settings)
        case _:
            return seen
    return replace(seen, cluster=view.changed({}, riak=riak))


def at_rest(view: ClusterView, riak: RiakView) -> RiakView:
    """What a cluster reports with every member up and nothing to hand off."""
    members = frozenset(node.name for node in view.nodes)
    return replace(
        riak,
        ring_ready=RingReady(agreed=True, nodes=tuple(sorted(members))),
        signs={name: _well(riak, name, members) for name in members},
        transfers={name: Transfers() for name in sorted(members)[:ASKED_AT_LEAST]},
        waiting={},
    )


def just_back(
    view: ClusterView, found: RiakView, name: NodeName, settings: Reading[SettingsView]
) -> RiakView:
    """What it reports after the start of a node; if handoff is hastened, after a single force.

    Only a plan that hastens handoff has read the timers. Where handoff could not be forced all is at rest at
    once, as without it.
    """
    riak = at_rest(view, found)
    if isinstance(settings, Unknown):
        return riak
    if not all(timer_key(node.name) in settings.transient for node in view.nodes):
        return riak
    waiting = Transfers(waiting=(PartitionCount(node=name, partitions=1),))
    hastened = replace(
        riak,
        transfers={asked.name: waiting for asked in view.nodes[:ASKED_AT_LEAST]},
        unstarted={node.name: 0 for node in view.nodes},
    )
    return riak if any(against(view, hastened)) else hastened


def _well(riak: RiakView, name: NodeName, members: frozenset[NodeName]) -> SignsOfLife:
    found = riak.signs.get(name, SignsOfLife()).stats
    stats = (
        NodeStats(
            node=name, kv_vnodes=1, connected=members, members=members, ring_size=1, ownership={name: 1}
        )
        if isinstance(found, Unknown)
        else replace(found, connected=members, kv_vnodes=found.ownership.get(name, 0))
    )
    return SignsOfLife(ping=True, stats=stats, service=ServiceWait(service="riak_kv", up=True, last=""))


def folded(found: tuple[Hold, ...], rules: tuple[Predicate, ...], question: Question) -> tuple[Hold, ...]:
    """The holds, with those that follow from members that are down listed in the hold that names them.

    A hold follows from it if its predicate passes on the same reading with these members up. One node down
    should not produce nine holds.

    Args:
        found: the holds of these predicates.
        rules: the predicates that were checked.
        question: what they were checked on.
    """
    first = next((hold for hold in found if hold.predicate == ALL_MEMBERS_UP), None)
    seen = None if first is None else _with_all_up(question.observation)
    if first is None or seen is None:
        return found
    asked = replace(question, observation=seen)
    by_name = {rule.name: rule for rule in rules}
    also = tuple(
        hold.predicate
        for hold in found
        if hold is not first
        and by_name[hold.predicate].may_be_disabled
        and not any(
            not question.policy.disables(hold.predicate, subject)
            for subject, _ in by_name[hold.predicate].check(asked)
        )
    )
    if not also:
        return found
    evidence = f"{first.evidence}; not met for the same reason: {', '.join(also)}"
    whole = replace(first, evidence=evidence, also=also)
    return (whole, *(hold for hold in found if hold is not first and hold.predicate not in also))


def _with_all_up(seen: Observation) -> Observation | None:
    """The reading as if every member were up, and otherwise unchanged; None if all are up."""
    view = seen.cluster
    if isinstance(view, Unknown) or view.riak is None or isinstance(view.riak.cluster, Unknown):
        return None
    status = view.riak.cluster
    down = {m.node for m in status.members if m.availability is not Availability.UP}
    if not down:
        return None
    members = tuple(replace(m, availability=Availability.UP) if m.node in down else m for m in status.members)
    names = frozenset(member.node for member in members)
    lost = any(member.claimant and member.node in down for member in members)
    riak = replace(
        view.riak,
        cluster=replace(status, members=members, ring_ready=True if lost else status.ring_ready),
        signs={**view.riak.signs, **{name: _well(view.riak, name, names) for name in down}},
    )
    riak = _asked_of_all(riak, down, names)
    added = tuple(_member(view, name) for name in sorted(down - view.members.keys()))
    hosts = {name: _runs(host) if name in down else host for name, host in seen.hosts.items()}
    return replace(seen, cluster=replace(view, nodes=(*view.nodes, *added), riak=riak), hosts=hosts)


def _asked_of_all(riak: RiakView, down: set[NodeName], names: frozenset[NodeName]) -> RiakView:
    """What the others report about the ring, without what they report because these are down."""
    ready, transfers = riak.ring_ready, riak.transfers
    if isinstance(ready, RingReady) and ready.agreed:
        ready = replace(ready, nodes=tuple(sorted(down.union(ready.nodes))))
    elif isinstance(ready, RingReady) and ready.down and set(ready.down) <= down:
        ready = RingReady(agreed=True, nodes=tuple(sorted(names)))
    if not isinstance(transfers, Unknown):
        said: dict[NodeName, Reading[Transfers]] = {
            node: Transfers() if isinstance(each, Transfers) and down & set(each.down) else each
            for node, each in transfers.items()
        }
        missing = max(0, min(ASKED_AT_LEAST, len(names)) - len(said))
        for node in sorted(names - said.keys())[:missing]:
            said[node] = Transfers()
        transfers = said
    return replace(riak, ring_ready=ready, transfers=transfers)


def _member(view: ClusterView, name: NodeName) -> Node:
    return Node(
        name=name,
        node_id=name,
        incarnation=Incarnation(ephemeral_id="as if it were up"),
        roles=frozenset({Role.DATA}),
        version=view.version,
        address="",
        attributes={},
    )


def _runs(host: HostView | Unknown) -> HostView:
    known = HostView(service=ServiceState.RUNNING, detail="", may_control=True, may_reboot=True)
    return known if isinstance(host, Unknown) else replace(host, service=ServiceState.RUNNING)
