"""The lease in a Riak cluster: there is none. Runs on it are kept apart by the state database alone."""

from __future__ import annotations

from typing import Final

from orchestrator.model.action import ActionResult, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading

_WHY: Final = "a Riak cluster keeps no lease: it stands in the state database alone"


class NoLease:
    """`LeasePort` of a cluster that has no place for a record which all of its nodes agree on."""

    def read(self) -> Reading[LeaseRecord | None]:
        """Nobody's record."""
        return None

    def create(self, record: LeaseRecord) -> ActionResult:
        """Refused."""
        del record
        return Refused(reason=_WHY)

    def write(self, record: LeaseRecord) -> ActionResult:
        """Refused."""
        del record
        return Refused(reason=_WHY)

    def remove(self, epoch: int) -> ActionResult:
        """Refused."""
        del epoch
        return Refused(reason=_WHY)
