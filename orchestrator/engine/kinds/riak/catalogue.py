"""The predicates of Riak, in the order in which they are checked.

The docs' catalogue is generated from this list; the names are public.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.engine.gates import gates_open
from orchestrator.engine.kinds import every_kind
from orchestrator.engine.kinds.every_kind import on_cluster
from orchestrator.engine.kinds.predicates import About, Finding, Predicate, Question
from orchestrator.engine.kinds.riak import predicates as ring
from orchestrator.engine.kinds.riak.predicates import on_ring
from orchestrator.model.cluster import Incarnation
from orchestrator.model.observation import ClusterView


def lives_are_told(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Each node of the wave reports its process: only a new process proves a restart."""
    unidentified = {} if view.riak is None else view.riak.unidentified
    for name in question.wave.nodes:
        node = view.node(name)
        if node is not None and node.incarnation == Incarnation():
            why = unidentified.get(name, "neither `riak pid` nor /proc on its host shows it")
            yield f"node {name}", f"its process is unknown: {why}"


PREDICATES: Final[tuple[Predicate, ...]] = (
    Predicate(
        name="observation_is_fresh",
        why="A decision on an old or partial reading can stop a node that the cluster cannot spare now.",
        check=every_kind.fresh("cluster", "settings", "health"),
        may_be_disabled=False,
    ),
    Predicate(
        name="cluster_is_the_one_named",
        why="A wrong address in a cluster file would restart another cluster.",
        check=on_cluster(every_kind.cluster_is_the_one_named),
        may_be_disabled=False,
        passes_with_time=False,
    ),
    Predicate(
        name="lease_is_held",
        why="Two runs on one cluster take two nodes down at once.",
        check=every_kind.lease_is_held,
        may_be_disabled=False,
    ),
    Predicate(
        name="settings_are_writable",
        why="A transfer limit that cannot be set cannot be restored either.",
        check=every_kind.settings_are_writable,
        passes_with_time=False,
    ),
    Predicate(
        name="expected_nodes_present",
        why="If a node is down already, the stop of the next node can end the quorum of keys.",
        check=on_cluster(every_kind.expected_nodes_present),
    ),
    Predicate(
        name="lives_are_told",
        why="A restart is proven by a new process. Without the identity of the process there is no proof.",
        check=on_cluster(lives_are_told),
        about=About.WAVE,
    ),
    Predicate(
        name="ring_ready",
        why="Nodes that disagree on the owners write to different owners. A stop makes that worse.",
        check=on_ring(ring.ring_ready),
    ),
    Predicate(
        name="no_pending_ownership_change",
        why="A stop ends the transfer of a partition: the change of the ring starts again or hangs.",
        check=on_ring(ring.no_pending_ownership_change),
    ),
    Predicate(
        name=ring.ALL_MEMBERS_UP,
        why="If a node is down already, the stop of the next node can end the quorum of keys.",
        check=on_ring(ring.all_members_up),
    ),
    Predicate(
        name="no_transfers",
        why="Writes that wait for handoff may be on this node only. While it is down, they cannot be read.",
        check=ring.no_transfers,
    ),
    Predicate(
        name="waiting_partitions_go_alone",
        why="With an owner of the same preference list, every node that has a write could go down.",
        check=ring.waiting_go_alone,
        about=About.WAVE,
    ),
    Predicate(
        name="preference_lists_keep_quorum",
        why="A key cannot be read or written at quorum while most of its owners are down.",
        check=on_ring(ring.preference_lists_keep_quorum),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="one_zone_at_a_time",
        why="Replicas of a key are in different locations. Stops in two locations can stop all of them.",
        check=on_cluster(every_kind.one_zone_at_a_time),
        about=About.WAVE,
    ),
    Predicate(
        name="budget_not_exceeded",
        why="The operator has set how many nodes may be down at once.",
        check=on_cluster(every_kind.budget_not_exceeded),
        about=About.WAVE,
    ),
    Predicate(
        name="selected_hosts_ready",
        why="A host that cannot be reached or controlled must be found before a node is stopped.",
        check=every_kind.selected_hosts_ready,
        lasting=every_kind.hosts_that_no_time_readies,
        about=About.WAVE,
        own_reasons=True,
    ),
    Predicate(
        name="no_management_run_on_candidates",
        why="It may start the service while its node is to be down, or replace packages under it.",
        check=every_kind.no_management_run_on_candidates,
        about=About.WAVE,
    ),
    Predicate(
        name="gates_open",
        why="Systems around the cluster, such as a queue, may not tolerate a stopped node now.",
        check=gates_open,
    ),
)
