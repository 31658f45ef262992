"""Whether a run may begin: what neither time nor the run itself makes pass is said before the first stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.engine.admit import ABSENCE, cured, pending_machines, question_of, refusals
from orchestrator.engine.predicates import Predicate, aggregated, hold_in_brief, holds
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RunState
from orchestrator.model.event import Event, Hold, node_phase
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Wave


def has_not_begun(state: RunState) -> bool:
    """Whether no process of the run has stopped a node: also when resumed, it begins only if it can finish.

    A run that restores what another one left began with that one.
    """
    stopped = any(node.stopped_at is not None for node in state.nodes.values())
    return state.begun.repairs is None and state.untouched and not (state.waves_begun or stopped)


def cannot_finish(situation: Situation) -> tuple[Hold, ...]:
    """Holds on planned nodes that waiting cannot clear. A run that cannot finish does not begin.

    While a member is away, its return may clear any of them. The result is then empty, and the run waits.
    """
    absence = tuple(rule for rule in situation.kind.predicates if rule.name in ABSENCE)
    if any(holds(absence, question_of(situation, wave)) for wave in _planned_waves(situation)):
        return ()
    lasting, waves = _lasting(situation), _planned_waves(situation)
    return aggregated(hold for wave in waves for hold in _whole_or_in_parts(situation, lasting, wave))


def _whole_or_in_parts(situation: Situation, rules: tuple[Predicate, ...], wave: Wave) -> Iterator[Hold]:
    """The holds on the cluster, and those on nodes and machines of the wave that may not go even alone."""
    held = {hold.predicate: hold for hold in refusals(situation, rules, wave)}
    named = {*held, *(name for hold in held.values() for name in hold.also)}
    about_wave = tuple(rule for rule in rules if rule.about_wave and rule.name in named)
    of_wave = {rule.name for rule in about_wave}
    yield from (hold for name, hold in held.items() if name not in of_wave)
    for unit in _held_alone(situation, about_wave, wave):
        yield from refusals(situation, about_wave, unit)


def _held_alone(situation: Situation, rules: tuple[Predicate, ...], wave: Wave) -> Iterator[Wave]:
    """The nodes and machines of a held wave that may not go even alone; others may in smaller waves."""
    if holds(rules, question_of(situation, wave)):
        shared = {name for machine in wave.machines for name in machine}
        for unit in (*wave.machines, *((name,) for name in wave.nodes if name not in shared)):
            alone = replace(wave, nodes=unit, machines=(unit,) if unit in wave.machines else ())
            if holds(rules, question_of(situation, alone)):
                yield alone


def _lasting(situation: Situation) -> tuple[Predicate, ...]:
    """The predicates with those of their refusals that neither time nor the run itself makes pass."""
    rules = [rule for rule in situation.kind.predicates if rule.name not in cured(situation)]
    return tuple(
        replace(rule, check=rule.lasting) if rule.lasting else rule
        for rule in rules
        if rule.lasting or not rule.passes_with_time
    )


def skipped_at_planning(situation: Situation) -> tuple[Event, ...]:
    """`--begin-anyway`: the steps of the nodes that are held at planning; none if all may go."""
    rules = tuple(rule for rule in _lasting(situation) if rule.about_wave)
    steps: list[Event] = []
    for unit in (unit for wave in _planned_waves(situation) for unit in _held_alone(situation, rules, wave)):
        # Of a machine those that may not go alone; where each might, all of them.
        for held in (*_held_alone(situation, rules, replace(unit, machines=())),) or (unit,):
            why = f"held at planning by {hold_in_brief(holds(rules, question_of(situation, held))[0])}"
            steps += [node_phase(name, NodePhase.PENDING, NodePhase.SKIPPED, why=why) for name in held.nodes]
    return tuple(steps)


def _planned_waves(situation: Situation) -> Iterator[Wave]:
    """The waves of the plan that was shown, then what is pending beside it, machine by machine.

    A plan ends at the pause that was asked for, so it may leave out most of the nodes.
    """
    state, machines = situation.state, pending_machines(situation)
    pending = [node.name for node in state.nodes_in(NodePhase.PENDING)]
    left = set(pending)
    for number, group in enumerate((*state.begun.planned, *machines, *zip(pending, strict=True)), start=1):
        nodes = tuple(name for name in group if name in left)
        left.difference_update(nodes)
        if nodes:
            together = tuple(machine for machine in machines if set(machine) <= set(nodes))
            yield Wave(number=number, nodes=nodes, machines=together)
