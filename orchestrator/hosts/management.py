"""Which tools that may start, stop or upgrade a service are at work on a host. A read; it needs no rights.

A configuration management daemon that waits for its next run is not at work. By names of processes, since
each tool keeps its lock elsewhere and often where only root may look; by the lock of dpkg and rpm for the
programs that take it under another name. Processes in containers on the machine, with process numbers of
their own, are passed over: what they install is not on the machine.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.hosts import script
from orchestrator.hosts.script import Section

_NAMES: Final = (
    *("puppet", "chef-client", "cinc-client", "chef-solo", "cinc-solo", "chef-apply"),
    *("salt-call", "ansible-pull"),
    *("apt", "apt-get", "aptitude", "dpkg", "unattended-upgr", "apt.systemd.dai", "needrestart"),
    *("rpm", "yum", "yum-cron", "dnf", "dnf5", "dnf-automatic", "microdnf", "zypper", "transactional-u"),
)
"""Names of processes as the kernel has them: of a script its file's name, 15 characters at most."""
_LOCKS: Final = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/rpm/.rpm.lock")
_BY_LOCK: Final = "lock"
_MARKS: Final = {
    "AnsiballZ_": "Ansible",
    "BECOME-SUCCESS-": "Ansible",  # with pipelining a module comes on standard input
    "ProcessPayload(jid=": "Salt",  # the minion's process for a job of its master, if it has setproctitle
    "_salt/salt-call": "Salt",  # salt-ssh: `python3 /var/tmp/.USER_HASH_salt/salt-call`
}
"""In the command lines of work that is begun from another machine, and whose it is."""
_ONCE: Final = re.compile(r"--onetime(=true)?|--test|-[a-z]*[to][a-z]*|apply")
"""An argument without which Puppet waits as a daemon; its run has a process with a title of its own."""
_INTERVAL: Final = frozenset({"-d", "--daemonize", "-i", "--interval"})
_DAEMON: Final = {"chef-client": _INTERVAL, "cinc-client": _INTERVAL}
"""Arguments with which it waits as a daemon."""
_TITLES: Final = ("applying configuration", "client worker")
"""In the title of the process in which a daemon of Puppet or Chef does a run."""
_WAITS_FOR_SHUTDOWN: Final = "unattended-upgrade-shutdown"


def _unlike_itself(mark: str) -> str:
    """A pattern for a text that is not in the pattern."""
    return f"{mark[0]}[{mark[1]}]{re.escape(mark[2:])}"


IN_CONTAINER: Final = "^NSpid:[[:space:]]+[0-9]+[[:space:]]+[0-9]"
"""A line of `/proc/PID/status`, since Linux 4.1: the process has a second number, in a namespace below."""

# The class of one letter in each mark keeps the line from finding itself.
_ARGUMENTS: Final = script.assigned(
    names="|".join(_NAMES),
    marks="|".join(map(_unlike_itself, _MARKS)),
    in_container=IN_CONTAINER,
    locks=" ".join(_LOCKS),
    by_lock=_BY_LOCK,
)
SCRIPT: Final = f"({_ARGUMENTS}\n{script.text('at_work.sh')})"


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
            tool = next((whose for mark, whose in _MARKS.items() if mark in command), "Ansible")
            found[pid] = f"{name if name in _NAMES else tool} (process {pid})"
    return tuple(found.values())


def _is_at_work(name: str, command: str) -> bool:
    words = set(command.split())
    if any(title in command for title in _TITLES):
        return True
    if name == "puppet":
        return any(_ONCE.fullmatch(word) for word in words)
    return not words & _DAEMON.get(name, frozenset()) and _WAITS_FOR_SHUTDOWN not in command
