"""Accounts on a real host, with the login shells of Debian and its sudo-rs: all is as with sh and sudo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from orchestrator.hosts.check import Grade, check_host
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.port import Hosts
from orchestrator.model.action import ActionResult, Done, Refused, StartNode, StopNode
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.redact import Redactor
from tests.integration.hostlab.hosts import wait_until
from tests.integration.lone_host import LoneHost, accounts_host

pytestmark = [pytest.mark.docker, pytest.mark.part(name="services"), pytest.mark.timeout(2400)]

SHELLS = ("bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "posh", "rc", "tcsh", "xonsh", "zsh")
UNIT = ServiceSettings(manager=Manager.SYSTEMD, unit="elasticsearch")
OTHER = ServiceSettings(manager=Manager.SYSTEMD, unit="ssh")
QUOTES = r"""
read x; echo "out $x" 'it'\''s' "q"'\n' '!x' '!!' '[a]' {a,b} '$HOME' '~' '%27' '^a' 'café' `echo c` "$#"
echo err >&2
exit 3
"""
LONG = f"# {'x' * 20_000}\necho the end"
"""A word of more than 8 KiB is too long for the C shell."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneHost]:
    with accounts_host(tmp_path_factory.mktemp("host")) as made:
        yield made


def grades(settings: HostSettings) -> dict[str, Grade]:
    with closing(Connections()) as connections:
        checks = check_host(settings, connections, reboot=False, redact=Redactor())
    return {one.point.value: one.grade for one in checks}


def became(hosts: Hosts, state: ServiceState) -> HostView | None:
    """What is seen of the service once it is so."""
    seen: list[HostView] = []

    def so() -> bool:
        reading = hosts.observe(["n1"], rights=True)["n1"]
        assert isinstance(reading, HostView), reading
        seen[:] = [reading]
        return reading.service is state

    return seen[0] if wait_until(so, seconds=30) else None


def stopped(settings: HostSettings) -> ActionResult:
    with closing(Hosts({"n1": settings})) as hosts:
        return hosts.perform(StopNode(node="n1"))


def lived(host: LoneHost, user: str, connect: Connect) -> list[object]:
    """All that the program has of an account: commands, what is checked, and a service, up and down."""
    way: dict[str, Any] = {"connect": connect, "sudo": Sudo.PASSWORDLESS}
    settings = host.settings(user, UNIT, **way)
    with closing(Connections()) as connections:
        connection = connections.to(settings)
        found: list[object] = [
            connection.run(QUOTES, timeout=30.0, stdin='given "it\'s" \\ $x !y\n'),
            connection.run(QUOTES, timeout=30.0),
            connection.run(LONG, timeout=30.0),
        ]
    found.append(grades(settings))
    with closing(Hosts({"n1": settings})) as hosts:
        for action, state in (
            (StartNode(node="n1"), ServiceState.RUNNING),
            (StopNode(node="n1"), ServiceState.STOPPED),
        ):
            found += [hosts.perform(action), became(hosts, state)]
    found.append(stopped(host.settings(user, OTHER, **way)))
    return found


CSHRC = """
echo greeting
stty erase '^H'
set printexitvalue
set echo
alias printf 'echo no'
alias echo 'printf no'
if (! $?prompt) exit
"""
BASHRC = """
echo greeting; echo greeting >&2
set -eux
shopt -s expand_aliases
alias printf='echo no' awk=false
trap 'echo bye; echo bye >&2' EXIT
"""
ZSHENV = """
echo greeting; echo greeting >&2
setopt printexitvalue errexit xtrace
alias printf='echo no' awk=false
TRAPEXIT() { echo bye; echo bye >&2 }
"""
FISH = """
echo greeting; echo greeting >&2
function fish_greeting; echo hello; end
function printf; echo no; end
function bye --on-event fish_exit; echo bye; echo bye >&2; end
"""
ENV = "echo greeting; echo greeting >&2; set -eu; alias printf='echo no' echo='printf no'\n"
STARTUP = {
    "bash": (".bashrc", BASHRC),
    "csh": (".cshrc", CSHRC),
    "fish": (".config/fish/config.fish", FISH),
    "tcsh": (".cshrc", CSHRC),
    "zsh": (".zshenv", ZSHENV),
}
"""What a shell reads at each command over SSH; others read nothing, or what `ENV` or `BASH_ENV` names."""
SSH_RC = "echo of sshd; echo of sshd >&2\n"


@pytest.mark.parametrize("connect", [Connect.SSH, Connect.OPENSSH], ids=lambda connect: connect.value)
def test_every_login_shell_is_as_good_as_sh(
    host: LoneHost, connect: Connect, subtests: pytest.Subtests
) -> None:
    """Also if its startup file talks, complains, ends early, and has others of our programs' names."""
    plain = lived(host, "deploy", connect)
    assert [type(one) for one in (plain[4], plain[6], plain[-1])] == [Done, Done, Refused]
    assert isinstance(plain[3], dict)
    assert set(plain[3].values()) == {Grade.GOOD}
    for shell in SHELLS:
        with subtests.test(shell=shell):
            name, text = STARTUP.get(shell, (".env", ENV))
            host.write(f"/home/{shell}/{name}", text, owner=shell)
            host.write(f"/home/{shell}/.ssh/rc", SSH_RC, owner=shell)
            assert lived(host, shell, connect) == plain


# -- sudo-rs


