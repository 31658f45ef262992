"""Would this copy of a shard return to this node? The allocation deciders of the server, for one copy.

A copy that goes down with its node comes back as a replica: a copy elsewhere has become the primary. The
server then asks each decider whether the node may have it. The only copy of a shard always returns: it is
forced onto the node that has it on disk, whatever the deciders say (`PrimaryShardAllocator`).

`DECIDERS` is the table. Its names are those of `GET _cluster/allocation/explain`; recorded answers are in
`tests/data/returning`. A decider agrees, refuses with its reason, or cannot be evaluated, which
never counts as agreeing. Predicates ask about a node before its stop, and recovery whether any node can hold
a copy that is missing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from orchestrator.elasticsearch.rules.settings import AWARENESS, FORCED_AWARENESS, count_of, listed
from orchestrator.model.cluster import Index, Node, NodeName, Role, ShardCopy, ShardId
from orchestrator.model.copies import Copies
from orchestrator.model.observation import ClusterView, Disk, Members, SettingsView, SettingValue
from orchestrator.model.policy import Policy, numbers
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.model.remembered import for_the_same_objects

Said = str | Unknown | None
"""What a decider says: why the node may not have the copy, or that it cannot be evaluated. None: it may."""

_PREFIX: Final = "cluster.routing.allocation."
_INDEX: Final = "index.routing.allocation."
_KINDS: Final = ("require", "include", "exclude")
_IPS: Final = ("_ip", "_host_ip", "_publish_ip")
_LOAD: Final = f"{_PREFIX}load_awareness.provisioned_capacity"


# The rules of indices and of the cluster ------------------------------------

Filters = Mapping[str, tuple[str, ...]]
"""Values by node attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRules:
    """`index.routing.allocation.*` of an index."""

    filters: Mapping[str, Filters] = field(default_factory=dict)  # by `require`, `include` and `exclude`
    most: int | None = None  # `total_shards_per_node`; None without a limit
    unknown: tuple[str, ...] = ()  # keys whose meaning is not known here


@lru_cache(maxsize=4096)
def rules_in(text: str) -> IndexRules:
    """The rules in the text of `Index.filters`.

    `initial_recovery` is about the first allocation of a shrunken index, `total_primary_shards_per_node`
    about primaries; flags that disable allocation are read as `Index.allocation_enable`.
    """
    given: object = json.loads(text) if text else {}
    filters: dict[str, Filters] = {}
    unknown: list[str] = []
    most: int | None = None
    for key, value in given.items() if isinstance(given, dict) else ():
        if key in _KINDS and isinstance(value, dict):
            filters[key] = {name: values for name, values in _flat(value) if values}
        elif key == "total_shards_per_node":
            most = _limit(str(value))
        elif key not in ("initial_recovery", "total_primary_shards_per_node") and "disable_" not in key:
            unknown.append(key)
    return IndexRules(filters=filters, most=most, unknown=tuple(unknown))


