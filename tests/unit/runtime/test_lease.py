"""A run's lease: taken, refused, kept, lost and given back, over the contract of its places."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from orchestrator.engine.state import RunState, Unrestored
from orchestrator.errors import ExitCode, LeaseError
from orchestrator.model.action import Done, InDoubt, Refused, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import LeaseView, Level, Successor
from orchestrator.model.phase import HooksOf
from orchestrator.model.reading import Garbled, Unknown
from orchestrator.runtime.lease import (
    Claim,
    Lease,
    LeaseGarbled,
    LeaseSite,
    LeaseUnreachable,
    TakeoverWatch,
    WatchInterrupted,
)
from tests.fakes.clock import ManualClock
from tests.fakes.lease import FakeLeasePort

US = Claim(cluster="prod", run="r2", owner="ben@bastion2", process="boot/1/20/200")
DEBT = SettingChange(
    level=Level.PERSISTENT, key="cluster.routing.allocation.enable", found=None, wanted="primaries"
)
THEIRS = LeaseRecord(
    epoch=4,
    run="r1",
    owner="anna@bastion1",
    process="boot/1/10/100",
    started="2026-11-21T04:13:00+00:00",
    heartbeat=17,
    debts=(DEBT,),
    excluded=(NodeName("es3"),),
)
LEFT = replace(
    THEIRS,
    replicas=(ReplicasAdded(index="bare", index_uuid="u-2", found=0, wanted=1),),
    in_hand=(NodeInHand(node=NodeName("es2"), incarnation=Incarnation()),),
    out_of_service=(NodeName("es4"),),
    hooks_of=HooksOf(run="r1", playbook="rolling"),
    restarted=(NodeName("es1"),),
)
"""A record that tells of everything that one may."""
IN_DEBT = RunState(run="r2", unrestored=Unrestored(settings={(DEBT.level, DEBT.key): DEBT}))


class Bench:
    """One run's lease on a fake cluster, with time by hand."""

    def __init__(self, port: FakeLeasePort, *more: FakeLeasePort, claim: Claim = US) -> None:
        self.port = port
        self.clock = ManualClock()
        places = [LeaseSite(name=f"place {number}", port=one) for number, one in enumerate((port, *more), 1)]
        self.lease = Lease(places, claim, self.clock)
        self.shown: list[tuple[str, float]] = []
        self.gone: set[str] = set()
        self.alive: set[str] = set()
        self.interrupt = False

    @property
    def watcher(self) -> TakeoverWatch:
        return TakeoverWatch(
            watching=lambda record, left: self.shown.append((record.owner, left)),
            interrupted=lambda: self.interrupt,
            gone=self.gone.__contains__,
            alive=self.alive.__contains__,
        )


def holding(*more: FakeLeasePort) -> Bench:
    """A run that has taken its lease, which was free."""
    bench = Bench(FakeLeasePort(), *more)
    bench.lease.acquire(bench.watcher)
    return bench


def dead(record: LeaseRecord = THEIRS) -> Bench:
    """A run before a lease whose process is provably gone."""
    bench = Bench(FakeLeasePort({record.epoch: record}))
    bench.gone.add(record.process)
    return bench


def held(lease: Lease) -> bool:
    return lease.view().held


# Taken ------------------------------------

OURS = replace(THEIRS, run="r2")
BEATEN = replace(THEIRS, heartbeat=18)
Prepare = Callable[[Bench], Any]


def _gone(bench: Bench) -> None:
    bench.gone.add(THEIRS.process)


def _alive(bench: Bench) -> None:
    bench.alive.add(THEIRS.process)


def _meanwhile(what: Prepare, after: float = 10.0) -> Prepare:
    """This happens while the lease is watched."""

    def prepare(bench: Bench) -> None:
        began = bench.clock.time
        bench.clock.during_wait = lambda _: what(bench) if bench.clock.time > began + after else None

    return prepare


def _says(**fields: Any) -> Prepare:
    def prepare(bench: Bench) -> None:
        for name, value in fields.items():
            setattr(bench.port, name, value)

    return prepare


