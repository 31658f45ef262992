"""Which nodes the flags select: names that contradict each other, and the reasons of `--due`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from orchestrator.config.faults import near
from orchestrator.config.hosts import DataPath
from orchestrator.config.spec import NOT_EMPTY
from orchestrator.errors import UsageError
from orchestrator.model.policy import Due, DueFor

_KNOWN: Final = ("version:V", DueFor.REBOOT.value, DueFor.CONFIG.value)
_VERSION: Final = re.compile(r"\d{1,4}(\.\d{1,6}){1,3}")

ConfigFiles = Annotated[tuple[DataPath, ...], NOT_EMPTY]
CONFIG_FILES: Final = (
    "Files that `--due config` compares with the start of a node's process: absolute paths on its host, of"
    " which some may not exist. Of a folder, the files in it count. `{node}` is the name of the node."
    " Default: those of the packages, with `/etc/default`, `/etc/sysconfig` and drop-ins."
)


def parse_due(written: Sequence[str], *, reboot: bool, files: tuple[str, ...]) -> tuple[Due, ...]:
    """Read the values of `--due`.

    Args:
        written: as typed.
        reboot: whether the run reboots hosts.
        files: `config_files` of the playbook, or those of the packages, which a node reads at its start.

    Raises:
        UsageError: one is unknown, or needs another flag.
    """
    found = []
    for text in written:
        name, colon, version = text.partition(":")
        if name == DueFor.VERSION.value:
            if _VERSION.fullmatch(version) is None:
                raise UsageError(f"--due {text}: must name a version, such as `version:9.1.0`")
            found.append(Due(reason=DueFor.VERSION, version=version))
        elif colon or name not in _KNOWN:
            raise UsageError(f"--due {text}: unknown; {near(text, _KNOWN)}")
        elif name == DueFor.REBOOT.value:
            if not reboot:
                raise UsageError(
                    f"--due {text}: needs --reboot, since a restart of the service leaves the host as it is"
                )
            found.append(Due(reason=DueFor.REBOOT))
        else:
            found.append(Due(reason=DueFor.CONFIG, files=files))
    return tuple(dict.fromkeys(found))


def require_consistent(only: Sequence[str], exclude: Sequence[str], zone: str | None) -> None:
    """Refuse names of nodes and zones that are empty or contradict each other.

    Raises:
        UsageError: they are.
    """
    for flag, patterns in (("--only", only), ("--exclude", exclude)):
        if any(not pattern.strip() for pattern in patterns):
            raise UsageError(f"{flag}: the name of a node, or a glob, is needed")
    if zone is not None and not zone.strip():
        raise UsageError("--zone: the name of a zone is needed")
    if "*" in exclude:
        raise UsageError("--exclude '*': leaves no node to restart")
    for wanted in only:
        # A glob in --only may be narrowed; a named node, or the same glob, is a contradiction.
        plain = not set(wanted) & set("*?[")
        for unwanted in exclude:
            if wanted == unwanted or (plain and fnmatchcase(wanted, unwanted)):
                raise UsageError(f"--only {wanted} and --exclude {unwanted} contradict each other")
