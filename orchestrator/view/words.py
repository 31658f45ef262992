"""Each journal event as one plain line for people: what, where, why, with the numbers.

The matches close over the whole union in groups (a run's frame, its debts, its phases, its actions, what it
meets), so that mypy fails here when an event is added without words.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    ExcludeFromVoting,
    Flush,
    ForceHandoff,
    ForceMerge,
    ProbeSettings,
    RebootHost,
    RefreshIndex,
    RetryFailed,
    RunHook,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
)
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    BaselineRecorded,
    Deposed,
    Event,
    FallbacksHome,
    GoodReading,
    Hold,
    HoldsCleared,
    HookUnproven,
    LeaseLost,
    LeaseRegained,
    LeaseTaken,
    MembersMissed,
    NodeRecovered,
    NotWaitedFor,
    OwedAgain,
    PhaseEntered,
    RedExcused,
    ReplicasAdded,
    ReplicasRestored,
    Requested,
    Rescued,
    RestoreBegun,
    RunFinished,
    RunResumed,
    RunStarted,
    SecondFailure,
    SettingChanged,
    SettingRestored,
    StandingDown,
    StoodDown,
    StoodStill,
    TakenDown,
    VotingExcluded,
    VotingRestored,
    WaveFinished,
    WaveStarted,
    WorkDone,
)
from orchestrator.model.gate_event import GateClosed, GateEvent, GateOpened, GatesPassed
from orchestrator.model.handoff_event import NotHastened
from orchestrator.model.lease_event import LeaseEvent
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeDue, MergeWarned, WritesRead
from orchestrator.model.observation import MissingCopy
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Kind
from orchestrator.model.tuning_event import TuningApplied, TuningEvent, TuningMissed
from orchestrator.view.merge_words import merge_action, merge_sentence, what_is_begun
from orchestrator.view.units import counted, duration, listed, one_line, setting, size

_Frame: TypeAlias = (
    RunStarted | RunResumed | RestoreBegun | RunFinished | Requested | StandingDown | StoodDown
)
_Debt: TypeAlias = (
    SettingChanged | SettingRestored | ReplicasAdded | ReplicasRestored | VotingExcluded | VotingRestored
)
_Step: TypeAlias = (
    BaselineRecorded
    | WaveStarted
    | WaveGaveWay
    | Overlapping
    | PhaseEntered
    | GoodReading
    | NodeRecovered
    | WaveFinished
)
_Act: TypeAlias = ActionSent | ActionConfirmed | ActionFailed
_Meeting: TypeAlias = Hold | HoldsCleared | Rescued | SecondFailure | TuningEvent
_Sight: TypeAlias = (
    TakenDown
    | NotWaitedFor
    | FallbacksHome
    | NotHastened
    | RedExcused
    | MembersMissed
    | StoodStill
    | WorkDone
    | HookUnproven
    | OwedAgain
)

OUTCOMES: dict[Outcome, str] = {
    Outcome.DONE: "done",
    Outcome.HELD: "held: nothing is left half done",
    Outcome.FAILED: "failed: a node or host did not come through; the run can be resumed",
    Outcome.INTERRUPTED: "interrupted; the run can be resumed",
    Outcome.PAUSED: "paused as asked; the run can be resumed",
    Outcome.NOT_RESTORED: "NOT RESTORED: see the list below",
    Outcome.RESTORED: "restored: every setting has its original value",
    Outcome.DEPOSED: "deposed: another process took over, and restores what this one changed",
}
"""The outcome of a run, in words."""


def sentence(event: Event, kind: Kind = Kind.ELASTICSEARCH) -> str:
    """The event as one line, without time and full stop, in the words of the kind of cluster."""
    if kind is Kind.RIAK and (own := _of_riak(event)) is not None:
        return own
    match event:
        case (
            RunStarted()
            | RunResumed()
            | RestoreBegun()
            | RunFinished()
            | Requested()
            | StandingDown()
            | StoodDown()
        ):
            return _frame(event)
        case LeaseTaken() | LeaseLost() | LeaseRegained() | Deposed():
            return _lease(event)
        case (
            SettingChanged()
            | SettingRestored()
            | ReplicasAdded()
            | ReplicasRestored()
            | VotingExcluded()
            | VotingRestored()
        ):
            return _debt(event)
        case (
            BaselineRecorded()
            | WaveStarted()
            | WaveGaveWay()
            | Overlapping()
            | PhaseEntered()
            | GoodReading()
            | NodeRecovered()
            | WaveFinished()
        ):
            return _step(event)
        case ActionSent() | ActionConfirmed() | ActionFailed():
            return _act(event)
        case (
            TakenDown()
            | NotWaitedFor()
            | FallbacksHome()
            | NotHastened()
            | RedExcused()
            | MembersMissed()
            | StoodStill()
            | WorkDone()
            | HookUnproven()
            | OwedAgain()
        ):
            return _sight(event)
        case Hold() | HoldsCleared() | Rescued() | SecondFailure() | TuningApplied() | TuningMissed():
            return _meeting(event)
        case WritesRead() | MergeWarned() | MergeDue() | MergeBegun() | IndexMerged():
            return merge_sentence(event)
        case GateClosed() | GateOpened() | GatesPassed():
            return _gate(event)
        case _:
            assert_never(event)


def _sight(event: _Sight) -> str:
    """The result of a reading, and its consequence."""
    match event:
        case TakenDown(number=number, indices=indices):
            copies = sum(len(index.started) for index in indices)
            return f"wave {number} takes copies of {counted(copies, 'shard')} down"
        case NotWaitedFor(shards=shards, why=why):
            names = listed([f"[{one.index}][{one.number}]" for one in shards], 5)
            copies = sum(one.count for one in shards)
            return f"not waited for: {counted(copies, 'copy', 'copies')} of {names}: {why}"
        case FallbacksHome(number=number, seconds=seconds):
            return (
                f"wave {number}: all other nodes have handed off their data for it after {duration(seconds)};"
                " its own handoff continues"
            )
        case NotHastened(nodes=nodes, why=why):
            return f"handoff after the restart of {listed(nodes)} is not hastened: {one_line(why)}"
        case RedExcused(count=0):
            return "none of these shards is red any more"
        case RedExcused(count=count, subjects=subjects):
            names = listed(list(subjects), 5)
            return f"{counted(count, 'shard')} red, perhaps for a moment: {names}"
        case MembersMissed(missing=missing, back=back):
            parts = [f"absent: {listed(list(missing), 5)}"] if missing else []
            parts += [f"present again: {listed(list(back), 5)}"] if back else []
            return "; ".join(parts)
        case StoodStill(nodes=nodes, seconds=seconds):
            named = f" ({listed(list(nodes), 5)})" if nodes else ""
            return f"no reading for {duration(seconds)}: the limits of waiting move on by that{named}"
        case WorkDone(node=node, work=work, why=why):
            return f"{node}: {work.value} done" + (f" ({why})" if why else "")
        case HookUnproven(node=node, number=number):
            return (
                f"{node}: hook while_stopped {number} may have run beside its process, so it runs once more"
            )
        case OwedAgain(node=node, what=what, why=why):
            return f"{node} still needs {', '.join(what)}: {why}; its turn comes again"
        case _:
            assert_never(event)


def _gate(event: GateEvent) -> str:
    match event:
        case GateClosed(gate=gate, evidence=evidence):
            return f"gate {one_line(gate)} is closed: {one_line(evidence)}"
        case GateOpened(gate=gate, evidence=evidence):
            return f"gate {one_line(gate)} is open again: {one_line(evidence)}"
        case GatesPassed(gates=gates):
            said = listed([f"{one_line(gate)} ({one_line(why)})" for gate, why in gates.items()], 3)
            return f"every gate is open at the last reading: {said}"
        case _:
            assert_never(event)


def hold_sentence(hold: Hold) -> str:
    """A hold for people: the predicate's public name, its subject, the evidence."""
    # Evidence ends with the remedy, so it is cut later than other foreign text.
    more = f" and {hold.count - 1} more" if hold.count > 1 else ""
    return f"{hold.predicate} ({one_line(hold.subject)}{more}): {one_line(hold.evidence, _EVIDENCE)}"


