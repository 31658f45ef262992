"""Parse the running force-merges and their indices from the task list. Pure.

A request is a task `indices:admin/forcemerge` on the node that received it. It has a part `…forcemerge[n]` on
every node with copies. Seen on Elasticsearch 8.19 and 9.1 and on OpenSearch 2.19: all tasks continue after
the client disconnects. If the receiving node is killed, the parts continue, and their parent task id no
longer exists. So a request that is not listed is found by its parts. On OpenSearch a part has no description,
and a part that waits in its node's queue is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.elasticsearch.fields import Malformed, answer_of, given, items, mapping, text, within
from orchestrator.elasticsearch.resolve import matches

MERGE_ACTIONS: Final = "indices:admin/forcemerge*"
_REQUEST: Final = "indices:admin/forcemerge"
_DESCRIPTION: Final = re.compile(r"Force-merge indices \[(?P<named>.*)\], maxSegments\[.*", re.DOTALL)
"""The start is the same on all three. The names are those of the request: also globs, aliases and data
streams. They are empty for all indices."""
_DATE_MATH: Final = "<"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMerge:
    """A request for a force-merge in progress."""

    task: str  # id of its task, `node:number`
    # the names in the request; empty for all indices. None if they cannot be read.
    named: tuple[str, ...] | None

    def covers(self, names: Collection[str]) -> bool:
        """Whether the request may include the index with these names.

        A request with unreadable names counts for every index, and exclusions (`-name`) are ignored. If a
        merge is wrongly taken for running, the run waits for it; if it is missed, the merge is done twice.
        """
        if not self.named:
            return True
        return any(
            pattern.startswith(_DATE_MATH) or any(matches(pattern, name) for name in names)
            for pattern in self.named
        )


@answer_of("force-merges")
def parse_merges(body: Any) -> tuple[RunningMerge, ...]:
    """`_tasks?actions=*forcemerge*&detailed`. A node that did not answer makes it unknown."""
    for part in ("node_failures", "task_failures"):
        if failures := items(given(within(body, part), []), part):
            raise Malformed(f"{len(failures)} {part.replace('_', ' ')}: {str(failures[0])[:200]}")
    requests: dict[str, RunningMerge] = {}
    parts: dict[str, RunningMerge] = {}
    for node_id, node in mapping(within(body, "nodes"), "nodes").items():
        for task_id, task in mapping(within(node, "tasks"), f"nodes.{node_id}.tasks").items():
            named = _named(within(task, "description"))
            if text(within(task, "action"), f"{task_id}.action") == _REQUEST:
                requests[task_id] = RunningMerge(task=task_id, named=named)
                continue
            parent = text(within(task, "parent_task_id"), f"{task_id}.parent_task_id")
            parts[parent] = RunningMerge(task=parent, named=named)
    found = parts | requests
    return tuple(found[task] for task in sorted(found))


def _named(description: Any) -> tuple[str, ...] | None:
    match = _DESCRIPTION.fullmatch(description) if isinstance(description, str) else None
    return None if match is None else tuple(filter(None, match["named"].split(", ")))


def named_otherwise(merges: Collection[RunningMerge], names: Collection[str]) -> bool:
    """Whether a merge names anything else than these indices, so that all names are needed to resolve it."""
    return any(pattern not in names for merge in merges for pattern in merge.named or ())
