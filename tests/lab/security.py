"""TLS and users for a lab cluster: a throw-away authority, one certificate for all nodes, file users."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import secrets
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = dt.timedelta(days=7)
"""No lab lives longer, and a forgotten certificate soon expires."""
PBKDF2_ROUNDS = 1000
"""The fewest that Elasticsearch takes: every request of a test pays for them."""
PBKDF2_BYTES = 32
"""Length of Elasticsearch's salts and hashes."""
SIGNS: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
"""The key usage of an authority."""
SECURITY_FILES: Final = ("ca.crt", "node.crt", "node.key", "users", "users_roles", "roles.yml")
"""What `write_security` writes into a configuration folder; the last only where roles are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabUser:
    """A user in the nodes' file realm, with roles of `Security.roles_yml` or `superuser`."""

    name: str
    password: str
    roles: tuple[str, ...] = ("superuser",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS on both layers, and file users. Elasticsearch 8 and 9; the OpenSearch archive has none.

    The first user is the lab's own and needs the role `superuser`.
    """

    users: tuple[LabUser, ...]
    roles_yml: str = ""

    def settings(self, config: Path) -> dict[str, str]:
        """The node settings that enable it, for a node with this configuration folder."""
        layers: dict[str, str] = {}
        for layer in ("http", "transport"):
            prefix = f"xpack.security.{layer}.ssl"
            layers |= {
                f"{prefix}.enabled": "true",
                f"{prefix}.key": str(config / "node.key"),
                f"{prefix}.certificate": str(config / "node.crt"),
                f"{prefix}.certificate_authorities": str(config / "ca.crt"),
            }
        return {
            "xpack.security.enabled": "true",
            "xpack.security.autoconfiguration.enabled": "false",
            "xpack.security.transport.ssl.verification_mode": "certificate",
            **layers,
        }


def write_security(
    security: Security,
    *,
    ca: Path,
    configs: Sequence[Path],
    names: Sequence[str] = ("localhost",),
    addresses: Sequence[str] = ("127.0.0.1",),
    key_usage: bool = True,
) -> None:
    """Make an authority and a node certificate, and write them and the users into each of the folders.

    `elasticsearch-certutil` made authorities without a key usage until 2025.
    """
    usage: list[tuple[x509.ExtensionType, bool]] = [(SIGNS, True)] if key_usage else []
    constraints = x509.BasicConstraints(ca=True, path_length=0 if key_usage else None)
    authority_key, authority = certificate("orchestrator lab authority", [(constraints, True), *usage])
    subjects = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectAlternativeName(subjects), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False),
    ]
    node_key, node = certificate("orchestrator lab node", extensions, (authority_key, authority))
    pem = serialization.Encoding.PEM
    ca.write_bytes(authority.public_bytes(pem))
    users = users_file(security.users)
    every_role = sorted({role for user in security.users for role in user.roles})
    members = [
        f"{role}:{','.join(user.name for user in security.users if role in user.roles)}\n"
        for role in every_role
    ]
    for config in configs:
        (config / "ca.crt").write_bytes(authority.public_bytes(pem))
        (config / "node.crt").write_bytes(node.public_bytes(pem))
        (config / "node.key").write_bytes(
            node_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        (config / "node.key").chmod(0o600)
        (config / "users").write_text(users, encoding="utf-8")
        (config / "users_roles").write_text("".join(members), encoding="utf-8")
        if security.roles_yml:
            (config / "roles.yml").write_text(security.roles_yml, encoding="utf-8")


def users_file(users: Sequence[LabUser]) -> str:
    """The content of the file realm's `users`; a node reads a changed file again within seconds."""
    return "".join(f"{user.name}:{_hashed(user.password)}\n" for user in users)


def _hashed(password: str) -> str:
    """A password as Elasticsearch's file realm takes it, with a hash that Python has itself."""
    salt = secrets.token_bytes(PBKDF2_BYTES)
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, PBKDF2_ROUNDS, PBKDF2_BYTES)
    return f"{{PBKDF2}}{PBKDF2_ROUNDS}${b64encode(salt).decode()}${b64encode(key).decode()}"


def certificate(
    common: str,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None = None,
    *,
    lifetime: dt.timedelta = LIFETIME,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key and its certificate; without an issuer it is signed by itself. Extensions: whether critical."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer[1].subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - abs(lifetime) - dt.timedelta(hours=1))  # clocks of a lab differ
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        built = built.add_extension(extension, critical=critical)
    return key, built.sign(issuer[0] if issuer else key, hashes.SHA256())
