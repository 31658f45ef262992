"""What `configuration_management: disable` runs on a host, beside a service manager that only remembers."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.config.management import with_disabling
from orchestrator.hosts.services import for_node
from orchestrator.model.policy import Hook, Hooks
from tests.tools import SHELLS, needs

ROOT = Path(__file__).parents[3]
ON, OFF = "agent.timer", "other.timer"
SYSTEMCTL = """#!/bin/sh
cd "$ACTIVE" || exit 1
case "$*" in
  "-q is-active "*) [ -e "$3" ] ;;
  "stop "*) [ -e "$HOME/.orchestrate-disabled/$(uname -n)/units/$2" ] && [ ! -e broken ] && rm "$2" ;;
  "start "*) [ ! -e broken ] && : >"$2" ;;
  *) exit 64 ;;
esac
"""
PUPPET = """#!/bin/sh
case "$*" in
  "agent --disable "*) [ -e "$LOCK" ] || printf '{"disabled_message":"%s"}' "$3" >"$LOCK" ;;
  "agent --enable") rm "$LOCK" ;;
  "config print --section agent agent_disabled_lockfile") echo "$LOCK" ;;
  *) exit 64 ;;
esac
"""
SUDO = """#!/bin/sh
[ "$1" = -n ] || exit 64
shift
if [ "$1" = -ll ]; then shift; [ "$*" ] || exec cat "$LIST"
  case "$*" in *"$DENIED") exit 1 ;; *"$ASKS") cat "$ANSWER"; exit 0 ;; esac
  echo "Options: !authenticate"; echo "Matched: $*"; exit 0
fi
[ "$1" != -v ] || exit 1
echo "$@" >>"$ASKED"
exec "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host on which these units are active."""

    folder: Path

    def add(self, name: str, program: str) -> None:
        """A program of its PATH."""
        path = self.folder / "bin" / name
        path.write_text(program)
        path.chmod(0o755)

    def run(self, hook: Hook, node: str = "es1", *, denied: str = "nothing", asks: str = "nothing") -> int:
        """Run it for a node as the account does; its exit code.

        `denied`: what sudo does not allow; `asks`: what it allows as the files `answer` and `list` say.
        """
        names = {"ACTIVE": "active", "LOCK": "agent.lock", "HOME": "home", "ASKED": "asked"}
        names |= {"ANSWER": "answer", "LIST": "list"}
        variables = {name: str(self.folder / place) for name, place in names.items()}
        path = f"{self.folder / 'bin'}:{self.folder / 'usual'}"
        return subprocess.run(  # noqa: S603  (the text under test)
            [str(self.folder / "usual" / "sh"), "-c", for_node(hook.run, node)],
            check=False,
            env={**variables, "PATH": path, "DENIED": denied, "ASKS": asks},
        ).returncode

    @property
    def active(self) -> set[str]:
        """Its active units."""
        return {path.name for path in (self.folder / "active").iterdir()} - {"broken"}

    @property
    def lock(self) -> str | None:
        """Why Puppet's agent is disabled; None while it is not."""
        lock = self.folder / "agent.lock"
        return json.loads(lock.read_text())["disabled_message"] if lock.exists() else None


@pytest.fixture(params=SHELLS)
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    for name in ("bin", "usual", "active", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "usual" / "sh").symlink_to(needs(request.param))
    for tool in ("mkdir", "rm", "grep", "tr", "cat"):
        (tmp_path / "usual" / tool).symlink_to(needs(tool))
    made = Host(folder=tmp_path)
    made.add("systemctl", SYSTEMCTL)
    made.add("sudo", SUDO)
    made.add("id", "#!/bin/sh\necho 1000\n")
    made.add("uname", "#!/bin/sh\necho one\n")
    (tmp_path / "active" / ON).touch()
    return made


HOOKS = with_disabling(
    Hooks(before_stop=(Hook(run="depool"),), after_recovery=(Hook(run="pool"),)), [ON, OFF]
)
DISABLE, ENABLE = HOOKS.before_stop[-1], HOOKS.after_recovery[0]


def asked(host: Host) -> set[str]:
    """What sudo was asked to run, with the path of Puppet as its packages have it."""
    text = (host.folder / "asked").read_text()
    return set(text.replace(str(host.folder / "bin" / "puppet"), "puppet").splitlines())


def documented(host: Host) -> set[str]:
    """The commands of the sudoers lines in `least-rights.md`, for this unit and this lock."""
    page = (ROOT / "docs" / "how-to" / "least-rights.md").read_text()
    lines = page.partition("`configuration_management: disable`")[2].split("```")[1].replace("\\\n", "")
    found = re.split(r"deploy ALL=\(root\) NOPASSWD: |, ", " ".join(lines.replace("\\:", ":").split()))
    words = [text.split() for text in found if text]
    lock = str(host.folder / "agent.lock")
    return {
        " ".join(
            (first.rpartition("/")[2], *rest[:-1], lock if rest[-1].endswith(".lock") else rest[-1])
        ).replace("apt-daily-upgrade.timer", ON)
        for first, *rest in words
    }


