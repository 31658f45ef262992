"""Readings of many hosts at once: in parallel, with one limit, and each fault kept to its own host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar

from orchestrator.daemons import in_parallel
from orchestrator.errors import ConfigError, JournalError, UsageError
from orchestrator.hosts.connection import KEPT_BYTES, HostConnection, HostError, Lost, Outcome, Unreachable
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.redact import Redactor

_FORESEEN: Final = (ConfigError, JournalError, UsageError)
"""Errors with a remedy in their message: a secret that is not there, a state that cannot be read."""
T = TypeVar("T")


def defect(error: Exception) -> str:
    """The message for an unforeseen exception.

    A defect that one host exposes must not end a run that has stopped nodes: those nodes would stay down. The
    state becomes unknown, which holds the next stop, and the message names the defect.
    """
    return f"a defect of this program, please report it: {type(error).__name__}: {error}"


def longest(settings: Collection[HostSettings]) -> Seconds:
    """Limit of two attempts of a reading; each may have to make its connection again, and to ask first."""
    limits = (one.limits for one in settings)
    return max((2 * (3 * (x.connect + x.banner) + x.auth + 2 * x.command) for x in limits), default=0.0)


def read_hosts(
    work: Mapping[NodeName, Callable[[], Reading[T]]], redact: Redactor, *, timeout: Seconds
) -> Mapping[NodeName, Reading[T]]:
    """Do all of it in parallel; a host that is later than the limit, or whose reading raised, is unknown."""
    found = in_parallel(
        {node: partial(_safely, node, do, redact) for node, do in work.items()}, timeout=timeout
    )
    late = Unknown(reason=f"its host was not read within {timeout:.0f} s", passes=True)
    return {node: found.get(node, late) for node in work}


def _safely(node: NodeName, do: Callable[[], Reading[T]], redact: Redactor) -> Reading[T]:
    try:
        return do()
    except HostError as error:
        return unread(node, error.fault, redact)
    except Exception as error:  # noqa: BLE001  (see `defect`)
        return raised(node, error, redact)


def raised(node: NodeName, error: Exception, redact: Redactor) -> Unknown:
    """The reading of a host that raised."""
    reason = str(error) if isinstance(error, _FORESEEN) else defect(error)
    return Unknown(reason=redact(f"host of {node}: {reason}"))


def unread(node: NodeName, fault: Unreachable | Lost, redact: Redactor) -> Unknown:
    """The reading of a host that did not answer."""
    return Unknown(reason=redact(f"host of {node}: {fault.reason}"), passes=fault.passes)


def ask(
    connection: HostConnection,
    settings: HostSettings,
    line: str,
    *,
    stdin: str | None = None,
    keep: int = KEPT_BYTES,
) -> Outcome:
    """Run a command that only reads. A connection that was lost is made again at once: twice is harmless."""
    limit = settings.limits.command
    outcome = connection.run(line, timeout=limit, stdin=stdin, keep=keep)
    if isinstance(outcome, Lost) and not outcome.timed_out:
        outcome = connection.run(line, timeout=limit, stdin=stdin, keep=keep)
    return outcome
