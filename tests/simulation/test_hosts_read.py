"""Whose hosts a held run reads: those of the wave that goes next, however large the cluster is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.event import WaveStarted
from orchestrator.model.observation import HostView
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Deadlines
from orchestrator.model.reading import Instant, Reading
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import HostCutOff, Mishap, SnapshotBegun, What
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, play, policy
from tests.simulation.zones import ZONED, zoned

_SECONDS = 1200.0
Read = list[tuple[Instant, frozenset[NodeName]]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Of each reading of hosts its moment and its nodes, as the run goes."""
    found: Read = []
    observe = SimulatedHosts.observe

    def noted(
        self: SimulatedHosts, nodes: Collection[NodeName], *, rights: bool, reboot: bool = False
    ) -> Mapping[NodeName, Reading[HostView]]:
        found.append((self.world.agenda.now, frozenset(nodes)))
        return observe(self, nodes, rights=rights, reboot=reboot)

    monkeypatch.setattr(SimulatedHosts, "observe", noted)
    return found


def _held(*plan: Mishap, world: World | None = None, **changes: object) -> Simulation:
    """A run to its end; nothing holds it for longer than it may."""
    simulation = Simulation(world or cluster(12), plan=plan)
    wanted = policy(**{"deadlines": Deadlines(hold=7200.0), **changes})
    state = play(simulation, simulation.begin(wanted))
    assert state.outcome is Outcome.DONE, state.message
    assert simulation.world.violations == []
    return simulation


def _within(read: Read, since: Instant) -> list[int]:
    """How many hosts each reading read while the snapshot ran, less the first few."""
    return [len(nodes) for at, nodes in read if since + 60.0 < at < since + _SECONDS - 10.0]


_SNAPSHOT = SnapshotBegun(seconds=_SECONDS)


def test_a_held_run_reads_the_hosts_of_the_next_wave_alone(read: Read) -> None:
    """Before its first stop and between two waves; with a host that is out of reach, that one besides."""
    cut = NodeName("es5")
    scenes: dict[str, tuple[Mishap, ...]] = {
        "first": (Mishap(what=_SNAPSHOT),),
        "later": (Mishap(what=_SNAPSHOT, verb="stop", nth=2),),
    }
    for name, plan in scenes.items():
        read.clear()
        simulation = _held(*plan)
        began = next(at for at, what in simulation.world.story if "nightly" in what)
        counts = _within(read, began)
        assert len(counts) > 50, name
        assert max(counts) == 1, name
    read.clear()
    gone: What = HostCutOff(node=cut, seconds=_SECONDS)
    simulation = _held(*scenes["later"], Mishap(what=gone, verb="stop", nth=2))
    began = next(at for at, what in simulation.world.story if "nightly" in what)
    assert max(_within(read, began)) <= 2


def test_every_host_is_read_first_and_again_before_its_own_stop(read: Read) -> None:
    simulation = _held(Mishap(what=_SNAPSHOT))
    waves = [r for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    first = waves[0].at
    last = [nodes for at, nodes in read if first - 10.0 < at <= first]
    assert set(simulation.world.nodes) in last, "a fault found at the last node leaves a cluster of two kinds"
    for record in waves:
        assert isinstance(record.event, WaveStarted)
        just_before = [nodes for at, nodes in read if record.at - 10.0 < at <= record.at]
        assert set(record.event.wave.nodes) <= just_before[-1]


def test_hosts_of_many_skipped_candidates_are_read_at_once(read: Read) -> None:
    """Nine hosts are cut off once the first node has gone: a few readings find one that is not."""
    reached = {NodeName("es10"), NodeName("es8"), NodeName("es1")}
    cut = [
        Mishap(what=HostCutOff(node=name, seconds=600.0), verb="restore_allocation")
        for name in cluster(12).nodes
        if name not in reached
    ]
    simulation = _held(*cut)
    stops = {
        name: next(fact.at for fact in node.facts if fact.what == "stopped")
        for name, node in simulation.world.nodes.items()
    }
    first, second, *_ = sorted(stops, key=stops.__getitem__)
    assert {first, second} == {"es10", "es8"}
    waves = [r.at for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    sizes = [len(nodes) for at, nodes in read if stops[first] + 12.0 < at < waves[1]]
    assert max(sizes) > 2
    assert len([size for size in sizes if size > 1]) <= 3, "and not one more host in each reading"


def test_a_zone_is_read_as_a_whole_and_no_other(read: Read) -> None:
    world = zoned(12, most=4)
    simulation = _held(Mishap(what=_SNAPSHOT, verb="stop", nth=4), world=world, **ZONED)
    began = next(at for at, what in simulation.world.story if "nightly" in what)
    counts = _within(read, began)
    assert len(counts) > 50
    assert max(counts) == 4
