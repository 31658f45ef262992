"""The cluster file: what a cluster is called, how it is reached, and on which machines it runs."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, WithJsonSchema, model_validator

from orchestrator.config.faults import Faults, validate
from orchestrator.config.hosts import (
    HostSettings,
    HostsSpec,
    ServiceSpec,
    merge_service,
    settings_of,
    settle_service,
    without_node,
)
from orchestrator.config.secrets import SecretReference, expand
from orchestrator.config.spec import (
    NOT_EMPTY,
    Later,
    Name,
    Positive,
    Reference,
    Spec,
    Unset,
    later_choices,
    matching,
)
from orchestrator.config.yaml import Document, KeyPath, read
from orchestrator.errors import ConfigError
from orchestrator.model.policy import Kind

DEFAULT_PLAYBOOK: Final = "elasticsearch-rolling-restart"


def check_endpoint(url: str) -> str:
    """Check the address of a node's HTTP port.

    Raises:
        ValueError: it is none; the value, which may hold a password, is not repeated.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as https://es1:9200") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password; `auth` is for them, by reference")
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must begin with http:// or https://")
    if not host or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError("must be a URL such as https://es1:9200")
    if port is None or port == 0:
        raise ValueError(
            "must name the port, such as https://es1:9200: neither 443 nor 9200 is taken for granted"
        )
    if parts.query or parts.fragment:
        raise ValueError("must end with the port or a path; a query or a fragment has no meaning here")
    return url.rstrip("/")


ClusterKind = Annotated[Kind, later_choices("riak")]
Endpoint = Annotated[
    str,
    AfterValidator(check_endpoint),
    WithJsonSchema({"type": "string", "pattern": "^https?://", "title": "URL"}),
]


class BasicSpec(Spec):
    """User and password."""

    BESIDE_SECRETS: ClassVar[bool] = True

    username: Name = Field(description="The user's name.")
    password: Reference = Field(description="The password, by reference.")


class AuthSpec(Spec):
    """How to log in to the cluster: one of the two."""

    BESIDE_SECRETS: ClassVar[bool] = True

    api_key: Unset[Reference] = Field(
        default=None, description="The encoded form (`id:key` in base 64), by reference. Elasticsearch only."
    )
    basic: Unset[BasicSpec] = Field(default=None, description="User and password.")

    @model_validator(mode="after")
    def _one_of_them(self) -> AuthSpec:
        if (self.api_key is None) == (self.basic is None):
            raise ValueError("needs either `api_key` or `basic`")
        return self


class TlsSpec(Spec):
    """How the cluster's certificates are checked. Relative paths start at the cluster file's folder."""

    ca: Unset[Name] = Field(
        default=None, description="Certificates that are trusted; the system's otherwise."
    )
    verify: StrictBool = Field(default=True, description="Whether certificates are checked at all.")
    client_cert: Unset[Name] = Field(default=None, description="Our own certificate.")
    client_key: Unset[Name] = Field(default=None, description="Its key, unless `client_cert` holds it too.")
    fingerprint: Unset[
        Annotated[
            str, matching(r"([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}", "must be 64 hexadecimal digits (SHA-256)")
        ]
    ] = Field(
        default=None,
        description="SHA-256 of the certificate that is trusted, in hexadecimal, with or without colons.",
    )

    @model_validator(mode="after")
    def _key_has_certificate(self) -> TlsSpec:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("`client_key` needs `client_cert`")
        return self


class ExpectSpec(Spec):
    """What the cluster must look like at the start."""

    nodes: Unset[Positive] = Field(default=None, description="Nodes; fewer at the start is a hold.")