_NAMED_CHANGES = 2
_EVIDENCE = 700
"""Characters. Room for the owners of a preference list with long names, and the accepting flag."""
_PLAIN_VERBS: dict[type[Action], str] = {
    ProbeSettings: "check that settings can be written",
    Flush: "flush all indices",
    RetryFailed: "retry copies whose allocation failed",
    ForceHandoff: "force handoff on every node",
    ClearVotingExclusions: "clear voting exclusions",
}
"""Verbs on the cluster without further details."""


def action_sentence(action: Action) -> str:
    """A verb on its target, in the imperative; the exact call is the plan's business."""
    match action:
        case ProbeSettings() | Flush() | RetryFailed() | ForceHandoff() | ClearVotingExclusions():
            return f"cluster: {_PLAIN_VERBS[type(action)]}"
        case WriteSettings(changes=changes):
            if len(changes) > _NAMED_CHANGES:
                return f"cluster: write {len(changes)} settings in one update"  # each has had its own line
            return "cluster: " + ("; ".join(_change(change) for change in changes) or "write no setting")
        case SetReplicas(index=index, found=found, wanted=wanted):
            return f"index {index}: set {counted(wanted, 'replica')} (found {found})"
        case ForceMerge() | RefreshIndex() | SetIndexSettings():
            return merge_action(action)
        case ExcludeFromVoting(node=node):
            return f"{node}: exclude from voting"
        case StopNode(node=node):
            return f"{node}: stop the service"
        case StartNode(node=node):
            return f"{node}: start the service"
        case RebootHost(node=node, also=also):
            return f"{node}: reboot the host" + (f", which {listed(also)} shares" if also else "")
        case RunHook(node=node, moment=moment, number=number, hook=hook):
            where = "here" if hook.local else "on its host"
            command = one_line(hook.run.replace("{node}", node), 120)
            return f"{node}: run hook {moment.value} {number} {where}: {command}"
        case TuneHost():
            return f"{action.node}: set {action.tunable} to {action.wanted} (it was {action.found})"
        case _:
            assert_never(action)


