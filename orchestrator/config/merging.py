"""Merging after a bulk load: the playbook's `force_merge` and the flags, joined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import Field, StrictInt

from orchestrator.config.spec import Duration, Positive, Spec, Unset, matching
from orchestrator.errors import UsageError
from orchestrator.model.merging import LoaderSettings, MergePolicy

_INTERVAL = matching(
    r"|[1-9][0-9]*(ms|s|m|h)",
    'must be a time such as 1s or 30s, or "" to remove the setting; -1 is the value that a loader sets',
)


_USUAL: Final = MergePolicy(patterns=())


class PutRightSpec(Spec):
    """Index settings to set after the merge, in place of those of bulk loaders; others stay unchanged."""

    number_of_replicas: Unset[Annotated[StrictInt, Field(ge=1, le=100)]] = Field(
        default=None, description="Replicas for an index that has none."
    )
    refresh_interval: Unset[Annotated[str, _INTERVAL]] = Field(
        default=None,
        description='For an index that is never refreshed (`-1`): such as `1s`; `""` removes the setting.',
    )
    translog_durability: Unset[Literal["request"]] = Field(
        default=None, description="For an index with `async`."
    )


class ForceMergeSpec(Spec):
    """How `post-bulk-index` and `force-merge` merge; `restart` ignores this section."""

    max_segments: Positive = Field(
        default=_USUAL.max_segments,
        description="Maximum segments per copy. Fewer segments cost more disk work and gain little.",
    )
    at_once: Positive = Field(default=_USUAL.at_once, description="Indices that are merged at a time.")
    per_node: Positive = Field(
        default=_USUAL.per_node,
        description="Of these, with a copy on the same node: a merge uses its disk and its page cache.",
    )
    deadline: Duration = Field(
        default=_USUAL.deadline, description="Longest merge of one index. After it the run stands down."
    )
    put_right: PutRightSpec = Field(
        default_factory=PutRightSpec,
        description="Settings that bulk loaders change (no replica, no refresh, asynchronous translog),"
        " set to these values after the merge. A setting that is left out is not changed.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeFlags:
    """Flags of the commands that merge, as typed."""

    patterns: tuple[str, ...]  # each `--index`; commas separate names in one
    max_segments: int | None = None  # None without `--max-segments`
    allow_writes: bool = False


def merge_policy(spec: ForceMergeSpec, flags: MergeFlags) -> MergePolicy:
    """Join both; flags win.

    Raises:
        UsageError: a flag is wrong; it is named.
    """
    parts = (part.strip() for pattern in flags.patterns for part in pattern.split(","))
    patterns = tuple(dict.fromkeys(parts))
    if not patterns:
        raise UsageError("--index: name the indices that were loaded, such as --index 'posts-*'")
    for pattern in patterns:
        _check_pattern(pattern)
    if flags.max_segments is not None and flags.max_segments < 1:
        raise UsageError(f"--max-segments {flags.max_segments}: must be at least 1")
    return replace(
        MergePolicy(patterns=patterns, **dict(spec)),
        max_segments=flags.max_segments or spec.max_segments,
        allow_writes=flags.allow_writes,
        put_right=LoaderSettings(**dict(spec.put_right)),
    )


def _check_pattern(pattern: str) -> None:
    """Refuse a pattern that is not a name or glob of indices of this cluster.

    Raises:
        UsageError: empty, an exclusion, or of another cluster.
    """
    if not pattern:
        raise UsageError("--index: the name of an index, or a glob, is needed")
    if pattern.startswith("-"):
        raise UsageError(f"--index {pattern}: takes an index out; name those that are to be merged instead")
    if ":" in pattern:
        raise UsageError(
            f"--index {pattern}: names indices of another cluster, and a merge is done where they are: "
            "run this with the file of that cluster"
        )
