"""The ground truth of one simulated Riak cluster: vnodes, fallbacks and waiting hand-offs.

Modelled as recorded on 3.2.1: a stopped process is missed at once. While it is away and keys are written,
peers start fallback vnodes for its partitions. A process that is back joins its peers, answers `/ping`, and
its vnodes climb for some ten seconds. It finds its own fallback vnodes on its disk. A fallback is handed off
after up to a minute of idle time, within the transfer limits of both sides. A limit is in the process's
memory: after a start it is that of the files.

Machines, time and mishaps are those of any simulated cluster. The program's actions are judged here too, by
the partitions that truly serve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.observation import ClusterView, Level, SettingValue
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.riak import Ring, holder, is_timer, timer_key
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.riak_parts import NEVER, USUAL_TIMER, SimFallback, SimMove, SimVnodes
from orchestrator.simulation.world import World

_STEP: Final = 16
"""`vnode_rolling_start`: vnodes of others that a node starts in one step, to find their data."""
WAITS_SECONDS: Final = 900.0
"""After so long without a change what waits for handoff need not hold a run."""
_FAILS_SECONDS: Final = 0.5
_MISSED_SECONDS: Final = 1.0
"""Time until a write starts a fallback for a partition whose owner is away."""


class RiakWorld(World):
    """One Riak cluster with its machines.

    Args:
        ring: the owners of the partitions; its owners are the members, the first one by name the claimant.
        n_vals: values in use.

    Attributes:
        written: keys keep arriving, so writes that a node misses wait for it.
        rolling: fallbacks on a node's disk are found as its manager starts their vnodes, not all at once.
        inactivity: `vnode_inactivity_timeout`, the maximum idle time of a fallback before it is handed off.
        climb_seconds: from a node's joining to the last of its vnodes.
        handing_seconds: duration of one hand-off.
        handed: number of hand-offs done.
        asked_after: nodes whose service is checked through a peer: those that the program treats as down.
        views: cached views of the cluster for the program, by their inputs.
        most_at_once: maximum number of simultaneous hand-offs of each node.
        moves: partitions that will change their owner.
        joining: members that do not count as valid yet.
        unheard_until: before this moment, some nodes do not have the last change of the ring.
        stalled_until: no hand-off begins or ends before this moment.
        attended: a run is active, or was killed and will be resumed; it must set limits on nodes that start.
        given_at: when a partition changed its owner last.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        n_vals: frozenset[int] = frozenset({3}),
        seed: int = 0,
        name: str = "prod",
        allowed_down: int = 1,
    ) -> None:
        super().__init__(seed=seed, name=name, allowed_down=allowed_down)
        self.ring, self.n_vals = ring, n_vals
        self.uuid, self.files = f"riak:{name}", {}
        self.written = True
        self.rolling = False
        self.inactivity: Seconds = 60.0
        self.climb_seconds: Seconds = 10.0
        self.handing_seconds: Seconds = 4.0
        self.handed = 0
        self.asked_after: frozenset[NodeName] = frozenset()
        self.views: dict[tuple[object, ...], ClusterView] = {}
        self.fallbacks: list[SimFallback] = []
        self.most_at_once: Counter[NodeName] = Counter()
        self.vnodes: dict[NodeName, SimVnodes] = {}
        self.moves: list[SimMove] = []
        self.joining: set[NodeName] = set()
        self.unheard_until: Instant = 0.0
        self.stalled_until: Instant = 0.0
        self.attended = True
        self.given_at: Instant = 0.0
        for member in sorted(set(ring.owners)):
            self.add_member(member)
        self.master = min(self.vnodes)

    def add_member(self, name: NodeName) -> None:
        """Add a running node with the partitions that it owns, if any."""
        owned = tuple(number for number, owner in enumerate(self.ring.owners) if owner == name)
        self.vnodes[name] = SimVnodes(owned=owned, running=len(owned), most=len(owned))
        self.add_node(name, roles=frozenset({Role.DATA})).version = "3.2.1"

    # State of the ring ----------------------------------------------------------------------------------

    @property
    def up(self) -> list[NodeName]:
        """Members that their peers are connected with."""
        return [node.name for node in self.nodes.values() if node.process and node.joined]

    @property
    def limits(self) -> dict[NodeName, int]:
        """The transfer limits in the memory of the nodes that are up."""
        return {name: self.vnodes[name].limit for name in self.up}

    def configure(self, name: NodeName, *, configured: int, limit: int) -> None:
        """Set a node's limit in its files, and the limit in its memory, as a person would."""
        self.vnodes[name].configured, self.vnodes[name].limit = configured, limit

    def serves(self, name: NodeName) -> bool:
        """Whether a node is up with all its vnodes."""
        return name in self.up and self.vnodes[name].running == len(self.vnodes[name].owned)

    def silent(self) -> frozenset[int]:
        """The partitions that are not served by a vnode of their owner now."""
        return frozenset(
            number
            for name, vnodes in self.vnodes.items()
            for number in vnodes.owned[0 if name not in self.up else vnodes.running :]
        )

    def active(self, name: NodeName) -> int:
        """Number of hand-offs in which a node takes part, on either side."""
        return sum(each.active and name in (each.holder, each.owner) for each in self.fallbacks)

    @property
    def stalled(self) -> bool:
        """Whether no hand-off makes progress now."""
        return self.agenda.now < self.stalled_until

    def settings(self) -> tuple[dict[str, SettingValue], dict[str, SettingValue]]:
        """The limits of the nodes that are up, at the transient level, and timers with unusual values."""
        limits: dict[str, SettingValue] = {
            f"transfer_limit.{name}": str(limit) for name, limit in sorted(self.limits.items())
        }
        timers = {name: self.vnodes[name].timer for name in self.up}
        odd = {timer_key(name): str(timer) for name, timer in timers.items() if timer != USUAL_TIMER}
        return {}, {**limits, **odd}

    def paced(self) -> dict[str, SettingValue]:
        """The reading of a run that hastens handoff: limits and all timers."""
        timers = {timer_key(name): str(self.vnodes[name].timer) for name in self.up}
        return {**self.settings()[1], **timers}

    # What happens to it -----------------------------------------------------------------------------

    def set(self, level: Level, key: str, value: SettingValue | None) -> None:
        """Set a limit in the memory of its node, if its process runs."""
        name = holder(key)
        if name is None or not isinstance(value, str):
            raise ValueError(f"the simulated Riak cluster has no setting {key} = {value}")
        if name in self.up and is_timer(key):
            self.vnodes[name].timer = int(value)
            self.changed(f"{key} ({level.value}) = {value}")
        elif name in self.up:
            self.vnodes[name].limit = int(value)
            self.changed(f"{key} ({level.value}) = {value}")
            self._hand_off()

    def meddle(self, level: Level, key: str, value: SettingValue | None) -> None:
        """A person sets a limit by hand. No effect on a node that is down."""
        name = holder(key)
        if name in self.up and isinstance(value, str):
            self.vnodes[name].others.append(int(value))
            self.set(level, key, value)

    def may_be(self, name: NodeName, found: int) -> frozenset[int]:
        """Allowed limits of a node after a run that found this limit, including changes by others."""
        return frozenset((found, *self.vnodes[name].others))

    def stall(self, seconds: Seconds) -> None:
        """For this long no hand-off begins or ends."""
        self.stalled_until = max(self.stalled_until, self.agenda.now + seconds)
        for each in self.fallbacks:
            each.active = False
        self.version += 1
        self.agenda.after(self.stalled_until - self.agenda.now, self._hand_off)

    def give(self, partition: int, to: NodeName) -> None:
        """Give a partition to another member. Both owners are up with all their vnodes."""
        owner = self.ring.owners[partition]
        owners = (*self.ring.owners[:partition], to, *self.ring.owners[partition + 1 :])
        self.ring, self.given_at = Ring(owners=owners), self.agenda.now
        for name in (owner, to):
            vnodes = self.vnodes[name]
            vnodes.owned = tuple(number for number, each in enumerate(owners) if each == name)
            vnodes.running = vnodes.most = len(vnodes.owned)

    def process_ended(self, node: SimNode, *, clean: bool) -> None:
        """A node is gone with its vnodes. Its hand-offs break off, and writes soon go to fallbacks."""
        del clean  # Erlang's connections break at once in both cases
        node.process, node.member_life, node.ended = False, None, self.agenda.now
        self.vnodes[node.name].running = 0
        for each in self._fallbacks_of(node.name):
            each.active, each.due = False, NEVER
        self.changed(f"{node.name} left")
        self.judge_down()
        self.agenda.after(_MISSED_SECONDS, partial(self._take_over, node, node.life))

    def process_began(self, node: SimNode) -> None:
        """A new process: the limit of the files, no vnode yet, and its own fallbacks."""
        node.life += 1
        node.process, node.began = True, self.agenda.now
        vnodes = self.vnodes[node.name]
        vnodes.limit, vnodes.running = vnodes.configured, 0
        vnodes.timer, vnodes.unstarted, vnodes.unfound = USUAL_TIMER, 0, frozenset()
        vnodes.seen = not vnodes.unseen
        for each in self._fallbacks_of(node.name):
            if each.stuck is not None and node.name in each.stuck:
                self.free(each)
        if not (node.stopped_by_us and self.attended):
            vnodes.others.append(vnodes.configured)
        self.agenda.after(node.join_seconds, partial(self._join, node, node.life))

    def _join(self, node: SimNode, life: int) -> None:
        if not node.process or node.life != life or node.joined:
            return
        node.member_life, node.stopped_by_us, node.stopped_late = life, False, None
        self.away_before.discard(node.name)
        self.changed(f"{node.name} joined")
        vnodes = self.vnodes[node.name]
        known = {each.partition for each in self._fallbacks_of(node.name)}
        others = [number for number, owner in enumerate(self.ring.owners) if owner != node.name]
        free = [number for number in others if number not in known]
        if self.rolling:  # at the end: a reading of the transfers misses those found last
            vnodes.unstarted = len(others)
            vnodes.unfound, vnodes.listed = frozenset(free[-vnodes.own_fallbacks :]), False
            first = max(0.0, node.began + USUAL_TIMER / 1000 - self.agenda.now)
            self.agenda.after(first, lambda: self._list_vnodes(node, life, others))
        else:
            for number in free[: vnodes.own_fallbacks]:
                self.fall_back(number, node.name)
        each = self.climb_seconds / max(1, len(vnodes.owned))
        for count in range(1, vnodes.most + 1):
            self.agenda.after(each * count, lambda: self._vnode_runs(node, life))

    def _list_vnodes(self, node: SimNode, life: int, others: list[int]) -> None:
        """The manager's first tick, at its original timer. Before it, no vnodes are listed."""
        if node.life == life and node.joined:
            self.vnodes[node.name].listed = True
            self._step_in(node, life, others, self.vnodes[node.name].unfound)

    def _step_in(self, node: SimNode, life: int, left: list[int], held: frozenset[int]) -> None:
        """The manager starts the next vnodes of others after its timer. Some are fallbacks with data."""

        def step() -> None:
            if node.life != life or not node.joined:
                return
            started, rest = left[:_STEP], left[_STEP:]
            self.vnodes[node.name].unstarted = len(rest)
            self.vnodes[node.name].unfound = held & set(rest)
            self.version += 1
            for number in held & set(started):
                self.fall_back(number, node.name)
                self.idle(self.fallbacks[-1])
            if rest:
                self._step_in(node, life, rest, held)

        self.agenda.after(self.vnodes[node.name].timer / 1000, step)

    def force_handoff(self) -> None:
        """Every node starts its waiting hand-offs at once. Vnodes not started yet keep their data."""
        for each in self.fallbacks:
            if self.serves(each.holder) and self.serves(each.owner):
                each.due = min(each.due, self.agenda.now)
        if any(move.since < self.last_read for move in self.moves):
            self.violated("handoff is forced while partitions are to change their owner")
        self._hand_off()

    def _vnode_runs(self, node: SimNode, life: int) -> None:
        if node.life != life or not node.joined:
            return
        self.vnodes[node.name].running += 1
        self.version += 1
        if self.serves(node.name):
            self.changed(f"{node.name} runs all its vnodes")
            for each in self._fallbacks_of(node.name):
                self.idle(each)

    def _take_over(self, node: SimNode, life: int) -> None:
        """Keys are written while a node is away: the next nodes on the ring accept them as fallbacks."""
        if node.joined or node.life != life or not self.written:
            return
        held = {each.partition for each in self.fallbacks}
        longest = max(self.n_vals)
        for number in self.vnodes[node.name].owned:
            if number in held:
                continue
            listed = set(self.ring.preference_list(number, longest))
            around = [self.ring.owners[(number + step) % self.ring.size] for step in range(self.ring.size)]
            up = [name for name in around if name in self.up]
            taker = next((name for name in up if name not in listed), up[0] if up else None)
            if taker is not None:
                self.fall_back(number, taker)

    def fall_back(self, partition: int, on: NodeName) -> None:
        """From now on a node holds data of another node's partition."""
        owner = self.ring.owners[partition]
        now = self.agenda.now
        self.fallbacks.append(SimFallback(partition=partition, holder=on, owner=owner, made=now, since=now))
        self.changed(f"{on} has a fallback for partition {partition} of {owner}")

    def stick(self, partition: int, on: NodeName, cured_by: frozenset[NodeName]) -> None:
        """A node holds data of another node's partition whose handoff always fails."""
        self.fall_back(partition, on)
        self.fallbacks[-1].stuck = cured_by
        self._try(self.fallbacks[-1], begins=False)

    def _try(self, fallback: SimFallback, *, begins: bool) -> None:
        """Every minute or two the handoff of a stuck fallback begins, and fails at once."""
        if fallback.stuck is None:
            return
        fallback.tried = begins and self.serves(fallback.holder) and self.serves(fallback.owner)
        self.version += 1
        seconds = _FAILS_SECONDS if begins else self.random.uniform(60.0, 120.0)
        self.agenda.after(seconds, partial(self._try, fallback, begins=not begins))

    def free(self, fallback: SimFallback) -> None:
        """The handoff of a stuck fallback works from now on."""
        fallback.stuck, fallback.tried, fallback.since = None, False, self.agenda.now
        self.changed(f"partition {fallback.partition} on {fallback.holder} can be handed off again")
        self.idle(fallback)

    def idle(self, fallback: SimFallback) -> None:
        """Both sides are back: the remaining idle time counts from now on."""
        if not (self.serves(fallback.holder) and self.serves(fallback.owner)):
            return
        waits = self.inactivity * self.random.uniform(0.8, 1.0)
        fallback.due = self.agenda.now + waits
        self.agenda.after(waits, self._hand_off)

    def _hand_off(self) -> None:
        """Begin the hand-offs that are due and that the limits of both sides allow."""
        if self.stalled:
            return
        for each in self.fallbacks:
            if each.active or each.due > self.agenda.now or each.stuck is not None:
                continue
            sides = (each.holder, each.owner)
            if all(self.active(name) < self.vnodes[name].limit for name in sides):
                each.active = True
                for name in sides:
                    self.most_at_once[name] = max(self.most_at_once[name], self.active(name))
                self._begin(each)

    def _begin(self, fallback: SimFallback) -> None:
        lives = self._lives(fallback)
        self.version += 1
        self.agenda.after(self.handing_seconds, lambda: self._handed_off(fallback, lives))

    def _handed_off(self, fallback: SimFallback, lives: tuple[int, int]) -> None:
        if fallback.active and self._lives(fallback) == lives:
            self.fallbacks.remove(fallback)
            self.handed += 1
            self.changed(f"{fallback.holder} has handed partition {fallback.partition} to {fallback.owner}")
            self._hand_off()

    def _lives(self, fallback: SimFallback) -> tuple[int, int]:
        return self.nodes[fallback.holder].life, self.nodes[fallback.owner].life

    def _fallbacks_of(self, name: NodeName) -> Iterator[SimFallback]:
        return (each for each in self.fallbacks if name in (each.holder, each.owner))

    # Judging the program's actions -------------------------------------------------------------

    def judge_stop(self, node: SimNode, others: Sequence[SimNode] = ()) -> None:
        """Record what is wrong with requesting this stop while a stop of these others is requested already.

        By what the last reading could show: nothing that befalls the ring after it counts, be it before the
        request or before the stop is done.
        """
        known = [each for each in self.fallbacks if each.since < self.last_read]
        waiting = [each for each in known if not self._for_good(each)]
        if waiting:
            self.violated(f"{node.name} is stopped while {len(waiting)} fallbacks wait to be handed off")
        moving = [move for move in self.moves if move.since < self.last_read]
        joining = [name for name in sorted(self.joining) if not self.news(name)]
        if moving or joining:
            what = f"{len(moving)} partitions change their owner and {len(joining)} nodes join"
            self.violated(f"{node.name} is stopped while {what}")
        halting = [name for name in self.up if not self.serves(name) and not self.news(name)]
        for name in self.up:
            if self.vnodes[name].unfound and not self.news(name):
                self.violated(f"{node.name} is stopped while {name} has data of others that it has not found")
        for name in halting:
            self.violated(f"{node.name} is stopped while {name} does not run all its vnodes")
        if self.given_at < self.last_read:
            kept = {each.partition: each.holder for each in known if each.stuck is not None}
            self._judge_quorum(node, {each.name for each in (node, *others)}, kept)

    def _for_good(self, fallback: SimFallback) -> bool:
        """Whether a fallback has waited for long by the last reading, and could not be handed off then."""
        cannot = fallback.stuck is not None or self.stalled_until > self.last_read
        return cannot and self.last_read - fallback.since >= WAITS_SECONDS

    def _judge_quorum(self, node: SimNode, going: Collection[NodeName], kept: Mapping[int, NodeName]) -> None:
        """Every preference list must keep its quorum without the nodes that are to go.

        `kept`: the holders of what always fails to be handed off, by partition.
        """
        silent = self.silent()
        known = {
            number
            for name, vnodes in self.vnodes.items()
            for number in vnodes.owned
            if name in going or (number in silent and not self.news(name))
        }
        absent = {name for name, vnodes in self.vnodes.items() if known.issuperset(vnodes.owned)}
        for n_val in sorted(self.n_vals):
            length = min(n_val, self.ring.size)
            for first in range(self.ring.size):
                numbers = [(first + step) % self.ring.size for step in range(length)]
                owners = {self.ring.owners[number] for number in numbers}
                lost = sum(number in known for number in numbers)
                # An owner may lack a write that waits for it elsewhere; the others of its list have that one.
                lost += any(
                    kept.get(number) in absent and kept[number] not in owners and number not in known
                    for number in numbers
                )
                if length - lost < n_val // 2 + 1:
                    self.violated(
                        f"{node.name} takes the quorum of the partitions from {first} on (n {n_val})"
                    )
                    return
