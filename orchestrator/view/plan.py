"""A plan as text for people and as a JSON object."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from orchestrator.elasticsearch.rules.settings import (
    BANDWIDTH,
    CONCURRENT_RECOVERIES,
    CONCURRENT_STREAMS,
    INITIAL_PRIMARIES,
    REBALANCE,
)
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.situation import POLL_SECONDS
from orchestrator.model.action import ForceHandoff, action_name
from orchestrator.model.allocation import DISABLING
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import fields_of
from orchestrator.model.event import Hold
from orchestrator.model.merging import LoaderLeftover, MergeTarget
from orchestrator.model.plan import (
    FoundAndWanted,
    Plan,
    PlannedWait,
    PlannedWave,
    Step,
    ValueToday,
    by_key,
)
from orchestrator.model.policy import numbers
from orchestrator.model.riak import limit_key, timer_key
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.next_command import next_command
from orchestrator.untrusted import one_line, visible
from orchestrator.view.health import missing_in_words
from orchestrator.view.phrases import (
    RunTitle,
    hold_object,
    hold_sentence,
    prediction_object,
    prediction_words,
)
from orchestrator.view.text import counted, duration, listed, nodes_of, setting, size, table, wrapped


def plan_object(plan: Plan) -> dict[str, object]:
    """The object of `plan.json`. On standard output it is one line, which begins with `ts` and `run`."""
    return {
        "event": "plan",
        "cluster": plan.cluster,
        "kind": plan.kind.value,
        "version": plan.version,
        "target_version": plan.target_version,
        "strategy": plan.strategy.value,
        "fingerprint": plan.fingerprint,
        "waves": [
            {
                "number": wave.number,
                "zone": wave.zone,
                "nodes": list(wave.nodes),
                "why": wave.why,
                "predicted_seconds": prediction_object(wave.predicted),
            }
            for wave in plan.waves
        ],
        "lower_bound_waves": plan.lower_bound_waves,
        "lower_bound_reason": plan.lower_bound_reason,
        "holds": [hold_object(hold) for hold in plan.holds],
        "predicates": plan.predicates,
        "steps": [fields_of(step) for step in plan.steps],
        "settings_changed": _from_to(plan.settings_changed),
        "predicted_seconds": prediction_object(plan.predicted),
        "predicted_from": plan.predicted_from,
        "timeout_seconds": plan.timeout,
        "owed": {node: list(words) for node, words in plan.owed.items()},
        "other_versions": dict(plan.other_versions),
        "nodes_to_restart": len(plan.nodes),
        "nodes_selected": plan.nodes_selected,
        "settings_today": {key: fields_of(today) for key, today in plan.settings_today.items()},
        "settings_by_level": {level: _from_to(each) for level, each in plan.settings_by_level.items()},
        **({"missing_copies": [fields_of(one) for one in plan.missing]} if plan.missing else {}),
        **planned_object(plan),
    }


def _from_to(settings: Mapping[str, FoundAndWanted]) -> dict[str, object]:
    return {key: {"from": found, "to": wanted} for key, (found, wanted) in settings.items()}


_SMALL, _SCREEN, _LARGE_SCREEN = 3, 24, 40
"""The lines of a plan: so many for a small number of waves, and so many for any other."""
_LEAST_OF_HOLDS: Final = 6
"""Lines that the holds have at least, where nothing else is left of the screen."""


@dataclass(frozen=True, slots=True)
class Brevity:
    """How much of a plan is shown."""

    rows: int | None  # of a table at most; None: all
    why: int  # characters of the reason of a wave
    notes: bool = True  # whether there is more than warnings
    settings: int = 6  # settings that are named at most; of more, limits of recovery are counted


_IN_FULL: Final = Brevity(None, 240)
_BRIEF: Final = (
    *(Brevity(10, 120), Brevity(8, 80), Brevity(6, 40)),
    *(Brevity(3, 40, notes=False), Brevity(3, 40, notes=False, settings=0)),
)
"""The first that fits the screen is taken."""


def plan_text(plan: Plan, *, steps: bool = False, width: int | None = None, restores: bool = False) -> str:
    """The plan for people: its waves, the settings, its holds, and the verdict as the last line.

    Args:
        plan: to be shown.
        steps: with each wave, setting, hold and exact step. Without, equal waves are one row, and the rest is
            shortened until it fits a screen.
        width: of the terminal; None: no line is wrapped.
        restores: whether the run first restores what an earlier one has left: the plan is as after that.
    """
    verdict = [line for part in _verdict(plan, restores=restores) for line in wrapped(part, width)]
    screen = (_SCREEN if len(plan.waves) <= _SMALL else _LARGE_SCREEN) - len(verdict) - 1  # the question
    least = _LEAST_OF_HOLDS if plan.holds else 0
    if steps:
        above = _above(plan, _IN_FULL, width)
    else:
        tried = [_above(plan, brevity, width) for brevity in _BRIEF]
        above = next((lines for lines in tried if len(lines) + least <= screen), tried[-1])
    holds = _holds(plan, None if steps else max(_LEAST_OF_HOLDS, screen - len(above)), width)
    return "\n".join(map(visible, [*above, *holds, *verdict])) + "\n"


def _above(plan: Plan, brevity: Brevity, width: int | None) -> list[str]:
    """What is above holds and verdict."""
    whole = brevity is _IN_FULL
    settings = _settings(plan, width) if whole else _settings_in_brief(plan, brevity.settings, width)
    parts = [
        wrapped(_header(plan), width),
        planned_lines(plan, brevity.rows, width),
        [*_waves(plan, brevity, width), *_bound(plan, width)],
        [*settings, *(line for note in _notes(plan, brevity) for line in wrapped(note, width))],
        _steps(plan, width) if whole else [],
    ]
    return [line for part in parts if part for line in (*part, "")]


def _header(plan: Plan) -> str:
    """`prod · Elasticsearch 8.19.0 · 3 nodes, zones a b c · rolling restart, node by node`."""
    count = len(plan.nodes)
    zones = sorted({wave.zone for wave in plan.waves if wave.zone})
    of_zones = (
        f"zone{'s'[: len(zones) > 1]} {' '.join(zones)}" if len(zones) <= _NAMES else f"{len(zones)} zones"
    )
    nodes = nodes_of(count, plan.nodes_selected or count)
    merges = plan.max_segments is not None
    title = RunTitle.of(
        plan,
        kind=plan.kind,
        strategy=plan.strategy,
        target=plan.target_version,
        reboots=any("reboot" in words for words in plan.owed.values()),
        restarts=bool(count) or not merges,
        merges=len(plan.merges) if merges else None,
    )
    return " · ".join([title.cluster, title.server, f"{nodes}, {of_zones}" if zones else nodes, title.whole])


def _notes(plan: Plan, brevity: Brevity) -> list[str]:
    """What the times are based on, in brief without the numbers, and warnings."""
    whole = brevity is _IN_FULL
    based_on = plan.predicted_from if whole else plan.predicted_from.partition(": ")[0]
    return [
        *([f"Times: {based_on}."] if based_on and brevity.notes else []),
        *([f"Fingerprint: {plan.fingerprint}"] if whole else []),
        *([_OVERLAPS] if plan.overlaps and brevity.notes else []),
        *_missing(plan),
        *_versions_after(plan),
        *_too_short(plan),
        *([_LOSES_WRITES] if _may_lose_writes(plan) else []),
    ]


def _verdict(plan: Plan, *, restores: bool) -> list[str]:
    """Whether a run would begin now; how long it takes."""
    if not (plan.waves or plan.holds or plan.max_segments):
        return ["Nothing to do: no node is selected."]
    waves = counted(len(plan.waves), "wave") + (", then a pause" if plan.pauses else "")
    takes = f"{waves}, {prediction_words(plan.predicted)}." if plan.waves else _no_waves(plan)
    checks = f"{plan.predicates} checks"
    if not plan.holds:
        once = " once the changes of the earlier run are restored" if restores else ""
        return [f"Ready{once}: all {checks} pass. {takes}"]
    some = len(plan.holds) > 1
    then = f"The run waits for {'them' if some else 'it'} to clear."
    if plan.lasting:
        run = "a run" if plan.target_version else "without --begin-anyway a run"
        what = listed(plan.lasting, 3) if some else "it"
        then = f"Waiting cannot clear {what}: {run} ends at once, with code 3."
    more = [next_command("explain", plan.holds[0].predicate)]
    if any(_PLAYBOOK in hold_sentence(hold) for hold in plan.holds):
        more += [next_command("explain", _PLAYBOOK)]
    return [takes, f"HELD by {len(plan.holds)} of {checks}. {then}", f"More: {', '.join(more)}"]


_PLAYBOOK: Final = "playbook"
"""The file with which another run passes a hold. Its explanation has how one is made and named."""


def _no_waves(plan: Plan) -> str:
    if plan.holds and plan.owed:
        return "No waves: the run ends before the first."
    return f"No waves: no node is {'selected' if plan.max_segments is None else 'restarted'}."


def _missing(plan: Plan) -> list[str]:
    """The line about copies that are not assigned before the run; empty without any."""
    if not plan.missing:
        return []
    return [f"The cluster is {missing_in_words(plan.missing)}. The run does not wait for these copies."]


def _versions_after(plan: Plan) -> list[str]:
    """The line about nodes that run another version afterwards; empty without any."""
    nodes = [f"{node} {version}" for node, version in sorted(plan.other_versions.items())]
    return [f"Mixed versions after this run: {listed(nodes, 5)}."] if nodes else []


def _too_short(plan: Plan) -> list[str]:
    if plan.timeout is None or plan.timeout >= plan.predicted.likely:
        return []
    short = f"Warning: --timeout {duration(plan.timeout)} is shorter than the run is likely to take"
    return [f"{short}. The run then stands down, and `resume` restarts the other nodes."]


_OVERLAPS: Final = (
    "Overlap: a wave may begin while copies of earlier waves recover "
    "(`overlap_recovery: false` in the playbook switches this off)."
)


_LOSES_WRITES: Final = (
    "Warning: before 6.7 a node that stops may acknowledge a write that no other copy has, and it is lost. "
    "Stop the writers for the run, or write again what they wrote at each stop."
)
_KEEPS_WRITES: Final = (6, 7)
"""elastic/elasticsearch#39584. Seen on 1.7.6, at 4 of 54 stops: some documents of one request."""


