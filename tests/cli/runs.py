"""Runs as the state file lists them."""

from __future__ import annotations

from contextlib import closing
from functools import cache

from orchestrator.model.event import Event
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import RunEntry, open_store
from tests.cli.console import Console
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
    with closing(open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)) as store:
        journal = store.create_run(entry(run, "boot/1/2/3", cluster=cluster))
        journal.append(events_of(cluster, nodes), at)
