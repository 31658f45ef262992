"""The order of the nodes: what serves least first, voters late, the elected master last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from orchestrator.elasticsearch.rules.kind import Elasticsearch
from orchestrator.engine.largest_safe import Bound
from orchestrator.engine.progress import NodeProgress, Nodes
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import (
    Ask,
    Choice,
    in_order,
    next_wave,
    node_wave,
    selected,
    shard_safe_wave,
    undated,
    zone_wave,
)
from orchestrator.model.cluster import Incarnation, Node, NodeName, Role, Zone
from orchestrator.model.event import Hold
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import (
    Awareness,
    Policy,
    Selection,
    Strategy,
    Wave,
)
from orchestrator.simulation import views
from tests.simulation.play import cluster, policy
from tests.simulation.upgrading import upgrading
from tests.states import state_with
from tests.unit.engine.asking import begun

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


ROLES = {"d": D, "m": M, **{role.value.removeprefix("data_"): role for role in Role}}


def _nodes(text: str) -> tuple[Node, ...]:
    """`a=d,m@z b=hot c@-`: a node with data and a vote in zone z, one of a tier in zone a, and one bare."""
    made = []
    for word in text.split():
        named, _, zone = word.partition("@")
        name, _, roles = named.partition("=")
        node = _node(name, *(ROLES[role] for role in roles.split(",") if role), zone=zone or "a")
        made.append(replace(node, attributes={}) if zone == "-" else node)
    return tuple(made)


def test_order(subtests: pytest.Subtests) -> None:
    for nodes, master, order in [
        ("b=d a=d", None, "a b"),
        ("a=d z", None, "a z"),
        ("a=ml b=ingest c=d", None, "c a b"),
        ("a=m b=d", "a", "b a"),
        ("a=d,m b=d,m c=d,m", "a", "b c a"),
        ("a=d,m b=d,m c=d,m", "b", "a c b"),
        ("a=content b=hot c=warm d=cold e=frozen f=d", None, "e d c b a f"),
        ("a=hot,content b=hot", None, "b a"),  # a node of several tiers goes with the last of them
        ("a=m b=d,m c=d", "a", "c b a"),
    ]:
        with subtests.test(nodes=nodes, master=master):
            placed = in_order(_nodes(nodes), NodeName(master) if master else None)
            assert " ".join(node.name for node in placed) == order


def _view(*nodes: Node) -> ClusterView:
    return replace(views.cluster(cluster(3)), nodes=nodes, master=None)


def test_selection(subtests: pytest.Subtests) -> None:
    for selection, names in [
        (Selection(), "es1 es2 web1"),
        (Selection(only=("es*",)), "es1 es2"),
        (Selection(only=("es1", "web1")), "es1 web1"),
        (Selection(exclude=("es*",)), "web1"),
        (Selection(only=("es*",), exclude=("es1",)), "es2"),
        (Selection(zone=Zone("b")), "es2"),
        (Selection(started_before=5.0), "es1"),
        (Selection(only=("ES*",)), ""),
        (Selection(only=("es[12]",), exclude=("es[1]",)), "es2"),
    ]:
        with subtests.test(selection=selection, names=names):
            view = _view(
                _node("es1", D, started=1_000),
                _node("es2", D, started=9_000, zone="b"),
                _node("web1", D, started=9_000),
            )
            assert " ".join(node.name for node in selected(view, selection, "zone")) == names


def test_a_node_with_an_unknown_start_is_not_older() -> None:
    nameless = replace(_node("es1", D), incarnation=Incarnation(ephemeral_id="x"))
    view = _view(nameless, _node("es2", D, started=9_000))
    assert [node.name for node in selected(view, Selection(started_before=1e12), None)] == ["es2"]
    assert undated(view, Selection(started_before=1e12), None) == ("es1",)
    assert undated(view, Selection(), None) == ()
    assert undated(view, Selection(only=("es2",), started_before=1e12), None) == ()
    chosen = Selection(only=("es1", "es9"), exclude=("web*",))
    assert chosen.unmatched([node.name for node in view.nodes]) == ("es9", "web*")


def test_a_name_with_brackets_means_the_node_of_that_name() -> None:
    named = NodeName("es[1]")
    assert Selection(only=("es[1]",)).names(named)
    assert not Selection(exclude=("es[1]",)).names(named)
    assert Selection(only=("es[1]",)).unmatched([named]) == ()


def _anything(_: Wave) -> tuple[Hold, ...]:
    """Rules that let every set pass."""
    return ()


ZONES = policy(strategy=Strategy.ZONE, max_unavailable=None, zone_attribute="zone")


def _choice(
    *nodes: Node,
    master: str | None = None,
    pending: Sequence[str] = (),
    ask: Ask = _anything,
    most: int | None = None,
    wanted: Policy = ZONES,
    machines: tuple[tuple[str, ...], ...] = (),
) -> Choice:
    place = NodeName(master) if master else None
    order = [node.name for node in in_order(nodes, place)]
    return Choice(
        number=1,
        pending=tuple(name for name in order if not pending or name in pending),
        members={node.name: node for node in nodes},
        master=place,
        policy=wanted,
        words=Elasticsearch.words,
        most=most,
        ask=ask,
        machines=tuple(tuple(map(NodeName, machine)) for machine in machines),
    )


def _zone_wave(*nodes: Node, **changes: Any) -> Wave:
    return zone_wave(_choice(*nodes, **changes))


def _refusing(*sets: str) -> Ask:
    """Rules that refuse every wave with all nodes of one of these sets in it."""

    def ask(wave: Wave) -> tuple[Hold, ...]:
        return tuple(
            Hold(predicate="rule", subject=f"index {together}", evidence="two copies")
            for together in sets
            if set(together.split("+")) <= set(wave.nodes)
        )

    return ask


SIX = tuple(_node(f"es{n}", D, M, zone="abc"[(n - 1) % 3]) for n in range(1, 7))


def test_the_next_zone(subtests: pytest.Subtests) -> None:
    six = "es1=d,m@a es2=d,m@b es3=d,m@c es4=d,m@a es5=d,m@b es6=d,m@c"
    for what, nodes, master, wave in [
        ("by name", six, None, "a: es1 es4"),
        ("that of the elected master last", six, "es1", "b: es2 es5"),
        ("that of the elected master last", six, "es2", "a: es1 es4"),
        ("one without votes first, whatever its name", "es1=d,m@a es2=d@b", None, "b: es2"),
        ("one without votes first, whatever its name", "es1=d,m@a es2=d@b c@z", None, "b: es2"),
        ("a zone goes when its last node would", "es1=d,m@a c@z", None, "z: c"),
        ("the zone whose last tier comes first", "h=hot@a c=cold@b", None, "b: c"),
        ("the zone whose last tier comes first", "h=hot@a c=cold@a w=warm@b", None, "b: w"),
        ("all roles, in the order of nodes", "m1=m@a d1=d@a c1@a m2=m@b", "m2", "a: d1 c1 m1"),
        ("the elected master last in its zone", "es1=d,m@a es4=d,m@a", "es1", "a: es4 es1"),
        ("without a zone: alone, in its own place", "es1=d,m@a x=d,m@- y=d,m@-", None, "-: x"),
        ("without a zone: alone, in its own place", "es1=d@a x=d,m@-", None, "a: es1"),
    ]:
        with subtests.test(what, nodes=nodes, master=master):
            chosen = _zone_wave(*_nodes(nodes), master=master)
            assert f"{chosen.zone or '-'}: {' '.join(chosen.nodes)}" == wave


FOUR = tuple(_node(f"es{n}", D, M, zone="a") for n in range(1, 5))


def test_a_zone_is_made_smaller_in_order_with_the_reason(subtests: pytest.Subtests) -> None:
    for refused, most, nodes, why in [
        ((), None, "es1 es2 es3 es4", "all of zone a"),
        (("es1+es2",), None, "es1 es3 es4", "zone a without es2 (rule: index es1+es2: two copies)"),
        (("es2+es3",), None, "es1 es2 es4", "zone a without es3 (rule: index es2+es3: two copies)"),
        (
            ("es3", "es4"),
            None,
            "es1 es2",
            "zone a without es3 (rule: index es3: two copies) and es4 (rule: index es4)",
        ),
        (
            ("es1+es2", "es1+es4"),
            3,
            "es1 es3",
            "zone a without es2 (rule: index es1+es2: two copies) and es4 (rule: index es1+es4)",
        ),
        # A canary whose first node is held takes the next.
        (("es1",), 1, "es2", "zone a without es1 (rule: index es1: two copies)"),
        (("es1",), 2, "es2 es3", "zone a without es1 (rule: index es1: two copies)"),
        (("es1",), None, "es2 es3 es4", "zone a without es1 (rule: index es1: two copies)"),
        (("es1", "es2", "es3", "es4"), None, "es1", "the first of zone a: held even alone"),
        ((), 2, "es1 es2", "2 nodes of zone a, then a pause (--pause-after)"),
        ((), 9, "es1 es2 es3 es4", "all of zone a"),
    ]:
        with subtests.test(refused=refused, most=most, nodes=nodes, why=why):
            wave = _zone_wave(*FOUR, ask=_refusing(*refused), most=most)
            assert (" ".join(wave.nodes), wave.why) == (nodes, why)

    def too_many(wave: Wave) -> tuple[Hold, ...]:
        over = len(wave.nodes) > 2
        return (Hold(predicate="capacity_remains", subject="tier data", evidence="few"),) if over else ()

    for_one_reason = "zone a without es3, es4 (capacity_remains: tier data: few)"
    assert _zone_wave(*FOUR, ask=too_many).why == for_one_reason


def test_what_the_cluster_says_of_zones_is_said(subtests: pytest.Subtests) -> None:
    for awareness, said in [
        (Awareness(), "all of zone a"),
        (Awareness(attributes=("zone",)), "all of zone a"),
        (
            Awareness(attributes=("zone", "rack")),
            "all of zone a; awareness goes by zone, rack: waves stay within one zone",
        ),
        (
            Awareness(attributes=("zone",), forced=(Zone("a"), Zone("b"))),
            "all of zone a; forced awareness: other zones take no more than their share of its copies",
        ),
        (Awareness(attributes=("zone",), forced=(Zone("b"),)), "all of zone a"),
    ]:
        with subtests.test(awareness=awareness, said=said):
            assert _zone_wave(*SIX, wanted=replace(ZONES, awareness=awareness)).why == said


def _zone_run(**fields: object) -> tuple[RunState, ClusterView]:
    world = cluster(6)
    state = begun(world, ZONES)
    return state_with(state, **fields), views.cluster(world)


def test_a_wave_is_at_most_what_was_planned(subtests: pytest.Subtests) -> None:
    for planned, wave in [
        ((), "es2 es5"),
        (("es2 es5", "es3 es6", "es4 es1"), "es2 es5"),
        (("es2", "es5", "es3 es6", "es4 es1"), "es2"),
        (("es5", "es2", "es3 es6", "es4 es1"), "es2"),
        # The plan ended in a canary: what it does not name is bounded among itself.
        (("es2",), "es2"),
        (("es3 es6",), "es2 es5"),
        (("es5",), "es2"),
    ]:
        with subtests.test(planned=planned, wave=wave):
            groups = tuple(tuple(NodeName(name) for name in group.split()) for group in planned)
            state, view = _zone_run(planned=groups)
            chosen = next_wave(state, view, _anything, Elasticsearch.words)
            assert chosen is not None
            assert " ".join(chosen.nodes) == wave


def _against(*names: str, rule: str = "busy", others_first: bool = False) -> Ask:
    """A rule about waves that is against these nodes, wherever they go."""

    def ask(wave: Wave) -> tuple[Hold, ...]:
        held = [name for name in wave.nodes if name in names]
        return tuple(
            Hold(predicate=rule, subject=name, evidence="merges", others_first=others_first) for name in held
        )

    return ask


def test_a_busy_node_is_passed_over_within_its_rank() -> None:
    """b and c are data nodes, d has a vote, e is the elected master: neither of these goes before b and c.

    A machine is passed over whole.
    """
    world = (*(_node(name, D) for name in "bc"), *(_node(name, D, M) for name in "de"))
    wanted = policy(strategy=Strategy.NODE)
    for busy, goes in (("", "b"), ("b", "c"), ("c", "b"), ("bc", "b"), ("bcd", "b")):
        for pending, first in (("bcde", goes), ("de", "d"), ("e", "e")):
            choice = _choice(*world, master="e", pending=pending, ask=_against(*busy), wanted=wanted)
            assert node_wave(choice).nodes == (first,), (busy, pending)
    three = tuple(_node(name, D) for name in "abc")
    choice = _choice(*three, ask=_against("a"), machines=(("a", "b"),), wanted=wanted)
    assert node_wave(choice).nodes == ("c",)


def test_a_rank_goes_early_only_where_others_are_to_go_first() -> None:
    """Copies that do not return hold their node; the dedicated master d goes early only if they need it."""
    world = (*(_node(name, D, zone="a") for name in "bc"), *(_node(name, M, zone="z") for name in "de"))
    for first, goes in ((False, "b"), (True, "d")):
        ask = _against("b", "c", rule="copies_can_return", others_first=first)
        for strategy, wave_of in ((Strategy.NODE, node_wave), (Strategy.ZONE, zone_wave)):
            wanted = policy(strategy=strategy, zone_attribute="zone")
            choice = _choice(*world, master="e", ask=ask, wanted=wanted)
            assert wave_of(choice).nodes[0] == goes, (strategy, first)


def test_a_set_that_is_held_is_passed_over_within_its_rank() -> None:
    """No two of these may go together; d is a dedicated master. A bound makes each a set of its own."""
    world = (*(_node(name, D) for name in "bc"), _node("d", M))
    wanted = policy(strategy=Strategy.SHARD_SAFE, max_unavailable=None, zone_attribute=None)
    alone = Bound(name="alone", counts=dict.fromkeys(map(NodeName, "bcd"), 1), most=1)
    for held, first, goes in (("", False, "b"), ("b", False, "c"), ("bc", False, "b"), ("bc", True, "d")):
        ask = _against(*held, others_first=first)
        choice = replace(_choice(*world, ask=ask, wanted=wanted), bounds=lambda: (alone,))
        assert shard_safe_wave(choice).nodes == (goes,), (held, first)


def _of_six(wanted: Policy, half: NodeProgress) -> RunState:
    """A run of six nodes, of which one is like this."""
    nodes = Nodes(NodeProgress(name=node.name) for node in SIX)
    return replace(begun(cluster(3), wanted), nodes=nodes.changed(half))


def test_the_set_with_a_half_installed_node_is_the_first() -> None:
    """In order es5 and es1 would go together, and the others need two sets more. By degree es5 comes last."""
    sides = ("es5", "es2", "es4"), ("es1", "es3", "es6")
    pairs = [(one, other) for one, other in product(*sides) if sides[0].index(one) != sides[1].index(other)]
    pairs += [pair for pair in pairs if "es5" not in pair]
    apart = [Bound(name="pair", counts=dict.fromkeys(map(NodeName, pair), 1), most=1) for pair in pairs]
    wanted = upgrading(strategy=Strategy.SHARD_SAFE, zone_attribute=None, max_unavailable=None)
    state = _of_six(wanted, NodeProgress(name=NodeName("es5"), installs=1))
    wave = next_wave(state, _view(*SIX), _anything, Elasticsearch.words, bounds=lambda: apart)
    assert wave is not None
    assert set(wave.nodes) == set(sides[0])
