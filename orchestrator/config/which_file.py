"""Which kind of file a document is, by its keys: for messages about one that was given in the wrong place."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from orchestrator.config.lookup import is_shipped
from orchestrator.config.spec import HOSTS, keys_of_file
from orchestrator.config.yaml import Document, read
from orchestrator.errors import ConfigError
from orchestrator.owners import why_not


class FileKind(Enum):
    """Files that a command takes; the value is how messages call each."""

    CLUSTER = "cluster file"
    PLAYBOOK = "playbook"
    TUNING = "tuning profile"
    PLAN = "saved plan"
    SNAPSHOT = "snapshot"


_WHERE: Final[Mapping[FileKind, str]] = {
    FileKind.CLUSTER: "name it with `--cluster`",
    FileKind.PLAYBOOK: "name it with `--playbook`, or as `playbook` in the cluster file",
    FileKind.TUNING: "name it as `tune` in the playbook, or with `--profile` of `orchestrate tune`",
    FileKind.PLAN: "`orchestrate apply` runs it",
    FileKind.SNAPSHOT: "`orchestrate rehearse --snapshot` takes it",
}
"""What to do with each."""

ALSO_OF_CLUSTERS: Final = frozenset({"kind", "notify"})
"""Keys of playbooks that a cluster file has too."""
_CLUSTER_KEYS: Final = frozenset({"endpoints", "name"})


def kind_of_file(content: Mapping[str, Any]) -> FileKind | None:
    """Which file these top keys are of; None where they do not say."""
    if "event" in content:  # a line of the program's own JSON
        return {"plan": FileKind.PLAN, "snapshot": FileKind.SNAPSHOT}.get(str(content["event"]))
    if "endpoints" in content or content.get("kind") == HOSTS:
        return FileKind.CLUSTER
    if "applies_to" in content:
        return FileKind.TUNING
    if "kind" in content and not content.keys() & _CLUSTER_KEYS:
        own = keys_of_file(FileKind.PLAYBOOK.value) - ALSO_OF_CLUSTERS
        return FileKind.PLAYBOOK if content.keys() & own else None
    return None


def require_file(wanted: FileKind, content: Mapping[str, Any], *, file: str) -> None:
    """Refuse a file that is one of another kind. One that cannot be recognised passes: its keys are checked.

    Args:
        wanted: the kind that belongs here.
        content: its top mapping.
        file: the path as the user knows it.

    Raises:
        ConfigError: it is of another kind; the message says which, and where that one is given.
    """
    found = kind_of_file(content)
    if found is not None and found is not wanted:
        raise ConfigError(f"this is a {found.value}, not a {wanted.value}; {_WHERE[found]}", file=file)


def require_trusted(path: Path) -> None:
    """Refuse a file that decides what runs, if an account that is not trusted can change it.

    Files of the package are as trusted as the package.

    Raises:
        ConfigError: one can; the message has the command that repairs it.
    """
    why = None if is_shipped(path) else why_not(path)
    if why is not None:
        raise ConfigError(why, file=str(path))


def read_as(wanted: FileKind, path: Path) -> Document:
    """Read and parse a file of this kind.

    Raises:
        ConfigError: another account can change it; it cannot be read, is no YAML, or is of another kind.
    """
    require_trusted(path)
    document = read(path)
    require_file(wanted, document.content, file=document.file)
    return document
