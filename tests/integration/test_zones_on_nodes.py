"""`--strategy zone` on real nodes of this machine: whole zones under load, and killed a dozen times."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    SEED,
    Seam,
    When,
    assert_put_back,
    assert_restarted_once,
    prepare,
)
from tests.integration.secured import SECURED
from tests.integration.zoning import SIX_IN_THREE, Vigil, elected_master, story, waves, whole_zones, zones_of
from tests.lab.layout import THREE_ZONES, LabNode
from tests.lab.security import Security

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

DEATHS = 12
APART = range(8, 20)
"""Seams that a process passes before it dies; one that takes a run up passes some of its own first."""
MOST_OVER = 2
"""A run may end before its last death: how many seams it has depends on how fast its nodes start."""


@pytest.mark.parametrize(
    ("version", "nodes", "security"),
    [
        ("9.1.0", THREE_ZONES, SECURED),
        pytest.param(QUICKEST, SIX_IN_THREE, None, marks=pytest.mark.part(name="nodes")),
    ],
    ids=["three-with-tls", "six"],
)
def test_nodes_in_three_zones_are_three_waves_under_load(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    capsys: pytest.CaptureFixture[str],
    version: str,
    nodes: tuple[LabNode, ...],
    security: Security | None,
) -> None:
    lab = process_cluster(version, nodes=nodes, security=security)
    bastion, before = bastion_of(lab, strategy="zone"), prepare(lab)
    zones = zones_of(lab.nodes)
    wanted = whole_zones(zones, elected_master(lab.client))
    with Vigil(lab.access, zones) as vigil:
        code = bastion.restart("--output", "json")
    with capsys.disabled():
        sys.stdout.write(f"\n{version}\n  {story(bastion.said[-1])}\n  {vigil.told()}\n")
    assert code == 0, bastion.story()
    assert waves(bastion.said[-1]) == wanted
    assert_restarted_once(lab, before, bastion.story())
    vigil.assert_nothing_was_lost(wanted)


@pytest.mark.part(name="nodes")
def test_a_run_by_zones_killed_often_ends_as_an_undisturbed_one(
    process_cluster: ProcessCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str]
) -> None:
    """After each death by chance a resume, a restore, or a restore by another bastion with an empty state.

    A node started twice, one left down, or a setting not put back fails it: `assert_put_back` after each
    restore, `assert_restarted_once` at the end.
    """
    chance = random.Random(f"{SEED}/zones")  # noqa: S311  (a seed that can be given again)
    lab = process_cluster(QUICKEST, nodes=SIX_IN_THREE)
    bastion, before = bastion_of(lab, strategy="zone"), prepare(lab)
    told, deaths = [f"ORCHESTRATE_SEED={SEED}:"], 0
    for number in range(DEATHS):
        seam = Seam(when=When.ANY, number=chance.choice(APART))
        code = (
            bastion.restart(seam=seam) if number == 0 else bastion.orchestrate("resume", "--yes", seam=seam)
        )
        if code == 0:
            break
        assert code == KILLED, bastion.story()
        deaths += 1
        seam_passed, detail = bastion.passed()[-1]
        told.append(seam_passed)
        if seam_passed.startswith("after") and any(each.startswith("run_finished") for each in detail):
            assert bastion.restore() == 0, bastion.story()  # the lease of a dead process is all that is left
            break
        (by,) = chance.choices(
            ["resume", "restore", "takeover"], weights=[4, 1, 1]
        )  # nodes are started in both
        if by != "resume":
            told.append(by)
            rescuer = bastion if by == "restore" else bastion_of(lab, f"other-{number}")
            assert rescuer.restore() == 0, rescuer.story()
            assert_put_back(lab, before, f"{' '.join(told)}\n{rescuer.story()}")
    else:
        assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(told)} ({deaths} deaths) ")
    assert_restarted_once(lab, before, f"{' '.join(told)}\n{bastion.story()}")
    assert deaths >= DEATHS - MOST_OVER, f"{' '.join(told)}: the run was over too early to show much"
