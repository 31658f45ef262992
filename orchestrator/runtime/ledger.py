"""The ledger of tuning: the changes to each host, the original values, and what must still be undone.

A row is committed before its change is sent. So any change can be undone with only the ledger and the host,
even one that was never made: the host shows that. For each subject (a path, a service) two things matter
since it was last undone: the original value, which is restored, and every value that we wrote, which shows
whether we wrote the current value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

from sqlalchemy import Engine, insert, inspect, select

from orchestrator.errors import JournalError
from orchestrator.model.cluster import NodeName, require_address
from orchestrator.model.encoding import fields_of
from orchestrator.model.reading import Instant
from orchestrator.model.tuning import Change, subject_of
from orchestrator.runtime import codec, tables
from orchestrator.runtime.database import place_of, telling, writing
from orchestrator.untrusted import UntrustedValue


class Act(Enum):
    """The kind of a row of the ledger."""

    CHANGE = "change"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Changes of one tunable on one host, for the ledger."""

    node: NodeName
    tunable: str
    changes: tuple[Change, ...]
    operator: str
    address: str = ""  # address of the host; empty if unknown
    run: str | None = None  # the run that made them; None for `tune apply`


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedChange:
    """One subject on one machine whose original value must be restored."""

    # the nodes for which it was changed, the latest last: several can share a machine
    nodes: tuple[NodeName, ...]
    tunable: str
    wrote: tuple[Change, ...]  # our changes in order; the first one found the original value
    run: str | None
    operator: str
    at: Instant  # time of the last change; `tunable`, `run` and `operator` are also from the last one

    @property
    def subject(self) -> str:
        """The path, the service or the like."""
        return subject_of(self.wrote[0])

    @property
    def undoing(self) -> tuple[Change, ...]:
        """The changes that may undo it: one for each value that we wrote, the last first.

        All of them restore the original value; they differ in the current value that they expect on the host.
        """
        first = self.wrote[0]
        backwards = [_back(change, first) for change in reversed(self.wrote)]
        return tuple(dict.fromkeys(change for change in backwards if change.found != change.wanted))


Machine = Callable[[NodeName], str]
"""Returns the identity of a node's machine: nodes of one machine get the same text."""


def _each_its_own(node: NodeName) -> str:
    return node


