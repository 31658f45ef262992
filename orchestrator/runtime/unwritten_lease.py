"""The lease of a state that can be read and not written: taken in memory, over what stands there.

For a repair alone. A holder that is there already is seen, since it is read for as long as any watcher reads.
Who comes later sees nothing of this: another repair, which puts the same back; or a run of somebody who can
write after all (space was freed, another account), which shows here as a takeover does, and bars what every
lost lease bars: no start and nothing that is put back.
"""

from __future__ import annotations

from orchestrator.model.action import ActionResult, Done, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading, Unknown
from orchestrator.ports import LeasePort


class UnwrittenLease:
    """A `LeasePort` over another one that is only read.

    Args:
        there: what stands in the state.
    """

    def __init__(self, there: LeasePort) -> None:
        self._there = there
        self._ours: LeaseRecord | None = None
        self._known = 0  # records up to this epoch stand there, and were taken over here

    def read(self) -> Reading[LeaseRecord | None]:
        """Ours, unless a later one stands there; what was taken over stands there still, and is gone here."""
        found = self._there.read()
        return found if isinstance(found, Unknown) or self._is_news(found) else self._ours

    def create(self, record: LeaseRecord) -> ActionResult:
        """Keep it; `Refused` when that epoch stands there."""
        found = self._there.read()
        if isinstance(found, LeaseRecord):
            if self._is_news(found) and found.epoch >= record.epoch:
                return Refused(reason=f"epoch {found.epoch} of the lease is taken already")
            self._known = max(found.epoch, self._known)
        self._ours = record
        return Done()

    def write(self, record: LeaseRecord) -> ActionResult:
        """Keep it; `Refused` when another one came to stand there: somebody could write after all."""
        found = self._there.read()
        if isinstance(found, LeaseRecord) and self._is_news(found):
            if (found.epoch, found.run, found.process) != (record.epoch, record.run, record.process):
                return Refused(reason=f"epoch {found.epoch} of the lease is newer: it was taken over")
            self._known = found.epoch  # ours, written while there was still room for it
        self._ours = record
        return Done()

    def remove(self, epoch: int) -> ActionResult:
        """Let it go; the next run that can write looks through what stands there once more."""
        del epoch
        self._ours = None
        return Done()

    def _is_news(self, found: LeaseRecord | None) -> bool:
        return found is not None and found.epoch > self._known
