"""`cluster status`: the members of the cluster, which of them answer, and whether their shares change.

It prints no number of members, but each member's share of the ring: the shares must add up to the whole ring.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from orchestrator.model.riak import Availability, ClusterMember, ClusterStatus, Membership
from orchestrator.riak.dialect import RiakDialect
from orchestrator.riak.output import CommandOutput, RiakUnreadable, blank, parsing, said, shown
from orchestrator.riak.tables import take_table
from orchestrator.riak.terms import node_name

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
