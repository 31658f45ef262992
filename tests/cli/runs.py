"""Runs as the state file lists them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

from orchestrator.elasticsearch.lease import lease_body
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.policy import Kind, Policy
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import RunEntry, open_store
from tests.cli.console import Console
from tests.cli.small_cluster import NODES, SmallCluster
from tests.simulation import play


def entry(run: str, process: str, *, cluster: str = "lab", uuid: str = "uuid") -> RunEntry:
    """The line of a run that was begun long ago by that process."""
    return RunEntry(
        run=run,
        cluster=cluster,
        cluster_uuid=uuid,
        kind="elasticsearch",
        started=1000.0,
        host="bastion",
        operator="ann",
        process=process,
    )


def started(cluster: str = "lab", **changes: Any) -> RunStarted:
    """The beginning of a run on the small cluster, with these changes."""
    usual = RunStarted(
        cluster=cluster,
        cluster_uuid="uuid",
        version="8.19.0",
        distribution="elasticsearch",
        policy=Policy(kind=Kind.ELASTICSEARCH, cluster=cluster),
        nodes=tuple(map(NodeName, NODES)),
        addresses=dict.fromkeys(map(NodeName, NODES), "127.0.0.1"),
        operator="ann",
        host="bastion",
    )
    return replace(usual, **changes)


def record_of(run: str, process: str, **more: Any) -> LeaseRecord:
    """A record of the lease of somebody else's run."""
    return LeaseRecord(epoch=1, run=run, owner="ben@here", process=process, started="2026-11-02", **more)


def leave(cluster: SmallCluster, record: LeaseRecord) -> None:
    """The record stands in the cluster."""
    cluster.templates[f"orchestrate-lease-{record.epoch}"] = json.loads(json.dumps(lease_body(record)))


RUN = "20261101-0300-abcd"
DEAD_PROCESS = "/".join([*str(current_process()).split("/")[:2], str(2**22 + 1), "1"])
"""On this machine, above the highest pid that Linux gives."""


@cache
def events_of(cluster: str, nodes: int = 3) -> tuple[Event, ...]:
    """The events of a whole simulated run."""
    world = play.cluster(nodes)
    world.name = cluster
    simulation, _ = play.run(world, wanted=play.policy(cluster=cluster))
    return tuple(record.event for record in simulation.journal.records)


def ended_run(
    console: Console, *, cluster: str = "lab", run: str = RUN, nodes: int = 3, at: float = 1.0
) -> None:
    """Write a simulated run that has ended into the state."""
    with closing(open_store(f"sqlite:///{console.state}", {}, access=DatabaseUse.WRITE)) as store:
        journal = store.create_run(entry(run, "boot/1/2/3", cluster=cluster))
        journal.append(events_of(cluster, nodes), at)
