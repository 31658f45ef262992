"""Credentials that stop working in mid-run: named at once, borne for two minutes; what is left is listed."""

from __future__ import annotations

import json
from typing import TypeVar

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.run import decide
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, NotRestored, OrchestratorError
from orchestrator.model.action import ProbeSettings, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionConfirmed, Event, Record, StandingDown
from orchestrator.model.host_event import AccessGranted, AccessRefused, FellSilent
from orchestrator.model.lease_event import Deposed
from orchestrator.model.observation import Observation
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks
from orchestrator.model.reading import Instant
from orchestrator.runs.recorded import past_run_of
from orchestrator.runs.simulated import Simulation
from orchestrator.runs.unfinished import restore_run, resume_run
from orchestrator.runtime import loop
from orchestrator.runtime.codec import decode_event, encode_event
from orchestrator.runtime.database import Access
from orchestrator.runtime.taking import LeaseRefused, WatchInterrupted
from orchestrator.simulation.cluster import LOGIN_REFUSED, RIGHT_TAKEN
from orchestrator.simulation.mishaps import HostCutOff, How, Mishap, ProgramStandsStill, SettingMeddled, Trip
from orchestrator.view.progress import wait_of
from orchestrator.view.reporters import waiting_lines, waiting_object
from orchestrator.view.status import status_object, status_text
from orchestrator.view.summary import summary, summary_lines
from tests.simulation.play import cluster, killed, play, policy, run
from tests.simulation.program_mishaps import CredentialsRefused

ES1 = NodeName("es1")
LINE = "https://es1:9200 refused user ops (401; secret from env:ES_PASSWORD)"
E = TypeVar("E", bound=Event)


def refused(seconds: float, verb: str = "stop", *, writes: bool = False, after: float = 0.3) -> Mishap:
    return Mishap(what=CredentialsRefused(seconds=seconds, writes=writes), verb=verb, after=after)


def lived(*plan: Mishap) -> tuple[Simulation, RunState, list[Record]]:
    simulation, state = run(cluster(3), plan=plan)
    return simulation, state, list(simulation.journal.records)


def found(records: list[Record], kind: type[E]) -> list[tuple[float, E]]:
    return [(one.at, one.event) for one in records if isinstance(one.event, kind)]


@pytest.mark.parametrize("verb", ["stop", "start", "set_allocation", "restore_allocation"])
def test_a_rotated_secret_costs_a_run_nothing(verb: str) -> None:
    _, state, records = lived(refused(20.0, verb))
    assert state.outcome is Outcome.DONE
    assert [event.refusal for _, event in found(records, AccessRefused)] == [LOGIN_REFUSED]
    assert len(found(records, AccessGranted)) == 1
    assert found(records, FellSilent) == []


@pytest.mark.parametrize("verb", ["stop", "start", "set_allocation", "restore_allocation"])
def test_a_refusal_that_lasts_ends_the_run_with_what_is_left(verb: str) -> None:
    simulation, state, records = lived(refused(3000.0, verb))
    assert state.outcome is Outcome.NOT_RESTORED
    ((at, first),) = found(records, AccessRefused)
    assert first.reading
    ((down, standing_down),) = found(records, StandingDown)
    assert down - at == pytest.approx(120.0, abs=5.0)
    assert LINE in standing_down.reason
    assert records[-1].at - down < 60.0, "it does not wait for what cannot be seen"
    assert all(node.process for node in simulation.world.nodes.values()), "a start needs no API"

    end = summary(state, Outcome.NOT_RESTORED, [one.event for one in records], records[-1].at)
    lines = summary_lines(end)
    assert any("NOT RESTORED: cluster.routing" in line for line in lines), lines
    assert any(LINE in line for line in lines), lines
    assert any("runs out by itself" in line for line in lines), lines
    if verb in ("stop", "start"):
        assert any("was started, and not seen in the cluster" in line for line in lines), lines
    assert "orchestrate restore run-1" in "\n".join(lines[-2:]), lines

    simulation.world.agenda.advance(3000.0)
    state = play(simulation, simulation.restore())
    assert state.outcome is Outcome.RESTORED


