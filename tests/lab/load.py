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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from tests.lab.client import Access, Answer, LabClient
from tests.lab.errors import LabError
from tests.lab.tally import LoadResult, Tally

GREEN_SECONDS = 60
_PAGE, _ONE_PAGE = 2000, 1_000_000
_CREATED, _ALREADY_THERE = 201, 409
_REFUSED_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """The rate of the load, and its target.

    Attributes:
        index: the index it writes to; the load creates it.
        shards: its primary shards.
        replicas: copies of each beside the primary.
        documents_per_second: the bound on the indexing client.
        documents_per_request: size of a bulk request.
        searches_per_second: the bound on the searching client.
        request_seconds: limit on one request.
        shun_seconds: how long an endpoint that did not answer is left out.
        bulk: path of the bulk request below the index; Elasticsearch before 7 needs a type there.
        scrolls: whether the check may scroll by a JSON body, and without the documents (2.0).
        search_attempts: endpoints tried for a complete answer to a search, before the search is abandoned.
    """

    index: str = "load"
    shards: int = 3
    replicas: int = 1
    documents_per_second: float = 200.0
    documents_per_request: int = 20
    searches_per_second: float = 20.0
    request_seconds: float = 30.0
    shun_seconds: float = 1.0
    search_attempts: int = 3
    bulk: str = "_bulk"
    scrolls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of the check of acknowledged documents.

    Attributes:
        acknowledged: how many there were.
        missing: ids that were acknowledged and are not there.
        duplicated: ids that are there more than once.
        unacknowledged: documents that are there without an acknowledgement; allowed.
    """

    acknowledged: int
    missing: tuple[str, ...]
    duplicated: tuple[str, ...]
    unacknowledged: int

    @property
    def whole(self) -> bool:
        """Whether every acknowledged document is there, once."""
        return not self.missing and not self.duplicated


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

    def __init__(
        self, access: Access, profile: LoadProfile | None = None, *, ledger: Path | None = None
    ) -> None:
        self.profile = profile or LoadProfile()
        self._client = LabClient(access)
        self._tally = Tally(ledger)
        self._over = threading.Event()
        self._broken: list[BaseException] = []
        self._threads = [
            threading.Thread(
                target=self._guarded, args=(work,), name=f"lab-load-{work.__name__}", daemon=True
            )
            for work in (self._index, self._search)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the index, wait until it has all its copies, and begin.

        A node that stops before the replicas exist would take the only copies with it.

        Raises:
            LabError: the index could not be made, or does not become green.
        """
        wanted = {"number_of_shards": self.profile.shards, "number_of_replicas": self.profile.replicas}
        self._client.ask("PUT", f"/{self.profile.index}", {"settings": wanted})
        green = f"/_cluster/health/{self.profile.index}?wait_for_status=green&timeout={GREEN_SECONDS}s"
        if self._client.ask("GET", green, accept=(408,), seconds=GREEN_SECONDS + 10)["timed_out"]:
            raise LabError(f"the load's index {self.profile.index} is not green after {GREEN_SECONDS} s")
        for thread in self._threads:
            thread.start()

    def stop(self) -> LoadResult:
        """End both clients and wait for them; returns the final counts.

        Raises:
            LabError: a client failed by a defect of its own, so the counts prove nothing.
        """
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._tally.close()
        if self._broken:
            raise LabError(f"the load broke down: {self._broken[0]!r}") from self._broken[0]
        return self._tally.result()

    def result(self) -> LoadResult:
        """The current counts."""
        return self._tally.result()

    def wait_acknowledged(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many documents are acknowledged in all, so that the load is really running.

        Raises:
            LabError: they were not in time; the reasons of failed requests are in the message.
        """
        if not self._tally.wait_acknowledged(count, seconds):
            raise LabError(f"no {count} documents acknowledged in {seconds:.0f} s: {self._tally.result()}")

    def verify(self) -> Verification:
        """Look for every acknowledged document, after `stop`.

        Raises:
            LabError: the index cannot be read completely at this moment.
        """
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
        pause = self.profile.documents_per_request / self.profile.documents_per_second
        for number in itertools.count():
            first = number * self.profile.documents_per_request
            pending = [f"d{first + each:09d}" for each in range(self.profile.documents_per_request)]
            began = time.monotonic()
            while pending and not self._over.is_set():
                pending = self._bulk(rotation, pending)
            if self._over.wait(max(0.0, began + pause - time.monotonic())):
                return

    def _bulk(self, rotation: Rotation, ids: list[str]) -> list[str]:
        """Send one bulk request; returns the ids that it did not acknowledge."""
        lines = itertools.chain.from_iterable(
            (
                json.dumps({"create": {"_id": each}}),
                json.dumps({"serial": int(each[1:]), "text": f"document {each}"}),
            )
            for each in ids
        )
        answer = self._attempt(
            "indexing", rotation, f"/{self.profile.index}/{self.profile.bulk}", "\n".join([*lines, ""])
        )
        if answer is None:
            if rotation.none_left(time.monotonic()):
                # Before 2.0 a cluster without a master refuses a write at once: as below.
                self._over.wait(_REFUSED_SECONDS)
            return ids
        outcomes = [next(iter(item.values())) for item in answer.body["items"]]
        done = {outcome["_id"] for outcome in outcomes if _status(outcome) in (_CREATED, _ALREADY_THERE)}
        self._tally.acknowledge(sorted(done))
        left = [each for each in ids if each not in done]
        if left:
            refused = next(outcome for outcome in outcomes if outcome["_id"] not in done)
            self._tally.refused("indexing", f"document refused: {_kind(refused['error'])}")
            self._over.wait(_REFUSED_SECONDS)  # the cluster refused: no event announces that it accepts again
        return left

    def _search(self) -> None:
        rotation = Rotation(self._client.access.endpoints, self.profile.shun_seconds)
        query = {"size": 10, "query": {"match": {"text": "document"}}}
        path = f"/{self.profile.index}/_search"
        while not self._over.is_set():
            began = time.monotonic()
            attempts = range(self.profile.search_attempts)
            if not any(self._searched(rotation, path, query) for _ in attempts):
                self._tally.abandoned("searching")
            self._over.wait(max(0.0, began + 1.0 / self.profile.searches_per_second - time.monotonic()))

    def _searched(self, rotation: Rotation, path: str, query: Any) -> bool:
        """Whether an endpoint gave a complete answer; an answer without some shard is counted and retried."""
        answer = self._attempt("searching", rotation, path, query)
        return answer is not None and not answer.body["_shards"]["failed"]

    def _attempt(self, kind: str, rotation: Rotation, path: str, body: Any) -> Answer | None:
        """Send one request to the next endpoint; None if that failed, which is counted."""
        began = time.monotonic()
        endpoint = rotation.choose(began)
        try:
            answer = self._client.send(endpoint, "POST", path, body, seconds=self.profile.request_seconds)
        except urllib3.exceptions.HTTPError as error:
            rotation.shun(endpoint, time.monotonic())
            self._tally.failed(kind, type(error).__name__)
            return None
        if not answer.ok:
            rotation.shun(endpoint, time.monotonic())
            self._tally.failed(kind, f"status {answer.status}")
            return None
        shards = answer.body.get("_shards", {})
        self._tally.answered(kind, time.monotonic() - began, partial=int(shards.get("failed", 0) > 0))
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
    """How often each document id is found in an index, by reading all of it.

    Args:
        client: of the cluster.
        index: its name.
        scrolls: whether to read page by page; otherwise all is one page.

    Raises:
        LabError: a shard did not answer.
    """
    client.ask("POST", f"/{index}/_refresh")
    found: Counter[str] = Counter()
    if not scrolls:
        page = client.ask("POST", f"/{index}/_search", {"size": _ONE_PAGE, "fields": []})
        if page["_shards"]["failed"] or page["timed_out"] or page["hits"]["total"] > _ONE_PAGE:
            raise LabError(f"not every shard of {index} answered: {page['_shards']}")
        found.update(hit["_id"] for hit in page["hits"]["hits"])
        return found
    page = client.ask(
        "POST", f"/{index}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"], "_source": False}
    )
    while True:
        if page["_shards"]["failed"] or page["timed_out"]:
            raise LabError(f"not every shard of {index} answered: {page['_shards']}")
        found.update(hit["_id"] for hit in page["hits"]["hits"])
        if not page["hits"]["hits"]:
            client.ask("DELETE", "/_search/scroll", {"scroll_id": [page["_scroll_id"]]}, accept=(404,))
            return found
        page = client.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
