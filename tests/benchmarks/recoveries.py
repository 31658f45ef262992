"""What a rolling restart copies and what it reuses, copy by copy, by the servers' own `_recovery`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import urllib3

from tests.lab.bulk import BulkLoad, Dialect, write
from tests.lab.client import Access, LabClient
from tests.lab.nodes import LabCluster

LOOK_SECONDS = 0.3
FROM_A_PEER = frozenset({"PEER", "REPLICA"})
"""What a recovery from the primary is called today, and up to 2.x."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One copy made anew, or brought up to date, from the primary of its shard.

    Attributes:
        index: its index.
        shard: the number of its shard.
        target: the node that it is on.
        started: milliseconds since the epoch, by the node's clock.
        reused: bytes of files that were there and were kept, where files were compared.
        copied: bytes of files that were sent.
        operations: replayed after that.
    """

    index: str
    shard: int
    target: str
    started: int
    reused: int
    copied: int
    operations: int

    @property
    def share(self) -> float:
        """Of the bytes that were compared, the share that was copied; 0 if none were compared."""
        return self.copied / (self.copied + self.reused) if self.copied else 0.0


@dataclass(slots=True)
class Watch:
    """Gathers recoveries that began since it was made; a copy's later ones do not hide its earlier ones."""

    client: LabClient
    pattern: str
    since: int
    found: dict[tuple[str, int, str, int], Recovery] = field(default_factory=dict)

    def look(self) -> None:
        """Read what the cluster has to tell at this moment."""
        for endpoint in self.client.access.endpoints:
            try:
                answer = self.client.send(endpoint, "GET", f"/{self.pattern}/_recovery", seconds=30.0)
            except urllib3.exceptions.HTTPError:
                continue  # the node that is down; the next one has the same to tell
            if answer.ok:
                self._take(answer.body)
                return

    def _take(self, body: Mapping[str, Any]) -> None:
        for index, one in body.items():
            for shard in one["shards"]:
                if shard["type"] not in FROM_A_PEER or shard["stage"] != "DONE":
                    continue
                if shard["start_time_in_millis"] < self.since:
                    continue
                size = shard["index"]["size"]
                recovery = Recovery(
                    index=index,
                    shard=shard["id"],
                    target=shard["target"]["name"],
                    started=shard["start_time_in_millis"],
                    reused=size["reused_in_bytes"],
                    copied=size["recovered_in_bytes"],
                    operations=shard["translog"]["recovered"],
                )
                self.found[recovery.index, recovery.shard, recovery.target, recovery.started] = recovery


@dataclass(slots=True)
class Writer:
    """Writes so many documents into each index, once, each time a node is seen to be away."""

    lab: LabCluster
    load: BulkLoad
    dialect: Dialect
    each: int
    next_number: int
    watch: Watch
    written: int = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Watch, in a thread, for as long as the block runs; what went wrong in it is raised at the end."""
        over, broken = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                self._work(over)
            except BaseException as error:  # noqa: BLE001  (raised below, in the caller's thread)
                broken.append(error)

        thread = threading.Thread(target=work, name="bench-writer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if broken:
            raise RuntimeError(f"the writer broke down: {broken[0]!r}") from broken[0]

    def _work(self, over: threading.Event) -> None:
        client, written_to = self.lab.client, False
        while not over.wait(LOOK_SECONDS):
            seen = self._seen(client)
            if seen is None:
                continue
            endpoint, members = seen
            if members == len(self.lab.nodes):
                written_to = False
            elif not written_to:
                self._write(LabClient(Access(endpoints=(endpoint,))))
                written_to = True
            self.watch.look()
        client.close()

    def _seen(self, client: LabClient) -> tuple[str, int] | None:
        """The first endpoint that knows a master, and how many nodes it sees."""
        for endpoint in client.access.endpoints:
            try:
                answer = client.send(endpoint, "GET", "/_cluster/health?master_timeout=1s", seconds=5.0)
            except urllib3.exceptions.HTTPError:
                continue
            if answer.ok:
                return endpoint, int(answer.body["number_of_nodes"])
        return None

    def _write(self, client: LabClient) -> None:
        numbers = range(self.next_number, self.next_number + self.each)
        for index in self.load.indices:
            write(client, index, numbers, self.load, dialect=self.dialect)
        self.next_number = numbers.stop
        self.written += self.each * len(self.load.indices)
        client.close()


def totals(recoveries: Sequence[Recovery]) -> tuple[int, int, int]:
    """Bytes reused, bytes copied, operations replayed."""
    return (
        sum(each.reused for each in recoveries),
        sum(each.copied for each in recoveries),
        sum(each.operations for each in recoveries),
    )
