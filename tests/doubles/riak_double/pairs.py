"""Files of lines `name = value`: riak.conf, and the double's own.

Nothing is imported here but what is built in: the short way of the `riak` command reads one too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike


def read_pairs(path: str | PathLike[str]) -> dict[str, str]:
    """The pairs of a file, none without the file; empty lines and those behind `#` and `%` are left out."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib costs more than all the rest)
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#%")
    return {name.strip(): value.strip() for name, _, value in pairs}
