"""The kinds of cluster: the one place where the engine is given the kind that a run is of."""

from __future__ import annotations

from typing import Final

from orchestrator.elasticsearch.rules.kind import Elasticsearch
from orchestrator.engine import run, situation
from orchestrator.engine.kind import KindOfCluster
from orchestrator.engine.situation import LOOK_AGAIN, Decision
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Look, Observation
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant
from orchestrator.riak.rules.kind import Riak

_KINDS: Final[dict[Kind, KindOfCluster]] = {Kind.ELASTICSEARCH: Elasticsearch(), Kind.RIAK: Riak()}


def kind_of(kind: Kind) -> KindOfCluster:
    """The particulars of a kind by its name in the cluster file."""
    return _KINDS[kind]


def decide(state: RunState, observation: Observation, now: Instant) -> Decision:
    """The next step of a run; see `engine.run.decide`.

    Raises:
        SafetyViolation: as there.
    """
    return run.decide(kind_of(state.begun.policy.kind), state, observation, now)


def needed(state: RunState, last: Decision = LOOK_AGAIN) -> tuple[frozenset[Look], frozenset[NodeName]]:
    """What to read for the next decision of a run, and which hosts; see `engine.situation.needed`."""
    return situation.needed(kind_of(state.begun.policy.kind), state, last)
