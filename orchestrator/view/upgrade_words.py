"""The events of an upgrade in words."""

from __future__ import annotations

from typing import assert_never

from orchestrator.model.upgrade import InstallState
from orchestrator.model.upgrade_event import InstallEnded, Upgraded, UpgradeEvent, UpgradeMissed
from orchestrator.view.text import listed, one_line


def upgrade_sentence(event: UpgradeEvent) -> str:
    """The event as one line, without time and full stop."""
    match event:
        case InstallEnded(node=node, number=number, state=state, said=said):
            return f"{node}: install step {number} {_ended(state)}" + (
                f": {one_line(said, 200)}" if said else ""
            )
        case Upgraded(node=node, version=version, by_others=by_others):
            whose = ", installed outside this run" if by_others else ""
            return f"{node} runs {version}{whose}"
        case UpgradeMissed(node=node, version=version, wanted=wanted, lacks=lacks):
            without = f" without {listed(list(lacks))}" if lacks else ""
            return f"{node} runs {version}{without} after its install steps: {wanted} was to be installed"
        case _:
            assert_never(event)


def _ended(state: InstallState) -> str:
    match state:
        case InstallState.DONE:
            return "is done"
        case InstallState.FOUND:
            return "is not needed, since the target is on the disk already"
        case InstallState.FAILED:
            return "failed"
        case InstallState.LOST:
            return "was lost"
        case InstallState.RUNNING:
            return "runs"
        case _:
            assert_never(state)