def test_they_are_last_before_the_stop_and_first_after_it() -> None:
    assert [hook.run for hook in HOOKS.before_stop[:-1]] == ["depool"]
    assert [hook.run for hook in HOOKS.after_recovery[1:]] == ["pool"]


def test_what_was_active_is_stopped_and_started_again(host: Host) -> None:
    host.add("puppet", PUPPET)
    assert (host.run(DISABLE), host.active) == (0, set())
    assert host.lock == "orchestrate: a node of this host is being restarted"
    assert host.run(DISABLE) == 0, "a resumed run does it again"
    assert (host.run(ENABLE), host.active, host.lock) == (0, {ON}, None)
    assert asked(host) == documented(host), "with sudo, since the account is not root"
    assert "/opt/puppetlabs/bin" in DISABLE.run, "where Puppet's own packages have it"
    assert "/opt/puppetlabs/bin" in ENABLE.run
    (host.folder / "active" / ON).unlink()
    assert (host.run(ENABLE), host.active) == (0, set()), "what somebody stopped since stays so"


LIST = """User deploy may run the following commands on es1:

Sudoers entry:
    RunAsUsers: root
    Commands:
\tALL

Sudoers entry:
    RunAsUsers: root
    Options: !authenticate
    Commands:
\t/usr/bin/true
{more}"""
NEW = "Sudoers entry: /etc/sudoers\n    RunAsUsers: root\n{}    Commands:\n\tALL\n    Matched: it\n"


def test_a_rule_that_needs_a_password_is_no_right(host: Host, subtests: pytest.Subtests) -> None:
    """`sudo -n -l COMMAND` allows it, since another rule has NOPASSWD. The list is of sudo 1.9.13p3."""
    host.add("puppet", PUPPET)
    start, enable = f"systemctl start {ON}", f"{host.folder / 'bin' / 'puppet'} agent --enable"
    riak = "\nSudoers entry:\n    RunAsUsers: riak\n    Options: !authenticate\n    Commands:\n\tALL\n"
    asks_again = "\nSudoers entry:\n    RunAsUsers: root\n    Options: authenticate\n    Commands:\n\tALL\n"
    of_ldap = "\nLDAP Role: ops\n    RunAsUsers: root\n    Commands:\n\tALL\n"
    for asks, answer, listed, allowed in [
        (start, NEW.format(""), "", False),
        (enable, NEW.format(""), "", False),
        (start, NEW.format("    Options: !authenticate\n"), "", True),
        (start, start, "", False),
        (enable, enable, "", False),
        (start, start, riak, False),
        (start, start, f"\t{start}\n{asks_again}", False),
        (start, start, f"\t{start}\n{of_ldap}", False),
        (start, start, f"\t{start}\n", True),
        (start, start, "\tsystemctl start *\n", True),
        (start, f"/usr/bin/{start}", f"\t/usr/bin/{start}\n", True),
        (enable, enable, f"\t{enable.split(maxsplit=1)[0]}\n", True),
    ]:
        with subtests.test(asks=asks, answer=answer, listed=listed):
            (host.folder / "answer").write_text(answer)
            (host.folder / "list").write_text(LIST.format(more=listed))
            assert host.run(DISABLE, asks=asks) == (0 if allowed else 1)
            assert host.active == (set() if allowed else {ON})
            host.run(ENABLE)


def test_a_rule_that_is_not_found_is_no_right(host: Host) -> None:
    """Unless no rule at all asks, whatever sudo remembers. It may be written as a pattern of sudo's own."""
    start = f"systemctl start {ON}"
    (host.folder / "answer").write_text(start)
    (host.folder / "list").write_text(LIST.format(more="").replace("ALL", "/usr/bin/id"))
    for more, code in [("", 1), (REMEMBERS, 1), (NEVER_ASKS, 0)]:
        host.add("sudo", SUDO.replace("\n", f"\n{more}", 1))
        assert (host.run(DISABLE, asks=start), host.active) == (code, {ON} if code else set())


REMEMBERS = '[ "$*" != "-n -v" ] || exit 0\n'
NEVER_ASKS = '[ "$*" != "-k -n -v" ] || exit 0\n'


@pytest.mark.parametrize(
    "right",
    [f"systemctl start {ON}", "agent --enable", "config print --section agent agent_disabled_lockfile"],
)
def test_without_a_right_to_enable_nothing_is_disabled(host: Host, right: str) -> None:
    host.add("puppet", PUPPET)
    assert (host.run(DISABLE, denied=right), host.active, host.lock) == (1, {ON}, None)
    assert [*(host.folder / "home").rglob("of-*")] == [], "no turn of this node is under way"
    assert host.run(DISABLE, denied=f"systemctl start {OFF}") == 0, "it is off"


