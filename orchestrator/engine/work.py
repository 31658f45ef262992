"""What a stopped node owes, one function for each kind of work: hooks, install steps, tuning, a reboot.

They come in this order (`owed_work`), and then the node is started. Its process is down meanwhile, so a
change applies from its first page on. Nothing here may keep the node down: what fails or takes too long is
reported. Then the work is done, or it stays owed and the run stands down, which starts the node.

An install step is only begun; its host records how it ended, so nothing is lost with this program. A step is
done by one kind of reading alone: the host says that it ended well *and* that the node's process is gone.
Whatever process comes later began after it.

A host is read for tuning once, and what differs is set. Each change is in the journal with the original value
before it is sent, so any later program can undo it. With `on_failure: warn` a tunable that cannot be set is
reported, and the tuning is done; with `stop` it stays owed. A host that is out of reach is asked again first,
for as long as a stopped node waits for its host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.grid import Sight
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import NodeStep, Retry, Situation
from orchestrator.engine.state import RunState
from orchestrator.formats import duration
from orchestrator.model.action import HostAction, Moment, RebootHost, RunHook, RunInstall, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, Event, WorkDone
from orchestrator.model.observation import HostView
from orchestrator.model.phase import REBOOT, TUNING, Installing, NodePhase, Owed, Phase, Verb, Work, step_name
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, OnFailure, TuningProfile
from orchestrator.model.upgrade import InstallState, InstallView, Upgrade
from orchestrator.model.work_event import InstallEnded, TuningApplied, TuningEvent, TuningMissed

_WAIT: Final = NodeStep()

_FAULTS: Final = {
    InstallState.FAILED: "it failed",
    InstallState.LOST: "its process is gone, and nothing says how it ended",
}

REBOOTS: Final = 3
"""Reboots of a host before the run stands down."""


_IN_ORDER: Final = (Work.HOOK, Work.INSTALL, Work.TUNING, Work.REBOOT)


def next_owed(node: NodeProgress) -> Owed | None:
    """The first of the work that a node needs while it is down; None = it is to be started."""
    owed = [item for item in node.owed if item.work in _IN_ORDER]
    return min(owed, key=lambda item: (_IN_ORDER.index(item.work), item.number), default=None)


def owed_work(situation: Situation, node: NodeProgress) -> NodeStep:
    """The next step of a node whose process is gone: its first owed work; with none left, its start."""
    match next_owed(node):
        case Owed(work=Work.HOOK, number=number):
            return _hook(situation, node, number)
        case Owed(work=Work.INSTALL, number=number):
            return _install(situation, node, number)
        case Owed(work=Work.TUNING):
            return _tune(situation, node)
        case Owed(work=Work.REBOOT):
            return _reboot(situation, node)
        case _:
            return NodeStep(enter=NodePhase.STARTING)


def then(
    situation: Situation,
    node: NodeProgress,
    events: tuple[Event, ...],
    following: Callable[[Situation, NodeProgress], NodeStep],
) -> NodeStep:
    """These events of a node, and what follows once they are committed, by the same reading."""
    after = situation.after(*events)
    rest = following(after, after.state.nodes[node.name])
    return replace(rest, events=(*events, *rest.events))


# Hooks ------------------------------------


def _hook(situation: Situation, node: NodeProgress, number: int) -> NodeStep:
    hook = situation.policy.hooks.while_stopped[number]
    action = RunHook(node=node.name, moment=Moment.WHILE_STOPPED, number=number, hook=hook)
    failure = situation.state.failure_of(action)
    retry = situation.retry(action)
    if failure and retry is Retry.NEVER:
        return NodeStep(flip=f"hook while_stopped on {node.name}: {failure.reason}")
    return NodeStep(actions=(action,)) if retry is Retry.NOW else _WAIT


# Install steps ------------------------------------


def _install(situation: Situation, node: NodeProgress, number: int) -> NodeStep:
    """The install step of this number; nothing while one runs, or while the node waits for its machine."""
    upgrade, host = situation.policy.upgrade, situation.seen.host(node.name)
    if upgrade is None or isinstance(host, Unknown):
        return _WAIT
    ended = _ended_step(host, node)
    if ended is not None:
        fault = _FAULTS.get(ended.state)
        if fault is None:
            return then(situation, node, (ended,), owed_work)
        said = f": {ended.said}" if ended.said else ""
        return NodeStep(events=(ended,), flip=f"{_step(node)}: {fault}{said}")
    if node.install is not None and _is_recorded(host, node.install):
        late = situation.over(limits.INSTALL, node)
        if late is None:
            return _WAIT
        return NodeStep(flip=f"{_step(node)} still runs after {duration(late)}", overdue=True)
    return _begin(situation, node, number, upgrade)


def _begin(situation: Situation, node: NodeProgress, number: int, upgrade: Upgrade) -> NodeStep:
    """Send the step; again with the same ticket if nothing shows that it arrived. One at a time a machine."""
    if any(_may_run(situation, other) for other in _beside(situation, node)):
        return _WAIT
    again = node.install is not None and node.install.number == number
    tries = node.installs if again else node.installs + 1
    action = RunInstall(
        node=node.name,
        number=number,
        step=upgrade.install[number],
        ticket=f"{situation.state.run}/{node.name}/{number}/{tries}",
        target=upgrade.target,
        plugins=upgrade.plugins,
        installed=upgrade.installed if number == 0 else None,
    )
    retry = situation.retry(action)
    if retry is Retry.NEVER:
        # Each refused try had a ticket of its own: the last one says why.
        last = [one for one in situation.state.in_phase.failed if _is_of(one.action, node, number)][-1]
        why = f"{step_name(number)} on {node.name}: {last.reason}"
        return NodeStep(flip=why, overdue=last.in_doubt or last.passes)
    return NodeStep(actions=(action,)) if retry is Retry.NOW else _WAIT


def _beside(situation: Situation, node: NodeProgress) -> Iterator[NodeProgress]:
    """The other nodes of its machine, also where a wave does not take whole machines: they share packages."""
    here = _machine(situation, node)
    for other in situation.state.nodes.values():
        if other.name != node.name and here is not None and _machine(situation, other) == here:
            yield other


def _may_run(situation: Situation, node: NodeProgress) -> bool:
    """Whether a step that was sent may run now.

    A node that came up beside it keeps it open, since only a reading of the node down settles a step. If its
    host has no record of it by then, the step is refused when it arrives.
    """
    host = situation.seen.host(node.name)
    if node.install is None or isinstance(host, Unknown):
        return node.install is not None
    return _is_running(host) if _is_recorded(host, node.install) else node.phase is NodePhase.STOPPED


def _machine(situation: Situation, node: NodeProgress) -> str | None:
    """By this reading; of a host that does not answer, by that of the beginning."""
    host, baseline = situation.seen.host(node.name), situation.state.baseline
    known = None if baseline is None else baseline.machines.get(node.name)
    return known if isinstance(host, Unknown) or host.machine_id is None else host.machine_id


def one_a_machine(situation: Situation, actions: Iterable[HostAction]) -> tuple[HostAction, ...]:
    """The actions of one decision less all install steps of a machine but the first."""
    kept: list[HostAction] = []
    taken: set[str] = set()
    for action in actions:
        machine = None
        if isinstance(action, RunInstall):
            machine = _machine(situation, situation.state.nodes[action.node])
        if machine is None or machine not in taken:
            kept.append(action)
        taken |= {machine} if machine is not None else set()
    return tuple(kept)


def _is_of(action: object, node: NodeProgress, number: int) -> bool:
    return isinstance(action, RunInstall) and action.node == node.name and action.number == number


def _ended_step(host: HostView, node: NodeProgress) -> InstallEnded | None:
    """How the last step has ended, by the record on its host; None if there is none, or the step runs.

    A step that was given up counts if it has ended well after all, and the node still owes it.
    """
    sent, lost, seen = node.install, node.lost_install, host.install
    if sent is None and lost is not None and seen is not None and seen.state is InstallState.DONE:
        sent = lost if Owed(work=Work.INSTALL, number=lost.number) in node.owed else None
    if sent is None or seen is None or seen.ticket != sent.ticket or seen.state is InstallState.RUNNING:
        return None
    return InstallEnded(
        node=node.name, number=sent.number, ticket=sent.ticket, state=seen.state, said=seen.said
    )


def given_up(host: HostView, node: NodeProgress) -> InstallEnded | None:
    """The same before a start, where a step without a record counts as lost: it never arrived."""
    sent = node.install
    if sent is None or _is_recorded(host, sent):
        return _ended_step(host, node)
    why = "its host has no record of it"
    return InstallEnded(
        node=node.name, number=sent.number, ticket=sent.ticket, state=InstallState.LOST, said=why
    )


def _is_recorded(host: HostView, sent: Installing) -> bool:
    return host.install is not None and host.install.ticket == sent.ticket


def _step(node: NodeProgress) -> str:
    number = node.install.number if node.install is not None else 0
    return f"{step_name(number)} on {node.name}"


def barring_start(situation: Situation, node: NodeProgress) -> str | None:
    """What keeps a start from being sent: an install that runs on the host, or may run there; None = nothing.

    Any process may have begun it. No start is sent beside it, not even for a rescue or a stand-down.
    """
    host = situation.seen.host(node.name)
    if isinstance(host, Unknown):
        return f"{_step(node)} may still run ({host.reason})" if node.install is not None else None
    return f"an install step still runs: {_shown(host.install)}" if _is_running(host) else None


def _is_running(host: HostView) -> bool:
    """Whether an install step runs on a host."""
    return host.install is not None and host.install.state is InstallState.RUNNING


def _shown(view: InstallView | None) -> str:
    lines = view.said.strip().splitlines() if view is not None else []
    return lines[-1] if lines else "it has printed nothing yet"


# Tuning ------------------------------------


def to_tune(state: RunState) -> frozenset[NodeName]:
    """Nodes whose hosts are to be read for tuning now: down, all work before it done, nothing sent yet."""
    policy = state.begun.policy
    if policy.tune is None or state.phase is not Phase.DOWN:
        return frozenset()
    return frozenset(
        node.name
        for node in state.wave_nodes
        if node.phase is NodePhase.STOPPED and next_owed(node) == TUNING and not _sent(state, node.name)
    )


def _tune(situation: Situation, node: NodeProgress) -> NodeStep:
    """The next step of tuning; nothing while its host is to be read first, or is asked again soon."""
    profile = situation.policy.tune
    if profile is None:
        return _tuned(situation, node)
    sent = _sent(situation.state, node.name)
    waits = situation.over(limits.HOST, node) is None
    again = tuple(action for action, failure in sent if waits and failure is not None and failure.passes)
    if again and not situation.rested():
        return _WAIT
    if again:
        return NodeStep(actions=again)
    if sent:
        return _tuned(situation, node, *(_result(profile, *one) for one in sent))
    found = situation.seen.tuning.get(node.name)
    if found is None or (isinstance(found, Unknown) and found.passes and waits):
        return _WAIT
    if isinstance(found, Unknown):
        stops = any(setting.on_failure is OnFailure.STOP for setting in profile.settings)
        strictest = OnFailure.STOP if stops else OnFailure.WARN
        why = f"its host could not be read: {found.reason}"
        return _tuned(
            situation, node, TuningMissed(node=node.name, tunable="", why=why, on_failure=strictest)
        )
    unread = tuple(
        TuningMissed(node=node.name, tunable=state.tunable, why=state.detail, on_failure=state.on_failure)
        for state in found.unread
    )
    sends = _sends(node, found)
    if not sends or any(event.on_failure is OnFailure.STOP for event in unread):
        return _tuned(situation, node, *unread)
    return NodeStep(events=unread, actions=sends)


def _sent(state: RunState, name: NodeName) -> tuple[tuple[TuneHost, ActionFailed | None], ...]:
    """The changes that this process sent for a node since it went down, each with how it failed."""
    done = [(action, None) for action in state.in_phase.confirmed if isinstance(action, TuneHost)]
    failed = [(one.action, one) for one in state.in_phase.failed if isinstance(one.action, TuneHost)]
    return tuple((action, failure) for action, failure in (*done, *failed) if action.node == name)


def _result(profile: TuningProfile, action: TuneHost, failure: ActionFailed | None) -> TuningEvent:
    if failure is None:
        return TuningApplied(
            node=action.node, tunable=action.tunable, found=action.found, wanted=action.wanted
        )
    on_failure = profile.on_failure(action.tunable)
    return TuningMissed(node=action.node, tunable=action.tunable, why=failure.reason, on_failure=on_failure)


def _sends(node: NodeProgress, found: HostTuning) -> tuple[TuneHost, ...]:
    return tuple(
        TuneHost(
            node=node.name,
            tunable=state.tunable,
            changes=state.changes,
            found=state.former,
            wanted=state.wanted,
        )
        for state in found.drifted
    )


def _tuned(situation: Situation, node: NodeProgress, *events: TuningEvent) -> NodeStep:
    """The end of tuning, and the work after it; or the stand-down, which starts the node first of all."""
    grave = [e for e in events if isinstance(e, TuningMissed) and e.on_failure is OnFailure.STOP]
    if not grave:
        return then(situation, node, (*events, WorkDone(node=node.name, work=Work.TUNING)), owed_work)
    reasons = "; ".join(f"{e.tunable or 'tuning'} on {e.node}: {e.why}" for e in grave)
    return NodeStep(events=events, flip=reasons)


# The reboot ------------------------------------


def _reboot(situation: Situation, node: NodeProgress) -> NodeStep:
    """One reboot for all nodes of a machine, when each is stopped and needs no hook or tuning while down.

    If a node of the machine is up, the reboot waits for another turn, in which all of them are stopped first.
    It also waits if the lease is lost, since another run may be at work.
    """
    overdue = reboot_overdue(situation, node)
    if overdue is not None:
        return NodeStep(flip=overdue, overdue=True)
    machine = situation.machine(node)
    sights = {one.name: sight(situation, one) for one in machine}
    up = [one for one in machine if one.phase not in (NodePhase.STOPPING, NodePhase.STOPPED)]
    stopped = [one for one in machine if one.phase is NodePhase.STOPPED]
    up += [one for one in stopped if sights[one.name] in (Sight.NEW, Sight.COMING)]
    if up or situation.state.process.lease_lost is not None:
        return NodeStep(enter=NodePhase.STARTING, why="its host is not rebooted in this wave")
    ready = [one for one in stopped if sights[one.name] is Sight.AWAY]
    if len(ready) < len(machine) or any(next_owed(one) not in (REBOOT, None) for one in machine):
        return _WAIT
    first, *others = machine
    if node.name != first.name:
        return _WAIT
    action = RebootHost(node=first.name, also=tuple(other.name for other in others))
    failure = situation.state.failure_of(action)
    if node.reboots >= REBOOTS:
        said = failure.reason if failure else "the same boot each time"
        return NodeStep(flip=f"the host of {node.name} was asked to reboot {REBOOTS} times: {said}")
    return NodeStep(actions=(action,)) if situation.retry(action) is Retry.NOW else _WAIT


def reboot_overdue(situation: Situation, node: NodeProgress) -> str | None:
    """Why the run no longer waits for a reboot that its host accepted; None while it may still be done."""
    doubt = node.doubt
    if doubt is None or doubt.verb is not Verb.REBOOT or not doubt.accepted:
        return None
    late = situation.over(limits.EFFECT, node)
    if late is None or situation.rebooted(node):
        return None
    return f"the host of {node.name} is not back with another boot id after {duration(late)}"
