"""What happened to the run's lease, as sentences."""

from __future__ import annotations

from typing import assert_never

from orchestrator.model.lease_event import Deposed, LeaseEvent, LeaseLost, LeaseRegained, LeaseTaken
from orchestrator.view.units import one_line


def lease_sentence(event: LeaseEvent) -> str:
    """The event as one line."""
    match event:
        case LeaseTaken(epoch=epoch, holder=holder, takeover=takeover):
            how = "taken over, the former holder's had run out" if takeover else "taken"
            return f"lease {how}: epoch {epoch}, holder {holder}"
        case LeaseRegained(holder=holder):
            return f"lease refreshed again, holder {holder}"
        case LeaseLost(reason=reason):
            return f"lease lost: {one_line(reason)}; no node is stopped any more, what is down is started"
        case Deposed(successor=run, owner=owner, epoch=epoch):
            lease = f", lease epoch {epoch}" if epoch else ""
            return (
                f"deposed: run {run} of {one_line(owner)} took over{lease}; this process writes no setting "
                "and stops no node any more"
            )
        case _:
            assert_never(event)
