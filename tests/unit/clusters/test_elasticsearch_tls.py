"""TLS by real handshakes: what is trusted, and what a failure is said to be and may have done."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from elastic_transport import ConnectionError as LostConnection
from elastic_transport import TlsError, TransportError

from orchestrator.cli.work.certificate import shown_certificate
from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.faults import Fault, transport_fault
from tests.fakes.scripted_http import ScriptedServer
from tests.lab.security import SIGNS, certificate
from tests.unit.clusters.cases import why
from tests.unit.clusters.scripted import be

ONCE = RequestLimits(connect=5.0, silence=5.0, answer=10.0, attempts=1)
HERE = x509.IPAddress(IPv4Address("127.0.0.1"))
ELSEWHERE = x509.DNSName("es9.example.org")
Extensions = Sequence[tuple[x509.ExtensionType, bool]]
AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)
SIGNING: Extensions = ((AUTHORITY, True), (SIGNS, True))


def _certificate(folder: Path, name: x509.GeneralName, *, days: int = 30) -> Path:
    """A file with a certificate of its own signature and its key; `days` until it expires."""
    extensions = [(x509.SubjectAlternativeName([name]), False), (AUTHORITY, True), (SIGNS, True)]
    return _written(
        folder / "certificate.pem", *certificate("es1", extensions, lifetime=timedelta(days=days))
    )


def _written(file: Path, key: ec.EllipticCurvePrivateKey, signed: x509.Certificate) -> Path:
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(signed.public_bytes(pem) + private)
    return file


def _chain(folder: Path, *authorities: Extensions, identified: bool = True) -> tuple[Path, ...]:
    """Files of authorities, each signed by the one before it, and last of a node's certificate."""
    files, issuer = [], None
    for number, extensions in enumerate(authorities):
        issuer = certificate(f"authority {number}", [*extensions, *_identifies(issuer)], issuer)
        files.append(_written(folder / f"{number}.pem", *issuer))
    of_node = [(x509.SubjectAlternativeName([HERE]), False), *(_identifies(issuer) if identified else ())]
    return (*files, _written(folder / "node.pem", *certificate("es1", of_node, issuer)))


def _identifies(issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None) -> Extensions:
    if issuer is None:
        return ()
    return ((x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[0].public_key()), False),)


