"""Shows a plan, and asks once before anything is changed."""

from __future__ import annotations

import sys

import typer

from orchestrator.cli.options import Output
from orchestrator.cli.surroundings import Surroundings
from orchestrator.errors import ExitCode, UsageError
from orchestrator.model.plan import Plan
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.summary import hold_object
from orchestrator.view.units import counted, duration, size, visible


def show_plan(plan: Plan, around: Surroundings) -> ExitCode:
    """Print the plan; HELD when something holds it already."""
    code = ExitCode.HELD if plan.holds else ExitCode.DONE
    if around.output is Output.TEXT:
        around.say(plan_text(plan))
        return code
    around.say_json(plan_object(plan))
    return around.end(code, holds=[hold_object(hold) for hold in plan.holds])


def end_not_due(why: str, cluster: str, around: Surroundings) -> ExitCode:
    """Say that nothing is due, and end: done, for a schedule finds that on most days."""
    around.note(why)
    return around.end(
        ExitCode.DONE,
        cluster=cluster,
        nodes_restarted=0,
        restarted=[],
        failed=[],
        pending=[],
        seconds=0.0,
        holds=[],
        left=[],
        message=why,
        nothing_to_do=True,
    )


def confirm(plan: Plan, around: Surroundings, look: str = "--dry-run") -> None:
    """Show the plan and ask.

    Raises:
        UsageError: there is no terminal to ask on.
        typer.Abort: the answer is no.
    """
    require_terminal(around, look)
    show_plan(plan, around)
    ask(question(plan), around)


def question(plan: Plan) -> str:
    """What is asked; on a small terminal the head of the plan has scrolled away by then."""
    number = sum(len(wave.nodes) for wave in plan.waves)
    nodes = counted(number, "node")
    held = f", though {counted(len(plan.holds), 'rule holds', 'rules hold')} it now" if plan.holds else ""
    waves, likely = counted(len(plan.waves), "wave"), duration(plan.predicted.likely)
    if plan.max_segments is not None:
        due = [one for one in plan.merges if one.due]
        merge = f"merge {counted(len(due), 'index', 'indices')} ({size(sum(one.bytes for one in due))})"
        put_right = any(one.put_right for one in plan.leftovers)
        first = merge if due else "put right what the loader left" if put_right else ""
        then = f"restart {nodes} in {waves}, likely {likely}" if number else ""
        what = ", then ".join(part for part in (first, then) if part) or "merge nothing"
        return f"{visible(plan.cluster)}: {what}{held}?"
    return f"Restart {nodes} of {visible(plan.cluster)} in {waves}, likely {likely}{held}?"


def ask(text: str, around: Surroundings) -> None:
    """Ask for a yes.

    Raises:
        typer.Abort: the answer is no, or Ctrl-C.
    """
    try:
        answer = typer.confirm(text)
    except typer.Abort:
        around.note("")  # the terminal's own `^C` stands on the line of the question
        raise
    if not answer:
        raise typer.Abort


def require_terminal(around: Surroundings, look: str = "--dry-run") -> None:
    """A question needs somebody to answer it; asked last, so that what is wrong with the rest is told first.

    Args:
        around: the process.
        look: what shows beforehand what would be done.

    Raises:
        UsageError: there is no terminal.
    """
    if around.output is Output.JSON or not (sys.stdin.isatty() and around.out.isatty()):
        raise UsageError(f"there is no terminal to ask on: look at `{look}`, then add --yes")
