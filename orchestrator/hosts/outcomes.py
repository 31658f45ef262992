"""What came of a stop, a start, a reboot and a hook: from the text and exit code of its command.

Stops and starts of sysv, docker and command lines run in the foreground of a host, and so do starts that wait
for a hook there, under any manager. `AskedJobs` has their record, as systemd itself has for everything else.
It lasts as long as this process. It separates a service that is stopping from one that runs, and a failed
start from a service that is only down. It also lets a start wait behind a stop. Commands begun before a crash
of this program are read from the node's lock on its host: see `exclusion`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.hosts import exclusion, services, sudo
from orchestrator.hosts.connection import CommandResult, Ended, Job, Lost, Outcome, Unreachable
from orchestrator.hosts.exclusion import LockHolder
from orchestrator.hosts.script import TIMEOUT_EXIT
from orchestrator.hosts.services import ServiceVerb
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Seconds
from orchestrator.redact import Redactor, end_of
from orchestrator.untrusted import telling


def came_of(
    settings: HostSettings, verb: ServiceVerb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """The result of a command that was sent under the node's lock; see `result_of` for the arguments."""
    holder = exclusion.held_by(output) if exit_code != 0 else None
    if holder is not None and holder.what == ServiceVerb.STOP.value:
        # The node is going down anyway: `Refused` would mean that it stays up.
        return InDoubt(reason=f"at work on it already: {holder}")
    if exit_code != 0 and exclusion.was_not_run(output):
        return Refused(reason=output, passes=holder is not None)
    if exit_code == 0 and exclusion.needed_nothing(output):
        return Done(output=output)
    return result_of(settings, verb, line, exit_code, output)


