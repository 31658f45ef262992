"""`hosts.together: always` on real nodes: they all share one machine, this one.

So the whole cluster is one machine, which may not go whole; of two nodes that are selected, in one zone, both
go in one wave, with `--strategy node`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import QUICKEST, assert_restarted_once, prepare, truth
from tests.integration.zoning import SIX_IN_THREE, Vigil, elected_master, events, story, waves, whys, zones_of

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]

PAIR = ("es1", "es4")


def test_two_nodes_of_this_machine_go_in_one_wave_under_load(
    process_cluster: ProcessCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = process_cluster(QUICKEST, nodes=SIX_IN_THREE)
    bastion, before = bastion_of(lab, together="always"), prepare(lab)
    zones = zones_of(lab.nodes)

    assert bastion.restart("--output", "json") == 3, bastion.story()
    held = {
        (line["predicate"], line["subject"]): line["evidence"] for line in events(bastion.said[-1], "hold")
    }
    capacity = held["capacity_remains", "tier data"]
    assert capacity.startswith("0 of 6 nodes would stay up, 50% wanted; ")
    assert "go together, being on one machine: " in capacity
    assert capacity.endswith("or set `hosts.together: never`")
    assert truth(lab) == before, "nothing at all was changed"
    told = [story(bastion.said[-1])]

    last = "; with the elected master, so it goes last" if elected_master(lab.client) in PAIR else ""
    with Vigil(lab.access, zones) as vigil:
        code = bastion.restart("--output", "json", "--only", PAIR[0], "--only", PAIR[1])
    with capsys.disabled():
        sys.stdout.write(f"\n{QUICKEST}\n  {told[0]}\n  {story(bastion.said[-1])}\n  {vigil.told()}\n")
    assert code == 0, bastion.story()
    assert waves(bastion.said[-1]) == [PAIR]
    assert whys(bastion.said[-1]) == [f"both nodes to restart on machine 127.0.0.1{last}"]
    assert_restarted_once(lab, before, bastion.story(), nodes=PAIR)
    vigil.assert_nothing_was_lost([PAIR])
