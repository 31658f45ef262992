"""Shell completion: names of files, of runs and nodes in the state file, and of what can be explained.

It loads only what it needs, uses no network and prints nothing. Where something cannot be read, nothing is
offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import typer

from orchestrator.errors import OrchestratorError

_NAME: Final = r"""^ ?["']?name["']?: +["']?([\w.-]+)["']?,? *(?:#.*)?$"""
"""The line of a cluster's name in its file, in YAML or in JSON."""
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
    from orchestrator.cli.work.explain import all_entries

    return _beginning(incomplete, (entry.names[0] for entry in all_entries() if entry.may_be_disabled))


def explained(incomplete: str) -> list[str]:
    """Names that `explain` accepts, without those that are several words."""
    from orchestrator.cli.work.explain import all_entries

    return _beginning(
        incomplete, {name for entry in all_entries() for name in entry.names if " " not in name}
    )


def runs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Runs in the state, the latest first, each with its cluster and outcome."""
    from orchestrator.runtime.state_file import last_runs

    state = _state(context)
    return [
        (run, f"{cluster}: {outcome or 'unfinished'}")
        for run, cluster, outcome in ([] if state is None else last_runs(state, limit=_RUNS))
        if run.startswith(incomplete)
    ]


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """The nodes of the cluster's last run; without a named cluster, of the last run of any cluster.

    In a list with commas, for its last name.
    """
    from orchestrator.runtime.state_file import last_runs, nodes_of

    state, file = _state(context), context.params.get("cluster")
    cluster = _name_of(file) if file else None
    if state is None or (file and cluster is None):
        return []
    first = incomplete[: incomplete.rfind(",") + 1]
    last = last_runs(state, cluster=cluster, limit=1)
    return _beginning(incomplete, (first + node for each in last for node in nodes_of(state, each.run)))


def _state(context: typer.Context) -> Path | None:
    """The state file, or None if the state is elsewhere."""
    from orchestrator.runtime.state_file import file_to_read

    return file_to_read(context.params.get("state"), os.environ, home=Path.home())


def _name_of(file: str) -> str | None:
    """The name of the cluster in its file. Only its line is read, because parsing the whole file is slow."""
    from orchestrator.config.lookup import KindOfFile, find, standard_places

    try:
        places = standard_places(os.environ, home=Path.home())
        text = find(KindOfFile.CLUSTER, file, places).read_text("utf-8")
    except (OrchestratorError, OSError, ValueError):
        return None
    found = re.search(_NAME, text, re.MULTILINE)
    return found[1] if found else None


def _files(folder: str, incomplete: str) -> list[str]:
    from orchestrator.config.lookup import KindOfFile, names, standard_places

    return _beginning(incomplete, names(KindOfFile(folder), standard_places(os.environ, home=Path.home())))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
