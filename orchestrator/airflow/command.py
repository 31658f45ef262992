"""The command lines of `orchestrate` that the operators start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.next_command import without_password
from orchestrator.runtime.state_file import VARIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Common flags of `restart` and `post-bulk-index`. Empty or None values are omitted."""

    cluster: str  # name or path of the cluster file
    # where journals are stored, as an SQLAlchemy URL; a password is `***` in the flag
    state: str | None = None
    playbook: str | None = None  # name or path
    only: Sequence[str] = ()  # globs of nodes; `exclude` likewise
    exclude: Sequence[str] = ()
    strategy: str | None = None  # how nodes are grouped into waves
    max_unavailable: str | None = None  # a number or a percentage, as text
    zone: str | None = None  # only nodes of this zone
    started_before: str | None = None  # a time or a duration, such as `30d`
    due: Sequence[str] = ()  # `version:V`, `reboot-required` or `config`, each
    timeout: str | None = None  # the program stands down after this duration, such as `5h`
    reason: str | None = None  # for `history`
    arguments: Sequence[str] = field(default=())  # further arguments, unchanged

    def words(self) -> list[str]:
        """The flags. Each value is joined to its flag, so a value that begins with a dash is not a flag."""
        single = {
            "cluster": self.cluster,
            "state": None if self.state is None else without_password(self.state),
            "playbook": self.playbook,
            "strategy": self.strategy,
            "max-unavailable": self.max_unavailable,
            "zone": self.zone,
            "started-before": self.started_before,
            "timeout": self.timeout,
            "reason": self.reason,
        }
        return [
            *(f"--{name}={value}" for name, value in single.items() if value is not None),
            *(f"--only={node}" for node in self.only),
            *(f"--exclude={node}" for node in self.exclude),
            *(f"--due={one}" for one in self.due),
            *self.arguments,
            "--yes",
            "--output=json",
        ]


def restart(selection: Selection) -> list[str]:
    """`orchestrate restart …`."""
    return ["restart", *selection.words()]


def post_bulk_index(
    selection: Selection,
    *,
    index: Sequence[str],
    max_segments: int | None = None,
    restarts: bool | None = None,
    allow_writes: bool = False,
) -> list[str]:
    """`orchestrate post-bulk-index …`.

    Args:
        selection: the nodes to restart, and all other flags of a restart.
        index: names or patterns of indices; at least one.
        max_segments: maximum segments per copy; by default the playbook's.
        restarts: whether nodes are restarted afterwards; None = the program's default.
        allow_writes: also merge indices that are still being written.

    Raises:
        ValueError: no index is named.
    """
    if not index or not all(index):
        raise ValueError("post-bulk-index needs the name or the pattern of an index")
    words = [f"--index={pattern}" for pattern in index]
    if max_segments is not None:
        words.append(f"--max-segments={max_segments}")
    if restarts is not None:
        words.append("--restart" if restarts else "--no-restart")
    if allow_writes:
        words.append("--allow-writes")
    return ["post-bulk-index", *words, *selection.words()]


def stop(run: str, state: str | None = None) -> list[str]:
    """`orchestrate stop RUN`: the run starts its nodes, restores settings and ends."""
    return ["stop", run, "--output=json", *([f"--state={without_password(state)}"] if state else [])]


def with_password(state: str) -> dict[str, str]:
    """The variable that completes a `--state` without its password; none for a URL that has no password."""
    return {VARIABLE: state} if without_password(state) != state else {}
