"""`bucket-type list` and `bucket-type status`, from 2.0 on: where an `n_val` of its own may stand.

The form comes from Riak's source, not from a recording. A bucket of the default type can have its own
`n_val`, but no command lists such buckets. A name with a special meaning in a shell makes the list `Unknown`.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.riak.dialect import RiakDialect
from orchestrator.riak.output import (
    CommandOutput,
    RiakUnreadable,
    blank,
    lines_of,
    node_down,
    parsing,
    shown,
)

DEFAULT: Final = "default"
_TYPE: Final = re.compile(r"([\w.-]+) \((?:not )?active\)", re.ASCII)
_IS: Final = re.compile(r"(\S+) (?:is active|has been created and may be activated)")
_N_VAL: Final = re.compile(r"n_val: (\d{1,4})")
_RETURNED: Final = ("ok", "true")
"""The return term of the list is that of closing its iterator."""


@parsing("bucket-type list")
def parse_bucket_types(output: CommandOutput, dialect: RiakDialect) -> tuple[str, ...]:
    """The names of all types, the default first; an inactive type may become active soon."""
    lines = _lines(output)
    ended = bool(lines) and lines[-1] in _RETURNED
    if dialect.returns_term and not ended:
        raise RiakUnreadable("cut: the return term is missing")
    found = [_TYPE.fullmatch(line) for line in (lines[:-1] if ended else lines)]
    names = tuple(each[1] for each in found if each is not None)
    if len(names) != len(found) or names[:1] != (DEFAULT,) or len(set(names)) != len(names):
        raise RiakUnreadable(f"no list of bucket types: {shown(' '.join(lines))}")
    return names


def parse_n_val(output: CommandOutput, name: str) -> int:
    """The `n_val` of this type. The list after it may be cut; that cannot change the value."""
    with parsing(f"bucket-type status {name}"):
        lines = _lines(output)
        named = _IS.fullmatch(lines[0]) if lines else None
        if named is None or named[1] != name:
            raise RiakUnreadable(f"it is not of {name}: {shown(lines[0] if lines else '')}")
        found = [int(each[1]) for line in lines[1:-1] if (each := _N_VAL.fullmatch(line))]
        if len(found) != 1 or found[0] < 1:
            raise RiakUnreadable("there is not exactly one n_val, with a line after it")
        return found[0]


def _lines(output: CommandOutput) -> list[str]:
    if output.exit != 0:
        raise RiakUnreadable(node_down(output) or f"exit code {output.exit}")
    return [line for line in lines_of(output.stdout) if not blank(line)]
