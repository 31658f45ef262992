"""One node's life while it runs: vnodes that start, fallbacks, hinted handoff.

Time is an argument, in seconds of the recording; the daemon says how long one takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from .faults import Faults
from .report import Report, Transfer
from .ring import Ring, fallbacks

SERVICE_SECONDS = 1.0
"""From answering pings to the service `riak_kv`. No recording shows it: long before the vnodes run is the
harsher choice, since a waiter must not take the one for the other."""
PRIMARIES_SECONDS = (2.0, 9.0)
"""From answering pings: the first and the last own partition. The time line has none at 1 s, all at 10 s."""
FALLBACKS_SECONDS = 9.5
"""Then a node starts the vnodes of all other partitions too, to see whether they hold hints: it waits to
hand off 11 of 16 where it owns 5."""
INACTIVITY_SECONDS = 60.0
"""`vnode_inactivity_timeout`: a fallback is looked at only when nobody used it for so long."""
SPREAD_SECONDS = (12.0, 60.0)
"""After that, the first and the last of many: on the time line the first at 77 s, most by 133 s."""
RETRY_SECONDS = 40.0
"""A fallback that found the transfer limit used up is looked at again: the last was gone at 174 s."""
OBJECTS = 1972
RATE = 425
"""As in the recording: so many objects to send, so many a second. A fallback without hints has none."""
EMPTY_SECONDS = 0.4
UPDATE_SECONDS = 2.0
"""A transfer reports so often; younger ones say `no updates seen`."""


@dataclass(slots=True)
class Running:
    """A handoff that this node sends."""

    target: str
    started: float
    total: int
    rate: int

    def sent(self, now: float) -> int:
        """Objects that are over at this moment."""
        return min(self.total, int((now - self.started) * self.rate))

    def done(self, now: float) -> bool:
        """Whether nothing is left to send."""
        return now - self.started >= (self.total / self.rate if self.total else EMPTY_SECONDS)


@dataclass(slots=True, kw_only=True)
class Machine:
    """The state of a running node."""

    name: str  # of the node
    ring: Ring  # as it knows it
    born: float  # when it began to answer pings
    limit: int  # transfers at a time, in and out
    # partitions of others of which it holds writes; they outlive a restart
    hints: set[int] = field(default_factory=set)
    vnodes: set[int] = field(default_factory=set)
    due: dict[int, float] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)
    timer: int = 10_000
    _fallbacks_started: bool = False
    _vnodes_from: float | None = None
    _rounds: int = 0

    def services(self, now: float) -> tuple[str, ...]:
        """What its node watcher lists."""
        there = now - self.born >= SERVICE_SECONDS
        return ("riak_kv", "riak_pipe", "riak_repl") if there else ()

    def tick(self, now: float, peers: Mapping[str, Report], faults: Faults) -> None:
        """Live up to this moment.

        Args:
            now: seconds.
            peers: what members that can be reached say of themselves.
            faults: what is wrong.
        """
        self._start_vnodes(now, faults)
        up = frozenset(name for name, report in peers.items() if report.services)
        if faults.get("writes") == "on" and self.services(now):
            self._take_over(up | {self.name})
        self._wait(now, up)
        self._send(now, peers, faults)

    def hand_off_now(self, now: float) -> None:
        """`force_handoffs`: whatever waits is looked at in the next tick."""
        for partition in self.due:
            self.due[partition] = min(self.due[partition], now)

    def _start_vnodes(self, now: float, faults: Faults) -> None:
        if faults.get("vnodes") == "none":
            self.vnodes.clear()
            self._vnodes_from, self._fallbacks_started = now, False
            return
        age = now - (self.born if self._vnodes_from is None else self._vnodes_from)
        own = sorted(self.ring.owned(self.name))
        first, last = PRIMARIES_SECONDS
        for place, partition in enumerate(own):
            if age >= first + (last - first) * place / max(1, len(own) - 1):
                self.vnodes.add(partition)
        if age >= FALLBACKS_SECONDS and not self._fallbacks_started:
            self._fallbacks_started = True
            self.vnodes.update(range(self.ring.size))

    def _take_over(self, up: frozenset[str]) -> None:
        """A load writes everywhere: stand in for owners that are down."""
        if any(name not in up for name in self.ring.members):
            mine = fallbacks(self.ring, up)[self.name]
            self.vnodes |= mine
            self.hints |= mine

    def _wait(self, now: float, up: frozenset[str]) -> None:
        """Give every partition of others a time at which it is looked at, while its owner is there."""
        waiting = self.vnodes - self.ring.owned(self.name)
        for partition in list(self.due):
            if partition not in waiting or self.ring.owners[partition] not in up:
                del self.due[partition]
        for partition in waiting:
            if partition not in self.due and self.ring.owners[partition] in up:
                self.due[partition] = now + INACTIVITY_SECONDS + self._spread(partition)

    def _spread(self, partition: int) -> float:
        """Chance that is the same in every run: from the names of things."""
        self._rounds += 1
        seed = f"{self.name} {partition} {self._rounds}"
        first, last = SPREAD_SECONDS
        return first + (last - first) * (zlib.crc32(seed.encode()) % 1000) / 1000

    def _send(self, now: float, peers: Mapping[str, Report], faults: Faults) -> None:
        for partition, running in list(self.running.items()):
            if running.target not in peers:
                del self.running[partition]
            elif running.done(now):
                del self.running[partition]
                self.vnodes.discard(partition)
                self.hints.discard(partition)
                self.due.pop(partition, None)
        if faults.get("handoff") == "stalls":
            return
        for partition, due in sorted(self.due.items(), key=lambda item: item[1]):
            if due > now or partition in self.running:
                continue
            target = peers[self.ring.owners[partition]]
            if len(self.running) < self.limit and self._busy(target, peers) < target.transfer_limit:
                total = OBJECTS if partition in self.hints else 0
                self.running[partition] = Running(target.name, now, total, RATE)
            else:
                self.due[partition] = now + RETRY_SECONDS + self._spread(partition) / 2

    def _busy(self, target: Report, peers: Mapping[str, Report]) -> int:
        """Transfers to a node, as far as the last readings tell."""
        coming = [each for report in peers.values() for each in report.transfers]
        mine = sum(1 for each in self.running.values() if each.target == target.name)
        return mine + sum(1 for each in coming if each.target == target.name)

    def report(self, now: float) -> Report:
        """What it says of itself now."""
        ring = self.ring
        return Report(
            name=self.name,
            ring=ring,
            vnodes=frozenset(self.vnodes),
            transfer_limit=self.limit,
            services=self.services(now),
            transfers=tuple(self._shown(now, partition) for partition in sorted(self.running)),
            timer=self.timer,
            unstarted=frozenset()
            if self._fallbacks_started
            else frozenset(range(ring.size)) - ring.owned(self.name) - self.vnodes,
        )

    def _shown(self, now: float, partition: int) -> Transfer:
        running = self.running[partition]
        age = now - running.started
        update_age = age % UPDATE_SECONDS if age >= UPDATE_SECONDS else None
        return Transfer(
            partition=partition,
            source=self.name,
            target=running.target,
            started=running.started,
            age=age,
            update_age=update_age,
            total=running.total,
            sent=running.sent(now - (update_age or 0.0)),
            rate=running.rate,
        )
