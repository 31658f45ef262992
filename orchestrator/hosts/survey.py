"""One round trip to a host: boot, machine, rights and service in one script, and its answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.hosts import exclusion, installing, management, script, services, sudo
from orchestrator.hosts.contact import ACCOUNT, BOOT
from orchestrator.hosts.exclusion import LockHolder
from orchestrator.hosts.script import Section
from orchestrator.hosts.services import ServiceVerb
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.observation import HostView
from orchestrator.model.reading import Reading, Unknown
from orchestrator.sudo_question import ASK_SUDO, NEVER_ASKS

_BOOT, _MACHINE, _UPTIME, _SERVICE = "boot-id", "machine-id", "uptime", "service"
_NEVER_ASKS, _ACCOUNT = "never-asks", "account"
_INSTALL, _HOLDER, _AT_WORK = "install", "holder", "at-work"
_RIGHT: Final = {ServiceVerb.STOP: "may-stop", ServiceVerb.START: "may-start"}
_REBOOT, _LOCK, _TUNE = "may-reboot", "may-lock", "may-tune"
_FOLDER: Final = "folder"
REBOOT: Final = "reboot"
LOCK: Final = "lock"
"""The right without a command: whether commands of the node can exclude each other on its host."""
TUNE: Final = "tune"
_ANY_VALUE: Final = "/usr/bin/tee /proc/sys/vm/swappiness"
"""A command of every shipped tuning profile, word for word as in the sudoers file of tuning."""
_NEEDED: Final = frozenset((*(verb.value for verb in ServiceVerb), LOCK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Whether one command is allowed on a host."""

    what: str  # `stop`, `start`, `reboot` or `lock`; on a host that is only tuned `tune`
    command: str  # the command line, without sudo
    allowed: bool | None  # None if sudo does not show whether the command needs a password
    said: str  # the host's answer; empty if it allowed the command without a message
    asks_nothing: bool = False  # sudo has shown that the rule has NOPASSWD, and so reads no password


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The answers of one round trip."""

    view: Reading[HostView]  # `Unknown` if the state of the service is not understood
    mark: str | None  # the exact state, to notice a change; None if the answer was cut off before it
    rights: tuple[Right, ...] = ()  # empty if they were not requested
    uptime: float | None = None  # seconds since the boot, as the host counts them
    root: bool | None = None  # whether the account is root there; None if the host did not answer that
    boot: str | None = None  # the identity of its boot, likewise
    # why the service could not be started after a stop; empty if nothing is known against it
    barred: str = ""
    holder: LockHolder | None = None  # the holder of the node's lock, if there is one
    folder_fault: str = ""  # why the account cannot create a file in `folder`; empty if it can


def survey_script(
    settings: HostSettings, *, rights: bool, reboot: bool = False, folder: str | None = None
) -> str:
    """The command line of a survey; with `folder`, whether the account can create files there."""
    parts = [
        (_BOOT, BOOT),
        (_MACHINE, "cat /etc/machine-id 2>/dev/null || cat /var/lib/dbus/machine-id"),
        (_UPTIME, "cut -d ' ' -f 1 /proc/uptime"),
        (_ACCOUNT, ACCOUNT),
    ]
    if rights:
        parts += [(name, line) for name, _, line in _right_parts(settings, reboot=reboot)]
        if settings.sudo is Sudo.PASSWORDLESS:
            parts.append((_NEVER_ASKS, NEVER_ASKS))
    if folder is not None:
        writable = f"({script.assigned(folder=folder)}\n{script.text('writable.sh')})"
        parts.append((_FOLDER, writable))
    parts.append((_INSTALL, installing.record_script(settings)))
    parts.append((_HOLDER, exclusion.holder_script(settings)))
    parts.append((_AT_WORK, management.SCRIPT))
    # Last, so that a status command with a long output costs none of the other answers.
    if settings.service.is_named:
        parts.append((_SERVICE, services.status_command(settings)))
    probes = "" if not rights else sudo.PROBES if settings.sudo is Sudo.PASSWORD else ASK_SUDO
    return script.untranslated(f"{probes}{script.sections(parts)}")


def survey_stdin(settings: HostSettings, *, rights: bool) -> str | None:
    """The password, if sudo is asked."""
    return sudo.stdin(settings) if rights else None


def read_survey(settings: HostSettings, output: str, *, rights: bool, reboot: bool = False) -> Survey:
    """Read the answers; without a state of the service, there is no view."""
    answers = script.read_sections(output)
    account = _value(answers, _ACCOUNT)
    root = account == "0" if account is not None and account.isdigit() else None
    allowed = _read_rights(settings, answers, reboot=reboot) if rights else ()
    may_control = all(right.allowed is True for right in allowed if right.what in _NEEDED) if rights else None
    may_reboot = (
        all(right.allowed is True for right in allowed if right.what == REBOOT) if rights and reboot else None
    )
    answer = answers.get(_SERVICE)
    uptime = _value(answers, _UPTIME)
    view, barred = _view(settings, answers, may_control=may_control, may_reboot=may_reboot)
    if isinstance(view, HostView):
        at_work = management.read_at_work(answers.get(_AT_WORK))
        view = replace(view, install=installing.read_record(answers.get(_INSTALL)), at_work=at_work)
    return Survey(
        view=view,
        mark=None if answer is None else services.mark(settings, answer),
        rights=allowed,
        uptime=float(uptime) if uptime and uptime.replace(".", "", 1).isdigit() else None,
        root=root,
        boot=_value(answers, _BOOT),
        barred=barred,
        holder=exclusion.read_holder(_value(answers, _HOLDER) or ""),
        folder_fault=_folder_fault(answers.get(_FOLDER)),
    )


def _view(
    settings: HostSettings,
    answers: Mapping[str, Section],
    *,
    may_control: bool | None,
    may_reboot: bool | None,
) -> tuple[Reading[HostView], str]:
    """The view, and why the service could not be started after a stop: then no right is enough."""
    answer = answers.get(_SERVICE)
    if answer is None:
        return Unknown(reason="the host's answer was cut off before the state of the service"), ""
    state = services.read_state(settings, answer)
    if isinstance(state, Unknown):
        return state, ""
    view = HostView(
        service=state.state,
        detail=state.detail,
        boot_id=_value(answers, _BOOT),
        machine_id=_value(answers, _MACHINE),
        may_control=False if state.barred else may_control,
        may_reboot=may_reboot,
    )
    return view, state.barred


def _right_parts(settings: HostSettings, *, reboot: bool) -> tuple[tuple[str, str, str], ...]:
    """Name of the part, the command, and the shell line that tests it."""
    parts = [
        (name, command, _question(settings, command)) for name, command in _commands(settings, reboot=reboot)
    ]
    if exclusion.is_needed(settings):
        parts.append((_LOCK, "flock", exclusion.question()))
    return tuple(parts)


def _commands(settings: HostSettings, *, reboot: bool) -> tuple[tuple[str, str], ...]:
    """Name of the part, and command, of everything that may need sudo."""
    if not settings.service.controlled:
        return ((_TUNE, _ANY_VALUE),)
    commands = [(_RIGHT[verb], services.plain_command(settings, verb)) for verb in ServiceVerb]
    if reboot:
        commands.append((_REBOOT, services.plain_reboot(settings)))
    return tuple(commands)


def _question(settings: HostSettings, command: str) -> str:
    """A shell line that tests whether a command is allowed without running it."""
    if settings.sudo is not Sudo.OFF:
        return sudo.probe(settings.sudo, command)
    if not settings.service.controlled:
        return sudo.IS_ROOT
    return services.manager(settings).may(settings, command)


def _folder_fault(answer: Section | None) -> str:
    if answer is not None and answer.exit == 0:
        return ""
    said = "" if answer is None else answer.text.strip().partition("\n")[0]
    return said or "no answer"


def _read_rights(
    settings: HostSettings, answers: Mapping[str, Section], *, reboot: bool
) -> tuple[Right, ...]:
    never_asks = (found := answers.get(_NEVER_ASKS)) is not None and found.exit == 0
    rights = []
    for name, command, _ in _right_parts(settings, reboot=reboot):
        answer = answers.get(name)
        allowed: bool | None = False
        said, asks_nothing = "no answer", False
        if answer is not None:
            said = sudo.refusal(answer.text) or answer.text.strip().partition("\n")[0]
            allowed = answer.exit == 0
            if settings.sudo is not Sudo.OFF and name != _LOCK:
                allowed = sudo.allows(settings.sudo, answer.exit, answer.text, never_asks=never_asks)
                said = "" if allowed is None else said  # it is the command
                asks_nothing = sudo.needs_no_password(answer.exit, answer.text)
        # A machine is never rebooted under the run itself.
        allowed = False if name == _REBOOT and settings.connect is Connect.LOCAL else allowed
        rights.append(
            Right(
                what=name.removeprefix("may-"),
                command=command,
                allowed=allowed,
                said=said,
                asks_nothing=asks_nothing,
            )
        )
    return tuple(rights)


def _value(answers: Mapping[str, Section], name: str) -> str | None:
    answer = answers.get(name)
    return answer.text.strip() or None if answer is not None and answer.exit == 0 else None