def _change(change: SettingChange) -> str:
    if change.wanted is None:
        return f"unset {change.key} ({change.level.value}; it was {setting(change.found)})"
    return (
        f"set {change.key} to {setting(change.wanted)} ({change.level.value}; it was {setting(change.found)})"
    )


def product(distribution: str, kind: Kind) -> str:
    """The server's official name; for an unknown server the kind in the cluster file."""
    return _PRODUCTS.get(distribution, kind.value)


_PRODUCTS: dict[str, str] = {"elasticsearch": "Elasticsearch", "opensearch": "OpenSearch", "riak": "Riak"}


def _of_riak(event: Event) -> str | None:
    """Other words for Riak, which has vnodes and handoffs instead of copies."""
    match event:
        case BaselineRecorded(incarnations=incarnations):
            return f"baseline: {counted(len(incarnations), 'node')} up"
        case NodeRecovered(node=node, seconds=seconds):
            return f"{node}: back with all its vnodes after {duration(seconds)}; nothing waits for handoff"
        case SecondFailure(what=what):
            return f"second failure: {one_line(what)}; ours are started, limits are restored, no new wave"
        case _:
            return None


def _frame(event: _Frame) -> str:
    match event:
        case RunStarted(repairs=str() as run):
            return f"restoring the changes of run {run} on {event.cluster}; by {event.operator}@{event.host}"
        case RunStarted(version=version, policy=policy, nodes=nodes):
            reason = f"; reason: {one_line(policy.reason)}" if policy.reason else ""
            what = f"{product(event.distribution, policy.kind)} {version}, strategy {policy.strategy.value}"
            whom = f": {counted(len(nodes), 'node')}: {listed(nodes)}" if nodes else ": no node is restarted"
            return f"{what_is_begun(event)} ({what}) begins{whom}; by {event.operator}@{event.host}{reason}"
        case RunResumed(operator=operator, host=host, retry_failed=retry_failed, skip=skip):
            retried = "; failed nodes are tried again" if retry_failed else ""
            skipped = f"; skipped: {listed(skip)}" if skip else ""
            return f"run resumed by {operator}@{host}{retried}{skipped}"
        case RestoreBegun(operator=operator, host=host):
            return f"restore begun by {operator}@{host}: it restores what was changed and stops nothing"
        case RunFinished(outcome=outcome, exit_code=exit_code, seconds=seconds, message=message):
            said = f": {one_line(message)}" if message else ""
            return f"run ended after {duration(seconds)}, exit code {exit_code}: {OUTCOMES[outcome]}{said}"
        case Requested(request=request, by=by):
            return f"{_REQUESTS[request]}, by {one_line(by)}"
        case StandingDown(reason=reason, outcome=outcome):
            return f"standing down ({outcome.value}): {one_line(reason)}"
        case StoodDown(outcome=outcome, left=left):
            if left:
                return f"stood down ({outcome.value}), NOT RESTORED: {one_line('; '.join(left), 1000)}"
            what = "all settings are restored" if outcome is Outcome.FAILED else "everything is restored"
            return f"stood down ({outcome.value}): {what}"
        case _:
            assert_never(event)


_REQUESTS: dict[Request, str] = {
    Request.NONE: "nothing asked any more",
    Request.PAUSE: "asked to pause after the current wave or merges",
    Request.STOP: "asked to stand down",
    Request.INTERRUPT: "interrupted",
}


def _lease(event: LeaseEvent) -> str:
    match event:
        case LeaseTaken(epoch=epoch, holder=holder, takeover=takeover):
            how = "taken over, the former holder's had run out" if takeover else "taken"
            return f"lease {how}: epoch {epoch}, holder {holder}"
        case LeaseRegained(holder=holder):
            return f"lease refreshed again, holder {holder}"
        case LeaseLost(reason=reason):
            return f"lease lost: {one_line(reason)}; no node is stopped any more, what is down is started"
        case Deposed(successor=run, owner=owner, epoch=epoch):
            lease = f", lease epoch {epoch}" if epoch else ""
            return (
                f"deposed: run {run} of {one_line(owner)} took over{lease}; this process writes no setting "
                "and stops no node any more"
            )
        case _:
            assert_never(event)


