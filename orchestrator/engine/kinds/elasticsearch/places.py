"""Whether some node may take one more copy of a shard: by its version, and by awareness.

Asked for every copy without a node of a large cluster. Nodes of one kind, with the same version and values of
the awareness attributes, are counted, not visited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.observation import ClusterView, Members
from orchestrator.model.policy import Policy
from orchestrator.model.remembered import for_the_same_objects


@lru_cache(maxsize=64)
def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers; what is not a number (`-SNAPSHOT`) counts as nothing."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


def has_a_place(policy: Policy, view: ClusterView, shard: ShardId) -> bool:
    """Whether some data node may take one more copy. `expected_nodes_present` handles absent nodes.

    In an upgrade, a node that is older than the node of the primary may not: the copy stays unassigned until
    more nodes are upgraded.
    """
    copies, room = view.routing.table[shard], _room(policy, view.members)
    source = next((copy.node for copy in copies if copy.primary), None)
    primary = None if source is None else view.node(source)
    index = view.metadata.get(shard.index_uuid)
    return room.has_a_place(
        tuple([room.kinds.get(copy.node) for copy in copies]),
        None if primary is None else primary.version,
        everywhere=index is not None and (index.auto_expand or "").endswith("-all"),
    )


_Kind = tuple[tuple[int, ...], tuple[str | None, ...]]
"""The version of a data node and its values of the awareness attributes."""


class _Room:
    """The data nodes of a cluster by kind. The answer is the same for shards on nodes of the same kinds."""

    def __init__(self, policy: Policy, members: Members) -> None:
        self._policy = policy
        self.kinds: dict[NodeName | None, _Kind] = {
            node.name: (
                version_key(node.version),
                tuple(node.attributes.get(each) for each in policy.awareness.attributes),
            )
            for node in members.values()
            if node.holds_data
        }
        self._nodes = Counter(self.kinds.values())
        self._known: dict[tuple[object, ...], bool] = {}

    def has_a_place(self, copies: tuple[_Kind | None, ...], source: str | None, *, everywhere: bool) -> bool:
        """Whether some data node may take one more copy of a shard.

        Args:
            copies: the kinds of the nodes of its copies; None for one without a data node.
            source: the version of the primary's node.
            everywhere: it is on all nodes, regardless of awareness.
        """
        asked = (copies, source, everywhere)
        if asked not in self._known:
            least = () if source is None else version_key(source)
            attributes = () if everywhere else self._policy.awareness.attributes
            full = [self._full_values(copies, place) for place in range(len(attributes))]
            self._known[asked] = any(
                version >= least
                and count > copies.count((version, values))
                and not any(value in taken for value, taken in zip(values, full, strict=False))
                for (version, values), count in self._nodes.items()
            )
        return self._known[asked]

    def _full_values(self, copies: Sequence[_Kind | None], place: int) -> frozenset[str | None]:
        """The values of an awareness attribute that have their share of a shard's copies; None: no value.

        The share is that of Elasticsearch's `AwarenessAllocationDecider`: the copies over the values that are
        there and those that are forced, rounded up.
        """
        awareness, zones = self._policy.awareness, self._policy.zone_attribute
        forced = awareness.forced if awareness.attributes[place] == zones else ()
        there = (*(values[place] for _, values in self._nodes), *forced)
        values = {value for value in there if value is not None}
        here = Counter(kind[1][place] for kind in copies if kind is not None)
        full = (value for value in values if here[value] >= -(-len(copies) // len(values)))
        return frozenset({None, *full})


_room = for_the_same_objects(_Room)
