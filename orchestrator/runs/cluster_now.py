"""A short reading of the cluster of a run that no process continues, for `status`: it takes no lease."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from orchestrator.daemons import Daemons
from orchestrator.errors import OrchestratorError
from orchestrator.model.observation import Look
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.runs.connection import ClusterPorts
from orchestrator.runs.recorded import PastRun
from orchestrator.runs.selection import require_answers_as
from orchestrator.stores.elasticsearch.credentials import AGAIN_SECONDS

LIMIT: Final[Seconds] = 3.0
"""A cluster that takes longer is left out. Secrets are resolved within it too."""


def _why_not(past: PastRun, at: Instant) -> str:
    """Why nothing is sent to the cluster of this run, in words; empty if it is read."""
    refused = past.state.process.refused
    if refused is not None and at - past.records[-1].at < AGAIN_SECONDS:
        # The run has sent its secret a moment ago: one more refusal may lock the account.
        return f"{refused.refusal.sentence} a moment ago"
    if past.started.policy.kind is Kind.RIAK:
        return "a Riak cluster is read by commands on its hosts"
    return ""


def read_now(past: PastRun, reach: Callable[[], ClusterPorts], at: Instant) -> Reading[ClusterReadings]:
    """Read members, indices and settings of the cluster of a run.

    Args:
        past: the run.
        reach: makes the ports of its cluster. It is called in another thread, which is left to itself after
            the limit.
        at: now.

    Returns:
        `cluster` and `settings`; `Unknown` if it may not be read, does not answer within `LIMIT`, is another
        cluster, or has a wrong cluster file or secret; or after a defect of the program.
    """
    why_not = _why_not(past, at)
    if why_not:
        return Unknown(reason=why_not)
    reading = Daemons(1, "cluster now").submit(_read, past, reach)
    try:
        return reading.result(LIMIT)
    except TimeoutError:
        return Unknown(reason=f"it has not answered within {LIMIT:.0f}s")
    except OrchestratorError as error:
        return Unknown(reason=str(error))
    except Exception as defect:  # noqa: BLE001  (the journal is shown all the same)
        return Unknown(reason=f"a defect of the program: {type(defect).__name__}")


def _read(past: PastRun, reach: Callable[[], ClusterPorts]) -> Reading[ClusterReadings]:
    with closing(reach()) as ports:
        readings = ports.cluster.observe({Look.CLUSTER, Look.SETTINGS})
        require_answers_as(ports, readings.cluster, past.entry.run, past.started)
        if isinstance(readings.cluster, Unknown) and isinstance(readings.settings, Unknown):
            return readings.cluster
        return readings