def _may_lose_writes(plan: Plan) -> bool:
    return plan.distribution == "elasticsearch" and () < numbers(plan.version) < _KEEPS_WRITES


def _bound(plan: Plan, width: int | None) -> list[str]:
    """The fewest waves that any plan could have, and the simpler strategy that needs as few, if one does."""
    if not plan.lower_bound_waves:
        return []
    zones = {wave.zone for wave in plan.waves}
    simpler = ""
    if len(plan.waves) == len(plan.nodes):
        simpler = "; `--strategy node` needs as few"
    elif None not in zones and len(zones) == len(plan.waves):
        simpler = "; `--strategy zone` needs as few"
    why = f"{plan.lower_bound_reason}{simpler}"
    return wrapped(f"No plan could have fewer than {counted(plan.lower_bound_waves, 'wave')} ({why}).", width)


_NAMES: Final = 5
"""Names that are listed where a line has room for no more."""


def _holds(plan: Plan, room: int | None, width: int | None) -> list[str]:
    """The holds with their evidence, in so many lines: the first one always, those without a line by name."""
    if not plan.holds:
        return []
    lines: list[str] = []
    for number, hold in enumerate(plan.holds):
        new = wrapped(f"✗ {hold_sentence(hold if room is None else _in_brief(hold))}", width)
        rest = _only_named(plan.holds[number + 1 :], width)
        if room is None or len(lines) + len(new) + len(rest) <= room:
            lines += new
        elif number == 0:
            return [*new[: max(2, room - len(rest) - 1)], "    … (--steps shows all of it)", *rest]
        else:
            return [*lines, *_only_named(plan.holds[number:], width)]
    return lines


