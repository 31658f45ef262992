"""The indices of a bulk load: resolve the given patterns, read the indices, and decide what is due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import UsageError
from orchestrator.merging.rules import PastMerges, leftovers, merge_targets, nodes_due
from orchestrator.model.event import RunStarted
from orchestrator.model.merging import BulkView, LoaderLeftover, Resolution, ResolvedIndex
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Unknown
from orchestrator.runs.connection import Connection
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import StateMissing
from orchestrator.view.text import counted, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedIndices:
    """The loaded indices, by the first reading.

    Attributes:
        started: how the run begins: with the indices in their order, and the nodes that are due.
        bulk: the reading of them.
        left: what their loader seems to have left behind.
        restarts: whether nodes are to be restarted at all.
        recorded: whether the state database has a merge of any of them: it shows which nodes are due.
    """

    started: RunStarted
    bulk: BulkView
    left: tuple[LoaderLeftover, ...]
    restarts: bool
    recorded: bool

    @property
    def nothing_to_do(self) -> str | None:
        """Why the step has nothing to do; None when it has something."""
        started, merge = self.started, self.started.policy.merge
        due = any(target.due for target in started.indices) or any(one.put_right for one in self.left)
        if merge is None or due or started.nodes:
            return None
        number = len(started.indices)
        said = (
            f"{started.cluster}: nothing to do: {counted(number, 'index', 'indices')} "
            f"{'has' if number == 1 else 'have'} at most {counted(merge.max_segments, 'segment')} a copy"
        )
        if not self.restarts:
            return said
        if not self.recorded:
            return f"{said}, and the state file has no merge of them that this restart could follow"
        return f"{said}, and every selected node was restarted since they were merged"


def find_bulk_indices(
    connection: Connection, view: ClusterView, started: RunStarted, *, restarts: bool
) -> LoadedIndices:
    """Resolve the indices of a bulk load, read them, and work out what is due.

    Args:
        connection: the cluster, and the state that records earlier merges.
        view: the first reading of the cluster.
        started: how the run begins without them.
        restarts: whether nodes are restarted after the merges.

    Raises:
        UsageError: the patterns match nothing that can be merged, or it cannot be read.
        JournalError: the state cannot be read.
    """
    policy, ports = started.policy.merge, connection.ports
    if policy is None:
        raise UsageError("--index: name the indices that were loaded, such as --index 'posts-*'")
    found = ports.resolve(policy.patterns)
    if isinstance(found, Unknown):
        raise UsageError(f"the indices of {view.name} cannot be read: {found.reason}")
    chosen = require_open(found, policy.patterns, view.name)
    for note in left_out(found):
        connection.process.warn(note)
    bulk = ports.cluster.bulk([index.uuid for index in chosen])
    if isinstance(bulk, Unknown):
        raise UsageError(
            f"the segments of {_names(chosen)} on {view.name} cannot be read: {bulk.reason}; "
            "try again when every copy answers"
        )
    if not bulk.indices:
        raise UsageError(f"{_names(chosen)} went away while it was looked at; nothing was changed")
    past = _past_merges(connection, view.uuid, bulk)
    targets = merge_targets(bulk, policy, past)
    left = leftovers(bulk, policy.put_right, view)
    nodes = nodes_due(started.nodes, view, targets, past, left) if restarts else ()
    return LoadedIndices(
        started=replace(started, nodes=nodes, indices=targets),
        bulk=bulk,
        left=left,
        restarts=restarts,
        recorded=bool(past.ended),
    )


def _past_merges(connection: Connection, uuid: str, bulk: BulkView) -> PastMerges:
    """What earlier runs merged; empty before the first run."""
    try:
        with connection.state(Access.READ) as store:
            return store.merges(uuid, tuple(bulk.indices))
    except StateMissing:
        return PastMerges()


def require_open(found: Resolution, patterns: Sequence[str], cluster: str) -> tuple[ResolvedIndex, ...]:
    """The indices to work on.

    Args:
        found: what the patterns match.
        patterns: as they were given.
        cluster: its name, for the message.

    Raises:
        UsageError: a pattern matches nothing, or nothing that can be merged.
    """
    if found.unmatched:
        raise UsageError(
            f"--index {found.unmatched[0]}: {cluster} has no index, alias or data stream of that name; "
            "see `GET /_cat/indices?v`"
        )
    if found.open:
        return found.open
    given = " ".join(f"--index {pattern}" for pattern in patterns)
    if found.closed:
        raise UsageError(
            f"{given}: {_names(found.closed)} {_is(found.closed)} closed, and the segments of a closed index "
            "can be neither read nor merged: open it first"
        )
    raise UsageError(
        f"{given}: {_names(found.hidden)} {_is(found.hidden)} hidden: give the name in full, or with its dot"
    )


def left_out(found: Resolution) -> tuple[str, ...]:
    """What matches and is left out, one line a reason."""
    lines = []
    if found.closed:
        lines.append(f"left out, since closed: {_names(found.closed)}")
    if found.hidden:
        lines.append(
            f"left out, since hidden: {_names(found.hidden)}; give the name in full to have it merged"
        )
    return tuple(lines)


def _names(indices: Iterable[ResolvedIndex]) -> str:
    return listed([index.name for index in indices], 5)


def _is(indices: Sequence[ResolvedIndex]) -> str:
    return "is" if len(indices) == 1 else "are"
