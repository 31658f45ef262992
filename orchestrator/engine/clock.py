"""The watched clock, by which the limits of a run count: of the time between two readings, 30 s at most.

A program that was suspended, or that a verb kept from reading, has not seen whether what it waits for has
happened. So that time counts for little, and each limit is right by itself. The rule:

- Moments in the state are of the real clock, as in the journal, and nothing moves them. The state of the
  process has the pauses besides: each `StoodStill` adds one. A new process begins without any, and with
  moments that are not older than itself (`succession`).
- How long a wait has lasted is asked here (`passed`): for every limit (`limits`), and for what follows from a
  time without change (an absence, a lost stop, handoff that does not move).
- It is asked at the moment of the reading (`seen.at`) about what a node, a host or a verb is to show: only a
  reading that was begun after a limit shows that it did not happen. A verb in doubt is among them: if the
  machine of the program stood still, the verb may leave it when both wake up.
- It is asked at the moment of the decision (`now`) about waits of the run as a whole; what is later than the
  reading counts like what is before the next one, 30 s at most.
- Real time counts for `--timeout`, which is the time that the operator gives, and for disabled allocation,
  which is not harmless unwatched. So it does in figures, in the pauses between two tries or two polls, for
  what gates compare, and for the lease.
- What was known by watching ends with a long standstill, as with the process: an absence begins again, as the
  member may have been back, and so does a lost stop, as it may have been done (`fold`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.model.reading import Instant, Seconds

UNWATCHED_SECONDS: Final[Seconds] = 30.0
"""The most that the time between two readings counts towards a limit; more is a standstill or slow call."""

STANDSTILL_SECONDS: Final[Seconds] = 150.0
"""No reading takes this long: each of its few calls gives up after tries of seconds."""


@dataclass(frozen=True, slots=True)
class WatchedClock:
    """The watched clock of a process."""

    # each ends 30 s before the first reading after it, and lasts so many seconds
    pauses: tuple[tuple[Instant, Seconds], ...] = ()

    def paused(self, at: Instant, seconds: Seconds) -> WatchedClock:
        """The same after so many seconds that a reading at that moment has shown not to count."""
        return WatchedClock((*self.pauses, (at - UNWATCHED_SECONDS, seconds)))

    def later(self, since: Instant) -> Instant:
        """This moment, later by what does not count since then."""
        for end, seconds in self.pauses:
            if since < end:
                since = min(since + seconds, end)
        return since

    def passed(self, since: Instant, at: Instant) -> Seconds:
        """How much of the time between the two counts."""
        return at - self.later(since)
