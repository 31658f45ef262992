"""Watches a cluster from outside while it is restarted: which nodes are away, and which shards have a copy.

A thread of its own with the lab's own client; it shares nothing with the program under test. What the
readings add up to is apart from how they are taken, so that it can be shown without nodes that it would
notice (`test_watching.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

import urllib3

from tests.lab.client import Access, LabClient
from tests.lab.errors import LabError
from tests.lab.load import Rotation

READINGS_PER_SECOND = 5.0
REQUEST_SECONDS = 3.0
PATH = (
    "/_cluster/state/nodes,routing_table?master_timeout=1s"
    "&filter_path=nodes.*.name,routing_table.indices.*.shards.*.state,routing_table.indices.*.shards.*.node"
)
STARTED = ("STARTED", "RELOCATING")
"""A copy that is being moved serves until its move is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A shard that had two started copies, read with none."""

    shard: str  # such as `[posts][0]`
    away: frozenset[str]  # the nodes that were not in the cluster at that reading


class Sightings:
    """What readings of the routing table add up to.

    Attributes:
        readings: how many there were.
        lost: shards that were read with two started copies and later with none.
        away: each set of nodes that was read as away together.
        fewest: the smallest number of started copies that was read of a shard which had had two.
        first_started: when each shard was first read with a started copy, by the wall clock.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.readings = 0
        self.lost: list[Lost] = []
        self.away: set[frozenset[str]] = set()
        self.fewest: int | None = None
        self.first_started: dict[str, float] = {}
        self._names = frozenset(names)
        self._had_two: set[str] = set()

    def add(self, state: Mapping[str, Any], at: float = 0.0) -> None:
        """Take in one reading, whose answer came at that time."""
        self.readings += 1
        present = {node["name"] for node in state.get("nodes", {}).values()}
        away = self._names - present
        if away:
            self.away.add(away)
        for shard, started in _started_copies(state).items():
            if started:
                self.first_started.setdefault(shard, at)
            if started >= 2:
                self._had_two.add(shard)
            if shard not in self._had_two:
                continue
            self.fewest = started if self.fewest is None else min(self.fewest, started)
            if started == 0:
                self.lost.append(Lost(shard=shard, away=away))

    def saw_away(self, nodes: Collection[str]) -> bool:
        """Whether one reading found all these nodes away together."""
        return any(away.issuperset(nodes) for away in self.away)


def _started_copies(state: Mapping[str, Any]) -> dict[str, int]:
    indices = state.get("routing_table", {}).get("indices", {})
    return {
        f"[{index}][{number}]": sum(copy["state"] in STARTED for copy in copies)
        for index, found in indices.items()
        for number, copies in found["shards"].items()
    }


class Watcher:
    """Reads several times a second, from whichever node is up. Use as a context manager."""

    def __init__(self, access: Access, names: Collection[str]) -> None:
        self.seen = Sightings(names)
        self.unanswered = 0
        self.longest_gap_seconds = 0.0
        self._client = LabClient(access)
        self._over = threading.Event()
        self._broken: list[BaseException] = []
        self._thread = threading.Thread(target=self._guarded, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End, and wait for the end.

        Raises:
            LabError: the watcher broke down, so that what it did not see proves nothing.
        """
        self._over.set()
        self._thread.join()
        self._client.close()
        if self._broken:
            raise LabError(f"the watcher broke down: {self._broken[0]!r}") from self._broken[0]

    def told(self) -> str:
        """One line of what it saw."""
        seen = self.seen
        away = ", ".join(sorted("+".join(sorted(each)) for each in seen.away)) or "none"
        lost = ", ".join(each.shard for each in seen.lost) or "never"
        return (
            f"{seen.readings} readings ({self.unanswered} unanswered, longest gap "
            f"{self.longest_gap_seconds:.1f} s); read as away together: {away}; fewest started copies of a "
            f"shard that had two: {seen.fewest}; read with none: {lost}"
        )

    def _guarded(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # noqa: BLE001  (whatever it is, `stop` raises it in the caller's thread)
            self._broken.append(error)

    def _watch(self) -> None:
        rotation = Rotation(self._client.access.endpoints, shun_seconds=1.0)
        last = time.monotonic()
        while not self._over.is_set():
            began = time.monotonic()
            state = self._read(rotation, began)
            if state is None:
                self.unanswered += 1
            else:
                self.seen.add(state, time.time())
                now = time.monotonic()
                self.longest_gap_seconds, last = max(self.longest_gap_seconds, now - last), now
            self._over.wait(max(0.0, began + 1.0 / READINGS_PER_SECOND - time.monotonic()))

    def _read(self, rotation: Rotation, now: float) -> Mapping[str, Any] | None:
        """One reading; None when this node is down, or knows no master at the moment."""
        endpoint = rotation.choose(now)
        try:
            answer = self._client.send(endpoint, "GET", PATH, seconds=REQUEST_SECONDS)
        except urllib3.exceptions.HTTPError:
            rotation.shun(endpoint, time.monotonic())
            return None
        if not answer.ok:
            return None
        return answer.body or {}
