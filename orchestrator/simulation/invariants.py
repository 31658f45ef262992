"""Invariants: conditions that hold at every step of every run, under every reading and every fault.

Independent of `decide`: this module imports the model and the state, and none of the code that it checks.
Each invariant checks one step (the event of a record, with the state before and after it) and yields what is
wrong. The tests check all of them after every event of every simulated run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from orchestrator.engine.progress import GOING_UP_OR_DOWN, MAY_BE_DOWN
from orchestrator.engine.state import RunState
from orchestrator.model.action import (
    Action,
    Moment,
    Purpose,
    RebootHost,
    RunHook,
    RunInstall,
    SetReplicas,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
    action_name,
)
from orchestrator.model.allocation import withheld
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionSent,
    Event,
    PhaseEntered,
    Record,
    RunFinished,
    SettingChanged,
    StoodDown,
    WaveStarted,
    WorkDone,
)
from orchestrator.model.phase import RESTART, Goal, NodePhase, Outcome, Owed, Phase, Verb, Work, in_order
from orchestrator.model.policy import Kind, Strategy
from orchestrator.model.reading import Seconds
from orchestrator.model.tuning import BOOT
from orchestrator.model.upgrade import InstallState
from orchestrator.model.work_event import InstallEnded, TuningApplied, TuningMissed, Upgraded

_RESTORING_SECONDS: Final[Seconds] = 120.0
"""Longer than a master needs for a settings update, including its own time-outs."""

_HEALING: Final = frozenset({Phase.PREPARING, Phase.GATED, Phase.REASSIGNED, Phase.SETTLED, Phase.FINISHING})
"""Phases in which the cluster is to heal, so allocation is enabled or being enabled."""

_NEVER_DOWN: Final = frozenset({NodePhase.PENDING, NodePhase.RECOVERED, NodePhase.SKIPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStep:
    """One event in its place: the state before it, the record, the state after it."""

    before: RunState
    record: Record
    after: RunState

    @property
    def sent(self) -> Action | None:
        """The verb that the event sends; None when it is another event."""
        event = self.record.event
        return event.action if isinstance(event, ActionSent) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Invariant:
    """One condition. It is equal only to itself, so that a catalogue of them is a key at no cost."""

    name: str  # the name in failure reports
    why: str  # what goes wrong if it does not hold
    check: Callable[[JournalStep], Iterator[str]]  # yields what is wrong with a step
    # names of the events at which it can break, so that it is asked at no others; empty = at all
    at: tuple[str, ...] = ()


def broken(step: JournalStep, rules: tuple[Invariant, ...] | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a step; empty when all holds.

    Args:
        step: one event with the states around it.
        rules: None = those of the core.
    """
    asked = _asked_at(step.record.event.event, INVARIANTS if rules is None else rules)
    return tuple([f"{rule.name}: {wrong}" for rule in asked for wrong in rule.check(step)])


@cache
def _asked_at(event: str, rules: tuple[Invariant, ...]) -> tuple[Invariant, ...]:
    return tuple(rule for rule in rules if not rule.at or event in rule.at)


def _stops_stand_behind_withholding(step: JournalStep) -> Iterator[str]:
    state, action = step.before, step.sent
    if not isinstance(action, StopNode) or state.begun.policy.kind is Kind.RIAK:
        return  # Riak rebuilds nothing elsewhere while a node is away
    while_down = state.begun.policy.allocation_while_down
    wanted = {withheld(while_down, by_flags=flags) for flags in (False, True)}
    settings = state.unrestored.settings
    ours = [settings[key] for key in state.unrestored.withheld if key in settings]
    # Nothing of ours is right only where the operator switched the rule off that refuses such a find.
    found_so = any(rule.name == "no_other_maintenance" for rule in state.begun.policy.disabled_predicates)
    if not found_so and not any((debt.key, debt.wanted) in wanted for debt in ours):
        yield f"{action.node} is stopped and this run has not disabled allocation"


def _stops_are_sent_from_down_alone(step: JournalStep) -> Iterator[str]:
    state, action = step.before, step.sent
    if not isinstance(action, StopNode):
        return
    node = state.nodes.get(action.node)
    if state.phase is not Phase.DOWN or node is None or node.phase is not NodePhase.STOPPING:
        phase = node.phase.value if node else "not of the run"
        yield f"{action.node} ({phase}) is stopped in {state.phase.value}"


