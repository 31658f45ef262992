"""States of runs, with some fields changed in whichever part of the state has them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from orchestrator.engine.progress import Nodes
from orchestrator.engine.state import RunState

_PARTS = ("in_phase", "process", "unrestored", "begun")


def state_with(state: RunState, **changes: Any) -> RunState:
    """The state with these fields, each in the state itself or in the first part that has one of its name.

    `nodes` may be any mapping; a run that selected none selected these.
    """
    if "nodes" in changes:
        changes["nodes"] = Nodes(changes["nodes"].values())
    found: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    own = {one.name for one in fields(state)}
    for name in [name for name in changes if name not in own]:
        part = next(part for part in _PARTS if hasattr(getattr(state, part), name))
        found[part][name] = changes.pop(name)
    parts = {part: replace(getattr(state, part), **theirs) for part, theirs in found.items() if theirs}
    changed = replace(state, **parts, **changes)
    if changed.begun.nodes:
        return changed
    return replace(changed, begun=replace(changed.begun, nodes=tuple(changed.nodes)))
