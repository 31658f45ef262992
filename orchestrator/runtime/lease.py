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

A lease is taken that is free, left by a dead process, or expired while it was watched. A takeover creates the
next epoch, which only one process can do. The old holder counts as dead in two cases: its process is provably
gone (same boot, same PID namespace), or its heartbeat counter has not changed for 90 s of the watcher's own
clock. Two clocks are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from typing import ClassVar, Final, assert_never

from orchestrator.engine.record import record_of
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, LeaseError
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import LeaseView, Successor
from orchestrator.model.reading import Garbled, Instant, Reading, Seconds, Unauthorized, Unknown
from orchestrator.next_command import next_command
from orchestrator.ports import Clock, LeasePort
from orchestrator.runtime.identity import parse_identity, provably_alive, provably_gone, suspended_pid

Watching = Callable[[LeaseRecord, Seconds], None]
"""Called with another run's lease that is being watched, and the seconds until it may be taken over."""

_NOT_TAKEN: Final = "the lease was never taken, or was released"
_JOIN_SECONDS: Final[Seconds] = 5.0
_BADNESS: Final[Mapping[type, int]] = {Done: 0, InDoubt: 1, Refused: 2}


class LeaseUnreachable(LeaseError):  # noqa: N818  (named for the event, like its siblings)
    """The lease can be neither read nor taken: no connection or no rights. Nothing was changed."""

    exit_code: ClassVar[ExitCode] = ExitCode.HELD


class LeaseRefused(LeaseUnreachable):
    """The cluster refuses the credentials: waiting does not help. The cluster was not changed.

    Attributes:
        started: nodes that were started over SSH meanwhile; `down`: those that did not start.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __init__(
        self, message: str, *, started: tuple[NodeName, ...] = (), down: tuple[NodeName, ...] = ()
    ) -> None:
        super().__init__(message)
        self.started, self.down = started, down


class LeaseGarbled(LeaseUnreachable):
    """The lease's place holds something other than a record; waiting does not help. Nothing was changed."""


