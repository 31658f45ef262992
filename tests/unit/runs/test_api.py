"""The names of the Python API: programs that import them outlive a rebuild of what is behind them."""

from __future__ import annotations

import inspect

import orchestrator.runs as api

FUNCTIONS = {
    "connect": ["cluster_file", "state", "tell"],
    "plan": ["connection", "playbook", "overrides"],
    "rehearse": ["connection", "seed", "playbook", "overrides"],
    "restart": ["connection", "playbook", "overrides", "planned"],
    "restore": ["connection", "run", "playbook", "in_service", "accept_recorded_commands"],
    "resume": ["connection", "run", "retry_failed", "skip", "accept_alerts", "accept_recorded_commands"],
    "tune": ["connection", "profile", "only", "exclude", "zone"],
}
TYPES = {
    "Connection": ["close"],
    "Overrides": ["only", "exclude", "zone", "strategy", "to", "timeout", "reason"],
    "Run": ["close", "pause", "stop"],
    "Summary": [
        "cluster",
        "exit_code",
        "failed",
        "holds",
        "left",
        "message",
        "node_seconds",
        "outcome",
        "pending",
        "restarted",
        "run",
        "seconds",
    ],
}


def test_the_names_that_programs_import_stay() -> None:
    assert sorted(api.__all__) == sorted([*FUNCTIONS, *TYPES])
    for name, parameters in FUNCTIONS.items():
        assert list(inspect.signature(getattr(api, name)).parameters) == parameters, name
    for name, used in TYPES.items():
        assert not set(used) - set(dir(getattr(api, name))), name
