"""A request to stop sends no further stop, and a run that changed nothing ends without another reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.situation import needed
from orchestrator.engine.state import RunState, with_node
from orchestrator.model.action import Flush, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent
from orchestrator.model.observation import Look
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.turn import Doubt, Verb
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime.lookout import Order
from orchestrator.runtime.loop import Loop, Ports
from tests.simulation.play import Watcher, cluster, lives, policy


class Asking:
    """A cluster port in whose readings a request comes.

    Args:
        cluster: the port that reads.
        when: whether the request comes during this reading.
    """

    def __init__(self, cluster: Any, when: Callable[[], bool]) -> None:
        self._cluster, self._when = cluster, when
        self.request = Request.NONE
        self.read_after = 0

    def observe(self, look: Any) -> Any:
        """Read; the request comes before the reading ends."""
        self.read_after += self.request is not Request.NONE
        if self._when():
            self.request = Request.INTERRUPT
        return self._cluster.observe(look)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def interrupted(simulation: Simulation, when: Callable[[RunState], bool]) -> tuple[Loop, Asking]:
    """A run that is interrupted during its first reading in such a state, played to its end."""
    state = simulation.begin(policy())
    port = Asking(simulation.cluster, lambda: when(loop.state))
    loop = Loop(
        state,
        Ports(
            cluster=port,
            hosts=simulation.hosts,
            lease=simulation.attempt.lease,
            journal=simulation.journal,
            clock=simulation.clock,
            listener=simulation.listener,
            reporter=Watcher(simulation, simulation.world.agenda.now + 3600.0),
        ),
        asked=lambda: (port.request, "SIGTERM"),
        workers=1,
        reads=Order.CLUSTER_FIRST,
    )
    loop.run()
    return loop, port


@pytest.mark.proves("early-signal")
def test_no_stop_is_sent_after_a_signal_in_the_last_reading() -> None:
    simulation = Simulation(cluster(3))
    loop, _ = interrupted(simulation, lambda state: Flush() in state.in_phase.confirmed)
    assert loop.state.outcome is Outcome.INTERRUPTED
    sent = [one.event.action for one in simulation.journal.records if isinstance(one.event, ActionSent)]
    assert not [action for action in sent if isinstance(action, StopNode)]
    assert set(lives(simulation.world).values()) == {1}
    assert simulation.world.settings() == cluster(3).settings()


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.GATED])
@pytest.mark.proves("early-signal")
def test_a_run_that_changed_nothing_ends_without_another_reading(phase: Phase) -> None:
    loop, port = interrupted(Simulation(cluster(3)), lambda state: state.phase is phase)
    assert loop.state.outcome is Outcome.INTERRUPTED
    assert port.read_after == 0


def test_a_run_that_changed_something_reads_until_it_is_restored() -> None:
    loop, port = interrupted(Simulation(cluster(3)), lambda state: state.phase is Phase.DOWN)
    assert loop.state.outcome is Outcome.INTERRUPTED
    assert port.read_after > 0


@pytest.mark.parametrize(
    "open_", [{"lost_at": 5.0}, {"doubt": Doubt(verb=Verb.STOP, since=5.0)}, {"phase": NodePhase.FAILED}]
)
def test_a_run_whose_stop_may_still_be_done_is_read_to_its_end(open_: dict[str, object]) -> None:
    ending = replace(Simulation(cluster(3)).begin(policy()), phase=Phase.STANDING_DOWN)
    assert needed(ending) == (frozenset(), frozenset())
    look, hosts = needed(with_node(ending, NodeName("es2"), **open_))
    assert Look.CLUSTER in look
    assert hosts == {"es2"}
