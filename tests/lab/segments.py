"""The number of segments in each copy of each shard, from the servers' own `_segments`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.lab.client import LabClient


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySegments:
    """The segments of one copy of a shard. The name of the node identifies the copy."""

    index: str
    shard: int
    node: str
    primary: bool
    state: str  # as the server writes it: `STARTED` and others
    searched: int  # segments that a search reads
    committed: int  # segments of the last commit; a restarted node opens these
    documents: int  # live documents in the searched segments
    bytes: int  # size of the searched segments

    @property
    def most(self) -> int:
        """The larger number of searched and committed segments: a merge must reduce both."""
        return max(self.searched, self.committed)


def count_segments(client: LabClient, pattern: str) -> tuple[CopySegments, ...]:
    """Every copy of the indices of a pattern, in the order of index, shard and node.

    A copy that is not assigned, or whose node does not answer, is missing: compare with the expected number
    of copies.
    """
    nodes = client.ask("GET", "/_nodes/http")["nodes"]  # without a named part, 2.4 sends all parts
    names = {identity: str(node["name"]) for identity, node in nodes.items()}
    read = client.ask("GET", f"/{pattern}/_segments")
    copies = [
        _copy(index, int(number), names, copy)
        for index, one in read["indices"].items()
        for number, copies in one["shards"].items()
        for copy in copies
    ]
    return tuple(sorted(copies, key=lambda copy: (copy.index, copy.shard, copy.node)))


def _copy(index: str, shard: int, names: dict[str, str], read: dict[str, Any]) -> CopySegments:
    routing = read["routing"]
    searched = [segment for segment in read["segments"].values() if segment["search"]]
    return CopySegments(
        index=index,
        shard=shard,
        node=names.get(routing["node"], routing["node"]),
        primary=routing["primary"],
        state=routing["state"],
        searched=int(read["num_search_segments"]),
        committed=int(read["num_committed_segments"]),
        documents=sum(int(segment["num_docs"]) for segment in searched),
        bytes=sum(int(segment["size_in_bytes"]) for segment in searched),
    )


def told(copies: Sequence[CopySegments]) -> str:
    """One line for people: how many copies on how many nodes, and how many segments they have."""
    if not copies:
        return "no copies"
    searched, committed = (
        f"{min(counts)}/{median(counts):.0f}/{max(counts)}"
        for counts in ([each.searched for each in copies], [each.committed for each in copies])
    )
    return (
        f"{len(copies)} copies on {len({each.node for each in copies})} nodes, "
        f"{sum(each.bytes for each in copies) / 2**20:.0f} MiB; segments of a copy, least/median/most: "
        f"searched {searched}, committed {committed}"
    )
