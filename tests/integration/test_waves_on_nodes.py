"""Waves of `--strategy zone` and `shard-safe` and of `hosts.together` on real nodes, under load.

The oracles are the nodes' own logs and lives, a watcher of the routing table, and the documents of the load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.hostlab.hosts import wait_until
from tests.integration.killing import PLAYBOOK, QUICKEST, Bastion, assert_restarted_once, prepare, truth
from tests.integration.secured import SECURED
from tests.integration.watching import Watcher
from tests.integration.zoning import (
    EIGHT,
    SIX_IN_THREE,
    Vigil,
    Wave,
    cut,
    elected_master,
    events,
    story,
    waves,
    whole_zones,
    whys,
    zones_of,
)
from tests.lab.layout import THREE_ZONES, LabNode

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.nodes import LabCluster

pytestmark = pytest.mark.real
in_nodes = pytest.mark.part(name="nodes")

AWARENESS = "cluster.routing.allocation.awareness.attributes"
PAIR = ("es1", "es4")
"""In one zone."""
ONE_BY_THREE = tuple(LabNode(name=f"es{number}", zone=zone) for number, zone in enumerate("abbbc", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A cluster that is restarted under load and looked at."""

    lab: LabCluster
    bastion: Bastion
    show: Show

    @property
    def whole(self) -> list[Wave]:
        """A wave for every zone."""
        return whole_zones(zones_of(self.lab.nodes), elected_master(self.lab.client))

    def restarted(
        self,
        *words: str,
        wanted: Sequence[Wave] | None = None,
        beside: Callable[[], None] = lambda: None,
        nodes: Sequence[str] | None = None,
    ) -> list[Wave]:
        """Restart under load, in these waves if they are given: the waves. Nothing is lost.

        Args:
            words: of the command.
            wanted: the waves.
            beside: done once the load is there.
            nodes: those that are restarted; all unless they are given.
        """
        with Vigil(self.lab.access, zones_of(self.lab.nodes)) as vigil:
            beside()
            before = truth(self.lab)
            code = self.bastion.restart("--output", "json", *words)
        went = waves(self.bastion.said[-1])
        self.show(f"{story(self.bastion.said[-1])}\n  {vigil.told()}")
        assert code == 0, self.bastion.story()
        assert wanted is None or went == list(wanted), self.bastion.story()
        assert_restarted_once(self.lab, before, self.bastion.story(), nodes=nodes)
        vigil.assert_nothing_was_lost(went)
        return went

    @property
    def whys(self) -> list[str]:
        """Why each wave of the last run was what it was."""
        return whys(self.bastion.said[-1])


SceneOf = Callable[..., Scene]


@pytest.fixture
def scene_of(process_cluster: ProcessCluster, bastion_of: BastionOf, show: Show) -> SceneOf:
    """`scene_of(nodes, version, …)`: the operator's data and settings, and a bastion with these fields."""

    def made(
        nodes: tuple[LabNode, ...], version: str = QUICKEST, *, security: Any = None, **fields: Any
    ) -> Scene:
        lab = process_cluster(version, nodes=nodes, security=security)
        prepare(lab)
        return Scene(lab=lab, bastion=bastion_of(lab, **fields), show=show)

    return made


@pytest.mark.parametrize(
    ("version", "nodes", "security"),
    [("9.1.0", THREE_ZONES, SECURED), pytest.param(QUICKEST, SIX_IN_THREE, None, marks=in_nodes)],
    ids=["three-with-tls", "six"],
)
def test_nodes_in_three_zones_are_three_waves(
    scene_of: SceneOf, version: str, nodes: tuple[LabNode, ...], security: Any
) -> None:
    scene = scene_of(nodes, version, security=security, strategy="zone")
    scene.restarted(wanted=scene.whole)
    assert scene.whys[0].startswith("all of zone ")


