"""Checks of a host before a run. They change nothing permanently, and each failure comes with its remedy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from orchestrator.daemons import in_parallel
from orchestrator.hosts import exclusion, services, sudo
from orchestrator.hosts.connection import CommandResult, HostError, Lost, Outcome, Trouble, Unreachable
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.contact import FirstContacts
from orchestrator.hosts.passwords import SentPasswords
from orchestrator.hosts.survey import LOCK, REBOOT, TUNE, Right, read_survey, survey_script, survey_stdin
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor

CHECK_LIMIT_SECONDS: Final = 120.0
"""For all hosts together. Hosts are checked in parallel, and one host has far smaller limits."""


class Point(Enum):
    """What is checked, in order: each point depends on those before it."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    HOST_KEY = "host_key"
    LOG_IN = "log_in"
    SERVICE = "service"
    RIGHT_STOP = "right_stop"
    RIGHT_START = "right_start"
    RIGHT_REBOOT = "right_reboot"
    RIGHT_TUNE = "right_tune"
    LOCK = "lock"
    LEASE_DIRECTORY = "lease_directory"


MEANINGS: Final = {
    Point.RESOLVE: "The settings of the host can be used, and its name has an address.",
    Point.CONNECT: "The host takes connections on its SSH port.",
    Point.HOST_KEY: "The key that the host shows is the one in the known_hosts file.",
    Point.LOG_IN: "The account of `hosts.user` logs in without a question.",
    Point.SERVICE: "The service manager has the service of the node, and its state can be read.",
    Point.RIGHT_STOP: "The account may stop the service, through sudo if it is not root.",
    Point.RIGHT_START: "The account may start the service, through sudo if it is not root.",
    Point.RIGHT_REBOOT: "The account may reboot the host. Checked with `--reboot`.",
    Point.RIGHT_TUNE: "The account may set a value of the kernel, through sudo if it is not root. Checked on"
    " hosts without a cluster.",
    Point.LOCK: "The host has `flock`, so that two commands for one node never run at once.",
    Point.LEASE_DIRECTORY: "The folder for the lease of a Riak run takes files.",
}
"""Point to what it means that it is good."""


class Grade(Enum):
    """The result of a point."""

    GOOD = "good"
    BAD = "bad"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """One point of one host."""

    node: NodeName
    point: Point
    grade: Grade
    message: str  # the result; for `Grade.BAD`, also the remedy


_FAILS_AT: Final = {
    Trouble.SETTINGS: Point.RESOLVE,
    Trouble.RESOLVE: Point.RESOLVE,
    Trouble.REFUSED: Point.CONNECT,
    Trouble.NO_ANSWER: Point.CONNECT,
    Trouble.CLOSED: Point.CONNECT,
    Trouble.UNKNOWN_KEY: Point.HOST_KEY,
    Trouble.CHANGED_KEY: Point.HOST_KEY,
    Trouble.REVOKED_KEY: Point.HOST_KEY,
    Trouble.AUTHENTICATION: Point.LOG_IN,
    Trouble.PROTOCOL: Point.LOG_IN,
}
_WAY: Final = (Point.RESOLVE, Point.CONNECT, Point.HOST_KEY, Point.LOG_IN)
_RIGHTS: Final = {
    "stop": Point.RIGHT_STOP,
    "start": Point.RIGHT_START,
    REBOOT: Point.RIGHT_REBOOT,
    LOCK: Point.LOCK,
    TUNE: Point.RIGHT_TUNE,
}


def check_hosts(
    settings: Collection[HostSettings],
    connections: Connections,
    *,
    reboot: bool,
    redact: Redactor,
    lease_directory: str | None = None,
) -> Mapping[NodeName, tuple[HostCheck, ...]]:
    """Check hosts in parallel.

    Args:
        settings: the hosts to check.
        connections: used and left open.
        reboot: whether the right to reboot is needed too.
        redact: removes secrets from the hosts' output.
        lease_directory: the folder on each host for the record of a run's lease; None if there is none.
    """
    passwords = SentPasswords()
    check = partial(
        check_host,
        connections=connections,
        reboot=reboot,
        redact=redact,
        lease_directory=lease_directory,
        passwords=passwords,
    )
    work = {one.node: partial(check, one) for one in settings}
    # A wrong password costs one attempt, and not one at each host: the account may be the same.
    first = [one.node for one in settings if one.sudo is Sudo.PASSWORD][:1]
    done = {node: work[node]() for node in first}
    rest = {node: do for node, do in work.items() if node not in first}
    done |= in_parallel(rest, timeout=CHECK_LIMIT_SECONDS)
    late = f"no answer within {CHECK_LIMIT_SECONDS:.0f} s: is its name server or its network gone?"
    return {
        node: done.get(node) or (HostCheck(node=node, point=Point.RESOLVE, grade=Grade.BAD, message=late),)
        for node in work
    }


