"""`{node}` in a command line: replaced by the node's name so that the shell never executes the name. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Final

_QUOTES: Final = re.compile(r"""['"\\`$#<\n]""")
"""Characters that may put a placeholder into quotes, an escape or a comment of a command line."""
_NODE: Final = re.compile(r"(?<!\$)\{node\}")  # not `${node}`, a variable of the shell
_BEGINS_A_WORD: Final = re.compile(r"""(?:^|\s)["']?\{node\}""")
_PIECES: Final = re.compile(rf"{_NODE.pattern}|\\[^{{]|.", re.DOTALL)
_VARIABLE: Final = "orchestrate_node"
_REFERENCES: Final = {
    "": f'"${{{_VARIABLE}}}"',
    '"': f"${{{_VARIABLE}}}",
    "'": f"""'"${{{_VARIABLE}}}"'""",
}
"""By the quotes around the placeholder."""


def for_node(text: str, node: str) -> str:
    """A command line with `{node}` replaced by the node's name, so that the shell never executes the name.

    Inside quotes, further quotes around the name would end them. There the name becomes the value of a
    variable: the shell never reads a variable's value as a command.
    """
    quoted = shlex.quote(node)
    if quoted != node and _NODE.search(text) and _QUOTES.search(text):
        return f"{_VARIABLE}={quoted}; {_by_reference(text)}"
    return _NODE.sub(lambda _: quoted, text)


def may_be_option(text: str, node: str) -> bool:
    """Whether a program could read the node's name, or the text itself, as an option."""
    return text.startswith("-") or (node.startswith("-") and _BEGINS_A_WORD.search(text) is not None)


def _by_reference(text: str) -> str:
    """The text with a reference to the variable in place of `{node}`, as each kind of quotes needs it.

    Where the shell reads the quotes differently (in a comment, a here-document or a substitution within
    quotes) the name may be split into words, but still is not executed.
    """
    written, quote = [], ""
    for piece in _PIECES.findall(text):
        if piece == "{node}":
            written.append(_REFERENCES[quote])
            continue
        if quote == "'":
            quote = "" if piece.endswith("'") else quote  # a backslash before it has no effect here
        elif piece in ("'", '"') and quote in ("", piece):
            quote = "" if quote else piece
        written.append(piece)
    return "".join(written)
