from __future__ import annotations

import threading
from dataclasses import fields, replace

import pytest

from orchestrator.engine.state import RunState, Unrestored
from orchestrator.errors import ExitCode, LeaseError
from orchestrator.model.action import Done, Refused, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import LeaseView, Level, Successor
from orchestrator.model.reading import Garbled, Unknown
from orchestrator.model.turn import HooksOf
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.taking import (
    Claim,
    LeaseGarbled,
    LeaseUnreachable,
    Place,
    Watcher,
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
        places = [Place(name=f"place {number}", port=one) for number, one in enumerate((port, *more), 1)]
        self.lease = Lease(places, claim, self.clock)
        self.shown: list[tuple[str, float]] = []
        self.gone: set[str] = set()
        self.alive: set[str] = set()
        self.interrupt = False

    @property
    def watcher(self) -> Watcher:
        return Watcher(
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


def test_a_process_that_runs_here_is_named_at_once() -> None:
    bench = Bench(FakeLeasePort({4: THEIRS}))
    bench.alive.add(THEIRS.process)
    with pytest.raises(
        LeaseError, match=r"run r1 of anna@bastion1, since 2026-11-21T04:13:00.*stop r1"
    ) as error:
        bench.lease.acquire(bench.watcher)
    assert error.value.exit_code is ExitCode.LEASED
    assert bench.clock.waits == []
    assert bench.port.records == {4: THEIRS}


def test_a_heartbeat_seen_while_watching_means_alive() -> None:
    bench = Bench(FakeLeasePort({4: THEIRS}))

    def beat(_seconds: float) -> None:
        if bench.clock.time > 1_800_000_010:
            bench.port.records[4] = replace(THEIRS, heartbeat=18)

    bench.clock.during_wait = beat
    with pytest.raises(LeaseError, match="refreshed a moment ago"):
        bench.lease.acquire(bench.watcher)
    assert bench.port.records == {4: replace(THEIRS, heartbeat=18)}
    assert sum(bench.clock.waits) < 20


@pytest.mark.proves("lease-expiry")
def test_a_lease_without_a_beat_is_taken_after_90_seconds() -> None:
    bench = Bench(FakeLeasePort({4: THEIRS}))
    taken = bench.lease.acquire(bench.watcher)
    assert sum(bench.clock.waits) == pytest.approx(90)
    assert (taken.record.epoch, taken.takeover, taken.previous) == (5, True, THEIRS)
    assert bench.port.read() == taken.record
    assert bench.shown[0] == ("anna@bastion1", 90)
    assert [left for _, left in bench.shown] == sorted((left for _, left in bench.shown), reverse=True)
    assert held(bench.lease)


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

    lease = Lease([Place(name="slow", port=Slow())], US, bench.clock)
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
    again = Lease([Place(name="place 1", port=bench.port)], replace(US, process="another"), bench.clock)
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


def test_a_lost_answer_to_the_creation_is_looked_up() -> None:
    bench = Bench(FakeLeasePort(answers_lost=1))
    taken = bench.lease.acquire(bench.watcher)
    assert taken.record.epoch == 1
    assert bench.port.writes == 1
    assert held(bench.lease)


def test_a_lease_out_of_reach_is_given_up_after_its_patience() -> None:
    bench = Bench(FakeLeasePort(offline="no route"))
    with pytest.raises(LeaseUnreachable, match="no route") as error:
        bench.lease.acquire(bench.watcher)
    assert error.value.exit_code is ExitCode.HELD
    assert 60 <= sum(bench.clock.waits) <= 70


def test_the_first_place_is_given_back_when_the_second_refuses() -> None:
    second = FakeLeasePort({4: THEIRS})
    bench = Bench(FakeLeasePort(), second)
    bench.alive.add(THEIRS.process)
    with pytest.raises(LeaseError):
        bench.lease.acquire(bench.watcher)
    assert bench.port.records == {}
    assert not held(bench.lease)


def test_changes_taken_over_first_outlast_a_later_refusal() -> None:
    """A second try of the same process finds its own record, with what the first had taken over."""
    second = FakeLeasePort(offline="no master")
    bench = Bench(FakeLeasePort({4: THEIRS}), second)
    bench.gone.add(THEIRS.process)
    with pytest.raises(LeaseUnreachable):
        bench.lease.acquire(bench.watcher)
    again = Lease([Place(name="place 1", port=bench.port)], US, bench.clock)
    taken = again.acquire(bench.watcher)
    assert taken.record.epoch == 5
    assert taken.previous is not None
    assert taken.previous.debts == THEIRS.debts


def test_a_higher_epoch_is_a_loss_for_good() -> None:
    bench = holding()
    bench.port.create(THEIRS)
    assert not bench.lease.beat()
    assert not held(bench.lease)
    assert "anna@bastion1" in bench.lease.view().holder
    bench.port.records.pop(4)
    assert not bench.lease.beat()
    assert isinstance(bench.lease.publish(IN_DEBT), Refused)
    assert not held(bench.lease)


def test_a_foreign_record_of_our_epoch_is_left_alone() -> None:
    """Suspended for long: taken over, given back, and taken anew from the first epoch on."""
    bench = holding()
    port = bench.port
    port.records[1] = replace(THEIRS, epoch=1)
    bench.clock.time += 1000
    assert not bench.lease.beat()
    assert not held(bench.lease)
    assert bench.lease.release() == ()
    assert port.records == {1: replace(THEIRS, epoch=1)}


def test_without_a_refresh_it_is_held_for_60_seconds() -> None:
    bench = holding()
    bench.port.offline = "connection refused"
    bench.clock.time += 59
    assert not bench.lease.beat()
    assert held(bench.lease)
    bench.clock.time += 2
    assert not held(bench.lease)
    assert "connection refused" in bench.lease.view().holder
    assert bench.lease.view().refreshed == pytest.approx(61)
    bench.port.offline = None
    assert bench.lease.beat()
    assert held(bench.lease)
    assert bench.lease.view().refreshed == 0


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


def test_release_says_what_it_could_not_do() -> None:
    bench = holding()
    bench.port.offline = "no route"
    assert "no route" in bench.lease.release()[0]


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


def test_a_failed_refresh_or_missing_record_is_no_successor() -> None:
    bench = holding()
    bench.clock.time += 61
    bench.port.offline = "no route"
    unread = bench.lease.confirm()
    assert isinstance(unread, Unknown)
    assert "could not be read: no route" in unread.reason
    assert bench.lease.view().successor is None
    bench.port.offline = None
    bench.port.records.clear()
    gone = bench.lease.confirm()
    assert isinstance(gone, LeaseView)
    assert (gone.held, gone.successor) == (False, None)


def test_the_last_place_decides_whether_a_lease_is_confirmed() -> None:
    """Every process takes all its places: a state that cannot be read must not bar restores for ever."""
    second = FakeLeasePort()
    bench = holding(second)
    bench.clock.time += 61
    bench.port.offline = "disk I/O error"
    assert isinstance(bench.lease.confirm(), LeaseView)
    bench.port.offline, second.offline = None, "no master"
    assert isinstance(bench.lease.confirm(), Unknown)


def test_a_record_that_is_garbled_is_not_waited_for() -> None:
    bench = Bench(FakeLeasePort(garbled=Garbled(reason="template 4 holds none", remedy="remove template 4")))
    with pytest.raises(LeaseGarbled, match=r"template 4 holds none.*remove template 4") as error:
        bench.lease.acquire(bench.watcher)
    assert error.value.exit_code is ExitCode.HELD
    assert bench.clock.waits == []
