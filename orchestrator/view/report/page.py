"""The pages: one self-contained file each, without scripts and without requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from orchestrator.formats import counted, duration, listed, setting, size
from orchestrator.holds import GATES_OPEN, public_in_words
from orchestrator.names import OUTCOMES
from orchestrator.steps import TURN, step_of_node, step_of_run
from orchestrator.view.report import charts
from orchestrator.view.report.facts import SLOW, Facts, seconds_of

_TONES: Final = {"done": "good", "restored": "good", "failed": "bad", "not_restored": "bad"}
"""Public name of an outcome to its tone; that of every other one is `fair`."""
_LISTED: Final = 200
"""Lines of one list on the page; the JSON has all of them."""


def run_page(facts: Facts, zone: tzinfo | None = None, *, status: Mapping[str, Any] | None = None) -> str:
    """The page of a run.

    Args:
        facts: of the run, as from `facts_of`.
        zone: of the times on the page; None is that of this machine.
        status: of `status --output json`, for a page that a server keeps up to date.
    """
    axis = charts.Axis(facts["attempts"], zone)
    return _render(
        "run.html" if status is None else "live_run.html",
        zone,
        facts=facts,
        status=status,
        axis=axis,
        timeline=charts.timeline(facts, axis),
        health=charts.health(facts, axis),
        times=charts.node_times(facts),
        copied=charts.node_bytes(facts),
        holds=_holds(facts),
        commands=_commands(facts),
        tuning=_tuning(facts),
        slow=[node for node in facts["nodes"] if node["slow"]],
        steps=tuple(TURN.values()),
        slow_by=SLOW,
        few=charts.FEW,
    )


def history_page(
    runs: Sequence[Facts],
    links: Mapping[str, str],
    zone: tzinfo | None = None,
    *,
    live: Mapping[str, Any] | None = None,
) -> str:
    """The page of past runs: seconds a node over the months, by version.

    Args:
        runs: objects of `history --output json`, the oldest first.
        links: run to the address of its own page, for runs that have one.
        zone: of the times on the page; None is that of this machine.
        live: for a page kept up to date, the runs that are `under_way`, and `faults` of others.
    """
    names = dict.fromkeys(run["cluster"] for run in runs)
    clusters = {name: [run for run in runs if run["cluster"] == name] for name in names}
    parts = {name: (of, charts.past_runs(of, zone)) for name, of in clusters.items()}
    template = "history.html" if live is None else "live_history.html"
    return _render(template, zone, clusters=parts, links=links, live=live)


def _render(template: str, zone: tzinfo | None, **values: Any) -> str:
    return _templates().get_template(template).render(clock=partial(_clock, zone), **values)


@cache
def _templates() -> Environment:
    """Everything that a template shows is escaped."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        duration=duration, size=size, setting=setting, listed=listed, hold_in_words=public_in_words
    )
    found.filters.update(step_of_node=step_of_node, step_of_run=step_of_run)
    found.globals.update(counted=counted, seconds_of=seconds_of, ending=_ending, most=_LISTED)
    return found


def _ending(outcome: str | None) -> tuple[str, str]:
    """The tone and the words of an outcome; one that this version does not have is its own name."""
    if outcome is None:
        return "fair", "no end recorded"
    return _TONES.get(outcome, "fair"), OUTCOMES.get(outcome, outcome)


def _clock(zone: tzinfo | None, when: float | str, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in the zone of the page."""
    at = datetime.fromisoformat(when) if isinstance(when, str) else datetime.fromtimestamp(when).astimezone()
    return at.astimezone(zone).strftime(form)


def _holds(facts: Facts) -> list[dict[str, Any]]:
    """The holds of one predicate or gate as one line, the one that cost most first."""
    found: dict[str, dict[str, Any]] = {}
    for hold in facts["holds"]:
        gate = hold["predicate"] == GATES_OPEN
        name = f"gate {hold['subject']}" if gate else hold["predicate"]
        new: dict[str, Any] = {"name": name, "times": 0, "seconds": 0.0, "longest": -1.0, "alerts": {}}
        line = found.setdefault(name, new)
        line["alerts"] |= dict.fromkeys(hold["subjects"] if gate else ())
        line["times"] += 1
        line["seconds"] += hold["seconds"]
        if hold["seconds"] > line["longest"]:
            line |= {"longest": hold["seconds"], "subject": "" if gate else hold["subject"]}
            line |= {"evidence": hold["evidence"], "count": hold["count"], "began": hold["began"]}
    return sorted(found.values(), key=lambda line: -float(line["seconds"]))


def _commands(facts: Facts) -> list[dict[str, Any]]:
    """The same command for several nodes, or several times, as one line."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for command in facts["commands"]:
        key = (command["verb"], command["detail"])
        line = found.setdefault(key, {"verb": key[0], "detail": key[1], "each": [], "results": Counter()})
        line["each"].append(command)
        line["results"][command["result"]] += 1
    for line in found.values():
        line["targets"] = list(dict.fromkeys(command["target"] for command in line["each"]))
        answers: dict[tuple[str, str], dict[str, Any]] = {}
        for one in line["each"]:
            if one["said"] or one["result"] != "done":
                same = answers.setdefault((one["result"], one["said"]), {**one, "targets": {}})
                same["targets"][one["target"]] = None  # each once, in their order
        line["answers"] = list(answers.values())
    return list(found.values())


def _tuning(facts: Facts) -> list[dict[str, Any]]:
    """The same change on several hosts as one line."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change in facts["tuning"]:
        key = tuple(change[name] for name in ("tunable", "before", "after", "why"))
        found.setdefault(key, {**change, "nodes": []})["nodes"].append(change["node"])
    return list(found.values())
