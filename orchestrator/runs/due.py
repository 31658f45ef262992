"""Which of the selected nodes are due, as the cluster and the hosts show it before a run begins.

By `--due`; and for an upgrade, the nodes that do not run the wanted version yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine.upgrade import to_upgrade
from orchestrator.errors import UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import (
    DueFor,
    HostChanges,
    Policy,
    reasons,
)
from orchestrator.model.reading import Unknown
from orchestrator.runs.connection import Connection
from orchestrator.view.text import listed, stamp_seconds

_SHOWN: Final = 5
"""Nodes whose reason is shown."""


def only_due(connection: Connection, view: ClusterView, started: RunStarted) -> RunStarted:
    """The same beginning with the due nodes alone; all of them without `--due`. Shows why they are due.

    Raises:
        UsageError: a node's host, or its process, does not show whether it is due.
    """
    due = started.policy.selection.due
    if not due or not started.nodes:
        return started
    changes = _changes(connection, started)
    found: dict[NodeName, str] = {}
    for name in started.nodes:
        node = view.members[name]
        began = node.incarnation.started_at_ms
        if began is None and any(one.reason is DueFor.CONFIG for one in due):
            raise UsageError(f"--due config: {name} did not show when its process started: try again")
        why = reasons(
            due,
            version=node.version,
            started=None if began is None else began / 1000,
            changes=changes.get(name),
        )
        if text := ", ".join(why):
            found[name] = text
    shown = [f"{name} {why}" for name, why in list(found.items())[:_SHOWN]]
    shown += [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    if shown:
        connection.process.tell(f"due: {'; '.join(shown)}")
    return replace(started, nodes=tuple(found))


def only_to_upgrade(connection: Connection, view: ClusterView, started: RunStarted) -> RunStarted:
    """The same beginning without the nodes that run the wanted version already, with its plugins.

    A node with a newer version stays in: the run holds because of it. So does one whose machine is rebooted.
    """
    upgrade = started.policy.upgrade
    if upgrade is None:
        return started
    due = {node.name for node in to_upgrade(started.policy, (view.members[name] for name in started.nodes))}
    left_out = [name for name in started.nodes if name not in due]
    if left_out and len(left_out) < len(started.nodes):
        connection.process.tell(f"left out, since they run {upgrade.target} already: {listed(left_out)}")
    return replace(started, nodes=tuple(name for name in started.nodes if name not in left_out))


def nothing_due(cluster: str, policy: Policy) -> str | None:
    """Why a selection without nodes is no mistake; None if there is no reason to leave nodes out."""
    selection, upgrade = policy.selection, policy.upgrade
    because = []
    if selection.started_before is not None:
        because.append(f"started before {stamp_seconds(selection.started_before)}")
    if selection.due:
        because.append(f"is due ({', '.join(map(str, selection.due))})")
    if upgrade is not None and not because:
        plugins = f" with {listed(upgrade.plugins)}" if upgrade.plugins else ""
        return f"{cluster}: nothing to upgrade: every selected node runs {upgrade.target}{plugins}"
    if upgrade is not None:
        because.append(f"is to be upgraded to {upgrade.target}")
    verb = "restart" if upgrade is None else "upgrade"
    return f"{cluster}: nothing to {verb}: no selected node {' and '.join(because)}" if because else None


def _changes(connection: Connection, started: RunStarted) -> Mapping[NodeName, HostChanges]:
    due = started.policy.selection.due
    files = tuple(path for one in due for path in one.files)
    reboot = any(one.reason is DueFor.REBOOT for one in due)
    if not files and not reboot:
        return {}
    addresses = {name: started.addresses[name] for name in started.nodes}
    read = connection.ports.changes(addresses, files, reboot=reboot)
    flags = " ".join(f"--due {one}" for one in due if one.reason is not DueFor.VERSION)
    unknown = [f"host of {node}: {one.reason}" for node, one in read.items() if isinstance(one, Unknown)]
    if unknown:
        more = f"; so are {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise UsageError(f"{flags}: not known: {unknown[0]}{more}")
    return {node: one for node, one in read.items() if not isinstance(one, Unknown)}
