"""Removes secrets from what hosts and servers say, before it is shown, logged or journalled.

Every search is linear in the length of the text: a host decides what it prints, and the interpreter does
nothing else during a search.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

REDACTED: Final = "[redacted]"
SHORTEST_SECRET: Final = 4
"""Shorter values occur in ordinary words: removing them would garble the text and protect nothing."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9]+")
"""What no encoding changes, apart from base 64 and hexadecimal."""

_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
"""Of HTML: a proxy's page about an error may repeat a header."""

# No pattern begins with a run of characters: a search would read the run again from each of its characters.
_PATTERNS: Final = (
    # Authorization: Basic dXNlcjpwYXNz  |  authorization=ApiKey …  |  "Authorization": "Bearer …"
    re.compile(
        r"""(?P<keep>authorization["']?\s*[:=]\s*["'\[]?(?:(?:basic|bearer|apikey|digest)\s+)?)"""
        r"""(?P<secret>[^\s"',;]+)""",
        re.IGNORECASE,
    ),
    # password=…, --token …, "api_key": "…", PGPASSWORD=…, host=db password='it\'s'
    re.compile(
        r"""(?P<keep>(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|credentials?)"""
        r"""["']?(?:\s*[:=]\s*|\s+(?=["'])))"""
        r"""(?P<secret>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|"[^"\n]*"|'[^'\n]*'|[^\s"',;&]+)""",
        re.IGNORECASE,
    ),
    # An option: the first dash of a word, and the key word at its end.
    re.compile(
        r"""(?P<keep>(?<![\w-])\w*-[\w-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key)\s+)"""
        r"""(?P<secret>[^\s-]\S*)""",
        re.IGNORECASE,
    ),
    # https://user:password@host; the password of a database may have a slash, which bounds the search
    re.compile(r"""(?P<keep>://[^\s:/@]*:)(?P<secret>[^\s/@]+|[^\s@]{1,128})(?=@)"""),
    re.compile(
        r"""(?P<keep>)(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?"""
        r"""(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))""",
        re.DOTALL,
    ),
)


def cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """JSON with every text in it, also each name of an object, passed through `clean`."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(name)): cleaned(item, clean) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item, clean) for item in value]
    return value


def end_of(text: str, most: int) -> str:
    """The end of a text, without the rest of a word that was cut: half of a secret is not recognized."""
    if len(text) <= most:
        return text
    _, _, whole = re.sub(r"\s", " ", text[-most:]).partition(" ")
    return text[-len(whole) :] if whole else "…"


def beginning_of(text: str, most: int) -> str:
    """The same for the beginning of a text."""
    return text if len(text) <= most else end_of(text[most::-1], most)[::-1]


class Redactor:
    """Removes known secrets in every form, and text that looks like a secret. Thread-safe.

    Args:
        secrets: the known values of this run; the longest is removed first, so that no piece of it remains.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self._marks: tuple[bytes, ...] = ()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Remove this secret too from now on: plain, and as in JSON, a URL, base 64 or hexadecimal."""
        with self._lock:
            if len(secret) < SHORTEST_SECRET or secret in self._secrets:
                return
            self._secrets |= {secret}
            forms = dict(form for each in self._secrets for form in _forms(each))
            longest_first = sorted(forms, key=lambda form: (-len(form), form))
            marks = {max(_PLAIN.findall(form), key=len, default="").encode() for form in forms}
            # A mark inside another one finds it too.
            self._marks = tuple(mark for mark in marks if not any(each in mark for each in marks - {mark}))
            self._known = re.compile("|".join(forms[form] for form in longest_first))

    def __call__(self, text: str) -> str:
        """The same text with every secret replaced by `[redacted]`."""
        text = self.without_known(text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<keep>{REDACTED}", text)
        return text

    def without_known(self, text: str) -> str:
        """The same text without the known secrets: names and values of a cluster may look like a secret."""
        return text if self._known is None else self._known.sub(REDACTED, text)

    def may_be_in(self, data: bytes) -> bool:
        """Whether a known secret may be in these bytes of UTF-8; a fast search, also in 100 MB."""
        marks, known = self._marks, self._known
        return (
            known is not None
            and any(mark in data for mark in marks)
            and known.search(data.decode(errors="replace")) is not None
        )


def _forms(secret: str) -> Iterator[tuple[str, str]]:
    """The encodings of a secret, each with the pattern that finds it."""
    data = secret.encode(errors="replace")
    yield secret, _spelt(secret)
    for encoded in {b64encode(data).decode().rstrip("="), urlsafe_b64encode(data).decode().rstrip("=")}:
        yield encoded, f"{_spelt(encoded)}{_character('=')}{{0,2}}"
    for digits in {data.hex(), data.hex().upper()}:
        yield digits, digits


def _spelt(text: str) -> str:
    """A pattern for a text as it is, and with its special characters escaped for JSON or a URL."""
    return "".join(
        part if _PLAIN.fullmatch(part) else _character(part)
        for part in re.findall(r"[A-Za-z0-9]+|\\+|.", text, re.DOTALL)
    )


def _character(char: str) -> str:
    """A pattern for a special character, or for a run of backslashes.

    JSON inside JSON has two more backslashes. A run of them is one part, so that there is one way to read it.
    """
    if char.startswith("\\"):
        count = len(char)
        in_html = r"&(?:#0*92|#x0*5c|bsol);"
        return rf"(?:\\{{{count},{4 * count}}}|(?i:(?:%5c|\\{{1,3}}u005c|{in_html}){{{count}}}))"
    units = char.encode("utf-16-be", "surrogatepass").hex()
    in_json = "".join(rf"\\{{1,3}}u{units[at : at + 4]}" for at in range(0, len(units), 4))
    in_url = "".join(f"%{byte:02x}" for byte in char.encode(errors="replace"))
    named = "".join(f"|{name}" for name, meant in _ENTITIES.items() if meant == char)
    in_html = f"&(?:#0*{ord(char)}|#x0*{ord(char):x}{named});"
    ways = [
        f"(?i:{in_json}|{in_url}|{in_html})",
        rf"\\{{0,3}}{re.escape(char)}",
    ]  # the longest first: `%25` has a `%`
    short = json.dumps(char)[2:-1]
    if len(short) == 1:  # \n of a line break; a quote is above
        ways.append(rf"\\{{1,3}}{re.escape(short)}")
    if char == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"
