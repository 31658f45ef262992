"""Outputs of a Riak cluster of three nodes, and the dialects of its versions."""

from __future__ import annotations

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import HASH_SPACE, NodeStats, Ring
from orchestrator.stores.riak.dialect import Dialect, dialect_of
from orchestrator.stores.riak.output import CommandOutput
from tests.fakes.riak_rings import claimed, names

ONE, TWO, THREE = names(3)


def dialect(version: str) -> Dialect:
    found = dialect_of(version)
    assert found is not None
    return found


V20, V29, V30, V32 = (dialect(version) for version in ("2.0.0", "2.9.10", "3.0.16", "3.2.1"))


def out(text: str, exit_code: int | None = 0, stderr: str = "") -> CommandOutput:
    return CommandOutput(exit=exit_code, stdout=text, stderr=stderr)


OLD_NODES = """================================= Membership ==================================
Status     Ring    Pending    Node
-------------------------------------------------------------------------------
valid      50.0%      --      'riak1@10.0.0.1'
leaving    50.0%      --      'riak2@10.0.0.2'
-------------------------------------------------------------------------------
Valid:1 / Leaving:1 / Exiting:0 / Joining:0 / Down:0
"""


LOCATED = """---- Cluster Status ----
Ring ready: true

+----------------------+------+-------+-----+-------+--------+
|         node         |status| avail |ring |pending|location|
+----------------------+------+-------+-----+-------+--------+
| (C) riak1@10.0.0.1   |valid |  up   | 50.0|  --   | rack a |
|     riak2@10.0.0.2   |valid |  up   | 50.0|  --   | rack b |
+----------------------+------+-------+-----+-------+--------+

Key: (C) = Claimant; availability marked with '!' is unexpected
"""


RING = claimed(3, 16)
STATS = NodeStats(
    node=ONE,
    kv_vnodes=6,
    connected=frozenset({TWO, THREE}),
    members=frozenset({ONE, TWO, THREE}),
    ring_size=16,
    ownership=RING.ownership,
)


def owned(ring: Ring = RING) -> dict[NodeName, frozenset[int]]:
    step = HASH_SPACE // ring.size
    return {
        node: frozenset(number * step for number, owner in enumerate(ring.owners) if owner == node)
        for node in ring.ownership
    }


def partitions_text(node: NodeName, indices: frozenset[int], end: str = "ok\n") -> str:
    rows = [("primary", str(index), "0") for index in sorted(indices)[1:]]
    rows += [("secondary", "--", "--"), ("stopped", str(min(indices)), "0")]
    border = f"+---------+{'-' * 49}+--+\n"
    lines = "".join(f"|{kind:^9}|{index:^49}|{number:^2}|\n" for kind, index, number in rows)
    head = f"|{'type':^9}|{'index':^49}|id|\n"
    return f"Partitions owned by '{node}':\n{border}{head}{border}{lines}{border}\n{end}"
