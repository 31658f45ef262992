"""A scene: a run, what befalls it, and how it ends. One driver asserts all that no row has to say.

After each attempt: no violation of the world's ground truth, every setting restored or named as left, every
node in the cluster that is not said to be away, a limit of virtual time, and of a run that is done that every
node had its whole turn. At each step: the invariants, and that the journal tells the state (`play`). At the
end: that each mishap took place.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import pytest

from orchestrator.engine.state import RunState
from orchestrator.errors import OrchestratorError
from orchestrator.model.action import Action, RunHook, StartNode, action_name, action_target
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    Event,
    Hold,
    PhaseEntered,
    RunResumed,
    WaveStarted,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Hook, Hooks, Policy
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.work_event import Upgraded
from orchestrator.runs.past_runs import past_run_of
from orchestrator.runs.unfinished import restore_run, resume_run
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation import turns
from orchestrator.simulation.aftermath import aftermath, settings
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.mishaps import Crash, How, Mishap, PersonAsked, Seams, Trip, What
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World
from tests.simulation import ends
from tests.simulation.play import cluster, lives, play, policy
from tests.simulation.program import Simulation

E = TypeVar("E", bound=Event)
EVERY: Final = int(os.environ.get("ORCHESTRATE_KILLS", "10"))
"""A run is killed at every tenth point; `make test`: every third, `make test-soak`: all."""
HOUR = 3600.0
ES1, ES2, ES3, ES4, ES5, ES6 = (NodeName(f"es{number}") for number in range(1, 7))
POOL = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))
HOOKS = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    while_stopped=(Hook(run="install {node}"),),
    after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
)
ALLOCATION = "cluster.routing.allocation.enable"
BANDWIDTH = "indices.recovery.max_bytes_per_sec"
DONE, FAILED, HELD, PAUSED = Outcome.DONE, Outcome.FAILED, Outcome.HELD, Outcome.PAUSED
RESTORED, NOT_RESTORED, INTERRUPTED = Outcome.RESTORED, Outcome.NOT_RESTORED, Outcome.INTERRUPTED

# What befalls ----------------------------------------------------------------------------------------


def at(verb: str, what: What, target: str | None = None, *, nth: int = 1, after: Seconds = 0.0) -> Mishap:
    """So long after the nth such verb."""
    return Mishap(what=what, verb=verb, target=target, nth=nth, after=after)


def first(what: What, *, after: Seconds = 0.0) -> Mishap:
    """So long after the beginning."""
    return Mishap(what=what, after=after)


def asked(
    request: Request, verb: str, target: str | None = None, *, nth: int = 1, after: float = 0
) -> Mishap:
    """Somebody asks the run to pause, to stop, or interrupts it."""
    return at(verb, PersonAsked(request=request), target, nth=nth, after=after)


def trip(verb: str, how: How, target: str | None = None, **more: float) -> Trip:
    return Trip(verb=verb, how=how, target=target, **more)


def late(verb: str, seconds: Seconds, target: str | None = None) -> Trip:
    """Its connection is lost, and its host does it so many seconds later."""
    return Trip(verb=verb, how=How.LATE, target=target, late=seconds)


lost, refused, unheard = (partial(trip, how=how) for how in (How.LOST, How.REFUSED, How.UNACKNOWLEDGED))


# A scene ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ends:
    """How an attempt ends."""

    ends: Outcome | None = Outcome.DONE  # its outcome; None = any
    says: str | tuple[str, ...] = ()  # parts of its last message
    within: Seconds = 3 * HOUR  # seconds of virtual time that it takes at most, once it has the lease
    # its program is killed instead: at the first point whose name begins so, at the second one (`NAME#2`), or
    # at the nth of all
    killed: str | int = ""
    away: Collection[str] | None = ()  # nodes that are not in the cluster at its end; None = any
    nothing: bool = False  # it may be that there is nothing to restore
    # settings that are not as found, and that the run does not name: limits that went with a life
    differs: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Attempt(Ends):
    """One more process of the program."""

    begins: Callable[[Played], RunState | None]


@dataclass(frozen=True, kw_only=True)
class Command(Ends):
    """`resume` or `restore` as people call it, with what comes before the lease is held."""

    verb: str  # which of them
    retry_failed: bool = False
    raises: type[OrchestratorError] | None = None  # what it is refused with; no setting was changed then
    starts: Sequence[str] | None = None  # the nodes that it had started by then, in order; None = any
    tells: Sequence[str] = ()  # parts of what it says meanwhile


@dataclass
class Played:
    """A scene that was played: the program that ran last, and how each attempt ended."""

    simulation: Simulation
    began: Instant
    before: Mapping[tuple[Level, str], object]
    state: RunState = field(default_factory=lambda: RunState(run=""))
    states: list[RunState] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    refused: str = ""
    noted: list[tuple[Instant, Any]] = field(default_factory=list)
    violates: str = ""

    @property
    def unexpected(self) -> list[str]:
        """Violations of the world's ground truth, but those that the policy accepts."""
        return [each for each in self.world.violations if not (self.violates and self.violates in each)]

    @property
    def world(self) -> World:
        return self.simulation.world

    @property
    def events(self) -> list[Event]:
        begun = self.simulation.has_begun
        return [record.event for record in self.simulation.journal.records] if begun else []

    def found(self, kind: type[E]) -> list[E]:
        """The events of that kind in the journal of its latest run."""
        return [event for event in self.events if isinstance(event, kind)]

    def times(self, kind: type[Event]) -> list[Instant]:
        return [r.at for r in self.simulation.journal.records if isinstance(r.event, kind)]

    def sent(self, *kinds: type[Action]) -> list[Action]:
        """What was sent to hosts and cluster, in the order of the journal."""
        sent = [event.action for event in self.found(ActionSent)]
        return [action for action in sent if not kinds or isinstance(action, kinds)]

    def note(self, what: object) -> None:
        """Keep it for the end, with its time."""
        self.noted.append((self.world.agenda.now, what))

    @property
    def waves(self) -> list[tuple[NodeName, ...]]:
        return [event.wave.nodes for event in self.found(WaveStarted)]

    @property
    def whys(self) -> list[str]:
        """The reason of each wave."""
        return [event.wave.why for event in self.found(WaveStarted)]

    @property
    def holds(self) -> dict[str, str]:
        """What the first hold of each predicate says."""
        return {e.predicate: f"{e.subject}: {e.evidence}" for e in reversed(self.found(Hold))}

    def phases(self, node: str) -> list[str]:
        """The phases that a node entered, in order."""
        return [event.to for event in self.found(PhaseEntered) if event.node == node]

    def verbs(self, node: str) -> list[str]:
        """What was sent to the host of a node, in order; a hook is its moment."""
        actions = [
            each for each in self.sent() if node in getattr(each, "nodes", (getattr(each, "node", ""),))
        ]
        return [each.moment.value if isinstance(each, RunHook) else action_name(each) for each in actions]

    def hooks(self, node: str) -> list[str]:
        """Moments of the hooks that ran on a node."""
        return [moment for name, moment, _ in self.simulation.hosts.hooks if name == node]

    def happened(self, what: str, *, since: Instant = 0.0) -> Instant:
        """When this first happened in the world."""
        return next(at for at, said in self.world.story if said == what and at >= since)


