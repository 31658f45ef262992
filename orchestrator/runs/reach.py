"""How the cluster and the hosts of a cluster file are reached, and the commands that run on them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from orchestrator.config.cluster import ClusterFile, HostsFile
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.config.hosts import SudoSpec
from orchestrator.config.secrets import Scheme, SecretReference, SecretResolver, Source
from orchestrator.daemons import in_parallel
from orchestrator.elasticsearch.access import Access
from orchestrator.hosts.changes import changes_script, read_changes
from orchestrator.hosts.connection import KEPT_BYTES, CommandResult, Lost, Unreachable
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.script import TIMEOUT_EXIT
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.policy import HostChanges
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.riak.admin import AdminCommand
from orchestrator.riak.output import CommandOutput
from orchestrator.riak.wording import RiakWording
from orchestrator.runs.comparison import leaves
from orchestrator.runtime.gates import Ran
from orchestrator.untrusted import UntrustedValue


def access_of(file: ClusterFile, spec: ClusterSpec, resolver: SecretResolver) -> Access:
    """How the cluster of a file is reached; raises ConfigError where a file or a secret is missing."""
    file.check_files()
    tls = spec.tls
    access = Access(
        endpoints=tuple(spec.endpoints),
        ca=str(file.local_path(tls.ca)) if tls.ca else None,
        verify=tls.verify,
        strict=tls.strict,
        client_cert=str(file.local_path(tls.client_cert)) if tls.client_cert else None,
        client_key=str(file.local_path(tls.client_key)) if tls.client_key else None,
        fingerprint=tls.fingerprint,
        product=spec.product,
        version=spec.version,
    )
    secret = _secret_of(spec)
    if secret is None:
        return access
    value = resolver.resolve(secret, header=_is_header(spec)).reveal()
    access = replace(access, source=secret.shown, fixed=secret.scheme is Scheme.ENV)
    basic = spec.auth.basic if spec.auth is not None else None
    if basic is None:
        return replace(access, api_key=value)
    return replace(access, username=basic.username, password=value)


def _secret_of(spec: ClusterSpec) -> SecretReference | None:
    return next(iter(spec.logins()), None)


def _is_header(spec: ClusterSpec) -> bool:
    """An API key is sent as it is."""
    return spec.auth is not None and spec.auth.api_key is not None


def renewal_of(spec: ClusterSpec, resolver: SecretResolver) -> Source | None:
    """Where a new secret comes from in a running program; None if the secret cannot change."""
    secret = _secret_of(spec)
    if secret is None or secret.scheme is Scheme.ENV:
        return None
    return Source(resolver, secret, header=_is_header(spec))


_ELSEWHERE: Final = frozenset({"kind", "name", "playbook", "expect", "zone_attribute", "hosts"})
"""Keys of a cluster file that are in the policy, or resolved for each node."""
_KEPT_OF_RIAK: Final = 1_000_000
"""Bytes of an output: a line for every partition of the largest rings."""

_KEPT_OF_A_GATE: Final = 4096
"""Bytes of a command's output: one line of it is shown."""
_CHANGES_SECONDS: Final = 60.0
"""`needs-restarting` reads the database of packages."""


def host_settings(
    file: HostsFile, addresses: Mapping[NodeName, str], resolver: SecretResolver
) -> dict[NodeName, HostSettings]:
    """The settings of each node's machine.

    Args:
        file: the cluster file.
        addresses: transport publish addresses, for nodes whose address the file does not name.
        resolver: where the sudo password comes from; it is resolved when it is used.

    Raises:
        ConfigError: overrides that match a node contradict each other, or two nodes are one service.
    """
    hosts = {name: _one(file, name, at, resolver) for name, at in sorted(addresses.items())}
    _require_own_services(file, hosts, addresses)
    return hosts


def _require_own_services(
    file: HostsFile, hosts: Mapping[NodeName, HostSettings], addresses: Mapping[NodeName, str]
) -> None:
    """Refuse an address that is another node's: a stop would stop that node, checked for this one.

    Nodes that publish one address may share a machine. A command of the file may tell nodes apart itself.
    """
    nodes: dict[object, NodeName] = {}
    for name, host in hosts.items():
        if host.connect is not Connect.SSH or host.service.manager is Manager.COMMAND:
            continue
        service = replace(host.service, unit=host.service.unit.replace("{node}", name))
        other = nodes.setdefault((host.address, host.port, service), name)
        if addresses[other] == addresses[name]:
            continue
        wrong, right = (name, other) if host.address != addresses[name] else (other, name)
        message = (
            f"{host.address} is the machine of {right} too, with the same service: a stop of {wrong} would"
            f" stop {right}; {wrong} publishes {addresses[wrong]}, so correct its address"
        )
        raise file.document.error(("hosts", "overrides"), message)


