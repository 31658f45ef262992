"""The predicates of Riak, in the order in which they are checked, on one reading of the cluster.

The docs' catalogue is generated from the list at the end; the names are public.

No single command shows everything, and each one can look good at a bad moment (recorded on 3.2.1):

- `transfers` prints `No transfers active` while a node is down.
- `cluster status` calls the ring ready while a node is down, and lists a stopped node as valid. Only the
  column of availability shows it.
- `ringready` says TRUE while the claimant says that the ring is not ready, since changes are pending.
- `ringready` and `transfers` silently leave out a node that is up but does not answer them.

`member-status` and `ring-status` are not read: in every recorded state `cluster status` has what they print.
Of a pending change it has the shares of the members, not the partitions.

So each predicate needs its own proof, and compares the nodes that a command names with the members. A missing
reading is a hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Final

from orchestrator.engine import every_kind
from orchestrator.engine.every_kind import on_cluster
from orchestrator.engine.predicates import ByPolicy, Evidence, Finding, Predicate, Question
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.riak import Availability, ClusterStatus, Membership, RiakView, SignsOfLife
from orchestrator.riak.rules.quorum import Breach, breaches, quorum_of
from orchestrator.riak.rules.recovery import advice, excused, unclean

ALL_MEMBERS_UP: Final = "all_members_up"
"""The predicate that names a member that is down."""

Nodes = frozenset[NodeName]
Check = Callable[[Question, RiakView], Iterator[Finding]]


def ring_of(question: Question) -> Reading[RiakView]:
    """The question's reading of the ring."""
    view = question.observation.cluster
    if isinstance(view, Unknown):
        return view
    return view.riak if view.riak is not None else Unknown(reason="the ring was not read")


def on_ring(check: Check) -> Callable[[Question], Iterator[Finding]]:
    """A predicate that needs the ring; its docstring is the check's."""

    @wraps(check)
    def asked(question: Question) -> Iterator[Finding]:
        view = ring_of(question)
        if isinstance(view, Unknown):
            yield "cluster", view
        else:
            yield from check(question, view)

    return asked


