"""Tuning a host while its node is down: read once, set what drifted, and on to the start whatever came of it.

The process is down, so what is changed counts from its first page on. Each change stands in the journal with
what was found before it is sent, so any later program can undo it. Nothing here may keep the node down: a
host that cannot be read, or a tunable that cannot be set, is told, and the node is started.
"""

from __future__ import annotations

from orchestrator.engine.move import Move
from orchestrator.engine.state import NodeProgress, RunState
from orchestrator.engine.steps import Situation
from orchestrator.model.action import Moment, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import HostTuning, OnFailure, TuningProfile
from orchestrator.model.tuning_event import TuningApplied, TuningEvent, TuningMissed


def to_tune(state: RunState) -> frozenset[NodeName]:
    """Nodes whose hosts are to be read for tuning now: down, hooks done, and nothing sent yet."""
    policy = state.policy
    if policy is None or policy.tune is None or state.phase is not Phase.DOWN:
        return frozenset()
    return frozenset(
        node.name
        for node in state.wave_nodes
        if node.phase is NodePhase.STOPPED and _hooks_done(policy, node) and not _outcomes(state, node.name)
    )


def tuned(situation: Situation, node: NodeProgress) -> tuple[Move, bool]:
    """What tuning has a stopped node do next, and whether it is over and the node goes on to its start."""
    profile = situation.policy.tune
    if profile is None or node.rescued:
        return Move(), True
    outcomes = _outcomes(situation.state, node.name)
    if outcomes:
        return _over(profile, node, outcomes)
    found: Reading[HostTuning] = situation.seen.tuning.get(node.name, Unknown(reason="nobody asked it"))
    if isinstance(found, Unknown):
        why = f"its host could not be read: {found.reason}"
        return _missed(TuningMissed(node=node.name, tunable="", why=why, on_failure=_strictest(profile)))
    unread = tuple(
        TuningMissed(node=node.name, tunable=state.tunable, why=state.detail, on_failure=state.on_failure)
        for state in found.unread
    )
    sends = _sends(node, found)
    if not sends or any(event.on_failure is OnFailure.STOP for event in unread):
        return _missed(*unread)
    return Move(events=unread, actions=sends), False


def missed(situation: Situation, node: NodeProgress, why: str) -> tuple[TuningMissed, ...]:
    """A node that goes to its start past its tuning: said, where tuning was wanted. It stops no run."""
    if situation.policy.tune is None or _outcomes(situation.state, node.name):
        return ()
    return (TuningMissed(node=node.name, tunable="", why=why, on_failure=OnFailure.WARN),)


def _hooks_done(policy: Policy, node: NodeProgress) -> bool:
    wanted = {(Moment.WHILE_STOPPED.value, number) for number in range(len(policy.hooks.while_stopped))}
    return wanted <= node.hooks_done


def _outcomes(state: RunState, name: NodeName) -> tuple[TuneHost | ActionFailed, ...]:
    """What came of the changes that were sent for a node, by this process, since it went down."""
    done = [action for action in state.confirmed if isinstance(action, TuneHost) and action.node == name]
    failed = [
        failure
        for failure in state.failed
        if isinstance(failure.action, TuneHost) and failure.action.node == name
    ]
    return (*done, *failed)


def _sends(node: NodeProgress, found: HostTuning) -> tuple[TuneHost, ...]:
    return tuple(
        TuneHost(
            node=node.name,
            tunable=state.tunable,
            changes=state.changes,
            found=state.running,
            wanted=state.wanted,
        )
        for state in found.drifted
    )


def _over(
    profile: TuningProfile, node: NodeProgress, outcomes: tuple[TuneHost | ActionFailed, ...]
) -> tuple[Move, bool]:
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
            events.append(
                TuningMissed(
                    node=node.name,
                    tunable=tunable,
                    why=outcome.reason,
                    on_failure=profile.on_failure(tunable),
                )
            )
    return _missed(*events)


def _missed(*events: TuningEvent) -> tuple[Move, bool]:
    """On to the start, or to the stand-down, which starts the node first of all."""
    grave = [e for e in events if isinstance(e, TuningMissed) and e.on_failure is OnFailure.STOP]
    if not grave:
        return Move(events=events), True
    said = "; ".join(f"{e.tunable or 'tuning'} on {e.node}: {e.why}" for e in grave)
    return Move(events=events, give_up=said), False


def _strictest(profile: TuningProfile) -> OnFailure:
    stops = any(setting.on_failure is OnFailure.STOP for setting in profile.settings)
    return OnFailure.STOP if stops else OnFailure.WARN
