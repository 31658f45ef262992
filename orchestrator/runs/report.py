"""The report of a run: its public records from the state, and the page that is written at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from orchestrator.engine.fold import replay
from orchestrator.engine.left_over import texts
from orchestrator.errors import ConfigError, JournalError, UsageError
from orchestrator.model.encoding import public_record
from orchestrator.model.event import Record, RunStarted, WaveStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind
from orchestrator.redact import cleaned
from orchestrator.runs.connection import Connection
from orchestrator.runs.files import require_place, write_own
from orchestrator.runtime.codec import decode_event
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import StateStore
from orchestrator.untrusted import UntrustedValue, in_path, visible
from orchestrator.view.advice import advice
from orchestrator.view.feed import Feed
from orchestrator.view.progress import not_restored
from orchestrator.view.report.facts import REPORTED, Facts, facts_of

_PAGE: Final = b"<!doctype html>"
"""How a page begins: no other file is replaced by one."""
_OF_A_GROUP: Final = 0o2020
"""The mode of a folder that a group shares: its members may write, and what is made in it is the group's."""


def facts_of_run(
    run: str,
    records: Sequence[Record],
    redact: Callable[[str], str],
    *,
    outcome: str | None = None,
    now: float | None = None,
    alive: bool | None = None,
) -> Facts:
    """The facts of a run, without secrets.

    Args:
        run: its id.
        records: its journal.
        redact: removes secrets from every text.
        outcome: of the run, if its own journal has none.
        now: the current time, of a run that is under way.
        alive: whether the process of a run without an end runs; None if that is not known.

    Raises:
        JournalError: the run never began.
    """
    begun = next((one.event for one in records if isinstance(one.event, RunStarted)), None)
    if begun is None:
        raise JournalError(f"run {run} was killed before it began: there is nothing to report")
    clean = clean_for(redact)
    facts = facts_of(_public(records, begun.policy.kind, clean), outcome=outcome, now=now)
    elsewhere = facts["outcome"] == Outcome.RESTORED.value and facts["attempts"][-1]["outcome"] is None
    if not facts["finished"]:
        facts["alive"] = alive
        if alive is False and not elsewhere:
            facts["not_restored"] = cleaned(list(texts(not_restored(replay(run, records)))), clean)
    if now is None and not elsewhere:
        facts["next"] = cleaned(_next(run, records), clean)
    return facts


def clean_for(redact: Callable[[str], str]) -> Callable[[str], str]:
    """What makes texts fit for pages: no secrets, and no characters that change how others are shown."""
    return cache(lambda text: visible(redact(text)))


def _next(run: str, records: Sequence[Record]) -> dict[str, str] | None:
    """What a person does next about a run that no process works on: `first`, then `command`."""
    state = replay(run, records)
    step = advice(state)
    return (
        None
        if step is None
        else {"first": f"{step.first}, then " if step.first else "", "command": step.command}
    )


def _public(records: Sequence[Record], kind: Kind, clean: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    """The records as `--output json` has them, cleaned, each with its sentence.

    A sentence is made of the cleaned event: it may be shortened, and half of a secret is not recognized.
    """
    feed = Feed(kind)
    for record in records:
        line = cleaned(public_record(record), clean)
        said = ""
        if line["event"] in REPORTED:
            with suppress(
                JournalError
            ):  # a cleaned name may be no name: the event is shown without a sentence
                said = feed.sentence(decode_event(line))
        elif isinstance(record.event, RunStarted):
            feed.sentence(record.event)  # what a restore lists is said in other words
        yield {**line, "at": record.at, "said": said}


def page_of(store: StateStore, run: str) -> Path:
    """Where the page of a run is, or would be.

    Raises:
        UsageError: the state has no folder for pages, or the run cannot have one.
    """
    try:
        name = in_path(run)
    except UntrustedValue as error:
        raise UsageError(f"the page of run {run}: {error}") from error
    if store.reports is None:
        raise UsageError("there is no state file: name the file of the page with --html")
    return store.reports / f"{name}.html"


def named_page(store: StateStore, run: str, home: Path) -> str:
    """The same for people, below `~` if it is in their home; empty if there is none."""
    try:
        path = page_of(store, run)
    except UsageError:
        return ""
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def write_page(path: Path, text: str, *, folder: Path | None = None) -> None:
    """Write a page for its owner alone.

    Args:
        path: where to.
        text: the page.
        folder: to create. Beside a state that a group shares, the group may write it: colleagues resume runs.

    Raises:
        ConfigError: it cannot be written, or another file, such as the state, would be lost by it.
        OSError: the folder cannot be made.
    """
    if folder is not None and not folder.exists():
        # With the state in a server, nothing has made the folder of a state file yet.
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir()
        shared = folder.parent.stat().st_mode & _OF_A_GROUP == _OF_A_GROUP
        folder.chmod(_OF_A_GROUP | 0o750 if shared else 0o700)
    require_place(path, "page")
    with suppress(OSError), path.open("rb") as stream:  # what cannot be read is no obstacle
        begin = stream.read(len(_PAGE))
        if begin and begin.lower() != _PAGE:
            raise ConfigError("the page cannot be saved: another file is there", file=str(path))
    write_own(path, text, "page")


def write_at_end(connection: Connection, run: str, redact: Callable[[str], str]) -> None:
    """Write the page of a run that has ended, if it had a wave, and name it. A failure is a warning."""
    process = connection.process
    try:
        with connection.state(DatabaseUse.READ) as store:
            records = store.replay(run)
            if not any(isinstance(record.event, WaveStarted) for record in records):
                return
            facts, path = facts_of_run(run, records, redact), page_of(store, run)
        from orchestrator.view.report.page import run_page  # noqa: PLC0415  (loads templates, at the end alone)

        write_page(path, run_page(facts), folder=path.parent)
    except Exception as error:  # noqa: BLE001  (a page that cannot be made must not change how a run ends)
        command = connection.command("report", run, "--html", "FILE")
        process.warn(f"the report of run {run} was not written: {error}; `{command}` writes it")
    else:
        if process.names_page:
            process.tell(f"report: {path}")
