"""Runs on real nodes that somebody interrupts, pauses or stops, from the same terminal or from another."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.runtime.signals import SAME_ACT_SECONDS
from tests.integration.killing import (
    QUICKEST,
    Bastion,
    assert_put_back,
    assert_restarted_once,
    entered,
    prepare,
    truth,
)

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

pytestmark = pytest.mark.real

DONE, USAGE, INTERRUPTED, LEASED, NOT_RESTORED, PAUSED = 0, 2, 5, 6, 8, 9
TWO = ("--only", "es1", "--only", "es2")


@pytest.mark.parametrize(
    ("number", "phase", "node"),
    [
        # Simulated runs are interrupted by chance, and in a golden trace: one real run shows that it is so.
        pytest.param(signal.SIGINT, "stopping", "es", marks=pytest.mark.part(name="nodes")),
        (signal.SIGTERM, "stopped", "es"),
        pytest.param(signal.SIGHUP, "starting", "es", marks=pytest.mark.part(name="nodes")),
        pytest.param(signal.SIGINT, "rejoined", "", marks=pytest.mark.part(name="nodes")),
        pytest.param(signal.SIGINT, "reassigned", "", marks=pytest.mark.part(name="nodes")),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value or "run",
)
@pytest.mark.proves("signals")
def test_a_signal_in_a_wave_restores_all_and_resume_finishes(
    process_cluster: ProcessCluster, bastion_of: BastionOf, number: signal.Signals, phase: str, node: str
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    run = bastion.begin_restart(*TWO)
    bastion.await_seam(run, entered(phase, node=node))
    run.send_signal(number)
    assert bastion.end(run) == INTERRUPTED, bastion.story()
    assert_put_back(lab, before, bastion.story())
    assert sum(truth(lab).starts.values()) - sum(before.starts.values()) <= 1, "a second node went down"
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])


@pytest.mark.proves("signals")
def test_a_second_signal_leaves_at_once_and_names_the_repair(
    process_cluster: ProcessCluster, bastion_of: BastionOf
) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    run = bastion.begin_restart(*TWO)
    bastion.await_seam(run, entered("starting"))
    run.send_signal(signal.SIGINT)
    bastion.await_seam(run, entered("standing_down", node=""))
    time.sleep(SAME_ACT_SECONDS)
    run.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert bastion.end(run) == NOT_RESTORED, bastion.story()
    assert time.monotonic() - sent < 10, "it did not leave at once"
    said = bastion.said[-1]
    owed = "NOT RESTORED: setting cluster.routing.allocation.enable (persistent): all was found"
    assert owed in said
    repair = re.search(r"orchestrate (restore) (\S+)", said)
    assert repair is not None, said
    assert truth(lab).settings != before.settings, "nothing was left: the exit code was wrong"
    assert bastion.orchestrate(*repair.groups()) == DONE, bastion.story()
    assert_put_back(lab, before, bastion.story())
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])


@pytest.mark.part(name="nodes")  # the next one pauses and goes on too
def test_a_canary_pauses_and_resume_goes_on(process_cluster: ProcessCluster, bastion_of: BastionOf) -> None:
    lab = process_cluster(QUICKEST)
    bastion = bastion_of(lab)
    before = prepare(lab)
    assert bastion.restart(*TWO, "--pause-after", "1") == PAUSED, bastion.story()
    assert_put_back(lab, before, bastion.story())
    assert sum(truth(lab).starts.values()) - sum(before.starts.values()) == 1
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])


def _waiting(bastion_of: BastionOf, lab: LabCluster, go_on: Path) -> Bastion:
    """A hook keeps each wave waiting while the other terminals speak, however busy the machine is."""
    hooks = {"while_stopped": [{"run": f"until [ -e {go_on} ]; do sleep 0.1; done", "local": True}]}
    return bastion_of(lab, "one", hooks=hooks)


def test_pause_and_status_from_another_terminal(
    process_cluster: ProcessCluster, bastion_of: BastionOf, tmp_path: Path
) -> None:
    lab, go_on = process_cluster(QUICKEST), tmp_path / "go-on"
    bastion = _waiting(bastion_of, lab, go_on)
    before = prepare(lab)
    run = bastion.begin_restart(*TWO)
    bastion.await_seam(run, entered("stopped"))
    code, shown = bastion.aside("status")
    assert code == DONE, shown
    assert "down" in shown, shown
    other = bastion_of(lab, "two")
    assert other.restart() == LEASED, other.story()
    assert re.search(r"its process \d+ runs on this machine", other.said[-1])
    assert bastion.aside("pause")[0] == DONE
    go_on.touch()
    assert bastion.end(run) == PAUSED, bastion.story()
    assert_put_back(lab, before, bastion.story())
    assert sum(truth(lab).starts.values()) - sum(before.starts.values()) == 1
    code, shown = bastion.aside("stop")
    assert code == USAGE, shown
    assert "there is no run under way" in shown, shown
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])


@pytest.mark.part(name="nodes")  # tests/cli stops a run on real nodes too
def test_stop_from_another_terminal(
    process_cluster: ProcessCluster, bastion_of: BastionOf, tmp_path: Path
) -> None:
    lab, go_on = process_cluster(QUICKEST), tmp_path / "go-on"
    bastion = _waiting(bastion_of, lab, go_on)
    before = prepare(lab)
    run = bastion.begin_restart(*TWO)
    bastion.await_seam(run, entered("stopped"))
    assert bastion.aside("stop")[0] == DONE
    go_on.touch()
    assert bastion.end(run) == INTERRUPTED, bastion.story()
    assert_put_back(lab, before, bastion.story())
    assert sum(truth(lab).starts.values()) - sum(before.starts.values()) == 1
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])
