"""Handoff: its transfers, their limits, and its pace.

Parse transfer limits and other handoff settings, and the result of a change.

Each node's original limit is restored later, so a node that did not answer never gets a default value here.

Parse `riak rpc` about the pace of handoff: a timer, a call to all nodes, the vnode manager's state.

None of these was recorded with the packaged script; the terms are those of OTP's `application:get_env`,
`application:set_env`, `rpc:multicall` and `sys:get_state`, and of riak_core 3.2's own record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import (
    ActiveTransfer,
    LimitSet,
    PartitionCount,
    TransferLimits,
    Transfers,
)
from orchestrator.riak.output import (
    CommandOutput,
    Return,
    RiakDialect,
    RiakUnreadable,
    blank,
    lines_of,
    node_down,
    parsing,
    said,
    shown,
)
from orchestrator.riak.terms import node_name, node_names, parse_term, printed_node, take_table

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


_TITLE: Final = re.compile(r"=+ Transfer Limit =+")
_HEADINGS: Final = "Limit Node"
_RULE: Final = re.compile(r"-{60,}")
_ROW: Final = re.compile(r"\s*(\d+|\(offline\))\s+('\S+'|\S+)")
_NOTE: Final = (
    "Note: You can change transfer limits with 'riak-admin transfer_limit <limit>' "
    "and 'riak-admin transfer_limit <node> <limit>'"
)
_SET_ALL: Final = re.compile(r"Setting transfer limit to (\d+) across the cluster")
_SET_FAILED: Final = re.compile(r"Failed to set limit for: (\[.*\])")
_SET_ONE: Final = re.compile(r"Set transfer limit for (\S+) to (\d+)")
_ONE_FAILED: Final = re.compile(r"Failed to set transfer limit for (\S+)")
_SET_KEY: Final = re.compile(r"transfer_limit set to \"(\d+)\"")
_REFUSED: Final = re.compile(r"Invalid (?:limit|config keys): .*")


@parsing("transfer-limit")
def parse_transfer_limits(output: CommandOutput, dialect: RiakDialect) -> TransferLimits:
    """`transfer-limit` without arguments: the limits of all nodes."""
    answer = said(output, dialect)
    answer.must_be_ok()
    lines = [line for line in answer.lines if not blank(line)]
    if len(lines) < 4 or not _TITLE.fullmatch(lines[0]) or " ".join(lines[1].split()) != _HEADINGS:  # noqa: PLR2004  (frame)
        raise RiakUnreadable("the heading of the limits is missing")
    rules = [at for at, line in enumerate(lines) if _RULE.fullmatch(line)]
    if len(rules) != 2 or rules[0] != 2:  # noqa: PLR2004  (above the rows and below)
        raise RiakUnreadable("the limits are not whole")
    if " ".join(line.strip() for line in lines[rules[1] + 1 :]) != _NOTE:
        raise RiakUnreadable("the note under the limits is missing")
    limits: dict[NodeName, int] = {}
    offline: list[NodeName] = []
    for line in lines[rules[0] + 1 : rules[1]]:
        found = _ROW.fullmatch(line)
        if found is None:
            raise RiakUnreadable(f"{shown(line)} is no limit")
        node = printed_node(found[2])
        if node in limits or node in offline:
            raise RiakUnreadable(f"{node} is listed twice")
        if found[1].isdecimal():
            limits[node] = int(found[1])
        else:
            offline.append(node)
    if not limits:
        raise RiakUnreadable("no node shows its limit")
    return TransferLimits(limits=limits, offline=tuple(offline))


def parse_shown(output: CommandOutput, dialect: RiakDialect, key: str) -> tuple[NodeName, str]:
    """`show KEY`, from 2.0 on: the value only on the node that ran the command."""
    with parsing(f"show {key}"):
        answer = said(output, dialect)
        if _REFUSED.fullmatch(answer.text):
            raise RiakUnreadable(answer.text)
        answer.must_be_ok()
        table, rest = take_table(answer.lines, ("node", key))
        table.must_be_uncut()
        if any(not blank(line) for line in rest) or len(table.rows) != 1:
            raise RiakUnreadable("more follows than one node's value")
        return node_name(table.rows[0][0].strip()), table.rows[0][1].strip()


@parsing("transfer-limit")
def parse_limit_set(output: CommandOutput, dialect: RiakDialect) -> LimitSet:
    """`transfer-limit LIMIT`, `transfer-limit NODE LIMIT` or `set transfer_limit=LIMIT`.

    Only the text names a node that was not reached; the return term is still `ok`. Before 3.2 the parser
    cannot see whether the text was cut before that line, so read the new values afterwards.
    """
    answer = said(output, dialect)
    lines = [line for line in answer.lines if not blank(line)]
    if lines and _REFUSED.fullmatch(lines[0]):
        raise RiakUnreadable(lines[0])
    answer.must_be_ok()
    whole = _SET_ALL.fullmatch(lines[0]) if lines else None
    if whole and (bad := _SET_FAILED.fullmatch(" ".join(lines[1:]))):
        return LimitSet(limit=int(whole[1]), failed=node_names(bad[1]))
    if len(lines) != 1:
        raise RiakUnreadable(f"neither set nor refused: {shown(answer.text)}")
    if whole:
        return LimitSet(limit=int(whole[1]))
    if found := _SET_ONE.fullmatch(lines[0]):
        return LimitSet(limit=int(found[2]), node=printed_node(found[1]))
    if found := _ONE_FAILED.fullmatch(lines[0]):
        node = printed_node(found[1])
        return LimitSet(limit=None, node=node, failed=(node,))
    if found := _SET_KEY.fullmatch(lines[0]):
        return LimitSet(limit=int(found[1]))
    raise RiakUnreadable(f"neither set nor refused: {shown(answer.text)}")


T = TypeVar("T")

_RECORD: Final = "state"
_FIELDS: Final = 9
"""`#state{}` of `riak_core_vnode_manager` in 3.2, its name included (riak_core, develop)."""
_KNOWN_MODULES: Final = 4
_NEVER_STARTED: Final = 5
"""Positions of `known_modules` and `never_started` in it, counted from 0."""
_MODULES: Final = frozenset({"riak_kv_vnode", "riak_pipe_vnode"})
"""Modules whose vnodes have data or work to hand off."""
_PIECE: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | <<.*?>> | [\[\]{}(),] | [^\[\]{}(),'"<]+ | <""",
    re.VERBOSE | re.DOTALL,
)


