"""Predicates about the whole cluster: is the reading valid, is it the right cluster, is it safe to stop now?

Predicates about shard copies and the nodes that stay are in `redundancy.py`. A missing reading is a hold:
unknown is never healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from orchestrator.engine.kinds.elasticsearch.recovery import (
    is_being_restored,
    lost_beyond_baseline,
    red_shards,
)
from orchestrator.engine.kinds.elasticsearch.returning import Filters, cluster_filters, refuses, version_key
from orchestrator.engine.kinds.elasticsearch.settings import FILTERS, is_ours
from orchestrator.engine.kinds.every_kind import some
from orchestrator.engine.kinds.predicates import SUBJECTS, ByPolicy, Finding, Question, disabling
from orchestrator.model.allocation import DISABLING, disables
from orchestrator.model.cluster import Health
from orchestrator.model.observation import ClusterView, Level, RunningSnapshot, SettingsView
from orchestrator.model.phase import NodePhase
from orchestrator.model.reading import Instant, Unknown

OLDEST_TASK_SECONDS: Final = 30.0
"""Elasticsearch's own limit for a master operation: a task this old shows a master that lags."""


def no_other_maintenance(question: Question, view: ClusterView) -> Iterator[Finding]:
    """No other maintenance: no allocation settings, exclusions or shutdown records made outside this run."""
    settings = question.observation.settings
    if isinstance(settings, Unknown):
        yield "cluster settings", settings
        return
    yield from _foreign_settings(question, settings, view)
    foreign = [name for name in view.voting_exclusions if name not in question.state.unrestored.excluded]
    if foreign:
        yield "voting exclusions", f"{some(sorted(foreign))}: made outside this run"
    if view.shutdowns:
        yield "node shutdown", f"records for {some(sorted(view.shutdowns))}"


_WHOSE: Final = (
    "not set by this run: enable allocation again when the work that needs this is done"
    " (docs/how-to/repair-by-hand.md)"
)


_OVERRIDE: Final = "`PUT /_cluster/settings` (persistent)"


def _foreign_settings(question: Question, settings: SettingsView, view: ClusterView) -> Iterator[Finding]:
    for key in sorted(DISABLING):
        for level in Level:
            value = settings.at(level, key)
            if disables(key, value) and not is_ours(question.state, settings, level, key):
                yield key, f"is {value} ({level.value}), {_WHOSE}"
        from_file = settings.files.get(key)
        if settings.effective(key) == from_file and disables(key, from_file):
            yield key, f"is {from_file} in elasticsearch.yml: {_OVERRIDE} sets it without a restart"
    for kind, filters in cluster_filters(settings, from_files=False).items():
        yield from _drains(kind, filters, view)


def _drains(kind: str, filters: Filters, view: ClusterView) -> Iterator[Finding]:
    """The filters of a kind that keep copies off a node, or off one with copies (`include`, `require`)."""
    excludes = kind == "exclude"
    parts: Iterable[Filters] = [{name: values} for name, values in filters.items()] if excludes else [filters]
    for part in parts:
        subject = f"{FILTERS}{kind}.{next(iter(part))}"
        off = {node.name: refuses(kind, part, node) for node in view.nodes}
        if not excludes:
            off = {name: refused for name, refused in off.items() if view.routing.by_node.get(name)}
        names: list[str] = sorted(name for name, refused in off.items() if refused is True)
        in_doubt = next((each for each in off.values() if isinstance(each, Unknown)), None)
        if names and excludes:
            shown = ",".join(*part.values())
            yield subject, f"excludes {shown} from allocation: a node is being emptied"
        elif names:
            shown = ", ".join(f"{kind}.{name}: {','.join(values)}" for name, values in part.items())
            yield subject, f"{shown} leaves out {some(names)}: nodes are being emptied"
        elif in_doubt is not None:
            yield subject, in_doubt


_ACCEPT_RED: Final = "begin another run with `accept: {red: […]}` in the playbook"