def _only_the_wave_is_stopped(step: JournalStep) -> Iterator[str]:
    state, action = step.before, step.sent
    if isinstance(action, StopNode | RebootHost) and (
        state.wave is None or action.node not in state.wave.nodes
    ):
        yield f"{action.node} is not in the current wave"


def _a_reboot_takes_down_only_what_is_down(step: JournalStep) -> Iterator[str]:
    """One reboot for all nodes of the wave on that machine, each stopped before, and not twice blindly."""
    state, action = step.before, step.sent
    if not isinstance(action, RebootHost) or state.wave is None:
        return
    if set(action.nodes) != set(state.wave.machine(action.node)):
        yield f"{', '.join(action.nodes)}: not the nodes of one machine of the wave"
    for name in action.nodes:
        node = state.nodes[name]
        if node.phase is not NodePhase.STOPPED:
            yield f"{name} ({node.phase.value}) goes down with the host of {action.node}"
        if node.doubt is not None and node.doubt.verb is Verb.REBOOT and node.doubt.accepted:
            yield f"the host of {name} was asked to reboot before"


def _budget(step: JournalStep) -> Iterator[str]:
    state = step.after
    if not isinstance(step.sent, StopNode):
        return
    allowed = state.begun.policy.max_unavailable
    down = sorted(node.name for node in state.nodes.values() if node.phase in MAY_BE_DOWN)
    if allowed is not None and len(down) > allowed:
        yield f"{', '.join(down)} are restarted at once, {allowed} allowed"
    one_machine = allowed is None and state.begun.policy.strategy is Strategy.NODE
    if one_machine and state.wave is not None and not set(down) <= set(state.wave.machine(down[0])):
        yield f"{', '.join(down)} are restarted at once, and not on one machine"


def _no_wider_than_planned(step: JournalStep) -> Iterator[str]:
    event, planned = step.record.event, step.after.begun.planned
    if not isinstance(event, WaveStarted) or not planned:
        return
    known = {name for wave in planned for name in wave}
    before = step.before
    joined = set(event.wave.nodes) - set(before.wave.nodes if before.wave else ())
    lost = {n.name for n in before.nodes.values() if n.doubt is not None or n.lost_stop is not None}
    if joined <= lost:
        return  # nodes that a lost stop took down join the wave to be started, not to be stopped
    nodes = set(event.wave.nodes) & known
    if not any(nodes <= set(wave) for wave in planned):
        yield f"{', '.join(event.wave.nodes)} were not planned as one wave"


def _no_stop_without_the_lease(step: JournalStep) -> Iterator[str]:
    action = step.sent
    if isinstance(action, StopNode | RebootHost) and step.before.process.lease_lost is not None:
        yield f"{action.node} goes down: {step.before.process.lease_lost}"


def _a_finished_node_is_not_stopped(step: JournalStep) -> Iterator[str]:
    if step.before.nodes is step.after.nodes:
        return
    for name, node in step.before.nodes.items():
        later = step.after.nodes.get(name)
        final = node.phase in (NodePhase.RECOVERED, NodePhase.SKIPPED)
        lost = node.doubt is not None or node.lost_stop is not None
        late = lost and later is not None and later.phase is NodePhase.STARTING
        if final and later is not None and later.phase is not node.phase and not late:
            yield f"{name} was {node.phase.value} and is {later.phase.value}"


def _changes_are_written_down_first(step: JournalStep) -> Iterator[str]:
    action, state = step.sent, step.before
    if isinstance(action, WriteSettings):
        for change in action.changes:
            if not (_covered(state, change) or _restores(state, change, action.purpose)):
                yield f"{change.key} ({change.level.value}) is set to {change.wanted} without a record"
    if isinstance(action, SetReplicas) and action.index_uuid not in state.unrestored.replicas:
        yield f"the replicas of {action.index} are changed and nothing says so"


def _covered(state: RunState, change: SettingChange) -> bool:
    debt = state.unrestored.settings.get((change.level, change.key))
    return debt is not None and change.wanted in (debt.wanted, debt.found)


def _restores(state: RunState, change: SettingChange, purpose: Purpose) -> bool:
    """Whether a setting that was absent is restored to its value in its place: before 5.0 it cannot go."""
    debt = state.unrestored.settings.get((change.level, change.key))
    if debt is None or debt.found is not None or purpose not in (Purpose.REASSIGN, Purpose.RESTORE):
        return False
    return change.found == debt.wanted


