"""Real runs that are killed by SIGKILL, many times each: around commits, and after unrecorded actions.

What is right afterwards is asked of the nodes (`killing.py`). Four kills of one run, at places drawn by a
seed, are part of `make test`; chains of kills at every event (`chains.py`) of `make test-kills`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.chains import Chain, Rescuer, kill_by_chance, kill_everywhere
from tests.integration.killing import (
    KILLED,
    PLAYBOOK,
    QUICKEST,
    Bastion,
    Truth,
    assert_put_back,
    assert_restarted_once,
    prepare,
    truth,
)
from tests.integration.nursery import Nursery
from tests.integration.zoning import EIGHT, SIX_IN_THREE, elected_master, whole_zones, zones_of
from tests.lab.bulk import BulkLoad, load, numbered
from tests.lab.errors import LabError
from tests.lab.layout import THREE_ZONES, LabNode
from tests.lab.segments import count_segments, told

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.client import LabClient
    from tests.lab.nodes import LabCluster

RESCUER: Mapping[str, Any] = {**PLAYBOOK, "deadlines": {**PLAYBOOK["deadlines"], "stop": "10s"}}
"""After nearly every death one waits so long for a stop that may have been sent; here none is on its way."""
MOST_SEGMENTS = 5
POSTS = BulkLoad(
    indices=numbered("posts", 2), documents=4800, shards=1, documents_per_request=200, document_words=400
)
"""Long enough for a merge to take its time, so that a second one beside it would be seen."""
LOOK_SECONDS = 0.02

pytestmark = [pytest.mark.real, pytest.mark.timeout(7200)]
in_kills = pytest.mark.part(name="kills")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Judges by what stood before the run."""

    lab: LabCluster
    before: Truth

    def restarted_once(self, story: str) -> None:
        assert_restarted_once(self.lab, self.before, story)

    def put_back(self, story: str) -> None:
        assert_put_back(self.lab, self.before, story)


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """Nodes that search, in zones."""

    lab: LabCluster

    def names(self) -> dict[str, str]:
        """Nodes by their places in the run that is to come: the elected master goes last, and it changes."""
        waves = whole_zones(zones_of(self.lab.nodes), elected_master(self.lab.client))
        return {
            name: f"node{place}of{wave}"
            for wave, nodes in enumerate(waves)
            for place, name in enumerate(nodes)
        }

    @contextmanager
    def judged(self) -> Iterator[Compared]:
        """A look before is enough: the nodes tell how often they were started."""
        yield Compared(lab=self.lab, before=truth(self.lab))


def rescuers(bastion: Bastion, bastion_of: BastionOf) -> dict[str, Rescuer | None]:
    """`takeover`: another bastion with an empty state restores what the dead one left."""
    number = count()

    def other() -> Bastion:
        name = f"other-{next(number)}"
        return bastion_of(bastion.lab, name, nursery=bastion.nursery, playbook=RESCUER)

    return {"resume": None, "restore": lambda: bastion, "takeover": other}


@pytest.mark.parametrize(
    ("strategy", "nodes", "kills", "apart"),
    [
        ("node", THREE_ZONES, 4, range(8, 28)),
        pytest.param("zone", SIX_IN_THREE, 12, range(8, 20), marks=in_kills),
        pytest.param("shard-safe", EIGHT, 4, range(20, 40), marks=in_kills),
    ],
    ids=["nodes", "zones", "shard-safe"],
)
def test_killed_by_chance_a_run_ends_as_an_undisturbed_one(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    show: Show,
    strategy: str,
    nodes: tuple[LabNode, ...],
    kills: int,
    apart: range,
) -> None:
    """After each death a resume, a restore, or a restore by another bastion with an empty state."""
    lab = process_cluster(QUICKEST, nodes=nodes)
    prepare(lab)
    bastion = bastion_of(lab, strategy=strategy)
    befell = kill_by_chance(
        Zones(lab=lab), bastion, apart, kills=kills, rescuers=rescuers(bastion, bastion_of)
    )
    show(befell)


