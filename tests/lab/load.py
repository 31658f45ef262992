"""A load during a restart: one client that indexes, one that searches, and a check afterwards.

Both behave like a real client: they rotate over the endpoints, skip an unresponsive one for a moment, and try
again elsewhere. A document counts as acknowledged when the cluster has confirmed it, and is recorded at that
moment. After a lost answer, the request is sent again with the same id, and `create` makes the cluster report
a document that it already has. So after a run every acknowledged id must be there, once.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import urllib3

from tests.lab.client import Access, Answer, LabClient
from tests.lab.errors import LabError

GREEN_SECONDS = 60
_PAGE, _ONE_PAGE = 2000, 1_000_000
_CREATED, _ALREADY_THERE = 201, 409
_REFUSED_SECONDS = 0.1
_KEPT_REASONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """The rate of the load, and its target."""

    index: str = "load"  # the index it writes to; the load creates it
    shards: int = 3
    replicas: int = 1
    documents_per_second: float = 200.0  # the bound on the indexing client
    documents_per_request: int = 20
    searches_per_second: float = 20.0  # the bound on the searching client
    request_seconds: float = 30.0  # limit on one request
    shun_seconds: float = 1.0  # how long an endpoint that did not answer is left out
    # endpoints tried for a complete answer to a search, before the search is abandoned
    search_attempts: int = 3
    bulk: str = "_bulk"  # path of the bulk request below the index; Elasticsearch before 7 needs a type there
    scrolls: bool = True  # whether the check may scroll by a JSON body, and without the documents (2.0)


@dataclass(slots=True, kw_only=True)
class Requests:
    """The requests of one kind."""

    sent: int = 0  # requests sent, including those sent again to another endpoint
    failed: int = 0  # not answered, or answered with an error, or (bulk) with an error for some document
    abandoned: int = 0  # searches without a complete answer from any endpoint; indexing is never abandoned
    partial: int = 0  # searches that were answered without some shard


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The counts of a load so far; `reasons` has the first distinct reasons of failed requests."""

    acknowledged: int
    indexing: Requests
    searching: Requests
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of the check of acknowledged documents."""

    acknowledged: int
    missing: tuple[str, ...]  # ids that were acknowledged and are not there
    duplicated: tuple[str, ...]  # ids that are there more than once
    unacknowledged: int  # documents that are there without an acknowledgement; allowed

    @property
    def whole(self) -> bool:
        """Whether every acknowledged document is there, once."""
        return not self.missing and not self.duplicated


class Tally:
    """Counters that several threads write to."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._acknowledged: set[str] = set()
        self._kinds = {"indexing": Requests(), "searching": Requests()}
        self._reasons: Counter[str] = Counter()

    def answered(self, kind: str, *, partial: int = 0) -> None:
        """Count a successful answer."""
        with self._lock:
            self._kinds[kind].sent += 1
            self._kinds[kind].partial += partial

    def failed(self, kind: str, reason: str, *, sent: int = 1) -> None:
        """Count a failure; `sent=0`: of a request that was counted as answered, but refused a document."""
        with self._lock:
            self._kinds[kind].sent += sent
            self._kinds[kind].failed += 1
            if reason in self._reasons or len(self._reasons) < _KEPT_REASONS:
                self._reasons[reason] += 1

    def abandoned(self, kind: str) -> None:
        """Count an operation that no endpoint completed."""
        with self._lock:
            self._kinds[kind].abandoned += 1

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Record ids that the cluster acknowledged."""
        with self._lock:
            self._acknowledged.update(ids)
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
                indexing=replace(self._kinds["indexing"]),
                searching=replace(self._kinds["searching"]),
                reasons=dict(self._reasons),
            )


class Rotation:
    """Rotates over the endpoints without those that failed a moment ago. For one thread."""

    def __init__(self, endpoints: Sequence[str], shun_seconds: float) -> None:
        self._turn = itertools.cycle(endpoints)
        self._shun_seconds = shun_seconds
        self._shunned_until = dict.fromkeys(endpoints, 0.0)

    def choose(self, now: float) -> str:
        """The next endpoint that is not shunned; if all are, the endpoint whose time is up first."""
        for _ in self._shunned_until:
            endpoint = next(self._turn)
            if self._shunned_until[endpoint] <= now:
                return endpoint
        return min(self._shunned_until, key=self._shunned_until.__getitem__)

    def none_left(self, now: float) -> bool:
        """Whether every endpoint is shunned."""
        return all(until > now for until in self._shunned_until.values())

    def shun(self, endpoint: str, now: float) -> None:
        """Leave an endpoint out for a while."""
        self._shunned_until[endpoint] = now + self._shun_seconds


class Load:
    """Two clients in threads of their own. Use as a context manager, or `start` and `stop`."""

    def __init__(self, access: Access, profile: LoadProfile | None = None) -> None:
        self.profile = profile or LoadProfile()
        self._client = LabClient(access)
        self._tally = Tally()
        self._over = threading.Event()
        self._broken: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"lab{work.__name__}", daemon=True)
            for work in (self._index, self._search)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make the index, wait until it has all its copies, and begin.

        A node that stops before the replicas exist would take the only copies with it.
        """
        wanted = {"number_of_shards": self.profile.shards, "number_of_replicas": self.profile.replicas}
        self._client.ask("PUT", f"/{self.profile.index}", {"settings": wanted})
        self._client.wait_green([self.profile.index], GREEN_SECONDS)
        for thread in self._threads:
            thread.start()

    def stop(self) -> LoadResult:
        """End both clients and wait for them; returns the final counts."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._broken:
            raise LabError(f"the load broke down: {self._broken[0]!r}") from self._broken[0]
        return self._tally.result()

    def result(self) -> LoadResult:
        """The current counts."""
        return self._tally.result()

    def wait_acknowledged(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many documents are acknowledged in all, so that the load is really running."""
        if not self._tally.wait_acknowledged(count, seconds):
            raise LabError(f"no {count} documents acknowledged in {seconds:.0f} s: {self._tally.result()}")

    def verify(self) -> Verification:
        """Look for every acknowledged document, after `stop`."""
        acknowledged = self._tally.acknowledged()
        there = count_documents(self._client, self.profile.index, scrolls=self.profile.scrolls)
        return Verification(
            acknowledged=len(acknowledged),
            missing=tuple(sorted(acknowledged - there.keys())),
            duplicated=tuple(sorted(each for each, times in there.items() if times > 1)),
            unacknowledged=len(there.keys() - acknowledged),
        )

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  (`stop` raises it in the caller's thread)
            self._broken.append(error)

    def _index(self) -> None:
        rotation = Rotation(self._client.access.endpoints, self.profile.shun_seconds)
        size = self.profile.documents_per_request
        for first in itertools.count(0, size):
            pending = [f"d{number:09d}" for number in range(first, first + size)]
            began = time.monotonic()
            while pending and not self._over.is_set():
                pending = self._bulk(rotation, pending)
            if self._over.wait(max(0.0, began + size / self.profile.documents_per_second - time.monotonic())):
                return

    def _bulk(self, rotation: Rotation, ids: list[str]) -> list[str]:
        """Send one bulk request; returns the ids that it did not acknowledge."""
        lines = [
            json.dumps(line)
            for each in ids
            for line in ({"create": {"_id": each}}, {"serial": int(each[1:]), "text": f"document {each}"})
        ]
        path = f"/{self.profile.index}/{self.profile.bulk}"
        answer = self._attempt("indexing", rotation, path, "\n".join([*lines, ""]))
        if answer is None:
            if rotation.none_left(time.monotonic()):
                # Before 2.0 a cluster without a master refuses a write at once: as below.
                self._over.wait(_REFUSED_SECONDS)
            return ids
        outcomes = [next(iter(item.values())) for item in answer.body["items"]]
        done = {outcome["_id"] for outcome in outcomes if _status(outcome) in (_CREATED, _ALREADY_THERE)}
        self._tally.acknowledge(done)
        left = [each for each in ids if each not in done]
        if left:
            refused = next(outcome for outcome in outcomes if outcome["_id"] not in done)
            self._tally.failed("indexing", f"document refused: {_kind(refused['error'])}", sent=0)
            self._over.wait(_REFUSED_SECONDS)  # the cluster refused: no event announces that it accepts again
        return left

    def _search(self) -> None:
        rotation = Rotation(self._client.access.endpoints, self.profile.shun_seconds)
        while not self._over.is_set():
            began = time.monotonic()
            if not any(self._searched(rotation) for _ in range(self.profile.search_attempts)):
                self._tally.abandoned("searching")
            self._over.wait(max(0.0, began + 1.0 / self.profile.searches_per_second - time.monotonic()))

    def _searched(self, rotation: Rotation) -> bool:
        """Whether an endpoint gave a complete answer; an answer without some shard is counted and retried."""
        query = {"size": 10, "query": {"match": {"text": "document"}}}
        answer = self._attempt("searching", rotation, f"/{self.profile.index}/_search", query)
        return answer is not None and not answer.body["_shards"]["failed"]

    def _attempt(self, kind: str, rotation: Rotation, path: str, body: Any) -> Answer | None:
        """Send one request to the next endpoint; None if that failed, which is counted."""
        endpoint = rotation.choose(time.monotonic())
        answer = None
        try:
            answer = self._client.send(endpoint, "POST", path, body, seconds=self.profile.request_seconds)
            wrong = f"status {answer.status}"
        except urllib3.exceptions.HTTPError as error:
            wrong = type(error).__name__
        if answer is None or not answer.ok:
            rotation.shun(endpoint, time.monotonic())
            self._tally.failed(kind, wrong)
            return None
        self._tally.answered(kind, partial=int(answer.body.get("_shards", {}).get("failed", 0) > 0))
        return answer


def _status(outcome: dict[str, Any]) -> int:
    """The status of one document; before 1.0 it is `ok`, or an error that names the reason."""
    if outcome.get("ok"):
        return _CREATED
    there = str(outcome.get("error", "")).startswith("DocumentAlreadyExistsException")
    return int(outcome.get("status", _ALREADY_THERE if there else 0))


def _kind(error: Any) -> str:
    """The type of an error; before 2.0 the error is a text that begins with it."""
    return str(error["type"]) if isinstance(error, dict) else str(error).partition("[")[0]


def count_documents(client: LabClient, index: str, *, scrolls: bool = True) -> Counter[str]:
    """How often each document id is found in an index, by reading all of it; in one page without scrolls."""
    client.ask("POST", f"/{index}/_refresh")
    found: Counter[str] = Counter()
    path, query = f"/{index}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"], "_source": False}
    if not scrolls:
        path, query = f"/{index}/_search", {"size": _ONE_PAGE, "fields": []}
    page = client.ask("POST", path, query)
    while True:
        hits = page["hits"]["hits"]
        if (
            page["_shards"]["failed"]
            or page["timed_out"]
            or (not scrolls and page["hits"]["total"] > len(hits))
        ):
            raise LabError(f"not every shard of {index} answered: {page['_shards']}")
        found.update(hit["_id"] for hit in hits)
        if not scrolls:
            return found
        if not hits:
            client.ask("DELETE", "/_search/scroll", {"scroll_id": [page["_scroll_id"]]}, accept=(404,))
            return found
        page = client.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