@pytest.mark.proves("lease-expiry")
def test_how_a_lease_is_taken(subtests: pytest.Subtests) -> None:
    """After 90 seconds without a beat, and at once from a process that is provably gone."""
    for what, stands, prepare, taken, waited in [
        ("free", None, None, (1, False, None), 0.0),
        ("the answer is lost", None, _says(answers_lost=1), (1, False, None), None),
        ("without a beat", THEIRS, None, (5, True, THEIRS), 90.0),
        ("of a dead process", THEIRS, _gone, (5, True, THEIRS), 0.0),
        ("of its own dead process", OURS, _gone, (5, False, OURS), 0.0),
        (
            "given back meanwhile",
            THEIRS,
            _meanwhile(lambda b: b.port.records.clear()),
            (1, False, None),
            None,
        ),
    ]:
        with subtests.test(what):
            bench = Bench(FakeLeasePort({} if stands is None else {4: stands}))
            if prepare is not None:
                prepare(bench)
            found = bench.lease.acquire(bench.watcher)
            assert (found.record.epoch, found.takeover, found.previous) == taken
            assert bench.port.read() == found.record
            assert held(bench.lease)
            assert waited is None or sum(bench.clock.waits) == pytest.approx(waited)
            assert [left for _, left in bench.shown] == sorted(
                (left for _, left in bench.shown), reverse=True
            )
            assert bench.shown[:1] == ([("anna@bastion1", 90)] if waited == 90.0 else bench.shown[:1])


def test_how_a_lease_is_refused(subtests: pytest.Subtests) -> None:
    """And nothing of what stands there is changed. A record that is garbled is not waited for."""
    since = r"run r1 of anna@bastion1, since 2026-11-21T04:13:00.*stop r1"
    beat = _meanwhile(lambda bench: bench.port.records.update({4: BEATEN}))
    interrupt = _meanwhile(lambda bench: setattr(bench, "interrupt", True))
    garbled = Garbled(reason="template 4 holds none", remedy="remove template 4")
    forbidden = "403, manage_index_templates is missing"
    for what, prepare, error, words, code, waited in [
        ("it runs here", _alive, LeaseError, since, ExitCode.LEASED, (0, 0)),
        ("a beat is seen", beat, LeaseError, "refreshed a moment ago", ExitCode.LEASED, (10, 20)),
        ("interrupted", interrupt, WatchInterrupted, "nothing", ExitCode.INTERRUPTED, (10, 90)),
        ("offline", _says(offline="no route"), LeaseUnreachable, "no route", ExitCode.HELD, (60, 70)),
        ("forbidden", _says(forbidden=forbidden), LeaseUnreachable, forbidden, ExitCode.HELD, (0, 90)),
        ("garbled", _says(garbled=garbled), LeaseGarbled, r"template 4 holds none.*remove template 4",
         ExitCode.HELD, (0, 0)),
    ]:  # fmt: skip
        with subtests.test(what):
            bench = Bench(FakeLeasePort({4: THEIRS}))
            prepare(bench)
            with pytest.raises(error, match=words) as refused:
                bench.lease.acquire(bench.watcher)
            assert refused.value.exit_code is code
            assert bench.port.records in ({4: THEIRS}, {4: BEATEN})
            assert waited[0] <= sum(bench.clock.waits) <= waited[1]
            assert not held(bench.lease)


def test_a_slow_first_look_does_not_shorten_the_watch() -> None:
    """What counts is the time between the end of the first look and the beginning of the last."""
    bench = Bench(FakeLeasePort({4: THEIRS}))
    read, port = bench.port.read, bench.port
    began: list[float] = []

    class Slow(FakeLeasePort):
        def read(self) -> object:  # type: ignore[override]  # only slower
            began.append(bench.clock.time)
            bench.clock.time += 25
            return read()

        def create(self, record: LeaseRecord) -> object:  # type: ignore[override]  # the same one's
            return port.create(record)

    lease = Lease([LeaseSite(name="slow", port=Slow())], US, bench.clock)
    assert lease.acquire(bench.watcher).takeover
    assert began[-1] - (began[0] + 25) >= 90


def test_a_takeover_carries_the_debts_on() -> None:
    """A second crash, before the new run has made them its own, must not lose them: none of them."""
    bench = dead(LEFT)
    taken = bench.lease.acquire(bench.watcher)
    of_the_taker = {name: getattr(taken.record, name) for name in ("run", "owner", "process", "started")}
    assert taken.record == replace(LEFT, epoch=5, heartbeat=0, left_by=LEFT.run, **of_the_taker)
    assert taken.record.run == US.run
    unset = [one.name for one in fields(LEFT) if not getattr(LEFT, one.name)]
    assert unset == ["left_by"], "what a record may tell is told in this one"
    assert bench.clock.waits == []


