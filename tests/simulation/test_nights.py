"""Rehearsals: a run on the mirror of a cluster, through nights in which things go wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import StopNode
from orchestrator.model.event import ActionSent, Event, Record, RunResumed
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import DisabledPredicate, Policy
from orchestrator.model.reading import Unknown
from orchestrator.runs.rehearsal import Follower, Rehearsal
from orchestrator.simulation import mishaps, riak_mishaps
from orchestrator.simulation.mishaps import Trip
from orchestrator.simulation.nights import QUIET, Night, night
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation
from tests.simulation.readings import read
from tests.simulation.ringed import by_location, located, riak_policy, ringed

NIGHTS = range(1, 121)


@dataclass(slots=True)
class Told:
    """A reporter that keeps what it is told."""

    records: list[Record] = field(default_factory=list)
    outcome: Outcome | None = None

    def events(self, records: Sequence[Record]) -> None:
        self.records += records

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Nothing is kept of waits."""

    def finished(self, state: RunState, outcome: Outcome) -> None:
        assert state.outcome is outcome
        self.outcome = outcome

    @property
    def names(self) -> list[str]:
        return [record.event.event for record in self.records]


def rehearse(world: World, wanted: Policy, seed: int) -> tuple[Rehearsal, Told]:
    rehearsal, told = Rehearsal(*read(world, wanted), seed), Told()
    rehearsal.play(told)
    return rehearsal, told


def clusters() -> Iterator[tuple[World, Policy]]:
    """One of each kind, by node and by zone."""
    yield cluster(), policy()
    yield ringed(), riak_policy()
    eight = located(*[tuple(list(ringed(8).nodes)[first : first + 2]) for first in (0, 4)])
    yield eight, by_location()


_ANYWHERE = {
    mishaps.StartsFail,
    mishaps.StopHangs,
    mishaps.RisesByItself,
    mishaps.HostCutOff,
    mishaps.NodeDies,
    mishaps.Unreadable,
    mishaps.LeaseUnrefreshed,
    mishaps.ProgramStalls,
    mishaps.SettingMeddled,
    Trip,
}
_OF_SHARDS = {
    mishaps.SnapshotBegun,
    mishaps.IndexMade,
    mishaps.AllocationsFail,
    mishaps.IndexPinned,
    mishaps.PlacesRuled,
}
_OF_RINGS = {
    riak_mishaps.HandoffStalls,
    riak_mishaps.HandoffSticks,
    riak_mishaps.VnodesHalt,
    riak_mishaps.ServiceNeverUp,
    riak_mishaps.OwnershipMoves,
    riak_mishaps.MemberJoins,
}


@pytest.mark.parametrize(("which", "own"), [(0, _OF_SHARDS), (1, _OF_RINGS), (2, _OF_RINGS)])
def test_no_night_breaks_a_rule_and_every_trouble_comes(which: int, own: set[type]) -> None:
    outcomes, befell = Counter[Outcome | None](), set[type]()
    for seed in NIGHTS:
        world, wanted = list(clusters())[which]
        started, seen = read(world, wanted)
        said = {words: what for what, words in night(seed, world, started.nodes).words.items()}
        rehearsal, told = Rehearsal(started, seen, seed), Told()
        rehearsal.play(told)
        befell |= {type(said[words]) for words in rehearsal.mishaps}
        left = rehearsal.aftermath()
        outcomes[told.outcome] += 1
        if told.outcome is not Outcome.NOT_RESTORED:
            assert left.not_as_found == (), seed
        if told.outcome is Outcome.DONE:
            assert left.down == (), seed
        assert told.names.count("run_resumed") == rehearsal.kills
        sequences = [record.sequence for record in told.records]
        assert sequences == list(range(1, len(sequences) + 1)), "each record is told once"
    assert outcomes[Outcome.DONE] > len(NIGHTS) // 4, outcomes
    assert outcomes[Outcome.FAILED], outcomes
    assert befell == _ANYWHERE | own


@pytest.mark.parametrize("which", range(3))
def test_in_a_quiet_night_all_goes_well(which: int) -> None:
    rehearsal, told = rehearse(*list(clusters())[which], QUIET)
    assert told.outcome is Outcome.DONE
    assert (rehearsal.mishaps, rehearsal.kills) == ((), 0)
    assert rehearsal.simulated > 0.0


