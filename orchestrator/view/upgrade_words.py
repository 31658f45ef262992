"""An upgrade for people: its events, its install steps, and what a plan says of versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from orchestrator.engine.progress import NodeProgress
from orchestrator.model.action import RunInstall
from orchestrator.model.phase import step_name
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.model.upgrade import InstallState
from orchestrator.model.work_event import InstallEnded, Upgraded, UpgradeEvent, UpgradeMissed
from orchestrator.untrusted import one_line
from orchestrator.view.text import listed

_ENDS: Final = {
    InstallState.RUNNING: "still runs",
    InstallState.DONE: "is done",
    InstallState.FOUND: "is not needed: the version is on the disk already",
    InstallState.FAILED: "FAILED",
    InstallState.LOST: "is LOST: its process is gone, and nothing says how it ended",
}


def upgrade_sentence(event: UpgradeEvent) -> str:
    """An event of an upgrade as one line."""
    match event:
        case InstallEnded(node=node, number=number, state=state, said=said):
            printed = f": {one_line(said, 200)}" if said.strip() and state is not InstallState.FOUND else ""
            return f"{node}: {step_name(number)} {_ENDS[state]}{printed}"
        case Upgraded(node=node, version=version, by_others=by_others):
            how = "; no install step of this run has run" if by_others else ""
            return f"{node}: runs {version} now{how}"
        case UpgradeMissed(node=node, version=version, wanted=wanted, lacks=lacks):
            without = f" without {listed(lacks)}" if lacks else ""
            return (
                f"{node}: back with {version}{without}, and {wanted} was installed: every install step runs "
                "again in a later wave"
            )
        case _:
            assert_never(event)


def install_sentence(action: RunInstall) -> str:
    """The verb, in the imperative."""
    command = action.step.run.replace("{version}", action.target).replace("{node}", action.node)
    return f"{action.node}: begin {step_name(action.number)}: {one_line(command, 120)}"


def install_awaited(node: NodeProgress, policy: Policy) -> str | None:
    """What a node waits for while an install step runs: `to finish install step 1 of 2`; None without one."""
    if node.install is None or policy.upgrade is None:
        return None
    return f"to finish {step_name(node.install.number)} of {len(policy.upgrade.install)}"


def work_of(policy: Policy) -> str:
    """What a run does to its nodes, with its article."""
    if policy.upgrade is not None:
        return f"an upgrade to {policy.upgrade.target}"
    return "a restart"


def versions_after(plan: Plan) -> Sequence[str]:
    """The line of a plan about nodes that run another version afterwards; empty without any."""
    if not plan.other_versions:
        return ()
    nodes = [f"{node} {version}" for node, version in sorted(plan.other_versions.items())]
    return (f"mixed versions after this run: {listed(nodes, 5)}",)