def test_changes_stay_the_other_runs_until_a_taker_records_them() -> None:
    """Killed right after the takeover, `r2` takes its own lease again: what stands there is not its own."""
    bench = Bench(FakeLeasePort({4: THEIRS}))
    bench.gone |= {THEIRS.process, US.process}
    assert bench.lease.acquire(bench.watcher).record.left_by == THEIRS.run
    again = Lease([LeaseSite(name="place 1", port=bench.port)], replace(US, process="another"), bench.clock)
    taken = again.acquire(bench.watcher)
    assert taken.takeover
    assert taken.previous is not None
    assert (taken.previous.run, taken.previous.debtor) == (US.run, THEIRS.run)
    assert (taken.record.debts, taken.record.left_by) == (THEIRS.debts, THEIRS.run)
    assert again.publish(RunState(run=US.run)) == Done()
    assert (bench.port.records[6].left_by, bench.port.records[6].debts) == ("", ())


def test_another_runs_leftovers_go_before_our_own() -> None:
    """They stand in the first place, our own record in the second."""
    bench = Bench(FakeLeasePort({4: THEIRS}), FakeLeasePort({7: replace(THEIRS, epoch=7, run=US.run)}))
    bench.gone.add(THEIRS.process)
    taken = bench.lease.acquire(bench.watcher)
    assert (taken.record.epoch, taken.takeover, taken.previous) == (8, True, THEIRS)


@pytest.mark.parametrize("answers_lost", [0, 1])
def test_a_request_during_the_creation_releases_the_lease(answers_lost: int) -> None:
    first, second = FakeLeasePort(), FakeLeasePort(answers_lost=answers_lost)
    bench = Bench(first, second)

    def ask(_record: LeaseRecord) -> None:
        bench.interrupt = True

    second.on_write = ask
    with pytest.raises(WatchInterrupted, match=r"nothing was changed$") as error:
        bench.lease.acquire(bench.watcher)
    assert error.value.exit_code is ExitCode.INTERRUPTED
    assert (first.records, second.records) == ({}, {})
    assert not held(bench.lease)


def test_a_request_during_a_takeover_leaves_the_pending_changes() -> None:
    bench = dead()

    def ask(_record: LeaseRecord) -> None:
        bench.interrupt = True

    bench.port.on_write = ask
    with pytest.raises(WatchInterrupted, match="what run r1 has not restored"):
        bench.lease.acquire(bench.watcher)
    stands = bench.port.read()
    assert isinstance(stands, LeaseRecord)
    assert (stands.run, stands.left_by, stands.debts) == ("r2", "r1", THEIRS.debts)
    assert not held(bench.lease)


def test_the_first_place_is_given_back_when_the_second_refuses() -> None:
    second = FakeLeasePort({4: THEIRS})
    bench = Bench(FakeLeasePort(), second)
    bench.alive.add(THEIRS.process)
    with pytest.raises(LeaseError):
        bench.lease.acquire(bench.watcher)
    assert bench.port.records == {}
    assert not held(bench.lease)


# Kept and lost ------------------------------------


def test_how_a_lease_is_lost(subtests: pytest.Subtests) -> None:
    """For good, but without a refresh: of that it holds for 60 seconds, and again once one succeeds."""
    first = replace(THEIRS, epoch=1)
    for what, records, words in [
        ("a higher epoch", {4: THEIRS}, "anna@bastion1"),
        ("it is gone", {}, "gone"),
        ("a foreign record of our epoch", {1: first}, "anna@bastion1"),
    ]:
        with subtests.test(what):
            bench = holding()
            ours = dict(bench.port.records)
            bench.port.records.clear()
            bench.port.records.update(records)
            assert not bench.lease.beat()
            assert not held(bench.lease)
            assert words in bench.lease.view().holder
            assert bench.port.records == records, "what stands there is left alone"
            bench.port.records.update(ours)
            assert not bench.lease.beat()
            assert isinstance(bench.lease.publish(IN_DEBT), Refused)
            bench.port.records.update(records)
            assert bench.lease.release() == ()
            assert {**bench.port.records, **records} == bench.port.records
    bench = holding()
    bench.port.offline = "connection refused"
    for passed, holds in ((59.0, True), (2.0, False)):
        bench.clock.time += passed
        assert not bench.lease.beat()
        assert held(bench.lease) is holds
    said = bench.lease.view()
    assert said.holder.startswith("this run could not refresh it in ")
    assert "61 s (connection refused), and has read no other run's lease there" in said.holder
    assert said.refreshed == pytest.approx(61)
    bench.port.offline = None
    assert bench.lease.beat()
    assert held(bench.lease)
    assert bench.lease.view().refreshed == 0


