"""How to reach one node's machine, and how to stop and start its service there.

Plain values without a source: the caller builds them from the cluster file. Nothing here is read from disk or
from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from orchestrator.errors import ConfigError
from orchestrator.model.action import ActionResult
from orchestrator.model.cluster import NodeName, require_address
from orchestrator.model.host import Connect, Manager
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Reading, Seconds
from orchestrator.untrusted import UntrustedValue, account, in_path, unit

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
Secret = Callable[[], str]
"""Returns a secret when it is needed, so that no settings object holds or prints it."""


class Sudo(Enum):
    """Whether root's work goes through sudo; `AUTO`: yes, unless the account on the host is root."""

    AUTO = "auto"
    OFF = "off"
    PASSWORDLESS = "passwordless"
    PASSWORD = "password"  # noqa: S105  (a mode, no secret)


class Wording(Protocol):
    """How to read the output of a node's own program, if its exit codes prove nothing.

    Every method gets a command line with `{node}` filled in and without sudo, its exit code, and its output.
    None: the text is not conclusive, and the exit code decides.
    """

    @property
    def running(self) -> str:
        """The whole line that a status command prints for a running service; plain for `grep -x -F`."""
        ...

    @property
    def stopped(self) -> str:
        """The text that a status command prints for a service that is down, for `grep -E`."""
        ...

    def decides(self, line: str) -> bool:
        """Whether the text of this line always shows how it ended, so that the exit code is not enough."""
        ...

    def state(self, line: str, exit_code: int, text: str) -> Reading[ServiceState] | None:
        """The state according to a status command; only RUNNING and STOPPED."""
        ...

    def stop(self, line: str, exit_code: int, text: str) -> ActionResult | None:
        """The result of a stop that ended."""
        ...

    def start(self, line: str, exit_code: int, text: str) -> ActionResult | None:
        """The result of a start that ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """Limits of everything that waits for a machine, in seconds."""

    connect: Seconds = 10.0  # the TCP connection, and the key exchange after it
    # the peer's first line; a host that swaps heavily accepts connections and sends nothing
    banner: Seconds = 10.0
    auth: Seconds = 15.0  # one way of authentication
    command: Seconds = 20.0  # one reading, or asking for a stop or a start
    keepalive: Seconds = 15.0  # between two signs of life on an idle connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The node's service. `{node}` is replaced by the node's name in every text."""

    manager: Manager = Manager.SYSTEMD
    # systemd unit, init script or container; empty for hosts that are only tuned, without a service
    unit: str = "elasticsearch"
    controlled: bool = True  # whether it may be stopped and started; otherwise only its limits are tuned
    # command line (`Manager.COMMAND` only), as are `start` and `status`, which exits 0 if it runs
    stop: str | None = None
    start: str | None = None
    status: str | None = None
    # whether `status` needs root's rights, so goes through sudo unless the account is root
    status_as_root: bool = False
    # how the texts of commands and init scripts are read; None if the exit code is enough
    wording: Wording | None = None
    # path of `systemctl`, `service` or `docker`, word for word as in the sudoers file; None = as found on the
    # host, see `hosts.contact`
    program: str | None = None
    # command line of a reboot, word for word as in the sudoers file; None = the same
    reboot: str | None = None
    # seconds that a container gets to end before Docker kills it (Docker's own default of 10 kills an
    # Elasticsearch that is still closing its shards)
    grace: Seconds = 600.0

    @property
    def is_named(self) -> bool:
        """Whether there is a service: hosts that are only tuned may have none."""
        return self.controlled or bool(self.unit)

    def __post_init__(self) -> None:
        """Refuse a command manager without its three lines."""
        if self.manager is Manager.COMMAND:
            for key, line in (("stop", self.stop), ("start", self.start), ("status", self.status)):
                if not line:
                    raise ConfigError(
                        "a command line is needed with `manager: command`", key=f"hosts.service.{key}"
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """One node's machine."""

    node: NodeName
    address: str  # host name, alias in the SSH configuration, or IP address; empty if unknown
    connect: Connect = Connect.SSH
    # None = as the SSH configuration says, else 22. `user` and `identities` likewise.
    port: int | None = None
    user: str | None = None
    identities: tuple[str, ...] = ()  # private key files; they come before those of the SSH configuration
    # files of host keys; empty = the user's and the system's, the same as `ssh` reads
    known_hosts: tuple[str, ...] = ()
    use_agent: bool = True  # whether the keys of a running agent are tried too
    # SSH client configurations, the first taking precedence; empty = read none
    ssh_config: tuple[str, ...] = ("~/.ssh/config", "/etc/ssh/ssh_config")
    sudo: Sudo = Sudo.OFF
    # gives the password when `sudo` is `Sudo.PASSWORD`
    sudo_password: Secret | None = field(default=None, repr=False, compare=False)
    service: ServiceSettings = field(default_factory=ServiceSettings)
    limits: HostLimits = field(default_factory=HostLimits)
    # variables added to the few that a command on this machine gets (`Connect.LOCAL` only)
    environment: Mapping[str, str] = field(default_factory=dict)
    # absolute data paths of the node; `{node}` is replaced by the node's name. Only the disks behind them are
    # tuned. None = as the cluster reports.
    data: tuple[str, ...] | None = None
    cluster: str = ""  # its name: nodes of several clusters can share a machine
    # a folder used in place of `/` on that machine; a prefix of every path that tuning reads or writes. Empty
    # everywhere except on file trees.
    root: str = ""

    def __post_init__(self) -> None:
        """Refuse an invalid host or user, a password mode without a password, and bad data paths."""
        try:
            require_address(self.node, self.address)
            if self.user is not None:
                account(self.user)
        except UntrustedValue as error:
            raise ConfigError(str(error), key="hosts") from error
        if self.sudo is Sudo.PASSWORD and self.sudo_password is None:
            raise ConfigError("sudo with a password needs a reference to the password", key="hosts.sudo")
        for path in self.data or ():
            if not path.startswith("/") or _CONTROL.search(path):
                raise ConfigError(f"a data path must be absolute and on one line: {path!r}", key="hosts.data")
        if self.root and not self.root.startswith("/"):
            raise ConfigError(
                f"the folder used in place of / must be absolute: {self.root!r}", key="hosts.root"
            )

    @property
    def unit(self) -> str:
        """The unit, init script or container of this node; raises `UntrustedValue` where it cannot be one."""
        return unit(self.service.unit.replace("{node}", self.node))

    @property
    def data_paths(self) -> tuple[str, ...]:
        """The data paths of this node; raises `UntrustedValue` where its name cannot be in them."""
        return paths_of(self.node, self.data or ())


def paths_of(node: NodeName, paths: Sequence[str]) -> tuple[str, ...]:
    """Paths with `{node}` replaced by the node's name.

    Raises:
        UntrustedValue: with this name, a path would lead elsewhere.
    """
    return tuple(path.replace("{node}", in_path(node)) if "{node}" in path else path for path in paths)
