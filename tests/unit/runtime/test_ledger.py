"""What stands in the ledger of tuning before anything is changed, and what a revert then has to undo."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import JournalError
from orchestrator.model.action import TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent, GoodReading
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    Reload,
    ServiceChange,
    ServiceMode,
    TunedChange,
    ValueChange,
)
from orchestrator.runtime import tables
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.ledger import Ledger, OwedChange, Tuning
from orchestrator.runtime.store import RunEntry, StateStore, open_store

Entry = Callable[..., RunEntry]
RUN = "20261121-0413-x7k2"
ES1, ES2 = NodeName("es1"), NodeName("es2")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
RULE = "/etc/tmpfiles.d/orchestrate-thp.conf"


def value(found: str, wanted: str, path: str = THP) -> ValueChange:
    return ValueChange(path=path, found=found, wanted=wanted)


def tuning(*changes: Change, node: NodeName = ES1, tunable: str = "thp", run: str | None = None) -> Tuning:
    return Tuning(node=node, tunable=tunable, changes=changes, operator="anna", run=run)


@pytest.fixture
def ledger(store: StateStore) -> Ledger:
    return store.ledger("prod")


def subjects(owed: Mapping[str, tuple[OwedChange, ...]]) -> dict[str, list[str]]:
    return {machine: [one.subject for one in of_it] for machine, of_it in owed.items()}


def test_what_is_owed_is_undone_in_the_reverse_of_its_order(ledger: Ledger) -> None:
    made = FileChange(path=RULE, found=None, wanted="w …\n", reload=Reload.NONE)
    numad = ServiceChange(
        service="numad",
        found=ServiceMode(running=True, enabled=True),
        wanted=ServiceMode(running=False, enabled=False, masked=True),
    )
    profile = TunedChange(found="throughput-performance", wanted="orchestrate")
    block = BlockChange(path="/etc/sysctl.conf", name="vm.swappiness", found=None, wanted="vm.swappiness = 1")
    ledger.record(tuning(profile, tunable="tuned"), 1.0)
    ledger.record(tuning(value("always", "never"), made), 2.0)
    ledger.record(tuning(numad, tunable="numad"), 3.0)
    ledger.record(tuning(block, tunable="vm.swappiness"), 4.0)
    (machine, owed), *others = ledger.owed().items()
    assert (machine, others) == ("es1", [])
    assert [one.subject for one in owed] == [
        "/etc/sysctl.conf [vm.swappiness]",
        "service numad",
        RULE,
        THP,
        "tuned profile",
    ]
    assert [one.undoing for one in owed] == [
        (change.undone(),) for change in (block, numad, made, value("always", "never"), profile)
    ]
    assert {(one.operator, one.nodes) for one in owed} == {("anna", (ES1,))}


def test_the_ledger_has_the_original_value_and_each_of_ours(ledger: Ledger) -> None:
    """A second profile found what the first one had written: that is not what stood there before us."""
    ledger.record(tuning(value("always", "madvise")), 1.0)
    ledger.record(tuning(value("madvise", "never"), tunable="thp again"), 2.0)
    (owed,) = ledger.owed()["es1"]
    assert owed.undoing == (value("never", "always"), value("madvise", "always"))
    assert (owed.tunable, owed.at) == ("thp again", 2.0)


def test_once_undone_it_counts_anew(ledger: Ledger) -> None:
    other = value("60", "1", "/proc/sys/vm/swappiness")
    ledger.record(tuning(value("always", "never"), other), 1.0)
    owed = {one.subject: one for one in ledger.owed()["es1"]}
    ledger.undone(owed[THP], operator="ben", at=2.0)
    assert subjects(ledger.owed()) == {"es1": ["/proc/sys/vm/swappiness"]}
    ledger.record(tuning(value("madvise", "never")), 3.0)
    assert ledger.owed()["es1"][0].undoing == (value("never", "madvise"),)
    for one in ledger.owed()["es1"]:
        ledger.undone(one, operator="ben", at=4.0)
    assert ledger.owed() == {}


def test_the_nodes_of_one_machine_share_what_is_owed(ledger: Ledger) -> None:
    """The second node found what the first one's tuning had left: undone each for itself, that would stay."""
    ledger.record(tuning(value("always", "madvise")), 1.0)
    ledger.record(tuning(value("madvise", "never"), node=ES2), 2.0)
    ((machine, (owed,)),) = ledger.owed(lambda _node: "10.0.0.1").items()
    assert (machine, owed.nodes) == ("10.0.0.1", (ES1, ES2))
    assert owed.undoing == (value("never", "always"), value("madvise", "always"))
    ledger.undone(owed, operator="ben", at=3.0)
    assert ledger.owed() == {}