@pytest.mark.parametrize("which", range(3))
def test_the_same_seed_is_the_same_night(which: int) -> None:
    def lived(seed: int) -> tuple[list[tuple[float, Event]], tuple[str, ...]]:
        rehearsal, told = rehearse(*list(clusters())[which], seed)
        return [(record.at, record.event) for record in told.records], rehearsal.mishaps

    assert lived(3) == lived(3)
    assert lived(3) != lived(4)


def test_a_killed_program_is_taken_up_and_told_of() -> None:
    for seed in NIGHTS:
        rehearsal, told = rehearse(cluster(), policy(), seed)
        if rehearsal.kills:
            break
    assert any(isinstance(record.event, RunResumed) for record in told.records)
    said = [mishap.words for mishap in rehearsal.news()]
    assert sum(words.startswith("the program is killed") for words in said) == rehearsal.kills
    assert rehearsal.news() == [], "each is told once"


def test_where_it_was_killed_names_each_event_once() -> None:
    told = {words for seed in NIGHTS[:40] for words in _kills(seed)}
    assert any(" the commit of " in words for words in told)
    assert any(" the commit of " not in words for words in told)
    for words in told:
        assert words.endswith("; a minute later: resume")
        names = words.partition(" of ")[2].partition(";")[0].split(", ")
        assert len(names) == len(set(names)), words


def _kills(seed: int) -> list[str]:
    rehearsal, _ = rehearse(cluster(), policy(), seed)
    return [mishap.words for mishap in rehearsal.news() if mishap.kills]


def test_a_wrong_step_is_a_defect_unless_its_rule_is_off() -> None:
    def played(wanted: Policy) -> tuple[Rehearsal, Told]:
        rehearsal, told = Rehearsal(*read(cluster(), wanted), QUIET), Told()
        rehearsal._world.violated("es1 is stopped, says this test")
        rehearsal.play(told)
        return rehearsal, told

    with pytest.raises(SafetyViolation, match="es1 is stopped, says this test"):
        played(policy())
    rehearsal, told = played(policy(disabled_predicates=_OFF))
    assert told.outcome is Outcome.DONE
    assert [line.partition(": ")[2] for line in rehearsal.against_rules] == ["es1 is stopped, says this test"]


_OFF = (DisabledPredicate(name="no_running_snapshot"),)


def test_a_step_that_no_run_may_take_is_wrong() -> None:
    world = cluster()
    started, _ = read(world, policy())
    simulation, told, wrong = Simulation(world), Told(), list[str]()
    follower = Follower(simulation, told, wrong.extend)
    simulation.begin_as(started)
    follower.follow()
    assert wrong == []
    simulation.journalled(ActionSent(action=StopNode(node=started.nodes[0])))  # nothing is withheld
    follower.follow()
    assert wrong
    assert told.names[-1] == "action_sent", "it is told all the same"


def test_a_wrong_step_is_a_defect_unless_a_rule_is_switched_off() -> None:
    with pytest.raises(SafetyViolation, match="no such step"):
        Rehearsal(*read(cluster(), policy()), QUIET)._wrong(["no such step"])
    rehearsal = Rehearsal(*read(cluster(), policy(disabled_predicates=_OFF)), QUIET)
    rehearsal._wrong(["no such step"])
    assert rehearsal.against_rules == ("no such step",)


def test_a_run_that_turns_and_turns_comes_to_an_end() -> None:
    with pytest.raises(SafetyViolation, match="does not end: 4 decisions"):
        Rehearsal(*read(cluster(), policy()), QUIET).play(Told(), most_turns=3)


def test_a_night_without_troubles_has_none() -> None:
    assert night(QUIET, cluster(), ()) == Night()
    assert (Night().plan, Night().trips, Night().words) == ((), (), {})


def test_kills_are_spread_over_the_run() -> None:
    world = cluster()
    kills = [kill for seed in range(1, 200) for kill in night(seed, world, tuple(world.nodes)).kills]
    assert min(kills) < 10
    assert max(kills) > 50


def test_a_host_that_does_not_answer_holds_a_rehearsal_too() -> None:
    started, seen = read(cluster(), policy())
    away = replace(seen, hosts=dict(list(seen.hosts.items())[1:]))
    assert Rehearsal(started, seen, QUIET).plan().holds == ()
    silent = next(name for name in seen.hosts if name not in away.hosts)
    unreached = replace(seen, hosts={**away.hosts, silent: Unknown(reason="no route")})
    rehearsal, told = Rehearsal(started, unreached, QUIET), Told()
    assert [hold.predicate for hold in rehearsal.plan().holds] == ["selected_hosts_ready"]
    rehearsal.play(told)
    assert told.outcome is Outcome.HELD