def _flat(given: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Filters by the whole name of their attribute: `{"rack": {"row": "r1"}}` is about `rack.row`."""
    for key, value in given.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", listed(tuple(map(str, value)) if isinstance(value, list) else str(value))


def _limit(value: SettingValue | None) -> int | None:
    """A limit of copies; none where it is absent, -1 or 0."""
    return count_of(value) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of the cluster."""

    tiers: bool  # whether the server knows the tiers of data nodes
    present: frozenset[Role]  # the roles of all members
    # by attribute, the values of the data nodes and those that are forced
    awareness: Mapping[str, frozenset[str]]
    disks: Reading[Mapping[NodeName, Disk]]  # of the nodes
    # why the settings were not read, from which the next ones are; None if they were
    unread: Unknown | None = None
    # by `require`, `include` and `exclude`; `most`: `total_shards_per_node`
    filters: Mapping[str, Filters] = field(default_factory=dict)
    most: int | None = None
    same_host: bool = False  # whether two copies of a shard may not be on one host
    by_load: bool = False  # whether OpenSearch allocates by the load of the nodes


def _rules(
    policy: Policy,
    members: Members,
    distribution: str,
    settings: Reading[SettingsView],
    disks: Reading[Mapping[NodeName, Disk]],
) -> Rules:
    known = None if isinstance(settings, Unknown) else settings
    attributes = policy.awareness.attributes if known is None else listed(known.effective(AWARENESS))
    data = [node for node in members.values() if node.holds_data]
    values = {
        name: {value for node in data if (value := node.attributes.get(name)) is not None}
        for name in attributes
    }
    rules = Rules(
        tiers=distribution != "opensearch",
        present=frozenset(role for node in members.values() for role in node.roles),
        awareness={
            name: frozenset(found).union(_forced(policy, known, name)) for name, found in values.items()
        },
        disks=disks,
        unread=settings if isinstance(settings, Unknown) else None,
    )
    if known is None:
        return rules
    return replace(
        rules,
        filters=cluster_filters(known),
        most=_limit(known.effective(f"{_PREFIX}total_shards_per_node")),
        same_host=known.effective(f"{_PREFIX}same_shard.host") == "true",
        by_load=_limit(known.effective(_LOAD)) is not None,
    )


def _forced(policy: Policy, settings: SettingsView | None, attribute: str) -> Sequence[str]:
    if settings is not None:
        return listed(settings.effective(f"{FORCED_AWARENESS}{attribute}.values"))
    return policy.awareness.forced if attribute == policy.zone_attribute else ()


def cluster_filters(settings: SettingsView, *, from_files: bool = True) -> Mapping[str, Filters]:
    """The filters of the cluster by `require`, `include`, `exclude`; those of elasticsearch.yml as well."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    files = settings.files if from_files else ()
    for key in sorted({*settings.persistent, *settings.transient, *files}):
        kind, _, attribute = key.removeprefix(_PREFIX).partition(".")
        if key.startswith(_PREFIX) and kind in _KINDS and (values := listed(settings.effective(key))):
            found.setdefault(kind, {})[attribute] = values
    return found


# The deciders ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One more copy of a shard, and a node that may hold it."""

    rules: Rules
    index: Index
    node: Node
    others: Sequence[Node] = ()  # the nodes of the other copies of the shard
    source: Node | None = None  # the node of its primary; None if it is not known
    of_index: int = 0  # copies of the index that the node has besides it; `of_all`: of all indices
    of_all: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """One decider of the server."""

    name: str  # as the server calls it
    says: Callable[[Case], Said]  # what it says of a case
    of_shard: bool = False  # it depends on where other copies are, not only on the index and the node
    # the predicate that names its refusal of the copy's own node before a stop
    predicate: str = "copies_can_return"


def matches(filters: Filters, node: Node, *, all_: bool) -> bool | Unknown:
    """Whether a node matches filters: all of them, with all of their values, or any value of any.

    Addresses are the exception: one of several is enough (`DiscoveryNodeFilters`).
    """
    unknown: Unknown | None = None
    for attribute, values in filters.items():
        hits = [_matches(attribute, value, node) for value in values]
        enough = any if attribute in _IPS or not all_ else all
        known = enough(hit is True for hit in hits)
        in_doubt = next((hit for hit in hits if isinstance(hit, Unknown)), None)
        if in_doubt is not None and not (known if enough is any else any(hit is False for hit in hits)):
            unknown = in_doubt
        elif known is not all_:
            return known
    return all_ if unknown is None else unknown


def _matches(attribute: str, pattern: str, node: Node) -> bool | Unknown:
    match attribute:
        case "_name" | "name":
            return _like(pattern, node.own_name or node.name)
        case "_id":
            return pattern == node.node_id  # without wildcards
        case "_ip" | "_host_ip" | "_publish_ip":
            return _like(_address(pattern), _address(node.address)) if node.address else _unread(node)
        case "_host" if node.address and _like(pattern, node.address):
            return True
        case "_host":
            return _like(pattern, node.host) if node.host else _unread(node)
        case "_tier":  # of the cluster; those of an index are `data_tier`'s
            return _has_tier(node.roles, pattern)
        case _:
            value = node.attributes.get(attribute)
            return value is not None and _like(pattern, value)


def _unread(node: Node) -> Unknown:
    return Unknown(reason=f"the host name or address of {node.name} was not read")


@lru_cache(maxsize=1024)
def _address(text: str) -> str:
    """An address as the server writes it: `::0001` is `::1`. A pattern stays as it is."""
    try:
        return str(ip_address(text))
    except ValueError:
        return text


def _like(pattern: str, text: str) -> bool:
    """The server's own patterns: `*` is any text, and nothing else is special."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def _enable(case: Case) -> Said:
    own = (case.index.allocation_enable or "all").lower()
    return None if own == "all" else f"{_INDEX}enable is {own}"


def _filter(case: Case) -> Said:
    rules, of_index = case.rules, rules_in(case.index.filters)
    in_cluster = rules.unread or _filtered(rules.filters, case.node, _PREFIX)
    in_index = _filtered(_less_tiers(of_index.filters), case.node, _INDEX)
    unknown = [f"{_INDEX}{key} is not known to this program" for key in of_index.unknown]
    return _first((in_cluster, in_index, *(Unknown(reason=reason) for reason in unknown)))


def refuses(kind: str, filters: Filters, node: Node) -> bool | Unknown:
    """Whether the filters of a kind (`require`, `include` or `exclude`) keep copies off a node."""
    hit = matches(filters, node, all_=kind == "require") if filters else kind != "exclude"
    return hit if isinstance(hit, Unknown) else hit is (kind == "exclude")


def _filtered(filters: Mapping[str, Filters], node: Node, prefix: str) -> Said:
    unknown: Unknown | None = None
    for kind, of_kind in filters.items():
        refused = refuses(kind, of_kind, node)
        if isinstance(refused, Unknown):
            unknown = refused
        elif refused:
            return " and ".join(f"{prefix}{kind}.{name} is {','.join(v)}" for name, v in of_kind.items())
    return unknown


def _less_tiers(filters: Mapping[str, Filters]) -> Mapping[str, Filters]:
    """The filters without those by tier, which `data_tier` decides on, and OpenSearch ignores."""
    return {
        kind: {name: values for name, values in of_kind.items() if not name.startswith("_tier")}
        for kind, of_kind in filters.items()
    }


def _data_tier(case: Case) -> Said:
    if not case.rules.tiers:
        return None
    filters = rules_in(case.index.filters).filters
    preferred = filters.get("include", {}).get("_tier_preference", ())
    if preferred:
        tier = next((name for name in preferred if _has_tier(case.rules.present, name)), None)
        if tier is None or not _has_tier(case.node.roles, tier):
            said = f"{_INDEX}include._tier_preference is {','.join(preferred)}"
            return said if tier is not None else f"{said}, and no node has one of these tiers"
    for kind, of_kind in filters.items():  # 7.10 to 7.17
        tiers = of_kind.get("_tier", ())
        hits = [_has_tier(case.node.roles, tier) for tier in tiers]
        if tiers and {"require": not all(hits), "include": not any(hits), "exclude": any(hits)}[kind]:
            return f"{_INDEX}{kind}._tier is {','.join(tiers)}"
    return None


def _has_tier(roles: frozenset[Role], tier: str) -> bool:
    return Role.DATA in roles or any(role.value == tier for role in roles)


def _same_shard(case: Case) -> Said:
    if any(other.name == case.node.name for other in case.others):
        return "it has a copy of the shard"
    on_host = [other for other in case.others if other.address and other.address == case.node.address]
    if case.rules.same_host and on_host:
        return f"{_PREFIX}same_shard.host is true, and {on_host[0].name} on its host has a copy"
    return case.rules.unread if on_host else None


def _shards_limit(case: Case) -> Said:
    most = rules_in(case.index.filters).most
    if most is not None and case.of_index >= most:
        return f"{_INDEX}total_shards_per_node is {most}"
    if case.rules.most is not None and case.of_all >= case.rules.most:
        return f"{_PREFIX}total_shards_per_node is {case.rules.most}"
    return case.rules.unread


def _awareness(case: Case) -> Said:
    """The share of a value is the copies over the values, rounded up; an index on all nodes has none."""
    if (case.index.auto_expand or "").endswith("-all"):
        return None
    for attribute, values in case.rules.awareness.items():
        value = case.node.attributes.get(attribute)
        if value is None:
            return f"it has no attribute {attribute}, which allocation awareness needs"
        share = -(-(case.index.replicas + 1) // len(values))
        if sum(other.attributes.get(attribute) == value for other in case.others) >= share:
            return f"by allocation awareness {attribute} {value} has its share of the copies"
    return None


def _node_version(case: Case) -> Said:
    if case.source is None or numbers(case.node.version) >= numbers(case.source.version):
        return None
    return f"it is older ({case.node.version}) than the node of the primary ({case.source.version})"


def _disk_threshold(case: Case) -> Said:
    """Above the low watermark. Whether the copy would reach the high one is not known: no size is read."""
    if isinstance(case.rules.disks, Unknown):
        return case.rules.disks
    disk = case.rules.disks.get(case.node.name)
    if disk is None:
        return Unknown(reason=f"the disk of {case.node.name} was not read")
    return "its disk is above the low watermark" if disk.over_low or disk.over_high else None


def _by_load(case: Case) -> Said:
    if case.rules.by_load:
        return Unknown(reason=f"{_LOAD} is set, and the load of nodes is not read")
    return case.rules.unread


DECIDERS: Final[tuple[Decider, ...]] = (
    Decider(name="enable", says=_enable),
    Decider(name="filter", says=_filter),
    Decider(name="data_tier", says=_data_tier),
    Decider(name="disk_threshold", says=_disk_threshold, predicate="disk_below_watermark"),
    Decider(name="load_awareness", says=_by_load),
    Decider(name="same_shard", says=_same_shard, of_shard=True),
    Decider(name="shards_limit", says=_shards_limit, of_shard=True),
    Decider(name="awareness", says=_awareness, of_shard=True),
    Decider(name="node_version", says=_node_version, of_shard=True, predicate="version_order"),
)
"""The deciders that may refuse a copy that comes back, or that cannot be evaluated.

The others of the servers keep no copy away for good that was started; its test says of each why not.
"""

# Questions about a reading ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A started copy that no node would take once its node is back, or of which that cannot be said."""

    copy: ShardCopy  # it; `index`: its index
    index: Index
    # why its own node may not have it; a doubt where that, or whether another may, is not known
    said: str | Unknown


_Kind = tuple[object, ...]
"""What the deciders of a shard see of a node: its version, its values of awareness, and perhaps its host."""


class Returns:
    """What the deciders say of the copies of a cluster.

    Large clusters have many copies, so answers are remembered by the kinds of nodes that a shard is on.
    """

    def __init__(
        self,
        policy: Policy,
        members: Members,
        distribution: str,
        settings: Reading[SettingsView],
        disks: Reading[Mapping[NodeName, Disk]],
    ) -> None:
        self.rules = _rules(policy, members, distribution, settings, disks)
        self._members = members
        self._data = [node for node in members.values() if node.holds_data]
        self._kinds = {node.name: self._kind(node) for node in members.values()}
        self._open: dict[tuple[object, ...], Mapping[_Kind, list[Node]]] = {}
        self._places: dict[tuple[object, ...], bool] = {}
        self._own: dict[tuple[object, ...], Said] = {}
        self._counted: Copies | None = None
        self._counts: dict[NodeName, tuple[Counter[str], int]] = {}

    def _kind(self, node: Node) -> _Kind:
        values = tuple(node.attributes.get(name) for name in self.rules.awareness)
        return numbers(node.version), values, node.address if self.rules.same_host else ""

    def has_a_place(
        self, view: ClusterView, shard: ShardId, *, besides: ShardCopy | None = None, surely: bool = False
    ) -> bool:
        """Whether some data node may take one more copy of a shard.

        In an upgrade, a node that is older than the node of the primary may not: the copy stays unassigned
        until more nodes are upgraded. `expected_nodes_present` handles absent nodes.

        Args:
            view: the reading.
            shard: of it.
            besides: this copy is not counted: its node is down, or comes back without it.
            surely: a node of which a decider cannot be evaluated does not count.
        """
        index = view.metadata.get(shard.index_uuid)
        if index is None:
            return not surely
        copies = [copy for copy in view.shards[shard] if copy is not besides]
        others = self._nodes_of(copies)
        primary = next((copy.node for copy in copies if copy.primary), None)
        source = self._members.get(primary) if primary is not None else None
        allowed = self._allowed(index, surely=surely)
        taken = {node.name for node in others}
        limited = self._limited(index)
        for nodes in allowed.values():
            free = (node for node in nodes if node.name not in taken)
            for node in free if limited else (next(free, None),):
                if node is not None and not self._refuses(view, index, node, others, source, surely=surely):
                    return True
        return False

    def _nodes_of(self, copies: Sequence[ShardCopy]) -> list[Node]:
        names = (copy.node for copy in copies)
        return [node for name in names if name is not None and (node := self._members.get(name))]

    def _limited(self, index: Index) -> bool:
        return self.rules.most is not None or rules_in(index.filters).most is not None

    def _allowed(self, index: Index, *, surely: bool) -> Mapping[_Kind, list[Node]]:
        """The data nodes by kind that no decider of the index and the node refuses."""
        key = (index.filters, index.allocation_enable, surely)
        if key not in self._open:
            found: dict[_Kind, list[Node]] = {}
            for node in self._data:
                said = _first(self._says(_OF_NODE, index, node))
                if said is None or not (surely or isinstance(said, str)):
                    found.setdefault(self._kinds[node.name], []).append(node)
            self._open[key] = found
        return self._open[key]

    def _refuses(
        self,
        view: ClusterView,
        index: Index,
        node: Node,
        others: list[Node],
        source: Node | None,
        *,
        surely: bool,
    ) -> bool:
        """Whether a decider of the shard refuses a node without a copy; the same for nodes of a kind."""
        limited = self._limited(index)
        key = (
            index.replicas,
            index.auto_expand,
            self._kinds[node.name],
            tuple([self._kinds[other.name] for other in others]),
            None if source is None else source.version,
            surely,
        )
        if limited or key not in self._places:
            by_index, of_all = self._count_on(view, node.name) if limited else (Counter[str](), 0)
            held = {"of_index": by_index[index.uuid], "of_all": of_all}
            said = _first(self._says(_OF_SHARD, index, node, others=others, source=source, **held))
            self._places[key] = isinstance(said, str) or (surely and said is not None)
        return self._places[key]

    def _count_on(self, view: ClusterView, name: NodeName) -> tuple[Counter[str], int]:
        """How many copies a node has of each index, and of all, without those that leave it."""
        if self._counted is not view.routing:
            self._counted, self._counts = view.routing, {}
        if name not in self._counts:
            here = view.routing.on(name).values()
            by_index = Counter(copy.shard.index_uuid for copy in here if copy.relocating_to is None)
            self._counts[name] = by_index, by_index.total()
        return self._counts[name]

    def _says(self, deciders: Sequence[Decider], index: Index, node: Node, **case: Any) -> Iterator[Said]:
        asked = Case(rules=self.rules, index=index, node=node, **case)
        return (decider.says(asked) for decider in deciders)

    def away(self, view: ClusterView, name: NodeName) -> tuple[Away, ...]:
        """The started copies on a node that no node would take once it was down and is back.

        Of more copies than a limit allows, the server takes some back by an order of its own (priority, date
        of creation): each of them may be the one that stays away.
        """
        node, found = self._members.get(name), list[Away]()
        if node is None or not node.holds_data:
            return ()
        metadata = view.metadata
        replicas, back = _started_on(view, name)
        here = [
            (copy, index, others, self._of_own_node(index, node, others))
            for copy, others in replicas
            if (index := metadata.get(copy.shard.index_uuid)) is not None
        ]
        back.update(index.uuid for _, index, _, said in here if said is None)
        of_all = back.total() - 1
        for copy, index, others, without_limits in here:
            said = without_limits
            if said is None and self._limited(index):
                said = self._of_own_node(index, node, others, of_index=back[index.uuid] - 1, of_all=of_all)
            if said is not None and not self.has_a_place(view, copy.shard, besides=copy, surely=True):
                if isinstance(said, str) and self.has_a_place(view, copy.shard, besides=copy):
                    said = Unknown(reason=f"{said}, and whether another node takes it cannot be said")
                found.append(Away(copy=copy, index=index, said=said))
        return tuple(found)

    def _of_own_node(
        self, index: Index, node: Node, others: Sequence[ShardCopy], *, of_index: int = 0, of_all: int = 0
    ) -> Said:
        """The first refusal of its own node that no other predicate names, else the first doubt."""
        limited = self._limited(index)
        by_others = self.rules.awareness or self.rules.same_host
        nodes = self._nodes_of(others) if by_others else []
        key = (
            index.filters,
            index.allocation_enable,
            index.replicas,
            index.auto_expand,
            node.name,
            tuple([self._kinds[other.name] for other in nodes]),
        )
        if limited or key not in self._own:
            said = self._says(_OWN, index, node, others=nodes, of_index=of_index, of_all=of_all)
            self._own[key] = _first(said)
        return self._own[key]


_OF_NODE: Final = tuple(one for one in DECIDERS if not one.of_shard)
_OF_SHARD: Final = tuple(one for one in DECIDERS if one.of_shard)
_OWN: Final = tuple(one for one in DECIDERS if one.predicate == "copies_can_return")


def _started_on(
    view: ClusterView, name: NodeName
) -> tuple[list[tuple[ShardCopy, list[ShardCopy]]], Counter[str]]:
    """The started copies of a node that come back as replicas, each with the others of its shard.

    And by index how many come back in any case: the only copies, which are forced onto the node.
    """
    table, replicas, forced = view.shards, list[tuple[ShardCopy, list[ShardCopy]]](), Counter[str]()
    for shard, copy in sorted(view.routing.on(name).items(), key=_in_order):
        if not copy.started or copy.relocating_to is not None:
            continue
        others = [other for other in table[shard] if other is not copy]
        if any(other.started for other in others):
            replicas.append((copy, others))
        else:
            forced[shard.index_uuid] += 1
    return replicas, forced


def _in_order(one: tuple[ShardId, ShardCopy]) -> tuple[str, int]:
    return one[0][0], one[0].number


def _first(said: Iterable[Said]) -> Said:
    """The first refusal, else the first doubt."""
    found = [each for each in said if each is not None]
    return next((each for each in found if isinstance(each, str)), next(iter(found), None))


_returns = for_the_same_objects(Returns)


def returns(
    policy: Policy,
    view: ClusterView,
    settings: Reading[SettingsView] = NOT_READ,
    disks: Reading[Mapping[NodeName, Disk]] = NOT_READ,
) -> Returns:
    """The deciders of this reading. What was not read, they cannot evaluate."""
    return _returns(policy, view.members, view.distribution, settings, disks)
