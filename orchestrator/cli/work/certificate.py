"""The certificate that an endpoint shows, for a person to compare. Nothing is sent there but a greeting."""

from __future__ import annotations

import socket
import ssl
import warnings
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.utils import CryptographyDeprecationWarning

_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that was not checked."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    fingerprint: str  # SHA-256, in hexadecimal with colons

    @property
    def validity(self) -> str:
        """From and until when, by day."""
        return f"{self.not_before:%Y-%m-%d} to {self.not_after:%Y-%m-%d}"


def shown_certificate(url: str) -> Certificate:
    """The certificate that answers at an https URL.

    Raises:
        OSError: no connection, or no TLS.
        ValueError: what is shown is no certificate.
    """
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is shown to a person, not trusted
    place = (parts.hostname or "", parts.port or 443)
    with (
        socket.create_connection(place, _CONNECT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as secure,
    ):
        encoded = secure.getpeercert(binary_form=True)
    if not encoded:
        raise ValueError("no certificate is shown")
    return _parse(encoded)


def _parse(encoded: bytes) -> Certificate:
    with warnings.catch_warnings():
        # As of a serial number below 1, which no check refuses: only a person decides on this certificate.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        parsed = x509.load_der_x509_certificate(encoded)
    return Certificate(
        subject=parsed.subject.rfc4514_string(),
        issuer=parsed.issuer.rfc4514_string(),
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        fingerprint=sha256(encoded).digest().hex(":").upper(),
    )
