"""Killed by SIGKILL at every seam of merging: `resume` ends right, and nothing is merged twice at a time.

What is right is asked of the nodes: the segments of every copy, and their task lists, which are looked at all
the while. The documents are long enough for a merge of an index to take its time, so that a second one beside
it would be seen.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    SEED,
    Bastion,
    Seam,
    Truth,
    When,
    assert_killed,
    seams,
    truth,
)
from tests.lab.bulk import BulkLoad, load, numbered
from tests.lab.errors import LabError
from tests.lab.segments import count_segments, told

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.client import LabClient
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="kills")]

MOST = 5
POSTS = BulkLoad(
    indices=numbered("posts", 2), documents=4800, shards=1, documents_per_request=200, document_words=400
)
APPENDS, PERFORMS = 26, 8
"""More than such a run has: a slow machine has more readings to tell of."""
SURE = {When.BEFORE: 17, When.AFTER: 17, When.ACTED: 5}
"""What every such run has, however quick its merges are."""
by_seam = pytest.mark.parametrize("seam", seams(APPENDS, PERFORMS), ids=str)
LOOK_SECONDS = 0.02
NO_RUN = 2
KILLS = 4


class Merges:
    """What the nodes' task lists showed of force-merges, looked at all the while.

    Attributes:
        most: by index, how many merges of it ran at one moment at most.
        seen: ids of the tasks of each index.
    """

    def __init__(self, client: LabClient) -> None:
        self.most: Counter[str] = Counter()
        self.seen: dict[str, set[str]] = {}
        self._client, self._over = client, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                answer = self._client.ask("GET", "/_tasks?actions=*forcemerge&detailed=true")
            except LabError:
                continue  # a node that does not answer at the moment tells of nothing
            self._count(answer)

    def _count(self, answer: dict[str, dict[str, dict[str, dict[str, str]]]]) -> None:
        running: Counter[str] = Counter()
        for node in answer.get("nodes", {}).values():
            for number, task in node["tasks"].items():
                for index in POSTS.indices:
                    if index in task["description"]:
                        running[index] += 1
                        self.seen.setdefault(index, set()).add(number)
        for index, count in running.items():
            self.most[index] = max(self.most[index], count)

    @contextmanager
    def watched(self) -> Iterator[Merges]:
        """Look at the task lists until the end."""
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()


@contextmanager
def _loaded(lab: LabCluster) -> Iterator[tuple[LabClient, Merges, Truth]]:
    client, watcher = lab.client, lab.client
    try:
        load(client, POSTS)
        assert min(copy.searched for copy in count_segments(client, "posts-*")) > 2 * MOST
        with Merges(watcher).watched() as merges:
            yield client, merges, truth(lab)
    finally:
        client.close()
        watcher.close()


def _merge(bastion: Bastion, seam: Seam | None = None) -> int:
    words = ("force-merge", "--cluster", str(bastion.file), "--index", "posts-*", "--yes")
    return bastion.orchestrate(*words, seam=seam)


def _assert_merged(
    lab: LabCluster, client: LabClient, merges: Merges, before: Truth, bastion: Bastion
) -> None:
    copies = count_segments(client, "posts-*")
    assert max(copy.most for copy in copies) <= MOST, told(copies) + bastion.story()
    assert set(merges.seen) == set(POSTS.indices), "a merge was too quick to be seen: nothing is shown"
    assert set(merges.most.values()) == {1}, f"{merges.most}\n{bastion.story()}"
    if truth(lab).leases:  # of a process that died at its very end: whoever has something to do takes it away
        assert bastion.restore() == 0, bastion.story()
    assert truth(lab) == before, bastion.story()


@by_seam
def test_a_merge_killed_at_any_seam_is_resumed_and_never_doubled(
    process_cluster: ProcessCluster, bastion_of: BastionOf, seam: Seam
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    with _loaded(lab) as (client, merges, before):
        assert_killed(bastion, _merge(bastion, seam), seam, SURE)
        code = bastion.orchestrate("resume", "--yes")
        if code == NO_RUN:  # it had not begun, or was over, when it was killed
            code = _merge(bastion)
        assert code == 0, bastion.story()
        _assert_merged(lab, client, merges, before, bastion)


@by_seam
def test_a_killed_merge_is_started_again_and_never_doubled(
    process_cluster: ProcessCluster, bastion_of: BastionOf, seam: Seam
) -> None:
    """As a pipeline does it, which knows nothing of runs: it calls the same command again."""
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    with _loaded(lab) as (client, merges, before):
        assert_killed(bastion, _merge(bastion, seam), seam, SURE)
        assert _merge(bastion) == 0, bastion.story()
        _assert_merged(lab, client, merges, before, bastion)


def test_a_merge_killed_four_times_by_chance_is_never_doubled(
    process_cluster: ProcessCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)  # noqa: S311  (a seed that can be given again)
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    said = [f"ORCHESTRATE_SEED={SEED}:"]
    with _loaded(lab) as (client, merges, before):
        for number in range(KILLS):
            when = chance.choice([When.BEFORE, When.AFTER, When.ACTED])
            seam = Seam(when=when, number=chance.randint(1, 4 if when is When.ACTED else 12))
            if not number or chance.random() < 0.5:
                code = _merge(bastion, seam)
            else:
                code = bastion.orchestrate("resume", "--yes", seam=seam)
            said.append(f"{seam} -> {code}")
            assert code in (0, KILLED, NO_RUN), bastion.story()
        assert _merge(bastion) == 0, bastion.story()
        with capsys.disabled():
            sys.stdout.write(f"\n{' '.join(said)} ")
        _assert_merged(lab, client, merges, before, bastion)
