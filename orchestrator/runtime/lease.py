"""The run's lease on its cluster: take it, refresh it, update its record, detect its loss, release it.

The lease is in one or two places (the state database, the cluster), and counts as held only while it is held
in each. A lost lease is never taken again during the run. There are three kinds of loss:

- Another process's record is in place of ours: that process is permanently our *successor*. It has our
  pending changes, so this process is deposed: it stops nothing and writes no setting any more.
- The record is permanently gone, and there is no other: someone removed it, or this process was suspended and
  another one took the lease over and released it. This bars only the next stop, until another process's
  record is read there. The run does not wait for it and stands down before the next stop.
- No refresh has succeeded for 60 s. This bars only the next stop, until a refresh succeeds: before 90 s no
  process may take the lease over. But a process that was suspended or cut off may be deposed and not have
  read that yet. Therefore it reads the lease before it writes anything (`confirm`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Final, assert_never

from orchestrator.engine.record import record_of
from orchestrator.engine.state import RunState
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import LeaseView, Successor
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.ports import Clock
from orchestrator.runtime.taking import Claim, LeaseSite, Taken, TakeoverWatch, Terms, WatchInterrupted, take

Watching = Callable[[LeaseRecord, Seconds], None]
"""Called with another run's lease that is being watched, and the seconds until it may be taken over."""

_NOT_TAKEN: Final = "the lease was never taken, or was released"
_JOIN_SECONDS: Final[Seconds] = 5.0


