"""Removes secrets from a text before it is recorded: known ones, encoded or not; likely ones.

Time is linear in the text, whatever is in it: the text is that of a host or a server, and a hook that prints
dots must not stop the run's heartbeats. So no pattern has two ways to match one run of characters, and none
begins with a repeated class.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

REDACTED: Final = "[redacted]"
SHORTEST_SECRET: Final = 4
"""Shorter values occur in ordinary words: removing them would garble the text and protect nothing."""
_WORDS: Final = r"passw(?:or)?d|passphrase|secret|token|api[_-]?key"
_PATTERNS: Final = (
    # Authorization: Basic dXNlcjpwYXNz  |  authorization=ApiKey …  |  authorization=[Bearer …
    re.compile(
        r"""(?P<keep>authorization["']?\s*[:=]\s*[\["']*(?:(?:basic|bearer|apikey|digest)\s+)?)"""
        r"""(?P<secret>[^\s"',;\]]+)""",
        re.IGNORECASE,
    ),
    # password=…, "api_key": "…", PGPASSWORD=…
    re.compile(
        rf"""(?P<keep>(?:{_WORDS}|access[_-]?key|credentials?)["']?(?:\s*[:=]\s*|\s+(?=["'])))"""
        r"""(?P<secret>"[^"\n]*"|'[^'\n]*'|[^\s"',;&]+)""",
        re.IGNORECASE,
    ),
    # https://user:password@host
    re.compile(r"""(?P<keep>://[^\s:/@]*:)(?P<secret>[^\s/@]+)(?=@)"""),
    re.compile(
        r"""(?P<keep>)(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?"""
        r"""(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))""",
        re.DOTALL,
    ),
)
_OPTION: Final = re.compile(rf"(?<![\w-])(?P<keep>(?P<word>[\w-]*)(?:{_WORDS})\s+)[^\s-]\S*", re.IGNORECASE)
"""`--token …`: it counts only with a dash in the word, see `_option`."""


class Redactor:
    """Removes known secrets, and text that looks like a secret.

    Args:
        secrets: the known values of this run; the longest is removed first, so that no piece of it remains.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._lock = threading.Lock()
        self._forms: tuple[str, ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self._known: re.Pattern[str] | None = None
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Remove this secret too from now on, as it is and as servers and proxies repeat it. Thread-safe."""
        if len(secret) < SHORTEST_SECRET:
            return
        with self._lock:
            forms = {*self._forms, *_forms_of(secret)}
            self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
            self._bytes = tuple(form.encode("utf-8", "replace") for form in self._forms)
            self._known = re.compile("|".join(map(re.escape, self._forms)))

    def is_in(self, data: bytes) -> bool:
        """Whether a known secret is in these bytes, in any of its forms; they may be hundreds of MB."""
        return any(form in data for form in self._bytes)

    def known(self, text: str) -> str:
        """The same text with every known secret replaced by `[redacted]`."""
        return text if self._known is None else self._known.sub(REDACTED, text)

    def __call__(self, text: str) -> str:
        """The same text with every secret replaced by `[redacted]`."""
        text = self.known(text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<keep>{REDACTED}", text)
        return _OPTION.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    return f"{found['keep']}{REDACTED}" if "-" in found["word"] else found[0]


def _forms_of(secret: str) -> Iterator[str]:
    """A secret as it is, and in the encodings in which an answer may repeat it."""
    raw = secret.encode("utf-8", "surrogateescape")
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    yield raw.hex()
    yield raw.hex().upper()
    for encoded in (b64encode(raw).decode(), urlsafe_b64encode(raw).decode()):
        # Without the padding, and the character before it, which depends on what would follow.
        bare = encoded.rstrip("=")
        yield bare if bare == encoded else bare[:-1]