def check_host(
    settings: HostSettings,
    connections: Connections,
    *,
    reboot: bool,
    redact: Redactor,
    lease_directory: str | None = None,
    passwords: SentPasswords | None = None,
) -> tuple[HostCheck, ...]:
    """Check one host point by point. The points after the first failure to reach the host are not checked."""
    passwords = passwords or SentPasswords()

    def found(point: Point, message: str, *, good: bool) -> HostCheck:
        grade = Grade.GOOD if good else Grade.BAD
        return HostCheck(node=settings.node, point=point, grade=grade, message=redact(message))

    points = _points(settings, reboot=reboot, lease_directory=lease_directory)
    fault = services.fault(settings)
    if fault is not None:
        return _cut_off(settings, points, Point.RESOLVE, redact(fault))
    connection = connections.to(settings)
    if isinstance(connection, Unreachable):
        said = f"{connection.reason}{_another_way(settings, connection, connections)}"
        return _cut_off(settings, points, Point.RESOLVE, redact(said))
    outcome: Outcome
    try:
        settings = FirstContacts().meet(settings, connection)
    except HostError as error:
        outcome, stdin = error.fault, None
    else:
        settings = passwords.without_refused(settings)
        stdin = survey_stdin(settings, rights=True)
        script = survey_script(settings, rights=True, reboot=reboot, folder=lease_directory)
        outcome = connection.run(script, timeout=settings.limits.command, stdin=stdin)
    if isinstance(outcome, Unreachable):
        said = f"{outcome.reason}{_another_way(settings, outcome, connections)}"
        return _cut_off(settings, points, _FAILS_AT[outcome.trouble], redact(said))
    if isinstance(outcome, Lost):
        return _cut_off(settings, points, Point.SERVICE, redact(f"{outcome.reason}: is the host overloaded?"))
    survey = read_survey(settings, outcome.stdout, rights=True, reboot=reboot)
    passwords.learn_rights(settings, stdin, survey.rights)
    here = settings.connect is Connect.LOCAL
    checks = [found(point, _HERE if here else _WELL[point], good=True) for point in _WAY]
    if not here:
        said = f"{_WELL[Point.LOG_IN]} with `connect: {settings.connect.value}`"
        checks[-1] = found(Point.LOG_IN, said, good=True)
    if settings.service.is_named:
        view, wrong = survey.view, survey.barred
        wrong = view.reason if isinstance(view, Unknown) else wrong
        said = "" if isinstance(view, Unknown) else f"{view.service.value}: {view.detail}"
        checks.append(found(Point.SERVICE, wrong or said, good=not wrong))
    for right in survey.rights:
        message = _allowed(right) if right.allowed else missing_right(settings, right)
        checks.append(found(_RIGHTS[right.what], message, good=right.allowed is True))
    if lease_directory is not None:
        fault = survey.folder_fault
        message = _cannot_keep_lease(lease_directory, fault) if fault else f"{lease_directory} takes files"
        checks.append(found(Point.LEASE_DIRECTORY, message, good=not fault))
    return tuple(checks)


_OTHER_WAY: Final = {Connect.SSH: Connect.OPENSSH, Connect.OPENSSH: Connect.SSH}


def _another_way(settings: HostSettings, found: Unreachable, connections: Connections) -> str:
    """Whether the other way over SSH reaches a host, and the line to write; empty where it could not help."""
    other = _OTHER_WAY.get(settings.connect)
    if other is None or not found.of_the_way:
        return ""
    connection = connections.to(replace(settings, connect=other))
    if isinstance(connection, Unreachable):
        tried: Outcome = connection
    else:
        tried = connection.run("true", timeout=settings.limits.command)
    match tried:
        case CommandResult(exit=0):
            return f". `connect: {other.value}` reaches it: write this line under `hosts`"
        case Unreachable(reason=reason):
            return f". `connect: {other.value}` does not reach it either: {reason}"
        case _:
            return f". `connect: {other.value}` does not reach it either"


def _cannot_keep_lease(folder: str, fault: str) -> str:
    return (
        f"no file can be created in {folder} ({fault}), and a run leaves the record of its lease there:"
        " create the folder on this host and let the account create files in it, or name another folder with"
        " `riak.lease_directory`, the same for all hosts"
    )


