"""Which service manager runs a node on its host, and under which name. Only reads, and needs no rights.

The node's own process leads there: systemd names a unit's control group after it. Where the process is not
seen (it runs in a container, or `/proc` is hidden), units, containers and scripts are looked for by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from orchestrator.daemons import in_parallel
from orchestrator.hosts import contact, script, sudo
from orchestrator.hosts.connection import CommandResult, Outcome, UnknownKey, Unreachable
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.services import DOCKER, SYSTEMCTL
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Reading, Unknown

LIMIT_SECONDS: Final = 120.0
"""For all hosts together; they are asked in parallel, and a single one has far smaller limits."""
_PROCESS, _SYSTEMD, _UNITS, _CONTAINERS, _SCRIPTS = "process", "systemd", "units", "containers", "scripts"
_ONLY_DOAS: Final = "doas"
_STARTERS: Final = "starters"
"""Units of any name with the product in it: one of them may run a container that a stop removes."""
_PRODUCTS: Final = re.compile("elasticsearch|opensearch", re.IGNORECASE)
_UNIT: Final = re.compile(r"/([A-Za-z0-9_][A-Za-z0-9_.@:\\-]{0,200})\.service$")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\\-]{0,200}")
_COLUMNS: Final = 3
"""Of a unit: name, whether it is loaded, whether it is active; of a container: name, image, `AutoRemove`."""
_LISTED: Final = 5
_CONTAINER_RUNTIMES: Final = ("docker", "containerd", "crio", "podman")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundService:
    """What runs a node's process."""

    manager: Manager
    unit: str
    only_doas: bool = False  # whether the host has doas and no sudo, and the account is not root


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAsked(Unknown):
    """A host that was not asked: there is no connection to it."""

    key: UnknownKey | None  # the host key that is the matter, if it is only unknown
    of_the_way: bool = False  # whether another way over SSH may reach it


def find_services(
    settings: Collection[HostSettings], pids: Mapping[NodeName, int], connections: Connections
) -> Mapping[NodeName, Reading[FoundService]]:
    """What runs each node, asked of its host; hosts are asked in parallel.

    Args:
        settings: the hosts.
        pids: the nodes' process ids, as far as they are known.
        connections: used and left open.
    """
    work = {one.node: partial(_find, one, pids.get(one.node), connections) for one in settings}
    done = in_parallel(work, timeout=LIMIT_SECONDS)
    late = Unknown(reason=f"no answer within {LIMIT_SECONDS:.0f} s")
    return {node: done.get(node, late) for node in work}


def _find(settings: HostSettings, pid: int | None, connections: Connections) -> Reading[FoundService]:
    connection = connections.to(settings)
    if isinstance(connection, Unreachable):
        done: Outcome = connection
    else:
        done = connection.run(script.untranslated(search_script(pid)), timeout=settings.limits.command)
    if isinstance(done, Unreachable):
        return NotAsked(reason=done.reason, key=done.key, of_the_way=done.of_the_way)
    if isinstance(done, CommandResult) and script.read_sections(done.stdout):
        return read_search(done.stdout)
    if isinstance(done, CommandResult):
        return NotAsked(reason=done.stderr or "its answer has no part", key=None)
    return NotAsked(reason=done.reason, key=None)


def search_script(pid: int | None) -> str:
    """The script that looks on a host for what runs a node with this process id."""
    units = '"$systemctl" list-units --all --plain --no-legend --no-pager --type=service'
    each = "{{.Name}} {{.Config.Image}} {{.HostConfig.AutoRemove}}"
    seen = f"tr '\\0' ' ' </proc/{pid}/cmdline | grep -qiE 'elasticsearch|opensearch'"
    process = (_PROCESS, f"{seen} && cat /proc/{pid}/cgroup")
    rest = (
        (_SYSTEMD, "test -d /run/systemd/system"),
        (_UNITS, f"{units} 'elasticsearch*' 'opensearch*'"),
        (_STARTERS, f"{units} '*elasticsearch*' '*opensearch*'"),
        (_CONTAINERS, f'running=$("$docker" ps -q) && "$docker" inspect -f \'{each}\' $running; true'),
        (_SCRIPTS, "ls /etc/init.d"),
        (_ONLY_DOAS, f"! {{ {sudo.IS_ROOT} || command -v sudo; }} && command -v doas"),
    )
    search = (contact.FIND_PROGRAM, contact.find(SYSTEMCTL, "systemctl"), contact.find(DOCKER, "docker"))
    return "\n".join((*search, script.sections(rest if pid is None else (process, *rest))))


def read_search(output: str) -> Reading[FoundService]:
    """What a host's answer says of the service."""
    parts = script.read_sections(output)
    texts = {name: part.text for name, part in parts.items() if part.exit == 0}
    service = _service(texts)
    return service if isinstance(service, Unknown) else replace(service, only_doas=_ONLY_DOAS in texts)


def _service(texts: Mapping[str, str]) -> Reading[FoundService]:
    groups = texts.get(_PROCESS, "").splitlines()
    groups = [line.strip() for line in groups if "/user.slice/" not in line]  # no unit that root controls
    units = [found[1] for line in groups if (found := _UNIT.search(line))]
    own = next((unit for unit in units if unit not in _CONTAINER_RUNTIMES), None)
    if own is not None:
        return FoundService(manager=Manager.SYSTEMD, unit=own)
    containers, removed = _containers(texts.get(_CONTAINERS, ""))
    if not containers and removed:
        # Nothing shows which unit runs it: another one with the product in its name may be an exporter.
        named = ", ".join(_units(texts.get(_STARTERS, ""))[:_LISTED]) or "none with the product in its name"
        gone = f"container {removed[0]} is removed when it stops (`--rm`)"
        return Unknown(reason=f"{gone}: name the unit that runs it as `hosts.service` (units seen: {named})")
    by_name = {
        Manager.DOCKER: containers,
        Manager.SYSTEMD: _units(texts.get(_UNITS, "")),
        Manager.SYSV: () if _SYSTEMD in texts else _scripts(texts.get(_SCRIPTS, "")),
    }
    seen = [(manager, name) for manager, names in by_name.items() for name in names]
    if len(seen) == 1:
        ((manager, name),) = seen
        return FoundService(manager=manager, unit=name)
    if not seen:
        return Unknown(reason="no unit, container or init script of Elasticsearch or OpenSearch is seen")
    listed = ", ".join(f"{manager.value} {name}" for manager, name in seen[:_LISTED])
    return Unknown(reason=f"several services may run the node ({listed})")


def _containers(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Containers of a product: those that can be started after a stop, and those that a stop removes."""
    rows = [row for line in text.splitlines() if len(row := line.split()) == _COLUMNS]
    ours = [(name.removeprefix("/"), removed) for name, image, removed in rows if _PRODUCTS.search(image)]
    names = {kind: _usable(name for name, removed in ours if removed == kind) for kind in ("false", "true")}
    return names["false"], names["true"]


def _units(text: str) -> tuple[str, ...]:
    """Units that systemd has loaded; the active ones alone where there are any."""
    rows = [row for line in text.splitlines() if len(row := line.split()) >= _COLUMNS]
    loaded = {unit.removesuffix(".service"): state for unit, load, state, *_ in rows if load == "loaded"}
    active = [unit for unit, state in loaded.items() if state == "active"]
    return _usable(active or loaded)


def _scripts(text: str) -> tuple[str, ...]:
    return _usable(name for name in text.split() if _PRODUCTS.match(name))


def _usable(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if _NAME.fullmatch(name)))