@pytest.fixture
def sudo_rs(host: LoneHost) -> Iterator[LoneHost]:
    """The same host, whose sudo is sudo-rs."""
    host.run("ln -s /usr/lib/cargo/bin/sudo /usr/local/bin/sudo && sudo --version 2>&1 | grep sudo-rs")
    yield host
    host.run("rm /usr/local/bin/sudo")


def with_password(host: LoneHost, password: str, service: ServiceSettings = UNIT) -> HostSettings:
    return host.settings("asker", service, sudo=Sudo.PASSWORD, sudo_password=lambda: password)


RIGHTS = ("right_stop", "right_start")
FAILLOCK = """auth required pam_faillock.so preauth deny=3 dir=/run/faillock
auth sufficient pam_unix.so
auth required pam_faillock.so authfail deny=3 dir=/run/faillock
auth required pam_deny.so
"""
PAM_DIES = FAILLOCK.replace("required pam_faillock.so authfail", "[default=die] pam_faillock.so authfail")


def test_sudo_rs_shows_rights_and_serves_them(sudo_rs: LoneHost) -> None:
    """Without a password, and with one on its input."""
    free = sudo_rs.settings("deploy", UNIT, sudo=Sudo.PASSWORDLESS)
    for settings in (free, with_password(sudo_rs, "correct horse")):
        assert set(grades(settings).values()) == {Grade.GOOD}
        with closing(Hosts({"n1": settings})) as hosts:
            for action, state in (
                (StartNode(node="n1"), ServiceState.RUNNING),
                (StopNode(node="n1"), ServiceState.STOPPED),
            ):
                assert hosts.perform(action) == Done(output="")
                view = became(hosts, state)
                assert view is not None
                assert view.may_control is True
    assert set(grades(sudo_rs.settings("deploy", UNIT, sudo=Sudo.AUTO)).values()) == {Grade.GOOD}


def test_what_sudo_rs_refuses_is_no_right_and_not_in_doubt(
    sudo_rs: LoneHost, subtests: pytest.Subtests
) -> None:
    asks = sudo_rs.settings("asker", UNIT, sudo=Sudo.PASSWORDLESS)
    other = sudo_rs.settings("deploy", OTHER, sudo=Sudo.PASSWORDLESS)
    for name, settings, said in (
        ("a password is needed", asks, "interactive authentication is required"),
        ("another unit", other, "I'm afraid I can't do that"),
        ("another unit, with a password", with_password(sudo_rs, "correct horse", OTHER), "I'm afraid"),
        ("wrong password", with_password(sudo_rs, "wrong"), "Authentication failed, try again"),
    ):
        with subtests.test(name=name):
            result = stopped(settings)
            assert isinstance(result, Refused), result
            assert "sudo refused: " in result.reason
            assert said in result.reason
            assert {grades(settings)[right] for right in RIGHTS} == {Grade.BAD}
    for name, break_it, mend, said in (
        ("expired account", "chage -E 1 deploy", "chage -E -1 deploy", "Account validation failure"),
        (
            "no such command",
            "mv /usr/bin/systemctl /usr/bin/gone",
            "mv /usr/bin/gone /usr/bin/systemctl",
            "'/usr/bin/systemctl': command not found",
        ),
    ):
        with subtests.test(name=name):
            free = sudo_rs.settings("deploy", UNIT, sudo=Sudo.PASSWORDLESS)
            with closing(Hosts({"n1": free})) as hosts:
                hosts.observe(["n1"], rights=False)  # logged in: only sudo meets what is broken
                sudo_rs.run(break_it)
                try:
                    result = hosts.perform(StopNode(node="n1"))
                finally:
                    sudo_rs.run(mend)
            assert isinstance(result, Refused), result
            assert f"sudo refused: sudo-rs: {said}" in result.reason


@pytest.mark.parametrize(
    ("rules", "tries", "said"),
    [
        (FAILLOCK, 3, "Authentication failed, try again"),
        (FAILLOCK, 1, "Maximum 1 incorrect authentication attempts"),
        (PAM_DIES, 3, "PAM error: Permission denied"),
    ],
    ids=["three tries", "one try", "PAM ends it"],
)
def test_a_password_that_sudo_rs_refuses_is_sent_once(
    sudo_rs: LoneHost, rules: str, tries: int, said: str
) -> None:
    """It counts as `passwd_tries` failures: sudo-rs takes the end of its input for further passwords."""
    sudo_rs.run("cp /etc/pam.d/sudo /root/pam && faillock --dir /run/faillock --user asker --reset")
    sudo_rs.write(
        "/etc/pam.d/sudo", f"{rules}@include common-account\n@include common-session-noninteractive"
    )
    sudo_rs.run(f"echo 'Defaults passwd_tries={tries}' >/etc/sudoers.d/tries")
    try:
        with closing(Hosts({"n1": with_password(sudo_rs, "wrong")})) as hosts:
            result = hosts.perform(StopNode(node="n1"))
            assert isinstance(result, Refused), result
            assert said in result.reason
            failures = int(sudo_rs.run("faillock --dir /run/faillock --user asker | grep -c ' sudo '"))
            assert failures == (1 if rules == PAM_DIES else tries)
            again = hosts.perform(StopNode(node="n1"))
            assert isinstance(again, Refused), again
            assert "which is not sent again" in again.reason
    finally:
        sudo_rs.run("cp /root/pam /etc/pam.d/sudo; rm -r /run/faillock /etc/sudoers.d/tries")
