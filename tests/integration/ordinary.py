"""An ordinary night: everyday events on a real cluster while it is restarted; none of them is a failure.

Indices roll over, and some get more replicas than there are nodes. A snapshot is taken and restored
into a new index. An index is closed and opened, another one changes its number of replicas, a third one is
merged. A coordinating-only node leaves, returns, and stands still for seconds. Threads of the test do all
this with the lab's own client; they share nothing with the program under test.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tests.lab.client import Access, LabClient
from tests.lab.errors import LabError
from tests.lab.layout import REPOSITORY
from tests.lab.seed import SeedIndex, seed

if TYPE_CHECKING:
    from tests.lab.nodes import LabCluster

ROLLOVER_SECONDS = 20.0
UNPLACEABLE_EVERY = 3
"""One rollover in so many makes an index with as many replicas as there are data nodes: one copy too many."""

KEPT = 4
"""How many restored indices, and how many that were rolled over, are kept: the oldest are deleted."""
PATIENCE = 8.0
"""A pause is at least so many times as long as the request before it: a slow machine has a slower night."""

REPOSITORY_NAME = "nightly"
CLOSED, SWUNG, MERGED, SAVED = "closed-and-opened", "swung", "merged", "saved"
INDICES = (
    SeedIndex(name=CLOSED, shards=1, documents=50),
    SeedIndex(name=SWUNG, shards=1, documents=50),
    SeedIndex(name=MERGED, shards=1, documents=400, document_bytes=2000),
    SeedIndex(name=SAVED, shards=2, documents=300),
)
KINDS = (
    "rollover",
    "snapshot",
    "restore",
    "delete",
    "close",
    "open",
    "replicas",
    "merge",
    "node leaves",
    "node freezes",
)
"""What a night is made of; one that is long enough has all of it."""


def only(access: Access, names: list[str], lab: LabCluster) -> Access:
    """The same access, by these nodes alone."""
    endpoints = tuple(lab.endpoint(name) for name in names)
    return Access(endpoints=endpoints, user=access.user, password=access.password, ca=access.ca)


class Night:
    """Ordinary events, for as long as runs go on. Use as a context manager.

    Args:
        lab: the cluster.
        log: a file that gets one line for each event, with its time and how it ended.
        flapping: a node without data and without a vote, which leaves and freezes; None for none.

    Attributes:
        done: how often each kind of event was answered well.
        refused: how often not; a node that is being restarted answers no request.
    """

    def __init__(self, lab: LabCluster, log: Path, *, flapping: str | None) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.last_refusals: dict[str, str] = {}
        self._lab, self._log, self._flapping = lab, log, flapping
        self._data = [node.name for node in lab.nodes if node.name != flapping]
        self._client = LabClient(only(lab.access, self._data, lab))
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._took = threading.local()
        self._broken: list[BaseException] = []
        work: list[Callable[[], None]] = [self._rolls, self._saves, self._closes, self._swings, self._merges]
        if flapping is not None:
            work.append(self._flaps)
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,), name=f"night{each.__name__}", daemon=True)
            for each in work
        ]

    def __enter__(self) -> Self:
        seed(self._client, INDICES)
        self._ask("PUT", "/rolled-000001", {"aliases": {"rolled": {"is_write_index": True}}})
        location = str(self._lab.directory / REPOSITORY)
        self._ask("PUT", f"/_snapshot/{REPOSITORY_NAME}", {"type": "fs", "settings": {"location": location}})
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it: every thread is over, the flapping node is up, and no index has a copy without a place.

        Raises:
            LabError: a thread broke down by a defect of its own.
        """
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._flapping is not None:
            self._lab.start_nodes([self._flapping])
        self._ask("POST", f"/{CLOSED}/_open")
        self._ask("PUT", "/rolled-*/_settings", {"index.number_of_replicas": 1})
        self._client.close()
        if self._broken:
            raise LabError(f"the night broke down: {self._broken[0]!r}") from self._broken[0]

    def missed(self) -> list[str]:
        """Kinds of events that never came about: such a night shows nothing of them."""
        kinds = [kind for kind in KINDS if self._flapping is not None or not kind.startswith("node ")]
        return [kind for kind in kinds if not self.done[kind]]

    def told(self) -> str:
        """One line of figures."""
        done = ", ".join(f"{kind} {self.done[kind]}" for kind in KINDS)
        return f"night: {done}; not answered: {dict(self.refused) or 'none'} {self.last_refusals or ''}"

    def _ask(self, method: str, path: str, body: Any = None, *, seconds: float = 30.0) -> Any:
        """By the first endpoint that answers; a node that starts or stops may refuse a request."""
        for _ in range(60):
            try:
                return self._client.ask(method, path, body, seconds=seconds)
            except LabError as error:
                if "answered with 503" not in str(error) and "no endpoint answered" not in str(error):
                    raise
                time.sleep(0.5)
        return self._client.ask(method, path, body, seconds=seconds)

    def _did(self, kind: str, what: Callable[[], object]) -> bool:
        """Do one thing and write it down; whether it was answered well."""
        began = time.time()
        try:
            what()
        except LabError as error:
            outcome, well = f"not answered: {str(error)[:200]}", False
        else:
            outcome, well = "done", True
        self._took.seconds = time.time() - began
        with self._lock:
            (self.done if well else self.refused)[kind] += 1
            if not well:
                self.last_refusals[kind] = outcome
            stamp = datetime.fromtimestamp(began, tz=UTC).isoformat(timespec="milliseconds")
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{stamp} {kind}: {outcome} ({self._took.seconds:.2f} s)\n")
        return well

    def _pause(self, seconds: float) -> bool:
        """Wait so long, or longer where this thread's last request took long; whether the night is over."""
        return self._over.wait(max(seconds, PATIENCE * getattr(self._took, "seconds", 0.0)))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  (whatever it is, `stop` raises it in the caller's thread)
            self._broken.append(error)

    # What happens ------------------------------------

    def _rolls(self) -> None:
        number = 0
        while not self._pause(ROLLOVER_SECONDS if number else 2.0):
            too_many = number % UNPLACEABLE_EVERY == 0
            replicas = len(self._data) if too_many else 1
            settings = {"index.number_of_shards": 1, "index.number_of_replicas": replicas}
            body = {"settings": settings}
            if self._did("rollover", lambda body=body: self._ask("POST", "/rolled/_rollover", body)):
                number += 1
                self._deletes(f"rolled-{number + 1 - KEPT:06d}", kept=number < KEPT)

    def _saves(self) -> None:
        for number in range(1, 10_000):
            if self._pause(2.0 if number == 1 else 12.0):
                return
            name = f"/_snapshot/{REPOSITORY_NAME}/saved-{number}"
            wanted = {"indices": SAVED, "include_global_state": False}
            if not self._did("snapshot", lambda n=name, w=wanted: self._saved(n, w)):
                continue
            renamed = {
                **wanted,
                "rename_pattern": SAVED,
                "rename_replacement": f"restored-{number}",
            }
            self._did("restore", lambda n=name, r=renamed: self._ask("POST", f"{n}/_restore", r))
            self._deletes(f"restored-{number - KEPT}", kept=number <= KEPT)

    def _deletes(self, index: str, *, kept: bool) -> None:
        """As those do who keep only the latest; one that never came about is no loss."""
        if not kept:
            self._did("delete", lambda: self._ask("DELETE", f"/{index}?ignore_unavailable=true"))

    def _saved(self, name: str, wanted: Any) -> None:
        said = self._ask("PUT", f"{name}?wait_for_completion=true", wanted, seconds=60.0)
        if said["snapshot"]["state"] != "SUCCESS":  # a shard whose node went down meanwhile
            raise LabError(f"the snapshot is {said['snapshot']['state']}")

    def _closes(self) -> None:
        while not self._pause(6.0):
            if self._did("close", lambda: self._ask("POST", f"/{CLOSED}/_close")):
                self._over.wait(2.0)
                self._did("open", lambda: self._ask("POST", f"/{CLOSED}/_open"))

    def _swings(self) -> None:
        replicas = 1
        while not self._pause(7.0):
            replicas = 3 - replicas
            body = {"index.number_of_replicas": replicas}
            self._did("replicas", lambda body=body: self._ask("PUT", f"/{SWUNG}/_settings", body))

    def _merges(self) -> None:
        number = 0
        while not self._pause(3.0):
            number += 1
            document = {"number": number, "text": f"text {number}"}
            self._did("write", lambda d=document: self._ask("POST", f"/{MERGED}/_doc?refresh=true", d))
            self._did("merge", lambda: self._ask("POST", f"/{MERGED}/_forcemerge?max_num_segments=1"))

    def _flaps(self) -> None:
        assert self._flapping is not None
        name = self._flapping
        freezes = False
        while not self._over.wait(6.0):
            if freezes:
                self._did("node freezes", lambda: self._froze(name, 4.0))
            else:
                self._did("node leaves", lambda: self._left(name, 4.0))
            freezes = not freezes

    def _froze(self, name: str, seconds: float) -> None:
        """It stands still, as in a long garbage collection: a member that answers nothing."""
        pid = self._lab.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            self._over.wait(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _left(self, name: str, seconds: float) -> None:
        self._lab.stop_nodes([name])
        try:
            self._over.wait(seconds)
        finally:
            self._lab.start_nodes([name])