@in_nodes
@pytest.mark.proves("widest-wave")
def test_a_zone_with_both_copies_of_a_shard_goes_in_two_waves(scene_of: SceneOf) -> None:
    """Awareness is switched off, and the cluster file names the attribute: nothing keeps copies apart."""
    scene = scene_of(SIX_IN_THREE, strategy="zone", document={"zone_attribute": "zone"})
    lab, whole = scene.lab, scene.whole

    def pair() -> None:  # the load's index is made while awareness still holds
        off = {AWARENESS: "", "cluster.routing.rebalance.enable": "none"}
        lab.client.ask("PUT", "/_cluster/settings", {"persistent": off})
        pin = {"number_of_shards": 1, "routing.allocation.include._name": ",".join(PAIR)}
        lab.client.ask("PUT", "/pair", {"settings": {"index": pin}})
        lab.wait_ready(status="green")

    zone = next(wave for wave in whole if "es1" in wave)
    wanted = cut(whole, zone, *((name,) for name in zone))
    scene.restarted(wanted=wanted, beside=pair)
    refused = f"zone a without {zone[1]} (every_shard_keeps_started_copies: index pair: [pair][0]: 0 started"
    assert any(why.startswith(refused) for why in scene.whys), scene.whys
    # Stopped by hand as the program did not, the same watcher sees the pair without a started copy.
    with Watcher(lab.access, zones_of(lab.nodes)) as watcher:
        lab.stop_nodes(list(PAIR))
        assert wait_until(lambda: bool(watcher.seen.lost), seconds=60), watcher.told()
    assert {lost.shard for lost in watcher.seen.lost} >= {"[pair][0]"}


@in_nodes
@pytest.mark.proves("widest-wave")
def test_a_zone_of_three_beside_zones_of_one_goes_in_two_waves(scene_of: SceneOf) -> None:
    scene = scene_of(ONE_BY_THREE, strategy="zone")
    zone = next(wave for wave in scene.whole if len(wave) == 3)
    wanted = cut(scene.whole, zone, zone[:2], zone[2:])
    scene.restarted(wanted=wanted)
    smaller = scene.whys[wanted.index(zone[:2])]
    assert smaller.startswith(f"zone b without {zone[2]} ("), smaller


@in_nodes
def test_two_nodes_of_this_machine_go_in_one_wave(scene_of: SceneOf) -> None:
    """`hosts.together: always`: all nodes share one machine, this one, which may not go whole."""
    scene = scene_of(SIX_IN_THREE, together="always")
    before = truth(scene.lab)
    assert scene.bastion.restart("--output", "json") == 3, scene.bastion.story()
    holds = events(scene.bastion.said[-1], "hold")
    held = {(line["predicate"], line["subject"]): line["evidence"] for line in holds}
    capacity = held["capacity_remains", "tier data"]
    assert capacity.startswith("0 of 6 nodes would stay up, 50% wanted; ")
    assert "go together, being on one machine: " in capacity
    assert capacity.endswith("or set `hosts.together: never`")
    assert truth(scene.lab) == before, "nothing at all was changed"

    last = "; with the elected master, so it goes last" if elected_master(scene.lab.client) in PAIR else ""
    scene.restarted("--only", PAIR[0], "--only", PAIR[1], wanted=[PAIR], nodes=PAIR)
    assert scene.whys == [f"both nodes to restart on machine 127.0.0.1{last}"]


@in_nodes
def test_eight_nodes_go_in_few_shard_safe_waves(scene_of: SceneOf) -> None:
    """Three at a time would be three waves; more for voters of which two are needed, and for chance."""
    scene = scene_of(EIGHT, strategy="shard-safe", playbook={**PLAYBOOK, "max_unavailable": 3})
    for number in range(24):
        body = {"settings": {"number_of_shards": 1, "number_of_replicas": 1 + number % 2}}
        scene.lab.client.ask("PUT", f"/set-{number:02}", body)
    scene.lab.wait_ready(status="green")
    master = elected_master(scene.lab.client)
    went = scene.restarted()
    assert len(went) <= 5, went
    assert master in went[-1]