def _debt(event: _Debt) -> str:
    match event:
        case SettingChanged(level=level, key=key, found=found, wanted=wanted, purpose=purpose):
            return (
                f"setting {key} ({level.value}): {setting(found)} -> {setting(wanted)} "
                f"({purpose.value}); {setting(found)} will be restored"
            )
        case SettingRestored(level=level, key=key, value=value, note=note):
            how = one_line(note) if note else "as found"
            return f"setting {key} ({level.value}): {setting(value)}, {how}"
        case ReplicasAdded(index=index, found=found, wanted=wanted):
            return f"index {index}: {found} -> {counted(wanted, 'replica')} for the run"
        case ReplicasRestored(index_uuid=index_uuid):
            return f"index with uuid {index_uuid}: replicas as found"
        case VotingExcluded(node=node):
            return f"{node}: excluded from voting, so that another master is elected before its stop"
        case VotingRestored():
            return "voting exclusions: none of ours is left"
        case _:
            assert_never(event)


def _missing(copy: MissingCopy) -> str:
    kind = "primary" if copy.primary else "replica"
    times = f" x{copy.count}" if copy.count > 1 else ""
    return f"[{copy.index}][{copy.number}] {kind}{times} ({copy.reason})"


def _step(event: _Step) -> str:
    match event:
        case BaselineRecorded(missing=missing, incarnations=incarnations):
            nodes = counted(len(incarnations), "node")
            if not missing:
                return f"baseline: {nodes}, every copy started"
            copies = counted(sum(copy.count for copy in missing), "copy", "copies")
            names = listed([_missing(copy) for copy in missing], 5)
            return f"baseline: {nodes}, {copies} missing already and not waited for: {names}"
        case WaveStarted(wave=wave):
            zone = f" (zone {wave.zone})" if wave.zone else ""
            why = f": {one_line(wave.why)}" if wave.why else ""
            return f"wave {wave.number}{zone}: {listed(wave.nodes)}{why}"
        case WaveGaveWay(number=number, copies=copies):
            left = counted(copies, "copy", "copies")
            return f"wave {number}: makes room for the next while {left} recover"
        case Overlapping():
            return _overlapping(event)
        case PhaseEntered(node=node, from_=from_, to=to, why=why):
            where = node or "run"
            return f"{where}: {from_} -> {to}" + (f": {one_line(why)}" if why else "")
        case GoodReading(count=count, why=why):
            if count == 0:
                return "good readings in a row: 0" + (f": {one_line(why)}" if why else "")
            return f"good readings in a row: {count}" + (f" ({one_line(why)})" if why else "")
        case NodeRecovered():
            return f"{event.node}: back with all its copies after {duration(event.seconds)}{_moved(event)}"
        case WaveFinished(number=number, seconds=seconds):
            return f"wave {number}: finished after {duration(seconds)}"
        case _:
            assert_never(event)


def _overlapping(event: Overlapping) -> str:
    shards = [f"[{shard.index}][{shard.number}]" for shard in event.shards]
    what = f"{listed(shards, 5)} still recover elsewhere" if shards else "nothing recovers any more"
    return f"wave {event.number}: stops by the overlap rule: {what}"


def _moved(event: NodeRecovered) -> str:
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
        case ActionSent(action=action):
            return action_sentence(action)
        case ActionConfirmed(action=action, output=output):
            printed = f": {one_line(output)}" if output.strip() else ""
            return f"{action_sentence(action)} - accepted{printed}"
        case ActionFailed(action=action, reason=reason, in_doubt=in_doubt):
            how = "IN DOUBT, it may have been done" if in_doubt else "REFUSED"
            return f"{action_sentence(action)} - {how}: {one_line(reason)}"
        case _:
            assert_never(event)


def _meeting(event: _Meeting) -> str:
    match event:
        case Hold():
            return f"held by {hold_sentence(event)}"
        case HoldsCleared(but_gates=True):
            return "nothing but closed gates holds any more"
        case HoldsCleared():
            return "nothing holds any more"
        case Rescued(shards=shards):
            return f"rescue: started at once, for no started copy was left of {listed(shards, 5)}"
        case TuningApplied(node=node, tunable=tunable, found=found, wanted=wanted):
            return f"{node}: {tunable} is {one_line(wanted)}, read back; it was {one_line(found)}"
        case TuningMissed(node=node, tunable=tunable, why=why, on_failure=on_failure):
            what = f"{tunable} not set" if tunable else "not tuned"
            return f"{node}: {what} ({on_failure.value}): {one_line(why)}"
        case SecondFailure(what=what):
            return f"second failure: {one_line(what)}; nodes are started, allocation is restored, no new wave"
        case _:
            assert_never(event)