def _what_was_found_stays(step: JournalStep) -> Iterator[str]:
    if step.before.unrestored.settings is step.after.unrestored.settings:
        return
    for key, debt in step.before.unrestored.settings.items():
        later = step.after.unrestored.settings.get(key)
        event = step.record.event
        foreign = isinstance(event, SettingChanged) and event.found not in (debt.found, debt.wanted)
        if later is not None and later.found != debt.found and not foreign:
            yield f"{key[1]} was found as {debt.found}, and now as {later.found}"


def _no_wait_with_allocation_off(step: JournalStep) -> Iterator[str]:
    state = step.after
    if state.unrestored.withheld_since is None or state.phase not in _HEALING:
        return
    since = max(state.in_phase.since, state.unrestored.withheld_since)
    passed = state.process.clock.passed(since, step.record.at)
    # While the cluster does not answer, the run waits up to the limit for disabled allocation.
    if passed > state.begun.policy.deadlines.withheld + _RESTORING_SECONDS:
        yield f"allocation is disabled in {state.phase.value} for {passed:.0f} s"


def _withholding_has_a_limit(step: JournalStep) -> Iterator[str]:
    state = step.after
    if state.unrestored.withheld_since is None:
        return
    limits = state.begun.policy.deadlines
    passed = step.record.at - state.unrestored.withheld_since
    if passed > limits.withheld + limits.start + limits.rejoin + _RESTORING_SECONDS:
        yield f"allocation is disabled for {passed:.0f} s"


def _waves_begin_healed(step: JournalStep) -> Iterator[str]:
    old, new = step.before.phase, step.after.phase
    if new is not Phase.WITHHELD or old is not Phase.GATED:
        return
    overlap = step.after.begun.policy.overlap_recovery
    fine = _NEVER_DOWN | {NodePhase.REJOINED} if overlap else _NEVER_DOWN
    unfinished = [n.name for n in step.after.nodes.values() if n.phase not in fine]
    if unfinished:
        yield f"a wave begins while {', '.join(unfinished)} is being restarted"


def _overlap_leaves_recoveries_alone(step: JournalStep) -> Iterator[str]:
    """Nodes still recover when another is stopped: the reading before the stop must allow it."""
    state, action = step.before, step.sent
    if not isinstance(action, StopNode) or state.wave is None:
        return
    wave = set(state.wave.nodes)
    # The operator may have disabled a predicate; then the operator is responsible.
    behind = [n.name for n in state.nodes.values() if n.phase is NodePhase.REJOINED and n.name not in wave]
    if not behind:
        return
    read = state.overlapping
    if read is None or read.number != state.wave.number:
        yield f"{action.node} is stopped while {', '.join(behind)} recovers, and no reading says what"
        return
    if read.unassigned and not state.begun.policy.disables("no_worse_than_baseline", "shard copies"):
        yield f"{action.node} is stopped while {read.unassigned} copies beyond the baseline are unassigned"
    for shard in read.shards:
        part = sorted(wave & set(shard.nodes))
        name = f"[{shard.index}][{shard.number}]"
        if part and not state.begun.policy.disables("no_recovery_on_candidates", f"shard {name}"):
            yield f"{', '.join(part)} has a part in the recovery of {name}"


def _done_needs_nothing(step: JournalStep) -> Iterator[str]:
    event, state = step.record.event, step.after
    if not isinstance(event, RunFinished) or event.outcome is not Outcome.DONE:
        return
    left = _left(state)
    if left:
        yield f"done, with pending changes: {left}"
    unfinished = [
        n.name for n in state.nodes.values() if n.phase not in (NodePhase.RECOVERED, NodePhase.SKIPPED)
    ]
    if unfinished:
        yield f"done, and not restarted: {', '.join(unfinished)}"


def _left(state: RunState) -> list[object]:
    return [*state.unrestored.settings, *state.unrestored.replicas, *state.unrestored.excluded]


def _what_is_left_is_said(step: JournalStep) -> Iterator[str]:
    event, state = step.record.event, step.after
    if not isinstance(event, StoodDown):
        return
    left = _left(state)
    if state.process.deposed is not None:
        return  # what is left is in the record of the run that took over
    if left and (event.outcome is not Outcome.NOT_RESTORED or not event.left):
        yield f"stood down as {event.outcome.value} with {left}"
    if event.left and event.outcome is not Outcome.NOT_RESTORED:
        yield f"something is left and the outcome is {event.outcome.value}"


