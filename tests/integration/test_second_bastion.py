"""Two bastions, one cluster: who holds it, what the second one does when the first one is dead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    assert_put_back,
    assert_restarted_once,
    entered,
    prepare,
    truth,
)
from tests.integration.zoning import SIX_IN_THREE
from tests.lab.layout import THREE_ZONES, LabNode

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

EXPIRY_SECONDS = 15.0
"""In place of 90: still six heartbeats, so that a busy machine does not lose a lease."""
DONE, LEASED = 0, 6
ENABLE = "cluster.routing.allocation.enable"
by_nodes_and_by_zones = pytest.mark.parametrize(
    ("strategy", "nodes"),
    [("node", THREE_ZONES), pytest.param("zone", SIX_IN_THREE, marks=pytest.mark.part(name="nodes"))],
    ids=["nodes", "zones"],
)
OF_A_WAVE = {"node": 1, "zone": 2}
"""Nodes of each wave."""


@by_nodes_and_by_zones
@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(False, id="provably gone"),
        pytest.param(True, id="run out", marks=pytest.mark.part(name="nodes")),
    ],
)
@pytest.mark.proves("record-alone")
def test_restore_with_an_empty_state_needs_only_the_record(
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    *,
    foreign: bool,
    strategy: str,
    nodes: tuple[LabNode, ...],
) -> None:
    lab, wave = process_cluster(QUICKEST, nodes=nodes), OF_A_WAVE[strategy]
    first = bastion_of(lab, "first", foreign=foreign, expiry=EXPIRY_SECONDS, strategy=strategy)
    second = bastion_of(lab, "second", expiry=EXPIRY_SECONDS)
    before = prepare(lab)
    assert first.restart(at=" stopped") == KILLED, first.story()
    left = truth(lab)
    assert left.settings["persistent"][ENABLE] == "primaries"
    assert len(before.lives) - wave <= len(left.lives) < len(before.lives), "no node is down"
    assert not (second.folder / "state.db").exists()
    assert second.orchestrate("restore", "--cluster", str(second.file)) == DONE, second.story()
    assert ("it expires in" in second.said[-1]) == foreign, second.story()
    assert_put_back(lab, before, second.story())
    assert sum(truth(lab).starts.values()) - sum(before.starts.values()) == wave
    # The first bastion comes back, and finds its own journal: it owes nothing and goes on.
    first.foreign = False
    assert first.orchestrate("resume", "--yes") == DONE, first.story()
    assert_restarted_once(lab, before, first.story())


@pytest.mark.part(
    name="nodes"
)  # a lease has to run out; a restore takes over above, tests/cli shows the refusal
@by_nodes_and_by_zones
def test_a_second_run_takes_over_only_from_a_dead_first(
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    strategy: str,
    nodes: tuple[LabNode, ...],
) -> None:
    lab = process_cluster(QUICKEST, nodes=nodes)
    first = bastion_of(lab, "first", foreign=True, expiry=EXPIRY_SECONDS, strategy=strategy)
    second = bastion_of(lab, "second", expiry=EXPIRY_SECONDS, strategy=strategy)
    before = prepare(lab)
    run = first.begin_restart()
    first.await_seam(run, entered("starting"))
    assert second.restart() == LEASED, second.story()
    holder = re.search(r"another run holds the lease on lab: run (\S+) of (\S+@\S+), since", second.said[-1])
    assert holder is not None, second.story()
    assert run.poll() is None, "the first run is over: nothing was shown"
    run.kill()
    assert first.end(run) == KILLED
    mine = re.search(r"run (\S+)", first.aside("status")[1])
    assert mine is not None
    assert holder.group(1) in first.aside("status")[1]
    owed = truth(lab)
    assert owed.settings != before.settings, "the first run was killed too late: nothing was owed"

    assert second.restart() == DONE, second.story()
    said = second.said[-1]
    taken = said.index(f"run {holder.group(1)} of {holder.group(2)} ended without restoring its changes")
    stood_down = said.index("stood down (restored): everything is restored")
    assert taken < stood_down < said.index(f": {len(nodes)} nodes: es"), said
    lab.wait_ready(status="green")
    after = truth(lab)
    assert after.settings == before.settings
    assert after.leases == ()
    # Those that the first run had finished or in hand were restarted by it, and by the second run once more.
    assert all(after.lives[name] != owed.lives.get(name) for name in before.lives)
    assert {after.starts[name] - before.starts[name] for name in before.starts} <= {1, 2}


@pytest.mark.part(name="nodes")
@by_nodes_and_by_zones
def test_a_new_run_restarts_the_node_that_a_dead_one_left_down(
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    strategy: str,
    nodes: tuple[LabNode, ...],
) -> None:
    lab, wave = process_cluster(QUICKEST, nodes=nodes), OF_A_WAVE[strategy]
    bastion = bastion_of(lab, strategy=strategy)
    before = prepare(lab)
    assert bastion.restart(at=" stopped") == KILLED, bastion.story()
    assert bastion.restart() == DONE, bastion.story()
    after = truth(lab)
    # One start to put each of the dead run's nodes back, and one restart of every node.
    times = sorted(after.starts[name] - before.starts[name] for name in before.starts)
    assert times == [1] * (len(nodes) - wave) + [2] * wave
    assert (after.settings, after.leases) == (before.settings, ())
    code, said = bastion.aside("history")
    assert code == DONE
    assert "unfinished" not in said, "the dead run was put back"
