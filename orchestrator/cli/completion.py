"""Shell completion: names of files, and runs and nodes from the state. Never uses the network.

Completion must not print. Where something cannot be read, nothing is offered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.model.event import RunStarted
    from orchestrator.runtime.store import StateStore

_RUNS = 20
"""Maximum number of runs offered, the latest first."""


def clusters(incomplete: str) -> list[str]:
    """Cluster files by name."""
    return _files("clusters", incomplete)


def playbooks(incomplete: str) -> list[str]:
    """Playbooks by name, including the shipped ones."""
    return _files("playbooks", incomplete)


def profiles(incomplete: str) -> list[str]:
    """Tuning profiles by name, including the shipped ones."""
    return _files("tuning", incomplete)


def predicates(incomplete: str) -> list[str]:
    """Predicates that may be disabled, of every kind of cluster."""
    from orchestrator.model.policy import Kind
    from orchestrator.runs.selection import predicate_names

    known = [predicate_names(kind) for kind in Kind]
    return _beginning(
        incomplete, {name for each in known for name in each.known if name not in each.always_on}
    )


def explained(incomplete: str) -> list[str]:
    """Names that `explain` accepts."""
    from orchestrator.cli.work.explain import all_entries

    return _beginning(incomplete, {name for entry in all_entries() for name in entry.names})


def runs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Runs in the state, the latest first, each with its cluster and outcome."""
    try:
        with _store(context) as store:
            entries = store.runs(limit=_RUNS)
    except OrchestratorError:
        return []
    return [
        (entry.run, f"{entry.cluster}: {entry.outcome.value if entry.outcome else 'unfinished'}")
        for entry in entries
        if entry.run.startswith(incomplete)
    ]


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """The nodes of the cluster's last run; without a named cluster, of the last run of any cluster."""
    started = _last_run(context)
    return _beginning(incomplete, started.addresses) if started is not None else []


def _last_run(context: typer.Context) -> RunStarted | None:
    from orchestrator.cli.context import context_of
    from orchestrator.cli.options import Output
    from orchestrator.model.event import RunStarted

    try:
        file = context.params.get("cluster")
        name = context_of(Output.JSON).cluster(file).spec.name if file else None
        with _store(context) as store:
            latest = store.runs(cluster=name, limit=1)
            events = [record.event for entry in latest for record in store.replay(entry.run)]
    except OrchestratorError:
        return None
    return next((event for event in events if isinstance(event, RunStarted)), None)


def _store(context: typer.Context) -> AbstractContextManager[StateStore]:
    from orchestrator.cli.context import context_of
    from orchestrator.cli.options import Output
    from orchestrator.runtime.database import Access

    return context_of(Output.JSON).state(context.params.get("state"), Access.READ)


def _files(folder: str, incomplete: str) -> list[str]:
    from orchestrator.config.lookup import Wanted, names, standard_places

    return _beginning(incomplete, names(Wanted(folder), standard_places(os.environ, home=Path.home())))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
