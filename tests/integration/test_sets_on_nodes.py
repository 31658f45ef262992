"""`--strategy shard-safe` on eight real nodes without zones, under load: few waves, and nothing is lost."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import KILLED, PLAYBOOK, QUICKEST, Seam, When, assert_restarted_once, prepare
from tests.integration.zoning import Vigil, elected_master, story, waves, zones_of
from tests.lab.layout import LabNode
from tests.lab.nodes import LabCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.fixtures_bastions import BastionOf

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]

EIGHT = tuple(
    LabNode(name=f"es{number}", zone="a", roles=("master", "data") if number > 5 else ("data",))
    for number in range(1, 9)
)
INDICES = 24
BOOK = {**PLAYBOOK, "max_unavailable": 3}
MOST_WAVES = 5
"""Three nodes at a time would be three waves; one more for voters of which two are needed, and for chance."""


@pytest.fixture
def lab() -> Iterator[LabCluster]:
    with LabCluster.start(version=QUICKEST, nodes=EIGHT, heap_mb=192) as cluster:
        yield cluster


def _fill(lab: LabCluster, replicas: int) -> None:
    client = lab.client
    try:
        for number in range(INDICES):
            client.ask(
                "PUT",
                f"/set-{number:02}",
                {"settings": {"number_of_shards": 1, "number_of_replicas": replicas}},
            )
    finally:
        client.close()
    lab.wait_ready(status="green")


@pytest.mark.parametrize("replicas", [1, 2])
def test_eight_nodes_go_in_few_waves(
    lab: LabCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str], replicas: int
) -> None:
    before = prepare(lab)
    _fill(lab, replicas)
    master = elected_master(lab.client)
    bastion = bastion_of(lab, strategy="shard-safe", playbook=BOOK)
    with Vigil(lab.access, zones_of(lab.nodes)) as vigil:
        code = bastion.restart("--output", "json")
    went = waves(bastion.said[-1])
    with capsys.disabled():
        sys.stdout.write(
            f"\n{replicas} replicas: {len(went)} waves\n  {story(bastion.said[-1])}\n  {vigil.told()}\n"
        )
    assert code == 0, bastion.story()
    assert len(went) <= MOST_WAVES, went
    assert master in went[-1]
    assert_restarted_once(lab, before, bastion.story())
    vigil.assert_nothing_was_lost(went)


def test_killed_by_chance_it_restarts_each_node_once(
    lab: LabCluster, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random("sets")  # noqa: S311  (repeatable)
    before = prepare(lab)
    _fill(lab, 1)
    bastion = bastion_of(lab, strategy="shard-safe", playbook=BOOK)
    code = bastion.restart(seam=Seam(when=When.ANY, number=chance.randrange(20, 40)))
    deaths = 0
    while code == KILLED:
        deaths += 1
        code = bastion.orchestrate(
            "resume", "--yes", seam=Seam(when=When.ANY, number=chance.randrange(25, 60))
        )
    with capsys.disabled():
        sys.stdout.write(f"\n{deaths} deaths")
    assert code == 0, bastion.story()
    assert deaths >= 2
    assert_restarted_once(lab, before, bastion.story())
