"""sudo: how a command is put behind it, how it refuses, and how to test what it allows without running it.

Only stop, start, reboot, tuning and the Riak commands for root go through sudo, word for word as in the
sudoers file.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.next_command import next_command
from orchestrator.sudo_question import ONLY_DOAS, REFUSE_DOAS

_WRONG: Final = (
    "incorrect password attempt|Sorry, try again|[Aa]uthentication failed, try again"
    "|[Mm]aximum [0-9]+ incorrect authentication attempt|sudo(-rs)?: PAM error: "
)
"""What sudo and sudo-rs print when they refuse a password, as an extended regular expression.

sudo-rs with `passwd_tries=1` prints the number alone, and the error of PAM where that counts failures.
"""

_REFUSALS: Final = re.compile(
    r"sudo: a (?:password|terminal) is required|sudo: no (?:password|tty)"
    r"|you must have a tty|not allowed to (?:execute|run)|may not run sudo|not in the sudoers file"
    r"|no new privileges|effective uid is not 0|must be owned by uid 0|sudo(?:-rs)?: \S+: command not found"
    r"|sudo: unknown user|sudo: not found|sudo: command not found|[Aa]ccount validation failure"
    r"|sudo(?:-rs)?: (?:I'm sorry .*I'm afraid I can't do that|interactive authentication is required)"
    rf"|{_WRONG}"
)
"""Wordings of sudo 1.7 to 1.9 and sudo-rs 0.2 under LC_ALL=C; the latter seen on 0.2.5.

`sudo: unable to resolve host` is only a warning: not here.
"""

_MISSING: Final = re.compile(r"sudo: (?:command )?not found")
"""A shell's message if sudo is missing."""
PAGE: Final = f"`{next_command('explain', 'least-rights')}`"
"""What shows the sudoers files to copy."""
IS_ROOT: Final = '[ "$(id -u)" = 0 ]'
"""A shell line that succeeds where the account is root."""


def is_missing(refusal: str) -> bool:
    """Whether the host has no sudo, according to its shell."""
    return _MISSING.search(refusal) is not None


def is_wrong_password(text: str) -> bool:
    """Whether sudo has refused a password, according to what it printed."""
    return re.search(_WRONG, text) is not None


def has_the_last_word(stderr: str) -> bool:
    """Whether these are words of sudo itself, which refused, and not of the command that it ran."""
    return stderr.strip().rpartition("\n")[2].startswith("sudo")


def withheld(settings: HostSettings) -> bool:
    """Whether the password of these settings is not sent, since sudo has refused it."""
    return settings.sudo is Sudo.PASSWORDLESS and settings.sudo_password is not None


def advice(settings: HostSettings, refusal: str) -> str:
    """The remedy for a refusal by sudo."""
    if withheld(settings):
        return (
            "sudo has refused the password of `hosts.sudo`, which is not sent again, so that the account is"
            " not locked (only after eight minutes to a host that had taken it): correct it if it is wrong"
        )
    if refusal == ONLY_DOAS:
        return "doas is not supported: install sudo, or log in as root (`hosts.user: root`)"
    if is_missing(refusal):
        return (
            "there is no sudo on the host: install it, or log in as root (`hosts.user: root`) with"
            " `hosts.sudo: auto`; where the account has the rights without sudo, set `hosts.sudo: false`"
        )
    return f"copy the sudoers file that {PAGE} names"


def prefix(sudo: Sudo) -> str:
    """The words before a command; empty without sudo.

    Before the first contact with the host, the line is shown as an ordinary account needs it.

    With a password, `-k` makes sudo read it even if it remembers an earlier one: otherwise the password
    would be left on the standard input of the command itself.
    """
    match sudo:
        case Sudo.OFF:
            return ""
        case Sudo.PASSWORDLESS | Sudo.AUTO:
            return "sudo -n "
        case Sudo.PASSWORD:
            return "sudo -k -S -p '' "


def stdin(settings: HostSettings) -> str | None:
    """The password, for one attempt of sudo; None if none is needed.

    It goes to standard input alone: never into a command line, which every user of the host can read.
    """
    if settings.sudo is not Sudo.PASSWORD or settings.sudo_password is None:
        return None
    return f"{settings.sudo_password()}\n"


def refusal(output: str) -> str | None:
    """The line in which sudo refuses; None if it did not refuse."""
    for line in output.splitlines():
        if _REFUSALS.search(line):
            return line.strip()
    return None


def refused(line: str, output: str) -> str | None:
    """The refusal of sudo to start a line; None for the refusal of a sudo in the middle of the line."""
    return refusal(output) if line.startswith("sudo ") else None


READ_FIRST: Final = """\
case $(command -v printf) in
    printf) IFS= read -r password; barred= ;;
    *) password=; barred="sudo: a password is required, which this shell would show to every user" ;;
esac"""
"""Shell lines that read the password into `$password`, for a builtin `printf`; `$barred`: why not."""

PROBES: Final = rf"""
{READ_FIRST}
# Asks sudo with a password. The first refusal is the last: each further attempt could lock the account.
probe() {{
    {REFUSE_DOAS}
    [ -z "$barred" ] || {{ echo "$barred"; return 1; }}
    said=$(printf '%s\n' "$password" | sudo -k -S -p '' -ll "$@" 2>&1) && {{ echo "$said"; return 0; }}
    if printf '%s\n' "$said" | grep -E '{_WRONG}' >/dev/null; then barred=$said; fi
    echo "$said"; return 1
}}
"""
"""The shell function with which a script asks sudo with a password."""


def probe(sudo: Sudo, command: str) -> str:
    """A shell line that asks whether a command would be allowed, without doing it.

    The script needs `PROBES` with a password, else `ASK_SUDO`.
    """
    return f"{'probe' if sudo is Sudo.PASSWORD else 'ask_sudo'} {command}"


def needs_no_password(code: int, output: str) -> bool:
    """Whether the answer to `probe` shows a rule with NOPASSWD; see `ASK_SUDO` for which sudo does."""
    return code == 0 and "Matched:" in output and "!authenticate" in output


def allows(sudo: Sudo, code: int, output: str, *, never_asks: bool) -> bool | None:
    """Read the answer to `probe`; None where sudo does not show whether the command needs a password.

    `sudo -n -l COMMAND` succeeds for a rule that needs a password as soon as any *other* rule has NOPASSWD
    (sudoers(5), `listpw`; seen on 1.9.16; sudo-rs too): its exit code alone proves nothing. The matched
    rule's `!authenticate` does, or that no rule needs a password at all.

    Args:
        sudo: how sudo is used.
        code: exit code of the probe.
        output: what it printed.
        never_asks: whether `NEVER_ASKS` succeeded.
    """
    if code != 0:
        return False
    if sudo is Sudo.PASSWORD or never_asks:
        return True
    return "!authenticate" in output if "Matched:" in output else None
