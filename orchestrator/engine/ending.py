"""The end of a run: all nodes are restarted (FINISHING), or it stands down.

Both restore everything. The order of these rules is in `run.RULES` and `run.ENDING`.
"""

from __future__ import annotations

from orchestrator.engine import changes, late_stop, limits, recover, refusals, upgrade
from orchestrator.engine.grid import Move
from orchestrator.engine.left_over import left_over, texts
from orchestrator.engine.node import is_next, next_to, rejoined
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.progress import GOING_UP_OR_DOWN, MAY_BE_DOWN, Mark
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import Decision, Situation, members_awaited, note, stand_down, wait
from orchestrator.formats import listed
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RunFinished, StoodDown, run_phase
from orchestrator.model.observation import MasterElected, ServiceState
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Seconds

# What is restored ------------------------------------


def in_time(situation: Situation, restoring: Decision, what: str) -> Decision:
    """The actions that restore, within their limit. A setting that was read as restored is never late."""
    refused = refusals.too_long(situation)
    late = situation.over(limits.RESTORING) is not None or refused is not None
    if late and not restoring.at_once:
        known = situation.state.process.refused
        because = refused or (known.refusal.sentence if known is not None else "")
        reason = f"{what} could not be restored yet{f': {because}' if because else ''}"
        return stand_down(situation.state, reason, limits.RESTORING.ends)
    return restoring


def restore_in_time(situation: Situation) -> Decision | None:
    """All nodes are restarted: everything is restored, within a limit."""
    restoring = changes.restore_all(situation)
    return None if restoring is None else in_time(situation, restoring, "settings")


def hooks_of_all(situation: Situation) -> Decision | None:
    """The `after_recovery` hooks that are left when all nodes are restarted: of skipped nodes that are up."""
    owing = situation.state.nodes.of(Mark.UNDOES)
    if owing and situation.view is None:
        return recover.await_seen_again(situation, [node.name for node in owing])
    return recover.hooks_after(situation, next_to(Move.UNDO, situation))


def hook_failed(situation: Situation) -> Decision | None:
    """One of them failed for good."""
    failed = recover.failed_hook(situation)
    return None if failed is None else recover.stand_down_for(situation, failed)


def lost_stop_awaited(situation: Situation) -> Decision | None:
    """The last wait of a run."""
    lost = late_stop.awaited(situation)
    if not lost:
        return None
    what = f"a stop of {listed(lost)} whose connection was lost and which may still be done"
    return wait(situation.now, what, services=lost)


def done(situation: Situation) -> Decision:
    """Every node is restarted, and everything is restored."""
    state = situation.state
    skipped = state.nodes_in(NodePhase.SKIPPED)
    not_admitted = [f"{node.name} was skipped: {node.failure}" for node in skipped if node.failure]
    outcome = Outcome.HELD if not_admitted else Outcome.DONE
    message = f"skipped: {', '.join(node.name for node in skipped)}" if skipped else ""
    upgraded = (upgrade.mixed(situation), upgrade.archived(situation))
    said = ("; ".join(not_admitted) or message, situation.kind.shortfall(state, situation.view), *upgraded)
    message = "; ".join(text for text in said if text)
    return note(run_phase(state.phase, Phase.ENDED), _ended(situation, outcome, message))


# Standing down ------------------------------------


def back_again(situation: Situation) -> Decision | None:
    """Unlike in a wave, one reading is enough: a stand-down does not wait for several that agree."""
    back = [rejoined(situation, node) for node in next_to(Move.REJOIN, situation)]
    return note(*back) if back else None


def end_without_access(situation: Situation) -> Decision | None:
    """The cluster refuses the credentials: nothing can be restored in it, and every node is started."""
    if situation.state.process.deposed is not None or not refusals.too_long(situation):
        return None
    if _unstarted(situation):
        return None
    return _undo(situation, late=True) or lost_stop_awaited(situation) or end(situation)


def await_nodes(situation: Situation) -> Decision | None:
    """Nodes come before allocation: copies that return need not be rebuilt elsewhere."""
    awaited = _awaited(situation)
    second_failure = situation.state.process.second_failure is not None
    if not awaited or second_failure or withheld_too_long(situation) is not None:
        return None
    return wait(
        situation.now,
        f"{listed(awaited)} to be back",
        seconds=1.0,
        services=awaited,
        cluster=members_awaited(situation),
    )


def leave_to_successor(situation: Situation) -> Decision | None:
    """A deposed run restores nothing: the other run now restores its changes."""
    return end(situation) if situation.state.process.deposed is not None else None


def await_a_reading(situation: Situation) -> Decision | None:
    """Without a reading of the cluster nothing can be restored."""
    state = situation.state
    if situation.view is not None or not (state.unrestored.anything or state.in_turn):
        return None
    if _is_late(situation):
        return end(situation)
    return wait(situation.now, situation.kind.words.answers, seconds=1.0, cluster=MasterElected())


