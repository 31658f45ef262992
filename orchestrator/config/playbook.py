"""The playbook: options and hooks of a restart. It cannot make a restart unsafe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.config.around import (
    Around,
    AroundHook,
    alertmanager_in,
    grafana_in,
    hooks_in,
    named_apart,
    targets_in,
)
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.faults import validate
from orchestrator.config.kinds import files_of
from orchestrator.config.playbook_parts import PlaybookKeys
from orchestrator.config.which_file import FileKind, read_as
from orchestrator.config.yaml import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A playbook that was read and checked."""

    name: str  # as the user typed it; journalled
    path: Path
    spec: PlaybookKeys
    document: Document = field(repr=False)


def around_in(cluster: ClusterFile, playbook: Playbook | None) -> Around:
    """What surrounds a run, by its cluster file and its playbook."""
    targets = targets_in(cluster.spec.notify, cluster.path.resolve().parent)
    hooks: tuple[AroundHook, ...] = ()
    if playbook is not None:
        folder = playbook.path.resolve().parent
        targets += targets_in(playbook.spec.notify, folder)
        hooks = hooks_in(playbook.spec.hooks, folder)
    return Around(
        targets=named_apart(targets),
        hooks=hooks,
        alertmanager=alertmanager_in(cluster.spec.silence, cluster.path.resolve().parent),
        textfile=cluster.local_path(cluster.spec.metrics.textfile) if cluster.spec.metrics else None,
        grafana=grafana_in(cluster.spec.annotations, cluster.path.resolve().parent),
    )


def load_playbook(path: Path, *, name: str | None = None) -> Playbook:
    """Read a playbook; the default name is that of its file.

    Raises:
        ConfigError: file, line and key of every fault.
        NotInThisVersion: all its faults are strategies and keys of a later version.
    """
    return check_playbook(read_as(FileKind.PLAYBOOK, path), path=path, name=name or path.stem)


def check_playbook(document: Document, *, path: Path, name: str) -> Playbook:
    """Check a document that was already read; raises as `load_playbook` does."""
    spec = validate(files_of(document).playbook, document)
    return Playbook(name=name, path=path, spec=spec, document=document)
