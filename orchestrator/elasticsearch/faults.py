"""Failures of requests: the message, the remedy, and whether the server may have changed anything."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from elastic_transport import ConnectionTimeout, SerializationError, TlsError

from orchestrator.bounded_http import AnswerLimit, is_plain
from orchestrator.elasticsearch.access import Access
from orchestrator.model.action import Refused
from orchestrator.model.reading import Refusal, Unauthorized, Unknown
from orchestrator.next_command import next_command
from orchestrator.tls import REMEDIES, broken, refused_form

ROLE: Final = f"`{next_command('explain', 'elasticsearch-role.yml')}`"
_LONGEST_REASON: Final = 400
_REFUSING: Final = range(400, 500)
_MAY_HAVE_BEEN_DONE: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT})
"""Client errors after which the server may have done something. 408 also reports a wait's time-out."""
_NOTHING_DONE_TYPES: Final = frozenset(
    {"cluster_block_exception", "circuit_breaking_exception", "process_cluster_event_timeout_exception"}
)
"""Errors with a status of 500 and above that are raised before the server does anything.

The last one means that a change waited too long in the master's queue and was removed from it. Not included:
`master_not_discovered_exception`, since a master may have made the change before it went away.
"""
_WORTH_ANOTHER_TRY: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT}
)

_PASSING: Final = _WORTH_ANOTHER_TRY | {HTTPStatus.SERVICE_UNAVAILABLE}
"""429 of a full queue or a circuit breaker, 503 of a cluster without a master, and a proxy's own trouble."""
_AFTER_LOGIN: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""With a type of error: a node looked for something. A proxy names no type; a full node checks no login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is not an error for the caller."""

    status: int
    body: Any
    node: str | None = None  # name of the node that answered, if known


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A failed request."""

    reason: str  # one line: what, where, what to do
    nothing_done: bool  # certainly. Otherwise only a reading tells.
    elsewhere: bool = False  # another endpoint, or the same a moment later, may do better
    passes: bool = False  # the same request may well be answered a little later
    status: int | None = None  # HTTP's, None when there was no answer
    error_type: str | None = None  # the server's name for it, such as `index_not_found_exception`
    untrusted: bool = False  # the certificate is signed by no authority that is trusted here
    # the rule of form that a certificate breaks; nothing else is known to be wrong with it
    malformed: str = ""
    unlicensed: bool = False  # the cluster's license does not have the feature
    refusal: Refusal | None = None  # the credentials that were not accepted
    held_back: bool = False  # nothing was sent, because the credentials were refused a moment ago

    @property
    def logged_in(self) -> bool:
        """Whether a node accepted the login before the request failed."""
        return self.error_type in _NO_MASTER or (self.status in _AFTER_LOGIN and self.error_type is not None)

    def unknown(self, of: str = "") -> Unknown:
        """The reading that failed with it; `of` goes before the reason."""
        reason = f"{of}: {self.reason}" if of else self.reason
        return (
            Unknown(reason=reason)
            if self.refusal is None
            else Unauthorized(reason=reason, refusal=self.refusal)
        )

    def refused(self) -> Refused:
        """The action that failed with it, where nothing was done."""
        return Refused(reason=self.reason, passes=self.passes, refusal=self.refusal)


def transport_fault(error: Exception, *, url: str, strict: bool = True) -> Fault:
    """The fault for a request without a complete answer; `strict` as in `Access`."""
    fault = _without_answer(error, url=url, strict=strict)
    if fault.passes:
        return fault
    answered = _NO_HTTP in _root(error.__cause__ or error)
    return replace(fault, reason=_of_transport_port(fault.reason, url, answered=answered))


_NO_HTTP: Final = "This is not an HTTP port"
"""The whole answer of a transport port without TLS to a request (recorded on 8.19)."""
_TRANSPORT_PORTS: Final = range(9300, 9401)
"""`transport.port` by default. With TLS such a port ends the handshake, or asks for a node's certificate."""


def _of_transport_port(reason: str, url: str, *, answered: bool) -> str:
    """The reason why a request failed; where the endpoint is a transport port, it says so."""
    port = urlsplit(url).port or 0
    if answered:
        return f"{url} is a node's transport port: name its HTTP port, usually 9200"
    if port in _TRANSPORT_PORTS:
        return f"{url}: {port} is the transport port of most nodes, is it {port - 100}? If not: {reason}"
    return reason


