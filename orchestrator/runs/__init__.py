"""Running a restart: shared by the command line, the rehearsal and Python programs."""

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
