"""Scenes that no row can tell: two programs, addresses that hide a machine, what a state leads to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from orchestrator.engine.fold import evolve, replay
from orchestrator.engine.progress import LostStop
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState, with_node
from orchestrator.kinds import decide, needed
from orchestrator.model.action import RunHook
from orchestrator.model.event import Deposed, Record, RestoreBegun, RunResumed, StoodDown
from orchestrator.model.observation import ClusterView, Look, Observation
from orchestrator.model.phase import Doubt, NodePhase, Outcome, Phase, Verb
from orchestrator.model.reading import Instant
from orchestrator.runs.without_master import nodes_to_start
from orchestrator.runtime import loop
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.world import World
from tests.simulation.chance import chance
from tests.simulation.play import cluster, policy, run
from tests.simulation.program import Simulation
from tests.simulation.program_mishaps import CredentialsRefused, JournalFails, TakenOver
from tests.simulation.scene import ES2, ES3, ES6, NOT_RESTORED, POOL, Scene, at, first
from tests.simulation.scenes.ordinary import at_stop, wanted
from tests.simulation.scenes.waves import PAIRS
from tests.simulation.sharing import always, sharing
from tests.simulation.wide import Life


def test_a_removed_record_is_that_of_its_program_alone() -> None:
    """Epochs begin anew then: the record of the other machine has the number that ours had."""
    ours = Simulation(cluster(3))
    ours.begin(policy())
    record, other = ours.record, ours.successor("run-2")
    ours.fate.befall(mishaps.LeaseRemoved())
    assert ours.leases.in_force is None
    other.begin(policy())
    assert (other.record.run, other.record.epoch) == ("run-2", record.epoch)
    ours.fate.befall(mishaps.LeaseRemoved())
    assert ours.leases.read() == other.record, "ours is not there to be removed"


def test_taken_over_a_suspended_process_changes_nothing(subtests: pytest.Subtests) -> None:
    """Suspended with a node down, taken over, and woken while its successor is at work."""
    for after, restarts in product([0.5, 3.0, 9.0], [False, True]):
        with subtests.test(after=after, restarts=restarts):
            drawn = replace(
                chance(3, ordinary=False),
                plan=(at_stop(TakenOver(seconds=130.0, restarts=restarts), after=after),),
                trips=(),
                crashes=(),
                planned=False,
                wanted=replace(wanted(tune=None), zone_attribute="zone", timeout=None, pause_after=None),
            )
            Life(drawn).live()


def test_nodes_with_their_own_addresses_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers: only the machine id, which their hosts tell, says that they share one."""
    cluster_of = views.cluster

    def apart(world: World) -> ClusterView:
        view = cluster_of(world)
        named = tuple(replace(node, address=f"{node.name}.example") for node in view.nodes)
        return replace(view, nodes=named)

    monkeypatch.setattr(views, "cluster", apart)
    silent = [first(mishaps.HostCutOff(node=name, seconds=20.0)) for name in (ES3, ES6)]
    played = Scene(name="together", of=sharing, wanted=always(), befalls=silent).play()
    assert {frozenset(pair) for pair in played.waves} == {frozenset(pair) for pair in PAIRS}


# What continues -----------------------------------------------------------------------------------------


def test_nodes_to_start_are_those_that_the_run_left_down() -> None:
    """By its journal, unless that says who took it over; a lost stop may have taken its node down."""
    played = Scene(name="killed", killed="after stop of es2", away=None).play()
    state = played.simulation.attempt.state
    resumed = RunResumed(operator="ann", host="b")
    taken_over = Deposed(successor="run-2", owner="ben@c", epoch=2, in_hand=())
    up = with_node(state, ES2, phase=NodePhase.PENDING, doubt=None)
    for found, of, event in (
        (("es2",), state, resumed),
        (("es2",), state, RestoreBegun(operator="ann", host="b")),
        ((), evolve(state, Record(run=state.run, sequence=99, at=1.0, event=taken_over)), resumed),
        ((), up, resumed),
        (("es2",), with_node(up, ES2, lost_stop=LostStop(since=state.process.acted_at)), resumed),
    ):
        assert nodes_to_start(of, event, at=played.world.agenda.now) == found


def test_needed_is_nothing_once_no_stop_may_still_be_done() -> None:
    ending = replace(Simulation(cluster(3)).begin(policy()), phase=Phase.STANDING_DOWN)
    assert needed(ending) == (frozenset(), frozenset())
    for open_ in (
        {"lost_stop": LostStop(since=5.0)},
        {"doubt": Doubt(verb=Verb.STOP, since=5.0)},
        {"phase": NodePhase.FAILED},
    ):
        look, hosts = needed(with_node(ending, ES2, **open_))
        assert (Look.CLUSTER in look, hosts) == (True, {"es2"})


def test_a_run_taken_over_puts_nothing_into_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own stand down would run hooks, while it is refused the right to change settings."""
    decided: list[tuple[RunState, Observation, Instant]] = []

    def noted(state: RunState, seen: Observation, now: Instant) -> Decision:
        decided.append((state, seen, now))
        return decide(state, seen, now)

    monkeypatch.setattr(loop, "decide", noted)
    taken = CredentialsRefused(seconds=3000.0, writes=True)
    Scene(
        name="refused",
        wanted=policy(hooks=POOL),
        befalls=[at("restore_allocation", taken)],
        ends=NOT_RESTORED,
    ).play()
    with_hooks = [
        each
        for each in decided
        if each[0].phase is Phase.STANDING_DOWN
        and any(isinstance(action, RunHook) for action in decide(*each).actions)
    ]
    assert with_hooks
    deposed = Deposed(successor="run-2", owner="eve@elsewhere", epoch=2, in_hand=())
    for state, seen, now in with_hooks:
        record = Record(run=state.run, sequence=999, at=now, event=deposed)
        assert decide(evolve(state, record), seen, now).actions == ()


# A journal that cannot be written until the run has ended ------------------------------------------------

FOR_GOOD = at("stop", mishaps.DiskFull(seconds=float("inf")))


def _restored_at(world: World) -> float:
    """When the last setting was restored."""
    return max(at for at, what in world.story if what.endswith(" = None"))


def test_the_last_events_are_written_once_there_is_room() -> None:
    """In the last seconds of the process, when everything is restored; else they delay its end by seconds."""
    simulation, _ = run(cluster(3), plan=[FOR_GOOD])
    restored = _restored_at(simulation.world)
    assert replay(simulation.run, simulation.journal.records).unrestored.anything
    assert 8.0 < simulation.world.agenda.now - restored < 15.0
    until = restored + 5.0 - simulation.journal.records[-1].at
    for reason in ("no space left on device", "database is locked", "attempt to write a readonly database"):
        fails = at("stop", JournalFails(reason=reason, seconds=until))
        simulation, state = run(cluster(3), plan=[fails])
        written = replay(simulation.run, simulation.journal.records)
        assert any(isinstance(record.event, StoodDown) for record in simulation.journal.records)
        assert (written.phase, written.outcome) == (Phase.ENDED, Outcome.FAILED)
        assert written.unrestored == state.unrestored
        assert not written.unrestored.anything
