"""A healthy question about a green cluster of six and the situation around it, of which tests change a part.

States are made of the event that begins a run, without a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.engine.fold import evolve
from orchestrator.engine.predicates import Question, evidence_of, holds
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RunState
from orchestrator.kinds import kind_of
from orchestrator.model.cluster import NodeName, ShardCopy, Zone
from orchestrator.model.event import Event, Record
from orchestrator.model.observation import EVERYTHING, ClusterView, LeaseView, Look, Observation
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.reading import Instant
from orchestrator.simulation import views
from orchestrator.simulation.beginning import start_of
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, policy
from tests.states import state_with

Change = Callable[[Question], Question]

ES1, ES2, ES3, ES4, ES5, ES6 = (NodeName(f"es{number}") for number in range(1, 7))
ALLOCATION = "cluster.routing.allocation.enable"


def evolved(state: RunState, *events: Event, at: Instant = 1.0) -> RunState:
    """The state after these events."""
    for event in events:
        state = evolve(state, Record(run=state.run, sequence=1, at=at, event=event))
    return state


def begun(world: World, wanted: Policy) -> RunState:
    """A run right after its first event."""
    started = start_of(world, wanted, (), operator=("ann", "bastion"))
    return evolved(RunState(run="run-1"), started, at=world.agenda.now)


def observed(world: World) -> Observation:
    """All that can be read of a world now."""
    read = views.readings(world, EVERYTHING | {Look.FINISHED})
    return Observation(
        at=world.agenda.now,
        cluster=read.cluster,
        settings=read.settings,
        health=read.health,
        recoveries=read.recoveries,
        finished=read.finished,
        activity=read.activity,
        disks=read.disks,
        hosts={name: views.host(node, rights=True, reboot=True) for name, node in world.nodes.items()},
        lease=LeaseView(held=True, holder="ann@bastion", refreshed=0.0),
    )


def question_about(world: World, wanted: Policy, *wave: NodeName, zone: Zone | None = None) -> Question:
    """May this wave be stopped, as the first of its run?"""
    seen, state = observed(world), begun(world, wanted)
    assert isinstance(seen.cluster, ClusterView)
    state = evolved(state, kind_of(wanted.kind).baseline(seen.cluster, {}), at=seen.at)
    return Question(
        state=state_with(state, probed=True),
        policy=state.begun.policy,
        observation=seen,
        wave=Wave(number=1, nodes=wave, zone=zone),
        first_stop=True,
    )


@cache
def _healthy() -> Question:
    return question_about(cluster(6), policy(zone_attribute="zone"), ES2, zone=Zone("b"))


def question(world: World | None = None, *, wave: tuple[str, ...] = ("es2",), **changes: object) -> Question:
    """The question before the first stop of a wave; a policy with `changes`."""
    members = tuple(NodeName(name) for name in wave)
    if world is None:
        asked = _healthy()
        asked = replace(asked, wave=replace(asked.wave, nodes=members))
        return wanting(asked, **changes) if changes else asked
    return question_about(world, policy(zone_attribute="zone", **changes), *members, zone=Zone("b"))


def situation_of(asked: Question, phase: Phase = Phase.GATED, **fields: object) -> Situation:
    """The question as the situation of a run in this phase, with these fields of its state."""
    state = state_with(asked.state, phase=phase, **fields)
    kind, seen = kind_of(asked.policy.kind), asked.observation
    return Situation(state=state, policy=state.begun.policy, kind=kind, seen=seen, now=seen.at)


# What is said ------------------------------------


def holding(asked: Question) -> list[str]:
    """Every rule that refuses, each asked for itself."""
    return [rule.name for rule in PREDICATES if list(rule.check(asked))]


def findings(asked: Question, name: str) -> list[tuple[str, str]]:
    """What one rule says."""
    rules = (rule for rule in PREDICATES if rule.name == name)
    return [(subject, evidence_of(said)) for rule in rules for subject, said in rule.check(asked)]


def ways(asked: Question, name: str) -> tuple[str, ...]:
    """With what another run passes the hold of one rule."""
    (hold,) = holds([rule for rule in PREDICATES if rule.name == name], asked)
    return hold.ways


# What is changed ------------------------------------


def seeing(asked: Question, **parts: object) -> Question:
    """The same question with parts of the observation replaced."""
    return replace(asked, observation=replace(asked.observation, **parts))


def changing(asked: Question, part: str, **fields: object) -> Question:
    """The same question with fields of one part of the observation replaced."""
    return seeing(asked, **{part: replace(getattr(asked.observation, part), **fields)})


def viewing(asked: Question, **fields: object) -> Question:
    """The same question with fields of the cluster state replaced."""
    return changing(asked, "cluster", **fields)


def hosting(asked: Question, name: NodeName, **fields: object) -> Question:
    """The same question with fields of one host replaced."""
    host = replace(asked.observation.hosts[name], **fields)
    return seeing(asked, hosts={**asked.observation.hosts, name: host})


def knowing(asked: Question, **fields: object) -> Question:
    """The same question with fields of the state replaced."""
    return replace(asked, state=state_with(asked.state, **fields))


def wanting(asked: Question, **fields: object) -> Question:
    """The same question under another policy."""
    wanted: Policy = replace(asked.policy, **fields)
    return replace(asked, policy=wanted, state=state_with(asked.state, policy=wanted))


def with_node(state: RunState, name: NodeName, **fields: object) -> RunState:
    """The state with fields of one node replaced."""
    node: NodeProgress = replace(state.nodes[name], **fields)
    return replace(state, nodes=state.nodes.changed(node))


def view_of(asked: Question | Situation) -> ClusterView:
    """The cluster state of a question or a situation that has one."""
    seen = asked.observation if isinstance(asked, Question) else asked.seen
    assert isinstance(seen.cluster, ClusterView)
    return seen.cluster


def with_copy(view: ClusterView, chosen: Callable[[ShardCopy], bool], **fields: object) -> ClusterView:
    """The view in which one copy, the first that is chosen, is another."""
    copies = list(view.copies)
    place = next(place for place, copy in enumerate(copies) if chosen(copy))
    copies[place] = copies[place]._replace(**fields)
    return replace(view, copies=tuple(copies))