def result_of(
    settings: HostSettings, verb: ServiceVerb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """The result of a command that ran to its end. A clear text takes precedence over the exit code.

    Args:
        settings: of the node.
        verb: the requested verb; None for a reboot.
        line: its command line, as sent.
        exit_code: its exit code.
        output: its output.
    """
    refusal = sudo.refused(line, output) if exit_code != 0 else None
    if refusal is not None:
        return Refused(reason=f"sudo refused: {refusal}; {sudo.advice(settings, refusal)}")
    said = None if verb is None else _by_text(settings, verb, exit_code, output)
    if said is not None:
        return said
    if exit_code == 0:
        return Done(output=output)
    reason = f"exit {exit_code}: {output or 'no output'}"
    over = verb is ServiceVerb.START or did_nothing(settings, line, output)
    return Refused(reason=reason) if over else InDoubt(reason=reason)


def _by_text(settings: HostSettings, verb: ServiceVerb, exit_code: int, output: str) -> ActionResult | None:
    wording, manager = settings.service.wording, services.manager(settings)
    if wording is None or manager.exact:
        return None
    line = services.plain_command(settings, verb) if manager.program is None else ""
    if services.never_ran(line, output):
        return Refused(reason=f"exit {exit_code}: {output}")
    read = wording.stop if verb is ServiceVerb.STOP else wording.start
    return read(line, exit_code, output)


def did_nothing(settings: HostSettings, line: str, output: str) -> bool:
    """Whether a failed verb certainly did nothing, so that it counts as refused.

    Args:
        settings: of the node.
        line: the command line of the verb, as sent.
        output: its output.
    """
    if sudo.refused(line, output) is not None or services.never_ran(line, output):
        return True
    return services.manager(settings).did_nothing(line, output)


def of_hook(line: str, limit: Seconds, outcome: Outcome) -> ActionResult:
    """The result of a hook.

    Args:
        line: its command line.
        limit: how long it may run; its host ends it then.
        outcome: of the command that was sent, which has the lock of its node around it.
    """
    if not isinstance(outcome, CommandResult):
        return without_end(outcome)
    failure = failure_of(outcome)
    if exclusion.was_not_run(outcome.stdout):
        return Refused(reason=said(outcome))
    if outcome.exit == TIMEOUT_EXIT:
        return InDoubt(reason=f"no end within {limit:g} s: {said(outcome)}")
    if failure is None:
        return Done(output=said(outcome))
    if services.never_ran(line, outcome.stderr):
        return Refused(reason=f"cannot be run: {failure}")
    return InDoubt(reason=failure)


def without_end(fault: Unreachable | Lost) -> ActionResult:
    """The result of a command that was not sent, or whose end is unknown."""
    if isinstance(fault, Unreachable):
        return Refused(reason=fault.reason, passes=fault.passes)
    tail = f": {end_of(fault.output.strip(), 500)}" if fault.output.strip() else ""
    return InDoubt(reason=f"{fault.reason}{tail}")


def said(result: CommandResult) -> str:
    """The output of a command, bounded by the bytes that were kept."""
    return "\n".join(part for part in (result.stdout.strip(), result.stderr.strip()) if part)


def redacted(result: ActionResult, redact: Redactor) -> ActionResult:
    """The same result without secrets."""
    if isinstance(result, Done):
        return Done(output=redact(result.output))
    return replace(result, reason=redact(result.reason))


# Jobs in the foreground ------------------------------------


Launch = Callable[[Callable[[], None]], Job | Unreachable]
"""Starts the job on the host and calls its argument when the job has ended."""
Judge = Callable[[NodeName, ServiceVerb, CommandResult], str | None]
"""How a stop or start that ran to its end failed, for people; None if it did not fail."""


@dataclass(slots=True, kw_only=True)
class _Asked:
    verb: ServiceVerb
    job: Job | None = None
    next_start: Launch | None = None
    ended: bool = False
    noticed: bool = False


class AskedJobs:
    """The last verb of each node that works in the foreground. Thread-safe.

    Args:
        ring: called when a job has ended, so that the watcher reads the node again.
        judge: reads how a job ended.
    """

    def __init__(self, ring: Callable[[], None], judge: Judge) -> None:
        self._ring, self._judge = ring, judge
        self._lock = threading.Lock()
        self._asked: dict[NodeName, _Asked] = {}

    def launch(self, node: NodeName, verb: ServiceVerb, launch: Launch) -> Job | Unreachable | ServiceVerb:
        """Start a job. A start behind a verb under way returns that verb.

        Behind a stop, the start is sent as soon as the stop has ended. One start is enough.
        """
        with self._lock:
            before = self._asked.get(node)
            if verb is ServiceVerb.START and before is not None and not before.ended:
                if before.verb is ServiceVerb.STOP:
                    before.next_start = launch
                return before.verb
            asked = _Asked(verb=verb)
            self._asked[node] = asked
        job: Job | Unreachable | None = None
        try:
            job = launch(lambda: self._ended(node, asked))
        finally:  # also if it raises: a start that never began must not be joined by the next one
            with self._lock:
                if job is None or isinstance(job, Unreachable):
                    if self._asked.get(node) is asked:
                        del self._asked[node]
                else:
                    asked.job = job
        return job

    def unnoticed_end(self, node: NodeName) -> bool:
        """Whether a job ended since the node was last observed."""
        with self._lock:
            asked = self._asked.get(node)
            return asked is not None and not _going_on(asked) and not asked.noticed

    def observed(self, node: NodeName) -> None:
        """An observation of this node begins: it will include every job that has already ended."""
        with self._lock:
            asked = self._asked.get(node)
            if asked is not None and not _going_on(asked):
                asked.noticed = True

    def seen_with(self, node: NodeName, view: HostView, holder: LockHolder | None) -> HostView:
        """The reading combined with the last job and the holder of the node's lock."""
        if holder is not None:
            view = _seen_with(holder, view)
        with self._lock:
            asked = self._asked.get(node)
            if asked is None:
                return view
            going_on, verb = _going_on(asked), asked.verb
            end = asked.job.poll() if asked.job is not None else None
        gone = view.service in (ServiceState.STOPPED, ServiceState.FAILED)
        if going_on:
            if verb is ServiceVerb.STOP and view.service is ServiceState.RUNNING:
                return replace(view, service=ServiceState.STOPPING, detail=f"{view.detail}; being stopped")
            if verb is ServiceVerb.START and gone:
                return replace(view, service=ServiceState.STARTING, detail=f"{view.detail}; being started")
            return view
        failure = self._judge(node, verb, end) if isinstance(end, CommandResult) else failure_of(end)
        if failure is None or (verb is ServiceVerb.START) is not gone:
            return view  # the job succeeded, even if the script reports another state
        state = ServiceState.FAILED if verb is ServiceVerb.START else view.service
        return replace(view, service=state, detail=f"{view.detail}; its {verb.value} {failure}")

    def printed(self, node: NodeName) -> str:
        """What the last start of a node printed that ran in the foreground to its end; empty without one."""
        with self._lock:
            asked = self._asked.get(node)
        ended = asked is not None and asked.verb is ServiceVerb.START and not _going_on(asked)
        return asked.job.output() if ended and asked is not None and asked.job is not None else ""

    def close(self) -> None:
        """Stop listening to the jobs. They continue on their hosts."""
        with self._lock:
            jobs = [asked.job for asked in self._asked.values() if asked.job is not None]
        for job in jobs:
            job.close()

    def _ended(self, node: NodeName, asked: _Asked) -> None:
        with self._lock:
            asked.ended = True
            launch, asked.next_start = asked.next_start, None
            current = self._asked.get(node) is asked
        try:
            if launch is not None and current:
                self.launch(node, ServiceVerb.START, launch)
        finally:
            self._ring()


def _seen_with(holder: LockHolder, view: HostView) -> HostView:
    """The reading while a command of this node is running on its host, also a command of another program."""
    gone = view.service in (ServiceState.STOPPED, ServiceState.FAILED)
    state = view.service
    if holder.what == ServiceVerb.STOP.value and state is ServiceState.RUNNING:
        state = ServiceState.STOPPING
    elif holder.what == ServiceVerb.START.value and gone:
        state = ServiceState.STARTING
    return replace(view, service=state, detail=f"{view.detail}; at work on it: {holder}")


def failure_of(end: Ended | None) -> str | None:
    """How a job failed, for people; None if it did not fail."""
    if end is None or (isinstance(end, CommandResult) and end.exit == 0):
        return None
    if isinstance(end, CommandResult):
        said = "\n".join(line for part in (end.stdout, end.stderr) for line in telling(part)).strip()
        return f"exited {end.exit}" + (f": {end_of(said, 500)}" if said else "")
    return end.reason


def _going_on(asked: _Asked) -> bool:
    return not asked.ended and (asked.job is None or asked.job.poll() is None)