def _allowed(right: Right) -> str:
    if right.what == LOCK:
        return "commands of this node exclude each other on its host"
    return f"`{right.command}` is allowed"


_WELL: Final = {
    Point.RESOLVE: "the address is known",
    Point.CONNECT: "in reach",
    Point.HOST_KEY: "the host key is the known one",
    Point.LOG_IN: "logged in",
}
_HERE: Final = "this machine: nothing to reach"


def _points(settings: HostSettings, *, reboot: bool, lease_directory: str | None) -> tuple[Point, ...]:
    left_out = {Point.RIGHT_TUNE} if reboot else {Point.RIGHT_TUNE, Point.RIGHT_REBOOT}
    if not settings.service.controlled:
        left_out = {Point.RIGHT_STOP, Point.RIGHT_START, Point.RIGHT_REBOOT}
    if not settings.service.is_named:
        left_out.add(Point.SERVICE)
    if lease_directory is None:
        left_out.add(Point.LEASE_DIRECTORY)
    if not exclusion.is_needed(settings):
        left_out.add(Point.LOCK)
    return tuple(point for point in Point if point not in left_out)


def _cut_off(
    settings: HostSettings, points: tuple[Point, ...], failed: Point, message: str
) -> tuple[HostCheck, ...]:
    """The points before the failed one are good; those after it are not checked."""
    place = points.index(failed)

    def one(number: int, point: Point) -> HostCheck:
        if number == place:
            return HostCheck(node=settings.node, point=point, grade=Grade.BAD, message=message)
        if number < place:
            return HostCheck(
                node=settings.node, point=point, grade=Grade.GOOD, message=_WELL.get(point, "well")
            )
        text = f"not checked: {failed.value} failed"
        return HostCheck(node=settings.node, point=point, grade=Grade.NOT_CHECKED, message=text)

    return tuple(one(number, point) for number, point in enumerate(points))


def missing_rights(settings: HostSettings, rights: Collection[Right]) -> list[str]:
    """The rights that the account lacks, and the remedies; refusals of sudo in the same words together."""
    groups: dict[tuple[str, str], list[Right]] = {}
    for right in rights:
        if not right.allowed:
            apart = right.what if right.what in (LOCK, REBOOT) else ""
            groups.setdefault((apart, right.said), []).append(right)
    return [missing_right(settings, *group) for group in groups.values()]


def missing_right(settings: HostSettings, right: Right, *others: Right) -> str:
    """The right that the account lacks or may lack, and the remedy; the others for the same reason."""
    commands = " and ".join(f"`{each.command}`" for each in (right, *others))
    lines = "these lines" if others else "this line"
    said = f" ({right.said})" if right.said else ""
    if right.what == REBOOT and settings.connect is Connect.LOCAL:
        return "this machine is not rebooted under the run itself"
    if right.what == LOCK:
        return (
            f"commands of this node cannot exclude each other on its host{said}: install util-linux, which"
            f" has `flock`, and give the account a folder for its lock ({sudo.PAGE})"
        )
    if settings.sudo is not Sudo.OFF and sudo.is_missing(right.said):
        return f"{commands} cannot be run as root{said}: {sudo.advice(settings, right.said)}"
    if sudo.withheld(settings):
        return f"sudo does not let the account run {commands}{said}: {sudo.advice(settings, right.said)}"
    match settings.sudo:
        case Sudo.OFF:
            return (
                f"{commands} may not be run{said}: remove `hosts.sudo: false`, so that an account"
                " other than root goes through sudo, or give the account the right on the host"
            )
        case Sudo.PASSWORDLESS | Sudo.AUTO if right.allowed is None:
            return (
                f"sudo allows {commands}, and does not show whether it asks for a password: put {lines}, word"
                f" for word, into the host's sudoers file with NOPASSWD ({sudo.PAGE} has one to copy)"
            )
        case Sudo.PASSWORDLESS | Sudo.AUTO:
            return (
                f"sudo does not let the account run {commands} without asking{said}: put {lines}, word for"
                f" word, into the host's sudoers file with NOPASSWD ({sudo.PAGE} has one to copy)"
            )
        case Sudo.PASSWORD:
            return (
                f"sudo does not let the account run {commands} with the password given{said}: is it the SSH"
                f" user's password, and does the sudoers file allow {lines}, word for word ({sudo.PAGE})?"
            )
