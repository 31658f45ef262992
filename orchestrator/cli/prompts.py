"""The plan and the questions before a change, and the ways that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import typer

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Begin, Output, SelectionOptions
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.merging import MergeFlags
from orchestrator.config.policy import Overrides, require_segments
from orchestrator.engine.fold import replay
from orchestrator.errors import ExitCode, JournalError, OrchestratorError, UsageError
from orchestrator.model.phase import Request
from orchestrator.model.plan import Plan
from orchestrator.next_command import next_command
from orchestrator.runs.attempt import RestoreFailed, exit_code
from orchestrator.runs.connection import Agrees
from orchestrator.runs.past_runs import Wanted, find_run, leave_request, state_in_words
from orchestrator.runs.prepare import Preparation, prepare
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import host_name, suspended_pid
from orchestrator.runtime.lease import ClusterHolder
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.untrusted import one_line, visible
from orchestrator.view.phrases import hold_object
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.summary import VERDICTS
from orchestrator.view.text import counted, nodes_of, size, wrapped

_REQUESTS: Final[Mapping[Request, str]] = {
    Request.PAUSE: "pause after the current wave or merges",
    Request.STOP: "stand down now",
    Request.INTERRUPT: "stand down now",
}


def start(
    cluster: str,
    selection: SelectionOptions,
    begin: Begin,
    *,
    dry_run: bool,
    steps: bool,
    playbook: str | None,
    to: str | None = None,
    merge: MergeFlags | None = None,
    restarts: bool = True,
) -> int:
    """Plan a run and begin it, after a question. If nothing is due, it ends in seconds and takes no lease.

    Args:
        cluster: name or path of its file.
        selection: nodes and policy.
        begin: among them `--yes`: do not ask, and show no plan.
        dry_run: only show the plan.
        steps: show the plan in full.
        playbook: `--playbook`.
        to: the version of an upgrade.
        merge: which indices are merged.
        restarts: False if only indices are merged.

    Returns:
        The exit code.

    Raises:
        UsageError: a question is needed, and there is no terminal.
        typer.Abort: the answer is no.
    """
    overrides = selection.overrides(reason=begin.reason, merge=merge, to=to)
    context, yes = context_of(begin.output), begin.yes
    file = context.cluster(cluster)
    if merge is not None:
        require_segments(file)
    asks = not (yes or dry_run)
    if asks:
        context.require_state(begin.state)
    with prepared_run(
        context, file, playbook=playbook, overrides=overrides, state=begin.state, asks=asks, restarts=restarts
    ) as first:
        if dry_run:
            note_beforehand(first, context)
            return int(show_plan(first.plan(), context, steps=steps, restores=first.left is not None))
        try:
            prepared = first.restored() if first.not_due or (yes and first.left is not None) else first
        except RestoreFailed as failed:
            return int(exit_code(failed.state))
        if prepared.not_due:
            return end_without_nodes(prepared, context)
        note_beforehand(prepared, context, looks=not yes)
        plan = None
        if not yes:
            plan = prepared.plan()
            confirm(prepared, plan, context, steps=steps)
        return int(exit_code(prepared.run(plan)))


def request(
    wanted: Request, run: str | None, *, cluster: str | None, yes: bool, output: Output, state: str | None
) -> int:
    """Write a request into the state, where the run finds it. Returns the exit code."""
    context = context_of(output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, DatabaseUse.CONTINUE) as store:
        entry = find_run(store, Wanted.REQUEST, run=run, cluster=name)
        if run is None and name is None:
            confirm_run(wanted.name.lower(), entry, store, context, yes=yes)
        by = f"{context.operator}@{host_name()}"
        before, first = _asked_before(store, entry)
        leave_request(store, entry, wanted, by=by, at=context.clock.now())
    if before >= wanted:
        message = (
            f"run {entry.run} on {entry.cluster} was already asked by {one_line(first)} to "
            f"{_REQUESTS[before]}"
        )
        message += f"; this request to {wanted.name.lower()} adds nothing" if before > wanted else ""
    else:
        message = f"asked run {entry.run} on {entry.cluster} to {_REQUESTS[wanted]}"
    message += f"; `{store.command('status', entry.run)}` shows it"
    pid = suspended_pid(entry.process)
    if pid is not None:
        message += f"; its process {pid} is suspended and reads it after `kill -CONT {pid}`"
    if context.output.for_people:
        context.say(message)
    return int(context.end(ExitCode.DONE, run=entry.run, cluster=entry.cluster, message=message))


def _asked_before(store: StateStore, entry: RunEntry) -> tuple[Request, str]:
    """The request that the run has read already, and who left it; none if its journal cannot be read."""
    with suppress(JournalError):
        process = replay(entry.run, store.replay(entry.run)).process
        return process.request, process.requested_by
    return Request.NONE, ""


def show_plan(plan: Plan, context: Context, *, steps: bool, restores: bool) -> ExitCode:
    """Print the plan, in full with `steps`; HELD if something already holds it.

    `restores`: the run first restores what an earlier one has left.
    """
    code = ExitCode.HELD if plan.holds else ExitCode.DONE
    if context.output.for_people:
        text = plan_text(plan, steps=steps, width=context.columns, restores=restores)
        context.say(*text.splitlines())
        return code
    context.say_json(plan_object(plan))
    return context.end(code, holds=[hold_object(hold) for hold in plan.holds])


def note_beforehand(prepared: Preparation, context: Context, *, looks: bool = True) -> None:
    """Print which run has or had the cluster, and that nothing is due. `looks`: a person reads a plan now."""
    for note in (*(prepared.held_or_left() if looks else ()), prepared.not_due, prepared.half_done()):
        if note is not None:
            context.note(note)


def end_without_nodes(prepared: Preparation, context: Context) -> int:
    """End as done: a schedule finds nothing due on most days."""
    why = prepared.not_due or ""
    context.note(f"{VERDICTS[True]} {why}")
    return int(
        context.end(
            ExitCode.DONE,
            cluster=prepared.view.name,
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
    )


@contextmanager
def prepared_run(
    context: Context,
    file: ClusterFile,
    *,
    playbook: str | None,
    overrides: Overrides,
    state: str | None,
    asks: bool = False,
    restarts: bool = True,
) -> Iterator[Preparation]:
    """Connect to a cluster and prepare a run; the arguments are as for `start`.

    With `asks` a question follows. If so, a missing terminal is reported before the cluster is read; with
    names of nodes after that, because a wrong one is what has to be corrected first.

    Raises:
        OrchestratorError: files, flags, secrets, cluster, zones or selection are wrong.
        LeaseError: a question follows, and another run is at work.
    """
    with context.connect(context.ports(file), state) as connection:
        source = connection.ports.policy(playbook, overrides)
        if asks and not (overrides.only or overrides.exclude):
            require_terminal(context)
        yield prepare(connection, source, restarts=restarts, asks=asks)


def confirm_run(verb: str, entry: RunEntry, store: StateStore, context: Context, *, yes: bool) -> None:
    """Name the run that is used because neither a run nor a cluster was given; on a terminal, ask.

    Args:
        verb: the command.
        entry: the only possible run.
        store: the state that holds it.
        context: the process.
        yes: `--yes`.

    Raises:
        typer.Abort: the answer is no.
    """
    what = f"run {entry.run} on {entry.cluster} ({state_in_words(entry)}; {store.where})"
    if yes:
        context.note(f"{verb}: {what}")
    elif has_terminal(context):
        ask(f"{verb.capitalize()} {what}?", context)
    else:
        context.warn(
            f"`{next_command(verb)}` was given no run and acts on {what}, the only possible one. The next "
            f"version exits with 2 here: name the run (`{store.command(verb, entry.run)}`) or add --yes"
        )


def confirm(
    prepared: Preparation, plan: Plan, context: Context, look: str = "--dry-run", *, steps: bool
) -> None:
    """Show the plan, as `show_plan` does, and ask.

    Raises:
        UsageError: a question is needed, and there is no terminal.
        typer.Abort: the answer is no.
    """
    require_terminal(context, look)
    show_plan(plan, context, steps=steps, restores=prepared.left is not None)
    ask(question(plan, prepared.holder), context)


def question(plan: Plan, holder: ClusterHolder | None = None) -> str:
    """The text of the question: what a yes begins. The verdict of the plan is right above it.

    Args:
        plan: of the run.
        holder: the run that may have the cluster; this one begins only if it does not.
    """
    number = len(plan.nodes)
    nodes = nodes_of(number, plan.nodes_selected or number)
    if plan.max_segments is None:
        verb, to = ("Upgrade", f" to {plan.target_version}") if plan.target_version else ("Restart", "")
        what = f"{verb} {nodes} of {plan.cluster}{to}"
    else:
        due = [one for one in plan.merges if one.due]
        merge = f"merge {counted(len(due), 'index', 'indices')} ({size(sum(one.bytes for one in due))})"
        put_right = any(one.put_right for one in plan.leftovers)
        first = merge if due else "put right what the loader left" if put_right else ""
        then = f"restart {nodes}" if number else ""
        what = f"{plan.cluster}: {', then '.join(filter(None, (first, then))) or 'merge nothing'}"
    if holder is not None:
        held = f" if run {holder.run} of {one_line(holder.owner)} no longer runs"
    else:
        checks = counted(len(plan.holds), "check holds", "checks hold")
        held = f", though {checks} it now" if plan.holds else ""
    return f"{what}{', then pause' if plan.pauses else ''}{held}?"


def ask(text: str, context: Context) -> None:
    """Ask for a yes.

    Raises:
        typer.Abort: the answer is no, or Ctrl-C.
    """
    if not agreed(text, context):
        raise typer.Abort


def agreed(text: str, context: Context) -> bool:
    """Ask, and return whether the answer is yes.

    Raises:
        typer.Abort: Ctrl-C.
    """
    width = context.columns
    *before, last = wrapped(visible(text), width and width - len(_ANSWERS), then="")
    context.say(*before)
    with _on_its_line(context):
        return typer.confirm(last)


_ANSWERS: Final = " [y/N]: "
"""What stands behind a question."""


_Taken = TypeVar("_Taken")


def asked(question: str, take: Callable[[str], _Taken], context: Context) -> _Taken:
    """Ask for a text, which may be empty, until it can be taken.

    Args:
        question: for the person.
        take: what the answer becomes. Its error is shown, and the question asked again.
        context: the process.

    Raises:
        typer.Abort: Ctrl-C.
    """
    prompt: Callable[..., str] = typer.prompt
    while True:
        with _on_its_line(context):
            answer = prompt(visible(question), default="", show_default=False).strip()
        try:
            return take(answer)
        except OrchestratorError as error:
            context.note(*error.lines)


@contextmanager
def _on_its_line(context: Context) -> Iterator[None]:
    try:
        yield
    except typer.Abort:
        context.note("")  # the terminal prints `^C` on the line of the question
        raise


def agrees_to_recorded(context: Context, *, accepted: bool, yes: bool) -> Agrees:
    """Show commands of a journal that others can write, and ask for them; `--yes` is no answer to that.

    Args:
        context: the process.
        accepted: `--accept-recorded-commands`.
        yes: `--yes`: there is no question.
    """

    def agrees(said: Sequence[str]) -> bool:
        if accepted:
            context.note(f"warning: {said[0]}", *said[1:])
            return True
        if yes or not has_terminal(context):
            return False
        context.note(*said)
        ask("Run these commands as recorded?", context)
        return True

    return agrees


def require_terminal(context: Context, look: str = "--dry-run") -> None:
    """Require a terminal for a question. Checked last, so that other errors are reported first.

    Args:
        context: the process.
        look: the flag or command that only shows what would be done.

    Raises:
        UsageError: there is no terminal.
    """
    if not has_terminal(context):
        raise UsageError(f"there is no terminal for the question: check with `{look}`, then add --yes")


def has_terminal(context: Context) -> bool:
    """Whether there is a terminal for questions, and the output is for people."""
    return context.output.for_people and sys.stdin.isatty() and context.out.isatty()
