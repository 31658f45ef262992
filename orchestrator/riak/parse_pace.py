"""Parse `riak rpc` about the pace of handoff: a timer, a call to all nodes, the vnode manager's state.

None of these was recorded with the packaged script; the terms are those of OTP's `application:get_env`,
`application:set_env`, `rpc:multicall` and `sys:get_state`, and of riak_core 3.2's own record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from orchestrator.model.reading import Reading, Unknown
from orchestrator.riak.output import CommandOutput, MalformedOutput, lines_of, node_down, reading, shown
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


def parse_timer(output: CommandOutput) -> Reading[int]:
    """`rpc application get_env [riak_core,vnode_management_timer]`: milliseconds, at least one."""

    def parse() -> int:
        match parse_term(_answer(output)):
            case ("ok", int(milliseconds)) if milliseconds > 0:
                return milliseconds
        raise MalformedOutput(f"{shown(output.stdout)} is no number of milliseconds")

    return reading("vnode_management_timer", parse)


def parse_done(output: CommandOutput) -> Reading[bool]:
    """`rpc application set_env [...]`: `ok`, anything else is `Unknown`."""

    def parse() -> bool:
        if _answer(output) != "ok":
            raise MalformedOutput(f"it said {shown(output.stdout)}")
        return True

    return reading("set_env", parse)


def parse_forced(output: CommandOutput) -> Reading[int]:
    """`rpc rpc multicall [riak_core_vnode_manager,force_handoffs,[]]`: nodes that accepted, if all did."""

    def parse() -> int:
        term = parse_term(_answer(output))
        if not (isinstance(term, tuple) and len(term) == 2):  # noqa: PLR2004  (answers, and nodes without one)
            raise MalformedOutput(f"it said {shown(output.stdout)}")
        answers, silent = term
        if not isinstance(answers, list) or not answers or any(each != "ok" for each in answers):
            raise MalformedOutput(f"not every node took it: {shown(output.stdout)}")
        if silent != []:
            raise MalformedOutput(f"these nodes did not answer: {silent}")
        return len(answers)

    return reading("force_handoffs", parse)


def parse_unstarted(output: CommandOutput) -> Reading[int]:
    """`rpc sys get_state [riak_core_vnode_manager]`: the number of vnodes that were never started.

    Both lists are empty until its first tick, ten seconds after its start. Then they prove nothing, and
    the reading is unknown for the moment. Other parts of the state (references, process ids) are skipped.
    """

    def parse() -> int | None:
        fields = _parts(_answer(output), "{", "}")
        if len(fields) != _FIELDS or fields[0].strip() != _RECORD:
            raise MalformedOutput("its state is not the record of 3.2")
        never_started = _parts(fields[_NEVER_STARTED].strip(), "[", "]")
        known = {each.strip() for each in _parts(fields[_KNOWN_MODULES].strip(), "[", "]")}
        return len(never_started) if known >= _MODULES else None

    found = reading("riak_core_vnode_manager's state", parse)
    if found is None:
        return Unknown(reason="its vnode manager has not listed its vnodes yet", passes=True)
    return found


def _answer(output: CommandOutput) -> str:
    """The term; wrapper scripts print only before it."""
    if output.exit is None:
        raise MalformedOutput("the command did not come to its end")
    silent = node_down(output)
    if silent is not None:
        raise MalformedOutput(silent)
    if output.exit != 0:
        raise MalformedOutput(f"exit code {output.exit}: {shown(output.stdout or output.stderr)}")
    return "\n".join(lines_of(output.stdout)).strip()


def _parts(text: str, opens: str, closes: str) -> list[str]:
    """The members of one list or tuple, as printed."""
    pieces = list(_pieces(text))
    if len(pieces) < 2 or pieces[0] != opens or pieces[-1] != closes:  # noqa: PLR2004  (both ends)
        raise MalformedOutput(f"{shown(text)} does not begin with {opens} and end with {closes}")
    parts, depth = [""], 0
    for piece in pieces[1:-1]:
        depth += (piece in "[{(") - (piece in "]})")
        if depth < 0:
            raise MalformedOutput("a bracket is closed that was not opened")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    if depth:
        raise MalformedOutput("a bracket is not closed")
    return [] if parts == [""] else parts


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise MalformedOutput(f"{shown(text[at : at + 30])} is no part of a term")
        at = found.end()
        if found[0].strip():
            yield found[0].strip()
