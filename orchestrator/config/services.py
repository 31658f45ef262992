"""`service` in a cluster file: the service manager of a node's process, and its defaults."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from orchestrator.config.spec import NodeCommandLine, Spec, Unset, matching
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import ServiceSettings

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


ELASTICSEARCH: Final = ServiceSettings()
"""The name of unit and init script in Elastic's packages, and the usual name of the container."""

ONLY_TUNED: Final = ServiceSettings(unit="", controlled=False)
"""The service of hosts without a cluster: its limits can be tuned if it is named. It is never stopped."""
_TUNED_IN: Final = frozenset({Manager.SYSTEMD, Manager.SYSV})
"""The managers whose limits can be tuned."""


def merge_service(base: ServiceSpec, over: ServiceSpec, usual: ServiceSettings) -> ServiceSpec:
    """Override one service with another, key by key; a different manager drops all keys of the base."""
    if over.manager not in (None, base.manager or usual.manager):
        return over
    return base.model_copy(update=over.model_dump(exclude_none=True))


def settle_service(service: ServiceSpec, usual: ServiceSettings) -> ServiceSettings:
    """Fill in the defaults of a service.

    Raises:
        ValueError: its manager is not possible here, keys that it needs are missing, or keys that it does
            not use are present.
    """
    manager = service.manager or usual.manager
    if not usual.controlled and manager not in _TUNED_IN:
        raise ValueError(f"manager: must be one of {', '.join(sorted(one.value for one in _TUNED_IN))}")
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
        return ServiceSettings(manager=manager, unit=unit, controlled=usual.controlled)
    if service.unit is not None and service.manager is None:
        raise ValueError("unit: not for `manager: command`, which holds here; name its manager, too")
    if service.unit is not None:
        raise ValueError("unit: not for `manager: command`; its command lines name what they run")
    filled = {key: line or getattr(usual, key) for key, line in commands.items()}
    missing = [key for key, line in filled.items() if line is None]
    if missing:
        raise ValueError(f"`manager: command` needs {', '.join(missing)} as well")
    as_root = service.status is None and usual.status_as_root
    return ServiceSettings(
        manager=manager,
        unit="",
        stop=filled["stop"],
        start=filled["start"],
        status=filled["status"],
        status_as_root=as_root,
    )