def _nodes_are_brought_up(step: JournalStep) -> Iterator[str]:
    """A run ends with every node of its own started, failed and named, or listed as left."""
    event, state = step.record.event, step.after
    if not isinstance(event, RunFinished) or event.outcome is Outcome.NOT_RESTORED:
        return
    deposed = state.process.deposed
    forgotten = [
        n.name
        for n in state.nodes.values()
        if n.phase in GOING_UP_OR_DOWN and not (deposed and n.name in deposed.in_hand)
    ]
    if forgotten:
        yield f"ended as {event.outcome.value} with {', '.join(forgotten)} being restarted"
    failed = [n.name for n in state.nodes.values() if n.phase is NodePhase.FAILED]
    if failed and event.outcome is Outcome.DONE:
        yield f"done, and failed: {', '.join(failed)}"


def _nothing_after_the_end(step: JournalStep) -> Iterator[str]:
    if step.sent is not None and step.before.phase is Phase.ENDED:
        yield f"{step.record.event} after the end"


def _no_stop_after_standing_down(step: JournalStep) -> Iterator[str]:
    action, state = step.sent, step.before
    if isinstance(action, StopNode | RebootHost) and state.process.standing_down is not None:
        yield f"{action.node} goes down after: {state.process.standing_down.reason}"


def _starts_are_for_our_own(step: JournalStep) -> Iterator[str]:
    action = step.sent
    if isinstance(action, StartNode):
        node = step.before.nodes.get(action.node)
        if node is None or node.phase is not NodePhase.STARTING:
            yield f"{action.node} is started and is not being restarted"


def _work_is_done_on_stopped_nodes(step: JournalStep) -> Iterator[str]:
    """A hook beside a live process, or one that delays a start that cannot wait."""
    action, state = step.sent, step.before
    if not isinstance(action, RunHook | RunInstall):
        return
    if isinstance(action, RunHook) and action.moment is not Moment.WHILE_STOPPED:
        return
    what, node = f"{action_name(action)} on {action.node}", state.nodes[action.node]
    if node.phase is not NodePhase.STOPPED or state.phase is not Phase.DOWN:
        yield f"{what} ({node.phase.value}) in {state.phase.value}"
    elif node.goal is Goal.BRING_UP:
        yield f"{what}, which is to be brought up at once"


def _no_start_beside_an_install(step: JournalStep) -> Iterator[str]:
    action = step.sent
    if isinstance(action, StartNode) and step.before.nodes[action.node].install is not None:
        yield f"{action.node} is started, and no reading has shown the end of its install step"


def _recovered_needs_nothing(step: JournalStep) -> Iterator[str]:
    event = step.record.event
    if not isinstance(event, PhaseEntered) or event.node is None:
        return
    node = step.before.nodes[event.node]
    if event.to == NodePhase.RECOVERED.value and (node.owed or node.phase is not NodePhase.REJOINED):
        owed = ", ".join(in_order(node.owed))
        yield f"{node.name} counts as recovered from {node.phase.value} and still needs {owed}"
    if event.to == NodePhase.PENDING.value and not node.work:
        yield f"{node.name} is to be restarted and needs no work"


def _owed_work_leaves_by_evidence(step: JournalStep) -> Iterator[str]:
    """An item is done by its own hook, by a reading, or by a new life; never by a resumption."""
    event = step.record.event
    if step.before.nodes is step.after.nodes:
        return
    for name, before in step.before.nodes.items():
        after = step.after.nodes.get(name)
        gone = before.owed - after.owed if after is not None else frozenset[Owed]()
        for item in gone:
            if not _is_evidence(event, name, item):
                yield f"{name} needs {item} no more after {event.event}"


def _is_evidence(event: Event, name: NodeName, item: Owed) -> bool:
    match event:
        case PhaseEntered(node=node, to=to):
            return item == RESTART and node == name and to == NodePhase.REJOINED.value
        case WorkDone(node=node, work=work):
            return node == name and item.work is work and work in (Work.TUNING, Work.REBOOT)
        case InstallEnded(node=node, state=InstallState.DONE, number=number):
            return node == name and item == Owed(work=Work.INSTALL, number=number)
        case InstallEnded(node=node, state=InstallState.FOUND):
            return node == name and item.work is Work.INSTALL
        case Upgraded(node=node):
            return node == name and item.work in (Work.INSTALL, Work.VERSION)
        case ActionConfirmed(action=RunHook(node=node, moment=moment, number=number)):
            of = {Moment.WHILE_STOPPED: Work.HOOK, Moment.AFTER_RECOVERY: Work.UNDO}.get(moment)
            return node == name and item == (Owed(work=of, number=number) if of else None)
        case _:
            return False


