"""States of runs, with some fields changed in whichever part of the state has them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from orchestrator.engine.progress import Nodes
from orchestrator.engine.state import RunState, WaveBegun

_PARTS = ("in_phase", "process", "unrestored", "begun")


def state_with(state: RunState, **changes: Any) -> RunState:
    """The state with these fields, each in the state itself or in the first part that has one of its name.

    `nodes` may be any mapping; a run that selected none selected these. The current wave may be given as
    `wave`, chosen at `wave_since`, and those that made room as `recovering`.
    """
    if "nodes" in changes:
        changes["nodes"] = Nodes(changes["nodes"].values())
    if changes.keys() & {"wave", "wave_since", "recovering"}:
        wave, since = changes.pop("wave", state.wave), changes.pop("wave_since", state.wave_since)
        current = () if wave is None else (WaveBegun(wave=wave, since=since),)
        changes["waves"] = (*changes.pop("recovering", state.recovering), *current)
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
