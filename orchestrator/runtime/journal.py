"""The journal of one run in SQL: append only, one durable transaction a step."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from sqlalchemy import Connection, Engine, delete, desc, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import JournalError
from orchestrator.model.action import TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    Event,
    Record,
    RestoreBegun,
    RunFinished,
    RunResumed,
    RunStarted,
)
from orchestrator.model.phase import Request
from orchestrator.model.reading import Instant
from orchestrator.runtime import codec, tables
from orchestrator.runtime.database import place_of, telling, writing
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.ledger import Tuning, rows_of


class SqlJournal:
    """The `Journal` of a run, for one process.

    The rows of `runs` are a summary of the events and change in the same transaction with them.

    Args:
        engine: an open state database.
        run: its id; the run must have been created.
        after: sequence of the last event that the caller has replayed; None takes what stands there now.

    Raises:
        JournalError: the database cannot be read.
    """

    def __init__(self, engine: Engine, run: str, *, after: int | None = None) -> None:
        self._engine, self._run = engine, run
        self._where = place_of(engine)
        self._lock = Lock()
        self._process = str(current_process())
        self._asked: tuple[Request, str] = (Request.NONE, "")
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

        Raises:
            JournalError: nothing of them is written, and nothing may be done on their strength: the disk is
                full, the file is locked, damaged or read-only, or another process has taken the run up.
        """
        if not events:
            return ()
        with self._lock:
            records = [
                Record(run=self._run, sequence=self._last + number, at=at, event=event)
                for number, event in enumerate(events, start=1)
            ]
            rows = [codec.row(record) for record in records]
            with telling(self._where, "writing the journal"):
                try:
                    with writing(self._engine) as connection:
                        if self._highest(connection) != self._last:
                            raise self._overtaken()
                        connection.execute(insert(tables.events), rows)
                        for record in records:
                            self._summarise(connection, record)
                except IntegrityError as error:
                    raise self._overtaken() from error
            self._last += len(records)
            return records

    def request(self) -> Request:
        """The strongest request that another terminal has left for this run."""
        return self.asked()[0]

    def asked(self) -> tuple[Request, str]:
        """The strongest request left, and by whom.

        While the database cannot be read, the last answer stands: a request never goes away by itself, and a
        database that stays unreadable bars the next stop at the next append anyhow.
        """
        query = (
            select(tables.requests.c.kind, tables.requests.c.by)
            .where(tables.requests.c.run == self._run)
            .order_by(desc(tables.requests.c.kind), tables.requests.c.number)
            .limit(1)
        )
        try:
            with telling(self._where, "reading requests"), self._engine.connect() as connection:
                found = connection.execute(query).one_or_none()
        except JournalError:
            return self._asked
        self._asked = (Request(found.kind), found.by) if found else (Request.NONE, "")
        return self._asked

    def _highest(self, connection: Connection) -> int:
        query = select(func.max(tables.events.c.sequence)).where(tables.events.c.run == self._run)
        return connection.execute(query).scalar() or 0

    def _overtaken(self) -> JournalError:
        return JournalError(
            f"{self._where}: another process has written to run {self._run} since event {self._last}: it has "
            f"taken the run up; see `orchestrate status {self._run}`"
        )

    def _summarise(self, connection: Connection, record: Record) -> None:
        row = update(tables.runs).where(tables.runs.c.id == self._run)
        match record.event:
            case RunStarted(cluster=cluster, cluster_uuid=uuid, operator=operator, host=host):
                connection.execute(
                    row.values(
                        cluster=cluster,
                        cluster_uuid=uuid,
                        operator=operator,
                        host=host,
                        process=self._process,
                    )
                )
            case RunResumed(operator=operator, host=host) | RestoreBegun(operator=operator, host=host):
                connection.execute(
                    row.values(
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
                connection.execute(row.values(outcome=outcome.value, exit_code=code, ended=record.at))
            case ActionSent(action=TuneHost() as action):
                self._note_tuning(connection, action, record.at)
            case _:
                pass

    def _address(self, connection: Connection, node: NodeName) -> str:
        """Where the node's host was when the run began: a revert may come when the node is no member."""
        query = select(tables.events.c.event).where(tables.events.c.run == self._run)
        first = connection.execute(query.order_by(tables.events.c.sequence).limit(1)).scalar_one_or_none()
        began = None if first is None else codec.decode_event(codec.from_text(first))
        return began.addresses.get(node, "") if isinstance(began, RunStarted) else ""

    def _note_tuning(self, connection: Connection, action: TuneHost, at: Instant) -> None:
        """Into the ledger with the event: what is about to be changed on a host. `tune revert` reads it."""
        query = select(tables.runs.c.cluster, tables.runs.c.operator).where(tables.runs.c.id == self._run)
        run = connection.execute(query).one()
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
    """The journal of a repair whose state file cannot be written: nothing of it is kept.

    `restore` needs nothing to be written down: done again, it finds everything put back.
    """

    def __init__(self, run: str, *, after: int) -> None:
        self.run, self._last = run, after

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Number them; nothing is written."""
        records = [
            Record(run=self.run, sequence=self._last + number, at=at, event=event)
            for number, event in enumerate(events, start=1)
        ]
        self._last += len(records)
        return records

    def request(self) -> Request:
        """Nobody can leave one."""
        return Request.NONE

    def asked(self) -> tuple[Request, str]:
        """As above."""
        return (Request.NONE, "")