def access_to(file: ClusterFile, nodes: Iterable[NodeName]) -> dict[str, str]:
    """All that the file says about how the cluster and the machines of these nodes are reached, by key.

    Raises:
        ConfigError: overrides that match a node contradict each other.
    """
    names = sorted(nodes)
    general = {key: value for key, value in file.spec if key not in _ELSEWHERE}
    hosts = {name: _recorded(file.keys_of(name)) for name in names}
    return leaves({**general, "hosts": hosts, "commands": {name: file.riak_words(name) for name in names}})


def _recorded(keys: Mapping[str, Any]) -> dict[str, object]:
    """The keys in the form of saved plans, which are compared with these when they are applied."""
    sudo, service = keys["sudo"], keys["service"]
    password = sudo.password if isinstance(sudo, SudoSpec) else None
    recorded = ("connect", "address", "user", "port", "identity", "known_hosts")
    return {
        **{key: keys[key] for key in recorded},
        "sudo": sudo if password is None else True,
        "sudo_password": password,
        "service": {
            "manager": service.manager,
            "unit": service.unit or None,
            **{key: getattr(service, key) for key in ("stop", "start", "status", "status_as_root")},
        },
        "data": keys["data"],
    }


def _one(file: HostsFile, name: NodeName, address: str, resolver: SecretResolver) -> HostSettings:
    host = file.host(name, address=address, secret=lambda at: resolver.resolve(at).reveal())
    riak = file.riak_words(name)
    if riak is None:
        return host
    return replace(host, service=replace(host.service, wording=RiakWording(program=riak.command)))


def run_here(command: str, timeout: Seconds) -> Reading[Ran]:
    """Run a gate's command on this machine, as hooks with `local: true` are run."""
    done = LocalConnection().run(command, timeout=timeout, keep=_KEPT_OF_A_GATE)
    if isinstance(done, CommandResult):
        return Ran(exit=done.exit, output=f"{done.stdout}\n{done.stderr}")
    return Unknown(reason=done.reason)


def run_with_input(command: str, given: str, timeout: Seconds) -> str | None:
    """Run the command of a run's hook here, with this text on its standard input; why it failed, or None."""
    done = LocalConnection().run(command, timeout=timeout, stdin=given, keep=_KEPT_OF_A_GATE)
    if not isinstance(done, CommandResult):
        return done.reason
    said = f"{done.stdout} {done.stderr}".strip()
    return f"exit code {done.exit}: {said}" if done.exit else None


def host_changes(
    hosts: Hosts, nodes: Iterable[NodeName], files: Sequence[str], *, reboot: bool
) -> Mapping[NodeName, Reading[HostChanges]]:
    """Read what has changed on the hosts of these nodes, in parallel; without sudo."""

    def read(node: NodeName) -> Reading[HostChanges]:
        try:
            line = changes_script(node, files, reboot=reboot)
        except UntrustedValue as error:
            return Unknown(reason=f"{error}: write `config_files` of the playbook without `{{node}}`")
        match hosts.run(node, line, as_root=False, timeout=_CHANGES_SECONDS, keep=KEPT_BYTES):
            case CommandResult(stdout=output):
                return read_changes(output, node, files, reboot=reboot)
            case Lost(reason=reason) | Unreachable(reason=reason):
                return Unknown(reason=reason)

    late = Unknown(reason=f"it was not read within {_CHANGES_SECONDS:.0f} s")
    found = in_parallel({node: partial(read, node) for node in nodes}, timeout=2 * _CHANGES_SECONDS)
    return {node: found.get(node, late) for node in nodes}


class HostRunner:
    """`Runner` over the hosts of a cluster.

    Args:
        hosts: the hosts, with this node among them.
    """

    def __init__(self, hosts: Callable[[NodeName], Hosts]) -> None:
        self._hosts = hosts

    def run(self, node: NodeName, command: AdminCommand) -> CommandOutput | Unknown:
        """Run it; an output without an exit code was cut off."""
        line = shlex.join(command.argv)
        hosts = self._hosts(node)
        done = hosts.run(node, line, as_root=command.as_root, timeout=command.timeout, keep=_KEPT_OF_RIAK)
        match done:
            case CommandResult(exit=code, truncated=cut):
                ended = code != TIMEOUT_EXIT and not cut
                return CommandOutput(exit=code if ended else None, stdout=done.stdout, stderr=done.stderr)
            case Lost(output=output):
                return CommandOutput(exit=None, stdout=output)
            case Unreachable(reason=reason):
                return Unknown(reason=f"{line}: {reason}")
