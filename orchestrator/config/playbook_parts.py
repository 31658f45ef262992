"""Common parts of all playbooks: when a node counts as ready, limits of waits, hooks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from orchestrator.config.around import RunHookSpec
from orchestrator.config.spec import Duration, NodeCommandLine, Spec


class SettleSpec(Spec):
    """When a node counts as ready."""

    consecutive: Annotated[StrictInt, Field(ge=1, le=100)] = Field(
        default=3, description="Good readings in a row after which a node counts as back."
    )


class LimitsSpec(Spec):
    """Limits of every wait. At a limit the run stands down: settings restored, nodes up, exit code 3 or 4."""

    stop: Duration = Field(default=600.0, description="Longest wait for a service to stop.")
    start: Duration = Field(default=600.0, description="Longest wait for a service to start.")
    rejoin: Duration = Field(default=600.0, description="Longest wait for a started node to join.")
    refused: Duration = Field(
        default=120.0, description="Longest wait for a cluster that refuses the credentials of the run."
    )
    recover: Duration = Field(
        default=8 * 3600.0, description="Longest wait for the copies that were there before the wave."
    )
    hold: Duration = Field(
        default=3600.0, description="Longest wait for the predicates that hold the next wave."
    )
    gate: Duration = Field(default=4 * 3600.0, description="Longest wait for a closed gate to open.")
    reboot: Duration = Field(default=1800.0, description="Longest wait for a machine after a reboot.")


class HookSpec(Spec):
    """A command at a moment of a node's restart. If it fails, the run stands down, with the node up."""

    run: NodeCommandLine = Field(description="Command line; `{node}` is the node's name.")
    local: StrictBool = Field(default=False, description="On this machine instead of the node's.")
    timeout: Duration = Field(default=300.0, description="After this time the hook has failed.")


class HooksSpec(Spec):
    """Commands by moment, in order."""

    before_stop: tuple[HookSpec, ...] = Field(default=(), description="Before the node is stopped.")
    while_stopped: tuple[HookSpec, ...] = Field(default=(), description="While its process is down.")
    after_recovery: tuple[HookSpec, ...] = Field(default=(), description="When its copies have recovered.")
    run_started: tuple[RunHookSpec, ...] = Field(default=(), description="When a run starts or is resumed.")
    run_held: tuple[RunHookSpec, ...] = Field(default=(), description="When predicates hold the run.")
    run_ended: tuple[RunHookSpec, ...] = Field(default=(), description="When the run has ended.")
