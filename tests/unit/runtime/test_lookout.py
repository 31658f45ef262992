"""One reading of the world: the cluster and its hosts at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.memory import CLUSTER
from orchestrator.engine.silence import Heard
from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.reading import Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.runtime.lookout import Lookout, ReadingOrder
from orchestrator.simulation import views
from tests.simulation.play import cluster
from tests.simulation.program import Simulation

LIMIT_SECONDS = 20.0


class Port:
    """A port of which only readings are wanted."""

    def __init__(self, observe: Callable[..., Any]) -> None:
        self.observe = observe

    def avoid(self, nodes: object) -> None:
        """Nobody is asked here."""


def look(
    observe_cluster: Callable[..., Any],
    observe_hosts: Callable[..., Any],
    *,
    order: ReadingOrder,
    reboot: bool = False,
) -> Any:
    simulation = Simulation(cluster(3))
    wanted = Policy(kind=Kind.ELASTICSEARCH, cluster=simulation.world.name, reboot=reboot)
    state = simulation.begin(wanted)
    ports: Any = (Port(observe_cluster), Port(observe_hosts))
    return Lookout(*ports, simulation.attempt.lease, simulation.clock, order=order).observe(state)


def test_the_cluster_and_its_hosts_are_read_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=LIMIT_SECONDS)  # one after the other, they would never meet

    def cluster_reading(_look: object) -> ClusterReadings:
        both.wait()
        return ClusterReadings(health=Unknown(reason="read"))

    def hosts_reading(nodes: Any, *, rights: bool, **_: object) -> Any:
        both.wait()
        return dict.fromkeys(nodes, rights)

    seen = look(cluster_reading, hosts_reading, order=ReadingOrder.AT_ONCE)
    assert seen.health == Unknown(reason="read")
    assert seen.hosts == {"es1": True, "es2": True, "es3": True}


@pytest.mark.parametrize("reboot", [True, False])
def test_the_right_to_reboot_is_read_for_a_run_that_reboots(*, reboot: bool) -> None:
    def hosts_reading(nodes: Any, *, rights: bool, reboot: bool) -> Any:
        return dict.fromkeys(nodes, (rights, reboot))

    seen = look(
        lambda _look: ClusterReadings(), hosts_reading, order=ReadingOrder.CLUSTER_FIRST, reboot=reboot
    )
    assert set(seen.hosts.values()) == {(True, reboot)}


class Hurrying:
    """A clock on which five seconds pass between any two looks."""

    def __init__(self) -> None:
        self._now = 1000.0

    def now(self) -> float:
        """The time, and on."""
        self._now += 5.0
        return self._now


@pytest.mark.parametrize("hangs", ["cluster", "hosts"])
def test_a_reading_that_is_unwanted_is_left_while_it_still_waits(hangs: str) -> None:
    go, came = threading.Event(), threading.Event()

    def reading(what: str, found: Any) -> Callable[..., Any]:
        def read(*_: object, **__: object) -> Any:
            came.set()
            return found if what != hangs or go.wait(LIMIT_SECONDS) else None

        return read

    simulation = Simulation(cluster(3))
    state = simulation.begin(Policy(kind=Kind.ELASTICSEARCH, cluster=simulation.world.name))
    ports: Any = (Port(reading("cluster", ClusterReadings())), Port(reading("hosts", {})))
    clock: Any = Hurrying()
    lookout = Lookout(*ports, simulation.attempt.lease, clock)
    try:
        assert lookout.observe(state, unwanted=came.is_set) is None
        assert not go.is_set()
    finally:
        go.set()
    assert lookout.observe(state, unwanted=lambda: True) is not None, "it was there at once"


@pytest.mark.parametrize("hangs", ["", "es2"])
def test_during_a_reading_it_is_known_who_has_not_answered(hangs: str) -> None:
    """The cluster, or one host of three: the others have answered, and are not named."""
    go, heard = threading.Event(), list[Mapping[NodeName, Heard]]()

    def of_cluster(_look: object) -> ClusterReadings:
        assert hangs or go.wait(LIMIT_SECONDS)
        return ClusterReadings()

    def of_hosts(names: Any, **_: object) -> Any:
        assert hangs not in names or go.wait(LIMIT_SECONDS)
        return dict.fromkeys(names, Unknown(reason=f"host of {names[0]}: it timed out", passes=True))

    def hear(news: Mapping[NodeName, Heard]) -> None:
        heard.append(news)
        if set(news) == {hangs}:  # the others answer in a moment
            go.set()

    simulation = Simulation(cluster(3))
    state = simulation.begin(Policy(kind=Kind.ELASTICSEARCH, cluster=simulation.world.name))
    ports: Any = (Port(of_cluster), Port(of_hosts))
    lookout = Lookout(*ports, simulation.attempt.lease, simulation.clock)
    lookout.observe(state, heard=hear)
    *_, waited, ended = heard
    assert waited == {hangs: Heard(since=simulation.world.agenda.now)}
    assert set(ended) == {"", "es1", "es2", "es3"}
    assert ended[NodeName("es1")].why == "it timed out"
    assert ended[CLUSTER].took is not None, "what was not asked for is no silence"
    first = ended[NodeName("es1")].since
    simulation.world.agenda.advance(30.0)
    lookout.observe(state, heard=hear)
    assert heard[-1][NodeName("es1")].since == first, "a silence counts from the first missed reading"


def test_an_older_cluster_state_is_unknown_for_two_minutes() -> None:
    """Endpoints may disagree; one that stays behind belongs to a cluster that was built anew."""
    simulation = Simulation(cluster(3))
    state = simulation.begin(Policy(kind=Kind.ELASTICSEARCH, cluster=simulation.world.name))
    of_master = views.readings(simulation.world)
    view = of_master.cluster
    assert not isinstance(view, Unknown)
    answers = [of_master]
    ports: Any = (Port(lambda _look: answers[-1]), Port(lambda *_, **__: {}))
    lookout = Lookout(*ports, simulation.attempt.lease, simulation.clock, order=ReadingOrder.CLUSTER_FIRST)

    def read(version: int, uuid: str = view.uuid) -> Any:
        answers.append(replace(of_master, cluster=replace(view, state_version=version, uuid=uuid)))
        return lookout.observe(state).cluster

    assert read(7).state_version == 7
    older = read(6)
    assert isinstance(older, Unknown)
    assert "cluster state 6, after 7" in older.reason
    assert read(7).state_version == 7, "the same one again is no older one"
    simulation.world.agenda.advance(119.0)
    assert isinstance(read(6), Unknown)
    simulation.world.agenda.advance(2.0)
    assert read(6).state_version == 6
    assert read(1, "another cluster").state_version == 1