def cluster_not_red(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every shard has a started copy, except in indices that the operator accepts."""
    away = [copy for copy in view.not_started if copy.primary]
    for index in sorted({copy.shard.index for copy in away if not is_being_restored(view, copy)}):
        if index not in question.policy.accept_red:
            yield f"index {index}", f"a primary is not started: repair the index, or {_ACCEPT_RED}"
    health = question.observation.health
    if not away and not isinstance(health, Unknown) and health.status is Health.RED:
        yield "health", "red, though every primary in the routing table is started"
    if isinstance(health, Unknown):
        yield "health", health


_LOST_FOR_GOOD: Final = (
    "If they are lost for good, begin another run: it accepts what is missing at its start"
)


def no_worse_than_baseline(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every copy that was assigned when the run began is assigned now, on any node.

    Unassigned copies of new indices and of new replicas do not count. Nor do copies that recover:
    `no_recovery_on_candidates` holds the nodes that take part in a recovery.
    """
    missing = lost_beyond_baseline(question.state, view, question.observation.settings)
    if missing:
        names = sorted({str(copy.shard) for copy in missing})
        reasons = sorted({copy.unassigned_reason for copy in missing if copy.unassigned_reason})
        why = f" ({', '.join(reasons)})" if reasons else ""
        yield "shard copies", f"{len(missing)} not started: {some(names)}{why}. {_LOST_FOR_GOOD}"
    red = sorted(str(shard) for shard in red_shards(question.state, view))
    if red:
        yield "primaries", f"without a started copy: {some(red)}"


def version_order(question: Question, view: ClusterView) -> Iterator[Finding]:
    """In a cluster of mixed versions, no node of the wave is older than the primaries of its copies.

    This includes primaries on the wave: if a copy on a newer node becomes the primary, the stopped copy
    cannot return to its older node.

    In an upgrade the nodes of the wave come back with the target. A run whose hooks do the upgrade continues,
    once one of its own nodes has a newer version.
    """
    if len({node.version for node in view.nodes}) <= 1:
        return
    versions = {node.name: version_key(node.version) for node in view.nodes}
    if question.policy.upgrade is not None:
        versions |= dict.fromkeys(question.wave.nodes, version_key(question.policy.upgrade.target))
    newest = max(versions.values(), default=())
    done = [node.name for node in question.state.nodes_in(NodePhase.RECOVERED)]
    began = version_key(question.state.begun.version)
    if any(versions.get(name, began) > began for name in done):
        return
    wave = set(question.wave.nodes)
    for name in question.wave.nodes:
        if versions.get(name, newest) == newest:
            continue
        stranded = sorted(
            str(copy.shard)
            for copy in view.on((name,))
            if any(
                versions.get(other.node or name, ()) > versions[name]
                for other in view.shards[copy.shard]
                if other.node not in wave and (other.primary or (copy.primary and other.started))
            )
        )
        if stranded:
            older = f"older than the nodes that have or get the primaries of {some(stranded)}"
            hooked = f"{disabling('version_order', f'node {name}')} if hooks of the playbook upgrade it"
            way = f"an upgrade, so that {name} comes back with the newer version, or {hooked}"
            yield f"node {name}", ByPolicy(evidence=older, way=way)


def no_running_snapshot(question: Question) -> Iterator[Finding]:
    """No snapshot is running."""
    activity = question.observation.activity
    if isinstance(activity, Unknown):
        yield "snapshots", activity
        return
    for snapshot in activity.snapshots:
        yield f"snapshot {snapshot.name}", _state_of(snapshot, question.observation.at)


def _state_of(snapshot: RunningSnapshot, now: Instant) -> str:
    more = len(snapshot.nodes) - SUBJECTS
    on = f" on {', '.join(snapshot.nodes[:SUBJECTS])}" if snapshot.nodes else ""
    on += f" and {more} more" if more > 0 else ""
    hours = 0 if snapshot.since is None else int((now - snapshot.since) // 3600)
    began = f"; it began {hours} h ago" if hours > 0 else ""
    if not snapshot.aborted:
        return f"is running{on}{began}"
    return (
        f"is aborted and has not ended{on}{began}. Where waiting does not help, a restart of"
        f" {'that node' if len(snapshot.nodes) == 1 else 'its nodes'} ends it, with this predicate disabled:"
        " nothing of the snapshot is lost by it"
    )


def no_force_merge_or_reindex_on_candidates(question: Question) -> Iterator[Finding]:
    """No force-merge, reindex, update-by-query or delete-by-query runs on a node of the wave."""
    activity = question.observation.activity
    if isinstance(activity, Unknown):
        yield "tasks", activity
        return
    for name in question.wave.nodes:
        if name in activity.unread:
            yield f"node {name}", "its tasks were not in the answer"
        if name in activity.merges:
            yield f"node {name}", "a force-merge runs there"
        if name in activity.reindexes:
            yield f"node {name}", "a reindex, update-by-query or delete-by-query runs there"


def pending_tasks_drained(question: Question) -> Iterator[Finding]:
    """No task of the master has waited for more than 30 seconds."""
    health = question.observation.health
    if isinstance(health, Unknown):
        yield "pending tasks", health
    elif health.oldest_task > OLDEST_TASK_SECONDS:
        yield "pending tasks", f"{health.pending_tasks} wait, the oldest for {health.oldest_task:.0f} s"
