"""The lease in the state database: the same port as the one in the cluster."""

from __future__ import annotations

import time
from typing import Final

from sqlalchemy import Connection, Engine, bindparam, delete, desc, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import JournalError
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime import codec, tables
from orchestrator.runtime.database import StateUnwritable, place_of, telling, writing

_LEASE: Final = tables.leases.c
# The statements of every heartbeat, built once: building one takes longer than running it.
_RECORD: Final = (
    select(_LEASE.record).where(_LEASE.cluster == bindparam("of")).order_by(desc(_LEASE.epoch)).limit(1)
)
_HIGHEST: Final = select(func.max(_LEASE.epoch)).where(_LEASE.cluster == bindparam("of"))
_REFRESH: Final = (
    update(tables.leases)
    .where(
        _LEASE.cluster == bindparam("of"),
        _LEASE.epoch == bindparam("its_epoch"),
        _LEASE.run == bindparam("its_run"),
        _LEASE.process == bindparam("its_process"),
    )
    .values({name: bindparam(name) for name in ("owner", "heartbeat", "at", "record")})
)


class SqlLease:
    """A `LeasePort` over the table of leases.

    Args:
        engine: an open state database.
        cluster: the cluster's uuid, or its name if it has none.
    """

    def __init__(self, engine: Engine, cluster: str) -> None:
        self._engine, self._cluster = engine, cluster
        self._where = place_of(engine)

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch; None if there is none."""
        try:
            with telling(self._where, "reading the lease"), self._engine.connect() as connection:
                text = connection.execute(_RECORD, {"of": self._cluster}).scalar()
            return codec.decode_lease(codec.from_text(text)) if text is not None else None
        except JournalError as error:
            return Unknown(reason=str(error))

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create this epoch; `Refused` if another run was first.

        Raises:
            StateUnwritable: the disk is full, or this account may only read: waiting does not help.
        """
        try:
            with telling(self._where, "taking the lease"):
                try:
                    with writing(self._engine) as connection:
                        highest = self._highest(connection)
                        if highest >= record.epoch:
                            return Refused(reason=f"epoch {highest} of the lease is taken already")
                        connection.execute(insert(tables.leases).values(self._row(record)))
                except IntegrityError:
                    return Refused(reason=f"epoch {record.epoch} of the lease is taken already")
        except StateUnwritable:
            raise
        except JournalError as error:
            return InDoubt(reason=str(error))
        return Done()

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch; `Refused` if the lease was lost (there is a higher epoch)."""
        row = self._row(record)
        where = {
            "of": self._cluster,
            "its_epoch": record.epoch,
            "its_run": record.run,
            "its_process": record.process,
        }
        values = {name: row[name] for name in ("owner", "heartbeat", "at", "record")}
        try:
            with telling(self._where, "refreshing the lease"), writing(self._engine) as connection:
                highest = self._highest(connection)
                if highest > record.epoch:
                    return Refused(reason=f"epoch {highest} of the lease is newer: it was taken over")
                written = connection.execute(_REFRESH, where | values)
                if written.rowcount != 1:
                    return Refused(reason=f"epoch {record.epoch} of the lease is not ours, or is gone")
        except JournalError as error:
            return InDoubt(reason=str(error))
        return Done()

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch. Missing records count as removed."""
        try:
            with telling(self._where, "releasing the lease"), writing(self._engine) as connection:
                chosen = (_LEASE.cluster == self._cluster, _LEASE.epoch <= epoch)
                connection.execute(delete(tables.leases).where(*chosen))
        except JournalError as error:
            return InDoubt(reason=str(error))
        return Done()

    def _highest(self, connection: Connection) -> int:
        return connection.execute(_HIGHEST, {"of": self._cluster}).scalar() or 0

    def _row(self, record: LeaseRecord) -> dict[str, object]:
        return {
            "cluster": self._cluster,
            "epoch": record.epoch,
            "run": record.run,
            "owner": record.owner,
            "process": record.process,
            "heartbeat": record.heartbeat,
            "at": time.time(),  # only for people: no decision depends on it
            "record": codec.to_text(codec.encode_lease(record)),
        }