class WatchInterrupted(LeaseError):  # noqa: N818  (as above)
    """A signal came while the lease was being taken; nothing was changed."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERRUPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The lease's times, in seconds."""

    heartbeat: Seconds = 15.0  # between two refreshes; `retry` after one that failed
    retry: Seconds = 5.0
    # without a refresh for this long the lease no longer counts as held. This is well before `expiry`, so
    # that this run stops no more nodes before another run may begin.
    lost_after: Seconds = 60.0
    expiry: Seconds = 90.0  # a watcher that sees the same counter for this long may take over
    poll: Seconds = 2.0  # between two reads of a watcher
    patience: Seconds = 60.0  # how long to retry an unreadable lease


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSite:
    """The place of a lease."""

    name: str  # for messages: `the cluster`, `the state file …`
    port: LeasePort
    # the state database that holds it, as after `--state`; empty for the usual place or the cluster
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHolder:
    """A run that has the lease of a cluster, and whose process is not known to be gone."""

    cluster: str  # its name, for messages
    run: str
    owner: str  # `user@host`
    since: str  # RFC 3339
    state: str = ""  # the state database with its journal, as after `--state`; empty if that is not known
    here: str = ""  # what its process provably does on this machine; empty where nothing is proven
    suspended: int | None = None  # the pid of that process if it is suspended

    @classmethod
    def of(
        cls,
        cluster: str,
        record: LeaseRecord,
        *,
        state: str = "",
        alive: Callable[[str], bool] = provably_alive,
        suspended: Callable[[str], int | None] = suspended_pid,
    ) -> ClusterHolder:
        """The holder by its record, and what this machine can prove of its process."""
        holder = cls(cluster=cluster, run=record.run, owner=record.owner, since=record.started, state=state)
        if not alive(record.process):
            return holder
        pid, known = suspended(record.process), parse_identity(record.process)
        its = "its process" if known is None else f"its process {known.pid}"
        does = "runs" if pid is None else "is suspended"
        return replace(holder, here=f"{its} {does} on this machine", suspended=pid)

    def refusal(self, *, proof: str = "", advice: str = "") -> LeaseError:
        """The refusal that names it: who, since when and where, and what to do.

        Args:
            proof: why it counts as alive; empty for what is proven here.
            advice: what to do; empty to watch it or to end it.
        """
        why = f" ({proof or self.here})" if proof or self.here else ""
        return LeaseError(
            f"another run holds the lease on {self.cluster}: run {self.run} of {self.owner}, "
            f"since {self.since}{why}; {advice or self._advice}"
        )

    @property
    def _advice(self) -> str:
        if (pid := self.suspended) is not None:  # it acts on no request until it is continued
            return f"continue it with `kill -CONT {pid}`; to have it stand down, `kill {pid}` before that"
        watch = next_command("status", self.run, "--watch", state=self.state)
        stop = next_command("stop", self.run, state=self.state)
        at = "" if self.here else " there"
        return (
            f"wait for it (`{watch}` shows it{at}), or end it{at} with `{stop}` "
            "(if it was begun with another state, with that `--state`)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The run that takes the lease."""

    cluster: str  # its name, for messages
    run: str
    owner: str  # `user@host`
    process: str  # `ProcessIdentity` as text

    def owns(self, record: LeaseRecord) -> bool:
        """Whether this process wrote the record."""
        return (record.run, record.process) == (self.run, self.process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A lease that this run now holds."""

    record: LeaseRecord
    asked: Instant  # start of the call that took the lease; the lease's age counts from there
    takeover: bool = False  # `previous` belongs to another run: begin with a stand-down from it
    previous: LeaseRecord | None = None  # the earlier record; also if a run takes its own lease again


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverWatch:
    """The caller's functions for the wait for another run's lease."""

    # called after each read, with the record and the seconds until it may be taken over
    watching: Watching = lambda _record, _seconds: None
    interrupted: Callable[[], bool] = lambda: False  # whether to stop waiting
    gone: Callable[[str], bool] = provably_gone  # whether a process is provably gone
    alive: Callable[[str], bool] = provably_alive  # whether a process is provably there, on this machine
    # the pid of such a process that is suspended; None otherwise
    suspended: Callable[[str], int | None] = suspended_pid


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
        keeping = replace(watcher, watching=self._keeping(watcher.watching))
        whose = self._claim, self._clock, self._terms
        try:
            for place in self._places:
                self._holds.append(_Hold(place, *whose, _Taking(place, *whose, keeping).take()))
            taken = [hold.taken for hold in self._holds]
            _heed(watcher, taken)
        except BaseException:
            self._give_back()
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
            results = [hold.publish(state) for hold in self._holds]
            return max(results, key=lambda result: _BADNESS[type(result)])

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

    def _give_back(self) -> None:
        """Remove the taken records. A record with a run's pending changes stays, and expires."""
        holds, self._holds = self._holds, []
        for hold in holds:
            if hold.taken.record.is_settled:
                hold.remove()


class _Taking:
    """One attempt at one place, with the earlier readings of it."""

    def __init__(
        self, place: LeaseSite, claim: Claim, clock: Clock, terms: Terms, watcher: TakeoverWatch
    ) -> None:
        self._place, self._claim, self._clock = place, claim, clock
        self._terms, self._watcher = terms, watcher
        self._trouble_since: Instant | None = None
        self._seen: LeaseRecord | None = None
        self._same_since: Instant = 0.0
        self._replaced: LeaseRecord | None = None

    def take(self) -> Taken:
        """Read and wait until this run holds the lease or another run certainly does.

        Raises:
            LeaseError: a live run holds it: who, since when, from where.
            LeaseUnreachable: it could not be read or written for `terms.patience`; at once if it is garbled,
                or if the cluster refuses the credentials (`LeaseRefused`).
            WatchInterrupted: the caller stopped waiting.
        """
        while True:
            asked = self._clock.now()
            found = self._place.port.read()
            if isinstance(found, LeaseRecord) and self._claim.owns(found):
                return self._taken(found, asked)
            if self._watcher.interrupted():
                raise WatchInterrupted(
                    f"interrupted while waiting for the lease in {self._place.name}; nothing was changed"
                )
            if isinstance(found, Unknown):
                self._bear(found)
                continue
            if found is None or self._free(found, asked):
                taken = self._create(found)
                if taken is not None:
                    return taken
                continue
            left = max(0.0, self._terms.expiry - (self._clock.now() - self._same_since))
            self._trouble_since = None
            self._watcher.watching(found, left)
            self._clock.wait(min(self._terms.poll, left))

    def _holder(self, record: LeaseRecord) -> ClusterHolder:
        state, watcher = self._place.state, self._watcher
        return ClusterHolder.of(
            self._claim.cluster, record, state=state, alive=watcher.alive, suspended=watcher.suspended
        )

    def _free(self, found: LeaseRecord, asked: Instant) -> bool:
        """Whether another run's record may be replaced now.

        The counter was first seen at the *end* of the first read and is seen again at the *beginning* of this
        one. So it certainly did not change between the two.
        """
        if self._watcher.gone(found.process):
            return True
        holder = self._holder(found)
        if holder.here:
            raise holder.refusal()
        if self._seen is None:
            self._seen, self._same_since = found, self._clock.now()
            return False
        if _mark(found) != _mark(self._seen):
            raise holder.refusal(proof="it is alive: it was refreshed a moment ago")
        return asked - self._same_since >= self._terms.expiry

    def _create(self, found: LeaseRecord | None) -> Taken | None:
        """Create the next epoch; None if the answer was lost, so that the lease must be read again."""
        new = LeaseRecord(
            epoch=found.epoch + 1 if found else 1,
            run=self._claim.run,
            owner=self._claim.owner,
            process=self._claim.process,
            started=datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="seconds"),
        )
        if found is not None:
            # The new record keeps the pending changes of the old one until the run has taken them over:
            # a second crash must not lose them.
            new = replace(
                new,
                debts=found.debts,
                replicas=found.replicas,
                excluded=found.excluded,
                in_hand=found.in_hand,
                out_of_service=found.out_of_service,
                hooks_of=found.hooks_of,
                restarted=found.restarted,
                left_by=found.debtor if found.debtor != new.run else "",
            )
        self._replaced = found
        asked = self._clock.now()
        result = self._place.port.create(new)
        match result:
            case Done():
                return self._taken(new, asked)
            case Refused(reason=reason):
                return self._refused(new, reason)
            case InDoubt(reason=reason):
                self._bear(Unknown(reason=reason))
                return None
            case _:
                assert_never(result)

    def _refused(self, new: LeaseRecord, reason: str) -> Taken | None:
        """Read the lease: another process was first, or this account may not write it."""
        asked = self._clock.now()
        found = self._place.port.read()
        if isinstance(found, Unknown):
            self._bear(found)
            return None
        if found is not None and self._claim.owns(found):
            return self._taken(found, asked)
        if found is not None and found.epoch >= new.epoch:
            raise self._holder(found).refusal(proof="it was first")
        raise LeaseUnreachable(
            f"the lease in {self._place.name} cannot be taken: {reason}; nothing was changed"
        )

    def _taken(self, record: LeaseRecord, asked: Instant) -> Taken:
        previous = self._replaced
        if previous is None and not record.is_settled:
            # Taken by an earlier attempt of this process, before another place refused. The record still has
            # the changes that it took over.
            previous = record
        takeover = previous is not None and previous.debtor != self._claim.run
        return Taken(record=record, asked=asked, takeover=takeover, previous=previous)

    def _bear(self, trouble: Unknown) -> None:
        """Wait after a failed call; raise if waiting cannot help or calls have failed for too long."""
        if isinstance(trouble, Garbled):
            raise LeaseGarbled(
                f"the lease in {self._place.name} cannot be read: {trouble.reason}; nothing was changed. "
                f"What to do: {trouble.remedy}"
            )
        if isinstance(trouble, Unauthorized):
            why = f"the lease in {self._place.name} cannot be read: {trouble.refusal.sentence}"
            raise LeaseRefused(f"{why}; nothing was changed")
        now = self._clock.now()
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since > self._terms.patience:
            raise LeaseUnreachable(
                f"the lease in {self._place.name} can be neither read nor taken: {trouble.reason}; "
                "nothing was changed"
            )
        self._clock.wait(self._terms.poll)


class _Hold:
    """The lease in one place."""

    def __init__(self, place: LeaseSite, claim: Claim, clock: Clock, terms: Terms, taken: Taken) -> None:
        self.place, self.taken = place, taken
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
        if self.lost is None:
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


def _mark(record: LeaseRecord) -> tuple[int, str, str, int]:
    return record.epoch, record.run, record.process, record.heartbeat


class UnwrittenLease:
    """The lease in a state database that can only be read: taken in memory, on top of the stored record.

    Only for a repair. It sees a holder that is already there, since it watches the record as any other run
    does. A later run does not see this lease. That run may be another repair, which restores the same values.
    Or it is a run that can write (space was freed, another account): it appears here as a takeover.

    Args:
        there: the lease in the state database.
    """

    def __init__(self, there: LeasePort) -> None:
        self._there = there
        self._ours: LeaseRecord | None = None
        self._known = 0  # stored records up to this epoch were taken over here

    def read(self) -> Reading[LeaseRecord | None]:
        """Our record, unless a later one is stored. A stored record that was taken over is not returned."""
        found = self._there.read()
        return found if isinstance(found, Unknown) or self._is_news(found) else self._ours

    def create(self, record: LeaseRecord) -> ActionResult:
        """Keep it in memory; `Refused` if this epoch or a later one is stored."""
        found = self._there.read()
        if isinstance(found, LeaseRecord):
            if self._is_news(found) and found.epoch >= record.epoch:
                return Refused(reason=f"epoch {found.epoch} of the lease is taken already")
            self._known = max(found.epoch, self._known)
        self._ours = record
        return Done()

    def write(self, record: LeaseRecord) -> ActionResult:
        """Keep it in memory; `Refused` if another run has stored a later record."""
        found = self._there.read()
        if isinstance(found, LeaseRecord) and self._is_news(found):
            if (found.epoch, found.run, found.process) != (record.epoch, record.run, record.process):
                return Refused(reason=f"epoch {found.epoch} of the lease is newer: it was taken over")
            self._known = found.epoch  # ours, written while there was still room for it
        self._ours = record
        return Done()

    def remove(self, epoch: int) -> ActionResult:
        """Forget it; the next run that can write reads the stored record again."""
        del epoch
        self._ours = None
        return Done()

    def _is_news(self, found: LeaseRecord | None) -> bool:
        return found is not None and found.epoch > self._known
