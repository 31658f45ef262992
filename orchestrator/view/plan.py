"""A plan as text for people and as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from orchestrator.model.merging import LoaderLeftover, MergeTarget
from orchestrator.model.plan import FoundAndWanted, Plan, Step, ValueToday, by_key
from orchestrator.model.policy import Kind, numbers
from orchestrator.model.riak import is_timer, limit_key, timer_key
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.untrusted import one_line, visible
from orchestrator.view.phrases import hold_object, hold_sentence, prediction_object, prediction_words, product
from orchestrator.view.text import counted, duration, listed, nodes_of, setting, size, table


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
        **planned_object(plan),
    }


def _from_to(settings: Mapping[str, FoundAndWanted]) -> dict[str, object]:
    return {key: {"from": found, "to": wanted} for key, (found, wanted) in settings.items()}


def plan_text(plan: Plan) -> str:
    """The plan for people: first its holds, then the waves, the settings and every exact step."""
    nodes = nodes_of(len(plan.nodes), plan.nodes_selected or len(plan.nodes))
    pause = ", then a pause" if plan.pauses else ""
    fewest, why = plan.lower_bound_waves, plan.lower_bound_reason
    bound = f" (no plan could have fewer than {fewest}: {why}{_as_few(plan)})" if fewest else ""
    span = prediction_words(plan.predicted)
    server = f"{product(plan.distribution, plan.kind)} {plan.version}"
    target = f", upgrade to {plan.target_version}" if plan.target_version else ""
    lines = [
        f"Plan for {plan.cluster}: {server}{target}, strategy {plan.strategy.value}",
        f"{nodes} in {counted(len(plan.waves), 'wave')}{pause}{bound}, {span}",
        *_too_short(plan),
        *([_OVERLAPS] if plan.overlaps else []),
        *([_LOSES_WRITES] if _may_lose_writes(plan) else []),
        *([f"times are based on: {plan.predicted_from}"] if plan.predicted_from else []),
        f"fingerprint {plan.fingerprint}",
        *_versions_after(plan),
        "",
        *_holds(plan),
        "",
    ]
    merges = planned_lines(plan)
    lines += [*merges, "", *_waves(plan)] if merges else _waves(plan)
    if plan.settings_changed:
        lines += ["", *_settings(plan)]
    if plan.steps:
        lines += ["", *_steps(plan)]
    return "\n".join(map(visible, lines)) + "\n"


def _versions_after(plan: Plan) -> list[str]:
    """The line about nodes that run another version afterwards; empty without any."""
    nodes = [f"{node} {version}" for node, version in sorted(plan.other_versions.items())]
    return [f"mixed versions after this run: {listed(nodes, 5)}"] if nodes else []


def _too_short(plan: Plan) -> list[str]:
    if plan.timeout is None or plan.timeout >= plan.predicted.likely:
        return []
    short = f"--timeout {duration(plan.timeout)} is shorter than the run is likely to take"
    return [f"{short}: the run then stands down, and `resume` restarts the other nodes"]


_OVERLAPS: Final = (
    "a wave may begin while copies of earlier waves recover, if its nodes have no copy of those shards "
    "(`overlap_recovery: false` in the playbook switches this off)"
)


_LOSES_WRITES: Final = (
    "before 6.7 a node that stops may acknowledge a write that no other copy has, and it is lost: stop the "
    "writers for the run, or write again what they wrote at each stop"
)
_KEEPS_WRITES: Final = (6, 7)
"""elastic/elasticsearch#39584. Seen on 1.7.6, at 4 of 54 stops: some documents of one request."""


def _may_lose_writes(plan: Plan) -> bool:
    of_elasticsearch = plan.kind is Kind.ELASTICSEARCH and plan.distribution == "elasticsearch"
    return of_elasticsearch and () < numbers(plan.version) < _KEEPS_WRITES


def _as_few(plan: Plan) -> str:
    """The simpler strategy that needs as few waves, if one does."""
    zones = {wave.zone for wave in plan.waves}
    if len(plan.waves) == len(plan.nodes):
        return "; `--strategy node` needs as few"
    if None not in zones and len(zones) == len(plan.waves):
        return "; `--strategy zone` needs as few"
    return ""


def _holds(plan: Plan) -> list[str]:
    if not plan.holds:
        return ["No hold: every predicate passes now."]
    holds = counted(len(plan.holds), "hold")
    then = "The run waits for these conditions to clear."
    if plan.lasting:
        run = "a run" if plan.target_version else "without --begin-anyway a run"
        then = f"Waiting cannot clear {listed(plan.lasting)}: {run} ends at once, with code 3."
    return [f"HELD, as of now: {holds}. {then}", *(f"  {hold_sentence(hold)}" for hold in plan.holds)]


