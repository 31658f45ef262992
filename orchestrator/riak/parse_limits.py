"""Parse transfer limits and other handoff settings, and the result of a change.

Each node's original limit is restored later, so a node that did not answer never gets a default value here.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import LimitSet, TransferLimits
from orchestrator.riak.dialect import RiakDialect
from orchestrator.riak.output import CommandOutput, RiakUnreadable, blank, parsing, said, shown
from orchestrator.riak.tables import take_table
from orchestrator.riak.terms import node_name, node_names, printed_node

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
