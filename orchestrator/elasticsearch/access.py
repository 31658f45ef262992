"""How a cluster is reached: endpoints, credentials, TLS and the limits of a request."""

from __future__ import annotations

import re
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError
from orchestrator.untrusted import UntrustedValue, address

_PUBLISHED: Final = re.compile(r"(?:(?P<name>[^/]+)/)?(?P<host>\[[^\]]+\]|[^:/]+):(?P<port>[0-9]{1,5})")
"""`127.0.0.1:9200`, `[::1]:9200`, or `es1.example.org/10.1.0.1:9200` where a name was published."""
_FRAMED: Final = re.compile(r"inet\[/?(?P<bare>.+)\]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Endpoints, credentials and TLS settings of a cluster."""

    endpoints: tuple[str, ...]  # URLs of nodes, in the order of preference
    api_key: str | None = field(default=None, repr=False)  # the encoded form (`id:key` in base 64)
    username: str | None = None  # for basic authentication; goes with `password`
    password: str | None = field(default=None, repr=False)
    source: str = ""  # the reference of the secret, such as `env:ES_PASSWORD`, for messages
    fixed: bool = False  # the source cannot change while the program runs
    ca: str | None = None  # file of the trusted certificates; by default the system's
    verify: bool = True  # whether certificates are checked at all
    strict: bool = True  # whether their form is checked too
    # file of our own certificate; it needs `client_key` unless it also holds the key
    client_cert: str | None = None
    client_key: str | None = None
    # SHA-256 of the trusted certificate, in hexadecimal; replaces the check by `ca`
    fingerprint: str | None = None
    product: str | None = None  # what the nodes are, where a proxy hides it; it goes with `version`
    version: str | None = None  # the lowest version among the nodes

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may show: also the pair that a header holds, and the two parts of a key."""
        found = []
        if self.password is not None:
            found += [self.password, f"{self.username}:{self.password}"]
        if self.api_key is not None:
            found += [self.api_key]
            with suppress(ValueError):  # it is no base 64: the cluster refuses it
                pair = b64decode(self.api_key + "==", validate=False).decode(errors="replace")
                found += [pair, pair.partition(":")[2]]
        return tuple(found)

    @property
    def credentials(self) -> str:
        """The kind of credentials, for people; never their values."""
        if self.api_key is not None:
            return "the API key"
        return f"user {self.username}" if self.username is not None else "a request without credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of one request. They hold even if the server does not answer."""

    connect: float = 5.0  # seconds to connect, and as many for TLS
    silence: float = 20.0  # seconds between two bytes of an answer
    # seconds for a whole exchange, or as long as `silence` if that is more; this ends an answer that arrives
    # too slowly
    answer: float = 60.0
    # seconds that the server searches for an elected master. It is short, because the caller decides whether
    # to wait for an election.
    elected_master: float = 5.0
    # maximum size of any answer; 100,000 shards take about 100 MB unfiltered. Most kinds of requests have a
    # smaller one of their own (`AnswerBytes`).
    answer_bytes: int = 512 * 1024 * 1024
    attempts: int = 3  # how often a request is tried in all, if a repeat is harmless


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Endpoint:
    """The target of HTTP requests."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The URL without user information, which is never kept here."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def place(self) -> tuple[str, int]:
        """The host and port that are compared with a node's published address."""
        return (self.host, self.port)


def parse_endpoint(url: str) -> Endpoint:
    """Read an endpoint as the user wrote it.

    Raises:
        ConfigError: it is not an http(s) URL, or it holds a user or a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a URL: {error}", key="endpoints") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ConfigError(f"{url!r} must be like https://host:9200", key="endpoints")
    if parts.username is not None:
        raise ConfigError(
            f"credentials belong under `auth`, not in the URL of {parts.hostname}", key="endpoints"
        )
    return Endpoint(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port if port is not None else _DEFAULT_PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
    )


def bare_address(published: str) -> str:
    """An address without its frame: before 2.0 it is `inet[es1/10.1.0.1:9300]` or `inet[/10.1.0.1:9300]`."""
    framed = _FRAMED.fullmatch(published)
    return framed["bare"] if framed else published


def without_brackets(host: str) -> str:
    """`::1` from `[::1]`, and any other host as it is."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def published_places(published: str) -> tuple[tuple[str, int], ...]:
    """Host and port of a node's `http.publish_address`, the name first; empty if it is no place.

    The form with a name (`es1.example.org/10.1.0.1:9200`) exists since Elasticsearch 7.0.
    """
    match = _PUBLISHED.fullmatch(bare_address(published))
    if match is None:
        return ()
    hosts = [match["name"], without_brackets(match["host"])]
    try:
        return tuple((address(host).lower(), int(match["port"])) for host in hosts if host)
    except UntrustedValue:
        return ()
