"""Each journal event and each action as one plain line for people: what, where, why, with the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.kinds import kind_of
from orchestrator.model import action as act
from orchestrator.model import event as ev
from orchestrator.model import work_event as wev
from orchestrator.model.observation import MissingCopy
from orchestrator.model.phase import NodePhase, Outcome, step_name
from orchestrator.model.policy import Kind
from orchestrator.model.upgrade import InstallState
from orchestrator.riak.rules.recovery import in_words
from orchestrator.steps import step_of_node, step_of_run
from orchestrator.untrusted import one_line
from orchestrator.view.host_words import host_sentence
from orchestrator.view.phrases import (
    PURPOSES,
    hold_sentence,
    nodes_in_words,
    product,
    request_sentence,
)
from orchestrator.view.text import clock_time, counted, duration, listed, setting, size

_BRIEF = 120
"""Characters of a reason that another line has in full: that of the hold, or the summary."""

_NAMED = 5
"""Copies, shards or members that one line names."""


def sentence(event: ev.Event, kind: Kind = Kind.ELASTICSEARCH) -> str:  # noqa: C901, PLR0911  (one arm an event)
    """The event as one line, without time and full stop, in the words of the kind of cluster."""
    words = kind_of(kind).words
    match event:
        case ev.RunStarted():
            return _begins(event)
        case ev.RunResumed():
            return _resumed(event)
        case ev.RestoreBegun(operator=operator, host=host):
            return f"restore begun by {operator}@{host}: it restores what was changed and stops nothing"
        case ev.RunFinished():
            return _finished(event)
        case ev.Requested(request=request, by=by):
            return request_sentence(request, one_line(by))
        case ev.StandingDown(reason=reason, outcome=outcome):
            said = one_line(reason, _BRIEF) if event.names_hold else one_line(reason)
            if event.never_began:
                said = said.partition(": ")[0]  # the holds have events of their own
            return f"standing down ({outcome.value}): {said}"
        case ev.StoodDown():
            return _stood_down(event)
        case ev.SettingChanged() | ev.SettingRestored():
            return _setting(event)
        case ev.ReplicasAdded(index=index, found=found, wanted=wanted):
            return f"index {index}: {found} → {counted(wanted, 'replica')} for the run"
        case ev.ReplicasRestored(index_uuid=index_uuid):
            return f"index with uuid {index_uuid}: original number of replicas restored"
        case ev.VotingExcluded(node=node):
            return f"{node}: excluded from voting, so that another master is elected before its stop"
        case ev.VotingRestored():
            return "voting exclusions of this run: all removed"
        case ev.BaselineRecorded():
            return _baseline(event, words.baseline)
        case ev.WaveStarted() | ev.WaveGaveWay() | ev.Overlapping() | ev.TakenDown() | ev.FallbacksHome():
            return _wave(event)
        case ev.WaveFinished(number=number, seconds=seconds):
            return f"wave {number}: finished after {duration(seconds)}"
        case ev.PhaseEntered(node=None, to=to, why=why):
            return f"run: {step_of_run(to, words.steps)}{_because(why)}"
        case ev.PhaseEntered(node=name, to=to, why=why):
            return f"{name}: {_REACHED.get(to) or step_of_node(to, words.steps)}{_because(why)}"
        case ev.GoodReading(count=0, why=why):
            return f"good readings in a row: 0{_because(why)}"
        case ev.GoodReading(count=count, why=why):
            return f"good readings in a row: {count}" + (f" ({one_line(why)})" if why else "")
        case ev.NodeRecovered(node=node, seconds=seconds):
            back = f"back with {words.copies} after {duration(seconds)}{words.recovered}"
            return f"{node}: {back}{_moved(event)}"
        case ev.ActionSent() | ev.ActionConfirmed() | ev.ActionFailed():
            return _done(event)
        case ev.Hold():
            return f"held by {hold_sentence(event)}"
        case ev.HoldsCleared(but_gates=but_gates):
            return "only closed gates hold the run now" if but_gates else "nothing holds the run now"
        case ev.Rescued(shards=shards):
            return f"rescue: started at once, no started copy is left of {listed(shards, _NAMED)}"
        case ev.SecondFailure(what=what):
            return f"second failure: {one_line(what)}; {words.second_failure}, no new wave"
        case ev.NotWaitedFor() | ev.ForeseenNotToReturn():
            return _given_up(event)
        case ev.RedExcused() | ev.MembersMissed() | ev.StoodStill() | ev.ClusterSampled():
            return _sight(event)
        case ev.WorkDone() | ev.HookUnproven() | ev.OwedAgain():
            return _work(event)
        case ev.LeaseTaken() | ev.LeaseRegained() | ev.LeaseLost() | ev.Deposed():
            return _lease(event)
        case ev.GateClosed() | ev.GateOpened() | ev.AlertsAtStart() | ev.GatesPassed():
            return _gate(event)
        case wev.WritesRead() | wev.MergeWarned() | wev.MergeDue() | wev.MergeBegun() | wev.IndexMerged():
            return _merge(event)
        case wev.HandoffWaits() | wev.HandoffLeftWaiting() | wev.NotHastened():
            return _handoff(event)
        case wev.InstallEnded() | wev.Upgraded() | wev.UpgradeMissed():
            return _upgrade(event)
        case wev.TuningApplied() | wev.TuningMissed():
            return _tuning(event)
        case (
            wev.StartFailed() | wev.FellSilent() | wev.Answered() | wev.AccessRefused() | wev.AccessGranted()
        ):
            return host_sentence(event)
        case _:
            return _around(event)


_REACHED: Final = {NodePhase.STOPPED.value: "stopped", NodePhase.REJOINED.value: "rejoined the cluster"}
"""What is over once a node has entered the phase; the entry of any other begins its step."""


def _because(why: str) -> str:
    return f": {one_line(why)}" if why else ""


# A run and its lease ------------------------------------


def _begins(event: ev.RunStarted) -> str:
    by = f"by {event.operator}@{event.host}"
    if event.repairs is not None:
        return f"restoring the changes of run {event.repairs} on {event.cluster}; {by}"
    policy = event.policy
    reason = f"; reason: {one_line(policy.reason)}" if policy.reason else ""
    what = f"{product(event.distribution, policy.kind)} {event.version}, strategy {policy.strategy.value}"
    whom = nodes_in_words(event) if event.nodes else "no node is restarted"
    return f"{_what_is_begun(event)} ({what}) begins: {whom}; {by}{reason}"


def _what_is_begun(event: ev.RunStarted) -> str:
    cluster, policy = event.cluster, event.policy
    if policy.upgrade is not None:
        return f"rolling upgrade of {cluster} to {policy.upgrade.target}"
    restart = f"rolling {'host reboot' if policy.reboot else 'restart'}"
    if policy.merge is None:
        return f"{restart} of {cluster}"
    due = sum(target.due for target in event.indices)
    of_them = f"{due} of {_indices(len(event.indices))}" if due < len(event.indices) else _indices(due)
    merge = f"merge of {of_them} to at most {counted(policy.merge.max_segments, 'segment')} on {cluster}"
    return f"{merge}, then a {restart}" if event.nodes else merge


def _resumed(event: ev.RunResumed) -> str:
    retried = "; failed nodes are tried again" if event.retry_failed else ""
    skipped = f"; skipped: {listed(event.skip)}" if event.skip else ""
    alerts = listed([one_line(alert) for alert in event.accept_alerts])
    accepted = f"; alerts accepted: {alerts}" if event.accept_alerts else ""
    return f"run resumed by {event.operator}@{event.host}{retried}{skipped}{accepted}"


def _finished(event: ev.RunFinished) -> str:
    said = f": {one_line(event.message, _BRIEF)}" if event.message else ""
    ending = f"run ended after {duration(event.seconds)}: {event.outcome.words}"
    return f"{ending} (code {event.exit_code}){said}"


def _stood_down(event: ev.StoodDown) -> str:
    if event.left:
        what = f"NOT RESTORED: {one_line('; '.join(event.left), 1000)}"
        return f"stood down, {what}"
    what = "all settings are restored" if event.outcome is Outcome.FAILED else "everything is restored"
    return f"stood down ({event.outcome.words}): {what}"


def _lease(event: ev.LeaseEvent) -> str:
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


# What a run changes, and its waves ------------------------------------


def _setting(event: ev.SettingChanged | ev.SettingRestored) -> str:
    where = f"setting {event.key} ({event.level.value})"
    if isinstance(event, ev.SettingChanged):
        found = setting(event.found)
        change = f"{found} → {setting(event.wanted)} {PURPOSES[event.purpose]}"
        return f"{where}: {change}; {found} will be restored"
    value = setting(event.value)
    return f"{where}: {value}, {one_line(event.note)}" if event.note else f"{where}: restored to {value}"


def _baseline(event: ev.BaselineRecorded, whole: str) -> str:
    nodes = counted(len(event.incarnations), "node")
    if not event.missing:
        return f"baseline: {nodes}{whole}"
    copies = counted(sum(copy.count for copy in event.missing), "copy", "copies")
    names = listed([_missing(copy) for copy in event.missing], _NAMED)
    return f"baseline: {nodes}, {copies} missing already and not waited for: {names}"


def _missing(copy: MissingCopy) -> str:
    kind = "primary" if copy.primary else "replica"
    times = f" x{copy.count}" if copy.count > 1 else ""
    return f"[{copy.index}][{copy.number}] {kind}{times} ({copy.reason})"


def _wave(event: ev.WaveStarted | ev.WaveGaveWay | ev.Overlapping | ev.TakenDown | ev.FallbacksHome) -> str:
    match event:
        case ev.WaveStarted(wave=wave):
            zone = f" (zone {wave.zone})" if wave.zone else ""
            return f"wave {wave.number}{zone}: {listed(wave.nodes)}{_because(wave.why)}"
        case ev.WaveGaveWay(number=number, copies=copies):
            left = "1 copy recovers" if copies == 1 else f"{copies} copies recover"
            return f"wave {number}: the next wave may start while {left}"
        case ev.Overlapping(number=number, shards=shards):
            names = [f"[{shard.index}][{shard.number}]" for shard in shards]
            what = f"{listed(names, _NAMED)} still recover elsewhere" if names else "nothing recovers now"
            return f"wave {number}: stops with overlapped recovery: {what}"
        case ev.TakenDown(number=number, indices=indices):
            copies = sum(len(index.started) for index in indices)
            return f"wave {number} takes copies of {counted(copies, 'shard')} down"
        case ev.FallbacksHome(number=number, seconds=seconds):
            return (
                f"wave {number}: all other nodes have handed off their data for it after {duration(seconds)};"
                " its own handoff continues"
            )


def _moved(event: ev.NodeRecovered) -> str:
    parts = [f"{size(event.bytes_reused)} found on disk"] if event.bytes_reused is not None else []
    parts += [f"{size(event.bytes_copied)} copied"] if event.bytes_copied is not None else []
    if event.operations_replayed is not None:
        parts.append(f"{counted(event.operations_replayed, 'operation')} replayed")
    return f" ({', '.join(parts)})" if parts else ""


def _work(event: ev.WorkDone | ev.HookUnproven | ev.OwedAgain) -> str:
    match event:
        case ev.WorkDone(node=node, work=work, why=why):
            return f"{node}: {work.value} done" + (f" ({why})" if why else "")
        case ev.HookUnproven(node=node, number=number):
            return f"{node}: hook while_stopped {number} may have run while the process was up; it runs again"
        case ev.OwedAgain(node=node, what=what, why=why):
            return f"{node} still needs {', '.join(what)}: {why}; it is restarted again in a later wave"


# What a reading shows ------------------------------------


def _given_up(event: ev.NotWaitedFor | ev.ForeseenNotToReturn) -> str:
    copies = counted(sum(one.count for one in event.shards), "copy", "copies")
    names = f"{copies} of {listed([f'[{one.index}][{one.number}]' for one in event.shards], _NAMED)}"
    if isinstance(event, ev.NotWaitedFor):
        return f"not waited for: {names}: {event.why}"
    return f"{names} will not return; not waited for: {event.why}"


def _sight(event: ev.RedExcused | ev.MembersMissed | ev.StoodStill | ev.ClusterSampled) -> str:
    match event:
        case ev.RedExcused(count=0):
            return "none of these shards is red any more"
        case ev.RedExcused(count=count, subjects=subjects):
            names = listed(list(subjects), _NAMED)
            return f"{counted(count, 'shard')} red, perhaps for a moment: {names}"
        case ev.MembersMissed(missing=missing, back=back):
            parts = [f"members missing: {listed(list(missing), _NAMED)}"] if missing else []
            parts += [f"members back: {listed(list(back), _NAMED)}"] if back else []
            return "; ".join(parts)
        case ev.StoodStill(nodes=nodes, seconds=seconds):
            named = f" ({listed(list(nodes), _NAMED)})" if nodes else ""
            return f"no reading for over 30 s: waiting limits are extended by {duration(seconds)}{named}"
        case ev.ClusterSampled(health=health, unassigned=unassigned, recovering=recovering):
            without = counted(unassigned, "copy", "copies")
            return f"cluster {health.value}: {without} unassigned, {recovering} recovering"


def _gate(event: ev.GateEvent) -> str:
    match event:
        case ev.GateClosed(gate=gate, evidence=evidence):
            return f"gate {one_line(gate)} is closed: {one_line(evidence)}"
        case ev.GateOpened(gate=gate, evidence=evidence):
            return f"gate {one_line(gate)} is open again: {one_line(evidence)}"
        case ev.AlertsAtStart(gate=gate, alerts=alerts):
            return f"gate {one_line(gate)}: {counted(len(alerts), 'alert')} at the start of the run"
        case ev.GatesPassed(gates=gates):
            said = listed([f"{one_line(gate)} ({one_line(why)})" for gate, why in gates.items()], 3)
            return f"every gate is open at the last reading: {said}"


def _handoff(event: wev.HandoffEvent) -> str:
    match event:
        case wev.HandoffWaits(partitions=()):
            return "no partition waits for handoff any more, or handoff has begun"
        case wev.HandoffWaits(partitions=waiting):
            return f"{in_words(waiting)}; no transfer moves data"
        case wev.HandoffLeftWaiting(partitions=()):
            return "no partition waits for handoff any more that was not waited for"
        case wev.HandoffLeftWaiting(partitions=waiting, seconds=seconds):
            return f"not waited for: {in_words(waiting)}, unchanged for {duration(seconds)}"
        case wev.NotHastened(nodes=nodes, why=why):
            return f"handoff after the restart of {listed(nodes)} is not hastened: {one_line(why)}"


# Work on indices and hosts, and what surrounds a run ------------------------------------


def _merge(event: wev.MergeEvent) -> str:
    match event:
        case wev.WritesRead(counters=counters):
            return f"write counters of {_indices(len(counters))} read; a second reading shows new writes"
        case wev.MergeWarned(index=index, what=what):
            return f"index {index}: WARNING: {one_line(what)}"
        case wev.MergeDue(index=index, why=why):
            return f"index {index}: to be merged too: {one_line(why)}"
        case wev.MergeBegun(index=index, found=True):
            return f"index {index}: a merge of it runs already ({_amount(event)}); the run waits for it"
        case wev.MergeBegun(index=index):
            return f"index {index}: merge begun ({_amount(event)})"
        case wev.IndexMerged(index=index, why=why):
            how = f"merged after {duration(event.seconds)}" if event.seconds else "nothing left to merge"
            amount = f", {_amount(event)}" if event.segments else ""
            return f"index {index}: {how}{amount}{_because(why)}"


def _amount(event: wev.MergeBegun | wev.IndexMerged) -> str:
    return f"up to {counted(event.segments, 'segment')} a copy, {size(event.bytes)} in all"


def _indices(count: int) -> str:
    return counted(count, "index", "indices")


def _upgrade(event: wev.UpgradeEvent) -> str:
    match event:
        case wev.InstallEnded(node=node, number=number, state=state, said=said):
            printed = f": {one_line(said, 200)}" if said.strip() and state is not InstallState.FOUND else ""
            return f"{node}: {step_name(number)} {_INSTALLED[state]}{printed}"
        case wev.Upgraded(node=node, version=version, by_others=by_others):
            how = "; no install step of this run has run" if by_others else ""
            return f"{node}: runs {version} now{how}"
        case wev.UpgradeMissed(node=node, version=version, wanted=wanted, lacks=lacks):
            without = f" without {listed(lacks)}" if lacks else ""
            return (
                f"{node}: back with {version}{without}, and {wanted} was installed: every install step runs "
                "again in a later wave"
            )


_INSTALLED: Final = {
    InstallState.RUNNING: "still runs",
    InstallState.DONE: "is done",
    InstallState.FOUND: "is not needed: the version is on the disk already",
    InstallState.FAILED: "FAILED",
    InstallState.LOST: "is LOST: its process is gone, and nothing says how it ended",
}


def _tuning(event: wev.TuningEvent) -> str:
    if isinstance(event, wev.TuningApplied):
        return f"{event.node}: {_tuned(event)}, read back"
    what = f"{event.tunable} not set" if event.tunable else "not tuned"
    return f"{event.node}: {what} ({event.on_failure.value}): {one_line(event.why)}"


def _tuned(tuned: wev.TuningApplied | act.TuneHost) -> str:
    """A tunable with its former value, if there is one, and its new one."""
    former = f"{one_line(tuned.found)} → " if tuned.found else ""
    return f"{tuned.tunable}: {former}{one_line(tuned.wanted)}"


def _around(event: ev.AroundEvent) -> str:
    match event:
        case ev.Notified(target=target, on=on):
            return f"message sent to {one_line(target)}: {on}"
        case ev.NotNotified(target=target, on=on, why=why):
            return f"message not sent to {one_line(target)}: {on}: {one_line(why)}"
        case ev.SilenceCreated(wave=wave, matchers=matchers, until=until):
            return (
                f"wave {wave}: alerts silenced until {clock_time(until)} unless renewed: {one_line(matchers)}"
            )
        case ev.SilenceRenewed(wave=wave, until=until):
            return f"wave {wave}: alerts silenced until {clock_time(until)}"
        case ev.SilenceEnded(wave=wave, until=until, why=why):
            return f"wave {wave}: alerts no longer silenced from {clock_time(until)} on: {one_line(why)}"


# Actions ------------------------------------


def _done(event: ev.ActionSent | ev.ActionConfirmed | ev.ActionFailed) -> str:
    said = action_sentence(event.action)
    match event:
        case ev.ActionSent():
            return said
        case ev.ActionConfirmed(output=output):
            return f"{said} - accepted" + (f": {one_line(output)}" if output.strip() else "")
        case ev.ActionFailed(reason=reason, in_doubt=in_doubt):
            how = "IN DOUBT, it may have been done" if in_doubt else "REFUSED"
            return f"{said} - {how}: {one_line(reason)}"


_NAMED_CHANGES = 2

_PLAIN_VERBS: Final[Mapping[type[act.Action], str]] = {
    act.ProbeSettings: "check that settings can be written",
    act.Flush: "flush all indices",
    act.RetryFailed: "retry copies whose allocation failed",
    act.ForceHandoff: "force handoff on every node",
    act.ClearVotingExclusions: "clear voting exclusions",
}
"""Verbs on the cluster without further details."""


def action_sentence(action: act.Action) -> str:  # noqa: C901  (one arm a verb)
    """A verb on its target, in the imperative; the exact call is the plan's business."""
    match action:
        case (
            act.ProbeSettings()
            | act.Flush()
            | act.RetryFailed()
            | act.ForceHandoff()
            | act.ClearVotingExclusions()
        ):
            return f"cluster: {_PLAIN_VERBS[type(action)]}"
        case act.WriteSettings(changes=changes):
            if len(changes) > _NAMED_CHANGES:
                return f"cluster: write {len(changes)} settings in one update"  # each has had its own line
            return "cluster: " + ("; ".join(_change(change) for change in changes) or "write no setting")
        case act.SetReplicas(index=index, found=found, wanted=wanted):
            return f"index {index}: set {counted(wanted, 'replica')} (found {found})"
        case act.ForceMerge(index=index, max_segments=most):
            return f"index {index}: merge every copy to at most {counted(most, 'segment')}"
        case act.RefreshIndex(index=index):
            return f"index {index}: refresh"
        case act.SetIndexSettings(index=index, found=before, wanted=after):
            return f"index {index}: set {_index_settings(before, after)}"
        case act.ExcludeFromVoting(node=node):
            return f"{node}: exclude from voting"
        case act.StopNode(node=node):
            return f"{node}: stop the service"
        case act.StartNode(node=node):
            return f"{node}: start the service"
        case act.RebootHost(node=node, also=also):
            return f"{node}: reboot the host" + (f", which {listed(also)} shares" if also else "")
        case act.RunHook(node=node, moment=moment, number=number, hook=hook):
            where = "here" if hook.local else "on its host"
            command = one_line(hook.run.replace("{node}", node), _BRIEF)
            return f"{node}: run hook {moment.value} {number} {where}: {command}"
        case act.RunInstall(node=node, number=number, target=target):
            command = action.step.run.replace("{version}", target).replace("{node}", node)
            return f"{node}: begin {step_name(number)}: {one_line(command, _BRIEF)}"
        case act.TuneHost(node=node):
            return f"{node}: set {_tuned(action)}"


def _change(change: act.SettingChange) -> str:
    was = f"({change.level.value}; it was {setting(change.found)})"
    if change.wanted is None:
        return f"unset {change.key} {was}"
    return f"set {change.key} to {setting(change.wanted)} {was}"


def _index_settings(found: Mapping[str, str | None], wanted: Mapping[str, str | None]) -> str:
    def value(given: str | None) -> str:
        return "the default" if given is None else given

    return listed(
        [
            f"{key.removeprefix('index.')} to {value(one)} (found {value(found.get(key))})"
            for key, one in wanted.items()
        ]
    )