class Ledger:
    """The ledger of one cluster's hosts. Safe to share between threads.

    Args:
        engine: an open state database.
        cluster: its name.
    """

    def __init__(self, engine: Engine, cluster: str) -> None:
        self._engine, self._cluster = engine, cluster
        self._where = place_of(engine)

    def record(self, tuning: Tuning, at: Instant) -> None:
        """Commit changes durably before they are sent.

        Raises:
            JournalError: nothing is written, so nothing may be changed.
        """
        rows = rows_of(self._cluster, tuning, at)
        if rows:
            with telling(self._where, "writing the ledger of tuning"), writing(self._engine) as connection:
                connection.execute(insert(tables.tunings), rows)

    def undone(self, owed: OwedChange, *, operator: str, at: Instant) -> None:
        """Commit that the original value is restored; the change is no longer pending.

        Raises:
            JournalError: it is not written; a second undo finds the original value in place.
        """
        first, last = owed.wrote[0], owed.wrote[-1]
        rows = [
            {
                "cluster": self._cluster,
                "node": node,
                "address": "",
                "tunable": owed.tunable,
                "subject": owed.subject,
                "act": Act.UNDONE.value,
                "change": codec.to_text(fields_of(_back(last, first))),
                "run": None,
                "operator": operator,
                "at": at,
            }
            for node in owed.nodes
        ]
        with telling(self._where, "writing the ledger of tuning"), writing(self._engine) as connection:
            connection.execute(insert(tables.tunings), rows)

    def addresses(self) -> Mapping[NodeName, str]:
        """The last known addresses of the hosts in the ledger: some nodes may have left the cluster.

        Raises:
            JournalError: the ledger cannot be read, or an address in it is invalid.
        """
        row = tables.tunings.c
        query = select(row.node, row.address).where(row.cluster == self._cluster).order_by(row.id)
        found: dict[NodeName, str] = {}
        with telling(self._where, "reading the ledger of tuning"), self._engine.connect() as connection:
            if inspect(connection).has_table(tables.tunings.name):
                for node, address in connection.execute(query):
                    found[NodeName(node)] = address or found.get(NodeName(node), "")
        try:
            for node, address in found.items():
                require_address(node, address)
        except UntrustedValue as error:
            raise JournalError(f"the ledger of tuning is damaged: {error}") from error
        return found

    def owed(self, machine: Machine = _each_its_own) -> Mapping[str, tuple[OwedChange, ...]]:
        """Changes to undo, by machine; the earliest change is last.

        Args:
            machine: identifies the machine of a node; by default each node is its own machine.

        Raises:
            JournalError: the ledger cannot be read.
        """
        query = (
            select(tables.tunings)
            .where(tables.tunings.c.cluster == self._cluster)
            .order_by(tables.tunings.c.id)
        )
        with telling(self._where, "reading the ledger of tuning"), self._engine.connect() as connection:
            if not inspect(connection).has_table(tables.tunings.name):
                return {}  # written by an earlier version, and opened read-only
            rows = [_entry({**row}) for row in connection.execute(query).mappings()]
        return fold(rows, machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A row of the ledger, as read."""

    node: NodeName
    tunable: str
    act: Act
    change: Change
    run: str | None
    operator: str
    at: Instant


def fold(
    entries: Iterable[LedgerEntry], machine: Machine = _each_its_own
) -> Mapping[str, tuple[OwedChange, ...]]:
    """The changes to undo after these rows, in order; see `Ledger.owed`."""
    found: dict[str, dict[tuple[type, str], list[LedgerEntry]]] = {}
    for entry in entries:
        of_machine = found.setdefault(machine(entry.node), {})
        subject = (type(entry.change), subject_of(entry.change))
        if entry.act is Act.UNDONE:
            of_machine.pop(subject, None)
        else:
            of_machine.setdefault(subject, []).append(entry)
    return {
        name: tuple(_owed(entries) for entries in reversed(subjects.values()))
        for name, subjects in found.items()
        if subjects
    }


def rows_of(cluster: str, tuning: Tuning, at: Instant) -> list[dict[str, object]]:
    """The rows to commit before the changes are sent.

    Raises:
        JournalError: the ledger cannot store a change exactly (a file that is not all UTF-8). A change that
            cannot be undone exactly is not made.
    """
    rows: list[dict[str, object]] = []
    for change in tuning.changes:
        text = codec.to_text(fields_of(change))
        if codec.decode_change(codec.from_text(text)) != change:
            raise JournalError(
                f"{tuning.node}: {subject_of(change)} holds bytes that the ledger cannot keep exactly, so it "
                "could not be undone; nothing was changed"
            )
        rows.append(
            {
                "cluster": cluster,
                "node": tuning.node,
                "address": tuning.address,
                "tunable": tuning.tunable,
                "subject": subject_of(change),
                "act": Act.CHANGE.value,
                "change": text,
                "run": tuning.run,
                "operator": tuning.operator,
                "at": at,
            }
        )
    return rows


def _entry(row: Mapping[str, object]) -> LedgerEntry:
    try:
        act = Act(row["act"])
        return LedgerEntry(
            node=NodeName(str(row["node"])),
            tunable=str(row["tunable"]),
            act=act,
            change=codec.decode_change(codec.from_text(str(row["change"]))),
            run=None if row["run"] is None else str(row["run"]),
            operator=str(row["operator"]),
            at=float(str(row["at"])),
        )
    except (JournalError, ValueError) as error:
        raise JournalError(f"row {row['id']} of the ledger of tuning: {error}") from error


def _owed(entries: Sequence[LedgerEntry]) -> OwedChange:
    last = entries[-1]
    return OwedChange(
        nodes=tuple(dict.fromkeys(entry.node for entry in reversed(entries)))[::-1],
        tunable=last.tunable,
        wrote=tuple(entry.change for entry in entries),
        run=last.run,
        operator=last.operator,
        at=last.at,
    )


def _back(change: Change, first: Change) -> Change:
    """The change from the value written here to the original value; both have the same subject and kind."""
    return cast("Change", replace(cast("Any", change.undone()), wanted=first.found))
