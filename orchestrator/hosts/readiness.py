"""Whether a host can install the target of an upgrade: the playbook's questions, its disk, its keystore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.hosts import installing, script, sudo
from orchestrator.hosts.connection import CommandResult, HostConnection
from orchestrator.hosts.management import IN_CONTAINER
from orchestrator.hosts.readings import unread
from orchestrator.hosts.script import Section
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.phase import step_name
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.model.upgrade import HostReadiness, Upgrade
from orchestrator.redact import Redactor, end_of
from orchestrator.sudo_question import ASK_SUDO, NEVER_ASKS

VERIFY_SECONDS: Final[Seconds] = 120.0
"""The limit of each `verify` line: one may ask a package mirror."""
_FREE, _KEYSTORE, _NEVER_ASKS = "free", "keystore", "never-asks"
_FREE_SCRIPT: Final = "df -Pk / /usr /var 2>/dev/null | awk 'NR > 1 { print $4 }' | sort -n | head -n 1"
_KEYSTORE_SCRIPT: Final = f"{script.assigned(in_container=IN_CONTAINER)}\n{script.text('keystore.sh')}"
_SAID_BYTES: Final = 300


def limit(upgrade: Upgrade) -> Seconds:
    """The longest that the script takes."""
    return (len(upgrade.verify) + 1) * VERIFY_SECONDS


def ask(
    connect: Callable[[NodeName], tuple[HostSettings, HostConnection]],
    node: NodeName,
    upgrade: Upgrade,
    redact: Redactor,
) -> Reading[HostReadiness]:
    """Ask one host, in one round trip."""
    settings, connection = connect(node)
    outcome = connection.run(readiness_script(node, upgrade, settings.sudo), timeout=limit(upgrade))
    if not isinstance(outcome, CommandResult):
        return unread(node, outcome, redact)
    read = read_readiness(outcome.stdout, node, upgrade, settings.sudo)
    if isinstance(read, Unknown):
        return read
    return replace(read, failed=tuple(redact(line) for line in read.failed))


def readiness_script(node: NodeName, upgrade: Upgrade, how: Sudo = Sudo.OFF) -> str:
    """The command line that asks a host; it changes nothing there. `how` is how its steps become root.

    A sudo with a password is not asked: the password would have to be sent for each question.
    """
    parts = [(_FREE, _FREE_SCRIPT), (_KEYSTORE, f"( {_KEYSTORE_SCRIPT}\n)")]
    for number in _by_sudo(upgrade, how):
        line = installing.plain_line(upgrade.install[number].run, node, upgrade.target)
        parts.append((f"root-{number}", f"( {sudo.IS_ROOT} || {sudo.probe(how, line)}\n) 2>&1"))
    if _by_sudo(upgrade, how):
        parts.append((_NEVER_ASKS, f"( {sudo.IS_ROOT} || {NEVER_ASKS}\n) >/dev/null 2>&1"))
    for number, line in enumerate(upgrade.verify):
        asked = installing.for_target(line, node, upgrade.target)
        parts.append((f"verify-{number}", f"( {script.limited(asked, VERIFY_SECONDS)}\n) 2>&1"))
    return script.untranslated(f"{ASK_SUDO}{script.sections(parts)}")


def _by_sudo(upgrade: Upgrade, how: Sudo) -> tuple[int, ...]:
    """The steps that run as root by a sudo without a password."""
    asked = how in (Sudo.AUTO, Sudo.PASSWORDLESS)
    return tuple(number for number, step in enumerate(upgrade.install) if asked and step.as_root)


def _refused(answers: Mapping[str, Section], upgrade: Upgrade, how: Sudo) -> Iterator[str]:
    """The first step that sudo refuses to run as root: the others need the same rights."""
    never = answers.get(_NEVER_ASKS)
    for number in _by_sudo(upgrade, how):
        answer = answers.get(f"root-{number}")
        never_asks = never is not None and never.exit == 0
        if answer is None or sudo.allows(how, answer.exit, answer.text, never_asks=never_asks):
            continue
        said = sudo.refusal(answer.text) or "sudo does not show that it needs no password"
        yield f"{step_name(number)} may not run as root: {said} ({sudo.PAGE}: install steps of an upgrade)"
        return


def read_readiness(
    output: str, node: NodeName, upgrade: Upgrade, how: Sudo = Sudo.OFF
) -> Reading[HostReadiness]:
    """Read the answers to `readiness_script`; `Unknown` if one of them was cut off."""
    answers = script.read_sections(output)
    if not answers:
        return Unknown(reason=f"host of {node}: its answer has no part", passes=True)
    failed = list(_refused(answers, upgrade, how))
    for number, line in enumerate(upgrade.verify):
        answer = answers.get(f"verify-{number}")
        if answer is None:
            return Unknown(reason=f"host of {node}: no answer to the verify line {number}")
        if answer.exit != 0:
            asked = installing.for_target(line, node, upgrade.target)
            failed.append(f"`{asked}` ended with {answer.exit}{_said(answer)}")
    free = answers.get(_FREE)
    kilobytes = free.text.strip() if free is not None else ""
    return HostReadiness(
        failed=tuple(failed),
        keystore_password=_keystore(answers.get(_KEYSTORE)),
        free_bytes=int(kilobytes) * 1024 if kilobytes.isdigit() else None,
    )


def _said(answer: Section) -> str:
    text = answer.text.strip()
    return f": {end_of(text, _SAID_BYTES)}" if text else ""


def _keystore(answer: Section | None) -> bool | None:
    """By the tool's own words: its exit code says "no password" as well as "not allowed to read"."""
    said = [] if answer is None else answer.text.lower().splitlines()
    found = ["not password-protected" not in line for line in said if "password-protected" in line]
    return any(found) if found else None
