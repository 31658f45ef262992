"""A hostile text in a field of a journal that another account may have written, and what shows it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.hostile import EVIL, FORGED, evil
from tests.cli.runs import RUN, ended_run
from tests.fakes.recorded_cluster import Field, fields_of, spoilt

COMMANDS = (
    ("status",),
    ("history",),
    ("report",),
    ("report", "--output", "json"),
    ("history", "--output", "csv"),
)


def planted(events: list[str]) -> Iterator[tuple[int, Field]]:
    """Each text of each kind of event, once: the event's number and the way to the text."""
    seen = set[tuple[object, ...]]()
    for number, text in enumerate(events):
        event = json.loads(text)
        for field in fields_of(event):
            kind = (event["event"], *("*" if isinstance(step, int) else step for step in field))
            if kind not in seen and field[0] != "event":
                seen.add(kind)
                yield number, field


@pytest.mark.slow
def test_a_hostile_journal_forges_nothing(console: Console) -> None:
    ended_run(console)
    with closing(sqlite3.connect(console.state)) as state, state:
        rows = state.execute(
            "select sequence, event from events where run = ? order by sequence", (RUN,)
        ).fetchall()
        found = []
        for number, field in planted([text for _, text in rows]):
            sequence, text = rows[number]
            changed = json.dumps(spoilt(json.loads(text), field, EVIL))
            state.execute("update events set event = ? where sequence = ?", (changed, sequence))
            state.commit()
            for command in COMMANDS:
                said = console.run(*command)
                where = f"{text[:60]} {field}, {' '.join(command)}"
                found += [f"{where}: {one}" for one in evil(console, said)]
                if said.code == ExitCode.DEFECT:
                    found.append(f"{where}: {said.err[-300:]}")
            state.execute("update events set event = ? where sequence = ?", (text, sequence))
        state.commit()
    assert list(planted([text for _, text in rows]))
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_hostile_plan_forges_nothing(console: Console, file: str) -> None:
    """Without `--yes` and a terminal `apply` begins no run: it shows the plan, or what is wrong with it."""
    path = console.folder / "plan.json"
    assert console.run("plan", "--cluster", file, "--out", str(path)).code == ExitCode.DONE
    plan, found, seen = json.loads(path.read_text()), [], set[tuple[object, ...]]()
    for field in fields_of(plan):
        kind = tuple("*" if isinstance(step, int) else step for step in field)[-2:]
        if kind in seen:
            continue
        seen.add(kind)
        path.write_text(json.dumps(spoilt(plan, field, EVIL)))
        said = console.run("apply", str(path))
        found += [f"{field}: {one}" for one in evil(console, said)]
        found += [f"{field}: {said.err[-300:]}"] if said.code == ExitCode.DEFECT else []
    assert seen
    assert not found, "\n".join(found)


def test_an_error_about_a_name_is_one_line(console: Console) -> None:
    ended_run(console)
    said = console.run("status", f"x\n{FORGED}")
    assert (said.code, said.out, said.err.count("\n")) == (ExitCode.USAGE, "", 1)
