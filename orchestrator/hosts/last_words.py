"""Why a service did not start: what its manager and the server's own log say last, as far as one may read it.

It is read once for each failed state, without sudo, within a limit of its own, and only where a service has
failed: a reading of a host that is well costs nothing more.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from glob import escape
from typing import Final

from orchestrator.hosts import script, services
from orchestrator.hosts.connection import LEFT_OUT, CommandResult, HostConnection
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.redact import Redactor
from orchestrator.untrusted import one_line, telling

SOURCE_LINES: Final = 8
"""Of each source: a cause and what it led to. Lines of a stack trace do not count."""
LINE_CHARACTERS: Final = 300
_LIMIT_SECONDS: Final = 5.0
"""The journal of a host with many files may take long, and the run waits for this."""
_ASKED_LINES: Final = 60
_SERVER_LOG: Final = "server-log"
_LOG_FOLDERS: Final = ("/var/log/elasticsearch", "/var/log/opensearch", "/var/log/riak")


class LastWords:
    """What is said of services that did not start. Thread-safe.

    Args:
        redact: removes secrets from all of it.
    """

    def __init__(self, redact: Redactor) -> None:
        self._redact, self._lock = redact, threading.Lock()
        self._known: dict[NodeName, tuple[str | None, tuple[str, ...]]] = {}

    def forget(self, node: NodeName) -> None:
        """A start is sent: if it fails too, it may fail for another reason."""
        with self._lock:
            self._known.pop(node, None)

    def of(
        self,
        settings: HostSettings,
        connection: HostConnection,
        view: HostView,
        *,
        mark: str | None,
        printed: str,
    ) -> tuple[str, ...]:
        """The last lines about a service that failed; none for any other.

        Args:
            settings: of the node.
            connection: to its host.
            view: the reading that may show the failure.
            mark: of that reading; what is said of the same failure is not read again.
            printed: what its last start printed, if this program has it.
        """
        manager = services.manager(settings)
        again = manager.restarts is not None and manager.restarts in view.detail
        gone = view.service in (ServiceState.STOPPED, ServiceState.FAILED)
        if not (again or view.service is ServiceState.FAILED or (gone and printed)):
            return ()
        with self._lock:
            known = self._known.get(settings.node)
        if known is not None and known[0] == mark:
            return known[1]
        asked = [*manager.last_words(settings), (_SERVER_LOG, newest_log(_LOG_FOLDERS, settings.cluster))]
        line = script.untranslated(script.limited(script.sections(asked), _LIMIT_SECONDS))
        outcome = connection.run(line, timeout=settings.limits.command)
        answers = script.read_sections(outcome.stdout) if isinstance(outcome, CommandResult) else {}
        parts = [last_lines(printed, self._redact)]
        for name, _ in asked:
            if name in answers:
                end = _named_log if name == _SERVER_LOG else last_lines
                parts.append(end(answers[name].text, self._redact))
        said = tuple(dict.fromkeys(line for part in parts for line in part))
        with self._lock:
            self._known[settings.node] = mark, said
        return said


def _named_log(text: str, redact: Redactor) -> tuple[str, ...]:
    """The name of a log, which is the first line of a text, and its last lines."""
    name, _, log = text.partition("\n")
    end = last_lines(log, redact)[1 - SOURCE_LINES :]
    return (*last_lines(name, redact), *end) if end else ()


def newest_log(folders: Sequence[str], cluster: str, root: str = "/var/log") -> str:
    """The line of shell that prints the end of the newest log that was written in the last minutes.

    It names the log: a host may have several servers. A folder may be a link to where the logs are. In any
    other folder below the root, the log is the one that bears the name of the cluster, as servers call it.
    """
    usual = " -o ".join(f"-path {shlex.quote(f'{escape(folder)}/*')}" for folder in folders)
    named = f"-name {shlex.quote(f'{escape(cluster)}.log')}"
    return f"""log=$(find -H {shlex.join([*folders, root])} -maxdepth 2 -type f \\( {usual} -o {named} \\) \
-name '*.log' -mmin -5 ! -name 'gc*' ! -name '*_deprecation*' ! -name '*slowlog*' ! -name '*_audit*' \
-exec ls -t {{}} + 2>/dev/null | head -n 1)
[ -r "$log" ] && echo "$log:" && tail -n {_ASKED_LINES} "$log\""""


def last_lines(text: str, redact: Redactor) -> tuple[str, ...]:
    """The last lines of an output that say something; each visible, bounded and without secrets.

    Secrets are removed before anything is cut: a part of one would not be found.
    """
    pieces = LEFT_OUT.split(text)
    if len(pieces) > 1:  # the lines beside the gap are cut, and may hold a part of a secret
        head, tail = pieces[0].splitlines()[:-1], pieces[-1].strip().splitlines()[1:]
        text = "\n".join([*head, *tail])
    return tuple(one_line(line, LINE_CHARACTERS) for line in telling(redact(text))[-SOURCE_LINES:])
