"""The order of the nodes: what serves least first, voters late, the elected master last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.waves import in_order, next_wave, selected, unmatched
from orchestrator.model.cluster import Incarnation, Node, NodeName, Role, Zone
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Selection
from orchestrator.simulation import views
from orchestrator.simulation.run import Simulation
from tests.simulation.play import cluster, policy

D, M = Role.DATA, Role.MASTER


def _node(name: str, *roles: Role, started: int = 1000, zone: str = "a") -> Node:
    return Node(
        name=NodeName(name),
        node_id=f"id-{name}",
        incarnation=Incarnation(ephemeral_id=name, started_at_ms=started),
        roles=frozenset(roles),
        version="9.1.0",
        address=name,
        attributes={"zone": zone},
    )


@pytest.mark.parametrize(
    ("nodes", "master", "order"),
    [
        ([_node("b", D), _node("a", D)], None, "a b"),
        ([_node("a", D), _node("z", Role.COORDINATING)], None, "z a"),
        ([_node("a", Role.ML), _node("b", Role.INGEST), _node("c", D)], None, "a b c"),
        ([_node("a", M), _node("b", D)], "a", "b a"),
        ([_node("a", D, M), _node("b", D, M), _node("c", D, M)], "a", "b c a"),
        ([_node("a", D, M), _node("b", D, M), _node("c", D, M)], "b", "a c b"),
        (
            [
                _node("a", Role.DATA_CONTENT),
                _node("b", Role.DATA_HOT),
                _node("c", Role.DATA_WARM),
                _node("d", Role.DATA_COLD),
                _node("e", Role.DATA_FROZEN),
                _node("f", D),
            ],
            None,
            "e d c b a f",
        ),
        # A node of several tiers goes with the last of them.
        ([_node("a", Role.DATA_HOT, Role.DATA_CONTENT), _node("b", Role.DATA_HOT)], None, "b a"),
        ([_node("a", M), _node("b", D, M), _node("c", D)], "a", "c b a"),
    ],
)
def test_order(nodes: list[Node], master: str | None, order: str) -> None:
    placed = in_order(tuple(nodes), NodeName(master) if master else None)
    assert " ".join(node.name for node in placed) == order


def _view(*nodes: Node) -> ClusterView:
    return replace(views.cluster(cluster(3)), nodes=nodes, master=None)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(), "es1 es2 web1"),
        (Selection(only=("es*",)), "es1 es2"),
        (Selection(only=("es1", "web1")), "es1 web1"),
        (Selection(exclude=("es*",)), "web1"),
        (Selection(only=("es*",), exclude=("es1",)), "es2"),
        (Selection(zone=Zone("b")), "es2"),
        (Selection(started_before=5.0), "es1"),
        (Selection(only=("ES*",)), ""),
    ],
)
def test_selection(selection: Selection, names: str) -> None:
    view = _view(
        _node("es1", D, started=1_000),
        _node("es2", D, started=9_000, zone="b"),
        _node("web1", D, started=9_000),
    )
    assert " ".join(node.name for node in selected(view, selection, "zone")) == names


def test_a_node_whose_start_nobody_knows_is_not_older_than_anything() -> None:
    nameless = replace(_node("es1", D), incarnation=Incarnation(ephemeral_id="x"))
    assert selected(_view(nameless), Selection(started_before=1e12), None) == ()


def test_names_that_match_nothing_are_told() -> None:
    view = _view(_node("es1", D))
    assert unmatched(view, Selection(only=("es1", "es9"), exclude=("web*",))) == ("es9", "web*")


def test_one_pending_node_at_a_time_and_none_at_the_end() -> None:
    world = cluster(3)
    state, view = Simulation(world).begin(policy(zone_attribute="zone")), views.cluster(world)
    first = next_wave(state, view)
    assert first is not None
    assert (first.number, first.nodes, first.zone) == (1, ("es2",), "b")
    done = {n.name: replace(n, phase=NodePhase.RECOVERED) for n in state.nodes.values()}
    assert next_wave(replace(state, nodes=done), view) is None


def test_a_pending_node_that_is_away_keeps_its_place_behind_those_present() -> None:
    world = cluster(3)
    state, view = Simulation(world).begin(policy()), views.cluster(world)
    without = replace(view, nodes=tuple(node for node in view.nodes if node.name != "es2"))
    chosen = next_wave(state, without)
    assert chosen is not None
    assert chosen.nodes == ("es3",)
    chosen = next_wave(state, replace(view, nodes=()))
    assert chosen is not None
    assert chosen.nodes == ("es2",)
