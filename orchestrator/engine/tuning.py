"""Tuning a host while its node is down: read once, set what differs, then the rest of the turn.

The process is down, so a change applies from its first page on. Each change is in the journal with the
original value before it is sent, so any later program can undo it. Nothing here may keep the node down: a
host that cannot be read, or a tunable that cannot be set, is reported. With `on_failure: warn` the tuning is
then done; with `stop` it stays owed and the run stands down, which starts the node. A host that is out of
reach is asked again first, for as long as a stopped node waits for its host.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.engine import limits
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import RETRY_SECONDS, Situation
from orchestrator.engine.state import RunState
from orchestrator.model.action import TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, Event, WorkDone
from orchestrator.model.phase import TUNING, NodePhase, Phase, Work
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, OnFailure, TuningProfile
from orchestrator.model.work_event import TuningApplied, TuningEvent, TuningMissed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The next step of tuning one host; all empty = its host is to be read first, or is asked again soon.

    Attributes:
        events: `WorkDone` among them when the tuning is over.
        flip: the reason to stand down; the tuning stays owed.
    """

    events: tuple[Event, ...] = ()
    actions: tuple[TuneHost, ...] = ()
    flip: str | None = None

    @property
    def over(self) -> bool:
        """Whether the node continues with the rest of its turn."""
        return any(isinstance(event, WorkDone) for event in self.events)


def to_tune(state: RunState) -> frozenset[NodeName]:
    """Nodes whose hosts are to be read for tuning now: down, all work before it done, nothing sent yet."""
    policy = state.begun.policy
    if policy.tune is None or state.phase is not Phase.DOWN:
        return frozenset()
    return frozenset(
        node.name
        for node in state.wave_nodes
        if node.phase is NodePhase.STOPPED
        and TUNING in node.owed
        and not any(item.work in (Work.HOOK, Work.INSTALL) for item in node.owed)
        and not _outcomes(state, node.name)
    )


def tuned(situation: Situation, node: NodeProgress) -> Tuning:
    """The next step of tuning for a stopped node that still needs it."""
    profile = situation.policy.tune
    if profile is None:
        return Tuning(events=(WorkDone(node=node.name, work=Work.TUNING),))
    outcomes = _outcomes(situation.state, node.name)
    waits = not limits.host(node).is_over(situation.seen.at)
    again = tuple(action for outcome in outcomes if waits and (action := _out_of_reach(outcome)) is not None)
    if again and situation.now - situation.state.process.acted_at < RETRY_SECONDS:
        return Tuning()
    if outcomes:
        return Tuning(actions=again) if again else _over(profile, node, outcomes)
    found = situation.seen.tuning.get(node.name)
    if found is None:
        return Tuning()
    if isinstance(found, Unknown) and found.passes and waits:
        return Tuning()
    if isinstance(found, Unknown):
        why = f"its host could not be read: {found.reason}"
        return _missed(
            node, TuningMissed(node=node.name, tunable="", why=why, on_failure=_strictest(profile))
        )
    unread = tuple(
        TuningMissed(node=node.name, tunable=state.tunable, why=state.detail, on_failure=state.on_failure)
        for state in found.unread
    )
    sends = _sends(node, found)
    if not sends or any(event.on_failure is OnFailure.STOP for event in unread):
        return _missed(node, *unread)
    return Tuning(events=unread, actions=sends)


def _outcomes(state: RunState, name: NodeName) -> tuple[TuneHost | ActionFailed, ...]:
    """The results of the changes that this process sent for a node since it went down."""
    tuned = (action for action in state.in_phase.confirmed if isinstance(action, TuneHost))
    done = [action for action in tuned if action.node == name]
    failed = [
        failure
        for failure in state.in_phase.failed
        if isinstance(failure.action, TuneHost) and failure.action.node == name
    ]
    return (*done, *failed)


def _out_of_reach(outcome: TuneHost | ActionFailed) -> TuneHost | None:
    """The change that could not be sent to its host, as that did not answer."""
    sent = outcome.action if isinstance(outcome, ActionFailed) and outcome.passes else None
    return sent if isinstance(sent, TuneHost) else None


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


def _over(
    profile: TuningProfile, node: NodeProgress, outcomes: tuple[TuneHost | ActionFailed, ...]
) -> Tuning:
    events: list[TuningEvent] = []
    for outcome in outcomes:
        if isinstance(outcome, TuneHost):
            events.append(
                TuningApplied(
                    node=node.name, tunable=outcome.tunable, found=outcome.found, wanted=outcome.wanted
                )
            )
        elif isinstance(outcome.action, TuneHost):
            tunable = outcome.action.tunable
            on_failure = profile.on_failure(tunable)
            events.append(
                TuningMissed(node=node.name, tunable=tunable, why=outcome.reason, on_failure=on_failure)
            )
    return _missed(node, *events)


def _missed(node: NodeProgress, *events: TuningEvent) -> Tuning:
    """The end of tuning, or the stand-down, which starts the node first of all."""
    grave = [e for e in events if isinstance(e, TuningMissed) and e.on_failure is OnFailure.STOP]
    if not grave:
        return Tuning(events=(*events, WorkDone(node=node.name, work=Work.TUNING)))
    said = "; ".join(f"{e.tunable or 'tuning'} on {e.node}: {e.why}" for e in grave)
    return Tuning(events=events, flip=said)


def _strictest(profile: TuningProfile) -> OnFailure:
    stops = any(setting.on_failure is OnFailure.STOP for setting in profile.settings)
    return OnFailure.STOP if stops else OnFailure.WARN
