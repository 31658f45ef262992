"""A hostile text in a field of a journal that another account may have written, and what shows it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console, Said
from tests.cli.hostile import EVIL, FORGED, evil
from tests.cli.runs import RUN, ended_run
from tests.cli.small_cluster import SmallCluster
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
        assert len(list(planted([text for _, text in rows]))) > 40
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_a_hostile_plan_forges_nothing(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--yes` and a terminal `apply` begins no run: it shows the plan, or what is wrong with it."""
    path, state = console.folder / "plan.json", f"sqlite:///{console.state}"
    with SmallCluster() as cluster:
        file = cluster.write_file(console.folder)
        assert run(["plan", "--cluster", file, "--out", str(path), "--state", state]) == ExitCode.DONE
        capsys.readouterr()
        plan, found, seen = json.loads(path.read_text()), [], set[tuple[object, ...]]()
        for field in fields_of(plan):
            kind = tuple("*" if isinstance(step, int) else step for step in field)[-2:]
            if kind in seen:
                continue
            seen.add(kind)
            path.write_text(json.dumps(spoilt(plan, field, EVIL)))
            code = run(["apply", str(path), "--state", state])
            out, err = capsys.readouterr()
            said = Said(command=("apply",), code=code, out=out, err=err)
            found += [f"{field}: {one}" for one in evil(console, said)]
            found += [f"{field}: {err[-300:]}"] if code == ExitCode.DEFECT else []
        assert len(seen) > 100
    assert not found, "\n".join(found)


def test_an_error_about_a_name_is_one_line(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    ended_run(console)
    code = run(["status", f"x\n{FORGED}", "--state", f"sqlite:///{console.state}"])
    out, err = capsys.readouterr()
    assert code == ExitCode.USAGE
    assert out == ""
    assert len(err.splitlines()) == 1