def test_what_could_not_be_published_is_with_the_next_beat() -> None:
    """It is as bad as the worst place."""
    second = FakeLeasePort()
    bench = holding(second)
    second.offline = "timed out"
    assert bench.lease.publish(IN_DEBT) == InDoubt(reason="timed out")
    assert bench.port.records[1].debts == (DEBT,)
    second.offline = None
    assert bench.lease.beat()
    assert second.records[1].debts == (DEBT,)
    second.offline = "no route"
    assert "no route" in bench.lease.release()[0]


def test_a_refresh_counts_from_before_it_was_sent() -> None:
    bench = holding()

    def slow(_record: LeaseRecord) -> None:
        bench.clock.time += 30

    bench.port.on_write = slow
    assert bench.lease.beat()
    assert bench.lease.view().refreshed == pytest.approx(30)


def test_a_state_is_published_only_when_its_record_differs() -> None:
    """A beat counts up, and keeps what was published."""
    bench = holding()
    writes = bench.port.writes
    assert bench.lease.publish(RunState(run="r2")) == Done()
    assert bench.port.writes == writes
    assert bench.lease.publish(IN_DEBT) == Done()
    assert bench.lease.publish(IN_DEBT) == Done()
    assert bench.port.writes == writes + 1
    assert bench.port.records[1].debts == (DEBT,)
    for count in (2, 3):
        assert bench.lease.beat()
        assert (bench.port.records[1].heartbeat, bench.port.records[1].debts) == (count, (DEBT,))


def test_a_written_record_waits_for_no_heartbeat_that_hangs() -> None:
    bench = holding()
    port = bench.port
    assert bench.lease.publish(IN_DEBT) == Done()
    hanging, released = threading.Event(), threading.Event()

    def hang(_record: LeaseRecord) -> None:
        hanging.set()
        assert released.wait(30)

    port.on_write = hang
    beat = threading.Thread(target=bench.lease.beat)
    beat.start()
    assert hanging.wait(30)
    answers: list[object] = []
    publishing = threading.Thread(target=lambda: answers.append(bench.lease.publish(IN_DEBT)))
    publishing.start()
    publishing.join(10)
    assert answers == [Done()]
    released.set()
    beat.join(30)


def test_a_successor_is_named_and_its_record_left_alone() -> None:
    """Suspended and woken: the thread has not run yet, and what is about to be written asks first."""
    second = FakeLeasePort()
    bench = holding(second)
    in_hand = (NodeInHand(node=NodeName("es2"), incarnation=Incarnation()),)
    theirs = replace(THEIRS, in_hand=in_hand)
    second.records[4] = theirs
    bench.clock.time += 59
    assert bench.lease.confirm() == bench.lease.view(), "a fresh lease is not read anew"
    assert bench.lease.view().successor is None
    bench.clock.time += 2
    seen = bench.lease.confirm()
    assert isinstance(seen, LeaseView)
    assert not seen.held
    assert seen.successor == Successor(run="r1", owner="anna@bastion1", epoch=4, in_hand=(NodeName("es2"),))
    assert not bench.lease.beat()
    assert isinstance(bench.lease.publish(IN_DEBT), Refused)
    assert bench.lease.release() == ()
    assert second.records[4] == theirs


def test_the_last_place_decides_whether_a_lease_is_confirmed() -> None:
    """Every process takes all its places: a state that cannot be read must not bar restores for ever."""
    second = FakeLeasePort()
    bench = holding(second)
    bench.clock.time += 61
    bench.port.offline = "disk I/O error"
    assert isinstance(bench.lease.confirm(), LeaseView)
    bench.port.offline, second.offline = None, "no master"
    assert isinstance(bench.lease.confirm(), Unknown)