Step = Attempt | Command | Seconds | What | Callable[[Played], object]
"""A further attempt, a wait, a mishap that befalls now, or what a test does to the world."""


@dataclass(frozen=True, kw_only=True)
class Scene(Ends):
    """A row: what befalls, and what ends.

    Attributes:
        name: a sentence with the words of the program in it.
        of: the cluster; `nodes` and `indices` are changed in it, and added.
        wanted: the policy of the run.
        befalls: mishaps and verbs that go wrong.
        then: what comes after the first attempt.
        lives: of each node at the end; those that are not named have 2.
        boots: of each machine, in the same way.
        violates: a part of each violation, where the policy accepts one.
        sent: how often verbs were sent in its latest run: `stop`, or `stop es2`.
        events: how often events of these names were written.
        waves: all of them; `why`: the beginning of the reason of the first.
        phases, hooks, verbs: of nodes, in their order.
        shows: what else is asked of the scene.
        prepares: what a test does before the run begins.
        begins: something else than a new run.
        marks: `proves`, of the rules that it is a witness of.
    """

    name: str
    of: Callable[[], World] = cluster
    nodes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    indices: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    wanted: Policy = field(default_factory=policy)
    befalls: Sequence[Mishap | Trip] = ()
    planned: tuple[tuple[NodeName, ...], ...] = ()
    reads: ReadingOrder = ReadingOrder.CLUSTER_FIRST
    then: Sequence[Step] = ()
    lives: Mapping[str, int] | None = None
    boots: Mapping[str, int] | None = None
    violates: str = ""
    sent: Mapping[str, int | range] = field(default_factory=dict)
    events: Mapping[str, int | range] = field(default_factory=dict)
    waves: Sequence[tuple[str, ...]] | None = None
    why: str = ""
    phases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hooks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    verbs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shows: Callable[[Played], object] | None = None
    prepares: Callable[[Played], object] = lambda _played: None
    begins: Callable[[Played], RunState | None] | None = None
    marks: Collection[pytest.MarkDecorator] = ()

    def __str__(self) -> str:
        return self.name

    def world(self) -> World:
        """The cluster before the run."""
        world = self.of()
        for name, changes in self.nodes.items():
            for node in world.nodes.values() if name == "*" else (world.nodes[NodeName(name)],):
                for attribute, value in changes.items():
                    *within, last = attribute.split(".")
                    setattr(getattr(node, within[0]) if within else node, last, value)
        for name, made in self.indices.items():
            arguments = {key: value for key, value in made.items() if key in _OF_ADDING}
            index = world.add_index(name, **arguments)
            for attribute, value in made.items():
                if attribute not in _OF_ADDING:
                    setattr(index, attribute, value)
        return world

    def play(self) -> Played:
        """Play it, and assert."""
        world = self.world()
        plan = [one for one in self.befalls if isinstance(one, Mishap)]
        trips = [one for one in self.befalls if isinstance(one, Trip)]
        played = Played(
            Simulation(world, plan=plan, trips=trips),
            world.agenda.now,
            settings(world),
            violates=self.violates,
        )
        fate, last = played.simulation.fate, self.away  # by the latest attempt
        self.prepares(played)
        _attempt(played, self, partial(self.begins or self._begun, played), self.reads)
        for step in self.then:
            match step:
                case Attempt():
                    _attempt(played, step, partial(step.begins, played), self.reads)
                    last = step.away
                    continue
                case Command():
                    _command(played, step)
                    last = step.away
                    continue
                case int() | float():
                    played.world.agenda.advance(step)
                case _ if callable(step):
                    assert step(played) is not False
                case _:
                    played.simulation.fate.befall(step)
            last = ()
        _took_place(fate, plan, trips)
        assert played.unexpected == []
        assert bool(self.violates) is bool(played.world.violations)
        assert last is None or away(played.world) == sorted(last)
        self._asserted(played)
        return played

    def _begun(self, played: Played) -> RunState:
        return played.simulation.begin(self.wanted, planned=self.planned)

    def _asserted(self, played: Played) -> None:
        world = played.world
        if self.lives is not None:
            assert lives(world) == {**dict.fromkeys(world.nodes, 2), **self.lives}
        if self.boots is not None:
            boots = {node.name: node.boot for node in world.nodes.values()}
            assert boots == {**dict.fromkeys(world.nodes, 2), **self.boots}
        sent = Counter[str]()
        for action in played.sent():
            sent.update((action_name(action), f"{action_name(action)} {action_target(action)}"))
        _counted(sent, self.sent)
        _counted(Counter(event.event for event in played.events), self.events)
        if self.waves is not None:
            assert played.waves == list(self.waves)
        if self.why:
            assert played.whys[0].startswith(self.why)
        for name, of_node in (("phases", played.phases), ("hooks", played.hooks), ("verbs", played.verbs)):
            wanted: Mapping[str, Sequence[str]] = getattr(self, name)
            assert {node: of_node(node) for node in wanted} == {n: list(each) for n, each in wanted.items()}
        if self.shows is not None:
            assert self.shows(played) is not False