class Lease:
    """A `LeaseKeeper` over one or two places.

    Args:
        places: in the order in which they are taken; the last one's epoch is the run's.
        claim: the identity of this run.
        clock: continues while the machine is suspended, as `SystemClock` does.
        terms: the lease's times.
    """

    def __init__(
        self, places: Sequence[LeaseSite], claim: Claim, clock: Clock, terms: Terms | None = None
    ) -> None:
        self._places, self._claim, self._clock = tuple(places), claim, clock
        self._terms = terms or Terms()
        self._holds: list[_Hold] = []
        self._writing = Lock()  # one write at a time, so that an older record never overwrites a newer one
        self._stopping = Event()
        self._thread: Thread | None = None

    def acquire(self, watcher: TakeoverWatch | None = None) -> Taken:
        """Take the lease in every place; on a refusal or an interruption the taken places are released.

        Returns:
            The last place's record. `previous` is the earlier record there or, if there was none, in another
            place; another run's record comes before our own.
            The record keeps its pending changes until the first `publish`: the run must adopt them before.

        Raises:
            LeaseError: a live run holds it; its subclasses mean no connection or an interruption.
        """
        watcher = watcher or TakeoverWatch()
        taken: list[Taken] = []
        try:
            for place in self._places:
                got = take(
                    place,
                    self._claim,
                    clock=self._clock,
                    terms=self._terms,
                    watcher=replace(watcher, watching=self._keeping(watcher.watching)),
                )
                taken.append(got)
                self._holds.append(_Hold(place, got, claim=self._claim, clock=self._clock, terms=self._terms))
            _heed(watcher, taken)
        except BaseException:
            self._give_back(taken)
            raise
        stood = [one for one in reversed(taken) if one.previous is not None]
        left = [one for one in stood if one.takeover]
        previous = next((one.previous for one in (*left, *stood)), None)
        return replace(taken[-1], takeover=bool(left), previous=previous)

    def start(self) -> None:
        """Start to refresh the lease in a separate thread."""
        self._stopping.clear()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def beat(self) -> bool:
        """Refresh the lease once. Returns whether that succeeded in every place."""
        with self._writing:
            results = [hold.write(hold.wanted) for hold in self._holds]  # each place, even if another fails
            return all(isinstance(result, Done) for result in results)

    def view(self) -> LeaseView:
        """The last known state of the lease; never waits for a call in progress."""
        now = self._clock.now()
        if not self._holds:
            return LeaseView(held=False, holder=_NOT_TAKEN, refreshed=0.0)
        worst = max(self._holds, key=lambda hold: (hold.lost is not None, now - hold.refreshed))
        age = now - worst.refreshed
        successor = next((hold.successor for hold in reversed(self._holds) if hold.successor), None)
        if worst.lost is not None:
            return LeaseView(
                held=False, holder=worst.lost, refreshed=age, successor=successor, gone=successor is None
            )
        if age > self._terms.lost_after:
            known = (
                f"this run could not refresh it in {worst.place.name} for {age:.0f} s"
                f" ({worst.trouble or 'no answer'}), and has read no other run's lease there"
            )
            return LeaseView(held=False, holder=known, refreshed=age)
        return LeaseView(held=True, holder=self._claim.owner, refreshed=age)

    def confirm(self) -> Reading[LeaseView]:
        """The state of the lease now. Reads each place that was not refreshed for `lost_after`.

        Returns:
            Unknown if the last place had to be read and could not be: another process may have taken over.
            An unreadable earlier place hides no takeover while this run holds the last place, since every
            process takes all its places.
        """
        now = self._clock.now()
        unread: str | None = None
        for hold in tuple(self._holds):
            unread = hold.check() if now - hold.refreshed > self._terms.lost_after else None
        view = self.view()
        if unread is not None and view.successor is None:
            return Unknown(reason=unread)
        return view

    def publish(self, state: RunState) -> ActionResult:
        """Update the records to this state if they differ; to be called before its actions.

        Returns:
            The worst of the places' answers; `Refused` also when the lease is lost.
        """
        holds = self._holds
        if holds and all(hold.says(state) for hold in holds):
            return Done()  # without waiting for a heartbeat in progress: a start may be waiting for this
        with self._writing:
            if not self._holds:
                return Refused(reason=_NOT_TAKEN)
            return max((hold.publish(state) for hold in self._holds), key=_badness)

    def release(self) -> tuple[str, ...]:
        """Release it in every place. Returns the failures in words (there it expires by itself)."""
        self.leave()
        with self._writing:
            holds, self._holds = self._holds, []
            troubles = [hold.remove() for hold in reversed(holds)]
        return tuple(trouble for trouble in troubles if trouble)

    def leave(self) -> None:
        """Stop refreshing it and leave the record, so that another bastion can restore the settings in it."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)  # if it hangs in a call: it is a daemon, and writes no more
            self._thread = None

    def _keep(self) -> None:
        delay = self._terms.heartbeat
        while not self._stopping.wait(delay):
            delay = self._terms.heartbeat if self.beat() else self._terms.retry

    def _keeping(self, watching: Watching) -> Watching:
        """The caller's `watching`, which also refreshes the places already taken."""

        def watch(record: LeaseRecord, left: Seconds) -> None:
            now = self._clock.now()
            if any(now - hold.refreshed >= self._terms.heartbeat for hold in self._holds):
                self.beat()
            watching(record, left)

        return watch

    def _give_back(self, taken: Sequence[Taken]) -> None:
        """Remove the taken records. A record with a run's pending changes stays, and expires."""
        holds, self._holds = self._holds, []
        for hold, got in zip(holds, taken, strict=True):
            if got.record.is_settled:
                hold.remove()


