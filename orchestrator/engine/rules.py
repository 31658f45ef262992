"""Asking the rules about a wave, and cutting the next one by them."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.kinds.predicates import Predicate, Question, holds
from orchestrator.engine.steps import Situation
from orchestrator.engine.waves import next_wave
from orchestrator.model.cluster import CopyState
from orchestrator.model.event import Hold
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Wave


def refusals(situation: Situation, rules: tuple[Predicate, ...], wave: Wave) -> tuple[Hold, ...]:
    """What these rules say against a wave by this reading."""
    state = situation.state
    first = not state.waves_begun and state.phase is not Phase.WITHHELD
    question = Question(
        state=state, policy=situation.policy, observation=situation.seen, wave=wave, first_stop=first
    )
    return holds(rules, question)


def refused_as_a_set(situation: Situation, wave: Wave) -> tuple[Hold, ...]:
    """What the rules about sets of nodes say against a wave: a smaller one may pass."""
    return refusals(situation, tuple(rule for rule in situation.kind.predicates if rule.of_the_set), wave)


def next_wave_of(situation: Situation) -> Wave | None:
    """The next wave by the run's strategy; None without a reading, and when no node is left.

    While waves before it recover, it is cut as if they had: cut around each copy on its way, a zone would go
    in many waves of few nodes. Whether it may stop by now, all rules decide on what is really there.
    """
    view = situation.view
    if view is None:
        return None
    asked = situation
    if situation.state.recovering:
        asked = replace(situation, seen=replace(situation.seen, cluster=_recovered(view)))
    return next_wave(situation.state, view, lambda wave: refused_as_a_set(asked, wave))


def _recovered(view: ClusterView) -> ClusterView:
    """The cluster state as it will be when every copy on its way has arrived."""
    copies = tuple(
        replace(copy, state=CopyState.STARTED, allocation_id=None)
        if copy.state is CopyState.INITIALIZING
        else copy
        for copy in view.copies
    )
    return replace(view, copies=copies)
