"""The transfer limits of nodes: raised for the run, never lowered, and restored afterwards.

A limit is how many transfers a node takes part in at a time, 2 unless configured otherwise. It is not a
cluster setting but a number in each node's memory: a stop clears it, and a start reads it from the node's
files. So a restarted node does not show the limit that it had before. The run still restores that limit.
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.state import RunState
from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Policy

_LIMIT: Final = "transfer_limit."
_TIMER: Final = "vnode_management_timer."


def limit_key(node: NodeName) -> str:
    """The key of a node's transfer limit among the settings, at the transient level."""
    return f"{_LIMIT}{node}"


def timer_key(node: NodeName) -> str:
    """That of the time between two steps of its vnode manager, in milliseconds."""
    return f"{_TIMER}{node}"


def is_limit(key: str) -> bool:
    """Whether a key is that of a transfer limit."""
    return key.startswith(_LIMIT)


def is_timer(key: str) -> bool:
    """Whether a key is that of a vnode manager's timer."""
    return key.startswith(_TIMER)


def holder(key: str) -> NodeName | None:
    """The node that has this setting in its memory; None for a key that is no setting of a node."""
    return NodeName(key.partition(".")[2]) if is_limit(key) or is_timer(key) else None


def limit_changes(state: RunState, settings: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
    """The limits that are lower than wanted, raised; of a restarted node, with what was found before that.

    One that is high enough already is written down too before its node is restarted: it is forgotten then.
    """
    if policy.transfer_limit is None:
        return ()
    changes: list[SettingChange] = []
    for key, value in sorted(settings.transient.items()):
        if not (is_limit(key) and isinstance(value, str) and value.isdecimal()):
            continue
        found = _found(state, key, value)
        wanted = max(int(found), policy.transfer_limit)
        if int(value) < wanted or _to_be_forgotten(state, key):
            changes.append(
                SettingChange(level=Level.TRANSIENT, key=key, found=found, wanted=str(wanted)),
            )
    return tuple(changes)


def _found(state: RunState, key: str, value: str) -> str:
    debt, restarted = state.unrestored.settings.get((Level.TRANSIENT, key)), holder(key) in state.forgetful
    return debt.found if debt is not None and restarted and isinstance(debt.found, str) else value


def _to_be_forgotten(state: RunState, key: str) -> bool:
    """Whether its node is still to be restarted and its original value is not recorded."""
    node = state.nodes.get(holder(key) or NodeName(""))
    pending = node is not None and node.phase is NodePhase.PENDING
    return pending and (Level.TRANSIENT, key) not in state.unrestored.settings
