"""What is made at set-up and never committed: an SSH key pair, an authority and a certificate, passwords."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.lab.security import LabUser, Security, write_security

ADMIN = "admin"
ORCHESTRATOR = "orchestrator"
ROLE = "orchestrator"
"""The role's name in the shipped `elasticsearch-role.yml`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Where the keys of one lab lie, and its passwords."""

    mounted: Path  # the folder that the hosts see, read-only
    identity: Path  # the private SSH key of the test's side; the hosts never see it
    ca: Path  # the authority's certificate
    admin_password: str  # of the superuser
    orchestrator_password: str  # of the user with the shipped role

    def users(self, *, orchestrator_password: str | None = None) -> tuple[LabUser, LabUser]:
        """The file users, the superuser first; with another password of the second where one is given."""
        return (
            LabUser(name=ADMIN, password=self.admin_password),
            LabUser(
                name=ORCHESTRATOR, password=orchestrator_password or self.orchestrator_password, roles=(ROLE,)
            ),
        )


def make_material(folder: Path, *, names: Sequence[str], addresses: Sequence[str]) -> Material:
    """Make new keys in an empty folder.

    Args:
        folder: it and what is in it is closed to others.
        names: of the hosts, for the node certificate.
        addresses: of the hosts, for the node certificate.
    """
    folder.chmod(0o700)
    mounted = folder / "mounted"
    mounted.mkdir()
    identity = folder / "id_ed25519"
    _make_ssh_key(identity, mounted / "id_ed25519.pub")
    made = Material(
        mounted=mounted,
        identity=identity,
        ca=folder / "ca.crt",
        admin_password=secrets.token_urlsafe(16),
        orchestrator_password=secrets.token_urlsafe(16),
    )
    security = Security(users=made.users())
    write_security(security, ca=made.ca, configs=[mounted], names=names, addresses=addresses)
    return made


def _make_ssh_key(private: Path, public: Path) -> None:
    key = Ed25519PrivateKey.generate()
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    encoded = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    public.write_bytes(encoded + b" orchestrator lab\n")