_OF_ADDING = frozenset({"shards", "replicas", "size", "places", "written"})


def _counted(found: Counter[str], wanted: Mapping[str, int | range]) -> None:
    wrong = {
        name: found[name]
        for name, times in wanted.items()
        if (found[name] not in times if isinstance(times, range) else found[name] != times)
    }
    assert wrong == {}, f"{wrong}, and not {dict(wanted)}"


class Deadly(Seams):
    """Seams at which the program is killed: at the first point of this name, or at the nth."""

    def __init__(self, what: str | int, passed: Sequence[str]) -> None:
        super().__init__(crash_at=what if isinstance(what, int) else None)
        self._what, self.passed = what, [*passed]
        self._left = 1
        if isinstance(what, str) and "#" in what:
            self._what, _, nth = what.partition("#")
            self._left = int(nth)

    def point(self, what: str) -> None:
        super().point(what)
        if isinstance(self._what, str) and what.startswith(self._what):
            self._left -= 1
            if self._left == 0:
                raise Crash(what)


def looking(look: Callable[[Played, str], object]) -> Callable[[Played], None]:
    """Look at the world right after every verb."""

    def prepare(played: Played) -> None:
        class Glimpse(Seams):
            def point(self, what: str) -> None:
                look(played, what)

        played.simulation.cluster.seams = played.simulation.hosts.seams = Glimpse()

    return prepare


