"""Which readings of health are recorded: changes at once, numbers once a minute, and both bounded."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.event import ClusterSampled
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import Unknown
from orchestrator.runtime.sampling import Sampler
from orchestrator.simulation.views import cluster as cluster_view
from tests.simulation.play import cluster, play, policy
from tests.simulation.program import Simulation


def seen(at: float, *, missing: int = 0) -> Observation:
    """A reading in which so many replicas have no node."""
    world = cluster(3)
    view = cluster_view(world)
    copies = list(view.copies)
    for place in [n for n, copy in enumerate(copies) if not copy.primary][:missing]:
        copies[place] = copies[place]._replace(state=type(copies[place].state).UNASSIGNED, node=None)
    return Observation(at=at, cluster=replace(view, copies=tuple(copies)))


def sampled(sampler: Sampler, at: float, missing: int) -> list[tuple[str, int]]:
    return [(one.health.value, one.unassigned) for one in sampler(seen(at, missing=missing))]


def test_a_change_of_health_is_recorded_at_once_a_number_later() -> None:
    sampler = Sampler()
    assert sampled(sampler, 0.0, 0) == [("green", 0)]
    assert sampled(sampler, 1.0, 0) == []
    assert sampled(sampler, 2.0, 3) == [("yellow", 3)]
    assert sampled(sampler, 30.0, 2) == []
    assert sampled(sampler, 62.0, 2) == [("yellow", 2)]
    assert sampled(sampler, 200.0, 2) == [], "nothing has changed"
    assert sampled(sampler, 201.0, 0) == [("green", 0)]


def test_what_was_not_read_is_not_recorded() -> None:
    assert list(Sampler()(Observation(at=0.0, cluster=Unknown(reason="no answer")))) == []


def test_a_health_that_alternates_for_hours_is_bounded() -> None:
    sampler, hours = Sampler(), 2
    ill, well = seen(0.0, missing=1), seen(0.0)
    found = [sampler(replace(ill if at % 2 else well, at=float(at))) for at in range(hours * 3600)]
    count = sum(map(len, found))
    assert 60 < count <= 60 + hours * 240 + 1


def test_samples_change_nothing_else_in_a_journal() -> None:
    journals = []
    for sampler in (None, Sampler):
        given = {} if sampler is None else {"sampler": sampler}
        simulation = Simulation(cluster(3), **given)
        state = play(simulation, simulation.begin(policy()))
        assert state.outcome is Outcome.DONE
        journals.append(simulation.journal.records)
    plain, with_samples = journals
    samples = [one for one in with_samples if isinstance(one.event, ClusterSampled)]
    others = [one for one in with_samples if not isinstance(one.event, ClusterSampled)]
    assert [(one.at, one.event) for one in others] == [(one.at, one.event) for one in plain]
    assert [one.event.health.value for one in samples] == ["green", *("yellow", "yellow", "green") * 3]
    assert all(one.event.read <= one.at for one in samples)


def test_a_wait_without_a_sample_commits_nothing() -> None:
    """Each commit is a write to the state, and a run waits for hours."""
    simulation = Simulation(cluster(3))
    assert play(simulation, simulation.begin(policy())).outcome is Outcome.DONE
    assert [point for point in simulation.seams.passed if point.endswith("commit of ")] == []
