"""Removes secrets from command output before it is shown, logged or journalled."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from typing import Final

REDACTED: Final = "[redacted]"
SHORTEST_SECRET: Final = 4
"""Shorter values occur in ordinary words: removing them would garble the text and protect nothing."""

_PATTERNS: Final = (
    # Authorization: Basic dXNlcjpwYXNz  |  authorization=ApiKey …  |  "Authorization": "Bearer …"
    re.compile(
        r"""(?P<keep>(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|apikey|digest)\s+)?)"""
        r"""(?P<secret>[^\s"',;]+)""",
        re.IGNORECASE,
    ),
    # password=…, --token …, "api_key": "…", PGPASSWORD=…
    re.compile(
        r"""(?P<keep>[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|credentials?)"""
        r"""["']?(?:\s*[:=]\s*|\s+(?=["'])))(?P<secret>"[^"\n]*"|'[^'\n]*'|[^\s"',;&]+)""",
        re.IGNORECASE,
    ),
    re.compile(
        r"""(?P<keep>--?[\w-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key)\s+)(?P<secret>[^\s-]\S*)""",
        re.IGNORECASE,
    ),
    # https://user:password@host
    re.compile(r"""(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<secret>[^\s/@]+)(?=@)""", re.IGNORECASE),
    re.compile(
        r"""(?P<keep>)(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?"""
        r"""(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))""",
        re.DOTALL,
    ),
)


class Redactor:
    """Removes known secrets, and text that looks like a secret.

    Args:
        secrets: the known values of this run; the longest is removed first, so that no piece of it remains.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._lock = threading.Lock()
        self._secrets: tuple[str, ...] = ()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Remove this secret too from now on. Thread-safe."""
        with self._lock:
            if len(secret) >= SHORTEST_SECRET and secret not in self._secrets:
                self._secrets = tuple(sorted((*self._secrets, secret), key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """The same text with every secret replaced by `[redacted]`."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<keep>{REDACTED}", text)
        return text
