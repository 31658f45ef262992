"""The state of a run: a fold of its journal, and nothing else.

`evolve(state, record) -> state` is the only way to make a run's state, live or replayed. A new process
continues with `RunResumed` or `RestoreBegun`: neither moves a node. Verbs that were under way are in doubt,
every timer begins again, and the next decision reads where each node is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias, assert_never

from orchestrator.engine import late_stop, memory, succession
from orchestrator.engine.clock import STANDSTILL_SECONDS, UNWATCHED_SECONDS
from orchestrator.engine.grid import check_node_step
from orchestrator.engine.memory import (
    Absence,
    PhaseState,
    ProcessState,
)
from orchestrator.engine.merge_state import evolve_merging, merging_of, with_index
from orchestrator.engine.phases import check_run_step
from orchestrator.engine.progress import (
    GOING_UP_OR_DOWN,
    MAY_BE_DOWN,
    Mark,
    NodeProgress,
    Nodes,
    ShardTaken,
)
from orchestrator.engine.state import RunState, Unrestored, WaveBegun, members_missed, with_node
from orchestrator.errors import JournalError
from orchestrator.model import event as ev
from orchestrator.model.action import (
    Action,
    ForceHandoff,
    ForceMerge,
    Moment,
    Purpose,
    RebootHost,
    RefreshIndex,
    RunHook,
    RunInstall,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionFailed,
    AlertsAtStart,
    BaselineRecorded,
    Overlapping,
    WaveGaveWay,
)
from orchestrator.model.observation import MissingCopy
from orchestrator.model.phase import (
    REBOOT,
    RESTART,
    TUNING,
    VERSION,
    Doubt,
    Goal,
    Installing,
    NodePhase,
    Outcome,
    Owed,
    Phase,
    Verb,
    Work,
)
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant
from orchestrator.model.upgrade import InstallState
from orchestrator.model.work_event import (
    HandoffLeftWaiting,
    HandoffWaits,
    IndexMerged,
    InstallEnded,
    MergeBegun,
    MergeDue,
    MergeWarned,
    Note,
    NotHastened,
    Remembered,
    StartFailed,
    Upgraded,
    UpgradeMissed,
    WritesRead,
)

_Shard: TypeAlias = tuple[str, int]
"""The uuid of an index and the number of a shard of it."""


def replay(run: str, records: Iterable[ev.Record]) -> RunState:
    """Fold a journal into the state of its run.

    Raises:
        SafetyViolation: the journal holds an illegal step.
        JournalError: an event names what the journal does not have, such as a node. No run writes that.
    """
    state = RunState(run=run)
    for record in records:
        try:
            state = evolve(state, record)
        except (LookupError, ValueError) as error:
            place = f"run {run}, event {record.sequence}"
            raise JournalError(
                f"{place}: the journal is damaged: `{record.event.event}` does not fit the events before it"
            ) from error
    return state


def evolve(state: RunState, record: ev.Record) -> RunState:  # noqa: C901, PLR0911  (one arm an event)
    """The state after one more event.

    Raises:
        SafetyViolation: the event is an illegal step; the state passed in is unchanged.
    """
    at, event = record.at, record.event
    match event:
        case ev.RunStarted():
            return _started(state, event, at)
        case ev.RunResumed():
            return succession.resumed(state, event, at)
        case ev.RestoreBegun():
            return succession.restoring(state, event, at)
        case ev.RunFinished():
            return _finished(state, event)
        case ev.PhaseEntered(node=node):
            return _run_step(state, event, at) if node is None else _node_step(state, node, event, at)
        case ev.ActionSent(action=action):
            return _sent(state, action, at)
        case ev.ActionConfirmed(action=action):
            return _confirmed(_landed(state, event, at), action, at)
        case ev.ActionFailed():
            return _failed(_landed(state, event, at), event, at)
        case ev.BaselineRecorded():
            nodes = Nodes(_accounted_for(node, event) for node in state.nodes.values())
            return replace(state, baseline=event, nodes=nodes)
        case ev.Rescued():
            return _rescued(state)
        case ev.WorkDone(node=node, work=work):
            return _work_done(state, node, work, at)
        case ev.WaveStarted():
            return _wave_started(state, event, at)
        case ev.WaveFinished(number=number):
            return _wave_finished(state, number)
        case ev.TakenDown():
            return _taken_down(state, event)
        case ev.NotWaitedFor():
            return _not_waited_for(state, event)
        case HandoffWaits() | HandoffLeftWaiting():
            return replace(state, handoff=state.handoff.after(event, at))
        case NotHastened(nodes=nodes, why=why):
            unhastened = {**state.unhastened, **dict.fromkeys(nodes, why)}
            return replace(state, unhastened=unhastened, in_phase=replace(state.in_phase, usual_pace=True))
        case ev.StoodStill():
            return _stood_still(state, event, at)
        case WaveGaveWay():
            return state.with_room()
        case Overlapping():
            return replace(state, overlapping=event)
        case ev.Deposed():
            # From here on the successor restores all unrestored settings.
            return replace(state, unrestored=Unrestored(), process=replace(state.process, deposed=event))
        case ev.MembersMissed():
            return members_missed(state, event, at)
        case StartFailed(node=node):
            return with_node(state, node, start_failed=event)
        case ev.HookUnproven(node=node, number=number):
            owed = state.nodes[node].owed | {Owed(work=Work.HOOK, number=number)}
            return with_node(state, node, owed=owed, unproven=None)
        case InstallEnded() | Upgraded() | UpgradeMissed():
            return _of_upgrade(state, event, at)
        case (
            ev.SettingChanged()
            | ev.SettingRestored()
            | ev.ReplicasAdded()
            | ev.ReplicasRestored()
            | ev.VotingExcluded()
            | ev.VotingRestored()
        ):
            return replace(state, unrestored=_of_changes(state.unrestored, event, at))
        case AlertsAtStart(gate=gate, alerts=alerts):
            return replace(state, alerts_at_start={**state.alerts_at_start, gate: alerts})
        case WritesRead() | MergeWarned() | MergeDue() | MergeBegun() | IndexMerged():
            return replace(state, merging=evolve_merging(state.merging, event, at))
        case Remembered():
            process, here = memory.remembered(state.process, state.in_phase, event, at)
            return replace(state, process=process, in_phase=here)
        case Note():
            return state
        case _:
            assert_never(event)


# The run ------------------------------------


def _started(state: RunState, event: ev.RunStarted, at: Instant) -> RunState:
    # A run that restores what another one left only brings nodes up: a node whose stop was never done is not
    # restarted when the restore is resumed.
    owed = frozenset[Owed]() if event.repairs is not None else owed_by(event.policy)
    out, and_undo = set(event.out_of_service), owed | _undo(event.policy)
    nodes = Nodes(
        NodeProgress(name=name, since=at, owed=and_undo if name in out else owed) for name in event.nodes
    )
    return RunState(
        run=state.run,
        begun=event,
        in_phase=PhaseState(since=at),
        process=ProcessState(started=at, state=event.state),
        nodes=nodes,
        merging=merging_of(event.indices),
    )


def owed_by(policy: Policy) -> frozenset[Owed]:
    """The owed work of each node under this policy. `UNDO` is added when a hook or a stop is sent."""
    hooks = {Owed(work=Work.HOOK, number=number) for number in range(len(policy.hooks.while_stopped))}
    tuning = {TUNING} if policy.tune is not None else set[Owed]()
    reboot = {REBOOT} if policy.reboot else set[Owed]()
    version = {VERSION} if policy.upgrade is not None else set[Owed]()
    return frozenset({RESTART} | hooks | _installs(policy) | tuning | reboot | version)


def _installs(policy: Policy) -> frozenset[Owed]:
    steps = policy.upgrade.install if policy.upgrade is not None else ()
    return frozenset(Owed(work=Work.INSTALL, number=number) for number in range(len(steps)))


def _undo(policy: Policy) -> frozenset[Owed]:
    return frozenset(Owed(work=Work.UNDO, number=n) for n in range(len(policy.hooks.after_recovery)))


def _finished(state: RunState, event: ev.RunFinished) -> RunState:
    """The attempt is over. A canary counts as done once it paused the run; a pause by hand does not count."""
    canary = state.begun.policy.pause_after
    looked_at = event.outcome is Outcome.PAUSED and canary is not None and state.recovered >= canary
    return replace(state, outcome=event.outcome, message=event.message, paused=state.paused or looked_at)


# Phases ------------------------------------


def _run_step(state: RunState, event: ev.PhaseEntered, at: Instant) -> RunState:
    new = Phase(event.to)
    check_run_step(state.phase, new)
    if state.phase is Phase.MERGED and new is not Phase.STANDING_DOWN:
        state = replace(state, merging=replace(state.merging, settled=True))
    if new is Phase.GATED:
        # If the wave is neither finished nor made room, it is called off: nothing of it was taken down.
        state = replace(state, waves=state.recovering, taken=state.taken if state.recovering else {})
    if state.phase is Phase.GATED and new is Phase.REASSIGNED and state.recovering:
        state = _called_off(state.waiting_again(), since=None)
    pending = all(node.phase is NodePhase.PENDING for node in state.wave_nodes)
    before_a_stop = state.phase is Phase.WITHHELD or (state.phase is Phase.DOWN and pending)
    if before_a_stop and new is Phase.REASSIGNED and state.process.called_off_since is None:
        state = _called_off(state, since=at)
    if new is Phase.WITHHELD:
        state = replace(state, overlapping=None)
    return replace(state, phase=new, in_phase=PhaseState(since=at, before=state.phase))


def _called_off(state: RunState, *, since: Instant | None) -> RunState:
    return replace(state, process=replace(state.process, called_off_since=since))


def _stood_still(state: RunState, event: ev.StoodStill, at: Instant) -> RunState:
    """So much does not count. After a long standstill, what was known by watching begins again (`clock`)."""
    read = at if event.read is None else event.read
    process = replace(state.process, clock=state.process.clock.paused(read, event.seconds))
    if event.seconds <= STANDSTILL_SECONDS:
        return replace(state, process=process)
    absent = {name: Absence(since=at, readings=0) for name in process.absent}
    before = read - event.seconds - UNWATCHED_SECONDS
    lost = [
        replace(node, lost_stop=late_stop.begun_again(state, node, before, at))
        for node in state.nodes.of(Mark.OPEN)
    ]
    return replace(state, process=replace(process, absent=absent), nodes=state.nodes.changed(*lost))


# Changes in the cluster ------------------------------------


def _of_changes(
    left: Unrestored,
    event: ev.SettingChanged
    | ev.SettingRestored
    | ev.ReplicasAdded
    | ev.ReplicasRestored
    | ev.VotingExcluded
    | ev.VotingRestored,
    at: Instant,
) -> Unrestored:
    match event:
        case ev.SettingChanged():
            return _setting_changed(left, event, at)
        case ev.SettingRestored(level=level, key=key):
            settings = {one: debt for one, debt in left.settings.items() if one != (level, key)}
            withheld = left.withheld - {(level, key)}
            since = left.withheld_since if withheld else None
            return replace(left, settings=settings, withheld=withheld, withheld_since=since)
        case ev.ReplicasAdded(index_uuid=uuid):
            return replace(left, replicas={uuid: event, **left.replicas})
        case ev.ReplicasRestored(index_uuid=uuid):
            return replace(left, replicas={key: v for key, v in left.replicas.items() if key != uuid})
        case ev.VotingExcluded(node=node):
            return replace(left, excluded=left.excluded | {node})
        case ev.VotingRestored():
            return replace(left, excluded=frozenset())


def _setting_changed(left: Unrestored, event: ev.SettingChanged, at: Instant) -> Unrestored:
    key = (event.level, event.key)
    owed = left.settings.get(key)
    # The first value that was read is the original, however often the key is written afterwards. If others
    # have set another value since, that value is the original.
    known = owed is not None and event.found in (owed.found, owed.wanted)
    found = owed.found if owed and known else event.found
    debt = SettingChange(level=event.level, key=event.key, found=found, wanted=event.wanted)
    left = replace(left, settings={**left.settings, key: debt})
    if event.purpose is not Purpose.WITHHOLD:
        return left
    since = at if left.withheld_since is None else left.withheld_since
    return replace(left, withheld=left.withheld | {key}, withheld_since=since)


# Waves ------------------------------------


def _wave_started(state: RunState, event: ev.WaveStarted, at: Instant) -> RunState:
    """A wave is chosen; or the one of its number becomes another: nodes stopped late join it, for one."""
    already = state.wave.nodes if state.wave and state.wave.number == event.wave.number else ()
    chosen = (_accounted_for(state.nodes[name], event) for name in event.wave.nodes if name not in already)
    nodes = (replace(node, goal=Goal.RESTART, reboots=0) for node in chosen)
    begun = WaveBegun(wave=event.wave, since=state.wave_since if already else at)
    state = replace(state, waves=(*state.recovering, begun), nodes=state.nodes.changed(*nodes))
    if already:
        return state
    process = replace(state.process, retries=0, retried_at=0.0, excused_since=None)
    return replace(state, process=process)


def _taken_down(state: RunState, event: ev.TakenDown) -> RunState:
    taken = dict(state.taken)
    alike = dict[tuple[int, bool], ShardTaken]()  # nearly all of them, and there may be 100,000
    for index in event.indices:
        for number, started in index.started:
            kind = (started, index.open)
            if kind not in alike:
                alike[kind] = ShardTaken(started=started, open=index.open)
            key = (index.index_uuid, number)
            taken[key] = alike[kind].after(taken.get(key), most=index.replicas + 1)
    return _less_excused(replace(state, taken=taken), event)


def _less_excused(state: RunState, event: ev.TakenDown) -> RunState:
    """What was missing before and is there when a wave takes its shard down is excused no more."""
    baseline = state.baseline
    excused = {(one.index_uuid, one.number) for one in baseline.missing} if baseline else set[_Shard]()
    if not (excused or state.not_waited):
        return state
    room: dict[_Shard, int] = {}
    for index in event.indices:
        for number, started in index.started:
            key = (index.index_uuid, number)
            if key in excused or key in state.not_waited:
                room[key] = max(0, index.replicas + 1 - started)
    kept: list[MissingCopy] = []
    for one in baseline.missing if room and baseline else ():
        key = (one.index_uuid, one.number)
        if key not in room:
            kept.append(one)
        elif not one.primary and room[key] > 0:
            kept.append(replace(one, count=min(one.count, room[key])))
            room[key] -= kept[-1].count
    if baseline is not None and room:
        baseline = replace(baseline, missing=tuple(kept))
    not_waited = {key: min(count, room.get(key, count)) for key, count in state.not_waited.items()}
    return replace(state, baseline=baseline, not_waited=not_waited)


def _not_waited_for(state: RunState, event: ev.NotWaitedFor) -> RunState:
    """Only copies of shards that a wave took: of others the next reading says whether they found a place.

    These shards are `displaced`: a node that is upgraded later, or changed by its people, is a place for the
    copy. They are awaited by the largest number of copies that a wave found.
    """
    not_waited, displaced = dict(state.not_waited), dict(state.displaced)
    for one in event.shards:
        key = (one.index_uuid, one.number)
        if key in state.taken:
            not_waited[key] = not_waited.get(key, 0) + one.count
            earlier, now = displaced.get(key), state.taken[key]
            displaced[key] = now if earlier is None else now.after(earlier, most=earlier.started)
    return replace(state, not_waited=not_waited, displaced=displaced)


def _wave_finished(state: RunState, number: int) -> RunState:
    waves = tuple(one for one in state.waves if one.wave.number != number)
    state = replace(state, waves=waves, waves_finished=state.waves_finished + 1)
    # Nothing of a wave that is chosen in GATED is down yet.
    over = not state.recovering and (state.wave is None or state.phase is Phase.GATED)
    return replace(state, taken={}) if over else state


# Nodes ------------------------------------


def _accounted_for(node: NodeProgress, event: BaselineRecorded | ev.WaveStarted) -> NodeProgress:
    """The node with the first life that was read, and with its host's latest boot.

    What others rebooted before its wave was not rebooted since its stop, which may still be on its way.
    """
    life, boot = event.incarnations.get(node.name), event.boots.get(node.name)
    return replace(node, life=node.life or life, boot=boot or node.boot)


def _node_step(state: RunState, name: NodeName, event: ev.PhaseEntered, at: Instant) -> RunState:
    node = state.nodes[name]
    old, new = node.phase, NodePhase(event.to)
    check_node_step(name, old, new)
    node = replace(
        node,
        phase=new,
        since=at,
        start_sent=0.0,
        tries=0,
        unproven=None,
        failure=event.why if new in (NodePhase.FAILED, NodePhase.SKIPPED) else None,
        start_failed=node.start_failed if new is NodePhase.FAILED else None,
    )
    match new:
        case NodePhase.STOPPED:
            node = replace(node, doubt=_less_accepted_stop(node.doubt), over=True)
        case NodePhase.STARTING if old not in (NodePhase.STOPPING, NodePhase.STOPPED):
            node = replace(node, goal=Goal.BRING_UP)
            if node.lost_stop is not None:
                state = replace(state, taken={**node.lost_stop.taken, **state.taken})
        case NodePhase.REJOINED:
            node = replace(
                node,
                life=event.incarnation or node.life,
                boot=event.boot or node.boot,
                over=False,
                owed=node.owed - {RESTART},
                ready=frozenset(),  # it serves its clients again
                ready_since=node.ready_since if node.undo else None,
                goal=Goal.RESTART,
                doubt=_less_accepted_stop(node.doubt),
            )
            if old in GOING_UP_OR_DOWN:
                node = late_stop.is_back(node, state.taken)
            state = replace(state, handoff=state.handoff.with_back((name,), at))
        case NodePhase.PENDING if old is NodePhase.REJOINED:
            node = replace(node, returns=node.returns + 1)
        case NodePhase.PENDING:
            # Its stop was not done. If it shows another life later, it was, and its copies are awaited.
            node = late_stop.not_done(replace(node, goal=Goal.RESTART), state.taken, at)
        case _:
            pass
    if new in (NodePhase.STOPPED, NodePhase.STARTING):
        state = _called_off(state, since=None)
    return replace(state, nodes=state.nodes.changed(node))


def _less_accepted_stop(doubt: Doubt | None) -> Doubt | None:
    """A stop that its host accepted is done once the node is gone; a lost one may still arrive."""
    done = doubt is not None and doubt.verb is Verb.STOP and doubt.accepted
    return None if done else doubt


def _rescued(state: RunState) -> RunState:
    """Nodes of the wave that are down are only brought up."""
    down = (replace(node, goal=Goal.BRING_UP) for node in state.wave_nodes if node.phase in MAY_BE_DOWN)
    return replace(state, nodes=state.nodes.changed(*down))


def _work_done(state: RunState, name: NodeName, work: Work, at: Instant) -> RunState:
    node = state.nodes.get(name)
    if node is None:
        return state
    node = replace(node, owed=node.owed - {Owed(work=work)}, since=at)
    if work is Work.REBOOT:
        node = replace(node, doubt=None, lost_stop=None)  # no command outlives its host
    return replace(state, nodes=state.nodes.changed(node))


def _of_upgrade(state: RunState, event: InstallEnded | Upgraded | UpgradeMissed, at: Instant) -> RunState:
    node = state.nodes[event.node]
    steps = _installs(state.begun.policy)
    match event:
        case InstallEnded(state=InstallState.DONE, number=number):
            done = Owed(work=Work.INSTALL, number=number)
            owed = node.owed - {done}
            return with_node(state, node.name, owed=owed, install=None, lost_install=None, since=at)
        case InstallEnded(state=InstallState.FOUND):
            owed = node.owed - steps
            return with_node(state, node.name, owed=owed, install=None, lost_install=None, since=at)
        case InstallEnded():
            return with_node(state, node.name, install=None, lost_install=node.install, since=at)
        case Upgraded():
            return with_node(state, node.name, owed=node.owed - steps - {VERSION})
        case UpgradeMissed():
            return with_node(state, node.name, owed=node.owed | steps)


def _sent(state: RunState, action: Action, at: Instant) -> RunState:
    state = replace(state, process=memory.sent(state.process, action, at))
    match action:
        case StopNode(node=name):
            node = late_stop.sent_again(state.nodes[name], state.taken)
            doubt = Doubt(verb=Verb.STOP, since=at)
            owed = node.owed | _undo(state.begun.policy)
            node = replace(node, doubt=doubt, stopped_at=at, owed=owed)
            return replace(state, nodes=state.nodes.changed(node))
        case StartNode(node=name, counts=away):
            # The limit of a start counts from the first one: a doubt may have come before it.
            node = state.nodes[name]
            since = node.since if node.start_sent else at
            return with_node(state, name, start_sent=at, since=since, over=node.over or away)
        case RebootHost(nodes=names):
            doubt = Doubt(verb=Verb.REBOOT, since=at)
            nodes = (late_stop.sent_again(state.nodes[name], state.taken) for name in names)
            sent = (replace(n, doubt=doubt, reboots=n.reboots + 1, since=at, unproven=None) for n in nodes)
            return replace(state, nodes=state.nodes.changed(*sent))
        case RunHook(node=name, moment=Moment.BEFORE_STOP):
            node = state.nodes[name]
            since = at if node.ready_since is None else node.ready_since
            return with_node(state, name, owed=node.owed | _undo(state.begun.policy), ready_since=since)
        case RunHook(node=name, moment=Moment.WHILE_STOPPED) | TuneHost(node=name):
            return with_node(state, name, unproven=None)  # sent to a node that was seen down
        case RunInstall(node=name, number=number, ticket=ticket):
            node = state.nodes[name]
            again = node.install is not None and node.install.ticket == ticket
            begun = Installing(number=number, ticket=ticket, since=at)
            return with_node(
                state,
                name,
                unproven=None,
                install=begun,
                installs=node.installs if again else node.installs + 1,
            )
        case RunHook(node=name, moment=Moment.AFTER_RECOVERY):
            # Back in service, or perhaps so: the next stop needs every `before_stop` hook again.
            return with_node(state, name, ready=frozenset())
        case ForceHandoff():
            return replace(state, in_phase=replace(state.in_phase, usual_pace=False))
        case ForceMerge(index_uuid=uuid) if uuid in state.merging.indices:
            asked = state.merging.indices[uuid].asked + 1
            merging = with_index(state.merging, uuid, asked=asked, asked_at=at, refreshed_at=None)
            return replace(state, merging=merging)
        case _:
            return state


def _landed(state: RunState, outcome: ev.ActionConfirmed | ActionFailed, at: Instant) -> RunState:
    process, here = memory.landed(state.process, state.in_phase, outcome, at)
    return replace(state, process=process, in_phase=here)


def _confirmed(state: RunState, action: Action, at: Instant) -> RunState:
    match action:
        case StopNode(node=name):
            return _accepted(state, name)
        case StartNode(node=name, counts=True):
            return with_node(state, name, tries=state.nodes[name].tries + 1)
        case RebootHost(nodes=names):
            for name in names:
                state = _accepted(state, name)
            return state
        case RunHook():
            return _hook_ran(state, action, at)
        case RefreshIndex(index_uuid=uuid):
            return replace(state, merging=with_index(state.merging, uuid, refreshed_at=at))
        case _:
            return state


def _accepted(state: RunState, name: NodeName) -> RunState:
    doubt = state.nodes[name].doubt
    accepted = Doubt(verb=doubt.verb, since=doubt.since, accepted=True, heard=True) if doubt else None
    return with_node(state, name, doubt=accepted)


def _hook_ran(state: RunState, hook: RunHook, at: Instant) -> RunState:
    node = state.nodes[hook.node]
    match hook.moment:
        case Moment.BEFORE_STOP:
            return with_node(state, hook.node, ready=node.ready | {hook.number})
        case Moment.WHILE_STOPPED:
            owed = node.owed - {Owed(work=Work.HOOK, number=hook.number)}
            return with_node(state, hook.node, owed=owed, since=at, unproven=hook.number)
        case Moment.AFTER_RECOVERY:
            node = replace(node, owed=node.owed - {Owed(work=Work.UNDO, number=hook.number)})
            if not node.undo:
                node = replace(node, ready=frozenset(), ready_since=None)
            return replace(state, nodes=state.nodes.changed(node))


def _failed(state: RunState, event: ActionFailed, at: Instant) -> RunState:
    match event.action:
        case StopNode(node=name) if event.in_doubt:
            return _doubted(state, name, at)
        case StopNode(node=name):
            return with_node(state, name, doubt=None)
        case StartNode(node=name, counts=True) if not (event.in_doubt or event.unsent):
            return with_node(state, name, tries=state.nodes[name].tries + 1)
        case RebootHost(nodes=names) if event.in_doubt:
            for name in names:
                state = _doubted(state, name, at)
            return state
        case RebootHost(nodes=names):
            for name in names:
                reboots = state.nodes[name].reboots - int(event.unsent)
                state = with_node(state, name, doubt=None, reboots=reboots)
            return state
        case RunInstall(node=name) if not event.in_doubt:
            # The step that was in doubt before may still end, and may be why this one is refused.
            node = state.nodes[name]
            return with_node(state, name, install=None, lost_install=node.lost_install or node.install)
        case _:
            return state


def _doubted(state: RunState, name: NodeName, at: Instant) -> RunState:
    """A verb in doubt may have left this machine at any moment until its call ended."""
    doubt = state.nodes[name].doubt
    if doubt is None:
        return state
    return with_node(state, name, doubt=Doubt(verb=doubt.verb, since=at, heard=doubt.heard))
