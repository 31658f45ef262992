"""The order of a run: which nodes it selects, which of them share a machine, and which are the next wave.

The plan fixes the order; execution may shrink or delay a wave, never widen it. A strategy is one function
from a `Choice` to a `Wave`, by its name in a table. It checks only predicates about a wave
(`Predicate.about_wave`): no other candidate and no smaller wave helps against all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from typing import Final

from orchestrator.engine.kind import KindOfCluster, KindWords
from orchestrator.engine.largest_safe import Bound, Sets, Unit
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import DATA_ROLES, Node, NodeName, Role, Zone
from orchestrator.model.event import Hold, RunStarted
from orchestrator.model.observation import ClusterView, Observation
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Policy, Selection, Strategy, Wave
from orchestrator.model.reading import Unknown

# The nodes of a run, in order ------------------------------------

_TIERS: Final = (
    Role.DATA_FROZEN,
    Role.DATA_COLD,
    Role.DATA_WARM,
    Role.DATA_HOT,
    Role.DATA_CONTENT,
    Role.DATA,
)
"""From the tier whose copies move least to the tier that serves most; the generic `data` role last."""

_MASTER: Final = 3
"""The place of the elected master, after all other members."""

_AWAY: Final = 4
"""The place of a node that is no member now, after the elected master."""


def rank(node: Node, master: NodeName | None) -> tuple[int, int]:
    """The place of a node in the order: tiers of data, then no data and no vote, then voters, master last.

    It is Elastic's order for rolling upgrades. The elected master goes last: mastership moves once in a run.
    """
    group, tier = _place(node.roles)
    return (_MASTER if node.name == master else group), tier


@cache
def _place(roles: frozenset[Role]) -> tuple[int, int]:
    """Few sets of roles are different, and many nodes are put in order for every wave."""
    group = 2 if Role.MASTER in roles else 0 if roles & DATA_ROLES else 1
    # A node of several tiers goes with the last of them.
    return group, max((place for place, role in enumerate(_TIERS) if role in roles), default=-1)


def in_order(nodes: Iterable[Node], master: NodeName | None) -> tuple[Node, ...]:
    """Nodes in the order in which a run restarts them, by name where they are alike."""
    return tuple(sorted(nodes, key=lambda node: (rank(node, master), node.name)))


def selected(view: ClusterView, selection: Selection, zone_attribute: str | None) -> tuple[Node, ...]:
    """The members that a selection matches, in order."""

    def means(node: Node) -> bool:
        if not selection.names(node.name):
            return False
        if selection.zone is not None and node.zone(zone_attribute) != selection.zone:
            return False
        if selection.started_before is not None:
            started = node.incarnation.started_at_ms
            return started is not None and started / 1000 < selection.started_before
        return True

    return in_order(filter(means, view.nodes), view.master)


def undated(view: ClusterView, selection: Selection, zone_attribute: str | None) -> tuple[NodeName, ...]:
    """The nodes with an unknown start time: it is unclear whether `started_before` selects them."""
    if selection.started_before is None:
        return ()
    anyway = selected(view, replace(selection, started_before=None), zone_attribute)
    return tuple(node.name for node in anyway if node.incarnation.started_at_ms is None)


def nodes_to_restart(started: RunStarted, *, paused: bool = False) -> int:
    """How many nodes a run restarts until it pauses (`--pause-after`) or ends: the count of every view.

    The waves of its plan count, if they are more than was asked: nodes of one machine go together.

    Args:
        started: the beginning of the run.
        paused: whether it has paused already, and continues to its end.
    """
    most = started.policy.pause_after
    if most is None or paused:
        return len(started.nodes)
    planned = {name for wave in started.planned for name in wave}
    return min(len(started.nodes), max(most, len(planned)))


# Machines ------------------------------------

_Boot = tuple[str, str]
"""Machine id and boot id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The data that distinguishes the machines of nodes."""

    began: Mapping[NodeName, _Boot]  # machine and boot ids when the run began; `now`, in the latest reading
    now: Mapping[NodeName, _Boot]
    addresses: Mapping[NodeName, str]  # of the members

    def shared(self, one: NodeName, other: NodeName) -> bool:
        """Whether these two are on one machine."""
        for read in (self.began, self.now):
            if one in read and other in read:
                return read[one] == read[other]
        return one in self.addresses and self.addresses[one] == self.addresses.get(other)

    def others(self, name: NodeName) -> list[NodeName]:
        """The other nodes on a node's machine, by name."""
        known = {*self.began, *self.now, *self.addresses} - {name}
        return sorted(other for other in known if self.shared(name, other))

    def among(self, names: Iterable[NodeName]) -> tuple[tuple[NodeName, ...], ...]:
        """Those of these nodes that share a machine, machine by machine, in the order given."""
        left, found = list(names), []
        while left:
            machine = [left.pop(0)]
            for name in machine:  # it grows in the loop: sharing with one of them is sharing with all
                machine += [other for other in left if self.shared(name, other)]
                left = [other for other in left if other not in machine]
            if len(machine) > 1:
                found.append(tuple(machine))
        return tuple(found)


