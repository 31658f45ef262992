"""The journal of one run in SQL: append only, one durable transaction a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final, cast
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Update, bindparam, delete, desc, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import DeposedError, JournalError
from orchestrator.model.action import TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    Event,
    LeaseTaken,
    Record,
    RestoreBegun,
    RunFinished,
    RunResumed,
    RunStarted,
)
from orchestrator.model.phase import Request
from orchestrator.model.reading import Instant
from orchestrator.next_command import next_command
from orchestrator.runtime import codec, tables
from orchestrator.runtime.database import CommitInDoubt, committing, file_of, place_of, telling
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.ledger import Tuning, rows_of
from orchestrator.runtime.order import heir, holders

_LOOKS: Final = 3
"""Attempts at one step. The second checks a commit in doubt; the third checks a late commit."""
_BEGINNINGS: Final = (RunStarted, RunResumed, RestoreBegun)
"""Events with which a process takes a run: from then on the run's row has its identity."""

# The statements of every step, built once: building one takes longer than running it.
_INSERT: Final = insert(tables.events)
# Locked until the step is committed, or another run could close this one in between. SQLite locks all anyway.
_LINE: Final = (
    select(tables.runs.c.process, tables.runs.c.outcome)
    .where(tables.runs.c.id == bindparam("of"))
    .with_for_update()
)
_OPERATOR: Final = select(tables.runs.c.cluster, tables.runs.c.operator).where(
    tables.runs.c.id == bindparam("of")
)
_SINCE: Final = (
    select(tables.events.c.run, tables.events.c.sequence, tables.events.c.at, tables.events.c.event)
    .where(tables.events.c.run == bindparam("of"), tables.events.c.sequence > bindparam("last"))
    .order_by(tables.events.c.sequence)
)
_NOTHING: Final = (Request.NONE, "")
_ASKED: Final = (
    select(tables.requests.c.kind, tables.requests.c.by)
    .where(tables.requests.c.run == bindparam("of"))
    .order_by(desc(tables.requests.c.kind), tables.requests.c.number)
    .limit(1)
)


