"""One command at a time for a node on its host.

A hook whose connection was lost, or whose program was killed, may still be running there, such as an upgrade:
no manager prevents a start beside it. So a hook and a start first take a lock on the host.

systemd has a queue for stops and starts, and dockerd refuses conflicting ones. Init scripts and command
lines have neither: a second start, sent after this program was killed, starts a second process during the
first start. There every stop and reboot takes the lock too.

- The lock is a file. The shell that runs the command holds it with `flock`. The kernel releases it when that
  shell ends, also when it is killed.
- The file names the holder: its command's purpose, since when, its pid, and the pid of the command. A pid
  counts only together with the start time of its process. If the shell was killed and its command still
  runs, the lock counts as held until the command ends.
- Every holder has a limit, and a command that still runs then is ended. Under sudo, only SIGTERM reaches the
  command. A command that ignores it continues as root, keeps the lock, and is named in messages.
- A start and a hook wait for the holder. A stop and a reboot do not, since the reading that allowed them
  would be out of date.
- Under init scripts and command lines, a start reads the state first and does nothing if the service runs. A
  start command that continues after the service runs may be the node itself: it is not ended, and releases
  the lock.
- Nothing waits for an install step, which has no limit: all that needs the lock is refused at once.
- Where no lock can be taken, a start and a hook run without it.

The lock belongs to the account. It is in a folder `orchestrate-UID`, mode 0700, in the first of `FOLDERS`
where the account can create one. Root's is in `/run`; an administrator can create one there for any account.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts import script, services
from orchestrator.hosts.services import ServiceVerb
from orchestrator.model.action import Moment
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Seconds

FOLDERS: Final = ("/run", "/var/run", "/run/lock", "/var/lock", "/tmp")  # noqa: S108  (a folder of our own, checked)
VERB_SECONDS: Final = 1800.0
"""The limit of a stop or a start: longer than any that works, and longer than a run waits."""
REBOOT_SECONDS: Final = 60.0
"""The limit of the command that asks for a reboot."""
START_PATIENCE_SECONDS: Final = 3600.0
"""How long a start waits for a hook that installs something. Every holder also has a limit of its own."""
OVERDUE_SECONDS: Final = 30
"""How long to keep waiting for a holder past its limit."""
NO_RECORD_SECONDS: Final = 60
"""How long to wait for a holder that has not written its record."""

_HELD: Final = "not done: the lock of this node on its host is held by"
_HELD_BY: Final = re.compile(rf"^{_HELD} its (\S+) since (\S+) \(pid (\d+)\)", re.MULTILINE)
_RUNS: Final = "it runs already: nothing was started"
_LEFT_RUNNING: Final = "the command has not ended, but the service runs: the command is left running"
_NO_LOCK: Final = "not done: no lock can be taken on this host"
_FILES: Final = ("process.sh", "lock.sh")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.@-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The holder of a node's lock."""

    what: str  # `stop`, `start`, `reboot`, `install`, or the moment of a hook
    since: str  # when it began, by the host's clock, in UTC
    pid: int  # of the shell that holds the lock; of the command itself if that shell is gone

    def __str__(self) -> str:
        """For people."""
        return f"its {self.what} since {self.since} (pid {self.pid})"


def is_needed(settings: HostSettings) -> bool:
    """Whether a stop and a reboot of this node need the lock: its manager allows two verbs at once."""
    return settings.service.controlled and not services.manager(settings).excludes


def of_verb(settings: HostSettings, verb: ServiceVerb, line: str) -> str:
    """The command line of a stop or a start as it is sent: a start waits for a running hook."""
    needed = is_needed(settings)
    if verb is ServiceVerb.STOP and not needed:
        return line
    if verb is ServiceVerb.STOP:
        return exclusive(settings, verb.value, line, limit=VERB_SECONDS, patience=0, needs_lock=True)
    running = services.running_command(settings) if needed else None
    return exclusive(
        settings, verb.value, line, limit=VERB_SECONDS, patience=START_PATIENCE_SECONDS, unless=running
    )


def of_quick_start(settings: HostSettings, line: str) -> str:
    """The command line of a start that a manager only queues: refused at once while the lock is held."""
    return exclusive(settings, ServiceVerb.START.value, line, limit=VERB_SECONDS, patience=0)