def _stops_need_every_hook_before(step: JournalStep) -> Iterator[str]:
    """Hooks that ran in this life of the node: in another one it serves its clients again."""
    state, action, event = step.before, step.sent, step.record.event
    if isinstance(event, PhaseEntered) and event.node is not None and event.to == NodePhase.REJOINED.value:
        if step.after.nodes[event.node].ready:
            yield f"{event.node} is back, and its before_stop hooks still count for its next stop"
        return
    if not isinstance(action, StopNode):
        return
    ready = state.nodes[action.node].ready
    left = [n for n in range(len(state.begun.policy.hooks.before_stop)) if n not in ready]
    if left:
        yield f"{action.node} is stopped without its hook before_stop {left[0]}"


def _a_deposed_run_writes_nothing(step: JournalStep) -> Iterator[str]:
    action, deposed = step.sent, step.before.process.deposed
    if action is None or deposed is None:
        return
    if not isinstance(action, StartNode):
        yield f"{action_name(action)} is sent after run {deposed.successor} took the lease over"
    elif action.node in deposed.in_hand:
        yield f"{action.node} is started, and it is in the record of run {deposed.successor}"


def _hosts_are_tuned_under_stopped_nodes(step: JournalStep) -> Iterator[str]:
    state, action = step.before, step.sent
    if not isinstance(action, TuneHost):
        return
    node = state.nodes.get(action.node)
    of_wave = state.wave is not None and action.node in state.wave.nodes
    if node is None or not of_wave or state.phase is not Phase.DOWN or node.phase is not NodePhase.STOPPED:
        phase = node.phase.value if node else "not of the run"
        yield f"the host of {action.node} ({phase}) is tuned in {state.phase.value}"
    elif node.goal is Goal.BRING_UP:
        yield f"{action.node} is tuned, and it is to be brought up at once"


def _only_what_is_wanted_is_tuned(step: JournalStep) -> Iterator[str]:
    action, policy = step.sent, step.before.begun.policy
    if not isinstance(action, TuneHost):
        return
    wanted = {setting.tunable for setting in policy.tune.settings} if policy.tune else set()
    if policy.tune and policy.tune.persist:
        wanted.add(BOOT)
    if action.tunable not in wanted:
        yield f"{action.tunable} of {action.node} is set, and no profile asks for it"
    if not action.changes:
        yield f"{action.tunable} of {action.node} is set, and nothing says what was found"


def _tuning_is_reported_once(step: JournalStep) -> Iterator[str]:
    """Every tuning change that was sent for a node has an event with its outcome before the node's start."""
    event, state = step.record.event, step.before
    if isinstance(event, TuningApplied):
        sent = [action for action in state.in_phase.confirmed if isinstance(action, TuneHost)]
        if not any(one.node == event.node and one.tunable == event.tunable for one in sent):
            yield f"{event.tunable} of {event.node} is said to be set, and was not"
    if isinstance(event, TuningMissed) and event.node not in state.nodes:
        yield f"{event.node} is none of the run's"
    if isinstance(event, PhaseEntered) and event.to == NodePhase.STARTING.value and event.node is not None:
        flying = (action for action in state.process.in_flight if isinstance(action, TuneHost))
        unended = [action.tunable for action in flying if action.node == event.node]
        if unended:
            yield f"{event.node} continues while {', '.join(unended)} is under way"


