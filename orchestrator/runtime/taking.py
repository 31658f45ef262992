"""Take a lease that is free, left by a dead process, or expired while it was watched.

A takeover creates the next epoch, which only one process can do. The old holder counts as dead in two cases:
its process is provably gone (same boot, same PID namespace), or its heartbeat counter has not changed for
90 s of the watcher's own clock. Two clocks are never compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, assert_never

from orchestrator.errors import ExitCode, LeaseError
from orchestrator.model.action import Done, InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Garbled, Instant, Seconds, Unauthorized, Unknown
from orchestrator.next_command import next_command
from orchestrator.ports import Clock, LeasePort
from orchestrator.runtime.identity import parse_identity, provably_alive, provably_gone, suspended_pid


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
    watching: Callable[[LeaseRecord, Seconds], None] = lambda _record, _seconds: None
    interrupted: Callable[[], bool] = lambda: False  # whether to stop waiting
    gone: Callable[[str], bool] = provably_gone  # whether a process is provably gone
    alive: Callable[[str], bool] = provably_alive  # whether a process is provably there, on this machine
    # the pid of such a process that is suspended; None otherwise
    suspended: Callable[[str], int | None] = suspended_pid


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
        """Read and wait until this run holds the lease or another run certainly does."""
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

    def _held_by(self, record: LeaseRecord, why: str) -> LeaseError:
        """The refusal that names the holder."""
        stop = next_command("stop", record.run, state=self._place.state)
        return LeaseError(
            f"{_held(record, self._claim, why)}; wait for it, or end it there with `{stop}`"
            " (if it was begun with another state, with that `--state`)"
        )

    def _free(self, found: LeaseRecord, asked: Instant) -> bool:
        """Whether another run's record may be replaced now.

        The counter was first seen at the *end* of the first read and is seen again at the *beginning* of this
        one. So it certainly did not change between the two.
        """
        if self._watcher.gone(found.process):
            return True
        if self._watcher.alive(found.process):
            pid = self._watcher.suspended(found.process)
            if pid is not None:
                raise _held_by_suspended(found, self._claim, pid)
            known = parse_identity(found.process)
            here = f"its process {known.pid}" if known is not None else "its process"
            raise self._held_by(found, f"{here} runs on this machine")
        if self._seen is None:
            self._seen, self._same_since = found, self._clock.now()
            return False
        if _mark(found) != _mark(self._seen):
            raise self._held_by(found, "it is alive: it was refreshed a moment ago")
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
            raise self._held_by(found, "it was first")
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


def take(place: LeaseSite, claim: Claim, *, clock: Clock, terms: Terms, watcher: TakeoverWatch) -> Taken:
    """Take the lease at one place. Wait for another run's lease to expire if its holder may be dead.

    Raises:
        LeaseError: a live run holds it: who, since when, from where.
        LeaseUnreachable: it could not be read or written for `terms.patience`; at once if it is garbled, or
            if the cluster refuses the credentials (`LeaseRefused`).
        WatchInterrupted: the caller stopped waiting.
    """
    return _Taking(place, claim, clock, terms, watcher).take()


def _held_by_suspended(record: LeaseRecord, claim: Claim, pid: int) -> LeaseError:
    """The refusal if the holder's process is suspended: it acts on no request until it is continued."""
    return LeaseError(
        f"{_held(record, claim, f'its process {pid} is suspended on this machine')}; continue it with "
        f"`kill -CONT {pid}`; to have it stand down, `kill {pid}` before that"
    )


def _held(record: LeaseRecord, claim: Claim, why: str) -> str:
    return (
        f"another run holds the lease on {claim.cluster}: run {record.run} of {record.owner}, since "
        f"{record.started} ({why})"
    )


def _mark(record: LeaseRecord) -> tuple[int, str, str, int]:
    return record.epoch, record.run, record.process, record.heartbeat