def _digest(file: Path) -> str:
    pem = file.read_text().partition("-----BEGIN PRIV")[0]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _serving(file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def _demanding(file: Path) -> ssl.SSLContext:
    context = _serving(file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(file)
    return context


class _Ending(ssl.SSLContext):
    """Reads the greeting and ends the connection without a word."""

    def wrap_socket(self, sock: socket.socket, *_: Any, **__: Any) -> Any:
        sock.recv(65536)
        sock.close()
        raise ConnectionError


def _ending(_file: Path) -> ssl.SSLContext:
    return _Ending(ssl.PROTOCOL_TLS_SERVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A server, how it is reached, and what is said; `{url}` is the endpoint."""

    reason: str
    name: x509.GeneralName = HERE
    days: int = 30
    serve: Callable[[Path], ssl.SSLContext | None] = _serving
    trusted: bool = True
    fingerprint: str | None = None
    nothing_done: bool = True
    untrusted: bool = False


CASES = {
    "signed by nobody who is trusted": Case(
        trusted=False,
        untrusted=True,
        reason="the certificate of {url} is not signed by an authority that we trust (self-signed",
    ),
    "expired": Case(days=-1, reason="the certificate of {url} has expired"),
    "of another host": Case(name=ELSEWHERE, reason="the certificate of {url} is for another host ("),
    "another one than pinned": Case(
        trusted=False,
        fingerprint="ab" * 32,
        reason="the certificate of {url} is not the one of `tls.fingerprint`",
    ),
    "no TLS at all": Case(serve=lambda _: None, reason="{url} does not speak TLS: is it http:// there?"),
    # TLS 1.3: the refusal of a client's certificate may come after the request was sent.
    "a certificate of ours is wanted": Case(
        serve=_demanding, nothing_done=False, reason="{url} refused our certificate or wants one ("
    ),
    "the connection is ended without a word": Case(
        serve=_ending, nothing_done=False, reason="{url} ended the connection during TLS ("
    ),
}


def test_each_failure_of_tls_has_its_words(
    subtests: pytest.Subtests, tmp_path: Path, client: Callable[..., ElasticsearchClient]
) -> None:
    for name, case in CASES.items():
        file = _certificate(tmp_path, case.name, days=case.days)
        with subtests.test(name), ScriptedServer(tls=case.serve(file)) as server:
            url = f"https://127.0.0.1:{server.port}"
            ca = str(file) if case.trusted else None
            outcome = client(url, ca=ca, fingerprint=case.fingerprint, limits=ONCE).server()
            assert isinstance(outcome, Fault)
            assert outcome.reason.startswith(case.reason.format(url=url))
            assert (outcome.nothing_done, outcome.untrusted) == (case.nothing_done, case.untrusted)
            assert not server.asked
            if case.untrusted:
                assert "set `tls.ca`" in outcome.reason


def test_a_server_is_trusted_by_ca_fingerprint_or_unchecked(
    tmp_path: Path, client: Callable[..., ElasticsearchClient]
) -> None:
    file = _certificate(tmp_path, HERE)
    with ScriptedServer(tls=_serving(file)) as server:
        be(server)
        for trust in ({"ca": str(file)}, {"fingerprint": _digest(file)}, {"verify": False}):
            assert not isinstance(client(server.url, **trust).server(), Fault)
        plain = why(client(server.url.replace("https:", "http:"), limits=ONCE).server())
        assert server.url.removeprefix("https://") in plain, "TLS where plain HTTP was expected"


FORMS: dict[str, tuple[Extensions, bool, str]] = {
    "as of elasticsearch-certutil": (
        [(AUTHORITY, True)],
        True,
        "CA cert does not include key usage extension",
    ),
    "no identifier of the authority": (SIGNING, False, "Missing Authority Key Identifier"),
    "an authority's mark not critical": (
        [(AUTHORITY, False), (SIGNS, True)],
        True,
        "Basic Constraints of CA cert not marked critical",
    ),
}


def test_a_broken_rule_of_form_is_refused_unless_not_strict(
    subtests: pytest.Subtests, tmp_path: Path, client: Callable[..., ElasticsearchClient]
) -> None:
    for name, (extensions, identified, broken) in FORMS.items():
        ca, node = _chain(tmp_path, extensions, identified=identified)
        with subtests.test(name), ScriptedServer(tls=_serving(node)) as server:
            be(server)
            refused = client(server.url, ca=str(ca), limits=ONCE).server()
            assert isinstance(refused, Fault)
            assert (refused.malformed, refused.untrusted, refused.nothing_done) == (broken, False, True)
            says = f"breaks a rule of RFC 5280 ({broken}): issue a new one, or set `tls.strict: false` to"
            assert says in refused.reason
            assert "`tls.fingerprint`" in refused.reason
            unknown = client(server.url, strict=False, limits=ONCE).server()
            assert isinstance(unknown, Fault)
            assert (unknown.malformed, unknown.untrusted) == ("", True)
            assert not server.asked
            for trust in ({"ca": str(ca), "strict": False}, {"fingerprint": _digest(node)}):
                assert not isinstance(client(server.url, **trust).server(), Fault)


def test_a_certificate_that_is_no_authority_is_never_one(
    tmp_path: Path, client: Callable[..., ElasticsearchClient]
) -> None:
    """OpenSSL names the error of an authority of version 1 alike, which is one without the strict checks."""
    ca, node = _chain(tmp_path, [(x509.BasicConstraints(ca=False, path_length=None), True)])
    with ScriptedServer(tls=_serving(node)) as server:
        for strict, expected in ((True, ("invalid CA certificate", False)), (False, ("", True))):
            refused = client(server.url, ca=str(ca), strict=strict, limits=ONCE).server()
            assert isinstance(refused, Fault)
            assert (refused.malformed, refused.untrusted) == expected


def test_an_authority_below_another_may_be_the_trusted_one(
    tmp_path: Path, client: Callable[..., ElasticsearchClient]
) -> None:
    _, below, node = _chain(tmp_path, SIGNING, SIGNING)
    with ScriptedServer(tls=_serving(node)) as server:
        assert not isinstance(client(be(server).url, ca=str(below)).server(), Fault)


def test_a_named_authority_replaces_those_of_the_system(
    tmp_path: Path, client: Callable[..., ElasticsearchClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, node = _chain(tmp_path, SIGNING)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    with ScriptedServer(tls=_serving(node)) as server:
        assert not isinstance(client(be(server).url).server(), Fault)
        refused = client(server.url, ca=str(_certificate(tmp_path, HERE)), limits=ONCE).server()
        assert isinstance(refused, Fault)
        assert refused.untrusted


def test_a_server_gets_our_certificate_however_it_is_trusted(
    tmp_path: Path, client: Callable[..., ElasticsearchClient]
) -> None:
    file = _certificate(tmp_path, HERE)
    with ScriptedServer(tls=_demanding(file)) as server:
        be(server)
        for trust in ({"ca": str(file)}, {"fingerprint": _digest(file)}, {"verify": False}):
            assert not isinstance(client(server.url, client_cert=str(file), **trust).server(), Fault)


def test_a_certificate_is_shown_whatever_its_form(tmp_path: Path) -> None:
    """With a serial number below zero, for which `cryptography` has a warning."""
    key, signed = certificate("es1", [(AUTHORITY, True)])
    serial = signed.serial_number.to_bytes(20)
    der = signed.public_bytes(serialization.Encoding.DER)
    file = _written(tmp_path / "es1.pem", key, signed)
    pem = ssl.DER_cert_to_PEM_cert(der.replace(serial, bytes([serial[0] | 0x80]) + serial[1:]))
    file.write_text(pem + file.read_text().partition("-----END CERTIFICATE-----\n")[2])
    with ScriptedServer(tls=_serving(file)) as server:
        shown = shown_certificate(server.url)
    assert (shown.subject, shown.fingerprint.replace(":", "").lower()) == ("CN=es1", _digest(file))


def test_closing_the_cluster_ends_its_connections(
    server: ScriptedServer, client: Callable[..., ElasticsearchClient]
) -> None:
    opened = client(server.url, limits=ONCE)
    opened.server()
    assert not server.ended(0.2), "kept for the next request"
    opened.close()
    assert server.ended(10)


ASKS = ssl.SSLError("sslv3 alert bad certificate")
ENDS = ssl.SSLEOFError("EOF occurred in violation of protocol")
NO_TRUST = ssl.SSLError("certificate verify failed: unable to get local issuer certificate")


LOST = LostConnection("Remote end closed")
TRANSPORT: tuple[tuple[str, TransportError, str], ...] = (
    ("https://es2:9300", TlsError("x", errors=(ASKS,)), "https://es2:9300: 9300 is the transport port"),
    ("https://es2:9300", TlsError("x", errors=(ENDS,)), "https://es2:9300: 9300 is the transport port"),
    ("https://es2:9301", TlsError("x", errors=(NO_TRUST,)), "https://es2:9301: 9301 is the transport port"),
    ("http://es2:9300", LOST, "http://es2:9300: 9300 is the transport port"),
    ("https://es2:9200", TlsError("x", errors=(ASKS,)), "https://es2:9200 refused our certificate"),
    ("http://es2:9200", LOST, "the connection to http://es2:9200 was lost"),
)


def test_a_transport_port_is_named() -> None:
    """The failures of a real node's transport port, with and without TLS (recorded on 8.19)."""
    for url, error, begins in TRANSPORT:
        if isinstance(error, TlsError):
            error.__cause__ = error.errors[0]
        fault = transport_fault(error, url=url)
        assert fault.reason.startswith(begins)
        if "transport port of most nodes" in fault.reason:
            number = int(url.rpartition(":")[2])
            assert f"is it {number - 100}? If not: " in fault.reason


def test_a_host_that_takes_no_connection_is_no_transport_port() -> None:
    cause = urllib3.exceptions.NewConnectionError(None, "refused")
    error = LostConnection("x", errors=(cause,))
    error.__cause__ = cause
    assert transport_fault(error, url="http://es2:9300").reason.startswith(
        "http://es2:9300 takes no connections"
    )
