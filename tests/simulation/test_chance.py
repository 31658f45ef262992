"""Seeded whole runs with mishaps and kills: safe at every step, ended in time, everything as found.

Every change lives a few that together meet what hundreds meet (`corpus.py`), and `make test` more of them;
`make test-soak` lives 5,000 (`ORCHESTRATE_RUNS`, `whole_runs.py`), and `make soak` as many as you like.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.policy import Together
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation.mishaps import SnapshotAborted
from tests.simulation import corpus
from tests.simulation.chance import chance
from tests.simulation.node_mishaps import HostAnswersLate, ManagementRuns
from tests.simulation.program_mishaps import CredentialsRefused, GateShut, TakenOver
from tests.simulation.soak import EVERY_MISHAP, ON_RINGS, Tally, report
from tests.simulation.whole_runs import PARTS, RUNS, part, together
from tests.simulation.wide import Life, life_of
from tests.workers import WHOLE_RUNS

ROOT = Path(__file__).resolve().parents[2]
_ENOUGH_FOR_EVERY_MISHAP = 600
_TRACES = (
    "from tests.simulation.chance import chance\n"
    "from tests.simulation.lived import BrokenError\n"
    "from tests.simulation.wide import Life\n"
    "for seed in (*range(1000, 1003), *TAKEN_OVER):\n"
    "    life = Life(chance(seed))\n"
    "    try:\n"
    "        told = life.live()\n"
    "    except BrokenError as broken:\n"
    "        told = str(broken)\n"
    "    print(seed, told, life.trace())\n"
)


pytestmark = pytest.mark.timeout(3600)


def test_the_corpus_breaks_no_property_and_meets_every_mishap(subtests: pytest.Subtests) -> None:
    met = set[tuple[str, ...]]()
    for seed in corpus.seeds(whole="ORCHESTRATE_KILLS" in os.environ):
        with subtests.test(seed=seed):
            met |= corpus.met_by(life_of(seed))
    assert sorted((EVERY_MISHAP | ON_RINGS) - {one[1] for one in met if one[0] == "mishap"}) == []


def test_a_corpus_meets_all_with_as_few_as_a_greedy_search_finds() -> None:
    lives = {
        seed: frozenset((str(n),) for n in of) for seed, of in {7: (1, 2), 8: (2, 3, 4), 9: (1,)}.items()
    }
    assert corpus.cover(lives) == {8: 3, 7: 1}


@pytest.fixture
def lived() -> Tally:
    """All whole runs of this session."""
    tally = together(PARTS)
    assert tally.runs == RUNS
    return tally


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.parametrize("first", PARTS)
@pytest.mark.proves("ordinary-night", "killed-at-night")
def test_whole_runs_break_no_property(first: int) -> None:
    tally = part(first)
    assert not tally.broken, report(tally)


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.skipif(RUNS < _ENOUGH_FOR_EVERY_MISHAP, reason="too few runs to meet every mishap")
def test_every_kind_of_mishap_came_about(lived: Tally) -> None:
    assert sorted(EVERY_MISHAP - set(lived.happened)) == []
    assert set(lived.sizes) == {5, 9, 20, 60}


def test_the_world_is_read_in_both_orders() -> None:
    """A real run reads the cluster and its hosts at once: either may tell of the earlier moment."""
    assert {chance(seed).reads for seed in range(20)} == {
        ReadingOrder.CLUSTER_FIRST,
        ReadingOrder.HOSTS_FIRST,
    }

    def told(seed: int, order: ReadingOrder) -> str:
        life = Life(replace(chance(seed, ordinary=False), reads=order))
        life.live()
        return life.trace()

    # In most runs nothing happens just between the two readings.
    differs = (
        told(seed, ReadingOrder.CLUSTER_FIRST) != told(seed, ReadingOrder.HOSTS_FIRST) for seed in range(12)
    )
    assert any(differs), "the order that was drawn is not the one in which the run reads"


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.skipif(RUNS < _ENOUGH_FOR_EVERY_MISHAP, reason="too few runs to say how often")
def test_enough_of_them_overlapped_went_together_or_waited(lived: Tally) -> None:
    """Beside recoveries, often more than once; by whole machines, with reboots; for gates."""
    assert lived.overlapped >= RUNS // 10
    assert lived.beside > lived.overlapped
    assert min(lived.together, lived.reboots, lived.waited) >= RUNS // 30


_DRAWN_LATER = (ManagementRuns, CredentialsRefused, HostAnswersLate, SnapshotAborted)
"""Kinds that were drawn after gates were: by dice of their own, too."""


def test_gates_leave_all_else_of_a_seed_as_it_was() -> None:
    """And are in a part of the runs alone: what a known seed showed without them, it shows still."""
    drawn = [chance(seed, ordinary=False) for seed in range(100)]
    assert 5 <= sum(bool(one.wanted.gates) for one in drawn) <= 30
    for one in drawn:
        shut = [mishap for mishap in one.plan if isinstance(mishap.what, GateShut)]
        assert bool(shut) == bool(one.wanted.gates)
        known = [mishap for mishap in one.plan if not isinstance(mishap.what, _DRAWN_LATER)]
        assert known[len(known) - len(shut) :] == shut, "after all that was drawn before"


def test_two_nodes_a_machine_leave_all_else_of_a_seed_as_it_was() -> None:
    drawn = [chance(seed, ordinary=False) for seed in range(60)]
    in_pairs = [one for one in drawn if any(node.machine for node in one.shape.nodes)]
    assert {one.wanted.together for one in in_pairs} == set(Together)
    for one in in_pairs:
        hosts = Counter(node.machine for node in one.shape.nodes if node.machine)
        assert set(hosts.values()) == {2}
        zones = {(node.machine, node.zone) for node in one.shape.nodes if node.machine}
        assert len(zones) == len(hosts), "a machine is in one zone"


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    taken_over = [
        seed for seed in range(200) if any(isinstance(m.what, TakenOver) for m in chance(seed).plan)
    ]
    traces = f"TAKEN_OVER = {taken_over[:2]}\n{_TRACES}"
    told = [
        subprocess.run(  # noqa: S603  (our own module)
            [sys.executable, "-c", traces],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(set(told[0].splitlines())) == 5
