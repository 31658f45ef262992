"""Admission: whether a run may begin, whether a wave may stop, holds, and calling off a wave.

Predicates are about the cluster, or about a wave (one candidate, or the set of its nodes). A candidate that
does not pass is skipped and the next one of its rank goes first; a predicate about the cluster holds the run.
A hold has a limit: `deadlines.hold` for predicates, `deadlines.gate` for gates. The two are counted apart:
predicates from the first one that is not met until all are met, gates from the first one that closed until
all are open. What neither time nor the run itself makes pass is said before the first stop: the run does not
begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.every_kind import why_not_ready
from orchestrator.engine.gates import closed_gates, gate_news, gates_are_asked
from orchestrator.engine.largest_safe import Unit
from orchestrator.engine.predicates import Predicate, Question, aggregated, hold_in_brief, holds
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import Decision, Situation, stand_down, wait
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import machines_of, next_wave
from orchestrator.formats import duration
from orchestrator.holds import GATES_OPEN
from orchestrator.model.action import SetReplicas
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, Hold, HoldsCleared, node_phase
from orchestrator.model.observation import ClusterView, LeaseView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Wave, ZeroReplicas
from orchestrator.model.reading import Seconds

HOLD_POLL_SECONDS: Final[Seconds] = 5.0
"""Seconds between readings during a hold: neither a predicate nor a gate justifies more load than that."""

DEPOOLED_SECONDS: Final[Seconds] = 30.0
"""How long a candidate waits out of service (`before_stop` ran) while its wave is held."""

# Asking ------------------------------------


def refusals(situation: Situation, rules: Iterable[Predicate], wave: Wave) -> tuple[Hold, ...]:
    """The holds of these predicates against a wave by this reading, one hold a predicate.

    A hold that follows from another one is listed in that one (`Hold.also`).
    """
    question, rules = question_of(situation, wave), tuple(rules)
    found = situation.kind.folded(holds(rules, question), rules, question)
    return tuple(_with_advice(rules, question, hold) for hold in found)


def question_of(situation: Situation, wave: Wave) -> Question:
    """May this wave be stopped, by this reading?"""
    state = situation.state
    first = not state.waves_begun and state.phase is not Phase.WITHHELD
    return Question(
        state=state,
        policy=situation.policy,
        observation=situation.seen,
        wave=wave,
        first_stop=first,
        unread_pass=state.phase is not Phase.WITHHELD,
    )


def _with_advice(rules: tuple[Predicate, ...], question: Question, hold: Hold) -> Hold:
    """The hold; where nodes go together though each might go alone, with their machine and what to do."""
    rule = next(rule for rule in rules if rule.name == hold.predicate)
    for machine in question.wave.machines:
        alone = [replace(question, wave=Wave(number=question.wave.number, nodes=(name,))) for name in machine]
        together = replace(
            question, wave=Wave(number=question.wave.number, nodes=machine, machines=(machine,))
        )
        refused = [_refuses(rule, asked, hold) for asked in (together, *alone)]
        if refused[0] and not any(refused[1:]):
            way = "restart without `--reboot`" if question.policy.reboot else "set `hosts.together: never`"
            why = f"{', '.join(machine)} go together, being on one machine: {rule.remedy}, or {way}"
            return replace(hold, evidence=f"{hold.evidence}; {why}")
    return hold


def _refuses(rule: Predicate, question: Question, hold: Hold) -> bool:
    return any(subject == hold.subject for subject, _ in rule.check(question))


def against_wave(
    situation: Situation, wave: Wave, *, unread: frozenset[str] = frozenset()
) -> tuple[Hold, ...]:
    """The holds of predicates about waves: another candidate, or a smaller wave, may pass.

    `unread` are predicates that are not checked, because this phase does not read what they need.
    """
    rules = (rule for rule in situation.kind.predicates if rule.about_wave and rule.name not in unread)
    return holds(rules, replace(question_of(situation, wave), first_stop=False))


# Choosing ------------------------------------


def next_wave_of(situation: Situation, *, unread: frozenset[str] = frozenset()) -> Wave | None:
    """The next wave by the run's strategy; None without a reading, and when no node is left.

    While earlier waves recover, it is chosen as if they had recovered, and while replicas that the run adds
    are made, as if their indices were not there: otherwise both would split a zone into many small waves. All
    predicates then check the real state before it may stop.
    """
    view = situation.view
    if view is None:
        return None
    unread |= cured(situation)
    copies = _without_new_replicas(situation, view.recovered if situation.state.recovering else view)
    asked = replace(situation, seen=replace(situation.seen, cluster=copies))
    return next_wave(
        situation.state,
        view,
        lambda wave: against_wave(asked, wave, unread=unread),
        situation.kind.words,
        machines=pending_machines(situation),
        bounds=lambda: situation.kind.bounds(situation.policy, copies),
    )


def cured(situation: Situation) -> frozenset[str]:
    """Predicates that the run itself meets before a stop: they neither bar its beginning nor split a wave."""
    adds = situation.policy.zero_replicas is ZeroReplicas.ADD_REPLICA
    refused = any(isinstance(failed.action, SetReplicas) for failed in situation.state.in_phase.failed)
    return frozenset({"zero_replica_indices"} if adds and not refused else ())


def _without_new_replicas(situation: Situation, view: ClusterView) -> ClusterView:
    """The view without the replicas that the run adds to an index, until all of its copies are there."""
    added = situation.state.unrestored.replicas
    shards = [shard for shard in view.shards if shard.index_uuid in added] if added else []
    unfinished = {
        shard.index_uuid for shard in shards if not all(copy.started for copy in view.shards[shard])
    }
    if not unfinished:
        return view
    made = {
        shard: tuple(copy for copy in view.shards[shard] if copy.primary)
        for shard in shards
        if shard.index_uuid in unfinished
    }
    indices = tuple(
        replace(index, replicas=0) if index.uuid in unfinished else index for index in view.indices
    )
    return view.changed(made, indices=indices)


def pending_machines(situation: Situation) -> tuple[Unit, ...]:
    """The pending nodes that go together because they share a machine."""
    if not situation.policy.goes_by_machine:
        return ()
    pending = (node.name for node in situation.state.nodes_in(NodePhase.PENDING))
    return machines_of(situation.state, situation.seen).among(pending)


def chosen(situation: Situation) -> Wave | None:
    """The wave that was chosen before, as long as it passes; else the next one by the strategy."""
    before = situation.state.wave
    whole = all(node.phase is NodePhase.PENDING for node in situation.state.wave_nodes)
    if before is not None and whole and not against_wave(situation, before):
        return before
    return next_wave_of(situation) or before


def candidates_to_undo(situation: Situation, wave: Wave | None, *, held: bool) -> tuple[NodeProgress, ...]:
    """Candidates that are out of service and will not be stopped soon: their `before_stop` is undone.

    Those of the wave only when the hold lasts; those of no wave at once.
    """
    of_wave = set(wave.nodes) if wave else set[NodeName]()
    found = []
    for node in situation.state.nodes_in(NodePhase.PENDING):
        if node.ready_since is None:
            continue
        waits = held and situation.now - node.ready_since > DEPOOLED_SECONDS
        if node.name not in of_wave or waits:
            found.append(node)
    return tuple(found)


# Whose hosts are read ------------------------------------

_MORE: Final = 7
"""So many more candidates are read for each host that was read before and passed over."""


def hosts_to_read(situation: Situation, names: Iterable[NodeName]) -> frozenset[NodeName]:
    """The hosts that the next reading has to read before these candidates are decided; empty if none.

    Hosts that were not read count as ready until a candidate is chosen; then its host is read. So the number
    of hosts to read grows with the wave and with hosts that are not ready, not with the cluster. After
    candidates were passed over, several of the next ones are read at once, instead of one after the other.
    """
    wanted, read = set(names), situation.seen.hosts.keys()
    pending = [node.name for node in situation.state.nodes_in(NodePhase.PENDING)]
    if situation.policy.reboot or situation.policy.goes_by_machine:
        # All nodes of a machine go with it: a node whose machine is not known yet is read with them.
        wanted |= set(pending) - machines_of(situation.state, situation.seen).began.keys()
    if wanted <= read:
        return frozenset()
    following = [name for name in pending if name not in read | wanted]
    return frozenset({*wanted, *read, *following[: _MORE * len(read)]})


def hosts_of_held(situation: Situation, wave: Wave) -> frozenset[NodeName]:
    """The nodes whose hosts a held run reads again: those of the wave, and those that were not ready."""
    question = question_of(situation, wave)
    not_ready = (name for name in situation.seen.hosts if any(why_not_ready(question, name)))
    return frozenset((*wave.nodes, *not_ready))


# Holding ------------------------------------


def of_predicates(held: Iterable[Hold]) -> tuple[Hold, ...]:
    """Holds that are no gates: the journal has events of their own for gates."""
    return tuple(hold for hold in held if hold.predicate != GATES_OPEN)


def hold_or_stand_down(situation: Situation, refused: tuple[Hold, ...]) -> Decision:
    """Wait with allocation enabled, up to a limit; stand down at once when only the operator can help."""
    state = situation.state
    news = unrecorded(situation, refused)
    first = hold_in_brief(refused[0]) if refused else "no reading"
    names = {hold.predicate for hold in refused}
    rules = [rule for rule in situation.kind.predicates if rule.name in names]
    # What holds beside an absence may clear when the member is back.
    may_clear = any(rule.of_absence for rule in rules) or situation.unread_for_now
    hopeless = not may_clear and not all(rule.passes_with_time for rule in rules)
    if situation.readable and state.untouched and hopeless:
        return stand_down(state, f"held by {first}", Outcome.HELD, *news, names_hold=True)
    late = held_too_long(situation, refused)
    if late is not None:
        return stand_down(state, late, limits.HOLD.ends, *news)
    what = "" if refused else f"every predicate to pass: {first}"
    return wait(situation.now, what, seconds=HOLD_POLL_SECONDS, holds=refused, events=news)


def unrecorded(situation: Situation, refused: tuple[Hold, ...]) -> tuple[Event, ...]:
    """Holds and gates that are not in the journal yet."""
    state, others = situation.state, of_predicates(refused)
    known = {hold.predicate for hold in of_predicates(state.in_phase.holds)}
    new = tuple(hold for hold in others if hold.predicate not in known)
    # Only gates are left to wait for: their limit counts from here, and not that of the predicates.
    cleared = refused and not others and of_predicates(state.in_phase.holds)
    news = gate_news(state, situation.seen)
    return (*new, *news, *((HoldsCleared(but_gates=True),) if cleared else ()))


def held_too_long(situation: Situation, refused: tuple[Hold, ...]) -> str | None:
    """Why the run no longer waits; None while it may wait."""
    lease = situation.seen.lease
    if isinstance(lease, LeaseView) and lease.gone:
        return f"the lease does not come back during this run: {lease.holder}"
    state, others = situation.state, of_predicates(refused)
    late = situation.over(limits.HOLD)
    if (others or not refused) and late is not None:
        return f"held for {duration(late)} by {hold_in_brief(others[0]) if others else 'no reading'}"
    closed = closed_gates(state, situation.seen) if gates_are_asked(state) else ()
    late = situation.over(limits.GATE)
    if closed and late is not None:
        return f"held for {duration(late)} by {hold_in_brief(closed[0])}"
    too_long = _called_off_too_long(situation)
    return f"{too_long}; now held by {hold_in_brief(refused[0])}" if too_long and refused else too_long


def cleared(situation: Situation) -> tuple[Event, ...]:
    """The events when nothing holds any more."""
    news = gate_news(situation.state, situation.seen)
    return (*news, HoldsCleared()) if of_predicates(situation.state.in_phase.holds) else news


# Calling off ------------------------------------


def called_off(situation: Situation) -> Decision | None:
    """A wave that was called off before its stop is tried again after a pause, within the limit of a hold.

    Its last reading did not pass, or a verb was refused: without a limit, allocation would be disabled and
    enabled forever.
    """
    state, now = situation.state, situation.now
    if state.process.called_off_since is None:
        return None
    too_long = _called_off_too_long(situation)
    if too_long is not None:
        return stand_down(state, too_long, limits.CALLED_OFF.ends)
    if now - state.in_phase.since < HOLD_POLL_SECONDS:
        return wait(now, "a wave that was called off before its stop", seconds=HOLD_POLL_SECONDS)
    return None


def _called_off_too_long(situation: Situation) -> str | None:
    """Why no wave is tried again, even if no predicate holds it now; None while the limit is not over."""
    late = situation.over(limits.CALLED_OFF)
    if late is None:
        return None
    why = "the journal has the predicates and the refused commands"
    return f"every wave was called off before its stop for {duration(late)} ({why})"


def failed_before(situation: Situation, failed: Sequence[NodeProgress]) -> Decision | None:
    """Stand down with what became of these nodes and what to do; None when there are none."""
    if not failed:
        return None
    reason = f"{failed[0].name} failed: {failed[0].failure}; repair it, then resume with --retry-failed"
    return stand_down(situation.state, reason, Outcome.FAILED, failed=[failed[0].name])


def failed_and_absent(situation: Situation) -> Decision | None:
    """Stand down from a wait without an end: a node that failed is absent, and nothing starts it."""
    if situation.view is None:
        return None
    failed = situation.state.nodes_in(NodePhase.FAILED)
    return failed_before(situation, [node for node in failed if situation.member(node.name) is None])


# Beginning ------------------------------------


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
    waves, lasting = tuple(_planned_waves(situation)), _lasting(situation)
    absence = tuple(rule for rule in situation.kind.predicates if rule.of_absence)
    if any(holds(absence, question_of(situation, wave)) for wave in waves):
        return ()
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
