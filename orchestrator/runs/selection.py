"""Which nodes a run restarts and which indices it merges, checked against the first reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.config.disabling import PredicateNames
from orchestrator.elasticsearch.rules.due import PastMerges, leftovers, merge_targets, nodes_due
from orchestrator.elasticsearch.rules.settings import awareness_of
from orchestrator.engine.predicates import Predicate
from orchestrator.engine.upgrade import to_upgrade
from orchestrator.engine.waves import selected, undated
from orchestrator.errors import UsageError
from orchestrator.kinds import kind_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RunStarted
from orchestrator.model.merging import BulkView, LoaderLeftover, Resolution, ResolvedIndex
from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.policy import (
    DueFor,
    HostChanges,
    Kind,
    Policy,
    Strategy,
    reasons,
)
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.connection import Connection
from orchestrator.view.text import counted, listed, stamp_seconds


def predicate_names(kind: Kind) -> PredicateNames:
    """What `--disable-predicate` may name there: rules before a stop, then those before a merge."""
    rules = _rules(kind)
    known = tuple(rule.name for rule in rules)
    return PredicateNames(
        known=known,
        always_on=frozenset(rule.name for rule in rules if not rule.may_be_disabled),
        elsewhere={rule.name: other for other in Kind for rule in _rules(other) if rule.name not in known},
    )


def _rules(kind: Kind) -> tuple[Predicate, ...]:
    """Those before a stop, then those before a merge."""
    of_kind = kind_of(kind)
    return (*of_kind.predicates, *of_kind.merge_predicates)


def require_cluster(read: Reading[ClusterView], name: str, file: str) -> ClusterView:
    """The first reading of the cluster, if it is the one in the file.

    Raises:
        UsageError: it cannot be read, or has another name.
    """
    if isinstance(read, Unknown):
        raise UsageError(f"cluster {name} ({file}) cannot be read: {read.reason}")
    if read.name != name:
        raise UsageError(
            f"{file}: the cluster at these endpoints calls itself {read.name!r}, the file names {name!r}; "
            "correct `name` or `endpoints`"
        )
    return read


def require_zones(view: ClusterView, settings: Reading[SettingsView], policy: Policy, file: str) -> None:
    """Refuse `zone` on a cluster in which no node is in a zone; other strategies need none.

    Args:
        view: the first reading of the cluster.
        settings: the first reading of its settings.
        policy: as the run would have it.
        file: path of the cluster file, for the message.

    Raises:
        UsageError: no attribute names the zones, or no node has it.
    """
    if policy.strategy is not Strategy.ZONE:
        return
    why = kind_of(policy.kind).without_zones(view, settings, policy, file)
    if why is not None:
        raise UsageError(f"strategy zone: {why}")


def start_of(
    view: ClusterView,
    settings: Reading[SettingsView],
    policy: Policy,
    *,
    operator: str,
    host: str,
    cluster_file: str,
) -> RunStarted:
    """The event with which a run begins; without nodes when none is due (`--started-before`).

    Raises:
        UsageError: the selection names a node that is no member, or selects none; or it is unknown for every
            node whether it is due.
    """
    if not isinstance(settings, Unknown):
        attribute, awareness = awareness_of(settings, policy.zone_attribute)
        policy = replace(policy, zone_attribute=attribute, awareness=awareness)
    attribute = policy.zone_attribute
    zones = sorted({zone for node in view.nodes if (zone := node.zone(attribute)) is not None})
    missing = policy.selection.unmatched([node.name for node in view.nodes])
    names = ", ".join(sorted(node.name for node in view.nodes))
    if missing:
        wanted = policy.expect_nodes
        few = wanted is not None and len(view.nodes) < wanted
        down = f": {wanted} are expected, so start what is down" if few else ""
        meant = sorted({*missing} & {*policy.selection.only} & {*zones})
        hint = f"; {meant[0]} is a zone: --zone {meant[0]}" if meant else ""
        raise UsageError(f"no node is called {', '.join(missing)}; the cluster has {names}{down}{hint}")
    if policy.selection.zone is not None and policy.selection.zone not in zones:
        of = f"node attribute {attribute!r}" if attribute else "no node attribute: set `zone_attribute`"
        there = f"the zones are {', '.join(zones)}" if zones else "no node has a zone"
        one = "; name one" if "," in policy.selection.zone else ""
        raise UsageError(f"no node is in zone {policy.selection.zone}; {there} ({of}){one}")
    nodes = selected(view, policy.selection, attribute)
    if not nodes and not _some_but_not_due(view, policy):
        raise UsageError(f"the selection leaves no node to restart; the cluster has {names}")
    if policy.strategy is Strategy.SHARD_SAFE and not kind_of(policy.kind).kept_apart_by_zones(view):
        policy = replace(policy, zone_attribute=None)
    return RunStarted(
        cluster=view.name,
        cluster_uuid=view.uuid,
        version=view.version,
        distribution=view.distribution,
        policy=policy,
        nodes=tuple(node.name for node in nodes),
        operator=operator,
        host=host,
        addresses={node.name: node.address for node in view.nodes},
        cluster_file=cluster_file,
    )


def _some_but_not_due(view: ClusterView, policy: Policy) -> bool:
    """Whether all selected nodes were restarted recently: a scheduled run finds that on most days.

    Raises:
        UsageError: the start time of a node is unknown, so this cannot be decided.
    """
    selection, attribute = policy.selection, policy.zone_attribute
    unknown = undated(view, selection, attribute)
    if unknown:
        raise UsageError(
            f"--started-before: {', '.join(unknown)} did not show when the process started, and no other "
            f"node is due: {kind_of(policy.kind).words.undated}try again"
        )
    return selection.started_before is not None and bool(
        selected(view, replace(selection, started_before=None), attribute)
    )


_REASONS_SHOWN: Final = 5
"""Nodes whose reason is shown."""


def only_due(connection: Connection, view: ClusterView, started: RunStarted) -> RunStarted:
    """The same beginning with the due nodes alone; all of them without `--due`. Shows why they are due.

    Raises:
        UsageError: a node's host, or its process, does not show whether it is due.
    """
    due = started.policy.selection.due
    if not due or not started.nodes:
        return started
    changes = _host_changes(connection, started)
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
    shown = [f"{name} {why}" for name, why in list(found.items())[:_REASONS_SHOWN]]
    shown += [f"and {len(found) - _REASONS_SHOWN} more"] if len(found) > _REASONS_SHOWN else []
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


def _host_changes(connection: Connection, started: RunStarted) -> Mapping[NodeName, HostChanges]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedIndices:
    """The loaded indices, by the first reading."""

    started: RunStarted  # how the run begins: with the indices in their order, and the nodes that are due
    bulk: BulkView  # the reading of them
    left: tuple[LoaderLeftover, ...]  # what their loader seems to have left behind
    restarts: bool  # whether nodes are to be restarted at all
    recorded: bool  # whether the state database has a merge of any of them: it shows which nodes are due

    @property
    def nothing_to_do(self) -> str | None:
        """Why the step has nothing to do; None when it has something."""
        started, merge = self.started, self.started.policy.merge
        due = any(target.due for target in started.indices) or any(one.put_right for one in self.left)
        if merge is None or due or started.nodes:
            return None
        number = len(started.indices)
        said = (
            f"{started.cluster}: nothing to do: {counted(number, 'index', 'indices')} "
            f"{'has' if number == 1 else 'have'} at most {counted(merge.max_segments, 'segment')} a copy"
        )
        if not self.restarts:
            return said
        if not self.recorded:
            return f"{said}, and the state file has no merge of them that this restart could follow"
        return f"{said}, and every selected node was restarted since they were merged"


def find_bulk_indices(
    connection: Connection, view: ClusterView, started: RunStarted, *, restarts: bool
) -> LoadedIndices:
    """Resolve the indices of a bulk load, read them, and work out what is due.

    Args:
        connection: the cluster, and the state that records earlier merges.
        view: the first reading of the cluster.
        started: how the run begins without them.
        restarts: whether nodes are restarted after the merges.

    Raises:
        UsageError: the patterns match nothing that can be merged, or it cannot be read.
        JournalError: the state cannot be read.
    """
    policy, ports = started.policy.merge, connection.ports
    if policy is None:
        raise UsageError("--index: name the indices that were loaded, such as --index 'posts-*'")
    found = ports.resolve(policy.patterns)
    if isinstance(found, Unknown):
        raise UsageError(f"the indices of {view.name} cannot be read: {found.reason}")
    chosen = require_open(found, policy.patterns, view.name)
    for note in left_out(found):
        connection.process.warn(note)
    bulk = ports.cluster.bulk([index.uuid for index in chosen])
    if isinstance(bulk, Unknown):
        raise UsageError(
            f"the segments of {_names(chosen)} on {view.name} cannot be read: {bulk.reason}; "
            "try again when every copy answers"
        )
    if not bulk.indices:
        raise UsageError(f"{_names(chosen)} went away while it was looked at; nothing was changed")
    past = connection.recorded(
        lambda store: store.merges(view.uuid, tuple(bulk.indices)), PastMerges()
    )  # empty before the first run
    targets = merge_targets(bulk, policy, past)
    left = leftovers(bulk, policy.put_right, view)
    nodes = nodes_due(started.nodes, view, targets, past, left) if restarts else ()
    return LoadedIndices(
        started=replace(started, nodes=nodes, indices=targets),
        bulk=bulk,
        left=left,
        restarts=restarts,
        recorded=bool(past.ended),
    )


def require_open(found: Resolution, patterns: Sequence[str], cluster: str) -> tuple[ResolvedIndex, ...]:
    """The indices to work on.

    Args:
        found: what the patterns match.
        patterns: as they were given.
        cluster: its name, for the message.

    Raises:
        UsageError: a pattern matches nothing, or nothing that can be merged.
    """
    if found.unmatched:
        raise UsageError(
            f"--index {found.unmatched[0]}: {cluster} has no index, alias or data stream of that name; "
            "see `GET /_cat/indices?v`"
        )
    if found.open:
        return found.open
    given = " ".join(f"--index {pattern}" for pattern in patterns)
    if found.closed:
        raise UsageError(
            f"{given}: {_names(found.closed)} {_is(found.closed)} closed, and the segments of a closed index "
            "can be neither read nor merged: open it first"
        )
    raise UsageError(
        f"{given}: {_names(found.hidden)} {_is(found.hidden)} hidden: give the name in full, or with its dot"
    )


def left_out(found: Resolution) -> tuple[str, ...]:
    """What matches and is left out, one line a reason."""
    lines = []
    if found.closed:
        lines.append(f"left out, since closed: {_names(found.closed)}")
    if found.hidden:
        lines.append(
            f"left out, since hidden: {_names(found.hidden)}; give the name in full to have it merged"
        )
    return tuple(lines)


def _names(indices: Iterable[ResolvedIndex]) -> str:
    return listed([index.name for index in indices], 5)


def _is(indices: Sequence[ResolvedIndex]) -> str:
    return "is" if len(indices) == 1 else "are"
