"""Parse `riak rpc` about the pace of handoff: a timer, a call to all nodes, the vnode manager's state.

None of these was recorded with the packaged script; the terms are those of OTP's `application:get_env`,
`application:set_env`, `rpc:multicall` and `sys:get_state`, and of riak_core 3.2's own record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from orchestrator.riak.output import CommandOutput, RiakUnreadable, lines_of, node_down, parsing, shown
from orchestrator.riak.terms import parse_term

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