def _only_named(holds: Sequence[Hold], width: int | None) -> list[str]:
    """Holds for which there is no room."""
    names = ", ".join(hold.predicate for hold in holds)
    return wrapped(f"✗ {names} (--steps shows each)", width) if holds else []


def _in_brief(hold: Hold) -> Hold:
    """A hold with its first subjects alone; its count is of all."""
    return replace(hold, subjects=hold.subjects[:2], reasons=hold.reasons[:2], ways=hold.ways[:2])


def _waves(plan: Plan, brevity: Brevity, width: int | None) -> list[str]:
    """A row for each wave, or for equal waves that follow one another."""
    if not plan.waves:
        return []
    rows: list[tuple[str, ...]] = []
    said = ""
    for waves in _groups(plan.waves, brevity.rows):
        why = one_line(waves[0].why, brevity.why)
        rows.append((*_row(waves, whole=brevity.rows is None), "" if why == said else why))
        said = why
    head: tuple[str, ...] = ("WAVE", "NODES", "ZONE", "LIKELY", "IF SLOW", "WHY THIS ORDER")
    if not any(wave.zone for wave in plan.waves):
        head, rows = (*head[:2], *head[3:]), [(*row[:2], *row[3:]) for row in rows]
    return table(head, rows, width=width)


def _row(waves: Sequence[PlannedWave], *, whole: bool) -> tuple[str, str, str, str, str]:
    first, last = waves[0], waves[-1]
    nodes = [node for wave in waves for node in wave.nodes]
    count = f" ({len(nodes)})" if len(nodes) != len(waves) else ""
    zones = list(dict.fromkeys(wave.zone or "-" for wave in waves))
    return (
        str(first.number) if first is last else f"{first.number}-{last.number}",
        ", ".join(nodes) if whole or len(nodes) < _NAMES else f"{nodes[0]} … {nodes[-1]}{count}",
        " ".join(zones) if len(zones) <= _NAMES else counted(len(zones), "zone"),
        _each([wave.predicted.likely for wave in waves]),
        _each([wave.predicted.high for wave in waves]),
    )


