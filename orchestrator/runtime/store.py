"""The state database as a whole: runs, their journals, requests to them, leases, the ledger of tuning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import URL, Engine, RowMapping, desc, exists, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.elasticsearch.rules.due import PastMerges
from orchestrator.errors import JournalError
from orchestrator.model.event import Record
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.reading import Instant
from orchestrator.next_command import next_command
from orchestrator.ports import LeasePort
from orchestrator.runtime import codec, tables
from orchestrator.runtime.database import (
    WITHOUT_IT,
    DatabaseUse,
    empty_engine,
    is_shared,
    named_state,
    open_engine,
    place_of,
    state_url,
    telling,
    writing,
)
from orchestrator.runtime.journal import SqlJournal, UnwrittenMark
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.order import LeaseHolder, heir, holders, latest, merges_query, past_merges
from orchestrator.runtime.sqllease import SqlLease
from orchestrator.runtime.state_file import FILE, SHARED_FOLDER, VARIABLE, reports_folder

FINISHED = frozenset({Outcome.DONE, Outcome.RESTORED})
"""Outcomes after which nothing is pending; any other run can be resumed."""
OWING = frozenset({None, Outcome.NOT_RESTORED})
"""Killed, under way, or ended with changes that are not restored: something may still be pending."""


class StateMissing(JournalError):  # noqa: N818  (names a state, as its siblings do)
    """The given state file does not exist: an error when looking for a run, but not before the first run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """A run in the list of runs."""

    run: str
    cluster: str
    cluster_uuid: str  # empty until the run has begun
    kind: str
    started: Instant
    host: str  # host of its last or current attempt; `operator` and `process` likewise
    operator: str
    process: str  # `ProcessIdentity` as text
    # of its last attempt, or RESTORED once a run that took over its changes has finished; None while it runs,
    # or if it was killed
    outcome: Outcome | None = None
    exit_code: int | None = None
    ended: Instant | None = None
    ordinal: int = 0  # number of its last lease in this state; 0 for a run of an earlier version
    # the run that took over its pending changes; None if it has none, or they are still its own
    heir: str | None = None
    unwritten: bool = False  # whether its last events could not be written. Its journal ends before them.

    @property
    def unfinished(self) -> bool:
        """Whether the run can be resumed or restored."""
        return self.outcome not in FINISHED


