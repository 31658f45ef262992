"""The tables of the state database, in SQLAlchemy Core."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    update,
)

from orchestrator.errors import JournalError
from orchestrator.model.event import SCHEMA_VERSION
from orchestrator.runtime.codec import check_schema
from orchestrator.runtime.database import WITHOUT_IT, DatabaseUse, place_of, telling, whole, writing

METADATA: Final = MetaData()
_TABLES_LOCK: Final = 7_163_020_145
"""The number of PostgreSQL's advisory lock under which tables are made: any that others hardly use."""

meta: Final = Table("meta", METADATA, Column("schema", Integer, nullable=False))
"""One row: the schema version of everything in this database."""

runs: Final = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("cluster", Text, nullable=False, index=True),
    Column("cluster_uuid", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("started", Float(53), nullable=False),
    Column("host", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("outcome", Text),
    Column("exit_code", Integer),
    Column("ended", Float(53)),
)
"""One row per run. `outcome` is NULL while an attempt runs, or if it was killed."""

events: Final = Table(
    "events",
    METADATA,
    Column("run", Text, ForeignKey("runs.id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("at", Float(53), nullable=False),
    Column("event", Text, nullable=False),
)
"""The journals, append only: (run, sequence) cannot be written twice by any process."""

requests: Final = Table(
    "requests",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("run", Text, ForeignKey("runs.id"), nullable=False, index=True),
    Column("kind", Integer, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Float(53), nullable=False),
)
"""Requests from other terminals to a run in progress; a resume deletes those of earlier attempts."""

leases: Final = Table(
    "leases",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("heartbeat", Integer, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("record", Text, nullable=False),
)
"""The lease in the state database. `record` has the same form as in a cluster; the rest is for people."""

tunings: Final = Table(
    "tunings",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("cluster", Text, nullable=False, index=True),
    Column("node", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("tunable", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("act", Text, nullable=False),
    Column("change", Text, nullable=False),
    Column("run", Text),
    Column("operator", Text, nullable=False),
    Column("at", Float(53), nullable=False),
)
"""The ledger of what was changed on hosts, append only: a row before each change (`act` is `change`), and one
once it is undone (`undone`). `cluster` is its name: hosts are tuned while a cluster is out of reach, too.
`subject` is what is changed (a path, a service), by which rows belong together."""


def ready(engine: Engine, access: DatabaseUse) -> bool:
    """Create the tables of a new database; check those of an old one.

    Returns:
        Whether there are any: to read creates none.

    Raises:
        JournalError: it is damaged, of another program, of a later version, or not writable.
    """
    where = place_of(engine)
    with telling(where, "opening it"):
        if access is DatabaseUse.READ:
            with engine.connect() as connection:
                there = _checked(connection, where)
                if there:
                    _known(connection, where)
            return there
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                # Two first runs may begin at once; SQLite has taken its lock already.
                connection.execute(select(func.pg_advisory_xact_lock(_TABLES_LOCK)))
            damage = whole(connection)
            if damage is not None:
                raise JournalError(
                    f"{where} is damaged ({damage}); restore a copy, or move it away; {WITHOUT_IT}"
                )
            if _checked(connection, where):
                _known(connection, where)
                METADATA.create_all(connection)  # an earlier version had fewer tables
            else:
                METADATA.create_all(connection)
                connection.execute(insert(meta).values(schema=SCHEMA_VERSION))
            # A write that changes nothing: it finds read-only files and full disks now, and not in mid-run.
            connection.execute(update(meta).values(schema=meta.c.schema))
    return True


def _known(connection: Connection, where: str) -> None:
    found = connection.execute(select(meta.c.schema)).scalars().all()
    if len(found) != 1:
        raise JournalError(f"{where} does not show its version: it is damaged, or not one of orchestrate's")
    check_schema(found[0], where=where)


def _checked(connection: Connection, where: str) -> bool:
    """Whether our tables exist; False in a new database."""
    found = set(inspect(connection).get_table_names())
    ours = set(METADATA.tables)
    if ours <= found or "meta" in found:
        return True  # a later version may have other tables: the version check reports that
    if found & ours or (found and connection.dialect.name == "sqlite"):
        raise JournalError(
            f"{where} is a database of something else (it has {', '.join(sorted(found)[:3])}); "
            "name another with --state"
        )
    return False
