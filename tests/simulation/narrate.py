"""A run told line by line: what was decided on the left margin, what the world did indented beside it."""

from __future__ import annotations

from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, WriteSettings, action_name, action_target
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    Event,
    GoodReading,
    Hold,
    NodeRecovered,
    PhaseEntered,
    Requested,
    Rescued,
    RestoreBegun,
    RunFinished,
    RunResumed,
    SecondFailure,
    SettingChanged,
    SettingRestored,
    StandingDown,
    WaveStarted,
)
from orchestrator.model.merge_event import IndexMerged, MergeBegun
from orchestrator.runs.simulated import Simulation

_START = 1_000_000.0


def narrate(simulation: Simulation, state: RunState) -> str:
    """Journal and world in the order of time; what happened at one moment, the journal first."""
    told = [(r.at, 0, n, line) for n, r in enumerate(simulation.journal.records) if (line := _event(r.event))]
    happened = [
        (at, 1, n, f"        | {what}")
        for n, (at, what) in enumerate(simulation.world.story)
        if "begins on" not in what and "cluster.routing" not in what and "indices.recovery" not in what
    ]
    lines = [f"{at - _START:8.1f} {line}" for at, _, _, line in sorted([*told, *happened])]
    lives = ", ".join(f"{node.name} life {node.life}" for node in simulation.world.nodes.values())
    end = f"{state.outcome.value if state.outcome else 'unfinished'}; {lives}"
    settings = simulation.world.settings()
    return "\n".join(
        [*lines, f"end: {end}", f"settings: persistent {settings[0]} transient {settings[1]}", ""]
    )


def _verb(action: Action) -> str:
    changes = (
        " " + ", ".join(f"{c.key.rpartition('.')[2]}[{c.level.value[0]}]={c.wanted}" for c in action.changes)
        if isinstance(action, WriteSettings)
        else ""
    )
    return f"{action_name(action)} {action_target(action)}{changes}"


def _event(event: Event) -> str | None:  # noqa: C901, PLR0911  (one line an event)
    match event:
        case ActionSent(action=action):
            return f"-> {_verb(action)}"
        case ActionConfirmed() | GoodReading():
            return None
        case ActionFailed(action=action, reason=reason, in_doubt=doubt):
            return f"!! {_verb(action)} {'in doubt' if doubt else 'refused'}: {reason}"
        case PhaseEntered(node=node, from_=old, to=new, why=why):
            return f"{node or 'run'}: {old} -> {new}" + (f" ({why})" if why else "")
        case WaveStarted(wave=wave):
            return f"wave {wave.number}: {', '.join(wave.nodes)} ({wave.why})"
        case SettingChanged(key=key, level=level, found=found, wanted=wanted):
            return f"owes {key} ({level.value}): found {found}, wanted {wanted}"
        case SettingRestored(key=key, level=level, value=value, note=note):
            return f"restored {key} ({level.value}) = {value}" + (f" ({note})" if note else "")
        case Hold(predicate=predicate, subject=subject, evidence=evidence):
            return f"hold {predicate}: {subject}: {evidence}"
        case NodeRecovered(node=node, seconds=seconds):
            return f"{node} recovered in {seconds:.1f} s"
        case Rescued(shards=shards):
            return f"rescued {', '.join(shards)}"
        case SecondFailure(what=what):
            return f"second failure: {what}"
        case Requested(request=request, by=by):
            return f"asked to {request.name.lower()} by {by}"
        case StandingDown(reason=reason):
            return f"standing down: {reason}"
        case MergeBegun(index=index, segments=segments, found=found):
            return f"merge of {index} {'found' if found else 'begun'}: {segments} segments at most"
        case IndexMerged(index=index, segments=segments, seconds=seconds, why=why):
            return f"{index} merged in {seconds:.1f} s: {segments} segments at most" + (
                f" ({why})" if why else ""
            )
        case RunResumed() | RestoreBegun():
            return f"== {event.event} =="
        case RunFinished(outcome=outcome, exit_code=code, message=message):
            return f"== {outcome.value}, exit {code}" + (f": {message}" if message else "")
        case _:
            return event.event