class StateStore:
    """The state database, open. Every method raises `JournalError` when the database fails.

    A context manager that closes it.

    Args:
        engine: an open database whose tables are `ready`.
        where: the place in words, if not the engine's.
        shared: whether others can write it, so that a recorded command may be theirs.
        journals: creates the journal of a run, like `SqlJournal`.
        state: the database as after `--state`, without a password; empty for the usual place.
        reports: the folder of the pages of its runs; None has none.

    Attributes:
        written: False where it can be read and not written: a restore holds its lease in memory then, and
            keeps no journal.
    """

    written = True

    def __init__(
        self,
        engine: Engine,
        *,
        where: str | None = None,
        shared: bool = False,
        journals: Callable[[Engine, str, int | None, str | None], SqlJournal] | None = None,
        state: str = "",
        reports: Path | None = None,
    ) -> None:
        self._engine, self._journals, self.reports = engine, journals, reports
        self.where, self.shared, self.state = where or place_of(engine), shared, state

    def command(self, verb: str, *words: str) -> str:
        """A command that uses this state, as it can be typed."""
        return next_command(verb, *words, state=self.state)

    @property
    def in_memory(self) -> bool:
        """Whether there is no database yet: `open_store` puts an empty store in its place."""
        return self._engine.url.get_backend_name() == "sqlite" and not self._engine.url.database

    def create_run(self, entry: RunEntry) -> SqlJournal:
        """Create a run's row and its journal.

        Raises:
            JournalError: a run with this id exists, or the database fails.
        """
        values = {
            "id": entry.run,
            "cluster": entry.cluster,
            "cluster_uuid": entry.cluster_uuid,
            "kind": entry.kind,
            "started": entry.started,
            "host": entry.host,
            "operator": entry.operator,
            "process": entry.process,
        }
        with telling(self.where, f"beginning run {entry.run}"):
            try:
                with writing(self._engine) as connection:
                    connection.execute(insert(tables.runs).values(values))
            except IntegrityError as error:
                raise JournalError(f"{self.where}: there is a run {entry.run} already") from error
        return self.journal(entry.run, after=0, process=entry.process)

    def runs(self, *, cluster: str | None = None, limit: int | None = None) -> tuple[RunEntry, ...]:
        """Runs, the one that took its lease last first: a resumed run is newer than the runs in between.

        Those of an earlier version, which did not number its leases, come last, in the order of their dates.
        A run without events never began and is left out.
        """
        own = tables.events.c.run == tables.runs.c.id
        begun = exists().where(own)
        at = select(tables.events.c.at).where(own).order_by(desc(tables.events.c.sequence)).limit(1)
        dated = (desc(at.scalar_subquery()), desc(tables.runs.c.started), desc(tables.runs.c.id))
        query = select(tables.runs).where(begun).order_by(*dated)
        if cluster is not None:
            query = query.where(tables.runs.c.cluster == cluster)
        with telling(self.where, "reading the runs"), self._engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
            taken = holders(connection)
        last = latest(taken)
        try:
            entries = [self._entry(row, taken, last.get(row["id"])) for row in rows]
        except ValueError as error:
            raise JournalError(f"{self.where} holds a run that cannot be read: {error}") from error
        entries.sort(key=lambda entry: -entry.ordinal)  # stable: equal ones stay as dated
        return tuple(_settled(entry, entries) for entry in entries[:limit])

    def next_ordinal(self) -> int | None:
        """The number of the next lease. None where the state cannot be read, and so not be written."""
        where = "reading the runs"
        with suppress(JournalError), telling(self.where, where), self._engine.connect() as connection:
            return max((one.ordinal for one in holders(connection)), default=0) + 1
        return None

    def unfinished(self, *, cluster: str | None = None) -> tuple[RunEntry, ...]:
        """Runs that can be resumed, the latest first: killed, stopped, failed, held, paused, not restored."""
        return tuple(entry for entry in self.runs(cluster=cluster) if entry.unfinished)

    def outcome(self, run: str) -> Outcome | None:
        """The outcome of a run's last attempt; None if it has not ended, or if there is no such run."""
        query = select(tables.runs.c.outcome).where(tables.runs.c.id == run)
        with telling(self.where, f"reading run {run}"), self._engine.connect() as connection:
            ended = connection.execute(query).scalar_one_or_none()
        try:
            return None if ended is None else Outcome(ended)
        except ValueError as error:
            raise JournalError(f"{self.where}: run {run} cannot be read: {error}") from error

    def replay(self, run: str, *, after: int = 0) -> tuple[Record, ...]:
        """The journal of a run from the event after `after` on.

        Raises:
            JournalError: an event cannot be read, or one is missing.
        """
        query = (
            select(tables.events)
            .where(tables.events.c.run == run, tables.events.c.sequence > after)
            .order_by(tables.events.c.sequence)
        )
        with telling(self.where, f"reading the journal of run {run}"), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        records = tuple(codec.record_of(row.run, row.sequence, row.at, row.event) for row in rows)
        for place, record in enumerate(records, start=after + 1):
            if record.sequence != place:
                raise JournalError(f"{self.where} is damaged: event {place} of run {run} is missing")
        return records

    def merges(self, cluster_uuid: str, indices: Collection[str]) -> PastMerges:
        """Merges of these indices in all runs on the cluster with this uuid, by index uuid.

        Raises:
            JournalError: an event cannot be read.
        """
        with telling(self.where, "reading past merges"), self._engine.connect() as connection:
            rows = connection.execute(merges_query(cluster_uuid)).all()
        return past_merges(rows, indices)

    def journal(self, run: str, *, after: int | None = None, process: str | None = None) -> SqlJournal:
        """The journal of a run, to continue after `after` (the last replayed event)."""
        if self._journals is not None:
            return self._journals(self._engine, run, after, process)
        return SqlJournal(self._engine, run, after=after, process=process, state=self.state)

    def leave_request(self, run: str, request: Request, *, by: str, at: Instant) -> None:
        """Write a request to a run in progress; the run reads it between its steps."""
        with telling(self.where, f"leaving a request for run {run}"), writing(self._engine) as connection:
            connection.execute(insert(tables.requests).values(run=run, kind=int(request), by=by, at=at))

    def close_run(self, run: str, outcome: Outcome, at: Instant) -> None:
        """Close a run whose settings another run has restored (a takeover): it is no longer unfinished."""
        with telling(self.where, f"closing run {run}"), writing(self._engine) as connection:
            row = update(tables.runs).where(tables.runs.c.id == run)
            connection.execute(row.values(outcome=outcome.value, ended=at))
        UnwrittenMark(self._engine, run).clear()

    def lease(self, cluster: str) -> LeasePort:
        """The lease on a cluster in this database. `cluster` is its uuid, or its name if it has none."""
        return SqlLease(self._engine, cluster)

    def ledger(self, cluster: str) -> Ledger:
        """The tuning ledger of the hosts of the cluster with this name."""
        return Ledger(self._engine, cluster)

    def is_unwritten(self, run: str) -> bool:
        """Whether it is known that events of a run could not be written; see `UnwrittenMark`."""
        return UnwrittenMark(self._engine, run).is_set()

    def mark_unwritten(self, run: str) -> None:
        """Note that events of a run cannot be written, as far as that is possible."""
        UnwrittenMark(self._engine, run).set()

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _entry(self, row: RowMapping, taken: Sequence[LeaseHolder], last: LeaseHolder | None) -> RunEntry:
        """A row of the table of runs, with what the leases say about it."""
        outcome = Outcome(row["outcome"]) if row["outcome"] is not None else None
        return RunEntry(
            run=row["id"],
            outcome=outcome,
            ordinal=last.ordinal if last else 0,
            heir=heir(row["id"], taken) if outcome in OWING else None,
            unwritten=outcome is None and self.is_unwritten(row["id"]),
            **{key: value for key, value in row.items() if key not in {"id", "outcome"}},
        )


