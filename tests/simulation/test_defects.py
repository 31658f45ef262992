"""A defect of the program in mid-run: everything is put back first, and then the defect is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.engine.fold import replay
from orchestrator.merging import decide
from orchestrator.model.action import HostAction, RunHook, StartNode, StopNode
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.model.policy import Hook, Hooks, Policy
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime import loop as loop_module
from orchestrator.runtime.database import CommitInDoubt
from orchestrator.runtime.lookout import Order
from orchestrator.runtime.loop import Loop, Ports
from tests.simulation.gated import QUEUE
from tests.simulation.loaded import loaded as loaded_cluster
from tests.simulation.loaded import merged_policy, merging
from tests.simulation.play import Watcher, cluster, policy
from tests.simulation.tuned import detune, profile

ES2 = NodeName("es2")


class DefectError(ValueError):
    """Raised where nobody expects it."""


@dataclass
class Faulty:
    """Hosts whose adapter raises: at the chosen verb, so many times, before or after doing it."""

    inner: Any
    verb: type[HostAction]
    times: int
    done_first: bool = False
    raised: list[HostAction] = field(default_factory=list)

    def perform(self, action: HostAction) -> Any:
        if not (isinstance(action, self.verb) and action.node == ES2 and len(self.raised) < self.times):
            return self.inner.perform(action)
        self.raised.append(action)
        if self.done_first:
            self.inner.perform(action)
        raise DefectError("string argument should contain only ASCII characters")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _loop(
    simulation: Simulation, hosts: Any, *, cluster_port: Any = None, wanted: Policy | None = None
) -> Loop:
    state = simulation.begin(wanted or policy())
    watcher = Watcher(simulation, simulation.world.agenda.now + 48 * 3600.0, compare=False)
    ports = Ports(
        cluster=cluster_port or simulation.cluster,
        hosts=hosts,
        lease=simulation.attempt.lease,
        journal=simulation.journal,
        clock=simulation.clock,
        listener=simulation.listener,
        reporter=watcher,
    )
    return Loop(
        state,
        ports,
        asked=lambda: (Request.NONE, ""),
        workers=1,
        reads=Order.CLUSTER_FIRST,
    )


@pytest.mark.parametrize("verb", [StopNode, StartNode])
@pytest.mark.parametrize("done_first", [False, True])
@pytest.mark.proves("defect")
def test_everything_is_put_back_before_a_defect_is_told(verb: type[HostAction], *, done_first: bool) -> None:
    world = cluster(3)
    simulation = Simulation(world)
    loop = _loop(simulation, Faulty(simulation.hosts, verb, times=1, done_first=done_first))
    with pytest.raises(DefectError):
        loop.run()
    assert loop.state.phase is Phase.ENDED
    assert loop.state.outcome is Outcome.FAILED
    assert "a defect of the program: DefectError" in loop.state.message
    assert world.settings() == cluster(3).settings()
    assert all(node.process for node in world.nodes.values())
    assert world.violations == []


def test_a_defect_that_repeats_ends_the_program_at_once() -> None:
    simulation = Simulation(cluster(3))
    hosts = Faulty(simulation.hosts, StartNode, times=99)
    with pytest.raises(DefectError):
        _loop(simulation, hosts).run()
    assert len(hosts.raised) == 8, "one from the stand-down and one without it, for each defect"


RAISING: tuple[tuple[str, str], ...] = (
    ("cluster", "observe"),
    ("cluster", "bulk"),
    ("cluster", "avoid"),
    ("hosts", "observe"),
    ("hosts", "tuning"),
    ("gates", "observe"),
    ("lease", "view"),
    ("lease", "confirm"),
    ("lease", "publish"),
    ("listener", "listen"),
    ("reporter", "events"),
    ("reporter", "waiting"),
    ("asked", "__call__"),
    ("decide", "__call__"),
)
"""Everything that a run reads or asks, its decision, and the views that are shown it."""


class Switch:
    """Raises at one method of one port, from the moment that a run enters a phase on, for ever."""

    def __init__(self, port: str, method: str, phase: Phase) -> None:
        self.port, self.method, self.phase = port, method, phase
        self.loop: Loop | None = None
        self.thrown = self.raised = 0

    def around(self, name: str, inner: Any) -> Any:
        return Switched(self, name, inner) if name == self.port else inner

    def call(self, method: str, inner: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.loop is not None and method == self.method:
            self.thrown = self.thrown or self.loop.state.phase is self.phase
            if self.thrown:
                self.raised += 1
                raise DefectError(f"{self.port}.{method}")
        return inner(*arguments, **named)


class Switched:
    """A port with such a switch before it."""

    def __init__(self, switch: Switch, name: str, inner: Any) -> None:
        self._switch, self._name, self._inner = switch, name, inner

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._switch.call("__call__", self._inner, arguments, named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._switch.method:
            return found
        return lambda *arguments, **named: self._switch.call(name, found, arguments, named)


def _everything() -> Policy:
    """A policy under which a run reads all that it can read."""
    hook = Hook(run="true")
    return merged_policy(
        merging(),
        tune=profile(),
        gates=(QUEUE,),
        hooks=Hooks(before_stop=(hook,), while_stopped=(hook,), after_recovery=(hook,)),
    )


def _left_behind(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """What is wrong with the cluster ten minutes after such a run; empty where nothing is."""
    world = detune(loaded_cluster())
    simulation = Simulation(world)
    state = simulation.begin(_everything())
    watcher = Watcher(simulation, world.agenda.now + 48 * 3600.0, compare=False)
    asked = switch.around("asked", lambda: (Request.NONE, ""))
    ports = Ports(
        cluster=switch.around("cluster", simulation.cluster),
        hosts=switch.around("hosts", simulation.hosts),
        gates=switch.around("gates", simulation.gates),
        lease=switch.around("lease", simulation.attempt.lease),
        journal=simulation.journal,
        clock=simulation.clock,
        listener=switch.around("listener", simulation.listener),
        reporter=switch.around("reporter", watcher),
    )
    monkeypatch.setattr(loop_module, "decide", switch.around("decide", decide))
    loop = switch.loop = Loop(state, ports, asked=asked, workers=1, reads=Order.CLUSTER_FIRST)
    raised: BaseException | None = None
    try:
        loop.run()
    except DefectError as defect:
        raised = defect
    world.agenda.until(lambda: False, 600.0)
    before = loaded_cluster()
    wrong = [f"{node.name} is down" for node in world.nodes.values() if not node.process]
    if world.effective(ALLOCATION) != before.effective(ALLOCATION):
        wrong.append(f"{ALLOCATION} is {world.effective(ALLOCATION)}")
    if switch.raised and not (raised and simulation.run in "".join(raised.__notes__)):
        wrong.append(f"the defect does not name the run: {raised!r}")
    return (*wrong, *world.violations)


@pytest.mark.proves("defect")
def test_no_defect_leaves_a_node_down_or_allocation_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each kind of reading, in each phase, for ever: what needs no reading is done without one."""
    wrong, met = [], 0
    for port, method in RAISING:
        for phase in Phase:
            switch = Switch(port, method, phase)
            left = _left_behind(switch, monkeypatch)
            met += bool(switch.raised)
            wrong += [f"{port}.{method} from {phase.value} on: {what}" for what in left]
    assert wrong == []
    assert met > len(RAISING) * 4, "most points are never met: the test has lost its run"


