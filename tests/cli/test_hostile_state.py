"""A hostile text in a field of a journal that another account may have written, and what shows it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console, Said
from tests.cli.hostile import EVIL, evil
from tests.cli.runs import RUN, ended_run
from tests.fakes.recorded_cluster import Field, fields_of, spoilt

COMMANDS = (("status",), ("history",))


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
def test_a_hostile_journal_forges_nothing(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    ended_run(console)
    with sqlite3.connect(console.state) as state:
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
                code = run([*command, "--state", f"sqlite:///{console.state}"])
                out, err = capsys.readouterr()
                said = Said(command=command, code=code, out=out, err=err)
                where = f"{text[:60]} {field}, {' '.join(command)}"
                found += [f"{where}: {one}" for one in evil(console, said)]
                if code == ExitCode.DEFECT:
                    found.append(f"{where}: {err[-300:]}")
            state.execute("update events set event = ? where sequence = ?", (text, sequence))
        state.commit()
    assert not found, "\n".join(found)
