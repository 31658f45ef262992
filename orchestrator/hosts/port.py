"""The host port over real machines, but for tuning: over SSH or on this machine, with any service manager.

The contract for every implementation of this port:

- `observe` returns a reading for every requested node. A host that is out of reach, that is rebooting, or
  whose service state is not understood is `Unknown` with the reason; nothing is raised.
- `perform` of a stop or a start returns within about two seconds with
  `Done`: it was accepted and continues, also without this program; `observe` shows its progress;
  `Refused`: nothing was done: out of reach, sudo or the manager refused; or a start ended with an error;
  `InDoubt`: it was sent and its end is unknown, or a script failed half-way: only a reading shows which.
- A start sent during a stop waits behind it; a start sent during a start joins that start.
- Starts and hooks of a node exclude each other on its host, also those whose connection was lost or whose
  program was killed: see `exclusion`. They wait for the holder of the lock. Under init scripts and command
  lines a stop and a reboot are `Refused` with the holder's name, or `InDoubt` if the holder is a stop.
- A reboot ends the connection; until the host is ready its readings are `Unknown`.
- A hook runs to its end or its limit. `Refused`: it did not run at all. `InDoubt`: it failed or overran, and
  may have done a part. Otherwise `Done` with its output.
- An install step is only begun, and once for a ticket; it is never ended. See `installing`.
- `watch` is a hint to look again, never proof.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, assert_never

from orchestrator.errors import ConfigError
from orchestrator.hosts import exclusion, installing, outcomes, readiness, script, services, sudo
from orchestrator.hosts.check import missing_rights
from orchestrator.hosts.connection import (
    CommandResult,
    HostConnection,
    HostError,
    Job,
    Lost,
    Outcome,
    Trouble,
    Unreachable,
)
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.contact import FirstContacts
from orchestrator.hosts.last_words import LastWords
from orchestrator.hosts.outcomes import AskedJobs, failure_of, said
from orchestrator.hosts.passwords import SentPasswords
from orchestrator.hosts.readings import ask, defect, longest, raised, read_hosts, unread
from orchestrator.hosts.services import ServiceVerb, for_node
from orchestrator.hosts.survey import read_survey, survey_script, survey_stdin
from orchestrator.hosts.watcher import ServiceWatcher
from orchestrator.model.action import (
    ActionResult,
    Done,
    InDoubt,
    RebootHost,
    Refused,
    RunHook,
    RunInstall,
    StartNode,
    StopNode,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.model.upgrade import HostReadiness, Upgrade
from orchestrator.redact import Redactor, beginning_of
from orchestrator.untrusted import UntrustedValue

QUICK_SECONDS: Final = 1.5
"""How long `perform` listens to a stop or start in the foreground: refusals appear within it."""
JOB_LIMIT_SECONDS: Final = 6 * 3600.0
"""When listening to a foreground job ends: later than any deadline of a stop or a start."""
_HOOK_MARGIN_SECONDS: Final = 10.0
"""The host itself ends an overrunning hook first, so that no process of it is left there."""

ServiceAction: TypeAlias = StopNode | StartNode | RebootHost | RunHook | RunInstall
"""What is done to a node's service or its host; what is tuned on a host: `tuning.tuner`."""


