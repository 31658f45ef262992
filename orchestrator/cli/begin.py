"""The beginning of a run: the first look at the cluster, the selection, the policy."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.config.policy import PredicateNames
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.elasticsearch.settings import AWARENESS
from orchestrator.engine.waves import selected, unmatched
from orchestrator.errors import UsageError
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Reading, Unknown

PREDICATE_NAMES = PredicateNames(
    known=tuple(rule.name for rule in PREDICATES),
    always_on=frozenset(rule.name for rule in PREDICATES if not rule.may_be_disabled),
)


def require_cluster(read: Reading[ClusterView], name: str, file: str) -> ClusterView:
    """The first reading of the cluster, if it is the one that the file names.

    Raises:
        UsageError: it cannot be read, or calls itself something else.
    """
    if isinstance(read, Unknown):
        raise UsageError(f"cluster {name} ({file}) cannot be read: {read.reason}")
    if read.name != name:
        raise UsageError(
            f"{file}: the cluster at these endpoints calls itself {read.name!r}, the file names {name!r}; "
            "correct `name` or `endpoints`"
        )
    return read


def awareness_attribute(settings: Reading[SettingsView]) -> str | None:
    """The cluster's own allocation awareness attribute; the first, if there are several."""
    value = None if isinstance(settings, Unknown) else settings.effective(AWARENESS)
    first = value[0] if isinstance(value, tuple) and value else value
    return first.split(",")[0].strip() or None if isinstance(first, str) else None


def start_of(
    view: ClusterView,
    settings: Reading[SettingsView],
    policy: Policy,
    *,
    operator: str,
    host: str,
    cluster_file: str,
) -> RunStarted:
    """The event with which a run begins.

    Raises:
        UsageError: the selection names a node that is not there, or selects none.
    """
    attribute = policy.zone_attribute or awareness_attribute(settings)
    policy = replace(policy, zone_attribute=attribute)
    missing = unmatched(view, policy.selection)
    names = ", ".join(sorted(node.name for node in view.nodes))
    if missing:
        raise UsageError(f"no node is called {', '.join(missing)}; the cluster has {names}")
    zones = sorted({zone for node in view.nodes if (zone := node.zone(attribute)) is not None})
    if policy.selection.zone is not None and policy.selection.zone not in zones:
        of = f"node attribute {attribute!r}" if attribute else "no node attribute: set `zone_attribute`"
        raise UsageError(
            f"no node is in zone {policy.selection.zone}; the zones are {', '.join(zones) or 'none'} ({of})"
        )
    nodes = selected(view, policy.selection, attribute)
    if not nodes:
        raise UsageError(f"the selection leaves no node to restart; the cluster has {names}")
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
