"""Killed by SIGKILL at every seam of a real run: around a commit, and after an action before its outcome.

What is right afterwards is asked of the nodes. All seams, each in a run of its own, take hours (`make
test-all`); a dozen kills, at places drawn by a seed, are part of `make test`.
"""

from __future__ import annotations

import os
import random
import sys
from itertools import count, pairwise
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    Bastion,
    Seam,
    When,
    assert_put_back,
    assert_restarted_once,
    prepare,
)

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

APPENDS, PERFORMS = 64, 18
"""More than a run of three nodes has (61 and 17): a slow machine has more readings to tell of."""
EACH = [(When.BEFORE, APPENDS), (When.AFTER, APPENDS), (When.ACTED, PERFORMS)]
SEAMS = [Seam(when=when, number=number) for when, most in EACH for number in range(1, most + 1)]
USAGE = 2


def _killed(bastion: Bastion, seam: Seam) -> None:
    code = bastion.restart(seam=seam)
    if code == 0 and all(str(seam) != passed for passed, _ in bastion.passed()):
        pytest.skip(f"the run was over before {seam}")
    assert code == KILLED, bastion.story()


def _nothing_to_resume(bastion: Bastion, seam: Seam) -> bool:
    """Whether the run had not begun, or had ended, when it was killed; `seam` is where."""
    last = bastion.passed()[-1][1]
    return seam == Seam(when=When.BEFORE, number=1) or (
        seam.when is When.AFTER and any(each.startswith("run_finished") for each in last)
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("seam", SEAMS, ids=str)
def test_resume_ends_as_an_undisturbed_run_does(
    process_cluster: ProcessCluster, bastion_of: BastionOf, seam: Seam
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    _killed(bastion, seam)
    if _nothing_to_resume(bastion, seam):
        assert bastion.orchestrate("resume", "--yes") == USAGE, bastion.story()
        # What is left is the lease of a dead process: the next run, or a restore, takes it away.
        assert (bastion.restart() if seam.when is When.BEFORE else bastion.restore()) == 0, bastion.story()
    else:
        assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
    assert_restarted_once(lab, before, bastion.story())


@pytest.mark.exhaustive
@pytest.mark.parametrize("seam", SEAMS, ids=str)
def test_restore_puts_back_what_was_found(
    process_cluster: ProcessCluster, bastion_of: BastionOf, seam: Seam
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    _killed(bastion, seam)
    assert bastion.restore() == 0, bastion.story()
    assert_put_back(lab, before, bastion.story())


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_run_killed_at_its_2nd_then_3rd_then_4th_seam_and_so_on_still_ends_well(
    process_cluster: ProcessCluster, bastion_of: BastionOf
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    code = bastion.restart(seam=Seam(when=When.ANY, number=2))
    for number in count(3):
        if code == 0:
            break
        assert code == KILLED, bastion.story()
        code = bastion.orchestrate("resume", "--yes", seam=Seam(when=When.ANY, number=number))
    assert_restarted_once(lab, before, bastion.story())


KILLS = 4


@pytest.mark.parametrize("run", range(3))
def test_a_run_killed_four_times_by_chance_ends_as_an_undisturbed_run_does(
    process_cluster: ProcessCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str], run: int
) -> None:
    chance = random.Random(f"{SEED}/{run}")  # noqa: S311  (a seed that can be given again)
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    code, told = None, [f"ORCHESTRATE_SEED={SEED} run {run}:"]
    for seam in _by_chance(chance):
        code = (
            bastion.restart(seam=seam) if code is None else bastion.orchestrate("resume", "--yes", seam=seam)
        )
        told.append(str(seam))
        if code == 0:
            break  # a resumed run has other seams than an undisturbed one: over before the last kill
        assert code == KILLED, bastion.story()
        if chance.random() < 0.5:
            told.append("restore")
            assert bastion.restore() == 0, bastion.story()
            assert_put_back(lab, before, bastion.story())
    if code != 0:
        assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(told)} ")
    assert_restarted_once(lab, before, f"{' '.join(told)}\n{bastion.story()}")


SEED = os.environ.get("ORCHESTRATE_SEED") or str(random.SystemRandom().randrange(10**6))
_QUIET_APPENDS = 58
_APPENDS_A_PERFORM = 4


def _by_chance(chance: random.Random) -> list[Seam]:
    """Where the processes of one run die: spread over the run, each counted from its process's beginning."""
    places = sorted(chance.sample(range(2, _QUIET_APPENDS), KILLS))
    seams = []
    for begin, end in pairwise([0, *places]):
        when = chance.choice([When.BEFORE, When.AFTER, When.ACTED])
        number = max(1, (end - begin) // _APPENDS_A_PERFORM) if when is When.ACTED else max(2, end - begin)
        seams.append(Seam(when=when, number=number))
    return seams