def _each(seconds: Sequence[float]) -> str:
    """`1m 30s`, of several waves `1m 30s each` or `1m 20s to 1m 40s each`."""
    least, most = duration(min(seconds)), duration(max(seconds))
    return (least if least == most else f"{least} to {most}") + (" each" if len(seconds) > 1 else "")


def _groups(waves: Sequence[PlannedWave], most: int | None) -> list[list[PlannedWave]]:
    """Waves that are one row: the most alike ones, as few as needed for so many rows. None: each has its row.

    If not even waves with the same reason are few enough, those in the middle are one row.
    """
    if most is None or len(waves) <= most:
        return [[wave] for wave in waves]
    alike = [
        [list(group) for _, group in groupby(waves, key=same)]
        for same in (_all_of_it, _zone_and_reason, _reason)
    ]
    fits = next((groups for groups in alike if len(groups) <= most), None)
    if fits is not None:
        return fits
    begin, groups = most // 2, alike[-1]
    end = len(groups) - (most - begin - 1)
    return [*groups[:begin], [wave for group in groups[begin:end] for wave in group], *groups[end:]]


def _reason(wave: PlannedWave) -> object:
    """Numbers differ from wave to wave: `then 3 more sets`."""
    return re.sub(r"\d+", "#", wave.why)


def _zone_and_reason(wave: PlannedWave) -> object:
    return wave.zone, _reason(wave)


def _all_of_it(wave: PlannedWave) -> object:
    times = duration(wave.predicted.likely), duration(wave.predicted.high)
    return wave.zone, wave.why, len(wave.nodes), times