def test_the_refusal_is_in_the_waiting_line_and_in_status() -> None:
    _, _, records = lived(refused(3000.0))
    state = RunState(run="run-1")
    so_far: list[Record] = []
    for record in records:
        state, so_far = evolve(state, record), [*so_far, record]
        if state.process.refused is not None:
            break
    now = so_far[-1].at + 50.0
    line = f"{LINE} for 50s; this program cannot get another secret"
    wait = wait_of(state, None, now)
    assert wait is not None
    assert wait.until is not None
    assert wait.until - now == pytest.approx(70.0)
    assert line in waiting_lines(state, wait, now)[1]
    assert line in status_text(state, so_far, now=now)
    for of_json in (waiting_object(state, wait, now), status_object(state, so_far, now=now)):
        assert json.loads(json.dumps(of_json["refused"])) == {
            "endpoint": "https://es1:9200",
            "credentials": "user ops",
            "source": "env:ES_PASSWORD",
            "status": 401,
            "call": "",
            "seconds": pytest.approx(50.0),
        }


def test_a_right_that_is_taken_away_ends_the_run_too() -> None:
    simulation, state, records = lived(refused(3000.0, writes=True))
    assert state.outcome is Outcome.NOT_RESTORED
    ((at, first),) = found(records, AccessRefused)
    assert (first.refusal, first.reading) == (RIGHT_TAKEN, False)
    assert records[-1].at - at < 200.0
    assert all(node.phase is not NodePhase.STARTING for node in state.nodes.values())
    simulation.world.agenda.advance(3000.0)
    assert play(simulation, simulation.restore()).outcome is Outcome.RESTORED


def test_a_stand_down_before_the_limit_names_the_refusal() -> None:
    wanted = policy(deadlines=Deadlines(refused=900.0))
    simulation, _ = run(cluster(3), plan=[refused(3000.0, writes=True)], wanted=wanted)
    ((_, down),) = found(list(simulation.journal.records), StandingDown)
    assert down.reason == f"allocation could not be restored yet: {RIGHT_TAKEN.sentence}"


def test_a_right_that_is_given_back_in_time_costs_nothing() -> None:
    _, state, records = lived(refused(60.0, writes=True))
    assert state.outcome is Outcome.DONE
    assert len(found(records, AccessGranted)) == 1


def test_the_events_come_back_from_the_journal() -> None:
    for event in (AccessRefused(refusal=RIGHT_TAKEN, reading=False), AccessGranted(seconds=3.0)):
        assert decode_event(encode_event(event)) == event


# A killed run, and credentials that the cluster refuses since ----------------------------------------------

STOP_CONFIRMED, NOTHING_CHANGED = 26, 4
"""Points of a run of three nodes at which it is killed: with its first node down, and before any change."""


def _killed(point: int) -> Simulation:
    simulation = Simulation(cluster(3))
    simulation.seams.crash_at = point
    assert killed(simulation, simulation.begin(policy()))
    simulation.seams.crash_at = None
    simulation.world.agenda.advance(100.0)
    simulation.fate.befall(CredentialsRefused(seconds=3000.0))
    return simulation


def _continued(simulation: Simulation, verb: str) -> tuple[RunState | OrchestratorError, list[str]]:
    said: list[str] = []
    with simulation.connect(tell=said.append) as connection, connection.state(Access.GO_ON) as store:
        past = past_run_of(store, store.runs()[0])
        try:
            return {"restore": restore_run, "resume": resume_run}[verb](connection, store, past), said
        except OrchestratorError as refused:
            return refused, said


