"""The `hosts` section of a cluster file: how the machine of each node is reached and its service is run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Discriminator, Field, StrictBool, Tag

from orchestrator.config.secrets import SecretReference, expand
from orchestrator.config.spec import (
    MAPPING,
    SCALAR,
    Later,
    Name,
    Reference,
    Spec,
    Unset,
    matching,
    shape,
)
from orchestrator.model.policy import Together

DEFAULT_UNIT: Final = "elasticsearch"
"""What the packages of Elastic call unit, init script and, by custom, container."""

PORT: Final = Field(ge=1, le=65535, strict=True)

Unit = Annotated[
    str,
    matching(
        r"[A-Za-z0-9_{][A-Za-z0-9_.@:{}\\-]{0,200}",
        "must be the name of a unit, script or container: letters, digits, any of . _ @ : - \\, and {node}",
    ),
]
DataPath = Annotated[
    str,
    matching(
        r"/(?:[^{}\x00-\x1f\x7f]|\{node\}){0,1000}",
        "must be an absolute path on one line; `{node}` is the only placeholder",
    ),
]
User = Annotated[str, matching(r"[^\s-]\S{0,255}", "must be a user's name, without blanks or a leading dash")]
Address = Annotated[str, matching(r"[^\s/@-][^\s/@]{0,255}", "must be a host name or an IP address, alone")]


class Connect(Enum):
    """How commands reach a node's machine."""

    SSH = "ssh"
    LOCAL = "local"


class Manager(Enum):
    """What runs a node's process."""

    SYSTEMD = "systemd"
    SYSV = "sysv"
    DOCKER = "docker"
    COMMAND = "command"


class ServiceSpec(Spec):
    """What runs the node's process, and under which name."""

    manager: Unset[Manager] = Field(
        default=None, description="What runs the process; `systemd` if nothing is said.", examples=["systemd"]
    )
    unit: Unset[Unit] = Field(
        default=None,
        description="Unit, init script or container; may hold `{node}`, the node's name. `elasticsearch` if"
        " nothing is said. Not for `manager: command`.",
        examples=["elasticsearch"],
    )
    stop: Unset[Name] = Field(
        default=None, description="Only for `manager: command`: the command line that stops `{node}`."
    )
    start: Unset[Name] = Field(
        default=None, description="Only for `manager: command`: the command line that starts `{node}`."
    )
    status: Unset[Name] = Field(
        default=None,
        description="Only for `manager: command`: exits 0 when `{node}` runs, and other than 0 when not.",
    )


class SudoSpec(Spec):
    """Sudo with a password."""

    BESIDE_SECRETS: ClassVar[bool] = True

    password: Reference = Field(description="The SSH user's password for sudo, by reference.")


Sudo = Annotated[Annotated[StrictBool, Tag(SCALAR)] | Annotated[SudoSpec, Tag(MAPPING)], Discriminator(shape)]


class HostKeys(Spec):
    """Keys that `hosts` and each of its `overrides` share."""

    connect: Unset[Connect] = None
    user: Unset[User] = Field(
        default=None, description="SSH user; `~/.ssh/config` or the user of this process if nothing is said."
    )
    port: Unset[Annotated[int, PORT]] = Field(
        default=None, description="SSH port; `~/.ssh/config` or 22 if nothing is said.", examples=[22]
    )
    identity: Unset[Name] = Field(
        default=None,
        description="Private key. The agent's keys and those of `~/.ssh/config` are tried too.",
        examples=["~/.ssh/id_ed25519"],
    )
    known_hosts: Unset[Name] = None
    sudo: Unset[Sudo] = None
    service: Unset[ServiceSpec] = None
    data: Unset[tuple[DataPath, ...]] = Field(
        default=None,
        description="The nodes' data paths, as Elasticsearch's `path.data` has them; may hold `{node}`, the"
        " node's name. Tuning sets the disks behind them and no other; without them it leaves all alone.",
        examples=[["/var/lib/elasticsearch"]],
    )


class OverrideSpec(HostKeys):
    """What is different for the nodes that a name or a glob matches."""

    address: Unset[Address] = Field(
        default=None,
        description="Where the machine is reached; the node's transport publish address otherwise.",
    )
    connect: Unset[Connect] = Field(default=None, description="As in `hosts`.")
    known_hosts: Unset[Name] = Field(default=None, description="As in `hosts`.")
    sudo: Unset[Sudo] = Field(default=None, description="As in `hosts`.")
    service: Unset[ServiceSpec] = Field(
        default=None,
        description="Laid over that of `hosts` key by key; replaces it when it names another manager.",
    )
    data: Unset[tuple[DataPath, ...]] = Field(default=None, description="Replaces that of `hosts`.")