class _Hold:
    """The lease in one place."""

    def __init__(self, place: LeaseSite, taken: Taken, *, claim: Claim, clock: Clock, terms: Terms) -> None:
        self.place = place
        self.confirmed = taken.record
        self.wanted = taken.record
        self.refreshed = taken.asked
        self.lost: str | None = None
        self.successor: Successor | None = None
        self.trouble: str | None = None
        self._claim, self._clock, self._terms = claim, clock, terms
        self._counter = taken.record.heartbeat

    def says(self, state: RunState) -> bool:
        """Whether the written record is that of this state."""
        wanted = self.wanted
        return self.lost is None and record_of(state, wanted) == wanted == self.confirmed

    def publish(self, state: RunState) -> ActionResult:
        """Write the record of this state if the written one differs."""
        if self.lost is not None:
            return Refused(reason=f"the lease in {self.place.name} is lost: {self.lost}")
        self.wanted = record_of(state, self.wanted)
        if self.wanted == self.confirmed:
            return Done()
        return self.write(self.wanted)

    def write(self, record: LeaseRecord) -> ActionResult:
        """Write it with the next count. The lease's age counts from before the call, not from the answer."""
        if self.lost is not None:
            return Refused(reason=f"the lease in {self.place.name} is lost: {self.lost}")
        before = self._clock.now()
        unsure = self._unsure(before)
        if unsure:
            return Refused(reason=f"the lease in {self.place.name}: {unsure}")
        self._counter += 1
        result = self.place.port.write(replace(record, heartbeat=self._counter))
        match result:
            case Done():
                self.confirmed, self.refreshed, self.trouble = record, before, None
            case Refused(reason=reason):
                self.trouble = self._look() or reason
            case InDoubt(reason=reason):
                self.trouble = reason
            case _:
                assert_never(result)
        return result

    def remove(self) -> str:
        """Remove our epoch. Returns the reason why it could not be removed, or an empty string."""
        if self.lost is not None:
            return ""  # it belongs to another run now
        unsure = self._unsure(self._clock.now())
        result = Refused(reason=unsure) if unsure else self.place.port.remove(self.confirmed.epoch)
        if isinstance(result, Done):
            return ""
        return f"the lease in {self.place.name} could not be removed ({result.reason}); it runs out by itself"

    def check(self) -> str | None:
        """Read whether it is still ours, or which run took it. Returns the error of the read, or None."""
        if self.successor is not None:
            return None
        trouble = self._look()
        if trouble is None or trouble == self.lost:
            return None
        return f"the lease in {self.place.name} could not be read: {trouble}"

    def _unsure(self, now: Instant) -> str | None:
        """Why the record under our epoch may belong to another run; None while it must be ours.

        After the expiry it may have been taken over, released, and taken again from the first epoch on. Then
        another run's record has our number, so the record is read before it is changed.
        """
        if now - self.refreshed <= self._terms.expiry:
            return None
        self.trouble = self._look()
        return self.trouble

    def _look(self) -> str | None:
        """Read whether it is still ours. Returns the reason if not, or None."""
        found = self.place.port.read()
        if isinstance(found, Unknown):
            return found.reason
        if found is None:
            # Before the expiry no run may have taken it over.
            overslept = self._clock.now() - self.refreshed > self._terms.expiry
            who = "another run took it over and released it, or somebody" if overslept else "somebody"
            self.lost = self.lost or f"its record is gone from {self.place.name} ({who} removed it)"
        elif found.epoch != self.confirmed.epoch or not self._claim.owns(found):
            self.successor = Successor(
                run=found.run,
                owner=found.owner,
                epoch=found.epoch,
                in_hand=tuple(node.node for node in found.in_hand),
            )
            self.lost = f"held by run {found.run} of {found.owner} in {self.place.name}"
        return self.lost


def _heed(watcher: TakeoverWatch, taken: Sequence[Taken]) -> None:
    """Raise `WatchInterrupted` if a request came before the lease was taken in every place."""
    if not watcher.interrupted():
        return
    runs = dict.fromkeys(one.record.debtor for one in taken if not one.record.is_settled)
    stays = f"; the lease's record still lists what run {', '.join(runs)} has not restored" if runs else ""
    raise WatchInterrupted(f"interrupted while taking the lease; nothing was changed{stays}")


def _badness(result: ActionResult) -> int:
    match result:
        case Done():
            return 0
        case InDoubt():
            return 1
        case Refused():
            return 2
        case _:
            assert_never(result)
