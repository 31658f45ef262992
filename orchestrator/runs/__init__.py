"""Runs, put together: what the command line, the demo, the rehearsal and programs in Python use alike."""

from orchestrator.config.policy import Overrides
from orchestrator.runs.api import Run, plan, rehearse, restart, restore, resume, tune
from orchestrator.runs.connection import Connection
from orchestrator.runs.from_file import connect
from orchestrator.view.summary import Summary

__all__ = [
    "Connection",
    "Overrides",
    "Run",
    "Summary",
    "connect",
    "plan",
    "rehearse",
    "restart",
    "restore",
    "resume",
    "tune",
]
