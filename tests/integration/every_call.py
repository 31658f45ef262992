"""Every call that the program makes to a cluster, to try a role with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.model.action import (
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    IndexAction,
    ProbeSettings,
    Purpose,
    RefreshIndex,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Level
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.access import Limits
from orchestrator.stores.elasticsearch.act import request_for
from orchestrator.stores.elasticsearch.dialect import NONE, Dialect
from orchestrator.stores.elasticsearch.lease import PREFIX, ElasticsearchLease
from orchestrator.stores.elasticsearch.request import Request
from tests.fakes.template_cluster import TemplateClient, TemplateCluster

LIMITS = Limits()


def reads(dialect: Dialect) -> Mapping[str, Request]:
    """Each read of `calls`, by its name."""
    return {
        "identity": calls.identity(),
        "members": calls.members(),
        "own_names": calls.own_names(),
        "processes": calls.processes(),
        "state": calls.state(dialect, LIMITS, with_snapshots=True),
        "state_uuid": calls.state_uuid(dialect, LIMITS, with_snapshots=True),
        "snapshots": calls.snapshots(dialect, LIMITS),
        "index_uuids": calls.index_uuids(dialect, LIMITS, ["posts"]),
        "names": calls.names(dialect, LIMITS),
        "bulk_state": calls.bulk_state(dialect, LIMITS, ["posts"]),
        "segments": calls.segments(dialect, ["posts"]),
        "writes": calls.writes(dialect, ["posts"]),
        "lives": calls.lives(["_all"], dialect),
        "settings": calls.settings(dialect, LIMITS),
        "levels": calls.levels(dialect, LIMITS),
        "health": calls.health(dialect),
        "recoveries": calls.recoveries(dialect, active_only=True),
        "tasks": calls.tasks(),
        "merge_pools": calls.merge_pools(),
        "task": calls.task("none:1", patience=1.0),
        "disks": calls.disks(dialect),
        "stored": calls.stored(),
        "data_paths": calls.data_paths(),
        "memory": calls.memory(["_local"]),
        "leases": calls.leases(dialect, dialect.lease_forms[0], PREFIX, 10.0),
        "leases_at_once": calls.leases_at_once(dialect, LIMITS, PREFIX),
        "creations": calls.creations(dialect, LIMITS),
        "node_settings": calls.node_settings(),
        "repositories": calls.repositories(dialect, LIMITS),
        "finished_snapshots": calls.finished_snapshots(dialect, LIMITS, "none"),
        "deprecations": calls.deprecations(dialect),
        "ml_info": calls.ml_info(),
    }


VERBS: tuple[IndexAction, ...] = (
    ProbeSettings(),
    WriteSettings(
        changes=(
            SettingChange(
                level=Level.PERSISTENT, key="cluster.routing.allocation.enable", found="all", wanted=None
            ),
        ),
        purpose=Purpose.REASSIGN,
    ),
    WriteSettings(
        changes=(SettingChange(level=Level.PERSISTENT, key=ML_UPGRADE_MODE, found="false", wanted="true"),),
        purpose=Purpose.WITHHOLD,
    ),
    RetryFailed(),
    ExcludeFromVoting(node=NodeName("es9")),
    ClearVotingExclusions(),
    Flush(),
    SetReplicas(index="posts", index_uuid="any", found=0, wanted=1),
    ForceMerge(index="posts", index_uuid="any", max_segments=5),
    RefreshIndex(index="posts", index_uuid="any"),
    SetIndexSettings(index="posts", index_uuid="any", found={}, wanted={"index.refresh_interval": "5s"}),
)
RECORD = LeaseRecord(epoch=1, run="r1", owner="ops@bastion", process="p", started="2026-11-01T00:00:00Z")


def lease_calls(dialect: Dialect) -> tuple[Request, ...]:
    """What the lease sends from its taking to its release, once each, its reads first."""
    cluster = TemplateCluster()
    client: Any = TemplateClient(cluster.serve, dialect)
    lease = ElasticsearchLease(client)
    assert [lease.create(RECORD), lease.write(RECORD), lease.remove(1)] == [Done(), Done(), Done()]
    once = {str(each): each for each in cluster.sent}
    return tuple(sorted(once.values(), key=lambda each: each.method != "GET"))


def every_call(dialect: Dialect) -> tuple[Request, ...]:
    """All that the program sends, in an order in which it also works."""
    # A merge that is begun as a task is refused by the task's result alone; the call for it is the same.
    answered = replace(dialect, merge_task=False)
    verbs = (request_for(verb, answered) for verb in VERBS)
    every = (*reads(dialect).values(), *verbs, *lease_calls(dialect))
    unsent = (f"/{NONE}", *(() if dialect.ml_mode else ("/_ml/info", "/_ml/set_upgrade_mode")))
    return tuple(each for each in every if each.path not in unsent)
