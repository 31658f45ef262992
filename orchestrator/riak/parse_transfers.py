"""`transfers`: pending and active handoffs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import (
    ActiveTransfer,
    PartitionCount,
    Transfers,
)
from orchestrator.riak.dialect import RiakDialect
from orchestrator.riak.output import CommandOutput, Return, RiakUnreadable, blank, parsing, said, shown
from orchestrator.riak.terms import node_name, node_names, printed_node

_DOWN: Final = re.compile(r"Nodes (\[.*\]) are currently down\.")
_WAITING: Final = re.compile(r"(\S+) waiting to handoff (\d+) partitions")
_STOPPED: Final = re.compile(r"(\S+) does not have (\d+) primary partitions running")
_NONE: Final = "No transfers active"
_ACTIVE: Final = "Active Transfers:"
_UNCONTACTED: Final = re.compile(r"Node (\S+) could not be contacted")
_FIELD: Final = re.compile(
    r"(transfer type|vnode type|(?:source |target )?partition|started|last update|total size"
    r"|objects transferred|target node): (.+)"
)
_ARROW: Final = re.compile(r"\s*(\S+)\s+=======>\s+(\S+)")
_PROGRESS: Final = re.compile(r"\s*\|=*\s*\|\s*(\d{1,3}|N/A)%")
_NAME_WIDTH: Final = 25
"""Longer names continue in the lines below the arrow."""
_RATE_ARROW_BAR_RATE: Final = 4
"""Minimum lines of a progress picture."""


@parsing("transfers")
def parse_transfers(output: CommandOutput, dialect: RiakDialect) -> Transfers:
    """`transfers`. It is clean only if complete, with `No transfers active` and none of five bad lines."""
    answer = said(output, dialect)
    answer.must_be_ok()
    if answer.lines.count(_ACTIVE) != 1:
        raise RiakUnreadable("the part on active transfers is missing")
    at = answer.lines.index(_ACTIVE)
    down, waiting, not_running = _pending(answer.lines[:at])
    active, uncontacted = _active(answer.lines[at + 1 :], ended=answer.returned is not Return.NONE)
    return Transfers(
        down=down, waiting=waiting, not_running=not_running, active=active, uncontacted=uncontacted
    )


def _pending(
    lines: Sequence[str],
) -> tuple[tuple[NodeName, ...], tuple[PartitionCount, ...], tuple[PartitionCount, ...]]:
    waiting: list[PartitionCount] = []
    not_running: list[PartitionCount] = []
    down: tuple[NodeName, ...] = ()
    none = False
    for at, line in enumerate(lines):
        if blank(line):
            if at != len(lines) - 1:
                raise RiakUnreadable("a blank line is among the pending transfers")
        elif (found := _DOWN.fullmatch(line)) and at == 0:
            down = node_names(found[1])
        elif found := _WAITING.fullmatch(line):
            waiting.append(PartitionCount(node=printed_node(found[1]), partitions=int(found[2])))
        elif found := _STOPPED.fullmatch(line):
            not_running.append(PartitionCount(node=printed_node(found[1]), partitions=int(found[2])))
        elif line == _NONE and not none:
            none = True
        else:
            raise RiakUnreadable(f"{shown(line)} does not belong among the pending transfers")
    if none is bool(waiting or not_running):
        raise RiakUnreadable(f"{_NONE!r} and lines of pending transfers: exactly one of them must be there")
    return down, tuple(waiting), tuple(not_running)


def _active(lines: Sequence[str], *, ended: bool) -> tuple[tuple[ActiveTransfer, ...], tuple[NodeName, ...]]:
    uncontacted: list[NodeName] = []
    body = list(lines)
    while body and (found := _UNCONTACTED.fullmatch(body[-1])):
        uncontacted.insert(0, printed_node(found[1]))
        body.pop()
    # Riak ends the list of active ones with a blank line. Where no return term follows, that line is all the
    # proof there is that the list was not cut at its beginning.
    if not ended and (len(body) < 2 or not (blank(body[0]) and blank(body[-1]))):  # noqa: PLR2004  (one before, one after)
        raise RiakUnreadable("cut: the end of the active transfers is missing")
    return tuple(_transfer(block) for block in _blocks(body)), tuple(uncontacted)


def _blocks(lines: Iterable[str]) -> list[list[str]]:
    blocks: list[list[str]] = []
    for line in lines:
        if line.startswith("transfer type: ") or (
            line.startswith("vnode type: ")
            and not (blocks and len(blocks[-1]) == 1 and blocks[-1][0].startswith("transfer type: "))
        ):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
        elif not blank(line):
            raise RiakUnreadable(f"{shown(line)} does not belong among the active transfers")
    return blocks


def _transfer(lines: Sequence[str]) -> ActiveTransfer:
    """Fields, a blank line, and a picture of the progress; an old node prints only the fields."""
    end = next((at for at, line in enumerate(lines) if blank(line)), len(lines))
    fields: dict[str, str] = {}
    for line in lines[:end]:
        found = _FIELD.fullmatch(line)
        if found is None or found[1] in fields:
            raise RiakUnreadable(f"{shown(line)} does not belong in an active transfer")
        fields[found[1]] = found[2]
    index = fields.get("partition") or fields.get("target partition")
    if index is None or not index.isdecimal() or "vnode type" not in fields:
        raise RiakUnreadable("an active transfer does not say of which partition it is")
    vnode, kind = fields["vnode type"], fields.get("transfer type")
    picture = [line for line in lines[end:] if not blank(line)]
    if kind is None:
        if picture or "target node" not in fields:
            raise RiakUnreadable("an active transfer is not whole")
        target = printed_node(fields["target node"])
        return ActiveTransfer(kind="unknown", vnode=vnode, index=int(index), source=None, target=target)
    source, target, percent = _way(picture)
    return ActiveTransfer(
        kind=kind, vnode=vnode, index=int(index), source=source, target=target, percent=percent
    )


def _way(picture: Sequence[str]) -> tuple[NodeName, NodeName, int | None]:
    """The progress picture: a rate, the arrow, the rest of long names, a bar, another rate."""
    arrow = _ARROW.fullmatch(picture[1]) if len(picture) > _RATE_ARROW_BAR_RATE - 1 else None
    bar = _PROGRESS.fullmatch(picture[-2]) if arrow is not None else None
    if arrow is None or bar is None:
        raise RiakUnreadable("an active transfer does not show its way")
    names = [arrow[1], arrow[2]]
    for line in picture[2:-2]:
        rests = (line[:_NAME_WIDTH].strip(), line[_NAME_WIDTH:].strip())
        for at, rest in enumerate(rests):
            if rest and len(names[at]) % _NAME_WIDTH:
                raise RiakUnreadable(f"{shown(line)} does not belong in the picture of an active transfer")
            names[at] += rest
    return node_name(names[0]), node_name(names[1]), None if bar[1] == "N/A" else int(bar[1])