def lives_are_told(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Each node of the wave reports its process: only a new process proves a restart."""
    unidentified = {} if view.riak is None else view.riak.unidentified
    for name in question.wave.nodes:
        node = view.node(name)
        if node is not None and node.incarnation == Incarnation():
            why = unidentified.get(name, "neither `riak pid` nor /proc on its host shows it")
            yield f"node {name}", f"its process is unknown: {why}"


def ring_ready(_question: Question, view: RiakView) -> Iterator[Finding]:
    """All nodes list the same owners, and the claimant reports that all have seen the last change."""
    ready = view.ring_ready
    if isinstance(ready, Unknown):
        yield "ring", ready
    elif not ready.agreed:
        parted = f"{' and '.join(ready.differing)} list different owners" if ready.differing else ""
        yield "ring", parted or f"{', '.join(ready.down)} cannot be asked about the ring"
    else:
        members = _members(view)
        if not isinstance(members, Unknown) and members != frozenset(ready.nodes):
            apart = _names(members ^ frozenset(ready.nodes))
            yield "ring", f"{apart} are members or agreed on the ring, but not both"
    cluster = view.cluster
    if isinstance(cluster, Unknown):
        yield "claimant", cluster
    elif not cluster.ring_ready:
        silent = "it does not answer, so it is unknown whether the ring is ready"
        said = silent if cluster.ring_ready is None else "it reports that the ring is not ready"
        yield f"claimant {_names(each.node for each in cluster.members if each.claimant)}", said


def no_pending_ownership_change(_question: Question, view: RiakView) -> Iterator[Finding]:
    """No partition is moving to another owner, and no node joins or leaves."""
    if isinstance(view.cluster, Unknown):
        yield "members", view.cluster
        return
    members = view.cluster.members
    for member in members:
        if member.membership in (Membership.JOINING, Membership.LEAVING, Membership.EXITING):
            yield member.node, f"it is {member.membership.value}"
        elif member.pending_share not in (None, member.ring_share):
            yield (
                member.node,
                f"it owns {member.ring_share} % of the ring and is to own {member.pending_share} %",
            )
    if members and all(member.pending_share == member.ring_share for member in members):
        yield "ring", "partitions change their owner, and the share of each member stays the same"


def all_members_up(question: Question, view: RiakView) -> Iterator[Finding]:
    """Every member is up in `cluster status` and answers `/stats`.

    After the stop the run reads `/stats` of all members. If one did not answer, no node would count as back.
    """
    cluster = view.cluster
    if isinstance(cluster, Unknown):
        yield "members", cluster
        return
    for member in cluster.members:
        if member.availability is not Availability.UP or member.membership is Membership.DOWN:
            said = f"{member.membership.value}, {member.availability.value}"
            yield member.node, f"cluster status shows {said}"
        elif isinstance(stats := view.signs.get(member.node, SignsOfLife()).stats, Unknown):
            yield member.node, f"its /stats cannot be read, which show when a node is back: {stats.reason}"
    listed = frozenset(member.node for member in cluster.members)
    for node in sorted(frozenset(question.wave.nodes) - listed):
        yield node, "it is not a member of the cluster"


def no_transfers(question: Question, view: RiakView) -> Iterator[Finding]:
    """No handoff runs or waits, and every primary partition runs.

    What has waited for 15 minutes without a change, while no transfer moved data, does not hold: it does not
    go by itself.
    """
    more = advice(question, view)
    for subject, said in unclean(view, excused(question, view)):
        yield subject, f"{said}{more}" if isinstance(said, str) else said


def waiting_partitions_go_alone(question: Question, view: RiakView) -> Iterator[Finding]:
    """A node that holds partitions which wait for handoff goes down alone; without `no_transfers`, too."""
    if len(question.wave.nodes) == 1:
        return
    if isinstance(view.waiting, Unknown):
        yield "partitions", view.waiting
        return
    for node, numbers in sorted(view.waiting.items()):
        if node in question.wave.nodes:
            yield node, f"it holds {len(numbers)} partitions that wait for handoff, so it goes down alone"


def preference_lists_keep_quorum(question: Question, view: RiakView) -> Iterator[Finding]:
    """With the wave and the nodes that are down already, every preference list keeps a quorum."""
    ring, n_vals, cluster = view.ring, view.n_vals, view.cluster
    wave = frozenset(question.wave.nodes)
    for name, part in (("ring", ring), ("n_val", n_vals), ("members", cluster)):
        if isinstance(part, Unknown):
            yield name, part
    if isinstance(ring, Unknown) or isinstance(n_vals, Unknown) or isinstance(cluster, Unknown):
        return
    if not n_vals or min(n_vals) < 1 or not ring.owners:
        yield "n_val", "no n_val, or no partition, was read"
        return
    strangers = frozenset(ring.owners) - {member.node for member in cluster.members}
    if strangers:
        yield "ring", f"{_names(strangers)} own partitions, but are no members"
    for breach in breaches(ring, n_vals, wave | _down(cluster)):
        yield ", ".join(breach.nodes), _evidence(breach, ring.size, wave)


def _evidence(breach: Breach, lists: int, wave: Nodes) -> Evidence:
    owners = ", ".join(breach.owners)
    by_itself = len(breach.nodes) == 1 and breach.nodes[0] in wave
    alone = "; this node alone takes them down, so no order of restarts avoids it" if by_itself else ""
    said = (
        f"n_val {breach.n_val}: {breach.down} of the {len(breach.owners)} partitions from {breach.first} on "
        f"({owners}) would be down, and {quorum_of(breach.n_val)} must be up; "
        f"{breach.lists} of {lists} preference lists are like this{alone}"
    )
    return ByPolicy(evidence=said) if by_itself else said


def _members(view: RiakView) -> Reading[Nodes]:
    if isinstance(view.cluster, Unknown):
        return view.cluster
    return frozenset(member.node for member in view.cluster.members)


def _down(cluster: ClusterStatus) -> Nodes:
    """Members that do not serve their partitions now, including those that were marked as down."""
    return frozenset(member.node for member in cluster.members if member.availability is not Availability.UP)


def _names(nodes: Iterable[NodeName]) -> str:
    return ", ".join(sorted(nodes))


PREDICATES: Final[tuple[Predicate, ...]] = (
    Predicate(
        why="A decision on an old or partial reading can stop a node that the cluster cannot spare now.",
        then="Wait: the run reads again. If it lasts, the hold names the part that cannot be read, and why.",
        check=every_kind.fresh("cluster", "settings", "health"),
        may_be_disabled=False,
    ),
    every_kind.CLUSTER_IS_THE_ONE_NAMED,
    every_kind.LEASE_IS_HELD,
    Predicate(
        why="A transfer limit that cannot be set cannot be restored either.",
        then="Correct what the cluster answers, as the hold quotes it, and run the command again.",
        check=every_kind.settings_are_writable,
        passes_with_time=False,
    ),
    Predicate(
        why="If a node is down already, the stop of the next node can end the quorum of keys.",
        then="Start the node, or repair its host. Without it for good: see what the hold says.",
        check=on_cluster(every_kind.expected_nodes_present),
        of_absence=True,
    ),
    Predicate(
        why="A restart is proven by a new process. Without the identity of the process there is no proof.",
        then="Give the account the right that the hold names: `validate` shows it.",
        check=on_cluster(lives_are_told),
        about_wave=True,
    ),
    Predicate(
        why="Nodes that disagree on the owners write to different owners. A stop makes that worse.",
        then="Wait. If it lasts, `riak-admin ringready` shows which nodes disagree.",
        check=on_ring(ring_ready),
    ),
    Predicate(
        why="A stop ends the transfer of a partition: the change of the ring starts again or hangs.",
        then="Wait: `riak-admin transfers` shows the change. Or clear a plan that is not committed.",
        check=on_ring(no_pending_ownership_change),
    ),
    Predicate(
        why="If a node is down already, the stop of the next node can end the quorum of keys.",
        then="Start the member, or repair its host. Remove one that is gone for good from the ring.",
        check=on_ring(all_members_up),
        of_absence=True,
    ),
    Predicate(
        why="Writes that wait for handoff may be on this node only. While it is down, they cannot be read.",
        then="Wait: `riak-admin transfers` shows the handoff. What does not move needs its target node up.",
        check=on_ring(no_transfers),
    ),
    Predicate(
        why="With an owner of the same preference list, every node that has a write could go down.",
        then="Nothing: the node goes down in a wave of its own. Or wait until its handoff is done.",
        check=on_ring(waiting_partitions_go_alone),
        about_wave=True,
    ),
    Predicate(
        why="A key cannot be read or written at quorum while most of its owners are down.",
        then="Get the members that are down up again, or restart fewer nodes at a time.",
        check=on_ring(preference_lists_keep_quorum),
        passes_with_time=False,
        about_wave=True,
    ),
    Predicate(
        why="Replicas of a key are in different locations. Stops in two locations can stop all of them.",
        then="Select nodes of one zone, or correct the zone of a node.",
        check=on_cluster(every_kind.one_zone_at_a_time),
        about_wave=True,
        remedy="give them one zone",
    ),
    every_kind.BUDGET_NOT_EXCEEDED,
    every_kind.SELECTED_HOSTS_READY,
    every_kind.NO_MANAGEMENT_RUN_ON_CANDIDATES,
    every_kind.GATES_OPEN,
)