@pytest.mark.parametrize("verb", ["restore", "resume"])
def test_a_node_that_is_down_is_started_though_refused(verb: str) -> None:
    simulation = _killed(STOP_CONFIRMED)
    world, began = simulation.world, simulation.world.agenda.now
    ended, said = _continued(simulation, verb)
    assert isinstance(ended, NotRestored), ended
    assert ended.exit_code is ExitCode.NOT_RESTORED
    assert world.agenda.now - began < 15.0
    assert world.nodes[NodeName("es2")].process, "a start needs no API"
    assert not any("a master" in line for line in said), said
    assert any("starting es2" in line for line in said), said
    lines = ended.lines
    assert lines[0] == LINE
    left = [line.strip() for line in lines[1:-1]]
    assert left[0] == (
        "NOT RESTORED: setting cluster.routing.allocation.enable (persistent): "
        "absent was found, primaries was set"
    )
    assert len(left) == 5
    assert left[-1] == "NOT RESTORED: node es2: started over SSH, not seen in the cluster"
    assert lines[-1] == f"once the credentials are accepted: orchestrate {verb} run-1"
    world.agenda.advance(3000.0)
    ended, _ = _continued(simulation, "restore")
    assert isinstance(ended, RunState)
    assert ended.outcome is Outcome.RESTORED
    assert world.settings() == cluster(3).settings()


def test_a_start_that_fails_meanwhile_is_sent_again_and_named() -> None:
    simulation = _killed(STOP_CONFIRMED)
    simulation.world.nodes[NodeName("es2")].starts_that_fail = 1
    ended, _ = _continued(simulation, "restore")
    assert isinstance(ended, NotRestored), ended
    assert simulation.world.nodes[NodeName("es2")].process


def test_a_node_that_does_not_start_is_listed_as_down() -> None:
    simulation = _killed(STOP_CONFIRMED)
    simulation.world.nodes[NodeName("es2")].starts_that_fail = 9
    ended, said = _continued(simulation, "restore")
    assert isinstance(ended, NotRestored), ended
    assert "  NOT RESTORED: node es2: down" in ended.lines
    assert any("es2: failed (Result: exit-code)" in line for line in said), said


@pytest.mark.parametrize("verb", ["restore", "resume"])
def test_refused_without_a_change_is_a_usage_error(verb: str) -> None:
    ended, said = _continued(_killed(NOTHING_CHANGED), verb)
    assert isinstance(ended, LeaseRefused), (ended, said)
    assert ended.exit_code is ExitCode.USAGE
    assert "nothing was changed" in str(ended)


def test_a_right_given_back_is_seen_at_the_next_write() -> None:
    key = "cluster.routing.allocation.enable"
    by_hand = Mishap(what=SettingMeddled(key=key, value="all"), verb="restore_allocation", after=5.0)
    _, state, records = lived(refused(20.0, "restore_allocation", writes=True, after=0.0), by_hand)
    assert state.outcome is Outcome.DONE
    ((granted, _),) = found(records, AccessGranted)
    ((since, _),) = found(records, AccessRefused)
    writes = (WriteSettings, ProbeSettings)
    confirmed = [at for at, event in found(records, ActionConfirmed) if isinstance(event.action, writes)]
    assert granted == min(at for at in confirmed if at > since), (
        "it restores nothing before the next wave is back"
    )


def test_allocation_that_is_disabled_is_not_called_enabled() -> None:
    short = policy(deadlines=Deadlines(withheld=60.0))
    simulation, state = run(cluster(3), plan=[refused(3000.0, after=0.1)], wanted=short)
    ((_, standing_down),) = found(list(simulation.journal.records), StandingDown)
    assert standing_down.reason.endswith(f"it cannot be enabled, {LINE}")
    assert state.outcome is Outcome.NOT_RESTORED


def test_settings_that_cannot_be_restored_say_why() -> None:
    _, state, records = lived(refused(3000.0, "restore_settings", writes=True, after=0.0))
    assert state.outcome is Outcome.NOT_RESTORED
    ((since, _),) = found(records, AccessRefused)
    assert records[-1].at - since < 200.0
    assert state.message.startswith(f"settings could not be restored yet: {RIGHT_TAKEN.sentence}")


def test_a_host_out_of_reach_beyond_the_limit_is_awaited() -> None:
    """A start needs no answer of the cluster, and a node that is down is worse than a late end."""
    cut_off = Mishap(what=HostCutOff(node=NodeName("es2"), seconds=250.0), verb="stop", after=2.0)
    simulation, state, records = lived(refused(3000.0), cut_off)
    ((down, _),) = found(records, StandingDown)
    assert state.outcome is Outcome.NOT_RESTORED
    assert simulation.world.nodes[NodeName("es2")].process
    assert records[-1].at - down > 100.0