class SqlJournal:
    """The `Journal` of a run, for one process.

    The rows of `runs` are a summary of the events and change in the same transaction with them.

    **A commit in doubt.** A connection to a database server can break after COMMIT was sent. Only reading the
    rows shows whether they were written. So `append` keeps the rows that it tried to write. If it finds these
    rows (same sequence, moment and content), they are ours and it continues after them. It may write them a
    second time without another check: the key (run, sequence) makes the second transaction wait for the
    first, and refuses it if the first is committed.

    Args:
        engine: an open state database.
        run: its id; the run must have been created.
        after: sequence of the last event that the caller has replayed; None for the last one in the database.
        process: identity of the process that writes; None for this one.
        state: the database as after `--state`, for messages; empty for the usual place.

    Raises:
        JournalError: the database cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        run: str,
        *,
        after: int | None = None,
        process: str | None = None,
        state: str = "",
    ) -> None:
        self._engine, self._run, self._state = engine, run, state
        self._where, self._mark = place_of(engine), UnwrittenMark(engine, run)
        self._lock = Lock()
        self._process = process or str(current_process())
        self._asked: tuple[Request, str] = (Request.NONE, "")
        self._begun = False
        self._addresses: Mapping[NodeName, str] | None = None
        self._doubted: tuple[dict[str, object], ...] = ()
        if after is None:
            with telling(self._where, "reading it"), engine.connect() as connection:
                after = self._highest(connection)
        self._last = after

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run

    @property
    def last(self) -> int:
        """Sequence of the last event; 0 before the first."""
        return self._last

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Commit all of them in one durable transaction.

        Events whose commit was in doubt come first in the next call, unchanged. While events of a run that
        has begun cannot be written, the run has a mark (`UnwrittenMark`).

        Raises:
            DeposedError: another process resumed or restored this run. Nothing is written, now or later.
            CommitInDoubt: the connection broke at the commit, and again at the check.
            JournalError: no event is written, so no action may follow: the disk is full, the file is locked,
                damaged or read-only.
        """
        if not events:
            return ()
        with self._lock:
            try:
                records = self._tried(events, at)
            except DeposedError:
                raise
            except JournalError:
                if self._begun:
                    self._mark.set()
                raise
            self._mark.clear()
            return records

    def _tried(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Commit them, and look again while the commit is in doubt. Raises what `append` raises."""
        doubt: JournalError | None = None
        for _ in range(_LOOKS):
            try:
                return self._appended(events, at)
            except CommitInDoubt as error:
                doubt = error  # again, over a new connection: the rows already exist, or are written now
            except DeposedError:
                raise
            except JournalError as error:
                raise (doubt or error) from error
        raise doubt or JournalError(f"{self._where}: nothing was written")

    def _appended(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        records = self._records(events, at)
        self._commit(records)
        self._last += len(records)
        self._doubted = ()
        return records

    def _commit(self, records: Sequence[Record]) -> None:
        """Commit records that follow the last one."""
        rows = tuple(codec.row(record) for record in records)
        with telling(self._where, "writing the journal"):
            try:
                with committing(self._engine) as connection:
                    there = self._ours_among(connection, rows)
                    if there < len(rows):
                        connection.execute(_INSERT, list(rows[there:]))
                    for record in records[there:]:
                        self._summarise(connection, record)
            except IntegrityError as error:
                raise self._not_taken(error) from error
            except CommitInDoubt:
                self._doubted = rows
                raise
        for record in records:
            if isinstance(record.event, (*_BEGINNINGS, RunFinished)):
                self._begun = not isinstance(record.event, RunFinished)

    def _records(self, events: Sequence[Event], at: Instant) -> list[Record]:
        """The records of these events; an event whose commit is in doubt keeps its time."""
        records = []
        for number, event in enumerate(events, start=1):
            record = Record(run=self._run, sequence=self._last + number, at=at, event=event)
            if number <= len(self._doubted):
                doubted = self._doubted[number - 1]
                earlier = replace(record, at=cast("float", doubted["at"]))
                record = earlier if codec.row(earlier) == doubted else record
            records.append(record)
        return records

    def _ours_among(self, connection: Connection, rows: tuple[dict[str, object], ...]) -> int:
        """How many of these rows are in the journal already, after a commit in doubt.

        Without a commit in doubt, the insert finds rows of another process: they have the same key.

        Raises:
            DeposedError: the journal has rows of another process, or another process resumed the run.
        """
        # First, since it waits for a late commit of ours, whose rows are there after that.
        line = connection.execute(_LINE, {"of": self._run}).one_or_none()
        there: tuple[dict[str, object], ...] = ()
        if self._doubted:
            found = connection.execute(_SINCE, {"of": self._run, "last": self._last}).mappings()
            there = tuple(dict(row) for row in found)
        if there and not there == self._doubted[: len(there)] == rows[: len(there)]:
            raise self._taken_up(connection, [str(row["event"]) for row in there])
        # From our first event until our last (which may be in doubt) the row has our process and no outcome.
        closed = line is not None and line.outcome is not None and not there
        if self._begun and line is not None and (closed or line.process != self._process):
            theirs = connection.execute(_SINCE, {"of": self._run, "last": self._last}).mappings()
            raise self._taken_up(connection, [str(row["event"]) for row in theirs])
        return len(there)

    def _taken_up(self, connection: Connection, theirs: Sequence[str]) -> DeposedError:
        """The error that names the process that took this run over."""
        entry = tables.runs.c
        # Without events of theirs, another run has restored this one and closed it: the one that names it.
        by = self._run if theirs else heir(self._run, holders(connection))
        line = connection.execute(
            select(entry.id, entry.operator, entry.host).where(entry.id == by)
        ).one_or_none()
        epochs = [
            event.epoch
            for event in (codec.decode_event(codec.from_text(text)) for text in theirs)
            if isinstance(event, LeaseTaken)
        ]
        run = line.id if line is not None else self._run
        owner = f"{line.operator}@{line.host}" if line is not None else "an unknown process"
        here = f"resumed or restored it (event {self._last + 1})" if theirs else "resumed or restored it"
        what = here if run == self._run else f"restored it with run {run}"
        return DeposedError(
            f"{self._where}: another process took over run {self._run}: {owner} {what}; this process writes "
            f"nothing more; see `{next_command('status', run, state=self._state)}`",
            run=run,
            owner=owner,
            epoch=epochs[-1] if epochs else 0,
        )

    def _not_taken(self, error: IntegrityError) -> JournalError:
        """The error if another process wrote at the same moment, or there is no such run."""
        with self._engine.connect() as connection:
            if self._highest(connection) <= self._last:
                return JournalError(f"{self._where}: run {self._run} is not there: {error.orig}")
            # The next attempt finds rows of a commit in doubt.
            columns = tables.events.c
            found = connection.execute(
                select(columns.event).where(columns.run == self._run, columns.sequence > self._last)
            )
            theirs = [str(row.event) for row in found]
            if self._doubted and theirs == [row["event"] for row in self._doubted[: len(theirs)]]:
                return CommitInDoubt(f"{self._where}: the commit was done after all")
            return self._taken_up(connection, theirs)

    def asked(self) -> tuple[Request, str]:
        """The strongest pending request, and its sender.

        While the database cannot be read, the last answer is used: a request never disappears by itself. If
        the database stays unreadable, the next append fails and bars the next stop.
        """
        try:
            with telling(self._where, "reading requests"), self._engine.connect() as connection:
                found = connection.execute(_ASKED, {"of": self._run}).one_or_none()
        except JournalError:
            return self._asked
        # A newer program may leave a stronger request than this one has: it counts as the strongest of these.
        self._asked = (max(each for each in Request if each <= found.kind), found.by) if found else _NOTHING
        return self._asked

    def _highest(self, connection: Connection) -> int:
        query = select(func.max(tables.events.c.sequence)).where(tables.events.c.run == self._run)
        return connection.execute(query).scalar() or 0

    @property
    def _line(self) -> Update:
        return update(tables.runs).where(tables.runs.c.id == self._run)

    def _summarise(self, connection: Connection, record: Record) -> None:
        match record.event:
            case RunStarted(cluster=cluster, cluster_uuid=uuid, operator=operator, host=host):
                connection.execute(
                    self._line.values(
                        cluster=cluster,
                        cluster_uuid=uuid,
                        operator=operator,
                        host=host,
                        process=self._process,
                    )
                )
            case RunResumed(operator=operator, host=host) | RestoreBegun(operator=operator, host=host):
                connection.execute(
                    self._line.values(
                        operator=operator,
                        host=host,
                        process=self._process,
                        outcome=None,
                        exit_code=None,
                        ended=None,
                    )
                )
                connection.execute(delete(tables.requests).where(tables.requests.c.run == self._run))
            case RunFinished(outcome=outcome, exit_code=code):
                connection.execute(self._line.values(outcome=outcome.value, exit_code=code, ended=record.at))
            case ActionSent(action=TuneHost() as action):
                self._note_tuning(connection, action, record.at)
            case _:
                pass

    def _address(self, connection: Connection, node: NodeName) -> str:
        """The address of the node's host when the run began: the node may have left before a revert."""
        if self._addresses is None:
            query = select(tables.events.c.event).where(tables.events.c.run == self._run)
            first = connection.execute(query.order_by(tables.events.c.sequence).limit(1)).scalar_one_or_none()
            began = None if first is None else codec.decode_event(codec.from_text(first))
            self._addresses = began.addresses if isinstance(began, RunStarted) else {}
        return self._addresses.get(node, "")

    def _note_tuning(self, connection: Connection, action: TuneHost, at: Instant) -> None:
        """Write the next change to a host into the ledger, with its event. `tune revert` reads the ledger."""
        run = connection.execute(_OPERATOR, {"of": self._run}).one()
        tuning = Tuning(
            node=action.node,
            tunable=action.tunable,
            changes=action.changes,
            operator=run.operator,
            address=self._address(connection, action.node),
            run=self._run,
        )
        rows = rows_of(run.cluster, tuning, at)
        if rows:
            connection.execute(insert(tables.tunings), rows)


class UnwrittenJournal:
    """The journal of a repair whose state file cannot be written: it keeps no events.

    `restore` needs no journal: if it runs again, it finds everything restored.
    """

    def __init__(self, run: str, *, after: int) -> None:
        self.run, self._last = run, after

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Number the events; nothing is written."""
        records = [
            Record(run=self.run, sequence=self._last + number, at=at, event=event)
            for number, event in enumerate(events, start=1)
        ]
        self._last += len(records)
        return records

    def asked(self) -> tuple[Request, str]:
        """None: no request can be written."""
        return (Request.NONE, "")


class UnwrittenMark:
    """The mark of a run whose last events could not be written: an empty file beside the state file.

    A full disk still takes an empty file, and a locked database does not prevent one. A database server has
    none. Where the mark cannot be made or removed, nothing happens: it is only a hint.

    Args:
        engine: the state database.
        run: the run's id; whatever it holds, the mark is in the folder of the state file.
    """

    def __init__(self, engine: Engine, run: str) -> None:
        state = file_of(engine)
        self._file = None if state is None else Path(f"{state}-unwritten-{quote(run, safe='')}")

    def set(self) -> None:
        """Note that events of the run could not be written."""
        if self._file is not None:
            with suppress(OSError):
                self._file.touch(mode=0o600, exist_ok=False)

    def clear(self) -> None:
        """Note that all its events are written."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def is_set(self) -> bool:
        """Whether events of the run could not be written, and were not written later."""
        try:
            return self._file is not None and self._file.is_file()
        except OSError:  # a name that is too long
            return False