def test_no_node_starts_unseen_beside_a_hook_that_may_still_run() -> None:
    """The hook's port raised, so that its end is not known; and nothing can be read any more."""
    simulation = Simulation(cluster(3))
    switch = Switch("cluster", "observe", Phase.STANDING_DOWN)
    hosts = Faulty(simulation.hosts, RunHook, times=1)
    wanted = policy(hooks=Hooks(while_stopped=(Hook(run="apt-get install"),)))
    port = switch.around("cluster", simulation.cluster)
    loop = switch.loop = _loop(simulation, hosts, cluster_port=port, wanted=wanted)
    with pytest.raises(DefectError) as raised:
        loop.run()
    assert hosts.raised
    assert not [action for action in simulation.hosts.sent if isinstance(action, StartNode)]
    assert "es2 was not started: a hook or an install step may still run there" in "".join(
        raised.value.__notes__
    )


def test_a_commit_in_doubt_sends_nothing_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each commit in turn, done or not: the journal tells what was lived, and the cluster is restored."""
    wrong, commit = [], 1
    while True:
        world = cluster(3)
        simulation = Simulation(world)
        loop = _loop(simulation, simulation.hosts)
        journal = Doubtful(simulation.journal, commit, done=commit % 2 == 0)
        monkeypatch.setattr(loop, "_ports", replace(loop._ports, journal=journal))
        turn, done, early = loop.turn, (simulation.cluster.sent, simulation.hosts.sent), list[str]()

        def counted(
            seen: Observation, turn: Any = turn, done: Any = done, journal: Any = journal, early: Any = early
        ) -> None:
            before = (journal.doubted, sum(map(len, done)))
            turn(seen)
            to_send = journal.doubted != before[0] and any(isinstance(e, ActionSent) for e in journal.doubted)
            if to_send and sum(map(len, done)) != before[1]:
                early.append("something was sent by a reading from before the doubt")

        monkeypatch.setattr(loop, "turn", counted)
        state = loop.run()
        if not journal.doubted:
            break
        down = [node.name for node in world.nodes.values() if not node.process]
        told = replay(simulation.run, simulation.journal.records)
        if down or world.violations or journal.unwritten or world.settings() != cluster(3).settings():
            wrong.append(f"commit {commit}: {state.outcome}, {state.message}, {down}, {world.violations}")
        left = (*told.unrestored.settings, *told.process.in_flight)
        wrong += [f"commit {commit}: {what}" for what in early]
        if (told.phase, told.outcome, left) != (Phase.ENDED, state.outcome, ()):
            wrong.append(f"commit {commit}: the journal tells of another run: {told}")
        commit += 1
    assert wrong == []
    assert commit > 40


class Doubtful:
    """A journal whose so-many-th commit is in doubt, and which says so twice before it settles the doubt."""

    def __init__(self, inner: Any, at: int, *, done: bool) -> None:
        self._inner, self._at, self._done = inner, at, done
        self.doubted: tuple[Any, ...] = ()
        self.unwritten = 0
        self._written: Any = ()

    def append(self, events: Any, at: float) -> Any:
        self._at -= 1
        if self._at == 0:
            self.doubted = tuple(events)
            self._written = self._inner.append(events, at) if self._done else ()
            self.unwritten = len(self.doubted)
            raise CommitInDoubt("the connection broke at a commit")
        if self.unwritten:
            assert tuple(events[: self.unwritten]) == self.doubted, "its events come first, as they were"
            rest = events[len(self._written) :]
            self.unwritten = 0
            return [*self._written, *(self._inner.append(rest, at) if rest else ())]
        return self._inner.append(events, at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
