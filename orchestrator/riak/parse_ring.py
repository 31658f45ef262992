"""The ring: its members, its agreement, and the owners of its partitions.

`cluster status`: the members of the cluster, which of them answer, and whether their shares change.

It prints no number of members, but each member's share of the ring: the shares must add up to the whole ring.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import (
    HASH_SPACE,
    Availability,
    ClusterMember,
    ClusterStatus,
    Membership,
    NodePartitions,
    NodeStats,
    Ring,
    RingReady,
)
from orchestrator.riak.output import (
    CommandOutput,
    Return,
    RiakDialect,
    RiakUnreadable,
    blank,
    parsing,
    said,
    shown,
)
from orchestrator.riak.terms import node_name, node_names, printed_node, take_table

_TRUE: Final = re.compile(r"TRUE All nodes agree on the ring (\[.*\])")
_DOWN: Final = re.compile(r"FALSE (\[.*\]) down\.\s+All nodes need to be up to check\.")
_DIFFERENT: Final = re.compile(r"FALSE Node (\S+) and (\S+) list different partition owners")

_PARTITIONS_OF: Final = re.compile(r"Partitions owned by (\S+):")
_PARTITION_COLUMNS: Final = ("type", "index", "id")
_OWNED: Final = ("primary", "stopped")
_PARTITION_KINDS: Final = (*_OWNED, "secondary")
_NO_PARTITION: Final = "--"


@parsing("ringready")
def parse_ringready(output: CommandOutput, dialect: RiakDialect) -> RingReady:
    """`ringready`. FALSE exits with 1 before 3.2, and with 0 and the term `error` from 3.2 on."""
    answer = said(output, dialect)
    if found := _TRUE.fullmatch(answer.text):
        answer.must_be_ok()
        return RingReady(agreed=True, nodes=node_names(found[1]))
    if answer.returned is Return.OK:
        raise RiakUnreadable(f"{shown(answer.text)}, and yet the return term is ok")
    if found := _DOWN.fullmatch(answer.text):
        return RingReady(agreed=False, down=node_names(found[1]))
    if found := _DIFFERENT.fullmatch(answer.text):
        return RingReady(agreed=False, differing=(printed_node(found[1]), printed_node(found[2])))
    raise RiakUnreadable(f"neither TRUE nor FALSE: {shown(answer.text)}")


@parsing("cluster partitions")
def parse_partitions(output: CommandOutput, dialect: RiakDialect) -> NodePartitions:
    """`cluster partitions --node NODE`, from 2.0 on: what it owns, even if it is down, and holds for others.

    The form comes from Riak's source; `ring_of` checks what it owns against `/stats`.
    """
    answer = said(output, dialect)
    answer.must_be_ok()
    lines = [line for line in answer.lines if not blank(line)]
    named = _PARTITIONS_OF.fullmatch(lines[0]) if lines else None
    if named is None:
        raise RiakUnreadable("it does not say whose partitions they are")
    table, rest = take_table(lines[1:], _PARTITION_COLUMNS)
    if rest:
        raise RiakUnreadable(f"{shown(rest[0])} follows the table")
    owned: list[int] = []
    others: set[int] = set()
    kinds: set[str] = set()
    for row in table.rows:
        kind, index, _ = (cell.strip() for cell in row)
        kinds.add(kind)
        if index == _NO_PARTITION:
            continue
        if not index.isdecimal():
            raise RiakUnreadable(f"{shown(index)} is no index")
        if kind in _OWNED:
            owned.append(int(index))
        else:
            others.add(int(index))
    if kinds != set(_PARTITION_KINDS):
        raise RiakUnreadable(
            f"partitions are {', '.join(sorted(kinds))} instead of {', '.join(_PARTITION_KINDS)}"
        )
    if len(set(owned)) != len(owned):
        raise RiakUnreadable("a partition is listed twice")
    return NodePartitions(node=printed_node(named[1]), owned=frozenset(owned), others=frozenset(others))


@parsing("ring")
def ring_of(owned: Mapping[NodeName, Collection[int]], stats: NodeStats) -> Ring:
    """Combine the owners to a ring, and check it against `/stats`.

    Every partition must have exactly one owner, and every node as many partitions as `/stats` counts. So a
    cut list, a missing node or a wrong name gives `Unknown`.
    """
    counted = {node: number for node, number in stats.ownership.items() if number}
    if {node: len(indices) for node, indices in owned.items() if indices} != counted:
        raise RiakUnreadable("the partitions that nodes own are not as many as /stats counts")
    owners: dict[int, NodeName] = {}
    for node, indices in owned.items():
        for index in indices:
            number = _number_of(index, stats.ring_size)
            if number in owners:
                raise RiakUnreadable(f"partition {number} has two owners")
            owners[number] = node
    if len(owners) != stats.ring_size:
        raise RiakUnreadable(f"{stats.ring_size - len(owners)} partitions have no owner")
    return Ring(owners=tuple(owners[number] for number in range(stats.ring_size)))


@parsing("cluster partitions")
def numbers_of(indices: Collection[int], ring_size: int) -> frozenset[int]:
    """The numbers of these partitions in a ring of this size."""
    return frozenset(_number_of(index, ring_size) for index in indices)


def _number_of(index: int, ring_size: int) -> int:
    step, rest = divmod(HASH_SPACE, ring_size)
    if rest:
        raise RiakUnreadable(f"a ring of {ring_size} does not divide the hash space")
    number, off = divmod(index, step)
    if off or not 0 <= number < ring_size:
        raise RiakUnreadable(f"{index} is no partition of a ring of {ring_size}")
    return number


_COLUMNS: Final = ("node", "status", "avail", "ring", "pending")
_NODE_CELL: Final = re.compile(r"\s*(?=\S)(\(C\) \s*)?(\S+) +")
_SHARE: Final = re.compile(r"\d{1,3}\.\d")
_NONE_PENDING: Final = "--"
_READY: Final = {"Ring ready: true": True, "Ring ready: false": False, "Ring ready: undefined": None}
_KEY: Final = "Key: (C) = Claimant; availability marked with '!' is unexpected"
_ROUNDING: Final = 0.0501
"""Rounding error of each line: half of the last printed digit."""


@parsing("cluster status")
def parse_cluster_status(output: CommandOutput, dialect: RiakDialect) -> ClusterStatus:
    """`cluster status`, from 2.0 on; 3.x adds a column if there are locations."""
    answer = said(output, dialect)
    answer.must_be_ok()
    lines = [line for line in answer.lines if not blank(line)]
    if len(lines) < 2 or lines[0] != "---- Cluster Status ----" or lines[1] not in _READY:  # noqa: PLR2004  (frame)
        raise RiakUnreadable("the heading of the cluster status is missing")
    located = len(lines) > 3 and "location" in lines[3]  # noqa: PLR2004  (border, then headings)
    columns = (*_COLUMNS, "location") if located else _COLUMNS
    table, rest = take_table(lines[2:], columns)
    if list(rest) != [_KEY]:
        raise RiakUnreadable("the key under the table is missing")
    members = tuple(_cluster_member(row) for row in table.rows)
    _must_be_all(members)
    if sum(member.claimant for member in members) != 1:
        raise RiakUnreadable("there is not exactly one claimant")
    return ClusterStatus(ring_ready=_READY[lines[1]], members=members)


def _cluster_member(row: Sequence[str]) -> ClusterMember:
    # The command prints a blank after a name: a cell without one was cut to fit the screen.
    named = _NODE_CELL.fullmatch(row[0])
    if named is None:
        raise RiakUnreadable(f"{shown(row[0])} is no node, or is cut")
    share, pending = row[3].strip(), row[4].strip()
    if not _SHARE.fullmatch(share) or not (pending == _NONE_PENDING or _SHARE.fullmatch(pending)):
        raise RiakUnreadable(f"{shown(share)} and {shown(pending)} are no shares of the ring")
    location = row[5].strip() if len(row) > len(_COLUMNS) else None
    return ClusterMember(
        node=node_name(named[2]),
        membership=_membership(row[1].strip()),
        availability=_availability(row[2].strip()),
        claimant=named[1] is not None,
        ring_share=float(share),
        pending_share=None if pending == _NONE_PENDING else float(pending),
        location=None if location == "undefined" else location,
    )


def _membership(text: str) -> Membership:
    try:
        return Membership(text)
    except ValueError:
        raise RiakUnreadable(f"{shown(text)} is no state of a member") from None


def _availability(text: str) -> Availability:
    try:
        return Availability(text)
    except ValueError:
        raise RiakUnreadable(f"{shown(text)} is no availability") from None


def _must_be_all(members: Sequence[ClusterMember]) -> None:
    """Check that every name occurs once, and that the shares add up, now and after the pending changes."""
    if len({member.node for member in members}) != len(members):
        raise RiakUnreadable("a node is listed twice")
    pending = [member.pending_share for member in members if member.pending_share is not None]
    if pending and len(pending) != len(members):
        raise RiakUnreadable("changes are pending for some members only")
    for shares in ([member.ring_share for member in members], pending):
        if shares and abs(sum(shares) - 100) > _ROUNDING * len(shares):
            raise RiakUnreadable(f"members are missing: the shares of the ring add up to {sum(shares):.1f} %")