def of_reboot(settings: HostSettings, line: str) -> str:
    """The command line of a reboot as it is sent."""
    if not is_needed(settings):
        return line
    return exclusive(settings, "reboot", line, limit=REBOOT_SECONDS, patience=0, needs_lock=True)


def of_hook(settings: HostSettings, moment: Moment, line: str, limit: Seconds) -> tuple[str, Seconds]:
    """The script of a hook with its limit, and the longest time it takes, with the wait for the lock.

    The same hook, begun before this program was killed, ends within the limit.
    """
    return exclusive(settings, moment.value, line, limit=limit, patience=limit), 2 * limit


def exclusive(
    settings: HostSettings,
    what: str,
    line: str,
    *,
    limit: Seconds,
    patience: Seconds,
    unless: str | None = None,
    needs_lock: bool = False,
) -> str:
    """A script that runs a command line under the node's lock and ends with its exit code.

    Args:
        settings: of the node.
        what: names the holder: `stop`, `start`, `reboot`, or the moment of a hook.
        line: the command line; its standard input is that of the script.
        limit: seconds after which the command is ended.
        patience: seconds to wait for another holder, which has its own limit too; 0 = a moment only.
        unless: a shell line; if it succeeds, the command is not needed and not run.
        needs_lock: whether the command is refused where no lock can be taken at all. A start is not
            refused: a full disk must not keep a node down.
    """
    skip = f"if {unless}\nthen echo '{_RUNS}'; exit 0; fi\n" if unless else ""
    return "\n".join(
        (
            _names(settings),
            script.assigned(what=what, limit=max(1, round(limit)), patience=round(patience)),
            script.assigned(needs_lock="yes" if needs_lock else ""),
            script.bounded(f"{skip}{line}", unless=unless or ""),
            *map(script.text, (*_FILES, "take.sh", "exclusive.sh")),
        )
    )


def holder_script(settings: HostSettings) -> str:
    """A shell line that prints the holder of the node's lock, or nothing if it is free. It takes no lock."""
    return f'({with_functions(settings)}\nfind_lock && holder && echo "$held_by $since $pid")'


def with_functions(settings: HostSettings) -> str:
    """The beginning of a script that looks at the node's lock: `find_lock`, `holder`."""
    return "\n".join((_names(settings), *map(script.text, _FILES)))


def read_holder(text: str) -> LockHolder | None:
    """The answer to `holder_script`."""
    words = text.split()
    if len(words) != 3 or not words[2].isdigit():  # noqa: PLR2004  (three words are printed)
        return None
    return LockHolder(what=words[0], since=words[1], pid=int(words[2]))


def question() -> str:
    """A shell line that succeeds where a lock can be taken, and otherwise prints what is missing.

    It changes nothing.
    """
    folders = script.assigned(folders=" ".join(FOLDERS), listed=", ".join(FOLDERS))
    return f"({folders}\n{script.text('lockable.sh')})"


def held_by(output: str) -> LockHolder | None:
    """The holder of the lock that kept a command from running; None if the command ran."""
    found = _HELD_BY.search(output)
    return found and LockHolder(what=found[1], since=found[2], pid=int(found[3]))


def was_not_run(output: str) -> bool:
    """Whether the command certainly did not run, because the lock could not be taken."""
    return any(line.startswith((_HELD, _NO_LOCK)) for line in output.splitlines())


def needed_nothing(output: str) -> bool:
    """Whether the service already ran: a start was not needed, or its command was allowed to continue."""
    return output.strip().splitlines()[-1:] in ([_RUNS], [_LEFT_RUNNING])


def _names(settings: HostSettings) -> str:
    """Names of the lock. Two clusters may have equal node names on one machine: the command lines differ."""
    service = settings.service
    mark = "\0".join(
        (settings.node, service.manager.value, service.unit, service.stop or "", service.start or "")
    )
    name = f"{_UNSAFE.sub('_', settings.node)[:80]}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}.lock"
    waits = script.assigned(overdue=OVERDUE_SECONDS, no_record=NO_RECORD_SECONDS)
    return f"name={name} uid=$(id -u) folders='{' '.join(FOLDERS)}' lock='' {waits}"
