"""Killed by SIGKILL at every seam of a real run: around a commit, and after an action before its outcome.

What is right afterwards is asked of the nodes. All seams, each in a run of its own, take hours (`make
test-all`); four kills of one run, at places drawn by a seed, are part of `make test`.
"""

from __future__ import annotations

import random
import sys
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    SEED,
    Bastion,
    Seam,
    When,
    assert_killed,
    assert_put_back,
    assert_restarted_once,
    by_chance,
    prepare,
    seams,
)

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

APPENDS, PERFORMS = 64, 18
"""More than a run of three nodes has (61 and 17): a slow machine has more readings to tell of."""
SEAMS = seams(APPENDS, PERFORMS)
SURE = {When.BEFORE: 58, When.AFTER: 58, When.ACTED: 15}
"""What every run has, however quick its nodes are."""
USAGE = 2


def _nothing_to_resume(bastion: Bastion, seam: Seam) -> bool:
    """Whether the run had not begun, or had ended, when it was killed; `seam` is where."""
    last = bastion.passed()[-1][1]
    return seam == Seam(when=When.BEFORE, number=1) or (
        seam.when is When.AFTER and any(each.startswith("run_finished") for each in last)
    )


@pytest.mark.part(name="kills")
@pytest.mark.parametrize("seam", SEAMS, ids=str)
@pytest.mark.proves("sigkill")
def test_resume_ends_as_an_undisturbed_run_does(
    process_cluster: ProcessCluster, bastion_of: BastionOf, seam: Seam
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    assert_killed(bastion, bastion.restart(seam=seam), seam, SURE)
    if _nothing_to_resume(bastion, seam):
        assert bastion.orchestrate("resume", "--yes") == USAGE, bastion.story()
        # What is left is the lease of a dead process: the next run, or a restore, takes it away.
        assert (bastion.restart() if seam.when is When.BEFORE else bastion.restore()) == 0, bastion.story()
    else:
        assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
    assert_restarted_once(lab, before, bastion.story())


@pytest.mark.part(name="kills")
@pytest.mark.parametrize("seam", SEAMS, ids=str)
def test_restore_puts_back_what_was_found(
    process_cluster: ProcessCluster, bastion_of: BastionOf, seam: Seam
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    assert_killed(bastion, bastion.restart(seam=seam), seam, SURE)
    assert bastion.restore() == 0, bastion.story()
    assert_put_back(lab, before, bastion.story())


@pytest.mark.part(name="kills")
@pytest.mark.timeout(3600)
def test_a_run_killed_at_each_next_seam_still_ends_well(
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


@pytest.mark.parametrize(
    "run", [0, *(pytest.param(run, marks=pytest.mark.part(name="kills")) for run in (1, 2))]
)
def test_a_run_killed_four_times_ends_as_an_undisturbed_one(
    process_cluster: ProcessCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str], run: int
) -> None:
    chance = random.Random(f"{SEED}/{run}")  # noqa: S311  (a seed that can be given again)
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    code, told = None, [f"ORCHESTRATE_SEED={SEED} run {run}:"]
    for seam in by_chance(chance, KILLS, SURE[When.BEFORE]):
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
