"""The end of each simulated run for people: its form, and its last line, which is typed as it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from typer.main import get_command

from orchestrator.cli.program import app
from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.event import Event, Record
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind
from orchestrator.next_command import AFTER
from orchestrator.runs.report import facts_of_run
from orchestrator.view.advice import advice
from orchestrator.view.status import status_text
from orchestrator.view.summary import VERDICTS, Summary, summary, summary_lines

LINES, COLUMNS = 24, 80
_NARROW: Final = 60
_FEW: Final = 7
"""Nodes of a run whose end fits a small screen, whatever befell it."""
_GROUP: Final[Any] = get_command(app)
_CUT: Final = re.compile(r"and \d+ more")
_OF_HELD: Final = frozenset({"restart", "upgrade", "post-bulk-index", "force-merge"})


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """The verb of a command line and its parameters, as the program reads them."""
    program, verb, *words = shlex.split(command)
    assert program == "orchestrate"
    context = _GROUP.commands[verb].make_context(verb, words)
    return verb, context.params


def next_of(state: RunState) -> str:
    """What a person types next; empty for nothing."""
    step = advice(state)
    return "" if step is None else step.command


def read(state: RunState, records: Sequence[Record], told: Sequence[Event]) -> Summary | None:
    """The end of an attempt as it is shown, after a look at its form and its next command.

    The command is the same in the summary, the status and the report, and that of the exit code; after a
    run that is done, there is none.
    """
    if state.outcome is None:
        return None
    events = told or [record.event for record in records]
    end = summary(state, state.outcome, events, records[-1].at)
    lines, small, narrow = (summary_lines(end, width) for width in (None, COLUMNS, _NARROW))
    assert lines[0].startswith(f"{VERDICTS[end.exit_code in (0, 9)]} {end.cluster}: "), lines[0]
    assert len(state.nodes) > _FEW or end.merges or len(small) <= LINES, small
    whole = {"\\", *" ".join(lines).split()}
    for shown in (small, narrow):
        cut = {word for line in shown if _CUT.fullmatch(line.strip()) for word in line.split()}
        assert {word for line in shown for word in line.split()} <= whole | cut, "a word is broken"
    assert not [line for line in narrow if len(line) > _NARROW and len(line.split()) > 1], narrow
    command = next_of(state)
    if not command:
        assert state.outcome in (Outcome.DONE, Outcome.RESTORED)
        assert "orchestrate" not in lines[-1]
        return end
    verb, given = parsed(command)
    assert lines[-1] == f"    {command}"
    usual = AFTER.get(state.outcome.exit_code)
    if state.outcome is Outcome.HELD and verb in _OF_HELD:
        assert given["cluster"]
    elif state.begun.repairs is not None:
        assert verb == "restore"
    elif usual is not None:
        assert command == usual.command(state.run, state=state.process.state)
    else:
        assert (state.outcome, verb) == (Outcome.RESTORED, "resume")
    assert f"    {command}\n" in status_text(state, records[-1:], now=records[-1].at)
    if state.begun.policy.kind is Kind.ELASTICSEARCH and replay(state.run, records) == state:
        assert facts_of_run(state.run, records, str)["next"]["command"] == command
    return end