HOOKS = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))
RIGHT_GONE = [refused(3000.0, "restore_allocation", writes=True, after=0.0)]


def test_a_node_that_is_back_is_put_into_service_all_the_same() -> None:
    simulation, state = run(cluster(3), plan=RIGHT_GONE, wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.NOT_RESTORED
    ran = [
        fact.what for node in simulation.world.nodes.values() for fact in node.facts if "hook" in fact.what
    ]
    assert ran == ["hook before_stop 0", "hook after_recovery 0"]


def test_a_run_that_another_took_over_puts_nothing_into_service(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[tuple[RunState, Observation, Instant]] = []

    def noted(state: RunState, seen: Observation, now: Instant) -> Decision:
        decided.append((state, seen, now))
        return decide(state, seen, now)

    monkeypatch.setattr(loop, "decide", noted)
    run(cluster(3), plan=RIGHT_GONE, wanted=policy(hooks=HOOKS))
    deposed = Deposed(successor="run-2", owner="eve@elsewhere", epoch=2, in_hand=())
    with_hooks = [
        (state, seen, now)
        for state, seen, now in decided
        if state.phase is Phase.STANDING_DOWN and "hook" in repr(decide(state, seen, now).actions).lower()
    ]
    assert with_hooks
    for state, seen, now in with_hooks:
        record = Record(run=state.run, sequence=999, at=now, event=deposed)
        assert decide(evolve(state, record), seen, now).actions == ()


@pytest.mark.parametrize("late", [20.0, 40.0, 110.0])
def test_a_stop_that_may_still_be_done_is_awaited(late: float) -> None:
    """Its node is seen to run, and was not started: it stops after that."""
    trips = [Trip(verb="stop", how=How.LATE, late=late)]
    limits = policy(deadlines=Deadlines(refused=30.0))
    simulation, _ = run(cluster(3), plan=[refused(3000.0, after=0.0)], trips=trips, wanted=limits)
    simulation.world.agenda.advance(400.0)
    assert all(node.process for node in simulation.world.nodes.values())


def test_a_stop_taken_as_lost_is_awaited_at_the_early_end() -> None:
    """Its node went back to those that wait for their turn: nothing else shows that it may still stop."""
    limits = policy(deadlines=Deadlines(refused=5.0, stop=30.0))
    trips = [Trip(verb="stop", how=How.LATE, late=50.0)]
    simulation, state = run(cluster(3), plan=[refused(3000.0, after=34.0)], trips=trips, wanted=limits)
    assert state.outcome is Outcome.NOT_RESTORED
    simulation.world.agenda.advance(400.0)
    assert all(node.process for node in simulation.world.nodes.values())


@pytest.mark.parametrize(
    ("verb", "after", "asleep"),
    [("stop", 0.3, 19.7), pytest.param("set_allocation", 1.0, 2.2, id="before-a-node-is-late")],
)
def test_a_standstill_takes_nothing_of_the_limit(verb: str, after: float, asleep: float) -> None:
    sleeps = Mishap(what=ProgramStandsStill(seconds=400.0), verb=verb, after=after + asleep)
    _, state, records = lived(refused(430.0, verb, after=after), sleeps)
    assert state.outcome is Outcome.DONE, state.message
    assert len(found(records, AccessGranted)) == 1


def test_a_signal_ends_the_wait_for_a_node_to_start() -> None:
    simulation = _killed(STOP_CONFIRMED)
    world, began = simulation.world, simulation.world.agenda.now
    world.nodes[NodeName("es2")].unreachable_until = began + 9000.0

    def ask() -> None:
        simulation.fate.request = Request.STOP

    world.agenda.after(100.0, ask)
    ended, said = _continued(simulation, "restore")
    assert isinstance(ended, WatchInterrupted), ended
    assert world.agenda.now - began < 130.0
    assert any(line == "waiting for es2 to start" for line in said), said