class HostsSpec(HostKeys):
    """How the nodes' machines are reached."""

    connect: Connect = Field(default=Connect.SSH, description="Over SSH, or as commands on this machine.")
    known_hosts: Name = Field(
        default="~/.ssh/known_hosts",
        description=(
            "Host keys; an unknown or changed one is refused, always. Left out: the files that ssh reads."
        ),
    )
    sudo: Sudo = Field(
        default=True,
        description="Whether root's work goes through `sudo -n`; `{password: REFERENCE}` where sudo asks.",
    )
    service: ServiceSpec = Field(default_factory=ServiceSpec, description="What runs the node's process.")
    together: Together = Field(
        default=Together.REBOOT,
        description="When nodes that share a machine go down in one wave: `always`, only on `--reboot`, or"
        " `never`; then `--reboot` holds where nodes share a machine. A machine is never split; one whose"
        " nodes the rules do not let go together holds the run.",
    )
    overrides: dict[str, OverrideSpec] = Field(
        default_factory=dict,
        description="By node name or glob: any other key of `hosts`, and `address`. All that match count,"
        " globs in the order of the file, then the exact name; what comes later wins.",
    )
    nodes: Later = Field(default=None, description="Nodes of a Riak cluster by host.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What runs one node's process.

    Attributes:
        unit: unit, script or container, in which `{node}` stands for the node's name; None for commands.
        stop: command line with `{node}`; None unless the manager is `command`. So are `start` and `status`.
    """

    manager: Manager
    unit: str | None = None
    stop: str | None = None
    start: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Everything that the file says about one node's machine.

    Attributes:
        address: None: the node's transport publish address.
        user: None: what `~/.ssh/config` or the process says. So are `port` and `identity`.
        sudo_password: None: sudo asks for none, or is not used.
        data: absolute data paths, in which `{node}` stands for the node's name.
    """

    connect: Connect
    address: str | None
    user: str | None
    port: int | None
    identity: Path | None
    known_hosts: Path
    sudo: bool
    sudo_password: SecretReference | None
    service: ServiceSettings
    data: tuple[str, ...] = ()


def settings_of(node: str, hosts: HostsSpec, *, folder: Path, home: Path) -> HostSettings:
    """What holds for one node, its overrides laid over the rest.

    Raises:
        ValueError: the overrides that match contradict each other in `service`.
    """
    keys: HostKeys = hosts
    address: str | None = None
    for override in _matching(node, hosts.overrides):
        address = override.address or address
        keys = _laid_over(keys, override)
    known_hosts = keys.known_hosts or hosts.known_hosts
    sudo = hosts.sudo if keys.sudo is None else keys.sudo
    return HostSettings(
        connect=keys.connect or hosts.connect,
        address=address,
        user=keys.user,
        port=keys.port,
        identity=expand(keys.identity, folder=folder, home=home) if keys.identity else None,
        known_hosts=expand(known_hosts, folder=folder, home=home),
        sudo=sudo is not False,
        sudo_password=sudo.password if isinstance(sudo, SudoSpec) else None,
        service=settle_service(keys.service or hosts.service),
        data=keys.data or (),
    )


def without_node(overrides: Mapping[str, OverrideSpec], nodes: Collection[str]) -> list[str]:
    """Names and globs that none of these nodes has."""
    return [pattern for pattern in overrides if not any(_matches(node, pattern) for node in nodes)]


def _matches(node: str, pattern: str) -> bool:
    return node == pattern or fnmatchcase(node, pattern)


def _matching(node: str, overrides: Mapping[str, OverrideSpec]) -> list[OverrideSpec]:
    globs = [over for pattern, over in overrides.items() if pattern != node and _matches(node, pattern)]
    return [*globs, *([overrides[node]] if node in overrides else [])]


def _laid_over(base: HostKeys, over: OverrideSpec) -> HostKeys:
    service = (
        base.service if over.service is None else merge_service(base.service or ServiceSpec(), over.service)
    )
    keys = {
        "connect": over.connect or base.connect,
        "user": over.user or base.user,
        "port": over.port or base.port,
        "identity": over.identity or base.identity,
        "known_hosts": over.known_hosts or base.known_hosts,
        "sudo": base.sudo if over.sudo is None else over.sudo,
        "service": service,
        "data": base.data if over.data is None else over.data,
    }
    return HostKeys.model_validate({key: value for key, value in keys.items() if value is not None})


def merge_service(base: ServiceSpec, over: ServiceSpec) -> ServiceSpec:
    """Lay one service over another, key by key; another manager shares no key with the base."""
    if over.manager not in (None, base.manager or Manager.SYSTEMD):
        return over
    return base.model_copy(update=over.model_dump(exclude_none=True))


def settle_service(service: ServiceSpec) -> ServiceSettings:
    """Fill in the defaults of a service.

    Raises:
        ValueError: keys that its manager needs are missing, or keys that it has no use for are there.
    """
    manager = service.manager or Manager.SYSTEMD
    commands = {"stop": service.stop, "start": service.start, "status": service.status}
    if manager is not Manager.COMMAND:
        extra = [key for key, line in commands.items() if line is not None]
        if extra:
            raise ValueError(
                f"{', '.join(extra)}: only for `manager: command`, and this one is {manager.value}"
            )
        unit = service.unit or DEFAULT_UNIT
        if set(unit.replace("{node}", "")) & {"{", "}"}:
            raise ValueError("unit: `{node}` is the only placeholder")
        return ServiceSettings(manager=manager, unit=unit)
    missing = [key for key, line in commands.items() if line is None]
    if missing:
        raise ValueError(f"`manager: command` needs {', '.join(missing)} as well")
    if service.unit is not None:
        raise ValueError("unit: not for `manager: command`; its command lines name what they run")
    return ServiceSettings(manager=manager, **commands)
