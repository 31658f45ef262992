"""`--strategy zone` on real hosts, over SSH and systemd: whole zones, smaller waves, a node that fails."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults import (
    FLAVOUR,
    QUICK,
    changed,
    elected,
    overlay,
    repair,
    summary,
)
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.killing import FOUND
from tests.integration.operating import Operator, ask, leases, lives, settings, starts
from tests.integration.watching import Watcher
from tests.integration.zoning import Vigil, Wave, cut, events, story, waves, whole_zones, whys
from tests.lab.client import LabClient
from tests.lab.seed import SeedIndex, seed

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

pytestmark = [pytest.mark.docker, pytest.mark.part(name="hosts"), pytest.mark.timeout(2400)]

Say = Callable[[str], None]
DATA = (
    SeedIndex(name="posts", shards=3, documents=500),
    SeedIndex(name="people", shards=1, replicas=2, documents=200),
)
FORCED = "cluster.routing.allocation.awareness.force.zone.values"
AWARENESS = "cluster.routing.allocation.awareness.attributes"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Shows figures and waves although output is captured: they are part of what these tests show."""

    def shown(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")  # noqa: T201  (as above)

    return shown


class Scene:
    """Hosts in zones with data and the operator's settings, and how all was before the run."""

    def __init__(self, cluster: HostCluster, folder: Path, *, found: dict[str, str] | None = None) -> None:
        client = LabClient(cluster.admin)
        seed(client, DATA)
        client.close()
        ask(
            cluster,
            "PUT",
            "/_cluster/settings",
            {**FOUND, "persistent": {**FOUND["persistent"], **(found or {})}},
        )
        self.cluster, self.operator = cluster, Operator(folder=folder, cluster=cluster)
        self.zones = {host.name: host.zone for host in cluster.hosts}
        self.look()

    def look(self) -> None:
        """Remember how all is now."""
        self.settings, self.born = settings(self.cluster), lives(self.cluster)
        self.started = {name: starts(self.cluster, name) for name in self.zones}
        self.whole = whole_zones(self.zones, elected(self.cluster))

    def restart(
        self, *, zone_attribute: str | None = None, **playbook: object
    ) -> subprocess.CompletedProcess[str]:
        """`orchestrate restart --strategy zone`, to its end."""
        file = self.operator.write(playbook=playbook or None, zone_attribute=zone_attribute)
        words = ("restart", "--cluster", str(file), "--yes", "--strategy", "zone", "--output", "json")
        return self.operator.orchestrate(*words)

    def assert_done(self, run: subprocess.CompletedProcess[str], wanted: list[Wave]) -> None:
        """These waves, exit 0, every node in another life by one start of its unit, all else as found."""
        assert run.returncode == 0, run.stdout + run.stderr
        assert waves(run.stdout) == wanted, story(run.stdout)
        assert changed(self.born, lives(self.cluster)) == set(self.zones)
        assert self.starts() == dict.fromkeys(self.zones, 1)
        self.assert_as_found()

    def starts(self) -> dict[str, int]:
        """How often systemd has started each node's unit since the look."""
        return {name: starts(self.cluster, name) - times for name, times in self.started.items()}

    def assert_as_found(self) -> None:
        """Nothing of the run is left in the cluster."""
        assert settings(self.cluster) == self.settings
        assert leases(self.cluster) == []

    def vigil(self) -> Vigil:
        """A load and a watcher."""
        return Vigil(self.cluster.admin, self.zones)


@pytest.mark.parametrize("flavour", ["9.1.0", "8.19.0"])
@pytest.mark.proves("widest-wave")
def test_six_nodes_in_three_zones_are_three_waves_under_load(
    host_cluster: HostClusterFactory, flavour: str, tmp_path: Path, say: Say
) -> None:
    scene = Scene(host_cluster(flavour, nodes=6), tmp_path)
    began = time.monotonic()
    with scene.vigil() as vigil:
        run = scene.restart()
    say(f"{flavour}, {time.monotonic() - began:.0f} s\n  {story(run.stdout)}\n  {vigil.told()}")
    assert len(scene.whole) == 3
    scene.assert_done(run, scene.whole)
    assert whys(run.stdout)[0].startswith("all of zone ")
    vigil.assert_nothing_was_lost(scene.whole)


@pytest.mark.proves("widest-wave")
def test_a_zone_with_both_copies_of_a_shard_goes_in_two_waves(
    host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    """Awareness is switched off, and the cluster file names the attribute: nothing keeps copies apart."""
    scene = Scene(
        host_cluster(FLAVOUR, nodes=6), tmp_path, found={"cluster.routing.rebalance.enable": "none"}
    )
    cluster = scene.cluster
    with scene.vigil() as vigil:  # its index is made while awareness still holds
        ask(cluster, "PUT", "/_cluster/settings", {"persistent": {AWARENESS: ""}})
        pin = {"number_of_shards": 1, "routing.allocation.include._name": "es2,es5"}
        ask(cluster, "PUT", "/pair", {"settings": {"index": pin}})
        cluster.wait_ready(status="green")
        scene.look()
        run = scene.restart(zone_attribute="zone")
    say(f"both copies in one zone\n  {story(run.stdout)}\n  {vigil.told()}")
    zone = next(wave for wave in scene.whole if "es2" in wave)
    wanted = cut(scene.whole, zone, *((name,) for name in zone))
    scene.assert_done(run, wanted)
    refused = f"zone b without {zone[1]} (every_shard_keeps_started_copies: index pair: [pair][0]: 0 started"
    assert any(why.startswith(refused) for why in whys(run.stdout)), whys(run.stdout)
    vigil.assert_nothing_was_lost(wanted)
    assert_the_watcher_sees_a_zone_stopped_whole(scene)


def assert_the_watcher_sees_a_zone_stopped_whole(scene: Scene) -> None:
    """What the program did not do, done by hand: the same watcher sees the pair without a started copy."""
    cluster = scene.cluster
    with Watcher(cluster.admin, scene.zones) as watcher:
        for name in ("es2", "es5"):
            cluster.exec(name, "systemctl", "stop", cluster.unit)
        assert wait_until(lambda: bool(watcher.seen.lost), seconds=60), watcher.told()
    assert {lost.shard for lost in watcher.seen.lost} >= {"[pair][0]"}


def test_under_forced_awareness_an_absent_zone_is_not_rebuilt(
    host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    scene = Scene(host_cluster(FLAVOUR, nodes=6), tmp_path, found={FORCED: "a,b,c"})
    cluster, (zone, *others) = scene.cluster, scene.whole
    at_once = {"index.unassigned.node_left.delayed_timeout": "0"}
    ask(
        cluster, "PUT", "/people/_settings", at_once
    )  # else its third copy would stay away for a minute anyway
    placed = copies(cluster, "people")
    with scene.vigil() as vigil:
        for name in zone:
            overlay(cluster, name, "[Service]\nExecStartPre=/bin/false\n")
        run = scene.restart(deadlines=QUICK)
        settled = (
            "/_cluster/health/people?wait_for_no_initializing_shards=true&wait_for_events=languid&timeout=60s"
        )
        assert ask(cluster, "GET", settled)["timed_out"] is False
        away = copies(cluster, "people")
        for name in zone:
            repair(cluster, name)
        again = scene.operator.orchestrate("resume", "--yes", "--retry-failed", "--output", "json")
    say(f"forced awareness\n  {story(run.stdout)}\n  {story(again.stdout)}\n  {vigil.told()}")
    assert (run.returncode, sorted(summary(run)["failed"])) == (4, sorted(zone)), run.stdout + run.stderr  # type: ignore[call-overload]  # a list of names
    assert waves(run.stdout) == [zone]
    assert all("forced awareness" in why for why in whys(run.stdout))
    # Without forced awareness two of the three copies may stand in one of the two zones that are left.
    assert away == placed - set(zone)
    assert len(away) == 2
    assert again.returncode == 0, again.stdout + again.stderr
    assert waves(again.stdout) == others, story(again.stdout)
    assert changed(scene.born, lives(cluster)) == set(scene.zones)
    scene.assert_as_found()
    assert copies(cluster, "people") == placed
    vigil.assert_nothing_was_lost(scene.whole)


def copies(cluster: HostCluster, index: str) -> set[str]:
    """The nodes with a started copy of an index of one shard."""
    rows = ask(cluster, "GET", f"/_cat/shards/{index}?h=node,state&format=json")
    return {row["node"] for row in rows if row["state"] == "STARTED"}


@pytest.mark.proves("failed-start")
def test_a_node_that_fails_to_start_spares_its_zone_neighbour(
    host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    scene = Scene(host_cluster(FLAVOUR, nodes=6), tmp_path)
    cluster, (zone, *others) = scene.cluster, scene.whole
    victim, neighbour = zone
    with scene.vigil() as vigil:
        overlay(cluster, victim, "[Service]\nExecStartPre=/bin/false\n")
        run = scene.restart(deadlines=QUICK)
        after = lives(cluster)
        scene.assert_as_found()
        repair(cluster, victim)
        again = scene.operator.orchestrate("resume", "--yes", "--retry-failed", "--output", "json")
    say(f"a node that fails to start\n  {story(run.stdout)}\n  {story(again.stdout)}\n  {vigil.told()}")
    assert (run.returncode, summary(run)["failed"]) == (4, [victim]), run.stdout + run.stderr
    assert waves(run.stdout) == [zone]
    # A run that went on would have touched another zone; one that gave up its wave, left the neighbour down.
    assert changed(scene.born, after) == {neighbour}
    assert set(after) == set(scene.zones) - {victim}
    assert again.returncode == 0, again.stdout + again.stderr
    assert waves(again.stdout) == others, story(again.stdout)
    assert changed(scene.born, lives(cluster)) == set(scene.zones)
    assert {name: times for name, times in scene.starts().items() if name != victim} == dict.fromkeys(
        set(scene.zones) - {victim}, 1
    )
    scene.assert_as_found()
    vigil.assert_nothing_was_lost(scene.whole)


def test_an_index_without_replicas_holds_the_whole_zone(
    host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    """A smaller wave would only leave the trouble for later: this rule is not about sets of nodes."""
    scene = Scene(host_cluster(FLAVOUR, nodes=6), tmp_path)
    second = scene.whole[0][1]
    bare = {"number_of_shards": 1, "number_of_replicas": 0, "routing.allocation.include._name": second}
    ask(scene.cluster, "PUT", "/bare", {"settings": {"index": bare}})
    scene.cluster.wait_ready(status="green")
    run = scene.restart(deadlines={**QUICK, "hold": "10s"})
    say(f"a hold\n  {story(run.stdout)}")
    assert run.returncode == 3, run.stdout + run.stderr
    held = {(line["predicate"], line["subject"]) for line in events(run.stdout, "hold")}
    assert held == {("zero_replica_indices", "index bare")}
    assert waves(run.stdout) == []
    assert lives(scene.cluster) == scene.born
    scene.assert_as_found()


def test_a_zone_of_three_beside_zones_of_one_goes_in_two_waves(
    host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    scene = Scene(host_cluster(FLAVOUR, nodes=5, zones="abbbc"), tmp_path)
    with scene.vigil() as vigil:
        run = scene.restart()
    say(f"a zone of three beside zones of one\n  {story(run.stdout)}\n  {vigil.told()}")
    zone = next(wave for wave in scene.whole if len(wave) == 3)
    wanted = cut(scene.whole, zone, zone[:2], zone[2:])
    scene.assert_done(run, wanted)
    smaller = whys(run.stdout)[wanted.index(zone[:2])]
    assert smaller.startswith(f"zone b without {zone[2]} ("), smaller
    vigil.assert_nothing_was_lost(wanted)
