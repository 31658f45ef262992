"""The predicates of Elasticsearch and OpenSearch, in the order in which they are checked.

The docs' catalogue is generated from this list; the names are public.
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.gates import gates_open
from orchestrator.engine.kinds import every_kind
from orchestrator.engine.kinds.elasticsearch import predicates as cluster
from orchestrator.engine.kinds.elasticsearch import redundancy, upgrading
from orchestrator.engine.kinds.every_kind import on_cluster
from orchestrator.engine.kinds.predicates import About, Predicate

PREDICATES: Final[tuple[Predicate, ...]] = (
    Predicate(
        name="observation_is_fresh",
        why="A decision on an old or partial reading can stop a node that the cluster cannot spare now.",
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
        why="Archived settings block every update: this must be known before allocation is disabled.",
        check=every_kind.settings_are_writable,
        passes_with_time=False,
    ),
    Predicate(
        name="no_other_maintenance",
        why="Disabled allocation, exclusions or shutdown records are signs of other maintenance.",
        check=on_cluster(cluster.no_other_maintenance),
        passes_with_time=False,
    ),
    Predicate(
        name="expected_nodes_present",
        why="If a node is down already, the next node may hold the last copy of a shard.",
        check=on_cluster(every_kind.expected_nodes_present),
    ),
    Predicate(
        name="cluster_not_red",
        why="A cluster that has lost primaries needs repair, not restarts.",
        check=on_cluster(cluster.cluster_not_red),
    ),
    Predicate(
        name="no_worse_than_baseline",
        why="The previous wave must have recovered. Copies missing before the run are not waited for.",
        check=on_cluster(cluster.no_worse_than_baseline),
    ),
    Predicate(
        name="every_shard_keeps_started_copies",
        why="If all started copies of a shard are on the wave, the shard is unavailable meanwhile.",
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
        name="copies_can_return",
        why="The run would wait until its limit for copies that the cluster does not allocate again.",
        check=on_cluster(redundancy.copies_can_return),
        lasting=on_cluster(redundancy.copies_that_never_return),
        about=About.WAVE,
        own_reasons=True,
    ),
    Predicate(
        name="zero_replica_indices",
        why="An index without replicas is red while its node is down. The operator must accept that.",
        check=on_cluster(redundancy.zero_replica_indices),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="master_quorum_survives",
        why="Without a majority of voters there is no master, and no setting can be restored.",
        check=on_cluster(redundancy.master_quorum_survives),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="every_role_keeps_a_member",
        why="If the only node of a tier or role stops, its service stops too.",
        check=on_cluster(redundancy.every_role_keeps_a_member),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="capacity_remains",
        why="With too few data nodes, the cluster cannot serve its queries.",
        check=on_cluster(redundancy.capacity_remains),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="one_zone_at_a_time",
        why="Copies of a shard are in different zones. Stops in two zones can stop all copies of it.",
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
        name="version_order",
        why="A copy cannot be allocated to a node with an older version than the node of its primary.",
        check=on_cluster(cluster.version_order),
        passes_with_time=False,
        about=About.WAVE,
    ),
    Predicate(
        name="upgrade_path_is_supported",
        why="Between these versions nodes cannot be in one cluster, or cannot read each other's data.",
        check=upgrading.upgrade_path_is_supported,
        may_be_disabled=False,
        passes_with_time=False,
    ),
    Predicate(
        name="no_node_is_newer",
        why="A node that has written data with a newer version does not start with an older one.",
        check=upgrading.no_node_is_newer,
        may_be_disabled=False,
        passes_with_time=False,
    ),
    Predicate(
        name="indices_open_in_target",
        why="A node does not start with an index that its version cannot open.",
        check=upgrading.indices_open_in_target,
        passes_with_time=False,
    ),
    Predicate(
        name="no_critical_deprecations",
        why="What the next major version no longer takes keeps its nodes from starting, or its clients out.",
        check=upgrading.no_critical_deprecations,
        passes_with_time=False,
    ),
    Predicate(
        name="snapshot_is_recent",
        why="After the first upgraded node there is no way back but a snapshot.",
        check=upgrading.snapshot_is_recent,
        passes_with_time=False,
    ),
    Predicate(
        name="settings_known_to_target",
        why="A node does not start with a setting that its version does not know.",
        check=upgrading.settings_known_to_target,
        passes_with_time=False,
    ),
    Predicate(
        name="hosts_can_install",
        why="A package or plugin that is missing on one host must be found before the first stop.",
        check=upgrading.hosts_can_install,
        lasting=upgrading.hosts_that_never_can,
        own_reasons=True,
    ),
    Predicate(
        name="keystores_need_no_password",
        why="A start without a terminal waits for the password, and fails.",
        check=upgrading.keystores_need_no_password,
        passes_with_time=False,
    ),
    Predicate(
        name="disk_space_for_install",
        why="A disk that fills up leaves half of a package.",
        check=upgrading.disk_space_for_install,
        passes_with_time=False,
        own_reasons=True,
    ),
    Predicate(
        name="disk_below_watermark",
        why="Above a watermark the cluster does not allocate the copies of the node again.",
        check=on_cluster(redundancy.disk_below_watermark),
        about=About.WAVE,
    ),
    Predicate(
        name="no_running_snapshot",
        why="A snapshot is partial if one of its nodes stops.",
        check=cluster.no_running_snapshot,
    ),
    Predicate(
        name="no_force_merge_or_reindex_on_candidates",
        why="A restart ends that work, and hours of it are lost.",
        check=cluster.no_force_merge_or_reindex_on_candidates,
        about=About.WAVE,
    ),
    Predicate(
        name="pending_tasks_drained",
        why="An overloaded master is slow to see nodes leave and join.",
        check=cluster.pending_tasks_drained,
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