def _settled(entry: RunEntry, entries: Sequence[RunEntry]) -> RunEntry:
    """A run with its outcome: what it left is restored once the last run that took it over has finished."""
    last = entry
    while last.heir is not None:
        last = next((one for one in entries if one.run == last.heir), replace(last, heir=None))
    if last is entry or last.outcome not in FINISHED:
        return entry
    return replace(entry, outcome=Outcome.RESTORED, unwritten=False)


def open_store(
    url: str | None,
    environment: Mapping[str, str],
    *,
    access: DatabaseUse,
    home: Path | None = None,
    shared: Path = SHARED_FOLDER / FILE,
) -> StateStore:
    """Open the state database.

    Args:
        url: `--state`; None: `ORCHESTRATE_STATE`, then the usual places.
        environment: of the process.
        access: READ and CONTINUE create nothing; without a state file they return an empty store.
        home: the operator's home; None asks the system.
        shared: the file that colleagues share.

    Raises:
        StateMissing: a given file that must exist does not exist.
        JournalError: damaged, of a later version, locked, read-only, full: what, where, what to do.
        UsageError: the URL is not valid.
    """
    found = state_url(url, environment, home=home or Path.home(), access=access, shared=shared)
    typed = bool(url or environment.get(VARIABLE))
    where: str | None = None
    if access is not DatabaseUse.WRITE and _nothing_there(found):
        if typed:
            there = Path(found.database or "").exists()
            raise StateMissing(
                f"state file {found.database}: {'it is empty' if there else 'there is no such file'}; no run "
                f"was begun with it yet, or it was lost; {WITHOUT_IT}"
            )
        engine = empty_engine()
        access, where = DatabaseUse.WRITE, f"state file {found.database}"
    else:
        engine = open_engine(found, access, make_folder=not typed)
    try:
        if not tables.ready(engine, access):
            raise StateMissing(f"{place_of(engine)} has no tables: no run was begun with it yet")
    except JournalError:
        engine.dispose()
        raise
    database = found.database if found.get_backend_name() == "sqlite" else None
    return StateStore(
        engine,
        where=where,
        shared=is_shared(found),
        state=named_state(url, environment),
        reports=reports_folder(database, environment, home=home or Path.home()),
    )


def _nothing_there(url: URL) -> bool:
    """Whether no state was ever written there; a kill at the very start leaves an empty file."""
    if url.get_backend_name() != "sqlite" or not url.database:
        return False
    with telling(f"state file {url.database}", "looking for it"):
        file = Path(url.database)
        return not file.exists() or file.stat().st_size == 0