@parsing("vnode_management_timer")
def parse_timer(output: CommandOutput) -> int:
    """`rpc application get_env [riak_core,vnode_management_timer]`: milliseconds, at least one."""
    match parse_term(_answer(output)):
        case ("ok", int(milliseconds)) if milliseconds > 0:
            return milliseconds
    raise RiakUnreadable(f"{shown(output.stdout)} is no number of milliseconds")


@parsing("set_env")
def parse_done(output: CommandOutput) -> bool:
    """`rpc application set_env [...]`: `ok`, anything else is `Unknown`."""
    if _answer(output) != "ok":
        raise RiakUnreadable(f"it said {shown(output.stdout)}")
    return True


@parsing("force_handoffs")
def parse_forced(output: CommandOutput) -> int:
    """`rpc rpc multicall [riak_core_vnode_manager,force_handoffs,[]]`: nodes that accepted, if all did."""
    term = parse_term(_answer(output))
    if not (isinstance(term, tuple) and len(term) == 2):  # noqa: PLR2004  (answers, and nodes without one)
        raise RiakUnreadable(f"it said {shown(output.stdout)}")
    answers, silent = term
    if not isinstance(answers, list) or not answers or any(each != "ok" for each in answers):
        raise RiakUnreadable(f"not every node took it: {shown(output.stdout)}")
    if silent != []:
        raise RiakUnreadable(f"these nodes did not answer: {silent}")
    return len(answers)


@parsing("riak_core_vnode_manager's state")
def parse_unstarted(output: CommandOutput) -> int:
    """`rpc sys get_state [riak_core_vnode_manager]`: the number of vnodes that were never started.

    Both lists are empty until its first tick, ten seconds after its start. Then they prove nothing, and
    the reading is unknown for the moment. Other parts of the state (references, process ids) are skipped.
    """
    fields = _parts(_answer(output), "{", "}")
    if len(fields) != _FIELDS or fields[0].strip() != _RECORD:
        raise RiakUnreadable("its state is not the record of 3.2")
    never_started = _parts(fields[_NEVER_STARTED].strip(), "[", "]")
    known = {each.strip() for each in _parts(fields[_KNOWN_MODULES].strip(), "[", "]")}
    if not known >= _MODULES:
        raise RiakUnreadable("it has not listed its vnodes yet", passes=True)
    return len(never_started)


def _answer(output: CommandOutput) -> str:
    """The term; wrapper scripts print only before it."""
    if output.exit is None:
        raise RiakUnreadable("the command did not come to its end")
    silent = node_down(output)
    if silent is not None:
        raise RiakUnreadable(silent)
    if output.exit != 0:
        raise RiakUnreadable(f"exit code {output.exit}: {shown(output.stdout or output.stderr)}")
    return "\n".join(lines_of(output.stdout)).strip()


def _parts(text: str, opens: str, closes: str) -> list[str]:
    """The members of one list or tuple, as printed."""
    pieces = list(_pieces(text))
    if len(pieces) < 2 or pieces[0] != opens or pieces[-1] != closes:  # noqa: PLR2004  (both ends)
        raise RiakUnreadable(f"{shown(text)} does not begin with {opens} and end with {closes}")
    parts, depth = [""], 0
    for piece in pieces[1:-1]:
        depth += (piece in "[{(") - (piece in "]})")
        if depth < 0:
            raise RiakUnreadable("a bracket is closed that was not opened")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    if depth:
        raise RiakUnreadable("a bracket is not closed")
    return [] if parts == [""] else parts


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise RiakUnreadable(f"{shown(text[at : at + 30])} is no part of a term")
        at = found.end()
        if found[0].strip():
            yield found[0].strip()
