"""How the versions differ, by the table of the project's field notes; only 3.2.1 was recorded.

Texts of 1.4 to 3.0 other than those that the table names are taken to be those of 3.2 without its last line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .texts import Said


class UnrecordedError(Exception):
    """The recordings say nothing of this command."""


def unrecorded(words: str) -> str:
    """What is said of such a command."""
    return f"riak-double: there is no answer to: {words}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One version's manner.

    Attributes:
        version: as `versions` prints it.
        admin_word: whether it is `riak admin X`; before 3.0 it is `riak-admin X`.
        prints_term: whether the function's return value is printed as the last line.
        codes: whether the exit code tells an `error`.
        lists_services: whether `admin services` works.
        quoted: whether `member-status` quotes node names.
        down_text: what is said while the node is down; `{name}` stands for it.
        down_to_stderr: where that goes.
    """

    version: str
    admin_word: bool
    prints_term: bool
    codes: bool
    lists_services: bool
    quoted: bool
    down_text: str
    down_to_stderr: bool

    def words(self, program: str, words: Sequence[str]) -> list[str]:
        """A call of `riak` or `riak-admin` in the words of 3.x, without the program.

        Raises:
            UnrecordedError: this version has no such words.
        """
        admin = program == "riak-admin" or words[:1] == ["admin"]
        other = {"getpid", "version"} if self.admin_word else {"pid", "versions"}
        if (admin and self.admin_word == (program == "riak-admin")) or (not admin and {*words[:1]} & other):
            raise UnrecordedError(f"{program} {' '.join(words)} of version {self.version}")
        if program == "riak-admin":
            return ["admin", *words]
        return ["pid"] if words == ["getpid"] else list(words)

    def text(self, said: Said) -> str:
        """Everything that is printed."""
        return said.text + (f"{said.term}\n" if self.prints_term and said.term else "")

    def code(self, said: Said) -> int:
        """The exit code."""
        return int(self.codes and (said.term or "").lstrip("{").startswith("error"))


def dialect(version: str) -> Dialect:
    """Of a version such as `3.2.1` or `2.9.10`."""
    major, minor = (int(part) for part in version.split(".")[:2])
    newest = (major, minor) >= (3, 2)
    return Dialect(
        version=version,
        admin_word=major >= 3,
        prints_term=newest,
        codes=not newest,
        lists_services=not newest,
        quoted=major < 3,
        down_text="Node {name} is not responding to pings\n" if newest else "Node did not respond to ping!\n",
        down_to_stderr=not newest,
    )