def _waves(plan: Plan) -> list[str]:
    if not plan.waves:
        if plan.holds and plan.owed:
            return ["No waves: the run ends before the first."]
        return ["No waves: no node is " + ("selected." if plan.max_segments is None else "restarted.")]
    rows = [
        (
            str(wave.number),
            wave.zone or "-",
            duration(wave.predicted.likely),
            f"{duration(wave.predicted.low)} - {duration(wave.predicted.high)}",
            listed(wave.nodes, 12),
            one_line(wave.why, 240),
        )
        for wave in plan.waves
    ]
    head = ("WAVE", "ZONE", "LIKELY", "LOW - HIGH", "NODES", "WHY")
    return table(head, rows, numbers=(0, 2, 3))


def _settings(plan: Plan) -> list[str]:
    said = {key: _changed(plan, key) for key in sorted(plan.settings_changed)}
    timers = " and timers" if any(is_timer(key) for key in plan.settings_changed) else ""
    return [
        f"{_SETTINGS[plan.kind]}{timers} that are changed, and restored to their original values at the end:",
        *(f"  {listed(keys, 3)}: {change}" for change, keys in by_same_reason(said.items()).items()),
    ]


def _changed(plan: Plan, key: str) -> str:
    """A setting's value now and during the run, and why: `40mb (default) → 100mb, 2.5 times, so that …`."""
    found, wanted = plan.settings_changed[key]
    today = plan.settings_today.get(key, ValueToday(value=found))
    source = f" ({_SOURCES[today.source]})" if today.source in _SOURCES else ""
    value = setting(today.value)
    times = "" if today.times is None else f", {today.times:.3g} times"
    why = next((f", {why}" for begins, why in _REASONS.items() if key.startswith(begins)), "")
    levels = [
        f"{level} {setting(before)} → {setting(after)}"
        for level, (before, after) in by_key(plan.settings_by_level).get(key, ())
    ]
    both = f" ({'; '.join(levels)})" if len(levels) > 1 else ""
    return f"{value}{source} → {setting(wanted)}{both}{times}{why}"


_SOURCES: Final = {"default": "default", "transient": "transient", "file": "from the nodes' configuration"}

_FASTER: Final = "so that copies come back faster"

_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(DISABLING, "so that copies of stopped nodes are not built elsewhere"),
    **dict.fromkeys((INITIAL_PRIMARIES, CONCURRENT_RECOVERIES, CONCURRENT_STREAMS, BANDWIDTH), _FASTER),
    REBALANCE: "so that no other copies move meanwhile",
    ML_UPGRADE_MODE: "so that machine learning jobs do not fail at every stop",
    limit_key(NodeName("")): "so that handoff ends sooner",
    timer_key(NodeName("")): "so that handoff begins sooner",
}
"""Why a run changes a setting, by its key or the beginning of it."""


_FORCED: Final = action_name(ForceHandoff())

_SETTINGS: Final = {Kind.ELASTICSEARCH: "Cluster settings", Kind.RIAK: "Transfer limits"}


def _steps(plan: Plan) -> list[str]:
    """Every step under its wave, with the exact call or command."""
    digits = len(str(max(step.order for step in plan.steps)))
    target = max(len(step.target) for step in plan.steps)
    action = max(len(step.action) for step in plan.steps)
    zones = {wave.number: wave for wave in plan.waves}
    lines = ["Steps, as a run would send them:"]
    wave: int | None = None
    for step in plan.steps:
        if step.wave != wave:
            wave = step.wave
            named = f"wave {wave}: {listed(zones[wave].nodes)}" if wave in zones else "before the first wave"
            lines.append(f"  {named}")
        lines.append(_step_line(step, digits, target, action))
    if any(step.action == _FORCED for step in plan.steps):
        lines.append(f"  {_FORCED} is sent again every {POLL_SECONDS:.0f} s until handoff is done.")
    return lines


def _step_line(step: Step, digits: int, target: int, action: int) -> str:
    what = f"{step.target:<{target}}  {step.action:<{action}}  {step.detail}"
    return f"    {step.order:>{digits}}  {what}".rstrip()


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


def planned_lines(plan: Plan) -> list[str]:
    """The same for people."""
    if plan.max_segments is None:
        return []
    most = counted(plan.max_segments, "segment")
    rows = [(one.index, str(one.segments), size(one.bytes), _what(one)) for one in plan.merges]
    return [
        f"Merges to at most {most} a copy, in this order, before any stop (not in the prediction):",
        *table(
            ("  INDEX", "SEGMENTS", "BYTES", ""), [(f"  {row[0]}", *row[1:]) for row in rows], numbers=(1, 2)
        ),
        *(f"  {line}" for line in leftover_lines(plan.leftovers)),
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