def machines_of(state: RunState, seen: Observation) -> Machines:
    """The data on machines in the journal and this reading."""
    began = state.baseline
    hosts = {name: host for name, host in seen.hosts.items() if not isinstance(host, Unknown)}
    return Machines(
        began={
            name: (began.machines[name], began.boots[name]) for name in began.machines if name in began.boots
        }
        if began
        else {},
        now={
            name: (host.machine_id, host.boot_id)
            for name, host in hosts.items()
            if host.machine_id and host.boot_id
        },
        addresses={}
        if isinstance(seen.cluster, Unknown)
        else {node.name: node.address for node in seen.cluster.nodes},
    )


# Strategies ------------------------------------

Ask = Callable[[Wave], tuple[Hold, ...]]
"""The holds of predicates about sets of nodes against a wave; empty when it passes."""

_TWO: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The input of a strategy."""

    number: int
    # nodes that may be in this wave, in order: members, or absent ones when no member is left
    pending: tuple[NodeName, ...]
    members: Mapping[NodeName, Node]  # the cluster's, by name
    master: NodeName | None
    policy: Policy
    words: KindWords
    # nodes that the wave may have for a reason of the run's own (a canary); None = as many as pass
    most: int | None
    ask: Ask
    # how often each node came back without its turn; it goes after its like
    returns: Mapping[NodeName, int] = field(default_factory=dict)
    half_installed: frozenset[NodeName] = frozenset()  # they go first
    # nodes that go in one wave because they share a machine, machine by machine
    machines: tuple[Unit, ...] = ()
    # what a set of nodes that are down together must leave
    bounds: Callable[[], Iterable[Bound]] = tuple

    @property
    def units(self) -> tuple[Unit, ...]:
        """The pending nodes, grouped by machine; a machine goes when its last node would."""
        if not self.machines:
            return tuple(zip(self.pending, strict=True))  # each one alone
        machine = {name: each for each in self.machines for name in each}
        place = {name: number for number, name in enumerate(self.pending)}
        units = {tuple(sorted(set(machine.get(n, (n,))) & set(place), key=place.__getitem__)) for n in place}
        return tuple(sorted(units, key=lambda unit: place[unit[-1]]))

    def wave(self, units: Sequence[Unit]) -> Wave:
        """These units as a wave."""
        return Wave(
            number=self.number,
            nodes=_nodes(units),
            zone=self.zone(units[0][0]),
            machines=tuple(unit for unit in units if len(unit) > 1),
        )

    def within_most(self, units: tuple[Unit, ...]) -> tuple[Unit, ...]:
        """As many of these as the wave may have, in order; the first always, since no machine is split."""
        most = len(self.pending) if self.most is None else self.most
        sizes = accumulate(len(unit) for unit in units)
        return tuple(
            unit
            for number, (unit, size) in enumerate(zip(units, sizes, strict=True))
            if not number or size <= most
        )

    def zones(self) -> list[tuple[Unit, ...]]:
        """The units of each zone, in the order of the run: a zone goes when its last node would.

        A node without a zone is a zone of its own.
        """
        zones: dict[str, list[Unit]] = {}
        for unit in self.units:
            zone = self.zone(unit[0])
            zones.setdefault(f"node {unit[0]}" if zone is None else f"zone {zone}", []).append(unit)

        def place(title: str) -> tuple[bool, tuple[int, int], int, str]:
            names = _nodes(zones[title])
            returns = max(self.returns.get(name, 0) for name in names)
            return self.half_installed.isdisjoint(names), max(map(self.rank, names)), returns, title

        return [tuple(zones[title]) for title in sorted(zones, key=place)]

    def zone(self, name: NodeName) -> Zone | None:
        """The zone of a node; None when it has none, or is away."""
        member = self.members.get(name)
        return member.zone(self.policy.zone_attribute) if member else None

    def rank(self, name: NodeName) -> tuple[int, int]:
        """The place of a node without its name; one that is away goes after all others."""
        member = self.members.get(name)
        return rank(member, self.master) if member else (_AWAY, 0)


def _nodes(units: Iterable[Unit]) -> tuple[NodeName, ...]:
    return tuple(name for unit in units for name in unit)


_Refused = Mapping[NodeName, Hold]
"""What holds each of some nodes that are left for later."""


def _first_that_passes(
    choice: Choice, groups: Sequence[tuple[Unit, ...]]
) -> tuple[tuple[Unit, ...], Wave | None, _Refused, _Refused]:
    """The first group of which a node passes, its wave, what it leaves for later, and what was passed over.

    Groups of the lowest rank, or of any rank where all of them wait for another node: what holds them is that
    others go first. If no node passes in these, it is the first group, without a wave.
    """

    def last(group: Iterable[Unit]) -> tuple[int, int]:
        return max(map(choice.rank, _nodes(group)))

    passed_over: dict[NodeName, Hold] = {}
    for group in groups:
        others_first = all(hold.others_first for hold in passed_over.values())
        if not others_first and last(group) != last(groups[0]):
            break
        wave, refused = _as_many_as_pass(choice, group)
        if wave is not None:
            return group, wave, refused, passed_over
        passed_over |= refused
    return groups[0], None, {}, {}


def _as_many_as_pass(choice: Choice, units: tuple[Unit, ...]) -> tuple[Wave | None, _Refused]:
    """The wave of these units, or of those that pass together, taken in order; and what holds the others.

    No more than the wave may have: a canary whose first nodes are held takes the next ones. None when no
    unit passes even alone.
    """
    whole = choice.wave(choice.within_most(units))
    held = choice.ask(whole)
    if not held:
        return whole, {}
    if len(units) == 1:
        return None, dict.fromkeys(units[0], held[0])
    taken, refused = list[Unit](), dict[NodeName, Hold]()
    for unit in units:
        if choice.within_most((*taken, unit)) != (*taken, unit):
            continue
        held = choice.ask(choice.wave([*taken, unit]))
        if held:
            refused |= dict.fromkeys(unit, held[0])
        else:
            taken.append(unit)
    return choice.wave(taken) if taken else None, refused


def node_wave(choice: Choice) -> Wave:
    """`--strategy node`: the first node in order, alone, or with all others that its machine takes along.

    A node that does not pass a predicate is skipped for the next one of its rank, or of any rank where all of
    them wait for another node. If no node passes, the wave is the first node, and the run holds.
    """
    (unit,), _, _, passed_over = _first_that_passes(choice, [(unit,) for unit in choice.units])
    name = unit[-1]
    member = choice.members.get(name)
    if len(unit) > 1:
        why = _why_machine(choice, unit)
    elif name == choice.master:
        why = f"the {choice.words.leader} goes last{choice.words.leader_last}"
    elif member is not None and not member.holds_data and not member.master_eligible:
        why = "holds no data and has no vote"
    else:
        by_zone = choice.policy.overlap_recovery and any(map(choice.zone, choice.members))
        in_order_of = "zone by zone" if by_zone else "in order"
        why = f"one node at a time, {in_order_of}"
    if passed_over:
        why += f"; before {_without(passed_over)}"
    return replace(choice.wave([unit]), why=why)


def _why_machine(choice: Choice, unit: Unit) -> str:
    addresses = [choice.members[name].address for name in unit if name in choice.members]
    count = "both" if len(unit) == _TWO else f"all {len(unit)}"
    where = addresses[0] if addresses else "one machine"
    said = f"{count} nodes to restart on machine {where}"
    return f"{said}; with the {choice.words.leader}, so it goes last" if choice.master in unit else said


def zone_wave(choice: Choice) -> Wave:
    """`--strategy zone`: the nodes of one zone together, as many as the rules about sets let pass.

    A zone goes when its last node would: tiers of data first, then zones without data and votes, then voters;
    the zone of the elected master last, and zones of equal place by name. A node without a zone is a zone of
    its own. Within the zone nodes are taken in their order (dedicated masters with their zone), each if it
    passes the predicates together with the nodes taken before. The rest of the zone goes next. If no node of
    a zone passes, the next zone of its rank goes first, or of any rank where all of them wait for another
    node; if none passes in all of them, the wave is the first node, and the run holds. If nodes of one
    machine go together, all this applies to machines: none is split.
    """
    units, found, refused, _ = _first_that_passes(choice, choice.zones())
    wave = found or choice.wave(units[:1])
    cut = found is not None and wave.nodes == _nodes(choice.within_most(units))
    return replace(wave, why=_why_zone(choice, _nodes(units), wave, refused, to_pause=cut))


def _why_zone(
    choice: Choice,
    candidates: tuple[NodeName, ...],
    wave: Wave,
    refusals: _Refused,
    *,
    to_pause: bool,
) -> str:
    """One line, beginning with what made the wave smaller: the operator needs that first.

    Of a wave smaller than the `candidates` of its zone, `refusals` say what left out whom, and `to_pause`
    that a canary wants it so small.
    """
    attribute = choice.policy.zone_attribute
    if wave.zone is None:
        said = [f"goes alone: it has no node attribute {attribute}, so it may be in any zone"]
    elif refusals:
        said = [f"zone {wave.zone} without {_without(refusals)}"]
    elif len(wave.nodes) == len(candidates):
        whole = {name for name in choice.members if choice.zone(name) == wave.zone}
        rest = "all" if set(wave.nodes) == whole else "the remaining nodes"
        said = [f"{rest} of zone {wave.zone}"]
    elif to_pause:
        number = len(wave.nodes)
        said = [
            f"{number} {'node' if number == 1 else 'nodes'} of zone {wave.zone}, then a pause (--pause-after)"
        ]
    elif wave.machines:
        said = [f"the first machine of zone {wave.zone} ({', '.join(wave.nodes)}): held even alone"]
    else:
        said = [f"the first of zone {wave.zone}: held even alone"]
    if wave.machines and len(wave.nodes) < len(candidates):
        said.append(f"together, each on one machine: {', '.join('+'.join(unit) for unit in wave.machines)}")
    if choice.master in wave.nodes:
        said.append(f"with the {choice.words.leader}, so it goes last")
    if len(choice.policy.awareness.attributes) > 1:
        spread = ", ".join(choice.policy.awareness.attributes)
        said.append(f"awareness goes by {spread}: waves stay within one {attribute}")
    if wave.zone in choice.policy.awareness.forced:
        said.append("forced awareness: other zones take no more than their share of its copies")
    return "; ".join(said)


def _without(refusals: _Refused) -> str:
    """Nodes that are left for later, with each predicate and its subject once; evidence for the first."""
    by_rule: dict[tuple[str, str], list[NodeName]] = {}
    for name, hold in refusals.items():
        by_rule.setdefault((hold.predicate, hold.subject), []).append(name)
    evidence = next(iter(refusals.values())).evidence
    parts = [f"{', '.join(names)} ({rule}: {subject}" for (rule, subject), names in by_rule.items()]
    return ") and ".join([f"{parts[0]}: {evidence}", *parts[1:]]) + ")"


def shard_safe_wave(choice: Choice) -> Wave:
    """`--strategy shard-safe`: the first of the fewest sets of nodes that can be down together.

    Within a zone where the cluster has zones; zones go as with `zone`. With an upgrade nodes of one rank go
    together, and the set with one that was left half installed is the first. The set with the elected master
    is the last one. If a predicate holds the set, it becomes smaller. If no node of it passes, the next set
    of its rank goes first, or of any rank where all of them wait for another node. If no node passes, the
    wave is the first node, and the run holds.
    """

    def place(units: Sequence[Unit]) -> tuple[bool, bool]:
        names = _nodes(units)
        return choice.half_installed.isdisjoint(names), choice.master in names

    first: Sequence[Unit] = ()
    for units in _together(choice):
        sets = sorted(Sets(units, choice.bounds()).fewest(), key=place)
        _, wave, refused, passed_over = _first_that_passes(choice, sets)
        if wave is not None:
            why = _why_set(choice, wave, refused, later=len(sets) - 1)
            return replace(wave, why=f"{why}; before {_without(passed_over)}" if passed_over else why)
        first = first or sets[0][:1]
    return replace(choice.wave(first), why="held even alone")


def fewest_waves(
    kind: KindOfCluster, policy: Policy, view: ClusterView, units: Sequence[Unit]
) -> tuple[int, str]:
    """So many waves `shard-safe` needs at least for these units, and why."""
    choice = Choice(
        number=1,
        pending=_nodes(units),
        members=view.members,
        master=view.master,
        policy=replace(policy, upgrade=None),
        words=kind.words,
        most=None,
        ask=lambda _: (),
        machines=tuple(unit for unit in units if len(unit) > 1),
    )
    known = tuple(kind.bounds(policy, view))
    found = [Sets(group, known).at_least() for group in _together(choice)]
    count, why = max(found, key=lambda one: one[0], default=(0, ""))
    zones = f"{len(found)} zones, one after the other" if len(found) > 1 else ""
    reasons = [text for text in (zones, why if count > 1 or not zones else "") if text]
    return sum(each for each, _ in found), "; ".join(reasons)


def _together(choice: Choice) -> Iterator[tuple[Unit, ...]]:
    """The units of which one set is chosen: of a zone, or all; for an upgrade those of the lowest rank."""
    apart = choice.policy.zone_attribute is not None and not choice.policy.disables(_ONE_ZONE, "wave")
    for units in choice.zones() if apart else [choice.units]:
        lowest = min(choice.rank(unit[-1]) for unit in units)
        every = choice.policy.upgrade is None
        yield tuple(unit for unit in units if every or choice.rank(unit[-1]) == lowest)


_ONE_ZONE: Final = "one_zone_at_a_time"


def _why_set(choice: Choice, wave: Wave, refusals: _Refused, *, later: int) -> str:
    count = len(wave.nodes)
    of_zone = f" of zone {wave.zone}" if wave.zone is not None and count > 1 else ""
    said = f"{count} nodes{of_zone} that can be down together" if count > 1 else "can be down with no other"
    if choice.master in wave.nodes:
        leader = choice.words.leader
        said += (
            f", with the {leader}, so they go last" if count > 1 else f"; it is the {leader}, so it goes last"
        )
    if later:
        said += f"; then {later} more {'set' if later == 1 else 'sets'}{of_zone}"
    return f"{said}; without {_without(refusals)}" if refusals else said


STRATEGIES: Final[Mapping[Strategy, Callable[[Choice], Wave]]] = {
    Strategy.NODE: node_wave,
    Strategy.ZONE: zone_wave,
    Strategy.SHARD_SAFE: shard_safe_wave,
}
"""How each strategy groups nodes into waves. All predicates then decide whether the wave may stop."""


def next_wave(
    state: RunState,
    view: ClusterView,
    ask: Ask,
    words: KindWords,
    *,
    machines: tuple[Unit, ...] = (),
    bounds: Callable[[], Iterable[Bound]] = tuple,
) -> Wave | None:
    """The next wave by the run's strategy; None when no node is left to restart.

    `machines` are the pending nodes that go together because they share one. `bounds` say what a set of nodes
    that are down together must leave.

    A wave that was planned may become smaller and never wider. A node that is absent now keeps its place: the
    predicate about expected nodes says so.
    """
    policy = state.begun.policy
    waiting = state.nodes_in(NodePhase.PENDING)
    if not waiting:
        return None
    returns = {node.name: node.returns for node in waiting if node.returns}
    half_installed = frozenset(node.name for node in waiting if node.installs and node.returns <= 1)
    choice = Choice(
        number=state.waves_begun + 1,
        pending=_in_turn(waiting, view, policy, returns, half_installed) or (waiting[0].name,),
        members=view.members,
        master=view.master,
        policy=policy,
        words=words,
        most=_until_the_pause(state, policy),
        ask=ask,
        returns=returns,
        half_installed=half_installed,
        machines=machines,
        bounds=bounds,
    )
    strategy = STRATEGIES[policy.strategy]
    wave = strategy(choice)
    groups = _groups(state.begun.planned)
    planned = groups.get(wave.nodes[0])
    if all(groups.get(name) is planned for name in wave.nodes):
        return wave
    within = tuple(name for name in choice.pending if groups.get(name) is planned)
    bounded = strategy(replace(choice, pending=within))
    return replace(bounded, why=f"{bounded.why}; no larger than planned")


def _in_turn(
    waiting: Sequence[NodeProgress],
    view: ClusterView,
    policy: Policy,
    returns: Mapping[NodeName, int],
    half_installed: frozenset[NodeName],
) -> tuple[NodeName, ...]:
    """The members among these nodes in the order in which they go: by rank, then by name.

    A node that was left half installed goes first, once: no second one is stopped for the same cause. One
    that came back without its turn goes after its like: the disturbance may be over then.

    With overlap, nodes of one rank go zone by zone, then by fewest shards shared with what recovers: nodes of
    one zone share few shards or none, since awareness puts the copies of a shard into different zones. So the
    next node seldom has copies of the shards that the node before it still recovers.
    """
    members, overlaps = view.members, policy.overlap_recovery
    attribute = policy.zone_attribute if overlaps else None
    shared = Counter(copy.node for copies in view.moving.values() for copy in copies) if overlaps else {}

    def place(name: NodeName) -> tuple[bool, tuple[int, int], int, str, int, NodeName]:
        node = members[name]
        zone = node.zone(attribute) or ""
        return (
            name not in half_installed,
            rank(node, view.master),
            returns.get(name, 0),
            zone,
            shared.get(name, 0),
            name,
        )

    return tuple(sorted((node.name for node in waiting if node.name in members), key=place))


def _groups(planned: tuple[Unit, ...]) -> Mapping[NodeName, Unit]:
    """The planned wave of each node. A node joins only its own; those outside of all of them, each other."""
    return {name: group for group in planned for name in group}


def _until_the_pause(state: RunState, policy: Policy) -> int | None:
    """Nodes that are left until the canary pause. The pause counts nodes, also in waves of whole zones."""
    if policy.pause_after is None or state.paused:
        return None
    had = state.recovered + len(state.recovering_nodes)
    return max(1, policy.pause_after - had)