class ClusterSpec(Spec):
    """A cluster file."""

    kind: ClusterKind = Field(description="Kind of cluster. OpenSearch is `elasticsearch` too.")
    name: Name = Field(description="What the cluster calls itself (`cluster.name`); another one is refused.")
    endpoints: Annotated[tuple[Endpoint, ...], NOT_EMPTY] = Field(
        description="HTTP addresses of some nodes, with their ports; more than one, so that each may go down."
    )
    auth: Unset[AuthSpec] = Field(
        default=None, description="How to log in; nothing on a cluster without security."
    )
    tls: TlsSpec = Field(default_factory=TlsSpec, description="How certificates are checked.")
    zone_attribute: Unset[Name] = Field(
        default=None,
        description="Node attribute that names the zone; the cluster's own awareness attribute otherwise.",
    )
    playbook: Name = Field(
        default=DEFAULT_PLAYBOOK, description="Name or path of the playbook; `--playbook` wins."
    )
    expect: ExpectSpec = Field(default_factory=ExpectSpec, description="What must be there at the start.")
    hosts: HostsSpec = Field(default_factory=HostsSpec, description="How the nodes' machines are reached.")
    riak: Later = Field(default=None, description="Commands of a Riak cluster.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """A cluster file that was read and checked.

    Attributes:
        path: as the user knows it; relative paths in the file start at its folder.
        home: what `~` stands for.
        warnings: what is allowed and should be known: passwords over plain HTTP, certificates not checked.
    """

    path: Path
    spec: ClusterSpec
    document: Document = field(repr=False)
    home: Path
    warnings: tuple[str, ...] = ()

    def local_path(self, written: str) -> Path:
        """A path of the file, as a path of this machine."""
        return expand(written, folder=self.path.parent, home=self.home)

    def host(self, node: str) -> HostSettings:
        """What holds for one node's machine.

        Raises:
            ConfigError: overrides that match it contradict each other.
        """
        try:
            return settings_of(node, self.spec.hosts, folder=self.path.parent, home=self.home)
        except ValueError as error:
            message = f"those that match node {node} do not fit together: {error}"
            raise self.document.error(("hosts", "overrides"), message) from None

    def secret_references(self) -> tuple[SecretReference, ...]:
        """Every secret that the file refers to, each once, for `validate`."""
        found: list[SecretReference] = []
        auth = self.spec.auth
        if auth is not None:
            found += [auth.api_key] if auth.api_key else []
            found += [auth.basic.password] if auth.basic else []
        sudoers = [self.spec.hosts.sudo, *(over.sudo for over in self.spec.hosts.overrides.values())]
        found += [sudo.password for sudo in sudoers if sudo is not None and not isinstance(sudo, bool)]
        return tuple(dict.fromkeys(found))

    def overrides_without_node(self, nodes: Collection[str]) -> tuple[str, ...]:
        """Warnings of overrides that match none of the cluster's nodes: they may be meant for one of them."""
        return tuple(
            str(self.document.error(("hosts", "overrides", pattern), "no node of the cluster is called so"))
            for pattern in without_node(self.spec.hosts.overrides, nodes)
        )

    def check_files(self) -> None:
        """Check that the certificates and keys that the file names can be used.

        Raises:
            ConfigError: one cannot; file, line and key are named.
        """
        faults = Faults(self.document)
        for key in ("ca", "client_cert", "client_key"):
            written = getattr(self.spec.tls, key)
            if written is not None:
                self._check_file(faults, ("tls", key), written)
        if self.spec.hosts.identity is not None:
            self._check_file(faults, ("hosts", "identity"), self.spec.hosts.identity)
        for pattern, override in self.spec.hosts.overrides.items():
            if override.identity is not None:
                self._check_file(faults, ("hosts", "overrides", pattern, "identity"), override.identity)
        faults.raise_any()
        self._check_certificates(faults)
        faults.raise_any()

    def _check_certificates(self, faults: Faults) -> None:
        tls = self.spec.tls
        context = ssl.create_default_context()
        if tls.ca is not None:
            try:
                context.load_verify_locations(self.local_path(tls.ca))
            except ssl.SSLError:
                faults.add(("tls", "ca"), f"{self.local_path(tls.ca)} holds no certificate in PEM")
        if tls.client_cert is not None:
            certificate = self.local_path(tls.client_cert)
            key = self.local_path(tls.client_key) if tls.client_key else None
            try:
                context.load_cert_chain(certificate, key, password="")  # else a locked key is asked for
            except ssl.SSLError:
                message = "cannot be used; it and its key must fit and be PEM, the key without a passphrase"
                faults.add(("tls", "client_cert"), f"{certificate} {message}")

    def _check_file(self, faults: Faults, key: tuple[str, ...], written: str) -> None:
        path = self.local_path(written)
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            faults.add(key, f"{path} cannot be read: {error.strerror or type(error).__name__}")


def load_cluster(path: Path, *, home: Path) -> ClusterFile:
    """Read a cluster file.

    Raises:
        ConfigError: file, line and key of every fault.
        NotInThisVersion: it is of a kind that a later version brings, or uses a key of one.
    """
    return check_cluster(read(path), path=path, home=home)


def check_cluster(document: Document, *, path: Path, home: Path) -> ClusterFile:
    """Check a document that was read already; raises as `load_cluster` does."""
    if document.content.get("kind") == "riak":
        # Every other key may have another meaning there: say the one thing that matters.
        validate(_KindOnly, Document(file=document.file, content={"kind": "riak"}, lines=document.lines))
    spec = validate(ClusterSpec, document)
    _check_services(spec, document)
    return ClusterFile(path=path, spec=spec, document=document, home=home, warnings=_warnings(spec, document))


class _KindOnly(Spec):
    kind: ClusterKind


def _check_services(spec: ClusterSpec, document: Document) -> None:
    """Each override must make sense over the rest by itself, whichever nodes it will match."""
    faults = Faults(document)
    places: list[tuple[KeyPath, ServiceSpec]] = [(("hosts", "service"), spec.hosts.service)]
    places += [
        (("hosts", "overrides", pattern, "service"), merge_service(spec.hosts.service, override.service))
        for pattern, override in spec.hosts.overrides.items()
        if override.service is not None
    ]
    for place, service in places:
        try:
            settle_service(service)
        except ValueError as error:
            faults.add(place, str(error))
    faults.raise_any()


def _warnings(spec: ClusterSpec, document: Document) -> tuple[str, ...]:
    found: list[ConfigError] = []
    for index, endpoint in enumerate(spec.endpoints):
        if spec.auth is not None and endpoint.startswith("http://") and not _is_loopback(endpoint):
            message = "the credentials of `auth` go over plain HTTP, readable on the way; use https://"
            found.append(document.error(("endpoints", index), message))
    if not spec.tls.verify:
        message = "certificates are not checked: whoever answers is believed; use `ca` or `fingerprint`"
        found.append(document.error(("tls", "verify"), message))
    if spec.tls.model_fields_set and not any(url.startswith("https://") for url in spec.endpoints):
        found.append(document.error(("tls",), "has no effect: no endpoint begins with https://"))
    return tuple(str(error) for error in found)


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