_CHANGED: Final = "Changed during the run, then restored:"


def _settings(plan: Plan, width: int | None) -> list[str]:
    """Each setting with the value in force now, by how much it is raised, and why."""
    if not plan.settings_changed:
        return []
    said = {key: _changed(plan, key) for key in sorted(plan.settings_changed)}
    changes = by_same_reason(said.items()).items()
    lines = [
        line for why, keys in changes for line in wrapped(f"{listed(keys, 3)}: {why}", width, first="  ")
    ]
    return [_CHANGED, *lines]


def _settings_in_brief(plan: Plan, most: int, width: int | None) -> list[str]:
    """Each setting with its change.

    Limits of recovery are counted where there are more than so many lines, or one does not fit its line.
    """
    if not plan.settings_changed:
        return []
    alike: dict[tuple[str, str, str], list[str]] = {}
    for key in sorted(plan.settings_changed):
        begins, when = next(
            ((begins, when) for begins, when in _WHEN.items() if key.startswith(begins)), (key, "")
        )
        alike.setdefault((begins, _change(plan, key), when), []).append(key)
    lines = {
        keys[0]: wrapped(
            f"{keys[0] if len(keys) == 1 else f'{begins}* of {len(keys)} nodes'}: {change}{when}",
            width,
            first="  ",
        )
        for (begins, change, when), keys in alike.items()
    }
    limits = [key for key in _LIMITS if key in lines]
    if limits and (len(lines) > most or any(len(lines[key]) > 1 for key in limits)):
        lines = {key: line for key, line in lines.items() if key not in limits}
        more = f"… {counted(len(limits), 'limit')} of recovery (--steps shows each)"
        lines["…"] = wrapped(more, width, first="  ")
    return [_CHANGED, *(part for parts in lines.values() for part in parts)]


def _changed(plan: Plan, key: str) -> str:
    """A setting's change, by how much it is raised, and why: `40mb → 100mb, 2.5 times, so that …`."""
    today = plan.settings_today.get(key)
    times = "" if today is None or today.times is None else f", {today.times:.3g} times"
    why = next((f", {why}" for begins, why in _REASONS.items() if key.startswith(begins)), "")
    levels = [
        f"{level} {setting(before)} → {setting(after)}"
        for level, (before, after) in by_key(plan.settings_by_level).get(key, ())
    ]
    both = f" ({'; '.join(levels)})" if len(levels) > 1 else ""
    return f"{_change(plan, key)}{both}{times}{why}"


def _change(plan: Plan, key: str) -> str:
    """A setting's value in force now with its source, and that during the run: `40mb (default) → 100mb`."""
    found, wanted = plan.settings_changed[key]
    today = plan.settings_today.get(key, ValueToday(value=found))
    source = f" ({_SOURCES[today.source]})" if today.source in _SOURCES else ""
    return f"{setting(today.value)}{source} → {setting(wanted)}"


_SOURCES: Final = {"default": "default", "transient": "transient", "file": "from the nodes' configuration"}

_LIMITS: Final = (INITIAL_PRIMARIES, CONCURRENT_RECOVERIES, CONCURRENT_STREAMS, BANDWIDTH)

_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(DISABLING, "so that copies of stopped nodes are not built elsewhere"),
    **dict.fromkeys(_LIMITS, "so that copies come back faster"),
    REBALANCE: "so that no other copies move meanwhile",
    ML_UPGRADE_MODE: "so that machine learning jobs do not fail at every stop",
    limit_key(NodeName("")): "so that handoff ends sooner",
    timer_key(NodeName("")): "so that handoff begins sooner",
}
"""Why a run changes a setting, by its key or the beginning of it."""

_WHEN: Final[Mapping[str, str]] = {
    **dict.fromkeys(DISABLING, ", in each wave"),
    limit_key(NodeName("")): "",
    timer_key(NodeName("")): "",
}
"""When, where it is not the whole run."""


_FORCED: Final = action_name(ForceHandoff())


