"""Which nodes a run restarts: cluster, zones and selection, checked against the first reading."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.config.disabling import PredicateNames
from orchestrator.config.riak_playbook import LOCATION
from orchestrator.engine.kinds.elasticsearch.settings import AWARENESS, awareness_of
from orchestrator.engine.kinds.kind import kind_of
from orchestrator.engine.kinds.predicates import Predicate
from orchestrator.engine.waves import selected, undated, unmatched
from orchestrator.errors import UsageError
from orchestrator.merging.rules import OWN_RULES
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView, Look, SettingsView
from orchestrator.model.policy import Kind, Policy, Strategy
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.connection import ClusterPorts


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
    return (*kind_of(kind).predicates, *(OWN_RULES if kind is Kind.ELASTICSEARCH else ()))


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


def require_same(ports: ClusterPorts, run: str, started: RunStarted) -> None:
    """Refuse a cluster other than the run's own. A cluster that cannot be read may be the same.

    Args:
        ports: of the cluster as its file is now.
        run: the run's id.
        started: how it began.

    Raises:
        UsageError: the file names another cluster, or another one answers at its endpoints.
    """
    require_answers_as(ports, ports.cluster.observe({Look.CLUSTER}).cluster, run, started)


def require_answers_as(
    ports: ClusterPorts, read: Reading[ClusterView], run: str, started: RunStarted
) -> None:
    """The same by a reading that was done already; raises what `require_same` raises."""
    began = f"run {run} began on cluster {started.cluster!r}"
    if ports.name != started.cluster:
        raise UsageError(f"{ports.source}: `name` is {ports.name!r}, and {began}; correct `name`")
    if isinstance(read, Unknown) or read.master is None:
        return
    if read.name != started.cluster:
        raise UsageError(f"{ports.source}: {read.name!r} answers at its endpoints, and {began}")
    if started.cluster_uuid and read.uuid != started.cluster_uuid:
        raise UsageError(
            f"{ports.source}: a cluster of that name and of uuid {read.uuid} answers at its endpoints, and "
            f"{began} of uuid {started.cluster_uuid}; correct `endpoints`"
        )


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
    if policy.kind is Kind.RIAK:
        _require_locations(view)
        return
    what_to_do = f"set `zone_attribute` in {file}, or `{AWARENESS}` in the cluster"
    if policy.zone_attribute is None and isinstance(settings, Unknown):
        raise UsageError(
            f"strategy zone: the cluster's settings cannot be read ({settings.reason}), so its zones are not "
            f"known: set `zone_attribute` in {file}"
        )
    if policy.zone_attribute is None:
        raise UsageError(
            f"strategy zone: the cluster has no awareness attribute that names zones: {what_to_do}"
        )
    if all(node.zone(policy.zone_attribute) is None for node in view.nodes):
        known = ", ".join(sorted({name for node in view.nodes for name in node.attributes})) or "none"
        raise UsageError(
            f"strategy zone: no node has the attribute {policy.zone_attribute!r}; attributes of the nodes: "
            f"{known}; {what_to_do}"
        )


def _require_locations(view: ClusterView) -> None:
    if all(node.zone(LOCATION) is None for node in view.nodes):
        raise UsageError(
            f"strategy zone: no member of {view.name} has a location, which is what Riak has for zones "
            "(from 3.0 on): set them in the cluster, or use --strategy node or shard-safe"
        )


def _without_locations(view: ClusterView, policy: Policy) -> bool:
    """Whether no member of a ring has a location, so that only preference lists keep its nodes apart.

    A member that is down has its location too. With an unknown one the run keeps to locations.
    """
    if policy.kind is not Kind.RIAK or view.riak is None or isinstance(view.riak.cluster, Unknown):
        return False
    return all(member.location is None for member in view.riak.cluster.members)


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
    missing = unmatched(view, policy.selection)
    names = ", ".join(sorted(node.name for node in view.nodes))
    if missing:
        wanted = policy.expect_nodes
        few = wanted is not None and len(view.nodes) < wanted
        down = f": {wanted} are expected, so start what is down" if few else ""
        raise UsageError(f"no node is called {', '.join(missing)}; the cluster has {names}{down}")
    zones = sorted({zone for node in view.nodes if (zone := node.zone(attribute)) is not None})
    if policy.selection.zone is not None and policy.selection.zone not in zones:
        of = f"node attribute {attribute!r}" if attribute else "no node attribute: set `zone_attribute`"
        there = f"the zones are {', '.join(zones)}" if zones else "no node has a zone"
        raise UsageError(f"no node is in zone {policy.selection.zone}; {there} ({of})")
    nodes = selected(view, policy.selection, attribute)
    if not nodes and not _some_but_not_due(view, policy):
        raise UsageError(f"the selection leaves no node to restart; the cluster has {names}")
    if policy.strategy is Strategy.SHARD_SAFE and _without_locations(view, policy):
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
        look = "" if policy.kind is Kind.RIAK else "see whether `GET /_nodes/jvm` lists it, then "
        raise UsageError(
            f"--started-before: {', '.join(unknown)} did not show when the process started, and no other "
            f"node is due: {look}try again"
        )
    return selection.started_before is not None and bool(
        selected(view, replace(selection, started_before=None), attribute)
    )