@pytest.mark.parametrize("other", ["es2", "Franklin Hall/2", ".."])
def test_the_last_turn_on_a_host_enables(host: Host, other: str) -> None:
    host.add("puppet", PUPPET)
    assert (host.run(DISABLE), host.run(DISABLE, other)) == (0, 0)
    assert host.run(ENABLE) == 0
    assert (host.active, host.lock is None) == (set(), False), "the other node may be down"
    assert (host.run(ENABLE, other), host.active, host.lock) == (0, {ON}, None)


def test_two_turns_may_end_at_once(host: Host) -> None:
    assert host.run(DISABLE) == 0
    host.add("systemctl", 'rm "$HOME/.orchestrate-disabled/one/units/$2" && : >"$ACTIVE/$2"\n')
    assert (host.run(ENABLE), host.active) == (0, {ON}), "the other one has removed the mark"


def test_hosts_may_share_a_home(host: Host) -> None:
    assert (host.run(DISABLE), host.active) == (0, set())
    host.add("uname", "#!/bin/sh\necho two\n")
    assert (host.run(ENABLE), host.active) == (0, set()), "there it was off"
    host.add("uname", "#!/bin/sh\necho one\n")
    assert (host.run(ENABLE), host.active) == (0, {ON})


def test_a_playbook_with_other_units_enables_all(host: Host) -> None:
    assert (host.run(DISABLE), host.active) == (0, set())
    assert host.run(with_disabling(Hooks(), []).after_recovery[0]) == 0
    assert host.active == {ON}


def test_what_somebody_else_disabled_stays_disabled(host: Host) -> None:
    host.add("puppet", PUPPET)
    (host.folder / "active" / ON).unlink()
    (host.folder / "agent.lock").write_text('{"disabled_message":"by ann"}')
    assert (host.run(DISABLE), host.run(ENABLE)) == (0, 0)
    assert (host.active, host.lock) == (set(), "by ann")


def test_a_host_without_puppet_and_units_is_as_it_was(host: Host) -> None:
    (host.folder / "bin" / "systemctl").unlink()
    assert (host.run(DISABLE), host.run(ENABLE)) == (0, 0)
    assert not (host.folder / "asked").exists()


def test_a_unit_that_does_not_stop_or_start_fails_the_hook(host: Host) -> None:
    (host.folder / "active" / "broken").touch()
    assert (host.run(DISABLE), host.active) == (1, {ON})
    (host.folder / "active" / "broken").unlink()
    assert host.run(DISABLE) == 0
    (host.folder / "active" / "broken").touch()
    assert (host.run(ENABLE), host.active) == (1, set())
    (host.folder / "active" / "broken").unlink()
    assert (host.run(ENABLE), host.active) == (0, {ON}), "it is still known as ours"


def test_a_unit_that_is_gone_keeps_nothing_disabled(host: Host) -> None:
    host.add("puppet", PUPPET)
    assert host.run(DISABLE) == 0
    (host.folder / "active" / "broken").touch()
    assert (host.run(ENABLE), host.lock) == (1, None)


def test_a_failure_of_puppet_fails_the_hook(host: Host, subtests: pytest.Subtests) -> None:
    for failing, hook in [("--disable", DISABLE), ("print", ENABLE), ("--enable", ENABLE)]:
        with subtests.test(failing):
            host.add("puppet", PUPPET)
            assert (host.run(DISABLE), host.lock is None) == (0, False)
            host.add("puppet", PUPPET.replace("\n", f'\n[ "$2" != {failing} ] || exit 1\n', 1))
            assert (host.run(hook), host.lock is None) == (1, False)


def test_a_home_that_cannot_be_written_fails_it(host: Host) -> None:
    host.add("puppet", PUPPET)
    (host.folder / "home").rmdir()
    (host.folder / "home").touch()
    assert (host.run(DISABLE), host.active, host.lock) == (1, {ON}, None)
    assert host.run(ENABLE) == 1


def test_a_refusal_of_sudo_is_not_taken_for_a_lock_of_others(host: Host) -> None:
    host.add("puppet", PUPPET)
    assert host.run(DISABLE) == 0
    host.add("sudo", '#!/bin/sh\nshift\n[ "$1" != grep ] || exit 1\nexec "$@"\n')
    assert host.run(ENABLE) == 1
    assert host.lock is not None
    host.add("sudo", SUDO)
    assert (host.run(ENABLE), host.lock) == (0, None)


def test_root_needs_no_sudo(host: Host) -> None:
    host.add("id", "#!/bin/sh\necho 0\n")
    assert (host.run(DISABLE), host.run(ENABLE), host.active) == (0, 0, {ON})
    assert not (host.folder / "asked").exists()
