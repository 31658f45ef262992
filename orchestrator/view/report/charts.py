"""Places in the charts: percent across and pixels down, so that they fit every width without a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

from orchestrator.formats import counted, duration, size
from orchestrator.holds import in_words
from orchestrator.steps import TURN
from orchestrator.view.report.facts import Facts, seconds_of, spans

FEW: Final = 40
"""So many nodes have a line with their name; of more, each is a thin bar, and the slow ones are named."""
_GAP: Final = 3.0
"""Percent that the time between two attempts takes, hours or days."""
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two marks of the axis; longer ones are whole days."""
_MARKS: Final = 6
_NAMES: Final = 6
_APART: Final = 14.0
"""So many bars that stand out are named, so many percent apart."""
_HIGH: Final = 640
"""Pixels of a timeline of many nodes."""
_NARROW: Final = 0.3
"""Percent below which a bar cannot be pointed at, and so has no words."""
_LEVELS: Final = 12.0
"""Percent that the durations at the left of the chart of past runs take, on a phone."""
_MINUTE: Final = 60


class Axis:
    """The time of all attempts, from 0 to 100 percent. The time between them is left out but for a gap."""

    def __init__(self, attempts: Sequence[Facts], zone: tzinfo | None) -> None:
        self._pieces: list[tuple[float, float]] = [
            (one["began"], max(one["ended"], one["began"] + 0.001)) for one in attempts
        ]
        self._zone = zone
        self._gap = min(_GAP, 30.0 / len(attempts))
        active: float = sum(end - began for began, end in self._pieces)
        self._scale = (100.0 - self._gap * (len(attempts) - 1)) / active
        self._step = next((one for one in _STEPS if active / one <= _MARKS), 86400 * (1 + active // 518400))

    def at(self, when: float) -> float:
        """Its place in percent."""
        place = 0.0
        for began, end in self._pieces:
            if when <= end:
                return round(place + max(0.0, when - began) * self._scale, 3)
            place += (end - began) * self._scale + self._gap
        return 100.0

    def span(self, began: float, ended: float) -> dict[str, float]:
        """`x` and `w`; what took no time is still seen."""
        x = self.at(began)
        return {"x": min(x, 99.9), "w": max(0.1, round(self.at(ended) - x, 3))}

    @property
    def gaps(self) -> list[dict[str, Any]]:
        """The times between attempts."""
        pairs = zip(self._pieces, self._pieces[1:], strict=False)
        return [
            {"x": self.at(end), "w": self._gap, "text": f"{duration(began - end)} until the next attempt"}
            for (_, end), (began, _) in pairs
        ]

    @property
    def marks(self) -> list[dict[str, Any]]:
        """Round times of the clock, apart from each other."""
        found = list[dict[str, Any]]()
        for began, end in self._pieces:
            local = datetime.fromtimestamp(began, self._zone).astimezone(self._zone)
            midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
            passed = (local - midnight).total_seconds()
            when = midnight + timedelta(seconds=self._step * -(-passed // self._step))
            while when.timestamp() <= end:
                x = self.at(when.timestamp())
                if x < 100 - 100 / (2 * _MARKS) and (not found or x - found[-1]["x"] >= 100 / (_MARKS + 2)):
                    form = "%H:%M:%S" if self._step < _MINUTE else "%H:%M"
                    found.append({"x": x, "text": when.strftime(form)})
                when += timedelta(seconds=self._step)
        return found


def timeline(facts: Facts, axis: Axis) -> dict[str, Any]:
    """Waves and nodes by step, a line for each node; above them what held the run."""
    few = len(facts["nodes"]) <= FEW
    pitch = 22 if few else max(2, min(8, _HIGH // len(facts["nodes"])))
    rows = {node["node"]: 20 + at * pitch for at, node in enumerate(facts["nodes"])}
    bars, names = list[dict[str, Any]](), list[dict[str, Any]]()
    for node in facts["nodes"]:
        y = rows[node["node"]]
        for turn in node["turns"]:
            text = f"{node['node']}: {turn['step']} {duration(turn['ended'] - turn['began'])}"
            place = axis.span(turn["began"], turn["ended"])
            bars.append(
                {**place, "y": y + (4 if few else 0), "step": turn["step"], "text": _if_it_fits(place, text)}
            )
        if few:
            names.append({"y": y + 15, **_name(node, axis)})
    waves = [
        {**axis.span(wave["began"], wave["ended"]), "y": rows[name], "number": wave["number"]}
        for wave in facts["waves"]
        for name in wave["nodes"]
    ]
    if not few:
        names = _wave_names(facts, rows, axis)
    return {
        "height": 20 + pitch * len(rows) + 6,
        "pitch": pitch,
        "bar": pitch - 8 if few else max(2, pitch - 1),
        "bars": bars,
        "names": names,
        "waves": waves,
        "holds": [
            {
                **axis.span(one["began"], one["ended"]),
                "text": "held by "
                + in_words(one["predicate"], [one["subject"]], one["count"], one["evidence"]),
            }
            for one in facts["holds"]
        ],
    }


def _name(node: Facts, axis: Axis) -> dict[str, Any]:
    """The name of a node, beside its bars on the side where there is room, with its time."""
    word = {"failed": "failed", "skipped": "skipped"}.get(node["phase"])
    if node["phase"] in ("pending", *TURN):
        word = "not restarted" if not node["turns"] else "not finished"
    took = "" if node["seconds"] is None else duration(node["seconds"])
    text = " · ".join(part for part in (node["node"], word or took) if part)
    bad = word is not None
    if not node["turns"]:
        return {"x": 0.5, "anchor": "start", "dx": 0, "text": text, "bad": bad}
    edges = [axis.at(turn[edge]) for turn in node["turns"] for edge in ("began", "ended")]
    # Of a turn over several attempts, there may be more room between two steps than beside them.
    free = zip([0.0, *edges[1::2]], [*edges[::2], 100.0], strict=True)
    _, left, right = max((right - left, left, right) for left, right in free)
    place = {"x": left, "anchor": "start", "dx": 6} if left else {"x": right, "anchor": "end", "dx": -6}
    return {**place, "text": text, "bad": bad}


def _wave_names(facts: Facts, rows: Mapping[str, int], axis: Axis) -> list[dict[str, Any]]:
    """The names of waves of many nodes, apart from each other; `more` of each where there is room for it."""
    found = list[dict[str, Any]]()
    for wave in facts["waves"]:
        y = min(rows[name] for name in wave["nodes"])
        if found and 0 <= y - found[-1]["top"] < (90 if len(facts["waves"]) > FEW else 16):
            continue
        zone = f", zone {wave['zone']}" if wave["zone"] else ""
        nodes = counted(len(wave["nodes"]), "node") if len(wave["nodes"]) > 1 else wave["nodes"][0]
        place = _beside(axis.at(wave["began"]), axis.at(wave["ended"]))
        # The next waves are to the right and below: a name on that side is above its own.
        below = 10 if place["anchor"] == "end" or len(wave["nodes"]) > 1 else -2
        text, more = f"wave {wave['number']}", f"{zone}: {nodes}"
        found.append({**place, "y": y + below, "top": y, "text": text, "more": more, "bad": False})
    return found


def _beside(began: float, ended: float) -> dict[str, Any]:
    if 100 - ended >= began:
        return {"x": ended, "anchor": "start", "dx": 6}
    return {"x": began, "anchor": "end", "dx": -6}


def health(facts: Facts, axis: Axis) -> dict[str, Any] | None:
    """Health, unassigned and recovering copies over time; None where no sample was recorded."""
    if not facts["samples"]:
        return None
    drawn = list[dict[str, Any]]()
    for one in spans(facts["samples"], facts["attempts"]):
        x = axis.at(one["at"])  # no least width: what is short blends, and has its share of the colour
        numbers = {name: one[name] for name in ("health", "unassigned", "recovering")}
        drawn.append({"x": x, "w": round(axis.at(one["ended"]) - x, 3), **numbers})
    most = max(one["unassigned"] + one["recovering"] for one in drawn)
    for one in drawn:
        copies = f"{counted(one['unassigned'], 'copy', 'copies')} unassigned, {one['recovering']} recovering"
        one["text"] = _if_it_fits(one, f"{one['health']}: {copies}")
        one["up"] = round(90 * one["unassigned"] / most, 1) if most else 0
        one["on"] = round(90 * one["recovering"] / most, 1) if most else 0
    return {"bars": drawn, "most": most}


def node_times(facts: Facts) -> dict[str, Any] | None:
    """Seconds of each node from its stop to its recovery, beside the prediction."""
    timed = [node for node in facts["nodes"] if node["seconds"] is not None]
    if not timed:
        return None
    top = max(max(node["seconds"], node["predicted_seconds"] or 0.0) for node in timed) or 1.0
    bars = [
        {
            "node": node["node"],
            "slow": node["slow"],
            "share": _percent(node["seconds"], top),
            "mark": None if node["predicted_seconds"] is None else _percent(node["predicted_seconds"], top),
            "steps": _steps(node, top),
            "took": duration(node["seconds"]),
            "likely": "" if node["predicted_seconds"] is None else duration(node["predicted_seconds"]),
        }
        for node in timed
    ]
    return {"few": len(bars) <= FEW, "bars": bars, "top": duration(top), "named": _named(bars)}


def node_bytes(facts: Facts) -> dict[str, Any] | None:
    """Bytes that each node found on its own disk, and bytes that were copied to it."""
    known = [
        node
        for node in facts["nodes"]
        if node["bytes_copied"] is not None or node["bytes_reused"] is not None
    ]
    if not known:
        return None
    top = max((node["bytes_reused"] or 0) + (node["bytes_copied"] or 0) for node in known) or 1
    bars = [
        {
            "node": node["node"],
            "share": _percent((node["bytes_reused"] or 0) + (node["bytes_copied"] or 0), top),
            "reused": _percent(node["bytes_reused"] or 0, top),
            "copied": _percent(node["bytes_copied"] or 0, top),
            "text": f"{size(node['bytes_reused'] or 0)} reused, {size(node['bytes_copied'] or 0)} copied",
            "took": size(node["bytes_copied"] or 0),
            "slow": (node["bytes_copied"] or 0) > (node["bytes_reused"] or 0),
        }
        for node in known
    ]
    return {"few": len(bars) <= FEW, "bars": bars, "top": size(top), "named": _named(bars)}


def _if_it_fits(place: Mapping[str, Any], text: str) -> str:
    return text if place["w"] >= _NARROW else ""


def _percent(part: float, whole: float) -> float:
    return round(100.0 * part / whole, 2)


def _steps(node: Facts, top: float) -> list[dict[str, Any]]:
    found, x = list[dict[str, Any]](), 0.0
    for step in TURN.values():
        seconds = node[seconds_of(step)] or 0.0
        if seconds:
            found.append({"step": step, "x": x, "w": _percent(seconds, top), "text": duration(seconds)})
            x = round(x + found[-1]["w"], 2)
    return found


def _named(bars: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The names of the bars that stand out, the highest first, as far as there is room above the bars."""
    found = list[dict[str, Any]]()
    wide = 100.0 / len(bars)
    for at in sorted(range(len(bars)), key=lambda at: -bars[at]["share"]):
        x = (at + 0.5) * wide
        if bars[at]["slow"] and all(abs(x - one["x"]) > _APART for one in found) and len(found) < _NAMES:
            text = f"{bars[at]['node']} {bars[at]['took']}"
            found.append({"x": round(x, 2), "anchor": _anchor(x), "text": text})
    return found


def _anchor(x: float) -> str:
    """How a text at this percent is anchored, so that it stays inside of the chart."""
    return "start" if x < _APART / 2 else "end" if x > 100 - _APART / 2 else "middle"


def past_runs(runs: Iterable[Facts], zone: tzinfo | None) -> dict[str, Any] | None:
    """Seconds a node of each run over the months: the median, and the range of its nodes."""
    timed = [run for run in runs if run["seconds_a_node"] is not None]
    if not timed:
        return None
    first, last = (datetime.fromisoformat(timed[at]["started"]).timestamp() for at in (0, -1))
    length = max(1.0, last - first)
    top: float = max(max(run["node_seconds"].values()) for run in timed)
    versions = list(dict.fromkeys(run["version"] for run in timed))

    def across(when: float) -> float:
        return round(_LEVELS + (96 - _LEVELS) * (when - first) / length, 2)

    def up(seconds: float) -> float:
        return round(170.0 - 150.0 * seconds / top, 1)

    points = [
        {
            **run,
            "x": across(datetime.fromisoformat(run["started"]).timestamp()),
            "y": up(run["seconds_a_node"]),
            "low": up(min(run["node_seconds"].values())),
            "high": up(max(run["node_seconds"].values())),
            "colour": versions.index(run["version"]) % 6,
            "text": f"{run['run']}: {duration(run['seconds_a_node'])} a node, {run['version']}",
        }
        for run in timed
    ]
    marks = list[dict[str, Any]]()
    for point in points:
        x = point["x"]
        if not marks or x - marks[-1]["x"] > 100 / _MARKS:
            marks.append({"x": x, "anchor": _anchor(x), "text": _day(point["started"], zone)})
    levels = [(20, duration(top)), (95, duration(top / 2)), (170, "0s")]
    return {"points": points, "versions": versions, "marks": marks, "levels": levels}


def _day(started: str, zone: tzinfo | None) -> str:
    return datetime.fromisoformat(started).astimezone(zone).strftime("%Y-%m-%d")
