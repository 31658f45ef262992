"""Counts of a load: requests, failures, latencies, acknowledged documents."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEPT_LATENCIES = 100_000
"""Of the newest requests; enough for hours at the lab's rates, and bounded."""
_KEPT_REASONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of the answered requests of one kind, in seconds; zeros if none was answered."""

    median: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The requests of one kind.

    Attributes:
        sent: requests sent, including those sent again to another endpoint.
        failed: not answered, or answered with an error, or (bulk) with an error for some document.
        abandoned: searches without a complete answer from any endpoint; indexing is never abandoned.
        partial: searches that were answered without some shard.
        latencies: of the answered ones.
    """

    sent: int
    failed: int
    abandoned: int
    partial: int
    latencies: Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The counts of a load so far.

    Attributes:
        acknowledged: documents that the cluster acknowledged.
        indexing: the bulk requests.
        searching: the searches.
        reasons: why requests failed, the first few distinct ones, with how often.
    """

    acknowledged: int
    indexing: Requests
    searching: Requests
    reasons: Mapping[str, int]


def latencies(seconds: Iterable[float]) -> Latencies:
    """Summarise latencies."""
    ordered = sorted(seconds)
    if not ordered:
        return Latencies(median=0.0, p99=0.0, longest=0.0)
    return Latencies(median=_share(ordered, 0.5), p99=_share(ordered, 0.99), longest=ordered[-1])


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Kind:
    """The counters of one kind of request."""

    def __init__(self) -> None:
        self.sent = self.failed = self.abandoned = self.partial = 0
        self.seconds: deque[float] = deque(maxlen=KEPT_LATENCIES)

    def picture(self) -> Requests:
        return Requests(
            sent=self.sent,
            failed=self.failed,
            abandoned=self.abandoned,
            partial=self.partial,
            latencies=latencies(self.seconds),
        )


class Tally:
    """Counters that several threads write to.

    Args:
        ledger: a file to which every acknowledged id is appended, a line each; or None.
    """

    def __init__(self, ledger: Path | None = None) -> None:
        self._lock = threading.Condition()
        self._acknowledged: set[str] = set()
        self._kinds = {"indexing": _Kind(), "searching": _Kind()}
        self._reasons: dict[str, int] = {}
        self._ledger = ledger.open("a", encoding="utf-8") if ledger else None

    def answered(self, kind: str, seconds: float, *, partial: int = 0) -> None:
        """Count a successful answer."""
        with self._lock:
            self._kinds[kind].sent += 1
            self._kinds[kind].partial += partial
            self._kinds[kind].seconds.append(seconds)

    def failed(self, kind: str, reason: str) -> None:
        """Count a request that failed."""
        with self._lock:
            self._kinds[kind].sent += 1
            self._count_failure(kind, reason)

    def refused(self, kind: str, reason: str) -> None:
        """Count a request as failed that was counted as answered: its answer refused a document."""
        with self._lock:
            self._count_failure(kind, reason)

    def _count_failure(self, kind: str, reason: str) -> None:
        self._kinds[kind].failed += 1
        if reason in self._reasons or len(self._reasons) < _KEPT_REASONS:
            self._reasons[reason] = self._reasons.get(reason, 0) + 1

    def abandoned(self, kind: str) -> None:
        """Count an operation that no endpoint completed."""
        with self._lock:
            self._kinds[kind].abandoned += 1

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Record ids that the cluster acknowledged."""
        with self._lock:
            for each in ids:
                self._acknowledged.add(each)
                if self._ledger is not None:
                    self._ledger.write(f"{each}\n")
            if self._ledger is not None:
                self._ledger.flush()
            self._lock.notify_all()

    def wait_acknowledged(self, count: int, seconds: float) -> bool:
        """Wait until this many documents are acknowledged; returns whether that happened in time."""
        with self._lock:
            return self._lock.wait_for(lambda: len(self._acknowledged) >= count, seconds)

    def acknowledged(self) -> frozenset[str]:
        """All ids acknowledged so far."""
        with self._lock:
            return frozenset(self._acknowledged)

    def result(self) -> LoadResult:
        """The current counts."""
        with self._lock:
            return LoadResult(
                acknowledged=len(self._acknowledged),
                indexing=self._kinds["indexing"].picture(),
                searching=self._kinds["searching"].picture(),
                reasons=dict(self._reasons),
            )

    def close(self) -> None:
        """Close the ledger."""
        with self._lock:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None