def _steps(plan: Plan, width: int | None) -> list[str]:
    """Every step under its wave, with the exact call or command."""
    if not plan.steps:
        return []
    digits = len(str(max(step.order for step in plan.steps)))
    target = max(len(step.target) for step in plan.steps)
    action = max(len(step.action) for step in plan.steps)
    zones = {wave.number: wave for wave in plan.waves}
    lines = ["Steps, as a run would send them:"]
    wave: int | None = None
    for step in _with_waits(plan):
        if step.wave != wave:
            wave = step.wave
            named = f"wave {wave}: {listed(zones[wave].nodes)}" if wave in zones else "before the first wave"
            lines += wrapped(named, width, first="  ")
        if isinstance(step, PlannedWait):
            wait = f"wait for {step.what}, at most {duration(step.limit)} (deadlines.{step.key})"
            lines += wrapped(wait, width, first=f"    {'':>{digits}}  ", then=" " * 8)
            continue
        before = f"    {step.order:>{digits}}  {step.target:<{target}}  {step.action:<{action}}  "
        lines += wrapped(step.detail, width, first=before, then=" " * 8)
    if any(step.action == _FORCED for step in plan.steps):
        again = f"{_FORCED} is sent again every {POLL_SECONDS:.0f} s until handoff is done."
        lines += wrapped(again, width, first="  ")
    return lines


def _with_waits(plan: Plan) -> list[Step | PlannedWait]:
    """The steps in order, and between them what the run waits for."""
    every: tuple[Step | PlannedWait, ...] = (*plan.steps, *plan.waits)
    return sorted(every, key=lambda one: one.after + 0.5 if isinstance(one, PlannedWait) else one.order)


def planned_object(plan: Plan) -> dict[str, object]:
    """The merges of a plan; empty for a restart only."""
    if plan.max_segments is None:
        return {}
    return {
        "max_segments": plan.max_segments,
        "merges": [
            {"index": one.index, "segments": one.segments, "bytes": one.bytes, "due": one.due}
            for one in plan.merges
        ],
        "leftovers": [fields_of(one) for one in plan.leftovers],
    }


def planned_lines(plan: Plan, most: int | None, width: int | None) -> list[str]:
    """The same for people, with at most so many rows."""
    if plan.max_segments is None:
        return []
    segments = counted(plan.max_segments, "segment")
    title = f"Merges to at most {segments} a copy, in this order, before any stop (not in the prediction):"
    shown = plan.merges if most is None or len(plan.merges) <= most else plan.merges[: most - 1]
    rest = plan.merges[len(shown) :]
    rows = [(f"  {one.index}", str(one.segments), size(one.bytes), _what(one)) for one in shown]
    if rest:
        due = sum(one.due for one in rest)
        rows.append(
            (f"  … {len(rest)} more", "", size(sum(one.bytes for one in rest)), f"{due} to be merged")
        )
    return [
        *wrapped(title, width),
        *table(("  INDEX", "SEGMENTS", "BYTES", ""), rows, numbers=(1, 2), width=width),
        *(line for said in leftover_lines(plan.leftovers) for line in wrapped(said, width, first="  ")),
    ]


def _what(target: MergeTarget) -> str:
    return "to be merged" if target.due else "few enough already"


def leftover_lines(leftovers: Sequence[LoaderLeftover]) -> list[str]:
    """Settings of bulk loaders, a line for each, with its change."""
    by_fate: dict[tuple[str, str, bool, str | None], list[str]] = {}
    for one in leftovers:
        by_fate.setdefault((one.setting, one.found, one.put_right, one.wanted), []).append(one.index)
    lines = []
    for (key, found, put_right, wanted), indices in by_fate.items():
        name = key.removeprefix("index.")
        if put_right:
            fate = f"set to {'the default' if wanted is None else wanted} after the merge"
        else:
            fate = "not changed: force_merge.put_right of the playbook does not name it"
        lines.append(f"found: {name} {found} on {listed(indices, 5)}; {fate}")
    return lines
