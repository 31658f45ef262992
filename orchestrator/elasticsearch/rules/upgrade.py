"""What an upgrade is checked by before its first stop: the path, the indices, the cluster, its hosts.

Sources: Elastic's and OpenSearch's own upgrade guides. A rolling upgrade goes to the next major version only
from the last minor version of the one before, and a major version opens the indices of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Final

from orchestrator.engine.every_kind import some
from orchestrator.engine.predicates import ByPolicy, Finding, Question, disabling
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import numbers
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.upgrade import HostReadiness, Upgrade, UpgradeView

ROLLING_FROM: Final[Mapping[str, Mapping[tuple[int, int], tuple[int, int]]]] = {
    "elasticsearch": {(6, 0): (5, 6), (7, 0): (6, 8), (8, 0): (7, 17), (9, 0): (8, 18), (9, 1): (8, 19)},
    "opensearch": {(2, 0): (1, 3), (3, 0): (2, 19)},
}
"""By distribution and first target: the lowest version of the major before from which a rolling upgrade goes
there. From the version of a later row it goes to no earlier target: 9.0 is older than 8.19, and is reached
from 8.18 alone; 9.1 from 8.19 (elastic/docs-content#1685).
"""

FREE_BYTES: Final = 2 << 30
"""A package of the newest versions is about 700 MB, and unpacks to twice that beside the old one."""

_HOUR: Final = 3600.0

REMOVED: Final[Mapping[str, Mapping[int, tuple[str, ...]]]] = {
    "elasticsearch": {
        6: ("script.inline", "script.stored", "script.file", "script.engine."),
        7: ("http.enabled", "thread_pool.bulk.", "thread_pool.index.", "tribe."),
        8: (
            "discovery.zen.",
            "node.master",
            "node.data",
            "node.ingest",
            "node.ml",
            "node.max_local_storage_nodes",
            "transport.tcp.",
            "gateway.expected_nodes",
            "gateway.recover_after_nodes",
            "cluster.join.timeout",
            "processors",
        ),
    },
    "opensearch": {},
}
"""By major version: settings of a node's files that it refuses at its start; a trailing dot is a prefix.

From the lists of breaking changes. It holds the usual ones: the deprecations of the cluster name the others.
"""


def _beforehand(
    check: Callable[[Question, Upgrade, ClusterView], Iterator[Finding]],
) -> Callable[[Question], Iterator[Finding]]:
    """A predicate of an upgrade that is asked before its first stop, and never of a run that continues."""

    @wraps(check)
    def asked(question: Question) -> Iterator[Finding]:
        upgrade, view = question.policy.upgrade, question.observation.cluster
        if upgrade is None or not question.first_stop:
            return
        if isinstance(view, Unknown):
            yield "cluster state", view
        else:
            yield from check(question, upgrade, view)

    return asked


_OTHER_TARGET: Final = "another `--to`"


@_beforehand
def upgrade_path_is_supported(_question: Question, upgrade: Upgrade, view: ClusterView) -> Iterator[Finding]:
    """Every version of the cluster can be upgraded to the target node by node."""
    target = numbers(upgrade.target)
    for version in sorted({node.version for node in view.nodes}, key=numbers):
        found = numbers(version)
        if found[:1] == target[:1] and (target[0] > 0 or found[:2] == target[:2]):
            continue
        if found > target:
            continue  # `no_node_is_newer` has a better message
        step = _next_step(view.distribution, found, target)
        if step is None:
            continue
        no_way = f"no rolling upgrade to {upgrade.target}: {step}"
        yield f"version {version}", ByPolicy(evidence=no_way, way=_OTHER_TARGET)


def _next_step(distribution: str, found: tuple[int, ...], target: tuple[int, ...]) -> str | None:
    """The first upgrade on the way from a version to a later major version, for people; None = this one."""
    if not found:
        return "its version is not understood"
    known = ROLLING_FROM.get(distribution, {})
    if found[0] >= max((major for major, _ in known), default=0):
        return f"no way from {found[0]}.x to another major version is known"
    ways = [(first, lowest) for first, lowest in known.items() if first[0] == found[0] + 1]
    if not ways:
        return "across major versions it is possible from 5.6 on; before, with the whole cluster down"
    meant = [(first, lowest) for first, lowest in ways if first <= (*target, 0)[:2]]  # 9.0 is (9,)
    lowest = meant[-1][1] if target[0] == found[0] + 1 else ways[0][1]
    if found[:2] < lowest:
        return f"upgrade to {lowest[0]}.{lowest[1]} first"
    if target[0] > found[0] + 1:
        return f"upgrade to the last {found[0] + 1}.x first: no major version can be left out"
    for first, later in ways[len(meant) :]:
        if found[:2] >= later:
            return f"from {found[0]}.{found[1]} it goes to {first[0]}.{first[1]} and later"
    return None


@_beforehand
def no_node_is_newer(_question: Question, upgrade: Upgrade, view: ClusterView) -> Iterator[Finding]:
    """No node runs a newer version than the target: a node cannot go back to an older one."""
    newer: list[str] = sorted(
        node.name for node in view.nodes if numbers(node.version) > numbers(upgrade.target)
    )
    if newer:
        versions = sorted({node.version for node in view.nodes if node.name in newer}, key=numbers)
        ahead = f"{some(newer)} with {', '.join(versions)}: newer than {upgrade.target}"
        yield "nodes", ByPolicy(evidence=ahead, way=_OTHER_TARGET)


def _of_view(
    check: Callable[[Question, Upgrade, ClusterView, UpgradeView], Iterator[Finding]],
) -> Callable[[Question], Iterator[Finding]]:
    @wraps(check)
    def asked(question: Question, upgrade: Upgrade, view: ClusterView) -> Iterator[Finding]:
        found = question.observation.upgrade
        if isinstance(found, Unknown):
            yield "the state before the upgrade", found
        else:
            yield from check(question, upgrade, view, found)

    return _beforehand(asked)


def _changes_major(upgrade: Upgrade, view: ClusterView) -> bool:
    target = numbers(upgrade.target)
    return any(numbers(node.version)[:1] < target[:1] for node in view.nodes)


@_of_view
def indices_open_in_target(
    _question: Question, upgrade: Upgrade, view: ClusterView, found: UpgradeView
) -> Iterator[Finding]:
    """No index is older than what the target opens: the indices of its own major version and the last one.

    Elasticsearch 9 also opens indices that 7.x created, if `PUT /INDEX/_block/write` has made them read-only.
    """
    if not _changes_major(upgrade, view):
        return
    major = _generation(numbers(upgrade.target)[0], view.distribution)
    reads_old = view.distribution == "elasticsearch" and major >= _READS_OLD
    old = sorted(
        name
        for name, version in found.created.items()
        if _of_index(version, view.distribution) < major - 1 - (reads_old and name in found.read_only)
    )
    if old:
        oldest = min((found.created[name] for name in old), key=numbers)
        hidden = view.distribution == "elasticsearch" and old[0].startswith(".")
        system = "; those of the system with `POST /_migration/system_features`" if hidden else ""
        yield "indices", f"{some(old)}: created by {oldest}: reindex or delete them first{system}"


_READS_OLD: Final = 9
"""Elasticsearch 9 also opens indices of the version before the last if they are read-only."""

_FORK: Final = 6
"""OpenSearch 1 writes the format of Elasticsearch 7, and so on."""


def _generation(major: int, distribution: str) -> int:
    return major + _FORK if distribution == "opensearch" else major


def _of_index(version: str, distribution: str) -> int:
    """The generation of an index: an OpenSearch cluster may have indices that Elasticsearch created."""
    major = numbers(version)[0] if numbers(version) else 0
    return _generation(major, distribution) if major <= _FORK - 3 else major


@_of_view
def no_critical_deprecations(
    _question: Question, upgrade: Upgrade, view: ClusterView, found: UpgradeView
) -> Iterator[Finding]:
    """The cluster itself lists nothing that stops working with the next major version."""
    if not _changes_major(upgrade, view):
        return
    if isinstance(found.deprecations, Unknown):
        yield "deprecations", found.deprecations
        return
    for one in found.deprecations:
        yield one.subject, one.message


def _or_another_run(name: str, subject: str, condition: str) -> str:
    """What to do about a hold that may be wrong here."""
    return f"or if {condition}, begin another run with {disabling(name, subject)}"


@_of_view
def snapshot_is_recent(
    question: Question, upgrade: Upgrade, _view: ClusterView, found: UpgradeView
) -> Iterator[Finding]:
    """A snapshot without a failed shard is younger than `upgrade.snapshot_younger_than`."""
    limit = upgrade.snapshot_younger_than
    if limit is None:
        return
    ended = found.snapshot_ended
    if isinstance(ended, Unknown):
        yield "snapshots", ended
    elif ended is None:
        accept = _or_another_run("snapshot_is_recent", "snapshots", "the backup is of another kind")
        yield "snapshots", f"there is no finished snapshot without a failed shard: take one, {accept}"
    elif question.observation.at - ended > limit:
        age = f"{(question.observation.at - ended) / _HOUR:.0f} h"
        yield (
            "snapshots",
            f"the youngest, {found.snapshot}, is {age} old ({limit / _HOUR:g} h allowed): take one",
        )


@_of_view
def settings_known_to_target(
    _question: Question, upgrade: Upgrade, view: ClusterView, found: UpgradeView
) -> Iterator[Finding]:
    """No node has a setting in its files that the target refuses at its start."""
    lowest = min(((numbers(node.version) or (0,))[0] for node in view.nodes), default=0)
    removed = [
        name
        for major, names in REMOVED.get(view.distribution, {}).items()
        if lowest < major <= numbers(upgrade.target)[0]
        for name in names
    ]
    by_setting: dict[str, list[NodeName]] = {}
    for node, names in found.settings.items():
        for name in names:
            if any(name == one or (one.endswith(".") and name.startswith(one)) for one in removed):
                by_setting.setdefault(name, []).append(node)
    for name, nodes in sorted(by_setting.items()):
        where = some(sorted(nodes))
        accept = _or_another_run("settings_known_to_target", name, "the files are right now")
        shown = "and restart them, since a node shows its files as they were at its start"
        yield name, f"{upgrade.target} refuses it: take it out of the files of {where} {shown}, {accept}"


def _of_hosts(
    check: Callable[[NodeName, HostReadiness], Iterator[Finding]],
) -> Callable[[Question], Iterator[Finding]]:
    """A predicate about the hosts of all nodes to upgrade. `hosts_can_install` holds those not read."""

    @wraps(check)
    def asked(question: Question, _upgrade: Upgrade, _view: ClusterView) -> Iterator[Finding]:
        for name, ready in _asked(question):
            if not isinstance(ready, Unknown):
                yield from check(name, ready)

    return _beforehand(asked)


def _asked(question: Question) -> Iterator[tuple[NodeName, Reading[HostReadiness]]]:
    not_asked: Reading[HostReadiness] = Unknown(reason="not asked yet", passes=True)
    for node in question.state.nodes_in(NodePhase.PENDING):
        yield node.name, question.observation.readiness.get(node.name, not_asked)


@_beforehand
def hosts_can_install(question: Question, _upgrade: Upgrade, _view: ClusterView) -> Iterator[Finding]:
    """Every `upgrade.verify` line of the playbook succeeds on every host, and sudo allows its steps."""
    for name, ready in _asked(question):
        failed = (ready.reason,) if isinstance(ready, Unknown) else ready.failed
        yield from ((f"host of {name}", why) for why in failed)


def hosts_that_never_can(question: Question) -> Iterator[Finding]:
    """Of what `hosts_can_install` finds, all but hosts that may answer a little later."""
    if question.policy.upgrade is None:
        return
    passing = {name for name, ready in _asked(question) if isinstance(ready, Unknown) and ready.passes}
    out_of_reach = {f"host of {name}" for name in passing}
    yield from (found for found in hosts_can_install(question) if found[0] not in out_of_reach)


@_of_hosts
def keystores_need_no_password(node: NodeName, ready: HostReadiness) -> Iterator[Finding]:
    """No keystore asks for a password: a start without a terminal would fail."""
    if ready.keystore_password:
        subject = f"host of {node}"
        accept = _or_another_run("keystores_need_no_password", subject, "the service reads it from a file")
        yield subject, f"its keystore has a password: remove it, {accept}"


@_of_hosts
def disk_space_for_install(node: NodeName, ready: HostReadiness) -> Iterator[Finding]:
    """Every host has room for the package beside the old one."""
    if ready.free_bytes is None:
        said = "the free space on /, /usr and /var was not read (`df -Pk`): correct that"
    elif ready.free_bytes < FREE_BYTES:
        free, needed = ready.free_bytes / (1 << 30), FREE_BYTES >> 30
        said = f"{free:.1f} GiB are free on /, /usr or /var, {needed} GiB are needed: make room"
    else:
        return
    subject = f"host of {node}"
    accept = _or_another_run("disk_space_for_install", subject, "the package needs less there")
    yield subject, f"{said}, {accept}"
