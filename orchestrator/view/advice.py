"""What to do after a run: the one place where its next command is chosen and written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.model.cluster import NodeName
from orchestrator.next_command import next_command
from orchestrator.view.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A command, and what it is for."""

    command: str
    first: str = ""  # what a person has to do before it; empty if nothing
    restores: bool = False  # whether it only restores; otherwise it continues the run


def advice(
    run: str, *, failed: Collection[NodeName], left: bool, refused: bool = False, state: str = ""
) -> Advice:
    """The next command for a run that has ended or was killed.

    A node that failed fails again until a person repairs it. Then a retry starts it and restores the rest.

    Args:
        run: its id.
        failed: nodes that did not start, stop or rejoin.
        left: whether anything that it changed is not restored.
        refused: whether the cluster refused its credentials at the end.
        state: the state database, as after `--state`; empty for the usual place.
    """
    if failed:
        retry = next_command("resume", run, "--retry-failed", state=state)
        return Advice(command=retry, first=f"repair {listed(failed)}, then ")
    if left:
        first = "have the credentials accepted, then " if refused else ""
        return Advice(command=next_command("restore", run, state=state), first=first, restores=True)
    return Advice(command=next_command("resume", run, state=state))