@in_kills
@pytest.mark.parametrize(
    ("strategy", "rescue"),
    [("node", "resume"), ("zone", "restore"), ("node", "takeover")],
)
@pytest.mark.proves("sigkill")
def test_a_run_may_be_killed_anywhere(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    nursery: Nursery,
    show: Show,
    strategy: str,
    rescue: str,
) -> None:
    """After each death the run is resumed, or the cluster is restored first."""
    lab = process_cluster(QUICKEST, nodes=SIX_IN_THREE if strategy == "zone" else THREE_ZONES)
    bastion = bastion_of(lab, strategy=strategy, nursery=nursery)
    prepare(lab)
    chain = Chain(Zones(lab=lab), bastion, rescuers(bastion, bastion_of)[rescue])
    kill_everywhere(chain, f"{strategy} {rescue}", show)


@in_kills
def test_a_resume_may_be_killed_at_each_next_seam(
    process_cluster: ProcessCluster, bastion_of: BastionOf, nursery: Nursery
) -> None:
    """A process that takes a run up has events of its own, which no undisturbed run has."""
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab, nursery=nursery)
    before = prepare(lab)
    code = bastion.restart(seam=2)
    for number in count(3):
        if code == 0:
            break
        assert code == KILLED, bastion.story()
        code = bastion.orchestrate("resume", "--yes", seam=number)
    assert_restarted_once(lab, before, bastion.story())


class Merges:
    """A bulk load whose merges are watched in the nodes' task lists.

    Attributes:
        most: by index, how many merges of it ran at one moment at most.
    """

    def __init__(self, lab: LabCluster) -> None:
        self.most: Counter[str] = Counter()
        self._lab, self._over = lab, threading.Event()

    def names(self) -> dict[str, str]:
        """None is restarted."""
        return {}

    @contextmanager
    def judged(self) -> Iterator[Merges]:
        """Load it anew, and look until the end."""
        with closing(self._lab.client) as client, closing(self._lab.client) as watcher:
            client.ask("DELETE", "/posts-*", accept=(404,))
            load(client, POSTS)
            assert min(copy.searched for copy in count_segments(client, "posts-*")) > 2 * MOST_SEGMENTS
            self._before = truth(self._lab)
            self.most.clear()
            self._over.clear()
            thread = threading.Thread(target=self._watch, args=(watcher,))
            thread.start()
            try:
                yield self
            finally:
                self._over.set()
                thread.join()

    def _watch(self, client: LabClient) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                answer = client.ask("GET", "/_tasks?actions=*forcemerge&detailed=true")
            except LabError:
                continue  # a node that does not answer at the moment tells of nothing
            tasks = [task for node in answer.get("nodes", {}).values() for task in node["tasks"].values()]
            for index in POSTS.indices:
                running = sum(index in task["description"] for task in tasks)
                self.most[index] = max(self.most[index], running)

    def restarted_once(self, story: str) -> None:
        """Merged, never two merges of an index at a time, and nothing else has changed."""
        copies = count_segments(self._lab.client, "posts-*")
        assert max(copy.most for copy in copies) <= MOST_SEGMENTS, told(copies) + story
        assert self.most == dict.fromkeys(POSTS.indices, 1), f"{self.most}\n{story}"
        assert truth(self._lab) == self._before, story

    def put_back(self, story: str) -> None:
        """Nothing but the segments has changed."""
        assert truth(self._lab) == self._before, story


@pytest.mark.part(name="merges")
@pytest.mark.parametrize("again", ["resume", "force-merge"])
def test_a_merge_may_be_killed_anywhere_and_is_never_doubled(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    nursery: Nursery,
    show: Show,
    again: str,
) -> None:
    """It is resumed; or the same command is called again, as by a pipeline, which knows nothing of runs."""
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab, nursery=nursery)

    def merge(**doom: Any) -> int:
        words = ("force-merge", "--cluster", str(bastion.file), "--index", "posts-*", "--yes")
        return bastion.orchestrate(*words, **doom)

    chain = Chain(Merges(lab), bastion, begin=merge, again=None if again == "resume" else merge)
    kill_everywhere(chain, f"merges, {again}", show)
