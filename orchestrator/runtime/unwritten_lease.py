"""The lease in a state database that can only be read: taken in memory, on top of the stored record.

Only for a repair. It sees a holder that is already there, since it watches the record as any other run does.
A later run does not see this lease. That run may be another repair, which restores the same values. Or it is
a run that can write (space was freed, another account): it appears here as a takeover.
"""

from __future__ import annotations

from orchestrator.model.action import ActionResult, Done, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading, Unknown
from orchestrator.ports import LeasePort


class UnwrittenLease:
    """A `LeasePort` over another one that is only read.

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