def _without_answer(error: Exception, *, url: str, strict: bool) -> Fault:
    cause = error.__cause__ or error
    if isinstance(error, SerializationError):
        reason = (
            f"{url} did not answer with JSON, or the answer was cut short: is this Elasticsearch's HTTP port?"
        )
        return Fault(reason=reason, nothing_done=False, elsewhere=True)
    if isinstance(cause, AnswerLimit):
        return Fault(reason=f"{url}: {cause}", nothing_done=False, elsewhere=True)
    if isinstance(error, TlsError):
        form = refused_form(cause, strict=strict)
        if form is not None:
            reason = f"the certificate of {url}, or that of its authority, {broken(form)}: {REMEDIES}"
            return Fault(reason=reason, nothing_done=True, elsewhere=True, malformed=form)
        reason, untrusted = _tls_reason(cause, url)
        done_nothing = _while_connecting(cause)
        return Fault(reason=reason, nothing_done=done_nothing, elsewhere=True, untrusted=untrusted)
    if isinstance(cause, urllib3.exceptions.NameResolutionError):
        return _unreached(f"the host of {url} does not resolve")
    if isinstance(cause, urllib3.exceptions.NewConnectionError):
        return _unreached(f"{url} takes no connections: {_root(cause)}")
    # After the class above: that is a subclass of this one, although it is not a time-out.
    if isinstance(cause, urllib3.exceptions.ConnectTimeoutError):
        return _unreached(f"{url} did not take the connection in time")
    if isinstance(error, ConnectionTimeout):
        return Fault(reason=f"{url} did not answer in time", nothing_done=False, elsewhere=True)
    return Fault(
        reason=f"the connection to {url} was lost: {_root(cause)}", nothing_done=False, elsewhere=True
    )


def _unreached(reason: str) -> Fault:
    return Fault(reason=reason, nothing_done=True, elsewhere=True, passes=True)


def _root(error: BaseException) -> str:
    """The innermost message: urllib3 wraps an error in up to four others."""
    seen = [error]
    while (inner := seen[-1].__cause__ or seen[-1].__context__) is not None and inner not in seen:
        seen.append(inner)
    inmost = seen[-1]
    if isinstance(inmost, OSError) and inmost.strerror:
        return inmost.strerror
    return _shortened(str(inmost) or type(inmost).__name__)


def _while_connecting(cause: BaseException) -> bool:
    """Whether TLS failed before a request could be sent: at the check of the certificate.

    Other failures may come later. In TLS 1.3 a client gets the refusal of its certificate only after the
    handshake. A request may already be sent then, but such a server has not read it.
    """
    text = str(cause).lower()
    certain = ("certificate verify failed", "fingerprint", "wrong version number", "doesn't match")
    return any(word in text for word in certain)


def _tls_reason(cause: BaseException, url: str) -> tuple[str, bool]:
    """Why TLS failed, and whether the certificate is signed by no authority that is trusted here."""
    text, untrusted = _inmost_tls(cause), False
    lower = text.lower()
    if "fingerprint" in lower:
        reason = f"the certificate of {url} is not the one of `tls.fingerprint`"
    elif "mismatch" in lower or "not valid for" in lower or "doesn't match" in lower:
        reason = (
            f"the certificate of {url} is for another host ({text}): use the name that is in the certificate"
        )
    elif "expired" in lower:
        reason = f"the certificate of {url} has expired"
    elif any(
        word in lower for word in ("verify failed", "issuer", "self-signed", "self signed", "invalid ca")
    ):
        untrusted = True
        reason = (
            f"the certificate of {url} is not signed by an authority that we trust ({text}): set `tls.ca`"
        )
    elif is_plain(text):
        reason = f"{url} does not speak TLS: is it http:// there?"
    elif "certificate required" in lower or "bad certificate" in lower or "handshake failure" in lower:
        reason = f"{url} refused our certificate or wants one ({text}): see `tls.client_cert`"
    elif "eof occurred" in lower or "(eof)" in lower:  # in two wordings of Python
        # So the refusal of a certificate reaches who is sending already.
        reason = f"{url} ended the connection during TLS ({text}): does it want `tls.client_cert`?"
    else:
        reason = f"TLS with {url} failed: {text}"
    return reason, untrusted


