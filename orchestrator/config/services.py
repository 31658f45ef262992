"""`service` in a cluster file: the service manager of a node's process, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from orchestrator.config.spec import NodeCommandLine, Spec, Unset, matching
from orchestrator.model.host import Manager

Unit = Annotated[
    str,
    matching(
        r"[A-Za-z0-9_{][A-Za-z0-9_.@:{}\\-]{0,200}",
        "must be the name of a unit, script or container: letters, digits, any of . _ @ : - \\, and {node}",
    ),
]


class ServiceSpec(Spec):
    """The service manager of the node's process, and the name of the service."""

    manager: Unset[Manager] = Field(
        default=None,
        description="Service manager. Default: `systemd`; for Riak `command`, with the command lines of"
        " `riak.command`.",
        examples=["systemd"],
    )
    unit: Unset[Unit] = Field(
        default=None,
        description="Unit, init script or container; `{node}` is the node's name, which may then have"
        " only letters, digits and `_ . @ : - \\`. Default:"
        " `elasticsearch` or `riak`. Not for `manager: command`.",
        examples=["elasticsearch"],
    )
    stop: Unset[NodeCommandLine] = Field(
        default=None, description="Only for `manager: command`: the command line that stops `{node}`."
    )
    start: Unset[NodeCommandLine] = Field(
        default=None, description="Only for `manager: command`: the command line that starts `{node}`."
    )
    status: Unset[NodeCommandLine] = Field(
        default=None,
        description="Only for `manager: command`: the command line that exits with 0 only if `{node}` runs."
        " Of `riak ping` the text is read, not the exit code.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualService:
    """The default service manager of a node's process."""

    manager: Manager
    unit: str  # for every manager that needs one; empty where no service is known
    managers: frozenset[Manager] = frozenset(Manager)  # those that a file may name
    # command line for `manager: command`; None where there is no usual one. So are `start` and `status`.
    stop: str | None = None
    start: str | None = None
    status: str | None = None
    status_as_root: bool = False  # whether `status` needs root's rights


ELASTICSEARCH: Final = UsualService(manager=Manager.SYSTEMD, unit="elasticsearch")
"""The name of unit and init script in Elastic's packages, and the usual name of the container."""

ONLY_TUNED: Final = UsualService(
    manager=Manager.SYSTEMD, unit="", managers=frozenset({Manager.SYSTEMD, Manager.SYSV})
)
"""The service of hosts without a cluster: its limits can be tuned if it is named. It is never stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOfFile:
    """The service manager of one node's process."""

    manager: Manager
    # unit, script or container; `{node}` is replaced by the node's name. None for commands.
    unit: str | None = None
    # command line with `{node}`; None unless the manager is `command`. The same for `start` and `status`.
    stop: str | None = None
    start: str | None = None
    status: str | None = None
    # whether `status` needs root's rights; a command line in the file has its own `sudo`
    status_as_root: bool = False


def merge_service(base: ServiceSpec, over: ServiceSpec, usual: UsualService) -> ServiceSpec:
    """Override one service with another, key by key; a different manager drops all keys of the base."""
    if over.manager not in (None, base.manager or usual.manager):
        return over
    return base.model_copy(update=over.model_dump(exclude_none=True))


def settle_service(service: ServiceSpec, usual: UsualService) -> ServiceOfFile:
    """Fill in the defaults of a service.

    Raises:
        ValueError: its manager is not possible here, keys that it needs are missing, or keys that it does
            not use are present.
    """
    manager = service.manager or usual.manager
    if manager not in usual.managers:
        raise ValueError(f"manager: must be one of {', '.join(sorted(one.value for one in usual.managers))}")
    commands = {"stop": service.stop, "start": service.start, "status": service.status}
    if manager is not Manager.COMMAND:
        extra = [key for key, line in commands.items() if line is not None]
        if extra:
            raise ValueError(
                f"{', '.join(extra)}: only for `manager: command`, and this one is {manager.value}"
            )
        unit = service.unit or usual.unit
        if set(unit.replace("{node}", "")) & {"{", "}"}:
            raise ValueError("unit: `{node}` is the only placeholder here")
        return ServiceOfFile(manager=manager, unit=unit)
    if service.unit is not None and service.manager is None:
        raise ValueError("unit: not for `manager: command`, which holds here; name its manager, too")
    if service.unit is not None:
        raise ValueError("unit: not for `manager: command`; its command lines name what they run")
    filled = {key: line or getattr(usual, key) for key, line in commands.items()}
    missing = [key for key, line in filled.items() if line is None]
    if missing:
        raise ValueError(f"`manager: command` needs {', '.join(missing)} as well")
    as_root = service.status is None and usual.status_as_root
    return ServiceOfFile(manager=manager, status_as_root=as_root, **filled)
