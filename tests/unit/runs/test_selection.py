"""How a run begins: which attribute names the zones, and what is told when none does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.errors import ExitCode, UsageError
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.policy import (
    Awareness,
    Kind,
    Policy,
    Selection,
    Strategy,
)
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.riak import LOCATION
from orchestrator.runs.selection import require_zones, start_of
from orchestrator.simulation import views
from tests.simulation.play import cluster, policy
from tests.simulation.ringed import FIVE, down, riak_policy, ringed

AWARE = SettingsView(files={AWARENESS: ("zone", "rack")})
UNREADABLE = Unknown(reason="403 forbidden")


def _view() -> ClusterView:
    return views.cluster(cluster(6))


def _started(settings: Reading[SettingsView], wanted: Policy) -> RunStarted:
    return start_of(_view(), settings, wanted, operator="ann", host="bastion", cluster_file="prod.yml")


def test_the_policy_says_what_zones_go_by(subtests: pytest.Subtests) -> None:
    for settings, chosen, attribute, awareness in [
        (AWARE, None, "zone", ("zone", "rack")),
        (AWARE, "rack", "rack", ("zone", "rack")),
        (SettingsView(), None, None, ()),
        (UNREADABLE, "rack", "rack", ()),
        (UNREADABLE, None, None, ()),
    ]:
        with subtests.test(settings=settings, chosen=chosen, attribute=attribute, awareness=awareness):
            started = _started(settings, policy(zone_attribute=chosen))
            assert started.policy.zone_attribute == attribute
            assert started.policy.awareness == Awareness(attributes=awareness)


def test_a_zone_among_names_of_nodes_is_one() -> None:
    view = _view()
    zone = next(zone for node in view.nodes if (zone := node.zone("zone")))
    for selection, hint in (
        (Selection(only=(zone,)), f"; {zone} is a zone: --zone {zone}"),
        (Selection(exclude=(zone,)), ""),
        (Selection(only=("es99",)), ""),
    ):
        with pytest.raises(UsageError, match="no node is called") as refused:
            _started(AWARE, policy(zone_attribute="zone", selection=selection))
        assert str(refused.value).endswith(f"es6{hint}")


SET_IT = "set `zone_attribute` in prod.yml"
IN_THE_CLUSTER = f"{SET_IT}, or `cluster.routing.allocation.awareness.attributes` in the cluster"


@pytest.mark.parametrize(
    ("settings", "chosen", "message"),
    [
        (SettingsView(), None, f"the cluster has no awareness attribute that names zones: {IN_THE_CLUSTER}"),
        (
            UNREADABLE,
            None,
            f"the cluster's settings cannot be read (403 forbidden), so its zones are not known: {SET_IT}",
        ),
        (
            AWARE,
            "rack",
            f"no node has the attribute 'rack'; attributes of the nodes: zone; {IN_THE_CLUSTER}",
        ),
    ],
)
def test_zones_that_nobody_names_are_refused_with_what_to_set(
    settings: Reading[SettingsView], chosen: str | None, message: str
) -> None:
    wanted = _started(settings, policy(strategy=Strategy.ZONE, zone_attribute=chosen)).policy
    with pytest.raises(UsageError) as caught:
        require_zones(_view(), settings, wanted, "prod.yml")
    assert str(caught.value) == f"strategy zone: {message}"
    assert caught.value.exit_code is ExitCode.USAGE
    require_zones(_view(), settings, replace(wanted, strategy=Strategy.NODE), "prod.yml")


def test_the_zones_of_riak_are_locations_or_are_refused() -> None:
    wanted = policy(kind=Kind.RIAK, strategy=Strategy.ZONE, zone_attribute=LOCATION)
    view = _view()
    with pytest.raises(UsageError) as caught:
        require_zones(view, SettingsView(), wanted, "ring.yml")
    assert str(caught.value) == (
        f"strategy zone: no member of {view.name} has a location, which is what Riak has for zones "
        "(from 3.0 on): set them in the cluster, or use --strategy node or shard-safe"
    )
    placed = replace(view.nodes[0], attributes={LOCATION: "rack1"})
    require_zones(replace(view, nodes=(placed, *view.nodes[1:])), SettingsView(), wanted, "ring.yml")
    require_zones(view, SettingsView(), replace(wanted, strategy=Strategy.NODE), "ring.yml")


@pytest.mark.parametrize("strategy", list(Strategy))
def test_without_locations_sets_are_kept_apart_by_lists(strategy: Strategy) -> None:
    """One member with a location is enough, also while it is down. With an unread ring locations count."""
    wanted = riak_policy(strategy=strategy)
    bare, placed = ringed(), ringed()
    placed.nodes[FIVE].zone = "rack1"
    away = ringed()
    away.nodes[FIVE].zone = "rack1"
    down(away, FIVE)
    unread = views.cluster(bare)
    assert unread.riak is not None
    unread = replace(unread, riak=replace(unread.riak, cluster=UNREADABLE))
    for view, attribute in [
        (views.cluster(bare), None if strategy is Strategy.SHARD_SAFE else LOCATION),
        (views.cluster(placed), LOCATION),
        (views.cluster(away), LOCATION),
        (unread, LOCATION),
    ]:
        started = start_of(view, SettingsView(), wanted, operator="ann", host="b", cluster_file="ring.yml")
        assert started.policy.zone_attribute == attribute


def test_a_zone_that_is_not_there_is_refused_with_those_that_are() -> None:
    wanted = policy(selection=Selection(zone="d"))
    with pytest.raises(UsageError, match=r"no node is in zone d; the zones are a, b, c \(node attribute"):
        _started(AWARE, wanted)
    with pytest.raises(UsageError, match=r"no node is in zone d; no node has a zone \(no node attribute"):
        _started(SettingsView(), wanted)
