"""Whether some node may take one more copy of a shard: by its version, and by awareness.

Asked for every copy without a node of a large cluster. Nodes of one kind, with the same version and values of
the awareness attributes, are counted, not visited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.observation import ClusterView, Members
from orchestrator.model.policy import Policy
from orchestrator.model.remembered import for_the_same_objects


@lru_cache(maxsize=64)
def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers; what is not a number (`-SNAPSHOT`) counts as nothing."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


def places(policy: Policy, view: ClusterView) -> Callable[[ShardId], bool]:
    """Whether some data node may take one more copy of a shard, to be asked of many shards.

    In an upgrade, a node that is older than the node of the primary may not: the copy stays unassigned until
    more nodes are upgraded. `expected_nodes_present` handles absent nodes.
    """
    room, table, metadata = _room(policy, view.members), view.routing.table, view.metadata
    kind_of = room.kind_of.get

    def has_a_place(shard: ShardId) -> bool:
        kinds, source = list[int | None](), None
        for copy in table[shard]:
            kind = kind_of(copy.node)
            kinds.append(kind)
            if copy.primary and source is None:
                source = kind
        index = metadata.get(shard.index_uuid)
        everywhere = index is not None and (index.auto_expand or "").endswith("-all")
        return room.has_a_place(tuple(kinds), source, everywhere=everywhere)

    return has_a_place


_Kind = tuple[tuple[int, ...], tuple[str | None, ...]]
"""The version of a data node and its values of the awareness attributes."""


class _Room:
    """The data nodes of a cluster by kind. The answer is the same for shards on nodes of the same kinds.

    Attributes:
        kind_of: the number of each data node's kind.
    """

    def __init__(self, policy: Policy, members: Members) -> None:
        self._policy = policy
        kinds: dict[NodeName | None, _Kind] = {
            node.name: (
                version_key(node.version),
                tuple(node.attributes.get(each) for each in policy.awareness.attributes),
            )
            for node in members.values()
            if node.holds_data
        }
        self._nodes = Counter(kinds.values())
        self._kinds = tuple(self._nodes)
        numbers = {kind: number for number, kind in enumerate(self._kinds)}
        self.kind_of = {name: numbers[kind] for name, kind in kinds.items()}
        self._known: dict[tuple[object, ...], bool] = {}

    def has_a_place(self, copies: tuple[int | None, ...], source: int | None, *, everywhere: bool) -> bool:
        """Whether some data node may take one more copy of a shard.

        Args:
            copies: the kinds of the nodes of its copies; None for one without a data node.
            source: the kind of the primary's node.
            everywhere: it is on all nodes, regardless of awareness.
        """
        asked = (copies, source, everywhere)
        if asked not in self._known:
            held = [None if number is None else self._kinds[number] for number in copies]
            least = () if source is None else self._kinds[source][0]
            attributes = () if everywhere else self._policy.awareness.attributes
            full = [self._full_values(held, place) for place in range(len(attributes))]
            self._known[asked] = any(
                version >= least
                and count > held.count((version, values))
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
