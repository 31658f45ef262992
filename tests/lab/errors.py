"""The errors of the lab, as one family.

::

LabError            the machine lacks what the lab needs: Java, Maven, a readable folder   exit 2
└── LabNodeError    a node did not start, stop or join; the end of its log is in the text  exit 4
"""

from __future__ import annotations

from orchestrator.errors import ExitCode, OrchestratorError


class LabError(OrchestratorError):
    """The machine lacks something that the lab needs; the message says what to install or to change."""

    exit_code = ExitCode.USAGE


class LabNodeError(LabError):
    """A lab node did not start, stop or join within its limit."""

    exit_code = ExitCode.FAILED
