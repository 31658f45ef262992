"""Each journal event as one plain line for people: what, where, why, with the numbers.

Every event is in one of the groups below (a run's frame, its pending changes, its steps, its actions, what
it meets, what it sees), so that mypy fails here when an event is added without words.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from orchestrator.engine.kinds.riak.waiting import in_words
from orchestrator.model import event as ev
from orchestrator.model.event import (
    AlertsAtStart,
    AroundEvent,
    Event,
    GateClosed,
    GateEvent,
    GateOpened,
    GatesPassed,
    Hold,
    LeaseEvent,
    Notified,
    NotNotified,
    Overlapping,
    SilenceCreated,
    SilenceEnded,
    SilenceRenewed,
    WaveGaveWay,
)
from orchestrator.model.observation import MissingCopy
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.work_event import (
    HandoffEvent,
    HandoffLeftWaiting,
    HandoffWaits,
    HostEvent,
    IndexMerged,
    MergeBegun,
    MergeDue,
    MergeEvent,
    MergeWarned,
    NotHastened,
    TuningApplied,
    TuningEvent,
    TuningMissed,
    UpgradeEvent,
    WritesRead,
)
from orchestrator.untrusted import one_line
from orchestrator.view.action_words import action_sentence, tuned_words
from orchestrator.view.host_words import host_sentence
from orchestrator.view.phrases import (
    OUTCOMES,
    PURPOSES,
    hold_sentence,
    nodes_in_words,
    product,
    request_sentence,
)
from orchestrator.view.text import clock_time, counted, duration, listed, setting, size
from orchestrator.view.upgrade_words import upgrade_sentence

_Frame: TypeAlias = (
    ev.RunStarted
    | ev.RunResumed
    | ev.RestoreBegun
    | ev.RunFinished
    | ev.Requested
    | ev.StandingDown
    | ev.StoodDown
)

_Debt: TypeAlias = (
    ev.SettingChanged
    | ev.SettingRestored
    | ev.ReplicasAdded
    | ev.ReplicasRestored
    | ev.VotingExcluded
    | ev.VotingRestored
)

_Step: TypeAlias = (
    ev.BaselineRecorded
    | ev.WaveStarted
    | WaveGaveWay
    | Overlapping
    | ev.PhaseEntered
    | ev.GoodReading
    | ev.NodeRecovered
    | ev.WaveFinished
)

_Act: TypeAlias = ev.ActionSent | ev.ActionConfirmed | ev.ActionFailed

_Meeting: TypeAlias = Hold | ev.HoldsCleared | ev.Rescued | ev.SecondFailure | TuningEvent | AroundEvent

_Sight: TypeAlias = (
    ev.TakenDown
    | ev.NotWaitedFor
    | ev.ForeseenNotToReturn
    | ev.FallbacksHome
    | ev.RedExcused
    | ev.MembersMissed
    | ev.StoodStill
    | ev.ClusterSampled
    | ev.WorkDone
    | ev.HookUnproven
    | ev.OwedAgain
)


def sentence(event: Event, kind: Kind = Kind.ELASTICSEARCH) -> str:
    """The event as one line, without time and full stop, in the words of the kind of cluster."""
    if kind is Kind.RIAK and (own := _of_riak(event)) is not None:
        return own
    if isinstance(event, _Frame):
        return _frame(event)
    if isinstance(event, LeaseEvent):
        return _lease(event)
    if isinstance(event, _Debt):
        return _debt(event)
    if isinstance(event, _Step):
        return _step(event)
    if isinstance(event, _Act):
        return _act(event)
    if isinstance(event, _Sight):
        return _sight(event)
    if isinstance(event, _Meeting):
        return _meeting(event)
    if isinstance(event, MergeEvent):
        return merge_sentence(event)
    if isinstance(event, GateEvent):
        return _gate(event)
    if isinstance(event, HandoffEvent):
        return _handoff(event)
    if isinstance(event, UpgradeEvent):
        return upgrade_sentence(event)
    if isinstance(event, HostEvent):
        return host_sentence(event)
    assert_never(event)


def _sight(event: _Sight) -> str:
    """The result of a reading, and its consequence."""
    match event:
        case ev.TakenDown(number=number, indices=indices):
            copies = sum(len(index.started) for index in indices)
            return f"wave {number} takes copies of {counted(copies, 'shard')} down"
        case ev.NotWaitedFor(shards=shards, why=why):
            names = listed([f"[{one.index}][{one.number}]" for one in shards], 5)
            copies = sum(one.count for one in shards)
            return f"not waited for: {counted(copies, 'copy', 'copies')} of {names}: {why}"
        case ev.ForeseenNotToReturn(shards=shards, why=why):
            names = listed([f"[{one.index}][{one.number}]" for one in shards], 5)
            copies = sum(one.count for one in shards)
            return f"{counted(copies, 'copy', 'copies')} of {names} will not return; not waited for: {why}"
        case ev.FallbacksHome(number=number, seconds=seconds):
            return (
                f"wave {number}: all other nodes have handed off their data for it after {duration(seconds)};"
                " its own handoff continues"
            )
        case ev.RedExcused(count=0):
            return "none of these shards is red any more"
        case ev.RedExcused(count=count, subjects=subjects):
            names = listed(list(subjects), 5)
            return f"{counted(count, 'shard')} red, perhaps for a moment: {names}"
        case ev.MembersMissed(missing=missing, back=back):
            parts = [f"members missing: {listed(list(missing), 5)}"] if missing else []
            parts += [f"members back: {listed(list(back), 5)}"] if back else []
            return "; ".join(parts)
        case ev.StoodStill(nodes=nodes, seconds=seconds):
            named = f" ({listed(list(nodes), 5)})" if nodes else ""
            return f"no reading for over 30 s: waiting limits are extended by {duration(seconds)}{named}"
        case ev.ClusterSampled(health=health, unassigned=unassigned, recovering=recovering):
            without = counted(unassigned, "copy", "copies")
            return f"cluster {health.value}: {without} unassigned, {recovering} recovering"
        case ev.WorkDone(node=node, work=work, why=why):
            return f"{node}: {work.value} done" + (f" ({why})" if why else "")
        case ev.HookUnproven(node=node, number=number):
            return f"{node}: hook while_stopped {number} may have run while the process was up; it runs again"
        case ev.OwedAgain(node=node, what=what, why=why):
            return f"{node} still needs {', '.join(what)}: {why}; it is restarted again in a later wave"
        case _:
            assert_never(event)


def _handoff(event: HandoffEvent) -> str:
    match event:
        case HandoffWaits(partitions=()):
            return "no partition waits for handoff any more, or handoff has begun"
        case HandoffWaits(partitions=waiting):
            return f"{in_words(waiting)}; no transfer moves data"
        case HandoffLeftWaiting(partitions=()):
            return "no partition waits for handoff any more that was not waited for"
        case HandoffLeftWaiting(partitions=waiting, seconds=seconds):
            return f"not waited for: {in_words(waiting)}, unchanged for {duration(seconds)}"
        case NotHastened(nodes=nodes, why=why):
            return f"handoff after the restart of {listed(nodes)} is not hastened: {one_line(why)}"
        case _:
            assert_never(event)


def _gate(event: GateEvent) -> str:
    match event:
        case GateClosed(gate=gate, evidence=evidence):
            return f"gate {one_line(gate)} is closed: {one_line(evidence)}"
        case GateOpened(gate=gate, evidence=evidence):
            return f"gate {one_line(gate)} is open again: {one_line(evidence)}"
        case AlertsAtStart(gate=gate, alerts=alerts):
            return f"gate {one_line(gate)}: {counted(len(alerts), 'alert')} at the start of the run"
        case GatesPassed(gates=gates):
            said = listed([f"{one_line(gate)} ({one_line(why)})" for gate, why in gates.items()], 3)
            return f"every gate is open at the last reading: {said}"
        case _:
            assert_never(event)


def _of_riak(event: Event) -> str | None:
    """Other words for Riak, which has vnodes and handoffs instead of copies."""
    match event:
        case ev.BaselineRecorded(incarnations=incarnations):
            return f"baseline: {counted(len(incarnations), 'node')} up"
        case ev.NodeRecovered(node=node, seconds=seconds):
            return f"{node}: back with all its vnodes after {duration(seconds)}; its handoff is done"
        case ev.SecondFailure(what=what):
            return f"second failure: {one_line(what)}; ours are started, limits are restored, no new wave"
        case _:
            return None


_BRIEF = 120
"""Characters of a reason that another line has in full: that of the hold, or the summary."""


def _frame(event: _Frame) -> str:
    match event:
        case ev.RunStarted(repairs=str() as run):
            return f"restoring the changes of run {run} on {event.cluster}; by {event.operator}@{event.host}"
        case ev.RunStarted(version=version, policy=policy, nodes=nodes):
            reason = f"; reason: {one_line(policy.reason)}" if policy.reason else ""
            what = f"{product(event.distribution, policy.kind)} {version}, strategy {policy.strategy.value}"
            whom = ": " + nodes_in_words(event) if nodes else ": no node is restarted"
            return f"{what_is_begun(event)} ({what}) begins{whom}; by {event.operator}@{event.host}{reason}"
        case ev.RunResumed(operator=operator, host=host, skip=skip, accept_alerts=alerts):
            retried = "; failed nodes are tried again" if event.retry_failed else ""
            skipped = f"; skipped: {listed(skip)}" if skip else ""
            accepted = f"; alerts accepted: {listed([one_line(alert) for alert in alerts])}" if alerts else ""
            return f"run resumed by {operator}@{host}{retried}{skipped}{accepted}"
        case ev.RestoreBegun(operator=operator, host=host):
            return f"restore begun by {operator}@{host}: it restores what was changed and stops nothing"
        case ev.RunFinished(outcome=outcome, exit_code=exit_code, seconds=seconds, message=message):
            said = f": {one_line(message, _BRIEF)}" if message else ""
            return f"run ended after {duration(seconds)}, exit code {exit_code}: {OUTCOMES[outcome]}{said}"
        case ev.Requested(request=request, by=by):
            return request_sentence(request, one_line(by))
        case ev.StandingDown(reason=reason, outcome=outcome):
            said = one_line(reason, _BRIEF) if reason.startswith("held by ") else one_line(reason)
            return f"standing down ({outcome.value}): {said}"
        case ev.StoodDown(outcome=outcome, left=left):
            if left:
                return f"stood down ({outcome.value}), NOT RESTORED: {one_line('; '.join(left), 1000)}"
            what = "all settings are restored" if outcome is Outcome.FAILED else "everything is restored"
            return f"stood down ({outcome.value}): {what}"
        case _:
            assert_never(event)


def _lease(event: LeaseEvent) -> str:
    match event:
        case ev.LeaseTaken(epoch=epoch, holder=holder, takeover=takeover, takes_over=run):
            whose = f"run {run}, which" if run else "a run that"
            how = f"taken over from {whose} has ended or no longer refreshes it" if takeover else "taken"
            return f"lease {how}: epoch {epoch}, holder {holder}"
        case ev.LeaseRegained(holder=holder):
            return f"lease refreshed again, holder {holder}"
        case ev.LeaseLost(reason=reason):
            return f"{one_line(reason, 600)}; no further node is stopped, nodes down are started"
        case ev.Deposed(successor=run, owner=owner, epoch=epoch):
            lease = f", lease epoch {epoch}" if epoch else ""
            return (
                f"deposed: run {run} of {one_line(owner)} took over{lease}; this process writes no further "
                "setting and stops no further node"
            )
        case _:
            assert_never(event)


def _debt(event: _Debt) -> str:
    match event:
        case ev.SettingChanged(level=level, key=key, found=found, wanted=wanted, purpose=purpose):
            return (
                f"setting {key} ({level.value}): {setting(found)} -> {setting(wanted)} "
                f"{PURPOSES[purpose]}; {setting(found)} will be restored"
            )
        case ev.SettingRestored(level=level, key=key, value=value, note=note):
            how = f"{setting(value)}, {one_line(note)}" if note else f"restored to {setting(value)}"
            return f"setting {key} ({level.value}): {how}"
        case ev.ReplicasAdded(index=index, found=found, wanted=wanted):
            return f"index {index}: {found} -> {counted(wanted, 'replica')} for the run"
        case ev.ReplicasRestored(index_uuid=index_uuid):
            return f"index with uuid {index_uuid}: original number of replicas restored"
        case ev.VotingExcluded(node=node):
            return f"{node}: excluded from voting, so that another master is elected before its stop"
        case ev.VotingRestored():
            return "voting exclusions of this run: all removed"
        case _:
            assert_never(event)


def _missing(copy: MissingCopy) -> str:
    kind = "primary" if copy.primary else "replica"
    times = f" x{copy.count}" if copy.count > 1 else ""
    return f"[{copy.index}][{copy.number}] {kind}{times} ({copy.reason})"


def _step(event: _Step) -> str:
    match event:
        case ev.BaselineRecorded(missing=missing, incarnations=incarnations):
            nodes = counted(len(incarnations), "node")
            if not missing:
                return f"baseline: {nodes}, every copy started"
            copies = counted(sum(copy.count for copy in missing), "copy", "copies")
            names = listed([_missing(copy) for copy in missing], 5)
            return f"baseline: {nodes}, {copies} missing already and not waited for: {names}"
        case ev.WaveStarted(wave=wave):
            zone = f" (zone {wave.zone})" if wave.zone else ""
            why = f": {one_line(wave.why)}" if wave.why else ""
            return f"wave {wave.number}{zone}: {listed(wave.nodes)}{why}"
        case WaveGaveWay(number=number, copies=copies):
            left = "1 copy recovers" if copies == 1 else f"{copies} copies recover"
            return f"wave {number}: the next wave may start while {left}"
        case Overlapping():
            return _overlapping(event)
        case ev.PhaseEntered(node=node, from_=from_, to=to, why=why):
            where = node or "run"
            if node is not None and to == NodePhase.REJOINED.value:
                return f"{node}: rejoined the cluster" + (f": {one_line(why)}" if why else "")
            return f"{where}: {from_} -> {to}" + (f": {one_line(why)}" if why else "")
        case ev.GoodReading(count=count, why=why):
            if count == 0:
                return "good readings in a row: 0" + (f": {one_line(why)}" if why else "")
            return f"good readings in a row: {count}" + (f" ({one_line(why)})" if why else "")
        case ev.NodeRecovered():
            return f"{event.node}: back with all its copies after {duration(event.seconds)}{_moved(event)}"
        case ev.WaveFinished(number=number, seconds=seconds):
            return f"wave {number}: finished after {duration(seconds)}"
        case _:
            assert_never(event)


def _overlapping(event: Overlapping) -> str:
    shards = [f"[{shard.index}][{shard.number}]" for shard in event.shards]
    what = f"{listed(shards, 5)} still recover elsewhere" if shards else "nothing recovers now"
    return f"wave {event.number}: stops with overlapped recovery: {what}"


def _moved(event: ev.NodeRecovered) -> str:
    parts = [
        text
        for text in (
            f"{size(event.bytes_reused)} found on disk" if event.bytes_reused is not None else "",
            f"{size(event.bytes_copied)} copied" if event.bytes_copied is not None else "",
            counted(event.operations_replayed, "operation") + " replayed"
            if event.operations_replayed is not None
            else "",
        )
        if text
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _act(event: _Act) -> str:
    match event:
        case ev.ActionSent(action=action):
            return action_sentence(action)
        case ev.ActionConfirmed(action=action, output=output):
            printed = f": {one_line(output)}" if output.strip() else ""
            return f"{action_sentence(action)} - accepted{printed}"
        case ev.ActionFailed(action=action, reason=reason, in_doubt=in_doubt):
            how = "IN DOUBT, it may have been done" if in_doubt else "REFUSED"
            return f"{action_sentence(action)} - {how}: {one_line(reason)}"
        case _:
            assert_never(event)


def _meeting(event: _Meeting) -> str:
    match event:
        case Hold():
            return f"held by {hold_sentence(event)}"
        case ev.HoldsCleared(but_gates=True):
            return "only closed gates hold the run now"
        case ev.HoldsCleared():
            return "nothing holds the run now"
        case ev.Rescued(shards=shards):
            return f"rescue: started at once, no started copy is left of {listed(shards, 5)}"
        case TuningApplied(node=node, tunable=tunable, found=found, wanted=wanted):
            return f"{node}: {tuned_words(tunable, found, wanted)}, read back"
        case TuningMissed(node=node, tunable=tunable, why=why, on_failure=on_failure):
            what = f"{tunable} not set" if tunable else "not tuned"
            return f"{node}: {what} ({on_failure.value}): {one_line(why)}"
        case ev.SecondFailure(what=what):
            return f"second failure: {one_line(what)}; nodes are started, allocation is restored, no new wave"
        case Notified(target=target, on=on):
            return f"message sent to {one_line(target)}: {on}"
        case NotNotified(target=target, on=on, why=why):
            return f"message not sent to {one_line(target)}: {on}: {one_line(why)}"
        case SilenceCreated(wave=wave, matchers=matchers, until=until):
            return (
                f"wave {wave}: alerts silenced until {clock_time(until)} unless renewed: {one_line(matchers)}"
            )
        case SilenceRenewed(wave=wave, until=until):
            return f"wave {wave}: alerts silenced until {clock_time(until)}"
        case SilenceEnded(wave=wave, until=until, why=why):
            return f"wave {wave}: alerts no longer silenced from {clock_time(until)} on: {one_line(why)}"
        case _:
            assert_never(event)


def merge_sentence(event: MergeEvent) -> str:
    """An event of merging as one line."""
    match event:
        case WritesRead(counters=counters):
            return f"write counters of {_indices(len(counters))} read; a second reading shows new writes"
        case MergeWarned(index=index, what=what):
            return f"index {index}: WARNING: {one_line(what)}"
        case MergeDue(index=index, why=why):
            return f"index {index}: to be merged too: {one_line(why)}"
        case MergeBegun(index=index, found=True):
            return f"index {index}: a merge of it runs already ({_amount(event)}); the run waits for it"
        case MergeBegun(index=index):
            return f"index {index}: merge begun ({_amount(event)})"
        case IndexMerged(index=index, why=why):
            how = f"merged after {duration(event.seconds)}" if event.seconds else "nothing left to merge"
            amount = f", {_amount(event)}" if event.segments else ""
            said = f": {one_line(why)}" if why else ""
            return f"index {index}: {how}{amount}{said}"
        case _:
            assert_never(event)


def what_is_begun(event: ev.RunStarted) -> str:
    """The work of a run, for its first line."""
    cluster, policy = event.cluster, event.policy
    if policy.upgrade is not None:
        return f"rolling upgrade of {cluster} to {policy.upgrade.target}"
    if policy.merge is None:
        return f"rolling {'host reboot' if policy.reboot else 'restart'} of {cluster}"
    due = sum(target.due for target in event.indices)
    of_them = f"{due} of {_indices(len(event.indices))}" if due < len(event.indices) else _indices(due)
    merge = f"merge of {of_them} to at most {counted(policy.merge.max_segments, 'segment')} on {cluster}"
    if not event.nodes:
        return merge
    return f"{merge}, then a rolling {'host reboot' if policy.reboot else 'restart'}"


def _amount(event: MergeBegun | IndexMerged) -> str:
    return f"up to {counted(event.segments, 'segment')} a copy, {size(event.bytes)} in all"


def _indices(count: int) -> str:
    return counted(count, "index", "indices")
