"""An authority and a certificate of loopback, for servers of tests."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.lab.security import Security, write_security


class Certificates:
    """An authority and a certificate of loopback, in a folder.

    Attributes:
        ca: the authority.
        node: its certificate of loopback.
    """

    def __init__(self, folder: Path, *, key_usage: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca, self.node, self._key = folder / "ca.pem", folder / "node.crt", folder / "node.key"
        write_security(Security(users=()), ca=self.ca, configs=[folder], key_usage=key_usage)

    def context(self) -> ssl.SSLContext:
        """What a server with this certificate needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.node, self._key)
        return context
