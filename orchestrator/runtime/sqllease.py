"""The lease in the state database: the same port as the one in the cluster."""

from __future__ import annotations

import time

from sqlalchemy import Connection, Engine, delete, desc, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import JournalError
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime import codec, tables
from orchestrator.runtime.database import StateUnwritable, place_of, telling, writing


class SqlLease:
    """A `LeasePort` over the table of leases.

    Args:
        engine: an open state database.
        cluster: the cluster's uuid, or its name where it has none.
    """

    def __init__(self, engine: Engine, cluster: str) -> None:
        self._engine, self._cluster = engine, cluster
        self._where = place_of(engine)

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch; None when there is none."""
        query = (
            select(tables.leases.c.record)
            .where(tables.leases.c.cluster == self._cluster)
            .order_by(desc(tables.leases.c.epoch))
            .limit(1)
        )
        try:
            with telling(self._where, "reading the lease"), self._engine.connect() as connection:
                text = connection.execute(query).scalar()
            return codec.decode_lease(codec.from_text(text)) if text is not None else None
        except JournalError as error:
            return Unknown(reason=str(error))

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create that epoch; `Refused` when somebody else was first.

        Raises:
            StateUnwritable: the disk is full, or this account may only read: no watcher should wait for it.
        """
        try:
            with telling(self._where, "taking the lease"):
                try:
                    with writing(self._engine) as connection:
                        highest = self._highest(connection)
                        if highest >= record.epoch:
                            return Refused(reason=f"epoch {highest} of the lease stands already")
                        connection.execute(insert(tables.leases).values(self._row(record)))
                except IntegrityError:
                    return Refused(reason=f"epoch {record.epoch} of the lease stands already")
        except StateUnwritable:
            raise
        except JournalError as error:
            return InDoubt(reason=str(error))
        return Done()

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch; `Refused` when it is ours no more (a higher epoch stands)."""
        row = tables.leases.c
        try:
            with telling(self._where, "refreshing the lease"), writing(self._engine) as connection:
                highest = self._highest(connection)
                if highest > record.epoch:
                    return Refused(reason=f"epoch {highest} of the lease stands: it was taken over")
                written = connection.execute(
                    update(tables.leases)
                    .where(
                        row.cluster == self._cluster,
                        row.epoch == record.epoch,
                        row.run == record.run,
                        row.process == record.process,
                    )
                    .values(self._row(record))
                )
                if written.rowcount != 1:
                    return Refused(reason=f"epoch {record.epoch} of the lease is not ours, or is gone")
        except JournalError as error:
            return InDoubt(reason=str(error))
        return Done()

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch; what is gone already is done."""
        row = tables.leases.c
        try:
            with telling(self._where, "releasing the lease"), writing(self._engine) as connection:
                connection.execute(
                    delete(tables.leases).where(row.cluster == self._cluster, row.epoch <= epoch)
                )
        except JournalError as error:
            return InDoubt(reason=str(error))
        return Done()

    def _highest(self, connection: Connection) -> int:
        row = tables.leases.c
        return (
            connection.execute(select(func.max(row.epoch)).where(row.cluster == self._cluster)).scalar() or 0
        )

    def _row(self, record: LeaseRecord) -> dict[str, object]:
        return {
            "cluster": self._cluster,
            "epoch": record.epoch,
            "run": record.run,
            "owner": record.owner,
            "process": record.process,
            "heartbeat": record.heartbeat,
            "at": time.time(),  # for people alone: no decision is made on it
            "record": codec.to_text(codec.encode_lease(record)),
        }
