"""TLS to servers: how certificates are checked, the same on every Python, and the remedy for a refused form.

Since Python 3.13, `ssl.create_default_context` also checks the form of certificates (RFC 5280) and takes
every certificate of `ca` as an authority, also an intermediate one. Both are set here, so that a cluster file
has the same result on older versions. See docs/development/adr/0013-form-of-certificates.md.
"""

from __future__ import annotations

import ssl
from typing import Final

import urllib3

_FORM: Final = range(78, 94)
"""Errors of the strict checks alone, under `X509_V_FLAG_X509_STRICT` in OpenSSL's `x509_vfy.h`."""
_INVALID_CA: Final = 79
"""Also without the strict checks, for an issuer that is no authority at all."""


REMEDIES: Final = (
    "issue a new one, or set `tls.strict: false` to accept such certificates of trusted authorities, or"
    " `tls.fingerprint` to trust the node's own alone"
)


def tls_context(*, ca: str | None = None, verify: bool = True, strict: bool = True) -> ssl.SSLContext:
    """What checks the certificates of a server.

    Args:
        ca: file of the trusted certificates, instead of the system's.
        verify: whether certificates are checked at all; not where one is pinned by its fingerprint.
        strict: whether their form is checked too.

    Raises:
        OSError: the file of `ca` cannot be used.
    """
    context = ssl.create_default_context(cafile=ca)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    if not strict:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        urllib3.disable_warnings(
            urllib3.exceptions.InsecureRequestWarning
        )  # the cluster file's own says it once
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def refused_form(error: BaseException, *, strict: bool) -> str | None:
    """The rule of form that a certificate breaks, in OpenSSL's words; None for any other failure.

    Args:
        error: the failure; what it was raised from counts too.
        strict: whether the form was checked.
    """
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, ssl.SSLCertVerificationError):
        inner = inner.__cause__ or inner.__context__
    if inner is None or inner.verify_code not in _FORM or (inner.verify_code == _INVALID_CA and not strict):
        return None
    return inner.verify_message


def broken(form: str) -> str:
    """What is wrong with a certificate, after its name."""
    return f"breaks a rule of RFC 5280 ({form})"
