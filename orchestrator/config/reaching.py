"""How a cluster is reached over HTTP: its endpoints, how to log in, how certificates are checked."""

from __future__ import annotations

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, WithJsonSchema, model_validator

from orchestrator.config.spec import Name, Positive, Reference, Spec, Unset, matching


def check_endpoint(url: str, *, example: str, ports: str, login: str) -> str:
    """Check the address of a node's HTTP port.

    Args:
        url: as written in the file.
        example: a valid address, for messages.
        ports: ports that are not used as a default, for messages.
        login: the message for a user or a password in the address.

    Raises:
        ValueError: it is not valid; the message does not repeat the value, which may hold a password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"must be a URL such as {example}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"must not hold a user or a password; {login}")
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must begin with http:// or https://")
    if not host or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError(f"must be a URL such as {example}")
    if port is None or port == 0:
        raise ValueError(f"must name the port, such as {example}: neither {ports} is assumed")
    if parts.query or parts.fragment:
        raise ValueError("must end with the port or a path; a query or a fragment has no meaning here")
    return parts.geturl().rstrip("/")  # with the scheme in small letters, as all that read it expect


def each_once(endpoints: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an endpoint that is listed twice: it is no alternative when its node goes down.

    Raises:
        ValueError: an endpoint is listed twice.
    """
    twice = next((url for at, url in enumerate(endpoints) if url in endpoints[:at]), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice")
    return endpoints


def _elasticsearch(url: str) -> str:
    login = "`auth` is for them, by reference"
    return check_endpoint(url, example="https://es1:9200", ports="443 nor 9200", login=login)


def _riak(url: str) -> str:
    login = "`/ping` and `/stats` are read without logging in"
    return check_endpoint(url, example="http://riak1:8098", ports="80 nor 8098", login=login)


_URL = WithJsonSchema({"type": "string", "pattern": "^https?://", "title": "URL"})
Endpoint = Annotated[str, AfterValidator(_elasticsearch), _URL]
RiakEndpoint = Annotated[str, AfterValidator(_riak), _URL]


class BasicSpec(Spec):
    """User and password."""

    username: Name = Field(description="The user's name.")
    password: Reference = Field(description="The password, by reference.")


class AuthSpec(Spec):
    """The login to the cluster: one of the two."""

    api_key: Unset[Reference] = Field(
        default=None,
        description="API key in its encoded form (`id:key` in base 64), by reference. Elasticsearch only.",
    )
    basic: Unset[BasicSpec] = Field(default=None, description="User and password.")

    @model_validator(mode="after")
    def _one_of_them(self) -> AuthSpec:
        if (self.api_key is None) == (self.basic is None):
            raise ValueError("needs either `api_key` or `basic`")
        return self


class TrustSpec(Spec):
    """Which certificates of a server are trusted."""

    ca: Unset[Name] = Field(default=None, description="Trusted certificates. Default: those of the system.")
    strict: StrictBool = Field(
        default=True,
        description="Whether certificates of trusted authorities must also keep the rules of form in RFC"
        " 5280, such as a key usage in that of an authority.",
    )


class ServerSpec(TrustSpec):
    """A server that may ask for user and password."""

    auth: Unset[Reference] = Field(
        default=None, description="Reference to `user:password`, for basic authentication."
    )


class LoginSpec(ServerSpec):
    """A server that may ask for a token instead."""

    bearer: Unset[Reference] = Field(default=None, description="Reference to a token, instead of `auth`.")

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        if self.auth is not None and self.bearer is not None:
            raise ValueError("needs one of `auth` and `bearer`, not both")
        return self


class TlsSpec(TrustSpec):
    """How the cluster's certificates are checked. Relative paths start at the cluster file's folder."""

    verify: StrictBool = Field(default=True, description="Whether certificates are checked.")
    client_cert: Unset[Name] = Field(default=None, description="Client certificate.")
    client_key: Unset[Name] = Field(
        default=None, description="Key of the client certificate, unless `client_cert` contains it."
    )
    fingerprint: Unset[
        Annotated[
            str, matching(r"([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}", "must be 64 hexadecimal digits (SHA-256)")
        ]
    ] = Field(
        default=None,
        description="SHA-256 of the trusted certificate, in hexadecimal, with or without colons.",
    )

    @model_validator(mode="after")
    def _key_has_certificate(self) -> TlsSpec:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("`client_key` needs `client_cert`")
        return self


class ExpectSpec(Spec):
    """Checks of the cluster at the start."""

    nodes: Unset[Positive] = Field(
        default=None, description="Number of nodes. With fewer at the start, the run holds."
    )
