"""A healthy question: a green cluster of six, everything read, the lease ours; the tests change one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.elasticsearch.recovery import baseline_of
from orchestrator.engine.kinds.predicates import Question, evidence_of, holds
from orchestrator.model.cluster import NodeName, Zone
from orchestrator.model.event import Record
from orchestrator.model.observation import (
    EVERYTHING,
    Activity,
    ClusterView,
    HealthView,
    LeaseView,
    Look,
    Observation,
    SettingsView,
)
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.reading import Unknown
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, policy
from tests.states import state_with

Change = Callable[[Question], Question]

ES2 = NodeName("es2")


def question(world: World | None = None, *, wave: tuple[str, ...] = ("es2",), **changes: object) -> Question:
    """The question before the first stop of a wave."""
    world = world or cluster(6)
    state = Simulation(world).begin(policy(zone_attribute="zone", **changes))
    read = views.readings(world, EVERYTHING | {Look.FINISHED})
    view = cluster_of(read.cluster)
    state = evolve(state, Record(run="run-1", sequence=9, at=world.agenda.now, event=baseline_of(view, {})))
    seen = Observation(
        at=world.agenda.now,
        cluster=view,
        settings=read.settings,
        health=read.health,
        recoveries=read.recoveries,
        finished=read.finished,
        activity=read.activity,
        disks=read.disks,
        hosts={name: views.host(node, rights=True, reboot=True) for name, node in world.nodes.items()},
        lease=LeaseView(held=True, holder="ann@bastion", refreshed=0.0),
    )
    members = tuple(NodeName(name) for name in wave)
    return Question(
        state=state_with(state, probed=True),
        policy=state.begun.policy,
        observation=seen,
        wave=Wave(number=1, nodes=members, zone=Zone("b")),
        first_stop=True,
    )


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


def seeing(asked: Question, **parts: object) -> Question:
    """The same question with parts of the observation replaced."""
    return replace(asked, observation=replace(asked.observation, **parts))


def knowing(asked: Question, **fields: object) -> Question:
    """The same question with fields of the state replaced."""
    return replace(asked, state=state_with(asked.state, **fields))


def wanting(asked: Question, **fields: object) -> Question:
    """The same question under another policy."""
    wanted: Policy = replace(asked.policy, **fields)
    return replace(asked, policy=wanted, state=state_with(asked.state, policy=wanted))


def viewing(asked: Question, **fields: object) -> Question:
    """The same question with fields of the cluster state replaced."""
    return seeing(asked, cluster=replace(cluster_of(asked.observation.cluster), **fields))


def cluster_of(read: ClusterView | Unknown) -> ClusterView:
    """The cluster state of a reading that has one."""
    assert isinstance(read, ClusterView)
    return read


def settings_of(asked: Question) -> SettingsView:
    """The settings of a question that has them."""
    assert isinstance(asked.observation.settings, SettingsView)
    return asked.observation.settings


def health_of(asked: Question) -> HealthView:
    """The health of a question that has it."""
    assert isinstance(asked.observation.health, HealthView)
    return asked.observation.health


def activity_of(asked: Question) -> Activity:
    """The activity of a question that has it."""
    assert isinstance(asked.observation.activity, Activity)
    return asked.observation.activity
