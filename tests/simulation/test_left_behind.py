"""A simulated run, killed in each phase: a plan after that is one of the whole cluster, and is not held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from orchestrator.engine.estimate import PastTimes
from orchestrator.engine.plan import make_plan
from orchestrator.engine.record import record_of
from orchestrator.engine.restored import Journalled, as_restored
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.kinds import kind_of
from orchestrator.model.action import action_name
from orchestrator.model.cluster import CopyState
from orchestrator.model.event import Record, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Kind, Strategy
from orchestrator.model.reading import Unknown
from orchestrator.simulation.glance import glance
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation

ELASTICSEARCH = kind_of(Kind.ELASTICSEARCH)
EMPTY = LeaseRecord(epoch=1, run="run-1", owner="ann@here", process="boot/1/2/3", started="2026-11-02")


def planned(started: RunStarted, seen: Observation) -> Plan:
    return make_plan(ELASTICSEARCH, started, seen, describe=action_name, times=PastTimes())


@dataclass(kw_only=True)
class Killed:
    """A reporter that plans once in each phase of a wave, as a process that finds this run killed there."""

    simulation: Simulation
    started: RunStarted
    plans: dict[tuple[Phase, int], tuple[Plan, bool]] = field(default_factory=dict)

    def events(self, _records: Sequence[Record]) -> None:
        """They are in the journal."""

    def waiting(self, state: RunState, _decision: Decision) -> None:
        left, key = record_of(state, EMPTY), (state.phase, state.waves_finished)
        seen = glance(self.simulation.world, self.started)
        # Without a master nothing can be planned, and what recovers is waited for after a kill, too.
        assert not isinstance(seen.cluster, Unknown)
        recovers = any(copy.state is CopyState.INITIALIZING for copy in seen.cluster.not_started)
        if left.is_settled or key in self.plans or seen.cluster.master is None or recovers:
            return
        found = planned(self.started, as_restored(ELASTICSEARCH, seen, left, Journalled.of(state)))
        self.plans[key] = found, bool(planned(self.started, seen).holds)

    def finished(self, _state: RunState, outcome: Outcome) -> None:
        assert outcome is Outcome.DONE


@pytest.mark.parametrize(("strategy", "nodes"), [(Strategy.NODE, 3), (Strategy.ZONE, 6)])
def test_what_a_run_left_holds_no_plan_after_its_kill(strategy: Strategy, nodes: int) -> None:
    simulation = Simulation(cluster(nodes))
    wanted = policy(strategy=strategy, zone_attribute="zone")
    started = simulation.start_of(wanted)
    whole = planned(started, glance(simulation.world, started))
    killed = Killed(simulation=simulation, started=started)
    simulation.drive(simulation.begin(wanted), killed)
    at_work = {Phase.DOWN, Phase.REJOINED}
    assert {phase for phase, _ in killed.plans} >= {*at_work, Phase.WITHHELD, Phase.SETTLED, Phase.FINISHING}
    for where, (plan, _) in killed.plans.items():
        assert plan.holds == (), where
        assert sorted(sorted(wave.nodes) for wave in plan.waves) == sorted(
            sorted(wave.nodes) for wave in whole.waves
        ), where
        assert plan.settings_changed == whole.settings_changed, where
    assert {phase for (phase, _), (_, held) in killed.plans.items() if held} >= at_work, "without the restore"
