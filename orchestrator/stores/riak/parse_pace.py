"""What `riak rpc` answers about the pace of handoff: a timer, a call to all nodes, the vnode manager's state.

None of these was recorded with the packaged script; the terms are those of OTP's `application:get_env`,
`application:set_env`, `rpc:multicall` and `sys:get_state`, and of riak_core 3.2's own record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from orchestrator.model.reading import Reading
from orchestrator.stores.riak.output import CommandOutput, Malformed, lines_of, node_down, reading, shown
from orchestrator.stores.riak.terms import parse_term

T = TypeVar("T")

_RECORD: Final = "state"
_FIELDS: Final = 10
"""`#state{}` of `riak_core_vnode_manager` in 3.2, its name included."""
_NEVER_STARTED: Final = 5
"""Where `never_started` is in it, counted from 0."""
_PIECE: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | <<.*?>> | [\[\]{}(),] | [^\[\]{}(),'"<]+ | <""",
    re.VERBOSE | re.DOTALL,
)


def parse_timer(output: CommandOutput) -> Reading[int]:
    """`rpc application get_env [riak_core,vnode_management_timer]`: milliseconds."""

    def parse() -> int:
        term = parse_term(_answer(output))
        if isinstance(term, tuple) and len(term) == 2 and term[0] == "ok" and type(term[1]) is int:  # noqa: PLR2004  (a pair)
            return term[1]
        raise Malformed(f"{shown(output.stdout)} is no number of milliseconds")

    return reading("vnode_management_timer", parse)


def parse_done(output: CommandOutput) -> Reading[bool]:
    """`rpc application set_env [...]`: `ok`, or nothing is known."""

    def parse() -> bool:
        if _answer(output) != "ok":
            raise Malformed(f"it said {shown(output.stdout)}")
        return True

    return reading("set_env", parse)


def parse_forced(output: CommandOutput) -> Reading[int]:
    """`rpc rpc multicall [riak_core_vnode_manager,force_handoffs,[]]`: how many took it, if all did."""

    def parse() -> int:
        term = parse_term(_answer(output))
        if not (isinstance(term, tuple) and len(term) == 2):  # noqa: PLR2004  (answers, and nodes without one)
            raise Malformed(f"it said {shown(output.stdout)}")
        answers, silent = term
        if not isinstance(answers, list) or not answers or any(each != "ok" for each in answers):
            raise Malformed(f"not every node took it: {shown(output.stdout)}")
        if silent != []:
            raise Malformed(f"these nodes did not answer: {silent}")
        return len(answers)

    return reading("force_handoffs", parse)


def parse_unstarted(output: CommandOutput) -> Reading[int]:
    """`rpc sys get_state [riak_core_vnode_manager]`: the number of vnodes that it has never started.

    The record holds the whole ring, process ids and references: what is no part of the list is passed over.
    """

    def parse() -> int:
        fields = _parts(_answer(output), "{", "}")
        if len(fields) != _FIELDS or fields[0].strip() != _RECORD:
            raise Malformed("its state is not the record of 3.2")
        return len(_parts(fields[_NEVER_STARTED].strip(), "[", "]"))

    return reading("riak_core_vnode_manager's state", parse)


def _answer(output: CommandOutput) -> str:
    """The term; the scripts around it print before it alone."""
    if output.exit is None:
        raise Malformed("the command did not come to its end")
    silent = node_down(output)
    if silent is not None:
        raise Malformed(silent)
    if output.exit != 0:
        raise Malformed(f"exit code {output.exit}: {shown(output.stdout or output.stderr)}")
    return "\n".join(lines_of(output.stdout)).strip()


def _parts(text: str, opens: str, closes: str) -> list[str]:
    """The members of one list or tuple, as they are printed."""
    pieces = list(_pieces(text))
    if len(pieces) < 2 or pieces[0] != opens or pieces[-1] != closes:  # noqa: PLR2004  (both ends)
        raise Malformed(f"{shown(text)} does not begin with {opens} and end with {closes}")
    parts, depth = [""], 0
    for piece in pieces[1:-1]:
        depth += (piece in "[{(") - (piece in "]})")
        if depth < 0:
            raise Malformed("a bracket is closed that was not opened")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    if depth:
        raise Malformed("a bracket is not closed")
    return [] if parts == [""] else parts


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise Malformed(f"{shown(text[at : at + 30])} is no part of a term")
        at = found.end()
        if found[0].strip():
            yield found[0].strip()
