"""The cluster file: the name of a cluster, how it is reached, and its machines; or hosts without one."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from orchestrator.config.cluster_parts import ClusterKeys
from orchestrator.config.faults import Faults, validate
from orchestrator.config.hosts import AUTO, FileKeys, NamedHostsSpec, SudoSpec
from orchestrator.config.kinds import files_of
from orchestrator.config.reaching import TlsSpec
from orchestrator.config.riak import RiakClusterSpec, RiakWords
from orchestrator.config.secrets import SecretReference, expand
from orchestrator.config.services import ONLY_TUNED, ServiceSpec, merge_service, settle_service
from orchestrator.config.spec import HOSTS, Name, Unset, plain_name
from orchestrator.config.which_file import FileKind, read_as
from orchestrator.config.yaml import Document, KeyPath
from orchestrator.errors import ConfigError, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.untrusted import UntrustedValue, shortened

_NO_CLUSTER: Final = "not for `kind: hosts`: there is no cluster to reach"
_NO_RESTART: Final = "not for `kind: hosts`, which nothing restarts"


class HostsFileSpec(FileKeys):
    """The cluster file of hosts without a cluster, for `tune`, `diagnose` and `validate`."""

    NODE: ClassVar[str] = "host of the file"
    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("endpoints", "auth", "tls", "product", "version"), _NO_CLUSTER),
        **dict.fromkeys(("playbook", "expect", "notify", "silence", "metrics", "annotations"), _NO_RESTART),
        "zone_attribute": "not for `kind: hosts`: its zones are the groups of `hosts.names`",
        "riak": "only for `kind: riak`",
    }

    kind: Literal["hosts"] = Field(description="Hosts without a cluster. Other commands refuse this file.")
    name: Annotated[Name, AfterValidator(plain_name)] = Field(
        description="Your own name for these hosts. The original values of tuned hosts are kept under it:"
        " another name for each file, and not that of a cluster."
    )
    tune: Unset[Name] = Field(
        default=None, description="Name or path of the tuning profile, of any kind. `--profile` overrides it."
    )
    hosts: NamedHostsSpec = Field(description="The hosts, and how they are reached.")

    def usual_service(self, node: str | None = None) -> ServiceSettings:
        """The service is only tuned."""
        del node
        return ONLY_TUNED

    def address_of(self, node: str) -> str | None:
        """The address of a host, without overrides."""
        names = self.hosts.names
        return (names[node].address or node) if node in names else None

    def names(self) -> list[str]:
        """The hosts."""
        return [*self.hosts.names]


_SUDO: Final[Mapping[bool | str, Sudo]] = {AUTO: Sudo.AUTO, True: Sudo.PASSWORDLESS, False: Sudo.OFF}


def _unresolved(reference: SecretReference) -> str:
    raise ConfigError(f"{reference.shown} is not resolved here")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsFile:
    """A cluster file of any kind that was read and checked, as far as it is about hosts."""

    path: Path  # as the user wrote it; relative paths in the file start at its folder
    spec: ClusterKeys | HostsFileSpec
    document: Document = field(repr=False)
    home: Path  # the folder for `~`
    # allowed but risky settings: passwords over plain HTTP, certificates not checked
    warnings: tuple[ConfigError, ...] = ()

    def local_path(self, written: str) -> Path:
        """A path of the file, as a path of this machine."""
        return expand(written, folder=self.path.parent, home=self.home)

    def keys_of(self, node: str) -> dict[str, Any]:
        """What the file says about one node's machine and its service, by key; None where it does not.

        Raises:
            ConfigError: overrides that match it contradict each other, or no address is known for it.
        """
        try:
            usual = self.spec.usual_service(node)
        except ValueError as error:  # of the section that has the commands of this kind
            raise self.document.error((self.document.content["kind"],), str(error)) from None
        try:
            keys = self.spec.keys_of(node, usual)
            keys["service"] = settle_service(keys["service"], usual)
        except UntrustedValue as error:
            message = f"node {shortened(node)}: {error}: name its address under `hosts.nodes`"
            raise self.document.error(("hosts", "overrides"), message) from None
        except ValueError as error:
            message = f"those that match node {node} do not fit together: {error}"
            raise self.document.error(("hosts", "overrides"), message) from None
        for key in ("identity", "known_hosts"):
            keys[key] = self.local_path(keys[key]) if keys[key] else None
        return keys

    def host(
        self, node: str, *, address: str = "", secret: Callable[[SecretReference], str] | None = None
    ) -> HostSettings:
        """The settings of one node's machine.

        Args:
            node: its name.
            address: that the cluster reports, for a node whose address the file does not have.
            secret: resolves the password of sudo when it is used; None where no command runs on the machine.

        Raises:
            ConfigError: overrides that match it contradict each other, or no address is known for it.
        """
        keys = self.keys_of(node)
        sudo, identity, known_hosts = keys["sudo"], keys["identity"], keys["known_hosts"]
        password = sudo.password if isinstance(sudo, SudoSpec) else None
        return HostSettings(
            node=NodeName(node),
            cluster=self.spec.name,
            address=keys["address"] or address,
            identities=(str(identity),) if identity else (),
            known_hosts=(str(known_hosts),) if known_hosts else (),
            sudo=_SUDO[sudo] if password is None else Sudo.PASSWORD,
            sudo_password=None if password is None else partial(secret or _unresolved, password),
            **{key: keys[key] for key in ("connect", "port", "user", "service", "data")},
        )

    def riak_words(self, node: str) -> RiakWords | None:
        """Riak's commands on a node's machine; None for another kind of cluster.

        Raises:
            ConfigError: the node's name cannot be used in them.
        """
        if not isinstance(self.spec, RiakClusterSpec):
            return None
        try:
            return self.spec.words(node)
        except ValueError as error:
            raise self.document.error(("riak",), str(error)) from None

    def named_nodes(self) -> Mapping[str, str]:
        """The nodes in the file, with their addresses; a cluster that cannot be reached may have others.

        An address is empty if only the cluster has it. A Riak node has its address in its name.
        """
        return {name: self.host(name).address for name in self.spec.names()}

    def secret_references(self) -> tuple[SecretReference, ...]:
        """Every secret that the file refers to, each once, for `validate`."""
        return tuple(dict.fromkeys((*self.spec.logins(), *self.sudo_passwords())))

    def private_key(self) -> Path | None:
        """The file with the private key of our own certificate; None without a certificate."""
        written = self._tls.client_key or self._tls.client_cert
        return self.local_path(written) if written else None

    @property
    def _tls(self) -> TlsSpec:
        """How certificates of the cluster are checked; without a cluster, nothing is named there."""
        return TlsSpec() if isinstance(self.spec, HostsFileSpec) else self.spec.tls

    def sudo_passwords(self) -> tuple[SecretReference, ...]:
        """The references to sudo passwords: they are used on the hosts, long after the command has begun."""
        sudoers = [self.spec.hosts.sudo, *(over.sudo for over in self.spec.hosts.overrides.values())]
        return tuple(dict.fromkeys(sudo.password for sudo in sudoers if isinstance(sudo, SudoSpec)))

    def overrides_without_node(self, nodes: Collection[str]) -> tuple[str, ...]:
        """Warnings about entries of `hosts` that match no node of the cluster: they may be misspelt."""
        return tuple(
            str(self.document.error(("hosts", *stranger), f"no {self.spec.NODE} is called so"))
            for stranger in self.spec.strangers(nodes)
        )

    def check_files(self) -> None:
        """Check that the certificates and keys that the file names can be used.

        Raises:
            ConfigError: one cannot be used; file, line and key are named.
        """
        faults = Faults(self.document)
        for key in ("ca", "client_cert", "client_key"):
            written = getattr(self._tls, key)
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
        tls = self._tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's authorities: they take long
        if tls.ca is not None:
            try:
                context.load_verify_locations(self.local_path(tls.ca))
            except ssl.SSLError:
                faults.add(("tls", "ca"), f"{self.local_path(tls.ca)} holds no certificate in PEM")
        if tls.client_cert is not None:
            certificate = self.local_path(tls.client_cert)
            key = self.local_path(tls.client_key) if tls.client_key else None
            try:
                context.load_cert_chain(certificate, key, password="")  # else it asks for a password
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile(HostsFile):
    """A cluster file of a cluster, which is restarted."""

    spec: ClusterKeys


def of_cluster(file: HostsFile) -> ClusterFile:
    """The file, if it is one of a cluster.

    Raises:
        UsageError: it names hosts without a cluster.
    """
    if isinstance(file, ClusterFile):
        return file
    raise UsageError(
        f"{file.path}: this file names hosts without a cluster (`kind: {HOSTS}`), for `tune`, `diagnose` and"
        " `validate`; this command needs the file of a cluster"
    )


def load_cluster(path: Path, *, home: Path) -> ClusterFile:
    """Read the file of a cluster.

    Raises:
        ConfigError: file, line and key of every fault.
        NotInThisVersion: it has a kind or a key of a later version.
        UsageError: it names hosts without a cluster.
    """
    return of_cluster(load_hosts(path, home=home))


def load_hosts(path: Path, *, home: Path) -> HostsFile:
    """Read a cluster file of any kind; raises as `load_cluster` does, but for its last case."""
    return check_hosts(read_as(FileKind.CLUSTER, path), path=path, home=home)


def check_cluster(document: Document, *, path: Path, home: Path) -> ClusterFile:
    """Check a document that was already read; raises as `load_cluster` does."""
    return of_cluster(check_hosts(document, path=path, home=home))


def check_hosts(document: Document, *, path: Path, home: Path) -> HostsFile:
    """Check a document that was already read; raises as `load_hosts` does."""
    kind = document.content.get("kind")
    if kind == HOSTS:
        named = validate(HostsFileSpec, document)
        _check_services(named, document)
        file = HostsFile(path=path, spec=named, document=document, home=home)
        _check_machines(file, named)
        return file
    spec = validate(files_of(document).cluster, document)
    _check_services(spec, document)
    return ClusterFile(path=path, spec=spec, document=document, home=home, warnings=_warnings(spec, document))


def _check_machines(file: HostsFile, spec: HostsFileSpec) -> None:
    """Refuse two names for one service of one machine: it would be tuned and reverted under both."""
    faults, first = Faults(file.document), dict[object, str]()
    for name in spec.hosts.names:
        host = file.host(name)
        unit = host.service.unit.replace("{node}", name)
        other = first.setdefault((host.connect, host.address, host.port, unit), name)
        if other != name and host.connect is not Connect.LOCAL:
            message = f"{host.address} is the machine of {other} too, and both have the same `service`"
            faults.add(("hosts", "names", name), f"{message}: name it once, or the service of each")
    faults.raise_any()


def _check_services(spec: FileKeys, document: Document) -> None:
    """Check each override alone against the general settings, for any node that it may match."""
    faults = Faults(document)
    usual = spec.usual_service()
    places: list[tuple[KeyPath, ServiceSpec]] = [(("hosts", "service"), spec.hosts.service)]
    places += [
        (
            ("hosts", "overrides", pattern, "service"),
            merge_service(spec.hosts.service, override.own_service, usual),
        )
        for pattern, override in spec.hosts.overrides.items()
        if override.own_service is not None
    ]
    for place, service in places:
        try:
            settle_service(service, usual)
        except ValueError as error:
            faults.add(place, str(error))
    faults.raise_any()


def _warnings(spec: ClusterKeys, document: Document) -> tuple[ConfigError, ...]:
    found: list[ConfigError] = []
    for index, endpoint in enumerate(spec.endpoints):
        if spec.logins() and endpoint.startswith("http://") and not _is_loopback(endpoint):
            message = "the credentials of `auth` go over plain HTTP, readable on the way; use https://"
            found.append(document.error(("endpoints", index), message))
    if not spec.tls.verify:
        message = "certificates are not checked, and any server is accepted; use `ca` or `fingerprint`"
        found.append(document.error(("tls", "verify"), message))
    if spec.tls.model_fields_set and not any(url.startswith("https://") for url in spec.endpoints):
        found.append(document.error(("tls",), "has no effect: no endpoint begins with https://"))
    return tuple(found)


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
