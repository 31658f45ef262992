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
in_nodes = pytest.mark.part(name="nodes")

EXPIRY_SECONDS = 15.0
"""In place of 90: still six heartbeats, so that a busy machine does not lose a lease."""
DONE, LEASED = 0, 6
ENABLE = "cluster.routing.allocation.enable"


@pytest.mark.parametrize(
    ("foreign", "strategy", "nodes", "wave"),
    [
        pytest.param(False, "node", THREE_ZONES, 1, id="provably gone"),
        pytest.param(True, "zone", SIX_IN_THREE, 2, id="run out", marks=in_nodes),
    ],
)
@pytest.mark.proves("record-alone")
def test_restore_with_an_empty_state_needs_only_the_record(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    foreign: bool,
    strategy: str,
    nodes: tuple[LabNode, ...],
    wave: int,
) -> None:
    """Of a process that nobody can look for, the lease runs out first."""
    lab = process_cluster(QUICKEST, nodes=nodes)
    first = bastion_of(lab, "first", foreign=foreign, expiry=EXPIRY_SECONDS, strategy=strategy)
    second = bastion_of(lab, "second", expiry=EXPIRY_SECONDS)
    before = prepare(lab)
    assert first.restart(at=" stopped") == KILLED, first.story()
    left = truth(lab)
    assert left.settings["persistent"][ENABLE] == "primaries"
    assert len(before.lives) - wave <= len(left.lives) < len(before.lives), "no node is down"
    assert not (second.folder / "state.db").exists()
    assert second.restore() == DONE, second.story()
    assert ("it expires in" in second.said[-1]) == foreign, second.story()
    assert_put_back(lab, before, second.story())
    assert sum(truth(lab).starts.values()) - sum(before.starts.values()) == wave
    # The first bastion comes back, and finds its own journal: it owes nothing and goes on.
    first.foreign = False
    assert first.orchestrate("resume", "--yes") == DONE, first.story()
    assert_restarted_once(lab, before, first.story())


@in_nodes  # a lease has to run out; a restore takes over above, tests/cli shows the refusal
def test_a_second_run_takes_over_only_from_a_dead_first(
    process_cluster: ProcessCluster, bastion_of: BastionOf
) -> None:
    lab = process_cluster(QUICKEST)
    first = bastion_of(lab, "first", foreign=True, expiry=EXPIRY_SECONDS)
    second = bastion_of(lab, "second", expiry=EXPIRY_SECONDS)
    before = prepare(lab)
    run = first.begin_restart()
    first.await_seam(run, entered("starting"))
    assert second.restart() == LEASED, second.story()
    holder = re.search(r"another run holds the lease on lab: run (\S+) of (\S+@\S+), since", second.said[-1])
    assert holder is not None, second.story()
    assert run.poll() is None, "the first run is over: nothing was shown"
    run.kill()
    assert first.end(run) == KILLED
    assert holder.group(1) in first.aside("status")[1]
    owed = truth(lab)
    assert owed.settings != before.settings, "the first run was killed too late: nothing was owed"

    assert second.restart() == DONE, second.story()
    said = second.said[-1]
    taken = said.index(f"left by run {holder.group(1)} of {holder.group(2)}")
    stood_down = said.index("stood down (restored): everything is restored")
    assert taken < stood_down < said.index(": 3 nodes: es"), said
    lab.wait_ready(status="green")
    after = truth(lab)
    assert (after.settings, after.leases) == (before.settings, ())
    # Those that the first run had finished or in hand were restarted by it, and by the second run once more.
    assert all(after.lives[name] != owed.lives.get(name) for name in before.lives)
    assert {after.starts[name] - before.starts[name] for name in before.starts} <= {1, 2}


@in_nodes
def test_a_new_run_restarts_the_node_that_a_dead_one_left_down(
    process_cluster: ProcessCluster, bastion_of: BastionOf
) -> None:
    lab = process_cluster(QUICKEST)
    bastion, before = bastion_of(lab), prepare(lab)
    assert bastion.restart(at=" stopped") == KILLED, bastion.story()
    assert bastion.restart() == DONE, bastion.story()
    after = truth(lab)
    # One start to put the dead run's node back, and one restart of every node.
    assert sorted(after.starts[name] - before.starts[name] for name in before.starts) == [1, 1, 2]
    assert (after.settings, after.leases) == (before.settings, ())
    code, said = bastion.aside("history")
    assert code == DONE
    assert "unfinished" not in said, "the dead run was put back"
