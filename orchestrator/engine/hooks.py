"""What hooks owe: whatever took a node out of service, or may have, is to be undone by `after_recovery`."""

from __future__ import annotations

from orchestrator.engine.state import RunState, with_node
from orchestrator.model.action import Action, Moment, RunHook


def hook_ran(state: RunState, hook: RunHook) -> RunState:
    """What ran and counts: `after_recovery` undoes `before_stop` once all of it has run."""
    node = state.nodes[hook.node]
    done, doubted = node.hooks_done | {(hook.moment.value, hook.number)}, node.hook_doubted
    after = frozenset(d for d in done if d[0] == Moment.AFTER_RECOVERY.value)
    owed = len(state.policy.hooks.after_recovery) if state.policy else 0
    if hook.moment is Moment.BEFORE_STOP:
        done -= after  # out of service anew: what put it back before does not count any more
    elif hook.moment is Moment.AFTER_RECOVERY and len(after) >= owed:
        done, doubted = frozenset(d for d in done if d[0] != Moment.BEFORE_STOP.value), False
    return with_node(state, hook.node, hooks_done=done, hook_doubted=doubted)


def hook_doubted(state: RunState, action: Action) -> RunState:
    """A `before_stop` hook that was lost sight of may have run: as after one that did, the rest is owed."""
    if not isinstance(action, RunHook) or action.moment is not Moment.BEFORE_STOP:
        return state
    done = state.nodes[action.node].hooks_done
    done = frozenset(d for d in done if d[0] != Moment.AFTER_RECOVERY.value)
    return with_node(state, action.node, hooks_done=done, hook_doubted=True)