def _inmost_tls(cause: BaseException) -> str:
    seen: list[BaseException] = [cause]
    while (inner := seen[-1].__cause__ or seen[-1].__context__) is not None and inner not in seen:
        seen.append(inner)
    for error in reversed(seen):
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        if isinstance(error, ssl.SSLError | socket.timeout):
            return _shortened(str(error))
    return _shortened(str(cause))


def error_fault(status: int, body: Any, *, url: str, call: str, access: Access) -> Fault:
    """The fault for an error status.

    Args:
        status: HTTP status.
        body: parsed JSON, or text.
        url: the endpoint.
        call: method and path, without the query.
        access: has the credentials that were sent.
    """
    error_type, said = _said(body)
    nothing_done = (
        status in _REFUSING and status not in _MAY_HAVE_BEEN_DONE
    ) or error_type in _NOTHING_DONE_TYPES
    refusal = None
    match status:
        case HTTPStatus.UNAUTHORIZED:
            refusal = _refusal(access, url, status)
            reason = f"{refusal.sentence}: {said}"
        case HTTPStatus.FORBIDDEN if error_type == "security_exception":
            refusal = _refusal(access, url, status, call)
            reason = f"{refusal.sentence}: {said}; the role that is needed: {ROLE}"
        case HTTPStatus.FORBIDDEN:
            reason = f"{call} is forbidden (403): {said}"
        case HTTPStatus.SERVICE_UNAVAILABLE if error_type in _NO_MASTER:
            reason = f"there is no elected master, says {url}"
        case _ if (
            not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES and status < HTTPStatus.BAD_REQUEST
        ):
            reason = f"{url} redirects ({status}); name the place itself as the endpoint"
        case _:
            reason = f"{call} was answered with {status}: {said}"
    return Fault(
        reason=reason,
        nothing_done=nothing_done or status < HTTPStatus.BAD_REQUEST,
        elsewhere=status in _WORTH_ANOTHER_TRY,
        passes=status in _PASSING,
        status=status,
        error_type=error_type,
        refusal=refusal,
        unlicensed=status == HTTPStatus.FORBIDDEN and _is_unlicensed(body),
    )


def _is_unlicensed(body: Any) -> bool:
    """Whether the license of the cluster lacks the feature: the server names it in a field of its own."""
    match body:
        case {"error": {"license.expired.feature": _} | {"root_cause": [{"license.expired.feature": _}, *_]}}:
            return True
        case {"error": {"reason": str(reason)}}:
            return reason.startswith("current license is non-compliant for ")
        case _:
            return False


def _refusal(access: Access, url: str, status: int, call: str = "") -> Refusal:
    return Refusal(
        endpoint=url,
        credentials=access.credentials,
        source=access.source,
        status=status,
        call=call,
        fixed=access.fixed,
    )


_OLD_ERROR: Final = re.compile(r"(?:^|nested: )(\w+Exception)\[")
_OLD_TYPES: Final = {
    "IndexMissingException": "index_not_found_exception",
    "ClusterBlockException": "cluster_block_exception",
    "MasterNotDiscoveredException": "master_not_discovered_exception",
    "ProcessClusterEventTimeoutException": "process_cluster_event_timeout_exception",
}
_NO_MASTER: Final = frozenset({"master_not_discovered_exception", "cluster_manager_not_discovered_exception"})


def _said(body: Any) -> tuple[str | None, str]:
    """The server's name of the error, and its reason."""
    if not isinstance(body, dict):
        return None, _shortened(" ".join(str(body).split())) or "no reason given"
    error = body.get("error")
    if not isinstance(error, dict):  # before 2.0, and in some handlers still, the error is a text
        return _type_in(str(error)), _shortened(str(error if error is not None else body))
    error_type, reason = error.get("type"), error.get("reason")
    return (
        error_type if isinstance(error_type, str) else None,
        _shortened(str(reason if reason is not None else error_type)),
    )


def _type_in(error: str) -> str | None:
    """The type of an error before 2.0, by its later name: the innermost of `A[...]; nested: B[...]`."""
    named = _OLD_ERROR.findall(error)
    return _OLD_TYPES.get(named[-1]) if named else None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
