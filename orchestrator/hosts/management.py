"""Which tools that may start, stop or upgrade a service are at work on a host. A read; it needs no rights.

A configuration management daemon that waits for its next run is not at work. By names of processes, since
each tool keeps its lock elsewhere and often where only root may look; by the lock of dpkg and rpm for the
programs that take it under another name. Processes in containers on the machine, with process numbers of
their own, are passed over: what they install is not on the machine.
"""

from __future__ import annotations

from typing import Final

from orchestrator.hosts.script import Section

_NAMES: Final = (
    *("puppet", "chef-client", "cinc-client", "salt-call"),
    *("apt", "apt-get", "aptitude", "dpkg", "unattended-upgr"),
    *("rpm", "yum", "dnf", "dnf5", "microdnf", "zypper", "transactional-u"),
)
"""Names of processes as the kernel has them: of a script its file's name, 15 characters at most."""
_LOCKS: Final = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/rpm/.rpm.lock")
_BY_LOCK: Final = "lock"
_ONCE: Final = {"puppet": {"--onetime", "--test", "-t", "apply"}}
"""Arguments without which it waits as a daemon; its run has a process with a title of its own."""
_INTERVAL: Final = frozenset({"-d", "--daemonize", "-i", "--interval"})
_DAEMON: Final = {"chef-client": _INTERVAL, "cinc-client": _INTERVAL}
"""Arguments with which it waits as a daemon."""
_TITLES: Final = ("applying configuration", "client worker")
"""In the title of the process in which a daemon of Puppet or Chef does a run."""
_WAITS_FOR_SHUTDOWN: Final = "unattended-upgrade-shutdown"

IN_CONTAINER: Final = "^NSpid:[[:space:]]+[0-9]+[[:space:]]+[0-9]"
"""A line of `/proc/PID/status`, since Linux 4.1: the process has a second number, in a namespace below."""

# The class of one letter keeps the line from finding itself. A process may end at any moment.
SCRIPT: Final = f"""\
(for one in $(grep -lxE '{"|".join(_NAMES)}' /proc/[0-9]*/comm 2>/dev/null
    grep -la 'Ansiball[Z]_' /proc/[0-9]*/cmdline 2>/dev/null); do
  pid=${{one#/proc/}}; pid=${{pid%%/*}}
  {{ IFS= read -r name <"/proc/$pid/comm"; }} 2>/dev/null || continue
  grep -qE '{IN_CONTAINER}' "/proc/$pid/status" 2>/dev/null && continue
  line=$( {{ tr '\\000\\n' '  ' <"/proc/$pid/cmdline"; }} 2>/dev/null | cut -c 1-200)
  echo "$pid $name $line"
done
for file in {" ".join(_LOCKS)}; do
  inode=$(stat -c %i "$file" 2>/dev/null) || continue
  awk -v inode="$inode" -v file="$file" '
    $2 == "POSIX" && $5 > 0 {{ split($6, part, ":"); if (part[3] == inode) print $5, "{_BY_LOCK}", file }}
  ' /proc/locks 2>/dev/null
done
exit 0)"""


def read_at_work(answer: Section | None) -> tuple[str, ...]:
    """What is at work, for people, each with its process. A part that was cut off or failed says nothing."""
    found: dict[str, str] = {}
    for line in (answer.text if answer is not None else "").splitlines():
        pid, _, rest = line.partition(" ")
        name, _, command = rest.partition(" ")
        if not (pid.isdigit() and rest):
            continue
        if name == _BY_LOCK:
            found.setdefault(pid, f"process {pid} has locked {command}")
        elif _is_at_work(name, command):
            found[pid] = f"{name if name in _NAMES else 'Ansible'} (process {pid})"
    return tuple(found.values())


def _is_at_work(name: str, command: str) -> bool:
    words = set(command.split())
    if any(title in command for title in _TITLES):
        return True
    if name in _ONCE:
        return bool(words & _ONCE[name])
    return not words & _DAEMON.get(name, frozenset()) and _WAITS_FOR_SHUTDOWN not in command