class Before:
    """A port of the program; something is done before each call of one of its methods."""

    def __init__(self, port: object, method: str, look: Callable[..., object]) -> None:
        self.__dict__["_of"] = (port, method, look)

    def __getattr__(self, name: str) -> Any:
        port, method, look = self.__dict__["_of"]
        found = getattr(port, name)
        if name != method:
            return found
        return lambda *given, **named: (look(*given), found(*given, **named))[1]

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_of"][0], name, value)


def before(port: str, method: str, look: Callable[..., object]) -> Callable[[Played], None]:
    """Look before each such call of a port, `cluster`, `hosts` or `listener`; also at what it is given."""

    def prepare(played: Played) -> None:
        simulation: Any = played.simulation
        made = Before(getattr(simulation, port), method, partial(look, played))
        for of in (simulation, simulation.listener):
            if hasattr(of, port):
                setattr(of, port, made)

    return prepare


def _with_seams(simulation: Simulation, seams: Seams) -> None:
    simulation.seams = simulation.cluster.seams = simulation.hosts.seams = seams


def _attempt(
    played: Played,
    how: Ends,
    begins: Callable[[], RunState | None],
    reads: ReadingOrder = ReadingOrder.CLUSTER_FIRST,
) -> None:
    state = begins()
    began = played.world.agenda.now
    if state is None:
        assert how.nothing, "there is nothing to restore"
        return
    simulation, played.told = played.simulation, []
    played.state, limit = state, how.within + 60.0
    if how.killed:
        _with_seams(simulation, Deadly(how.killed, simulation.seams.passed))
        try:
            state = play(simulation, state, told=played.told, reads=reads, limit=limit)
        except Crash:
            return
        finally:
            _with_seams(simulation, Seams())
        raise AssertionError(f"not killed at {how.killed}, but {state.outcome}: {state.message}")
    played.state = state = play(simulation, state, told=played.told, reads=reads, limit=limit)
    played.states.append(state)
    _ended(played, how, played.world.agenda.now - began)
    ends.read(state, simulation.journal.records, played.told)


def _command(played: Played, how: Command) -> None:
    """Drive a command to its end, or to its refusal."""
    world, simulation, played.said = played.world, played.simulation, []
    began, found, sent = world.agenda.now, settings(world), len(simulation.hosts.sent)
    with (
        simulation.connect(tell=played.said.append) as connection,
        connection.state(DatabaseUse.CONTINUE) as store,
    ):
        past, refused = past_run_of(store, store.runs()[0]), None
        try:
            if how.verb == "restore":
                played.state = restore_run(connection, store, past)
            else:
                played.state = resume_run(connection, store, past, retry_failed=how.retry_failed)
        except OrchestratorError as error:
            refused = error
    assert how.raises is (type(refused) if refused else None), refused or played.state.message
    if refused is None:
        _ended(played, how, world.agenda.now - began)
    else:
        played.refused = str(refused)
        _says(played.refused, how.says)
        assert settings(world) == found
        assert how.away is None or away(world) == sorted(how.away)
    starts = [action.node for action in simulation.hosts.sent[sent:] if isinstance(action, StartNode)]
    assert how.starts is None or starts == [*how.starts]
    assert how.raises is None or len(starts) == len(simulation.hosts.sent[sent:])
    assert world.agenda.now - began <= how.within
    for part in how.tells:
        assert any(part in line for line in played.said), played.said


def _says(said: str, parts: str | tuple[str, ...]) -> None:
    for part in (parts,) if isinstance(parts, str) else parts:
        assert part in said, said


