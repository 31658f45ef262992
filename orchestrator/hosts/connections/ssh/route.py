"""The way to a host: settings, then the SSH client configuration, then its defaults; jump hosts first.

Pure: the route can be shown without connecting.
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Final

import paramiko

from orchestrator.hosts.connections.jump import MAX_JUMPS, split_jump
from orchestrator.hosts.connections.ssh.config_file import USE_OPENSSH, RouteError
from orchestrator.hosts.connections.ssh.keywords import Stage, Unfollowed, unfollowed
from orchestrator.hosts.connections.ssh.known_hosts import DEFAULT_PORT, host_names
from orchestrator.hosts.settings import HostSettings
from orchestrator.untrusted import UntrustedValue, account, address, shortened

DEFAULT_IDENTITIES: Final = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_USER_KNOWN_HOSTS: Final = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS: Final = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"


MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One SSH server on the way, the target being the last."""

    alias: str  # as the cluster file or the ProxyJump line calls it
    host: str  # the address to connect to, as seen from the hop before
    port: int
    user: str
    key_names: tuple[str, ...]  # the names of the host in known hosts files
    identities: tuple[str, ...]  # key files to try
    identities_only: bool  # of an agent's keys, try only those in `identities`
    known_hosts: tuple[str, ...]
    use_agent: bool
    proxy_command: str | None = None  # a ProxyCommand that carries the connection; None = a plain one
    host_key_algorithms: str = ""  # `HostKeyAlgorithms`; empty = all
    least_rsa_bits: int = 0  # of an RSA key that the host shows
    unfollowed: Unfollowed = ()  # lines of the SSH configuration to report where their stage fails

    def __post_init__(self) -> None:
        """Refuse an invalid host or user, such as a HostName of the SSH configuration."""
        address(self.host)
        account(self.user)

    def __str__(self) -> str:
        """`user@host:port`, for messages."""
        return f"{self.user}@{self.host}:{self.port}"


Route = tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """Values of one hop from outside the SSH configuration; they take precedence over it."""

    alias: str
    port: int | None = None
    user: str | None = None
    identities: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    use_agent: bool = True


def find_route(settings: HostSettings, config: paramiko.SSHConfig) -> Route:
    """All hops to a host, in the order in which they are connected.

    Raises:
        RouteError: a ProxyJump cannot be parsed, the hops form a cycle, or a host or user on the way is none.
    """
    given = _Given(
        alias=settings.address,
        port=settings.port,
        user=settings.user,
        identities=settings.identities,
        known_hosts=settings.known_hosts,
        use_agent=settings.use_agent,
    )
    return _route(given, config, depth=0)


def _route(given: _Given, config: paramiko.SSHConfig, *, depth: int) -> Route:
    if depth > MAX_JUMPS:
        raise RouteError(
            f"more than {MAX_JUMPS} jump hosts on the way by {given.alias}: does ProxyJump go in circles?"
        )
    options = _lookup(given.alias, config)
    hop = _hop(given, options)
    jumps = options.get("proxyjump")
    if jumps is None or jumps.lower() == "none" or hop.proxy_command is not None:
        return (hop,)
    before: Route = ()
    for spec in jumps.split(","):
        jump = _jump(spec.strip(), given)
        # As in ssh: the first of a chain is reached by its own configuration, each other one from its
        # predecessor.
        before = (
            (*before, _hop(jump, _lookup(jump.alias, config)))
            if before
            else _route(jump, config, depth=depth + 1)
        )
    return (*before, hop)


def _lookup(alias: str, config: paramiko.SSHConfig) -> paramiko.SSHConfigDict:
    try:
        return config.lookup(alias)
    except (paramiko.SSHException, ValueError, LookupError, OSError) as error:
        raise _not_followed(alias, error) from error


def _not_followed(alias: str, error: Exception) -> RouteError:
    return RouteError(f"the SSH configuration of {alias} cannot be followed: {error}")


def _port(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_PORT):
        raise RouteError(f"{what} must be a port from 1 to {MAX_PORT}: correct it in the SSH configuration")
    return int(text)


def _hop(given: _Given, options: paramiko.SSHConfigDict) -> Hop:
    lines = unfollowed(options, own_known_hosts=bool(given.known_hosts))
    refused = [line for stage, line in lines if stage is Stage.BEFORE]
    if refused:
        raise RouteError(
            f"the SSH configuration of {given.alias} has `{'` and `'.join(refused)}`, which this program does"
            f" not follow; {USE_OPENSSH}"
        )
    host = str(options.get("hostname", given.alias))
    # As in ssh, the first of the two counts, also where it is `none`.
    proxy = next((key for key in options if key in ("proxycommand", "proxyjump")), "")
    command = options["proxycommand"] if proxy == "proxycommand" else None
    said = str(options.get("port", DEFAULT_PORT))
    port = given.port or _port(said, f"`Port {said}` of {given.alias}")
    files = (
        str(options.get("userknownhostsfile", _USER_KNOWN_HOSTS)),
        str(options.get("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS)),
    )
    try:
        return Hop(
            alias=given.alias,
            host=host,
            port=port,
            user=given.user or str(options.get("user") or _own_name()),
            key_names=host_names(host, port, options.get("hostkeyalias")),
            identities=(*given.identities, *options.get("identityfile", ())) or DEFAULT_IDENTITIES,
            identities_only=str(options.get("identitiesonly", "no")).lower() in ("yes", "true"),
            known_hosts=given.known_hosts or tuple(" ".join(files).split()),
            use_agent=given.use_agent and str(options.get("identityagent", "")).lower() != "none",
            proxy_command=None if command is None else str(command),
            host_key_algorithms=str(options.get("hostkeyalgorithms", "")),
            least_rsa_bits=_bits(options),
            unfollowed=tuple((stage, line) for stage, line in lines if stage is not Stage.BEFORE),
        )
    except UntrustedValue as error:
        raise _not_followed(given.alias, error) from error


def _bits(options: paramiko.SSHConfigDict) -> int:
    said = str(options.get("requiredrsasize", options.get("rsaminsize", 0)))
    if not (said.isascii() and said.isdigit()):
        raise RouteError(f"`RequiredRSASize {said}` is no number: correct it in the SSH configuration")
    return int(said)


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (LookupError, OSError) as error:  # as in a container that runs under a number
        raise RouteError(f"this process's user has no name ({error}): set `hosts.user`") from error


def _jump(spec: str, target: _Given) -> _Given:
    """Read `[user@]host[:port]`; the cluster file's key files and known hosts apply to the jump host too."""
    try:
        user, host, port = split_jump(spec)
    except UntrustedValue as error:
        said = f"ProxyJump {shortened(spec)} of {target.alias} is not [user@]host[:port]"
        raise RouteError(f"{said}: {error}") from error
    return _Given(
        alias=host,
        port=_port(port, f"the port in ProxyJump {spec!r} of {target.alias}") if port else None,
        user=user or None,
        identities=target.identities,
        known_hosts=target.known_hosts,
        use_agent=target.use_agent,
    )
