"""The way to a host: settings over the SSH client configuration over its defaults, jump hosts first.

Pure but for reading the configuration file: what would be connected to can be shown without connecting.
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import paramiko

from orchestrator.hosts.known_hosts import DEFAULT_PORT
from orchestrator.hosts.settings import HostSettings

DEFAULT_IDENTITIES: Final = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
DEFAULT_KNOWN_HOSTS: Final = (
    "~/.ssh/known_hosts",
    "~/.ssh/known_hosts2",
    "/etc/ssh/ssh_known_hosts",
    "/etc/ssh/ssh_known_hosts2",
)
MAX_JUMPS: Final = 8
"""More is a configuration that goes in circles."""


class RouteError(Exception):
    """The SSH configuration cannot be followed; the message says what in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One SSH server on the way, the target being the last.

    Attributes:
        alias: as the cluster file or the ProxyJump line calls it.
        host: what is connected to, from where the hop before stands.
        key_name: the name under which its key is known (HostKeyAlias, else `host`).
        identities: key files to try.
        identities_only: of an agent's keys, try only those that stand in `identities`.
        proxy_command: a ProxyCommand that carries the connection; None = a plain one.
    """

    alias: str
    host: str
    port: int
    user: str
    key_name: str
    identities: tuple[str, ...]
    identities_only: bool
    known_hosts: tuple[str, ...]
    use_agent: bool
    proxy_command: str | None = None

    def __str__(self) -> str:
        """`user@host:port`, for messages."""
        return f"{self.user}@{self.host}:{self.port}"


Route = tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What is said outside the SSH configuration of one hop, and beats it."""

    alias: str
    port: int | None = None
    user: str | None = None
    identities: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = field(default=())
    use_agent: bool = True


def read_config(path: str | None) -> paramiko.SSHConfig:
    """Read the SSH client configuration; an absent file is an empty one.

    Raises:
        RouteError: it cannot be read or parsed.
    """
    if path is None or not (file := Path(path).expanduser()).is_file():
        return paramiko.SSHConfig()
    try:
        return paramiko.SSHConfig.from_path(str(file))
    except (OSError, ValueError, paramiko.ConfigParseError) as error:
        raise RouteError(f"{file} cannot be read: {error}") from error


def find_route(settings: HostSettings, config: paramiko.SSHConfig) -> Route:
    """All hops to a host, in the order they are connected.

    Raises:
        RouteError: a ProxyJump cannot be parsed, or they go in circles.
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
    try:
        options = config.lookup(given.alias)
    except (paramiko.SSHException, ValueError) as error:
        raise RouteError(f"the SSH configuration of {given.alias} cannot be followed: {error}") from error
    hop = _hop(given, options)
    jumps = options.get("proxyjump")
    if jumps is None or jumps == "none":
        return (hop,)
    before: Route = ()
    for spec in jumps.split(","):
        jump = _jump(spec.strip(), given)
        # As in ssh: the first of a chain is reached by its own configuration, the others from the one before.
        before = (
            (*before, _hop(jump, config.lookup(jump.alias)))
            if before
            else _route(jump, config, depth=depth + 1)
        )
    return (*before, hop)


def _hop(given: _Given, options: paramiko.SSHConfigDict) -> Hop:
    host = str(options.get("hostname", given.alias))
    command = options.get("proxycommand")
    files = str(options.get("userknownhostsfile", "")).split()
    return Hop(
        alias=given.alias,
        host=host,
        port=given.port or int(str(options.get("port", DEFAULT_PORT))),
        user=given.user or str(options.get("user") or getpass.getuser()),
        key_name=str(options.get("hostkeyalias") or host),
        identities=(*given.identities, *options.get("identityfile", ())) or DEFAULT_IDENTITIES,
        identities_only=str(options.get("identitiesonly", "no")).lower() in ("yes", "true"),
        known_hosts=given.known_hosts or tuple(files) or DEFAULT_KNOWN_HOSTS,
        use_agent=given.use_agent,
        proxy_command=None if command in (None, "none") else str(command),
    )


def _jump(spec: str, target: _Given) -> _Given:
    """Read `[user@]host[:port]`; key files and known hosts of the cluster file serve the jump host too."""
    uri = spec.removeprefix("ssh://")
    user, _, rest = uri.rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if not host or (port and not port.isdigit()):
        raise RouteError(f"ProxyJump {spec!r} of {target.alias} is not [user@]host[:port]")
    return _Given(
        alias=host,
        port=int(port) if port else None,
        user=user or None,
        identities=target.identities,
        known_hosts=target.known_hosts,
        use_agent=target.use_agent,
    )
