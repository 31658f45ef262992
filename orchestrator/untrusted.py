r"""What a cluster, a host, a file or a state of others says: it is checked where it enters the program.

One function for each kind. `address`, `account`, `unit`, `in_path` and `plain_name` accept a value or raise
`UntrustedValue`: these values become part of a command line, a configuration or a connection. The others
never fail:

- `visible`, `one_line` and `telling` are for text that people read: a name with a line break or an escape
  sequence in it cannot forge a line or control the terminal.
- Text that is recorded also loses its secrets: `redact`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

_SPELT_OUT: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of control, format and surrogate characters, and of line and paragraph separators."""
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST_NAME: Final = re.compile(rf"(?!.*\.\d+\.?\Z){_LABEL}(?:\.{_LABEL})*\.?")
"""Not with a number at its end: resolvers read `1.2.3` and `010.0.0.1` as addresses."""
_LONGEST_HOST_NAME: Final = 253
_ZONE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
"""The zone of a link-local IPv6 address: the name of a network interface."""
_ACCOUNT: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*\\)?[A-Za-z0-9_.][A-Za-z0-9_.+-]*")
_LONGEST_ACCOUNT: Final = 256
_UNIT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\\-]{0,254}")
"""The characters of systemd's units. Names of containers and init scripts have no others."""
_IN_NO_PATH: Final = re.compile(r"[/*?\[\\]")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:+,-]*")
"""No shell, and no program that reads a text as code, has a meaning for any of these characters in a word."""


class UntrustedValue(ValueError):  # noqa: N818  (names the value, as its message does)
    """A value from outside is not what it has to be. The message shows it, and says what is wrong."""


@lru_cache(maxsize=4096)  # of what it accepts: a reading has the same addresses as the one before
def address(text: str) -> str:
    """An IP address or a host name, as it was given.

    A host name is as in RFC 1123, and may have underscores inside: names of containers have them. None begins
    with a dash, which a program would read as an option. No address has a port, brackets or a user.

    Raises:
        UntrustedValue: it is neither.
    """
    host, percent, zone = text.partition("%")
    try:
        version = ip_address(host).version
    except ValueError:
        if len(text) <= _LONGEST_HOST_NAME and _HOST_NAME.fullmatch(text):
            return text
    else:
        if not percent or (version == 6 and _ZONE.fullmatch(zone)):  # noqa: PLR2004  (IPv6)
            return text
    raise UntrustedValue(f"{shortened(text)} is neither an IP address nor a host name")


def account(text: str) -> str:
    r"""The name of an account on a host, as it was given.

    A portable name of POSIX. Hosts in a directory also have `DOMAIN\user` (winbind) and `user@realm` (SSSD).

    Raises:
        UntrustedValue: it is another text: a program could read it as an option, a shell as more than a word.
    """
    name, at, realm = text.partition("@")
    plain = len(text) <= _LONGEST_ACCOUNT and _ACCOUNT.fullmatch(name)
    if not plain or (at and not _HOST_NAME.fullmatch(realm)):
        raise UntrustedValue(f"{shortened(text)} cannot be the name of an account")
    return text


def unit(text: str) -> str:
    """The name of a service: of a systemd unit, an init script or a container, as it was given.

    A slash would name another file, a pattern or a blank more than one service.

    Raises:
        UntrustedValue: it has a character that cannot be in it, or begins with one that cannot begin it.
    """
    if not _UNIT.fullmatch(text):
        raise UntrustedValue(f"{shortened(text)} cannot be the name of a service")
    return text


def in_path(text: str) -> str:
    """A text that becomes one part of a path, as it was given.

    Raises:
        UntrustedValue: with it, the path would lead elsewhere, or to more than one file.
    """
    if text in ("", ".", "..") or _IN_NO_PATH.search(text) or visible(text) != text:
        raise UntrustedValue(f"{shortened(text)} cannot be a part of a path")
    return text


def plain_name(text: str) -> str:
    """The name of a node that becomes part of a command line, as it was given.

    Raises:
        UntrustedValue: a shell could read a part of it as code, or a program as an option or another folder.
    """
    if _PLAIN_NAME.fullmatch(text):
        return text
    raise UntrustedValue(
        f"the name {shortened(text)} is not plain (letters, digits and . _ @ : + , - with a letter, a digit"
        " or _ first)"
    )


def visible(text: str) -> str:
    r"""Foreign text with its control and direction characters escaped: `\x1b`, `\n`, `\u202e`.

    The name of a node or the output of a command may hold escape sequences that would control the terminal,
    and characters that make a line look like another one.
    """
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if unicodedata.category(one) in _SPELT_OUT else one
        for one in text
    )


def one_line(text: str, limit: int = 300) -> str:
    """Foreign text on one line, of limited length, made `visible`. No command in backticks is cut in two."""
    clean = visible(" | ".join(part.strip() for part in text.splitlines() if part.strip()))
    if len(clean) <= limit:
        return clean
    head, rest = clean[: limit - 3], clean[limit - 3 :]
    if head.count("`") % 2 and "`" in rest:  # half a command would be typed as it is printed
        head = head[: head.rindex("`")]
    return f"{head}..."


_STACK: Final = re.compile(r"\s*at \S+\(|\s+at \S|\s*\.{3} \d+ (?:more|common frames)")
"""A line of a stack trace of Java."""


def telling(text: str) -> list[str]:
    """The lines of an output that say something: none that is blank or a part of a stack trace."""
    return [line for line in text.splitlines() if line.strip() and not _STACK.match(line)]


def shortened(text: str, limit: int = 80) -> str:
    """Foreign text in quotes and on one line, for a message about it."""
    return f"{one_line(text, limit)!r}"