class Hosts:
    """The machines of a cluster's nodes, with all of `HostPort` but tuning (`tuning.tuner.TunableHosts`).

    Args:
        settings: by node name, looked up at every use: addresses may be filled in while the program runs.
        redact: removes secrets from all command output.
        connections: made here if None.
        now: monotonic clock, in seconds.
    """

    def __init__(
        self,
        settings: Mapping[NodeName, HostSettings],
        *,
        redact: Redactor | None = None,
        connections: Connections | None = None,
        now: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._settings, self._redact = settings, redact or Redactor()
        self._connections, self._lock = connections or Connections(), threading.Lock()
        self._marks: dict[NodeName, str | None] = {}
        self._away: set[NodeName] = set()
        self._asks_nothing: set[tuple[NodeName, str]] = set()
        self._sent: dict[NodeName, str | None] = {}
        self._watcher = ServiceWatcher(self._connection)
        self._asked = AskedJobs(self._watcher.ring, self._failure)
        self._contacts, self._passwords = FirstContacts(now), SentPasswords(now)
        self._last_words = LastWords(self._redact)

    def observe(
        self, nodes: Collection[NodeName], *, rights: bool, reboot: bool = False
    ) -> Mapping[NodeName, Reading[HostView]]:
        """Read each node's service and host, in parallel; with `rights`, ask sudo.

        That is one round trip a node, and another one at the first contact with its host. With
        `reboot`, the right to reboot the host is among the rights.
        """
        known = [node for node in nodes if rights and node in self._settings]
        first = [node for node in known if self._settings[node].sudo is Sudo.PASSWORD]
        first = [] if self._passwords.any_was_taken else first[:1]
        read: dict[NodeName, Reading[HostView]] = {}
        for some in (first, [node for node in nodes if node not in first]):
            work = {node: partial(self._observe_safely, node, rights=rights, reboot=reboot) for node in some}
            read |= read_hosts(work, self._redact, timeout=self._bound(some))
        return read

    def readiness(
        self, nodes: Collection[NodeName], upgrade: Upgrade
    ) -> Mapping[NodeName, Reading[HostReadiness]]:
        """Ask each node's host whether it can install the target, in parallel, one round trip a node."""
        work = {node: partial(readiness.ask, self._connection, node, upgrade, self._redact) for node in nodes}
        return read_hosts(work, self._redact, timeout=self._bound(nodes) + readiness.limit(upgrade))

    def run(self, node: NodeName, line: str, *, as_root: bool, timeout: Seconds, keep: int) -> Outcome:
        """Run a read-only command to its end or its limit. The host also enforces the limit.

        Args:
            node: the node on whose machine it runs.
            line: the command line, a single command.
            as_root: whether through sudo, if the settings use it.
            timeout: its limit, in seconds.
            keep: bytes of its output.
        """
        try:
            settings, connection = self._connection(node)
        except HostError as error:
            return error.fault
        password, behind = (sudo.stdin(settings), sudo.prefix(settings.sudo)) if as_root else (None, "")
        # Also ended on its host: after a lost connection the command would otherwise run there forever.
        bounded = script.untranslated(script.limited(f"exec {behind}{line}", timeout))
        ended = connection.run(bounded, timeout=timeout + _HOOK_MARGIN_SECONDS, stdin=password, keep=keep)
        if isinstance(ended, CommandResult):
            said_by_sudo = ended.stderr if sudo.has_the_last_word(ended.stderr) else ""
            self._passwords.learn(settings, password, said_by_sudo, taken=ended.exit == 0)
        return ended

    def perform(self, action: ServiceAction) -> ActionResult:
        """Perform an action; see the module's docstring for the results."""
        return self._performed(partial(self._perform, action))

    def _performed(self, perform: Callable[[], ActionResult]) -> ActionResult:
        """What came of an action; no error leaves it."""
        try:
            return perform()
        except HostError as error:
            return Refused(reason=self._redact(str(error)), passes=error.fault.passes)
        except ConfigError as error:  # of a secret, which is fetched before anything is sent
            return Refused(reason=self._redact(str(error)))
        except Exception as error:  # noqa: BLE001  (see `defect`)
            return InDoubt(reason=self._redact(defect(error)))

    def _perform(self, action: ServiceAction) -> ActionResult:
        match action:
            case StopNode():
                return self._ask(action.node, ServiceVerb.STOP)
            case StartNode():
                return self._ask(action.node, ServiceVerb.START)
            case RebootHost():
                return self._reboot(action.node)
            case RunHook():
                return self._hook(action)
            case RunInstall():
                return self._install(action)
            case _:
                assert_never(action)

    def describe(self, action: ServiceAction) -> str:
        """The exact command line; free of secrets. A hook on this machine is marked by a comment."""
        if not isinstance(action, RunHook):
            return self._described(action.node, partial(_command, action))
        mark = "  # on this machine" if action.hook.local else ""
        return self._written(lambda: f"{for_node(action.hook.run, action.node)}{mark}")

    def _described(self, node: NodeName, line: Callable[[HostSettings], str]) -> str:
        """A line that follows from a node's settings."""
        settings = self._settings.get(node)
        if settings is None:
            return f"(no host settings for {node})"
        return self._written(lambda: line(self._as_met(settings)))

    def _written(self, line: Callable[[], str]) -> str:
        try:
            return self._redact(line())
        except (ConfigError, UntrustedValue) as error:  # of a name that is in no command line
            return self._redact(f"(refused: {error})")

    def watch(self, nodes: Collection[NodeName], timeout: Seconds) -> bool:
        """Return True as soon as a service differs from the last `observe`, False at the time-out.

        A job of this program that ended, a lost connection and a host that is reachable again count too.
        """
        with self._lock:
            known = {node: self._marks.get(node) for node in nodes if node in self._settings}
            away = frozenset(self._away & set(nodes))
        return self._watcher.watch(
            known, away, timeout, already=lambda: any(self._asked.unnoticed_end(node) for node in nodes)
        )

    def close(self) -> None:
        """Close every connection. Stops and starts under way continue on their hosts."""
        self._asked.close()
        self._connections.close()

    def _bound(self, nodes: Collection[NodeName]) -> Seconds:
        return longest([self._settings[node] for node in nodes if node in self._settings])

    def _connection(self, node: NodeName) -> tuple[HostSettings, HostConnection]:
        """The completed settings of a node and the connection to its host; raises `HostError`."""
        settings = self._settings.get(node)
        fault = f"there are no host settings for {node}" if settings is None else services.fault(settings)
        if settings is None or fault is not None:
            raise HostError(Unreachable(trouble=Trouble.SETTINGS, reason=fault or ""))
        connection = self._connections.to(settings)
        if isinstance(connection, Unreachable):
            raise HostError(connection)
        met = self._contacts.meet(settings, connection)
        return self._passwords.without_refused(met), connection

    def _as_met(self, settings: HostSettings) -> HostSettings:
        """The settings of a node as far as its host has answered, without asking it."""
        return self._passwords.without_refused(self._contacts.as_met(settings))

    def _observe_safely(self, node: NodeName, *, rights: bool, reboot: bool) -> Reading[HostView]:
        try:
            return self._observe(node, rights=rights, reboot=reboot)
        except HostError as error:
            return self._unread(node, error.fault)
        except Exception as error:  # noqa: BLE001  (see `defect`)
            with self._lock:
                self._marks.pop(node, None)
                # The host may be reachable: a wait for its return would end at once, again and again.
                self._away.discard(node)
            return raised(node, error, self._redact)

    def _observe(self, node: NodeName, *, rights: bool, reboot: bool) -> Reading[HostView]:
        self._asked.observed(node)
        settings, connection = self._connection(node)
        line = survey_script(settings, rights=rights, reboot=reboot)
        stdin = survey_stdin(settings, rights=rights)
        outcome = ask(connection, settings, line, stdin=stdin)
        if not isinstance(outcome, CommandResult):
            raise HostError(outcome)
        survey = read_survey(settings, outcome.stdout, rights=rights, reboot=reboot)
        self._contacts.compare(settings, root=survey.root, boot=survey.boot)
        self._passwords.learn_rights(settings, stdin, survey.rights)
        with self._lock:
            self._marks[node] = survey.mark
            self._away.discard(node)
            self._asks_nothing -= {(node, right.what) for right in survey.rights}
            self._asks_nothing |= {(node, right.what) for right in survey.rights if right.asks_nothing}
        if isinstance(survey.view, Unknown):
            said = f" ({beginning_of(outcome.stderr.strip(), 300)})" if outcome.stderr.strip() else ""
            return Unknown(reason=self._redact(f"host of {node}: {survey.view.reason}{said}"))
        view = self._asked.seen_with(node, survey.view, survey.holder)
        refused = missing_rights(settings, survey.rights)
        refused += [survey.barred] if survey.barred else []
        shown = not refused or view.service is not ServiceState.RUNNING
        detail = "; ".join([*refused, *([view.detail] if shown else [])])
        step = view.install and replace(view.install, said=self._redact(view.install.said))
        printed = self._asked.printed(node)
        words = self._last_words.of(settings, connection, view, mark=survey.mark, printed=printed)
        return replace(view, detail=self._redact(detail), install=step, said=words)

    def _unread(self, node: NodeName, fault: Unreachable | Lost) -> Unknown:
        with self._lock:
            self._marks.pop(node, None)
            self._away.add(node)
        return unread(node, fault, self._redact)

    def _ask(self, node: NodeName, verb: ServiceVerb) -> ActionResult:
        settings, connection = self._connection(node)
        settings = self._without_needless_password(settings, verb)
        line, stdin = services.command(settings, verb), sudo.stdin(settings)
        self._sent[node] = stdin
        self._last_words.forget(node)
        sent = exclusion.of_verb(settings, verb, line)
        if services.manager(settings).queues:
            quick = exclusion.of_quick_start(settings, line) if verb is ServiceVerb.START else sent
            outcome = connection.run(script.untranslated(quick), timeout=settings.limits.command, stdin=stdin)
            held = isinstance(outcome, CommandResult) and exclusion.held_by(said(outcome)) is not None
            if verb is ServiceVerb.STOP or not held:
                return self._result(settings, verb, line, outcome)

        def launch(ended: Callable[[], None]) -> Job | Unreachable:
            apart = script.untranslated(script.detached(sent))
            return connection.start(apart, timeout=JOB_LIMIT_SECONDS, stdin=stdin, ended=ended)

        job = self._asked.launch(node, verb, launch)
        if isinstance(job, ServiceVerb):
            way = "waits behind the stop" if job is ServiceVerb.STOP else "is the start"
            return Done(output=f"{way} that is under way")
        if isinstance(job, Unreachable):
            return self._result(settings, verb, line, job)
        end = job.wait(QUICK_SECONDS)
        if end is None:
            return Done(output=self._redact(job.output()))
        return self._result(settings, verb, line, end)

    def _failure(self, node: NodeName, verb: ServiceVerb, ended: CommandResult) -> str | None:
        """How a stop or start that ended failed; None if it did not fail, or if that is unknown."""
        settings = self._as_met(self._settings[node])
        result = outcomes.came_of(settings, verb, services.command(settings, verb), ended.exit, said(ended))
        if sudo.is_wrong_password(said(ended)):  # pam may take longer for a refusal than `perform` listens
            self._passwords.learn(settings, self._sent.get(node), said(ended), taken=False)
        if isinstance(result, Done):
            return None
        return failure_of(ended) or f"says: {result.reason}"

    def _without_needless_password(self, settings: HostSettings, verb: ServiceVerb) -> HostSettings:
        """Omit the password if sudo would not read it: the command itself would find it on its input.

        The last reading of the rights counts for one attempt. If sudo asks after all and refuses that
        attempt, the next one has the password.
        """
        with self._lock:
            known = (settings.node, verb.value) in self._asks_nothing
            self._asks_nothing.discard((settings.node, verb.value))
        return replace(settings, sudo=Sudo.PASSWORDLESS, sudo_password=None) if known else settings

    def _reboot(self, node: NodeName) -> ActionResult:
        settings, connection = self._connection(node)
        if settings.connect is Connect.LOCAL:
            return Refused(reason=f"{node} is on this machine: it is not rebooted under the run itself")
        line = services.reboot_command(settings)
        sent = script.untranslated(exclusion.of_reboot(settings, line))
        self._sent[node] = sudo.stdin(settings)
        outcome = connection.run(sent, timeout=settings.limits.command, stdin=self._sent[node])
        result = self._result(settings, None, line, outcome)
        if not isinstance(result, Refused):
            # The host goes away: the next reading makes a new connection, or reports that it cannot.
            connection.drop()
            with self._lock:
                self._marks.pop(node, None)
        return result

    def _hook(self, action: RunHook) -> ActionResult:
        hook = action.hook
        line = for_node(hook.run, action.node)
        sent, longest = script.limited(line, hook.timeout), hook.timeout
        if hook.local:
            connection: HostConnection = self._connections.here()
        else:
            settings, connection = self._connection(action.node)
            sent, longest = exclusion.of_hook(settings, action.moment, line, hook.timeout)
        outcome = connection.run(script.untranslated(sent), timeout=longest + _HOOK_MARGIN_SECONDS)
        return outcomes.redacted(outcomes.of_hook(line, hook.timeout, outcome), self._redact)

    def _install(self, action: RunInstall) -> ActionResult:
        return outcomes.redacted(installing.begin(action, *self._connection(action.node)), self._redact)

    def _result(
        self, settings: HostSettings, verb: ServiceVerb | None, line: str, outcome: Outcome
    ) -> ActionResult:
        """The result of a stop or a start, or of a reboot, which is no verb."""
        if not isinstance(outcome, CommandResult):
            return outcomes.redacted(outcomes.without_end(outcome), self._redact)
        taken = outcome.exit == 0 and not exclusion.needed_nothing(said(outcome))
        self._passwords.learn(settings, self._sent.get(settings.node), said(outcome), taken=taken)
        result = outcomes.came_of(settings, verb, line, outcome.exit, said(outcome))
        return outcomes.redacted(result, self._redact)


def _command(action: StopNode | StartNode | RebootHost | RunInstall, settings: HostSettings) -> str:
    """The command line of an action on a node with these settings."""
    match action:
        case StopNode():
            return services.command(settings, ServiceVerb.STOP)
        case StartNode():
            return services.command(settings, ServiceVerb.START)
        case RebootHost():
            return services.reboot_command(settings)
        case RunInstall():
            return installing.command(action, settings)
        case _:
            assert_never(action)