def _ended(played: Played, how: Ends, took: Seconds) -> None:
    """What holds at the end of each attempt."""
    world, state = played.world, played.state
    said = f"{state.outcome}: {state.message}"
    assert how.ends in (None, state.outcome), said
    _says(state.message, how.says)
    assert took <= how.within, f"it took {took:.0f} s; {said}"
    assert played.unexpected == [], said
    left = aftermath(world, played.before)
    keys = [key for _, key in state.unrestored.settings]
    if state.outcome is Outcome.NOT_RESTORED:
        assert [line for line in left.not_as_found if not line.startswith(tuple(keys))] == [], said
    else:
        differs = [line.partition(":")[0] for line in left.not_as_found]
        assert (sorted(differs), keys) == (sorted(how.differs), []), said
    assert how.away is None or away(world) == sorted(how.away), said
    if state.outcome is Outcome.DONE and not isinstance(world, RiakWorld):
        assert lacking(played) == []


def away(world: World) -> list[NodeName]:
    """The nodes that are not in the cluster."""
    return sorted(node.name for node in world.nodes.values() if not node.joined)


def lacking(played: Played) -> list[str]:
    """What any node that counts as recovered lacks of its turn."""
    records, state = played.simulation.journal.records, played.state
    attempt = max([played.began, *(r.at for r in records if isinstance(r.event, RunResumed))])
    others = {event.node for event in played.found(Upgraded) if event.by_others}
    return [
        lack
        for name, node in state.nodes.items()
        if node.phase is NodePhase.RECOVERED
        for lack in turns.lacking(
            played.world.nodes[name],
            state.begun.policy,
            played.began,
            attempt,
            by_others=name in others,
        )
    ]


def _took_place(fate: Fate, plan: Sequence[Mishap], trips: Sequence[Trip]) -> None:
    befell = [what for _, what in fate.befell]
    wanted = Counter(str(mishap.what) for mishap in plan)
    missing = wanted - Counter(map(str, befell))
    assert not missing, f"the scene did not take place: {dict(missing)}"
    assert [trip for trip in trips if trip not in befell] == [], "the scene did not take place"


# Further attempts ------------------------------------------------------------------------------------


def resume(
    *,
    retry_failed: bool = False,
    skip: Sequence[NodeName] = (),
    accept_alerts: Sequence[str] = (),
    **ends: object,
) -> Attempt:
    return Attempt(
        begins=lambda played: played.simulation.resume(
            retry_failed=retry_failed, skip=skip, accept_alerts=accept_alerts
        ),
        **ends,
    )


def only_begun(begins: Callable[[Played], object]) -> Attempt:
    """A process that is killed as soon as it has begun."""
    return Attempt(begins=lambda played: (begins(played), None)[1], nothing=True)


def restore(**ends: object) -> Attempt:
    return Attempt(begins=lambda played: played.simulation.restore(), **{"ends": RESTORED, **ends})


def elsewhere(wanted: Policy | None = None, **ends: object) -> Attempt:
    """Another machine, which has nothing but the record in the cluster, restores."""

    def begins(played: Played) -> RunState | None:
        asked = wanted or played.simulation.policy
        played.simulation = played.simulation.elsewhere("run-2")
        return played.simulation.take_over(asked)

    return Attempt(begins=begins, **{"ends": RESTORED, **ends})


def command(verb: str, **ends: object) -> Command:
    return Command(verb=verb, **{"ends": RESTORED if verb == "restore" else DONE, **ends})


def take_over(wanted: Policy | None = None, **ends: object) -> Attempt:
    """`restore --cluster` on the same machine."""
    return Attempt(
        begins=lambda played: played.simulation.take_over(wanted or played.simulation.policy), **ends
    )


def successor(wanted: Policy | None = None, **ends: object) -> Attempt:
    """A new run on another machine, while the first one may live."""

    def begins(played: Played) -> RunState:
        asked = wanted or played.simulation.policy
        played.simulation = played.simulation.successor("run-2")
        return played.simulation.begin(asked)

    return Attempt(begins=begins, **ends)


def gone(*names: str) -> Callable[[Played], None]:
    """These nodes, and no other, are not in the cluster at this moment."""

    def do(played: Played) -> None:
        assert away(played.world) == sorted(names)

    return do


def set_node(node: NodeName, **changes: object) -> Callable[[Played], None]:
    """What people do to a machine."""

    def do(played: Played) -> None:
        for attribute, value in changes.items():
            setattr(played.world.nodes[node], attribute, value)

    return do