INVARIANTS: Final[tuple[Invariant, ...]] = (
    Invariant(
        name="stops_stand_behind_withholding",
        why="With allocation on, the cluster begins to rebuild what the node will bring back.",
        check=_stops_stand_behind_withholding,
        at=("action_sent",),
    ),
    Invariant(
        name="stops_are_sent_from_down_alone",
        why="Every other phase is outside the gates.",
        check=_stops_are_sent_from_down_alone,
        at=("action_sent",),
    ),
    Invariant(
        name="only_the_wave_is_stopped",
        why="The rules were asked about the wave and about no other node.",
        check=_only_the_wave_is_stopped,
        at=("action_sent",),
    ),
    Invariant(
        name="a_reboot_takes_down_only_what_is_down",
        why="A process that dies with its machine was not stopped, and no predicate was checked for it.",
        check=_a_reboot_takes_down_only_what_is_down,
        at=("action_sent",),
    ),
    Invariant(
        name="budget",
        why="The operator said how many nodes may be away at once.",
        check=_budget,
        at=("action_sent",),
    ),
    Invariant(
        name="no_wider_than_planned",
        why="The operator agreed to the plan that was shown.",
        check=_no_wider_than_planned,
        at=("wave_started",),
    ),
    Invariant(
        name="nobody_stops_without_the_lease",
        why="Two runs would take two nodes down at once.",
        check=_no_stop_without_the_lease,
        at=("action_sent",),
    ),
    Invariant(
        name="a_finished_node_is_not_stopped",
        why="One restart a node is what a run is for.",
        check=_a_finished_node_is_not_stopped,
    ),
    Invariant(
        name="changes_are_written_down_first",
        why="A change without a record cannot be restored after a crash.",
        check=_changes_are_written_down_first,
        at=("action_sent",),
    ),
    Invariant(
        name="what_was_found_stays",
        why="Our own value must never be taken for what was found.",
        check=_what_was_found_stays,
    ),
    Invariant(
        name="nobody_waits_with_allocation_off",
        why="A cluster that may not allocate cannot heal while a run holds.",
        check=_no_wait_with_allocation_off,
    ),
    Invariant(
        name="withholding_has_a_limit",
        why="Every wait has a limit, this one above all.",
        check=_withholding_has_a_limit,
    ),
    Invariant(
        name="waves_begin_healed",
        why="The node before must be back before the next goes.",
        check=_waves_begin_healed,
        at=("phase_entered",),
    ),
    Invariant(
        name="overlap_leaves_recoveries_alone",
        why="A recovery that loses its source is not assigned again while allocation is disabled.",
        check=_overlap_leaves_recoveries_alone,
    ),
    Invariant(
        name="done_owes_nothing",
        why="Exit 0 promises that every setting has its original value.",
        check=_done_needs_nothing,
        at=("run_finished",),
    ),
    Invariant(
        name="what_is_left_is_said",
        why="A setting left behind unsaid is found at the next outage.",
        check=_what_is_left_is_said,
        at=("stood_down",),
    ),
    Invariant(
        name="nodes_are_brought_up",
        why="Only this run has a record that the node must be started.",
        check=_nodes_are_brought_up,
        at=("run_finished",),
    ),
    Invariant(
        name="nothing_after_the_end",
        why="The lease is given back by then.",
        check=_nothing_after_the_end,
        at=("action_sent",),
    ),
    Invariant(
        name="no_stop_after_standing_down",
        why="Standing down restores; it stops no further node.",
        check=_no_stop_after_standing_down,
        at=("action_sent",),
    ),
    Invariant(
        name="starts_are_for_our_own",
        why="A node that somebody else keeps down is not ours to start.",
        check=_starts_are_for_our_own,
        at=("action_sent",),
    ),
    Invariant(
        name="work_is_done_on_stopped_nodes",
        why="A hook beside a live process finds files in use, and a rescue has no time for hooks.",
        check=_work_is_done_on_stopped_nodes,
        at=("action_sent",),
    ),
    Invariant(
        name="no_start_beside_an_install",
        why="A process that starts from half of a version fails, or writes what no version can read.",
        check=_no_start_beside_an_install,
        at=("action_sent",),
    ),
    Invariant(
        name="recovered_owes_nothing",
        why="A turn is over only when all its owed work is done.",
        check=_recovered_needs_nothing,
        at=("phase_entered",),
    ),
    Invariant(
        name="owed_work_leaves_by_evidence",
        why="Work that is forgotten leaves a node that counts as done and is not.",
        check=_owed_work_leaves_by_evidence,
    ),
    Invariant(
        name="stops_need_every_hook_before",
        why="A node that still takes traffic is stopped under its clients.",
        check=_stops_need_every_hook_before,
        at=("action_sent", "phase_entered"),
    ),
    Invariant(
        name="a_deposed_run_writes_nothing",
        why="Two runs on one cluster undo each other's changes.",
        check=_a_deposed_run_writes_nothing,
        at=("action_sent",),
    ),
    Invariant(
        name="hosts_are_tuned_under_stopped_nodes",
        why="What is changed counts from a process's first page on, and a rescue has no time for it.",
        check=_hosts_are_tuned_under_stopped_nodes,
        at=("action_sent",),
    ),
    Invariant(
        name="only_what_is_wanted_is_tuned",
        why="A change that was not asked for, or has no record of the original value, cannot be undone.",
        check=_only_what_is_wanted_is_tuned,
        at=("action_sent",),
    ),
    Invariant(
        name="tuning_is_told_as_it_was",
        why="A value that is reported as set is not checked again.",
        check=_tuning_is_reported_once,
        at=("tuning_applied", "tuning_missed", "phase_entered"),
    ),
)
"""All invariants; the docs list them by name."""
