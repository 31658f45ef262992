"""One bounded GET: certificates checked, no redirect, no proxy, the answer limited in size and time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import SSLError

from orchestrator.bounded_http import FAULTS, Bounds, HttpAnswer, basic, bounded, exchange, fault
from orchestrator.model.gate import HttpAccess
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.tls import broken, refused_form, tls_context

MOST_BYTES: Final = 1024 * 1024
"""Of an answer: a queue, a few samples or one document are far smaller."""

Query = Mapping[str, str | Sequence[str]]
"""Parameters of a request; one with several values is repeated."""

_OK: Final = 200
_DENIED: Final = (401, 403)
_REDIRECTS: Final = range(300, 400)

Secrets = Callable[[str], str]
"""Returns the value of a reference. Raises `ConfigError`, whose message holds no value."""


class Get(Protocol):
    """Asks a server for a document."""

    def __call__(self, suffix: str = "", query: Query | None = None) -> Reading[bytes]:
        """The body of a 200; else `Unknown` with the status or fault, and never with text of the body.

        Args:
            suffix: added to the path of the gate's URL.
            query: parameters; messages do not show them.
        """
        ...


@dataclass(slots=True)
class HttpGet:
    """A persistent connection to the server of one gate."""

    access: HttpAccess  # how it is asked
    # resolves references; called again if the server denies access, since a key may have changed
    secrets: Secrets
    redact: Callable[[str], str] = str  # removes the known secrets from a body
    most_bytes: int = MOST_BYTES  # maximum size of an answer
    clock: Callable[[], Seconds] = time.monotonic  # monotonic seconds
    _pool: urllib3.HTTPConnectionPool | None = None
    _headers: dict[str, str] | None = None

    def __call__(self, suffix: str = "", query: Query | None = None) -> Reading[bytes]:
        """See `Get`. If a secret cannot be resolved, the error of `secrets` is raised."""
        if self._headers is None:
            self._headers = self._authorization()
        where = _shown(self.access.url, suffix)
        url = f"{self.access.url}{suffix}{f'?{urlencode(query, doseq=True)}' if query else ''}"
        limit = self.access.timeout
        try:
            answered = exchange(
                self._connections(),
                "GET",
                urllib3.util.parse_url(url).request_uri,
                headers={"Accept": "application/json", **self._headers},
                bounds=Bounds(connect=limit, silence=limit, whole=limit, answer_bytes=self.most_bytes),
                now=self.clock,
            )
        except FAULTS as error:
            return Unknown(reason=f"{where}: {_fault(error, self.access)}")
        return self._body(answered, where)

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.close()

    def _connections(self) -> urllib3.HTTPConnectionPool:
        if self._pool is None:
            secure = self.access.url.startswith("https:")
            try:
                tls = tls_context(ca=self.access.ca, strict=self.access.strict) if secure else None
            except OSError as error:
                raise SSLError(f"{self.access.ca}: {error.strerror or error}") from error
            manager = urllib3.PoolManager(num_pools=1, maxsize=1, ssl_context=tls)
            self._pool = bounded(manager.connection_from_url(self.access.url))
        return self._pool

    def _authorization(self) -> dict[str, str]:
        access = self.access
        if access.basic is not None:
            return {"Authorization": basic(self.secrets(access.basic))}
        if access.bearer is not None:
            return {"Authorization": f"Bearer {self.secrets(access.bearer)}"}
        return {}

    def _body(self, answered: HttpAnswer, where: str) -> Reading[bytes]:
        status = answered.status
        if status in _DENIED:
            self._headers = None
            return Unknown(reason=f"{where}: {status}: {_denied(self.access)}")
        if status in _REDIRECTS:
            return Unknown(reason=f"{where}: {status}: it redirects, which is not followed: name the target")
        if status != _OK:
            return Unknown(reason=f"{where}: {status} {answered.reason}".rstrip())
        return self.redact(answered.body.decode(errors="replace")).encode()


def json_of(body: bytes) -> Reading[Any]:
    """The JSON document of a body; `NaN` and infinities stay text, since limits do not apply to them."""
    try:
        return json.loads(body, parse_constant=str)
    except (ValueError, RecursionError):
        return Unknown(reason="the answer is not JSON")


def _shown(url: str, suffix: str) -> str:
    """Server and path, without the query, which may hold data that does not belong in a journal."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}{suffix}"


def _denied(access: HttpAccess) -> str:
    named = access.basic or access.bearer
    return f"it does not take what {named} holds" if named else "it wants `auth` or `bearer`"


def _fault(error: Exception, access: HttpAccess) -> str:
    """The failure in words."""
    form = refused_form(error, strict=access.strict) if isinstance(error, SSLError) else None
    if form is None:
        return fault(error, access.timeout)
    return f"TLS: a certificate {broken(form)}: issue a new one, or set the gate's `strict: false`"
