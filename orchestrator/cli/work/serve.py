"""Live pages: the server's address and token, and the looks at the state of which its pages are made."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from orchestrator.around.metrics import Figures, text_of
from orchestrator.around.story import PublicEvent
from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.work.report import redactor
from orchestrator.config.secrets import SecretResolver, parse_reference
from orchestrator.engine.fold import replay
from orchestrator.errors import ExitCode, JournalError, OrchestratorError, UsageError, how_to_add
from orchestrator.model.encoding import public_record
from orchestrator.model.event import Record
from orchestrator.model.phase import Outcome
from orchestrator.redact import Redactor, cleaned
from orchestrator.runs.past_runs import is_alive
from orchestrator.runs.report import clean_for, facts_of_run
from orchestrator.runs.surroundings import last_success
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import provably_gone
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.serve.board import METRICS, Board, Shown, StateLook
from orchestrator.view.history import RunInHistory, history_object, past_run
from orchestrator.view.report.facts import as_json
from orchestrator.view.report.page import history_page, run_page
from orchestrator.view.status import status_object

_LISTED: Final = 50
"""Runs in the list."""
_SHORTEST_TOKEN: Final = 16
_NAME: Final = re.compile(r"[^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]")
"""A host without a port, as it is compared with the one of a request."""
_STEP: Final = 5.0
"""Seconds after which the durations on the page of a run under way are counted again."""


def serve_pages(
    listen: str, *, hosts: Sequence[str], token: str | None, cluster: str | None, state: str | None
) -> int:
    """Serve until a signal comes. Returns the exit code.

    Raises:
        UsageError: the extra is not installed, the address is no address or taken, or the token is missing.
        ConfigError: the token cannot be read.
        JournalError: the state cannot be opened.
    """
    try:
        from orchestrator.serve import app, server  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        missing = f"`serve` needs the package {error.name}, in the extra `serve`"
        raise UsageError(f"{missing}: {how_to_add('serve')}") from None
    context = context_of(Output.TEXT)
    address = server.Address(listen)
    secret = None if token is None else _token(token, context)
    if secret is None and not address.is_loopback:
        raise UsageError(f"--listen {listen} can be reached by others: add --token file:PATH or env:NAME")
    if wrong := [host for host in hosts if not _NAME.fullmatch(host)]:
        raise UsageError(f"--host {wrong[0]}: write the name alone, without scheme, port and path")
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, DatabaseUse.READ) as store:
        where = store.where  # a state that cannot be read is an error of the command
    looks = Looks(context, state, cluster=name, cluster_file=cluster)
    board = Board(looks.look)
    names = {*address.names, *(host.lower() for host in hosts)}
    with address.bind() as listening:
        at = f"http://{address.named}:{listening.getsockname()[1]}/"
        pages = app.application(board, hosts=names, token=secret)
        server.run(
            pages,
            listening,
            said=lambda: context.note(f"serving {where} at {at} until Ctrl-C"),
            leave=board.close,
        )
    return int(ExitCode.DONE)


def _token(reference: str, context: Context) -> str:
    """The token itself.

    Raises:
        UsageError: it is no reference, or shorter than one that cannot be guessed.
        ConfigError: it cannot be read.
    """
    resolver = SecretResolver(environment=context.environment, folder=Path.cwd(), home=context.home)
    try:
        found = resolver.resolve(parse_reference(reference), header=True).reveal()
    except ValueError as error:
        raise UsageError(f"--token: {error}") from None
    if len(found) < _SHORTEST_TOKEN:
        raise UsageError(f"--token: it has {len(found)} characters; {_SHORTEST_TOKEN} or more are needed")
    return found


@dataclass(kw_only=True)
class _Followed:
    """A run whose page is shown."""

    redact: Redactor  # removes its secrets
    records: tuple[Record, ...]  # what was read of its journal
    key: object = None  # of the state and the moment from which `shown` was made
    shown: Shown | None = None

    def grows(self, again: Sequence[Record]) -> bool:
        """Take what was read from the last record on. False if another state is in the place of that one."""
        if tuple(again[:1]) != self.records[-1:]:
            return False
        self.records += tuple(again[1:])
        return True


class Looks:
    """Reads what the pages show. Each read is a short transaction, and no cursor stays open.

    Each look opens the state and closes it. So nothing is open between two looks, a state that was moved away
    is not read on without a word, and one that is begun or restored meanwhile is found.

    Args:
        context: of the process.
        state: as after `--state`.
        cluster: only runs of the cluster of this name.
        cluster_file: as after `--cluster`, whose secrets are removed besides.
    """

    def __init__(
        self, context: Context, state: str | None, *, cluster: str | None, cluster_file: str | None
    ) -> None:
        self._context, self._state, self._cluster, self._file = context, state, cluster, cluster_file
        self._found = False
        self._followed: dict[str, _Followed] = {}
        self._past: dict[RunEntry, RunInHistory | str | None] = {}
        self._listing: tuple[object, Shown] | None = None
        self._counted: dict[str, tuple[Figures, int]] = {}

    def look(self, runs: Collection[str]) -> StateLook:
        """The list, and the pages of these runs. One that cannot be read is no trouble for the others.

        Raises:
            JournalError: the state cannot be read.
        """
        with self._context.state(self._state, DatabaseUse.READ) as store:
            if self._found and store.in_memory:
                raise JournalError(f"{store.where}: it was there, and is gone")
            self._found = not store.in_memory
            return self._looked(store, runs)

    def _looked(self, store: StateStore, runs: Collection[str]) -> StateLook:
        entries = store.runs(cluster=self._cluster)
        by_id = {entry.run: entry for entry in entries}
        self._followed = {run: one for run, one in self._followed.items() if run in runs}
        shown: dict[str, Shown] = {}
        faults: dict[str, str] = {}
        for run in runs:
            try:
                if run in by_id:
                    shown[run] = self._page(store, by_id[run])
            except OrchestratorError as error:
                faults[run] = str(error)
        metrics = self._metrics(store, entries) if METRICS in runs else ""
        return StateLook(
            listing=self._list(store, entries[:_LISTED]), runs=shown, faults=faults, metrics=metrics
        )

    def _metrics(self, store: StateStore, entries: Sequence[RunEntry]) -> str:
        """Of the last run of each cluster; of one whose journal is damaged there are none."""
        by_cluster: dict[str, list[RunEntry]] = {}
        for entry in entries:
            by_cluster.setdefault(entry.cluster, []).append(entry)
        counted: dict[str, tuple[Figures, int]] = {}
        for cluster, own in by_cluster.items():
            entry = own[0]
            figures, last = self._counted.get(entry.run) or (Figures(cluster, last_success(own)), 0)
            try:
                records = store.replay(entry.run, after=last)
            except JournalError:
                continue
            for record in records:
                figures.see(PublicEvent(at=record.at, line=public_record(record), text=""))
            figures.gone = entry.outcome is None and provably_gone(entry.process)
            counted[entry.run] = figures, last + len(records)
        self._counted = counted
        now = self._context.clock.now()
        return text_of((figures for figures, _ in counted.values()), now, Redactor())

    def _page(self, store: StateStore, entry: RunEntry) -> Shown:
        followed = self._followed.get(entry.run)
        if followed is None or not followed.grows(store.replay(entry.run, after=len(followed.records) - 1)):
            records = store.replay(entry.run)
            redact = redactor(self._context, store, records, self._file)
            followed = self._followed[entry.run] = _Followed(redact=redact, records=records)
        now, gone = self._context.clock.now(), provably_gone(entry.process)
        live = entry.outcome is None and not gone
        key = (len(followed.records), entry, gone, now // _STEP if live else None)
        if followed.shown is None or followed.key != key:
            followed.key, followed.shown = key, _shown(entry, followed, now=now, live=live)
        return followed.shown

    def _list(self, store: StateStore, entries: Sequence[RunEntry]) -> Shown:
        """The page of all runs. A journal is read once for each attempt at its run, when that has ended."""
        alive = {entry.run for entry in entries if entry.outcome is None and not provably_gone(entry.process)}
        key = (entries, alive)
        if self._listing is None or self._listing[0] != key:
            ended = [entry for entry in reversed(entries) if entry.run not in alive]
            self._past = {entry: self._past_of(store, entry) for entry in ended}
            past = history_object(
                [found for entry in ended if isinstance(found := self._past[entry], RunInHistory)]
            )
            faults = [found for found in self._past.values() if isinstance(found, str)]
            own = ("run", "cluster", "operator", "host")
            under_way = [
                {name: getattr(entry, name) for name in own} for entry in entries if entry.run in alive
            ]
            links = {entry.run: f"runs/{quote(entry.run, safe='')}" for entry in entries}
            clean = cleaned({"runs": past, "under_way": under_way, "faults": faults}, clean_for(Redactor()))
            html = history_page(clean["runs"], links, live=clean)
            self._listing = key, Shown(html=html, data=clean)
        return self._listing[1]

    def _past_of(self, store: StateStore, entry: RunEntry) -> RunInHistory | str | None:
        """A run, or why it cannot be read."""
        if entry in self._past:
            return self._past[entry]
        try:
            records, gone = store.replay(entry.run), entry.outcome is None
            return past_run(records, entry.outcome, unwritten=entry.unwritten, alive=not gone)
        except JournalError as error:
            return str(error)


def _shown(entry: RunEntry, followed: _Followed, *, now: float, live: bool) -> Shown:
    """The page of a run, of what was read of its journal."""
    outcome, records = entry.outcome.value if entry.outcome else None, followed.records
    redact, shown_until = followed.redact, now if live else None
    alive = is_alive(entry)
    facts = facts_of_run(entry.run, records, redact, outcome=outcome, now=shown_until, alive=alive)
    state = replay(entry.run, records)
    status = status_object(
        state,
        records,
        now=now if live else records[-1].at,
        alive=alive,
        restored=entry.outcome is Outcome.RESTORED and state.outcome is not Outcome.RESTORED,
    )
    said = cleaned(status, clean_for(redact))
    return Shown(html=run_page(facts, status=said), data={"status": said, "report": as_json(facts)})
