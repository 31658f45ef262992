"""`orchestrate tune` as an operator types it, and what the journal tells of a node's time down."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from typing import Any

from tests.integration.operating import Operator
from tests.integration.zoning import events


def states(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What `tune check` says of each host and tunable."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in events(run.stdout, "tunable"):
        found.setdefault(line["node"], {})[line["tunable"]] = line
    assert found, run.stdout + run.stderr
    return found


def verdicts(run: subprocess.CompletedProcess[str], verdict: str) -> dict[str, set[str]]:
    """Tunables of that verdict, by host."""
    return {
        node: {name for name, line in tunables.items() if line["verdict"] == verdict}
        for node, tunables in states(run).items()
    }


def check(operator: Operator, *words: str) -> subprocess.CompletedProcess[str]:
    return operator.orchestrate(
        "tune",
        "check",
        "--cluster",
        str(operator.folder / "lab.yml"),
        "--output",
        "json",
        *words,
        seconds=120,
    )


def revert(operator: Operator, *words: str) -> subprocess.CompletedProcess[str]:
    file = str(operator.folder / "lab.yml")
    return operator.orchestrate(
        "tune", "revert", "--cluster", file, "--yes", "--output", "json", *words, seconds=300
    )


def journal(operator: Operator) -> list[dict[str, Any]]:
    """Every event of the only run, from the state database itself, past the program."""
    with contextlib.closing(
        sqlite3.connect(f"file:{operator.folder}/state.db?mode=ro", uri=True)
    ) as database:
        rows = database.execute("select event from events order by sequence").fetchall()
    return [json.loads(row[0]) for row in rows]


def window(written: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    """What the journal tells of a node's time down: stop, what was sent and confirmed, start."""
    told: list[tuple[str, str]] = []
    for event in written:
        match event:
            case {"event": "action_sent" | "action_confirmed" as kind, "action": {"node": node} as action}:
                if node == name and action["verb"] in {"stop", "tune", "start"}:
                    told.append((f"{kind} {action['verb']}", action.get("tunable", "")))
            case {"event": "phase_entered", "node": node, "to": "stopped" | "starting" as phase}:
                if node == name:
                    told.append((phase, ""))
            case {"event": "tuning_applied" | "tuning_missed" as kind, "node": node, "tunable": tunable}:
                if node == name:
                    told.append((kind, tunable))
    return told


def assert_in_the_window(written: list[dict[str, Any]], name: str, tunables: set[str]) -> None:
    """Stopped, everything sent with what was found, all read back, started: in this order, once each."""
    told = window(written, name)
    stop, start = told.index(("stopped", "")), told.index(("action_sent start", ""))
    assert [kind for kind, _ in told].count("action_sent stop") == 1, told
    for kind in ("action_sent tune", "tuning_applied"):
        places = [place for place, (each, _) in enumerate(told) if each == kind]
        assert {told[place][1] for place in places} == tunables, told
        assert len(places) == len(tunables), told
        assert all(stop < place < start for place in places), told
    for tunable in tunables:
        assert told.index(("action_sent tune", tunable)) < told.index(("tuning_applied", tunable)), told
    assert "tuning_missed" not in {kind for kind, _ in told}, told


def found_values(written: list[dict[str, Any]], name: str) -> dict[str, str]:
    """What the journal says was found in the kernel, by path, written before anything was changed."""
    return {
        change["path"]: change["found"]
        for event in written
        if event["event"] == "action_sent"
        and event["action"]["verb"] == "tune"
        and event["action"]["node"] == name
        for change in event["action"]["changes"]
        if change["change"] == "value"
    }
