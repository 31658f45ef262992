"""What is around a run in tests: its context, and simulated runs that are surrounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.around.ways import RunContext
from orchestrator.config.around import Around
from orchestrator.config.secrets import SecretResolver
from orchestrator.redact import Redactor
from orchestrator.runs.reach import run_with_input
from orchestrator.runs.simulated import SimulatedPorts


def run_context(*, cluster: str = "prod", run: str = "r1", **environment: str) -> RunContext:
    """Of a run whose secrets are in these variables."""
    redact = Redactor()
    resolver = SecretResolver(environment=environment, folder=Path("/"), home=Path("/"), learn=redact.learn)
    return RunContext(
        resolve=lambda reference: resolver.resolve(reference).reveal(),
        learn=redact.learn,
        redact=redact,
        run_command=run_with_input,
        cluster=cluster,
        run=run,
    )


def surround(patch: pytest.MonkeyPatch, around: Around, **environment: str) -> None:
    """Let this be around every simulated run."""
    context = run_context(**environment)
    patch.setattr(SimulatedPorts, "around", lambda _self, _book: (around, context))
