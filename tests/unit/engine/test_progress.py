"""The nodes of a run: whatever changes, each phase and each mark has exactly the nodes that it should."""

from __future__ import annotations

import random

import pytest

from orchestrator.engine.progress import FINAL_NODE_PHASES, Mark, NodeProgress, Nodes
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import NodePhase
from orchestrator.model.turn import REBOOT, RESTART, TUNING, Doubt, Installing, Owed, Verb, Work

NAMES = [NodeName(f"es{number}") for number in range(12)]
UNDO = Owed(work=Work.UNDO, number=1)
EXPECTED = {
    Mark.OPEN: lambda node: node.doubt is not None or node.lost_at is not None,
    Mark.AWAKE: lambda node: (
        node.doubt is not None
        or node.lost_at is not None
        or (
            RESTART not in node.owed
            if node.phase is NodePhase.PENDING
            else node.phase not in FINAL_NODE_PHASES
        )
    ),
    Mark.INSTALLS: lambda node: node.install is not None,
    Mark.REBOOTS: lambda node: REBOOT in node.owed,
    Mark.UNDOES: lambda node: UNDO in node.owed,
}


def _node(dice: random.Random, name: NodeName) -> NodeProgress:
    return NodeProgress(
        name=name,
        phase=dice.choice([*NodePhase]),
        doubt=dice.choice([None, None, Doubt(verb=Verb.STOP, since=1.0)]),
        lost_at=dice.choice([None, None, 2.0]),
        owed=frozenset(item for item in (RESTART, REBOOT, TUNING, UNDO) if dice.random() < 1 / 2),
        install=dice.choice([None, Installing(number=0, ticket="t", since=1.0)]),
        returns=dice.randint(0, 9),
    )


@pytest.mark.parametrize("seed", range(20))
def test_each_part_has_its_nodes_in_the_order_of_the_run(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  (repeatable)
    nodes, all_ = Nodes(_node(dice, name) for name in NAMES), dict[NodeName, NodeProgress]()
    all_ = dict(nodes)
    for _ in range(30):
        new = [_node(dice, name) for name in dice.sample(NAMES, dice.randint(0, 4))]
        before, kept = nodes, dict(nodes)
        nodes = nodes.changed(*new)
        all_ |= {node.name: node for node in new}
        assert dict(before) == kept, "what was made of it changes nothing in it"
        assert (dict(nodes), list(nodes), nodes.names) == (all_, NAMES, before.names)
        for mark, wanted in EXPECTED.items():
            assert nodes.of(mark) == tuple(node for node in all_.values() if wanted(node)), mark
        for phases in ([phase] for phase in NodePhase):
            assert nodes.of(*phases) == tuple(node for node in all_.values() if node.phase in phases)
        some = dice.sample([*NodePhase], 3)
        assert nodes.of(*some) == tuple(node for node in all_.values() if node.phase in some)


def test_a_node_of_another_run_is_refused() -> None:
    with pytest.raises(KeyError):
        Nodes([NodeProgress(name=NAMES[0])]).changed(NodeProgress(name=NAMES[1]))
