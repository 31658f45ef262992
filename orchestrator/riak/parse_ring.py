"""`ringready`, `ring-status`, and the owners of the partitions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading
from orchestrator.model.riak import (
    HASH_SPACE,
    NodePartitions,
    NodeStats,
    OwnershipChange,
    PendingPartition,
    Ring,
    RingReady,
    RingStatus,
)
from orchestrator.riak.dialect import RiakDialect
from orchestrator.riak.output import (
    CommandOutput,
    MalformedOutput,
    Return,
    Said,
    blank,
    reading,
    said,
    shown,
)
from orchestrator.riak.tables import take_table
from orchestrator.riak.terms import atoms, node_names, printed_node

_TRUE: Final = re.compile(r"TRUE All nodes agree on the ring (\[.*\])")
_DOWN: Final = re.compile(r"FALSE (\[.*\]) down\.\s+All nodes need to be up to check\.")
_DIFFERENT: Final = re.compile(r"FALSE Node (\S+) and (\S+) list different partition owners")

_SECTION: Final = re.compile(r"=+ (.+) =+")
_SECTIONS: Final = ("Claimant", "Ownership Handoff", "Unreachable Nodes")
_CLAIMANT: Final = re.compile(
    r"Claimant:\s+(?P<node>\S+) Status:\s+(?P<status>up|down) Ring Ready: (?P<ready>true|false|unknown)"
)
_READY: Final = {"true": True, "false": False, "unknown": None}
_NO_CHANGES: Final = "No pending changes."
_RULE: Final = re.compile(r"-{60,}")
_OWNER: Final = re.compile(r"Owner:\s+(\S+)")
_NEXT: Final = re.compile(r"Next Owner:\s+(\S+)")
_INDEX: Final = re.compile(r"Index: (\d{1,49})")
_WAITING: Final = re.compile(r"\s+Waiting on:\s+(\[.*\])")
_COMPLETE: Final = re.compile(r"\s+Complete:\s+(\[.*\])")
_ALL_COMPLETE: Final = re.compile(r"\s+All transfers complete\. Waiting for claimant to change ownership\.")
_IS_DOWN: Final = re.compile(r"!!! (\S+) is DOWN !!!")
_REACHABLE: Final = "All nodes are up and reachable"
_UNREACHABLE: Final = re.compile(r"The following nodes are unreachable: (\[.*\])")
_WARNING: Final = "WARNING: The cluster state will not converge"

_PARTITIONS_OF: Final = re.compile(r"Partitions owned by (\S+):")
_PARTITION_COLUMNS: Final = ("type", "index", "id")
_OWNED: Final = ("primary", "stopped")
_PARTITION_KINDS: Final = (*_OWNED, "secondary")
_NO_PARTITION: Final = "--"


def parse_ringready(output: CommandOutput, dialect: RiakDialect) -> Reading[RingReady]:
    """`ringready`. FALSE exits with 1 before 3.2, and with 0 and the term `error` from 3.2 on."""

    def parse() -> RingReady:
        answer = said(output, dialect)
        if found := _TRUE.fullmatch(answer.text):
            answer.must_be_ok()
            return RingReady(agreed=True, nodes=node_names(found[1]))
        if answer.returned is Return.OK:
            raise MalformedOutput(f"{shown(answer.text)}, and yet the return term is ok")
        if found := _DOWN.fullmatch(answer.text):
            return RingReady(agreed=False, down=node_names(found[1]))
        if found := _DIFFERENT.fullmatch(answer.text):
            return RingReady(agreed=False, differing=(printed_node(found[1]), printed_node(found[2])))
        raise MalformedOutput(f"neither TRUE nor FALSE: {shown(answer.text)}")

    return reading("ringready", parse)


def parse_ring_status(output: CommandOutput, dialect: RiakDialect) -> Reading[RingStatus]:
    """`ring-status`: the claimant, pending changes of ownership, nodes that do not answer."""

    def parse() -> RingStatus:
        answer = said(output, dialect)
        answer.must_be_ok()
        claimant, ownership, unreachable = _sections(answer)
        found = _CLAIMANT.fullmatch(" ".join(line.strip() for line in claimant))
        if found is None:
            raise MalformedOutput("the claimant is missing")
        up, ready = found["status"] == "up", _READY[found["ready"]]
        if up is not (ready is not None):
            raise MalformedOutput("the claimant's status and its ring readiness contradict each other")
        return RingStatus(
            claimant=printed_node(found["node"]),
            claimant_up=up,
            ring_ready=ready,
            pending=_pending(ownership),
            unreachable=_unreachable(unreachable),
        )

    return reading("ring-status", parse)


def parse_partitions(output: CommandOutput, dialect: RiakDialect) -> Reading[NodePartitions]:
    """`cluster partitions --node NODE`, from 2.0 on: what it owns, even if it is down, and holds for others.

    The form comes from Riak's source; `ring_of` checks what it owns against `/stats`.
    """

    def parse() -> NodePartitions:
        answer = said(output, dialect)
        answer.must_be_ok()
        lines = [line for line in answer.lines if not blank(line)]
        named = _PARTITIONS_OF.fullmatch(lines[0]) if lines else None
        if named is None:
            raise MalformedOutput("it does not say whose partitions they are")
        table, rest = take_table(lines[1:], _PARTITION_COLUMNS)
        if rest:
            raise MalformedOutput(f"{shown(rest[0])} follows the table")
        owned: list[int] = []
        others: set[int] = set()
        kinds: set[str] = set()
        for row in table.rows:
            kind, index, _ = (cell.strip() for cell in row)
            kinds.add(kind)
            if index == _NO_PARTITION:
                continue
            if not index.isdecimal():
                raise MalformedOutput(f"{shown(index)} is no index")
            if kind in _OWNED:
                owned.append(int(index))
            else:
                others.add(int(index))
        if kinds != set(_PARTITION_KINDS):
            raise MalformedOutput(
                f"partitions are {', '.join(sorted(kinds))} instead of {', '.join(_PARTITION_KINDS)}"
            )
        if len(set(owned)) != len(owned):
            raise MalformedOutput("a partition is listed twice")
        return NodePartitions(node=printed_node(named[1]), owned=frozenset(owned), others=frozenset(others))

    return reading("cluster partitions", parse)


def ring_of(owned: Mapping[NodeName, Collection[int]], stats: NodeStats) -> Reading[Ring]:
    """Combine the owners to a ring, and check it against `/stats`.

    Every partition must have exactly one owner, and every node as many partitions as `/stats` counts. So a
    cut list, a missing node or a wrong name gives `Unknown`.
    """

    def parse() -> Ring:
        counted = {node: number for node, number in stats.ownership.items() if number}
        if {node: len(indices) for node, indices in owned.items() if indices} != counted:
            raise MalformedOutput("the partitions that nodes own are not as many as /stats counts")
        owners: dict[int, NodeName] = {}
        for node, indices in owned.items():
            for index in indices:
                number = _number_of(index, stats.ring_size)
                if number in owners:
                    raise MalformedOutput(f"partition {number} has two owners")
                owners[number] = node
        if len(owners) != stats.ring_size:
            raise MalformedOutput(f"{stats.ring_size - len(owners)} partitions have no owner")
        return Ring(owners=tuple(owners[number] for number in range(stats.ring_size)))

    return reading("ring", parse)


def numbers_of(indices: Collection[int], ring_size: int) -> Reading[frozenset[int]]:
    """The numbers of these partitions in a ring of this size."""
    return reading("cluster partitions", lambda: frozenset(_number_of(index, ring_size) for index in indices))


def _number_of(index: int, ring_size: int) -> int:
    step, rest = divmod(HASH_SPACE, ring_size)
    if rest:
        raise MalformedOutput(f"a ring of {ring_size} does not divide the hash space")
    number, off = divmod(index, step)
    if off or not 0 <= number < ring_size:
        raise MalformedOutput(f"{index} is no partition of a ring of {ring_size}")
    return number


def _sections(answer: Said) -> tuple[list[str], list[str], list[str]]:
    found: list[tuple[str, list[str]]] = []
    for line in answer.lines:
        if title := _SECTION.fullmatch(line):
            found.append((title[1], []))
        elif found:
            found[-1][1].append(line)
        elif not blank(line):
            raise MalformedOutput(f"{shown(line)} comes before the first heading")
    if tuple(name for name, _ in found) != _SECTIONS:
        raise MalformedOutput(
            f"its parts are {', '.join(name for name, _ in found)} instead of {', '.join(_SECTIONS)}"
        )
    first, second, third = ([line for line in lines if not blank(line)] for _, lines in found)
    return first, second, third


def _pending(lines: Sequence[str]) -> tuple[OwnershipChange, ...]:
    if list(lines) == [_NO_CHANGES]:
        return ()
    changes: list[OwnershipChange] = []
    block: list[str] = []
    for line in lines:
        if _RULE.fullmatch(line):
            changes.append(_change(block))
            block = []
        else:
            block.append(line)
    if block or not changes:
        raise MalformedOutput("the pending changes are not whole")
    return tuple(changes)


def _change(lines: Sequence[str]) -> OwnershipChange:
    owner = _OWNER.fullmatch(lines[0]) if lines else None
    following = _NEXT.fullmatch(lines[1]) if len(lines) > 1 else None
    if owner is None or following is None:
        raise MalformedOutput("a pending change does not name both owners")
    partitions: list[PendingPartition] = []
    for line in lines[2:]:
        if found := _INDEX.fullmatch(line):
            partitions.append(PendingPartition(index=int(found[1])))
        elif not (_IS_DOWN.fullmatch(line) and not partitions):
            if not partitions:
                raise MalformedOutput(f"{shown(line)} does not belong among pending changes")
            partitions[-1] = _with_progress(partitions[-1], line)
    if not partitions:
        raise MalformedOutput("a pending change has no partitions")
    return OwnershipChange(owner=owner[1], next_owner=following[1], partitions=tuple(partitions))


def _with_progress(partition: PendingPartition, line: str) -> PendingPartition:
    if (found := _WAITING.fullmatch(line)) and not (partition.waiting_on or partition.complete):
        return replace(partition, waiting_on=atoms(found[1]))
    if (found := _COMPLETE.fullmatch(line)) and not partition.complete:
        return replace(partition, complete=atoms(found[1]))
    if _ALL_COMPLETE.fullmatch(line):
        return partition
    raise MalformedOutput(f"{shown(line)} does not belong among pending changes")


def _unreachable(lines: Sequence[str]) -> tuple[NodeName, ...]:
    if list(lines) == [_REACHABLE]:
        return ()
    found = _UNREACHABLE.fullmatch(lines[0]) if lines else None
    if found is None or len(lines) < 2 or not lines[1].startswith(_WARNING):  # noqa: PLR2004  (the list, then the warning)
        raise MalformedOutput("it does not say which nodes answer")
    names = node_names(found[1])
    if not names:
        raise MalformedOutput("nodes are unreachable, but none is named")
    return names
