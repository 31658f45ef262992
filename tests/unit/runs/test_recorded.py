"""Runs as the state records them: which alerts may be accepted for one."""

from __future__ import annotations

import pytest

from orchestrator.engine.state import RunState
from orchestrator.errors import UsageError
from orchestrator.model.event import GateClosed, Record
from orchestrator.runs.past_runs import PastRun
from tests.cli.runs import RUN, entry

DISK = 'DiskFull{instance="es1"}'


def _run(*closed: GateClosed) -> PastRun:
    records = tuple(Record(run=RUN, sequence=n, at=1.0, event=event) for n, event in enumerate(closed))
    return PastRun(entry=entry(RUN, "b/1/2/3"), records=records, state=RunState(run=RUN))


def _closed(count: int, *subjects: str) -> GateClosed:
    return GateClosed(gate="alertmanager", evidence="x", count=count, subjects=subjects)


def test_an_alert_that_is_accepted_has_closed_a_gate(subtests: pytest.Subtests) -> None:
    none = f"no such alert has closed a gate of run {RUN}"
    queue = GateClosed(gate="queue", evidence="x")
    for closed, accepted, says in [
        ([], [], ""),
        ([_closed(1, DISK)], [DISK], ""),
        ([_closed(1, DISK), _closed(1, "Slow")], ["Slow", "DiskFull"], ""),
        ([_closed(1, DISK)], ["Disk"], f"--accept-alert Disk: {none}; these have: {DISK}"),
        ([_closed(1, DISK)], [DISK.replace("1", "2")], f"; these have: {DISK}"),
        ([queue], ["a\x1b"], rf"--accept-alert a\x1b: {none}"),
        ([_closed(6, *"abcde")], ["of those that were not named"], ""),
    ]:
        with subtests.test(accepted=accepted, says=says):
            run = _run(*closed)
            if says:
                with pytest.raises(UsageError) as refused:
                    run.require_alerts(accepted)
                assert str(refused.value).endswith(says)
            else:
                assert run.require_alerts(accepted) == tuple(accepted)