def test_a_restart_writes_its_tuning_with_the_journal(store: StateStore, entry: Entry) -> None:
    journal = store.create_run(entry())
    tune = TuneHost(node=ES1, tunable="thp", changes=(value("always", "never"),))
    journal.append((GoodReading(count=1), ActionSent(action=tune)), 7.0)
    (owed,) = store.ledger("prod").owed()["es1"]
    assert (owed.run, owed.operator, owed.at, owed.tunable) == (RUN, "anna", 7.0, "thp")
    assert owed.undoing == (value("never", "always"),)


def test_event_and_ledger_stand_or_fall_together(store: StateStore, entry: Entry) -> None:
    journal = store.create_run(entry())
    sent = ActionSent(action=TuneHost(node=ES1, tunable="thp", changes=(value("always", "never"),)))
    store.journal(RUN).append((GoodReading(count=1),), 1.0)
    with pytest.raises(JournalError, match="another process"):
        journal.append((sent,), 2.0)
    assert store.ledger("prod").owed() == {}
    tables.tunings.drop(store._engine)
    with pytest.raises(JournalError, match="tunings"):
        store.journal(RUN).append((sent,), 3.0)
    assert [record.event for record in store.replay(RUN)] == [GoodReading(count=1)]


def test_what_cannot_be_kept_exactly_is_not_begun(ledger: Ledger) -> None:
    latin = FileChange(path="/etc/x", found=b"caf\xe9".decode("utf-8", "surrogateescape"), wanted="ours")
    with pytest.raises(JournalError, match=r"es1: /etc/x holds bytes .* nothing was changed"):
        ledger.record(tuning(value("always", "never"), latin), 1.0)
    assert ledger.owed() == {}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_the_change_it_is_in_the_ledger(
    store: StateStore, url: str, tmp_path: Path, start: Callable[..., Any], moment: str
) -> None:
    """Before the change or after it: the row is there, and the host alone tells which it was."""
    host = tmp_path / "host"
    host.write_text("always")
    child = start("tune", url, str(host), moment)
    _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors
    assert host.read_text() == {"before": "always", "after": "never"}[moment]
    (owed,) = store.ledger("prod").owed()["es1"]
    assert owed.undoing == (value("never", "always", str(host)),)


def _without_table(file: Path) -> None:
    """What an earlier version left."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("drop table tunings")
    database.close()


def test_an_earlier_database_gets_its_ledger_when_written(
    store: StateStore, url: str, tmp_path: Path, entry: Entry
) -> None:
    store.create_run(entry()).append((GoodReading(count=1),), 1.0)
    store.close()
    _without_table(tmp_path / "state.db")
    reader = open_store(url, {}, access=DatabaseUse.READ)
    assert reader.ledger("prod").owed() == {}
    reader.close()
    for access in (DatabaseUse.CONTINUE, DatabaseUse.WRITE):
        opened = open_store(url, {}, access=access)
        opened.ledger("prod").record(tuning(value("always", "never")), 2.0)
        assert subjects(opened.ledger("prod").owed()) == {"es1": [THP]}
        assert len(opened.replay(RUN)) == 1
        opened.close()
        _without_table(tmp_path / "state.db")


def test_a_row_that_cannot_be_read_is_named(ledger: Ledger, store: StateStore) -> None:
    ledger.record(tuning(value("always", "never")), 1.0)
    with store._engine.begin() as connection:
        connection.execute(tables.tunings.update().values(change='{"change": "spell"}'))
    with pytest.raises(JournalError, match=r"row 1 of the ledger of tuning: .*'spell'"):
        ledger.owed()
