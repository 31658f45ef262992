"""Why a node is due for a restart, beside its age: an older version, a pending reboot, changed files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.model.reading import Instant


class DueFor(Enum):
    """What `--due` names."""

    VERSION = "version"
    REBOOT = "reboot-required"
    CONFIG = "config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One reason for which nodes are selected.

    Attributes:
        version: for `VERSION`: nodes that run an older one are due.
        files: for `CONFIG`: absolute paths on the node's host; `{node}` is the node's name.
    """

    reason: DueFor
    version: str = ""
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.reason.value}:{self.version}" if self.version else self.reason.value


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanges:
    """What has changed on a host.

    Attributes:
        reboot: why the host has to be rebooted; empty if nothing asks for it.
        files: when each of the files that exist was last written, replaced, or given other rights or owners.
    """

    reboot: str = ""
    files: Mapping[str, Instant] = field(default_factory=dict)


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, without trailing zeros: 9.1 and 9.1.0 are the same version."""
    parts = [int(part) for part in re.findall(r"\d+", version.partition("-")[0].partition("+")[0])]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def reasons(
    due: Sequence[Due], *, version: str, started: Instant | None, changes: HostChanges | None
) -> Iterator[str]:
    """Why a node is due; none if it is not.

    Args:
        due: the reasons that were asked for.
        version: that the node runs.
        started: when its process started, by its own clock.
        changes: on its host; None if no reason needs them.
    """
    for one in due:
        if one.reason is DueFor.VERSION and numbers(version) < numbers(one.version):
            yield f"runs {version}"
        if changes is None:
            continue
        if one.reason is DueFor.REBOOT and changes.reboot:
            yield changes.reboot
        if one.reason is DueFor.CONFIG and started is not None:
            # A file's time has whole seconds here: one of the second of the start counts as older.
            newer = [path for path, changed in sorted(changes.files.items()) if changed > int(started)]
            if newer:
                more = f" and {len(newer) - 1} more" if len(newer) > 1 else ""
                yield f"{newer[0]}{more} changed after it started"
