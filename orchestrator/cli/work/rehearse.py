"""A run on a simulated copy of the cluster, with mishaps if they are asked for, and its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import note_beforehand, prepared_run
from orchestrator.config.policy import Overrides
from orchestrator.engine.estimate import PastTimes
from orchestrator.engine.plan import make_plan
from orchestrator.errors import ExitCode, SafetyViolation
from orchestrator.kinds import kind_of
from orchestrator.model.action import action_name
from orchestrator.model.event import Hold, RunStarted
from orchestrator.model.observation import EVERYTHING, Observation
from orchestrator.model.reading import Instant, Seconds
from orchestrator.next_command import next_command
from orchestrator.ports import Reporter
from orchestrator.runs.attempt import exit_code
from orchestrator.runs.files import load_snapshot, require_place, save_snapshot
from orchestrator.runs.rehearsal import Rehearsal
from orchestrator.view.live import live_console, wants_live
from orchestrator.view.phrases import hold_sentence, nodes_in_words, work_of
from orchestrator.view.rehearsed import (
    MARK,
    Befallen,
    Narrator,
    Progress,
    Rehearsed,
    Story,
    beginning,
    rehearsed_lines,
    rehearsed_object,
)
from orchestrator.view.reporters import JsonReporter, LineReporter, Outlet, Reporters, json_line
from orchestrator.view.summary import summary
from orchestrator.view.text import stamp_seconds

_SIGN_OF_LIFE: Final[Seconds] = 900.0
"""In simulated time: a wait of eight hours takes a second, so frequent signs of life are useless."""

_SPEAKS_EVERY: Final[Seconds] = 10.0
"""In real time, where the terminal is plain."""


def rehearse_cluster(
    cluster: str,
    seed: int,
    *,
    save: Path | None,
    playbook: str | None,
    overrides: Overrides,
    verbose: bool,
    output: Output,
) -> int:
    """Read a cluster, save the reading if requested, and rehearse on it. Returns the exit code."""
    context = context_of(output)
    file = context.cluster(cluster)
    if save is not None:
        require_place(save, "snapshot")
    with prepared_run(context, file, playbook=playbook, overrides=overrides, state=None) as prepared:
        note_beforehand(prepared, context)
        if prepared.not_due:
            return int(context.end(ExitCode.DONE, cluster=prepared.view.name, message=prepared.not_due))
        started, seen = prepared.started, prepared.observe(EVERYTHING)
    if save is not None:
        save_snapshot(save, started, seen)
        play = next_command("rehearse", "--snapshot", str(save))
        context.note(f"saved to {save}; `{play}` plays on it")
    return int(_play(Rehearsal(started, seen, seed), started, seen, context, seed, verbose=verbose))


def rehearse_snapshot(snapshot: Path, seed: int, *, verbose: bool, output: Output) -> int:
    """Rehearse on a saved reading. Returns the exit code."""
    started, seen = load_snapshot(snapshot)
    return int(
        _play(Rehearsal(started, seen, seed), started, seen, context_of(output), seed, verbose=verbose)
    )


def _play(
    rehearsal: Rehearsal,
    started: RunStarted,
    seen: Observation,
    context: Context,
    seed: int,
    *,
    verbose: bool,
) -> ExitCode:
    nodes, what = nodes_in_words(started, named=False), work_of(started.policy)
    context.note(beginning(f"{what} of {nodes}", started.cluster, seed))
    for hold in _not_simulated(rehearsal, started, seen):
        context.warn(f"the run would be held now, and the simulation does not know it: {hold_sentence(hold)}")
    began = context.clock.now()
    text = context.output.for_people
    out = Outlet(context.out, MARK if text else "")

    def say_json(payload: dict[str, object], at: Instant) -> None:
        out.line(json_line(payload, at=at, run=rehearsal.run))

    def end(stories: Sequence[Story]) -> None:
        left = rehearsal.aftermath()
        result = Rehearsed(
            seed=seed,
            mishaps=rehearsal.mishaps,
            kills=rehearsal.kills,
            simulated_seconds=rehearsal.simulated,
            seconds=context.clock.now() - began,
            settings_not_as_found=left.not_as_found,
            settings_changed_by_others=left.by_others,
            nodes_down=left.down,
            nodes_not_in_cluster=left.apart,
            nodes_stopping=left.stopping,
            against_rules=rehearsal.against_rules,
        )
        if text:
            for line in rehearsed_lines(result, stories, _columns(context)):
                out.line(line)
        else:
            say_json(rehearsed_object(result), rehearsal.now())

    def tell(mishap: Befallen) -> None:
        if not text:
            say_json({"event": "mishap", "what": mishap.words}, mishap.at)
        elif verbose:
            out.line(f"{stamp_seconds(mishap.at)} MISHAP: {mishap.words}")

    narrator, reporter = (
        Narrator(rehearsal.news, tell, end),
        _reporter(rehearsal, started, context, log=verbose),
    )
    try:
        with _sign_of_life(rehearsal, context, verbose=verbose) as alive:
            return exit_code(rehearsal.play(Reporters(alive, narrator, reporter)))
    except SafetyViolation as defect:
        raise SafetyViolation(
            f"{defect}; a defect of the program: please report it with seed {seed} and a snapshot (--save)"
        ) from defect


def _columns(context: Context) -> int | None:
    """Columns beside the mark."""
    return None if context.columns is None else context.columns - len(MARK)


def _reporter(rehearsal: Rehearsal, started: RunStarted, context: Context, *, log: bool) -> Reporter:
    """Plain lines even on a terminal: hours pass in seconds, too fast for a panel."""
    if context.output is Output.JSON:
        return JsonReporter(context.out, rehearsal.now, every=_SIGN_OF_LIFE)
    kind = started.policy.kind
    return LineReporter(
        context.out,
        rehearsal.now,
        kind=kind,
        end=partial(summary, simulated=True),
        width=_columns(context),
        every=_SIGN_OF_LIFE,
        log=log,
        mark=MARK,
    )


@contextmanager
def _sign_of_life(rehearsal: Rehearsal, context: Context, *, verbose: bool) -> Iterator[Reporter]:
    """How far it is, on a terminal that does not get its log: a line that changes, else one at times."""
    spoke = context.clock.now()

    def at_times(text: str) -> None:
        nonlocal spoke
        if context.clock.now() - spoke >= _SPEAKS_EVERY:
            spoke = context.clock.now()
            context.note(text)

    if verbose or not (context.output.for_people and context.out.isatty()):
        yield Reporters()
    elif context.output is Output.TEXT and wants_live(context.out, context.environment):
        with live_console(context.out, context.environment).status("", spinner="line") as line:
            yield Progress(lambda: rehearsal.simulated, line.update, line.stop)
    else:
        yield Progress(lambda: rehearsal.simulated, at_times, lambda: None)


def _not_simulated(rehearsal: Rehearsal, started: RunStarted, seen: Observation) -> Sequence[Hold]:
    """Holds of the real cluster that the simulated cluster does not have."""
    kind = kind_of(started.policy.kind)
    real = make_plan(kind, started, seen, describe=action_name, times=PastTimes()).holds
    there = {(hold.predicate, hold.subject) for hold in rehearsal.plan().holds}
    return [hold for hold in real if (hold.predicate, hold.subject) not in there]
