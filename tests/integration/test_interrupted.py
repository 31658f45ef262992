"""Runs on real nodes that a person interrupts, pauses or stops, from the same terminal or from another."""

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
    Truth,
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
in_nodes = pytest.mark.part(name="nodes")

DONE, USAGE, INTERRUPTED, LEASED, NOT_RESTORED, PAUSED = 0, 2, 5, 6, 8, 9
TWO = ("--only", "es1", "--only", "es2")


def assert_restored_and_resumed(
    lab: LabCluster, bastion: Bastion, before: Truth, restarted: tuple[int, ...] = (1,)
) -> None:
    """Settings as found, so many nodes restarted; a resume does the rest of the two."""
    assert_put_back(lab, before, bastion.story())
    started = sum(truth(lab).starts.values()) - sum(before.starts.values())
    assert started in restarted, f"{started} nodes were started\n{bastion.story()}"
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])


@pytest.mark.parametrize(
    ("number", "phase", "node"),
    [
        # Simulated runs are interrupted by chance, and in a golden trace: one real run shows that it is so.
        (signal.SIGTERM, "stopped", "es"),
        pytest.param(signal.SIGINT, "stopping", "es", marks=in_nodes),
        pytest.param(signal.SIGHUP, "starting", "es", marks=in_nodes),
        pytest.param(signal.SIGINT, "reassigned", "", marks=in_nodes),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value or "run",
)
@pytest.mark.proves("signals")
def test_a_signal_in_a_wave_restores_all_and_resume_finishes(
    process_cluster: ProcessCluster, bastion_of: BastionOf, number: signal.Signals, phase: str, node: str
) -> None:
    lab = process_cluster(QUICKEST)
    bastion, before = bastion_of(lab), prepare(lab)
    run = bastion.begin_restart(*TWO)
    bastion.await_seam(run, entered(phase, node=node))
    run.send_signal(number)
    assert bastion.end(run) == INTERRUPTED, bastion.story()
    assert_restored_and_resumed(lab, bastion, before, restarted=(0, 1))


@pytest.mark.proves("signals")
def test_a_second_signal_leaves_at_once_and_names_the_repair(
    process_cluster: ProcessCluster, bastion_of: BastionOf
) -> None:
    lab = process_cluster(QUICKEST)
    bastion, before = bastion_of(lab), prepare(lab)
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
    left = "cluster.routing.allocation.enable (persistent): set to primaries by the run; was all before"
    assert f"NOT RESTORED: setting {left}" in said
    repair = re.search(r"orchestrate (restore) (\S+)", said)
    assert repair is not None, said
    assert truth(lab).settings != before.settings, "nothing was left: the exit code was wrong"
    assert bastion.orchestrate(*repair.groups()) == DONE, bastion.story()
    assert_restored_and_resumed(lab, bastion, before)


@pytest.mark.parametrize(
    ("verb", "code"),
    [("pause", PAUSED), pytest.param("stop", INTERRUPTED, marks=in_nodes)],  # tests/cli stops one too
)
def test_pause_or_stop_and_status_from_another_terminal(
    process_cluster: ProcessCluster, bastion_of: BastionOf, tmp_path: Path, verb: str, code: int
) -> None:
    """A hook keeps each wave waiting while the other terminals are used, however busy the machine is."""
    lab, go_on = process_cluster(QUICKEST), tmp_path / "go-on"
    hook = {"run": f"until [ -e {go_on} ]; do sleep 0.1; done", "local": True}
    bastion, before = bastion_of(lab, "one", hooks={"while_stopped": [hook]}), prepare(lab)
    run = bastion.begin_restart(*TWO)
    bastion.await_seam(run, entered("stopped"))
    status, shown = bastion.aside("status")
    assert status == DONE, shown
    assert re.search(r"es\d .*[▶>] work", shown), shown
    other = bastion_of(lab, "two")
    assert other.restart() == LEASED, other.story()
    assert re.search(r"its process \d+ runs on this machine", other.said[-1])
    assert bastion.aside(verb)[0] == DONE
    go_on.touch()
    assert bastion.end(run) == code, bastion.story()
    late, shown = bastion.aside("stop")
    assert late == USAGE, shown
    assert "there is no run under way" in shown, shown
    assert_restored_and_resumed(lab, bastion, before)
