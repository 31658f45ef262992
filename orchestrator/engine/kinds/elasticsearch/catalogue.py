"""The predicates of Elasticsearch and OpenSearch, in the order in which they are checked.

The docs' catalogue is generated from this list; the names are public.
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.gates import gates_open
from orchestrator.engine.kinds import every_kind
from orchestrator.engine.kinds.elasticsearch import predicates as cluster
from orchestrator.engine.kinds.elasticsearch import redundancy
from orchestrator.engine.kinds.every_kind import on_cluster
from orchestrator.engine.kinds.predicates import About, Predicate

PREDICATES: Final[tuple[Predicate, ...]] = (
    Predicate(
        name="observation_is_fresh",
        why="A decision on an old or partial reading stops a node that the cluster cannot spare now.",
        check=every_kind.fresh("cluster", "settings", "health", "activity", "disks"),
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
        why="Archived settings block every update, which operators found out with allocation off already.",
        check=every_kind.settings_are_writable,
        passes_with_time=False,
    ),
    Predicate(
        name="no_other_maintenance",
        why="Allocation found off, exclusions or shutdown records mean that somebody else is at work.",
        check=on_cluster(cluster.no_other_maintenance),
        passes_with_time=False,
    ),
    Predicate(
        name="expected_nodes_present",
        why="With a node away already, the next one may hold the last copy.",
        check=on_cluster(every_kind.expected_nodes_present),
    ),
    Predicate(
        name="cluster_not_red",
        why="A cluster that has lost primaries needs repair, not restarts.",
        check=on_cluster(cluster.cluster_not_red),
    ),
    Predicate(
        name="no_worse_than_baseline",
        why="The node before must be back with all its copies; a yellow of before the run is not waited for.",
        check=on_cluster(cluster.no_worse_than_baseline),
    ),
    Predicate(
        name="every_shard_keeps_started_copies",
        why="A shard whose only started copies are on the wave is away while the wave is.",
        check=on_cluster(redundancy.every_shard_keeps_started_copies),
        lasting=on_cluster(redundancy.copies_that_no_time_brings),
        about=About.WAVE,
    ),
    Predicate(
        name="no_recovery_on_candidates",
        why="A recovery that loses its source is not assigned again while allocation is disabled.",
        check=on_cluster(redundancy.no_recovery_on_candidates),
        about=About.WAVE,
    ),
    Predicate(
        name="zero_replica_indices",
        why="An index without replicas is red while its node is away: somebody has to want that.",
        check=on_cluster(redundancy.zero_replica_indices),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="master_quorum_survives",
        why="Without a majority of voters there is no master, and nothing can be put back.",
        check=on_cluster(redundancy.master_quorum_survives),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="every_role_keeps_a_member",
        why="The only node of a tier or role takes its service away with it.",
        check=on_cluster(redundancy.every_role_keeps_a_member),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="capacity_remains",
        why="Too few data nodes left up is query capacity gone.",
        check=on_cluster(redundancy.capacity_remains),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="one_zone_at_a_time",
        why="Copies of a shard are in different zones, so two zones hit may be all copies of it.",
        check=on_cluster(every_kind.one_zone_at_a_time),
        about=About.WAVE,
    ),
    Predicate(
        name="budget_not_exceeded",
        why="The operator said how many nodes may be away at once.",
        check=on_cluster(every_kind.budget_not_exceeded),
        about=About.WAVE,
    ),
    Predicate(
        name="version_order",
        why="A copy cannot go back to a node that is older than its primary's node.",
        check=on_cluster(cluster.version_order),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="disk_below_watermark",
        why="Past a watermark the cluster refuses the copies that the node should get back.",
        check=on_cluster(redundancy.disk_below_watermark),
        about=About.WAVE,
    ),
    Predicate(
        name="no_running_snapshot",
        why="A snapshot that loses a node ends partial.",
        check=cluster.no_running_snapshot,
    ),
    Predicate(
        name="no_force_merge_or_reindex_on_candidates",
        why="A restart throws away hours of that work.",
        check=cluster.no_force_merge_or_reindex_on_candidates,
        about=About.WAVE,
    ),
    Predicate(
        name="pending_tasks_drained",
        why="A master that does not keep up is slow to see nodes leave and join.",
        check=cluster.pending_tasks_drained,
    ),
    Predicate(
        name="selected_hosts_ready",
        why="A host that cannot be reached or controlled is best found before anything is stopped.",
        check=every_kind.selected_hosts_ready,
        lasting=every_kind.hosts_that_no_time_readies,
        about=About.WAVE,
    ),
    Predicate(
        name="gates_open",
        why="What stands around the cluster, such as a queue that fills, may not bear a node away now.",
        check=gates_open,
    ),
)