def restore(situation: Situation) -> Decision | None:
    """Restore everything; after the limit no more is written."""
    restoring = changes.restore_all(situation)
    return restoring if restoring is not None and (restoring.at_once or not _is_late(situation)) else None


def await_starts(situation: Situation) -> Decision | None:
    """Everything is restored, and nodes for which it did not wait still start."""
    state = situation.state
    starting = [
        node.name for node in state.nodes_in(*GOING_UP_OR_DOWN) if not state.left_to_successor(node.name)
    ]
    if not starting or withheld_too_long(situation) is not None or changes.restore_all(situation) is not None:
        return None
    return wait(situation.now, f"{listed(starting)} to be back", seconds=1.0, services=starting)


def undo(situation: Situation) -> Decision | None:
    """The `after_recovery` hooks of nodes whose `before_stop` ran."""
    return _undo(situation, late=_is_late(situation))


def _undo(situation: Situation, *, late: bool) -> Decision | None:
    """The `after_recovery` hooks that are due; after the limit, also for nodes that were not seen back."""
    owing = [node for node in situation.state.nodes.of(Mark.UNDOES) if node.phase not in MAY_BE_DOWN]
    seen = [node for node in owing if late or is_next(Move.UNDO, situation, node)]
    hooks = recover.hooks_after(situation, seen)
    if hooks is not None:
        return hooks
    unseen = [node.name for node in owing if node not in seen]
    return wait(situation.now, f"{listed(unseen)} to be back", seconds=1.0) if unseen else None


def _is_late(situation: Situation) -> bool:
    return situation.over(limits.STANDING_DOWN) is not None


def _awaited(situation: Situation) -> list[NodeName]:
    """Nodes for which allocation waits: nodes that are back wait for no node whose time is over."""
    state = situation.state
    nodes = [node for node in state.nodes.values() if not state.left_to_successor(node.name)]
    back = any(node.phase is NodePhase.REJOINED for node in nodes)
    down = state.process.standing_down
    passed_over = down.overdue if back and down else ()
    return [n.name for n in nodes if n.phase in GOING_UP_OR_DOWN and n.name not in passed_over]


def withheld_too_long(situation: Situation) -> Seconds | None:
    """How long allocation has been disabled, if too long: then it is restored, even during a wave."""
    since = situation.state.unrestored.withheld_since
    late = since is not None and situation.over(limits.WITHHELD) is not None
    return situation.now - since if since is not None and late else None


def _unstarted(situation: Situation) -> list[NodeName]:
    """Nodes whose service is not seen to run, or may still stop: a start needs no answer of the cluster."""
    state, hosts = situation.state, situation.hosts
    ours = [node for node in state.nodes_in(*GOING_UP_OR_DOWN) if not state.left_to_successor(node.name)]
    settled = [
        node.name for node in ours if not late_stop.may_still_stop(situation, node, sight(situation, node))
    ]
    up = {name for name in settled if name in hosts and hosts[name].service is ServiceState.RUNNING}
    return [node.name for node in ours if node.name not in up]


def _ended(situation: Situation, outcome: Outcome, message: str) -> RunFinished:
    return RunFinished(
        outcome=outcome,
        exit_code=int(outcome.exit_code),
        seconds=situation.now - situation.state.process.started,
        message=message,
    )


def end(situation: Situation) -> Decision:
    """What is restored, what is not, and why the run ended."""
    state = situation.state
    left = texts(left_over(state, running=situation.hosts.keys() - set(_unstarted(situation))))
    failed = state.nodes_in(NodePhase.FAILED)
    down = state.process.standing_down
    outcome, reason = (down.outcome, down.reason) if down else (Outcome.RESTORED, "")
    if state.process.deposed is not None:
        outcome = Outcome.DEPOSED
    hook = recover.failed_hook(situation)
    if left:
        outcome = Outcome.NOT_RESTORED
    elif (failed or hook) and outcome is not Outcome.DEPOSED:
        outcome = Outcome.FAILED
    # The reason of a stand-down is often the failure of the node or hook itself: mention it once.
    said = down.failed if down else ()
    others = {node.name: node.failure or "" for node in failed if node.name not in said}
    also = [f"{', '.join(names)}: {why}" for why, names in by_same_reason(others.items()).items()]
    out = ", ".join(node.name for node in failed if node.undo and outcome is not Outcome.DEPOSED)
    unserved = f"after_recovery hooks did not run on {out}" if out else ""
    of_hook = "" if hook is None or (down and hook.node == down.hook_on) else hook.sentence
    message = "; ".join(text for text in (reason, *also, unserved, of_hook) if text)
    return note(
        StoodDown(outcome=outcome, left=left),
        run_phase(state.phase, Phase.ENDED),
        _ended(situation, outcome, message),
    )
