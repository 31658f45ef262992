r"""What a cluster, a host, a file or a state of others says: it is checked where it enters the program.

One function for each kind. `address` and `unit` accept a value or raise `UntrustedValue`: these values become
part of a command line, a configuration or a connection. The others never fail:

- `parsed` reads an answer's JSON with every text in it made visible.
- `visible` and `one_line` are for text that people read: a name with a line break or an escape sequence in
  it cannot forge a line or control the terminal.
- Text that is recorded also loses its secrets: `redact`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final

import orjson

from orchestrator.redact import Redactor

_SPELT_OUT: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of control, format and surrogate characters, and of line and paragraph separators."""
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_LONGEST_HOST_NAME: Final = 253
_ZONE: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
"""The zone of a link-local IPv6 address: the name of a network interface."""
_IN_NO_UNIT: Final = re.compile(r"[/*?\[\]\s\x00-\x1f\x7f]")
_ESCAPED: Final = re.compile(rb"\\[^\"\\/]")
"""In JSON: only behind a backslash, and not before these three, is a character that may not print."""


_DEEPEST: Final = 200
"""Levels of JSON: an answer of a server has about twenty."""


class UntrustedValue(ValueError):  # noqa: N818  (names the value, as its message does)
    """A value from outside is not what it has to be. The message shows it, and says what is wrong."""


def address(text: str) -> str:
    """An IP address or a host name, as it was given.

    A host name is as in RFC 1123, and may have underscores inside: names of containers have them. None begins
    with a dash, which a program would read as an option.

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


def unit(text: str) -> str:
    """The name of a service: of a systemd unit, an init script or a container, as it was given.

    A slash would name another file, a pattern or a blank more than one service.

    Raises:
        UntrustedValue: it has a character that cannot be in it, or begins with a dash.
    """
    if not text or text.startswith("-") or _IN_NO_UNIT.search(text) or visible(text) != text:
        raise UntrustedValue(f"{shortened(text)} cannot be the name of a service")
    return text


def parsed(data: bytes | str, redact: Redactor | None = None) -> Any:
    """The value of JSON from outside, with every text in it made `visible`, names of fields too.

    Args:
        data: as it was received.
        redact: removes the secrets that it knows from every text.

    Raises:
        ValueError: it is not JSON.
    """
    value = orjson.loads(data)
    raw = data if isinstance(data, bytes) else data.encode()
    # Most answers, and the large ones, have nothing to change: that is seen without a look at each text.
    printable = raw.isascii() and not (b"\\" in raw and _ESCAPED.search(raw))
    if printable and not (redact and redact.may_be_in(raw)):
        return value
    return _each_text(value, visible if redact is None else lambda text: visible(redact.without_known(text)))


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
    """Foreign text on one line, of limited length, made `visible`."""
    clean = visible(" | ".join(part.strip() for part in text.splitlines() if part.strip()))
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def shortened(text: str, limit: int = 80) -> str:
    """Foreign text in quotes and on one line, for a message about it."""
    return f"{one_line(text, limit)!r}"


def _each_text(value: Any, seen: Callable[[str], str], depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"JSON nested more than {_DEEPEST} deep")
    match value:
        case str():
            return seen(value)
        case dict():
            return {seen(key): _each_text(inner, seen, depth + 1) for key, inner in value.items()}
        case list():
            return [_each_text(inner, seen, depth + 1) for inner in value]
        case _:
            return value
