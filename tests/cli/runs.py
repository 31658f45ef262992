"""Runs as the state file lists them."""

from __future__ import annotations

from orchestrator.runtime.store import RunEntry


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
