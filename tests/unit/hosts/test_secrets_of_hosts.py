"""Secrets on their way to hosts: what is resolved is never shown, and nobody but sudo reads the password."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.secrets import MAX_SECRET_BYTES, SecretResolver, parse_reference, run_command
from orchestrator.errors import ConfigError
from orchestrator.hosts import port
from orchestrator.hosts.check import Grade, Point, check_hosts, missing_rights
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.passwords import SentPasswords
from orchestrator.hosts.survey import Right
from orchestrator.model.action import Done, Refused, StartNode, StopNode, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView
from orchestrator.model.tuning import ValueChange
from orchestrator.redact import Redactor
from orchestrator.runs.from_file import FilePorts, Files
from orchestrator.runtime.waiting import SystemClock
from orchestrator.tuning.tuner import TunableHosts

PASSWORD = "correct horse"  # noqa: S105  (of the stand-in)
NODE = NodeName("es1")
_SUDO = """#!/bin/sh
# As sudo 1.9.13: under NOPASSWD it reads nothing; without it, one line under -S, and -n is refused.
folder=${0%/*}; feeds=; probe=
while [ $# -gt 0 ]; do case $1 in
  -n|-k) shift ;;  -S) feeds=1; shift ;;  -p) shift 2 ;;  -ll|-v) probe=1; shift ;;  *) break ;;
esac; done
if ! [ -e "$folder/open" ] && ! { [ -n "$probe" ] && [ -s "$folder/options" ]; }; then
  [ -n "$feeds" ] || { echo "sudo: a password is required" >&2; exit 1; }
  tries=0
  until read -r given && [ "$given" = "correct horse" ]; do
    [ -n "$given" ] || { echo "sudo: no password was provided" >&2; exit 1; }
    echo "$given" >>"$folder/attempts"; echo "Sorry, try again." >&2; tries=$((tries + 1))
    [ $tries -lt 3 ] || { echo "sudo: 3 incorrect password attempts" >&2; exit 1; }
  done
fi
[ -z "$probe" ] || { printf 'Sudoers entry: x\\n%sMatched: %s\\n' "$(cat "$folder/options")" "$*"; exit; }
exec "$@"
"""


@pytest.fixture(autouse=True)
def _a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stop printed is not known before it ends: on a busy machine that takes longer than usual."""
    monkeypatch.setattr(port, "QUICK_SECONDS", 60.0)


@pytest.fixture
def sudo(tmp_path: Path) -> Path:
    """A folder with a stand-in for sudo; `open`: the rule has NOPASSWD; `options`: what it tells of that."""
    (tmp_path / "sudo").write_text(_SUDO)
    (tmp_path / "sudo").chmod(0o755)
    (tmp_path / "options").write_text("")
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/swappiness").write_text("60\n")
    (tmp_path / "prints-its-input").write_text('#!/bin/sh\necho input: "$(cat)"\n')
    (tmp_path / "prints-its-input").chmod(0o755)
    return tmp_path


def on_host(folder: Path, node: NodeName = NODE, **values: Any) -> HostSettings:
    line = str(folder / "prints-its-input")
    made = HostSettings(
        node=node,
        address="localhost",
        connect=Connect.LOCAL,
        sudo=Sudo.PASSWORD,
        sudo_password=lambda: PASSWORD,
        service=ServiceSettings(manager=Manager.COMMAND, stop=line, start=line, status="false"),
        environment={"PATH": f"{folder}:/usr/bin:/bin"},
        root=str(folder),
    )
    return replace(made, **values)


def hosts_with(sudo: Path, redact: Redactor) -> TunableHosts:
    return TunableHosts({NODE: on_host(sudo)}, redact=redact)


@pytest.mark.parametrize("asks", [True, False])
def test_a_password_is_read_by_sudo_alone_where_it_asks(sudo: Path, *, asks: bool) -> None:
    if not asks:
        (sudo / "open").touch()
        (sudo / "options").write_text("Options: !authenticate\n")
    with contextlib.closing(hosts_with(sudo, Redactor())) as hosts:
        hosts.observe([NODE], rights=True)
        assert PASSWORD not in hosts.describe(StartNode(node=NODE))
        assert hosts.perform(StopNode(node=NODE)) == Done(output="input:")
        assert hosts.perform(StartNode(node=NODE)) == Done(output="input:")


def test_a_rule_that_has_changed_costs_one_attempt(sudo: Path) -> None:
    (sudo / "options").write_text("Options: !authenticate\n")
    with contextlib.closing(hosts_with(sudo, Redactor())) as hosts:
        hosts.observe([NODE], rights=True)
        first = hosts.perform(StartNode(node=NODE))
        assert isinstance(first, Refused)
        assert "not sent again" not in first.reason, "it was not sent"
        assert hosts.perform(StartNode(node=NODE)) == Done(output="input:")


RIGHTS = Point.RIGHT_STOP, Point.RIGHT_START
TUNING = TuneHost(
    node=NODE, tunable="swap", changes=(ValueChange(path="/proc/sys/vm/swappiness", found="60", wanted="1"),)
)


def test_a_refused_password_is_not_sent_again(sudo: Path, subtests: pytest.Subtests) -> None:
    """Accounts lock, and one may be the same on all hosts. Another text is another password."""
    nodes = [NODE, NodeName("es2"), NodeName("es3")]
    said = ["wrong"]
    settings = {node: on_host(sudo, node, sudo_password=lambda: said[-1]) for node in nodes}
    settings[nodes[2]] = replace(settings[nodes[2]], address="127.0.0.1")
    verbs = StopNode(node=NODE), StartNode(node=NODE)
    rows: dict[str, Callable[[TunableHosts], object]] = {
        "readings": lambda hosts: hosts.observe([NODE], rights=True),
        "nodes": lambda hosts: hosts.observe(nodes, rights=True, reboot=True),
        "verbs": lambda hosts: [hosts.perform(verb) for verb in verbs],
        "Riak": lambda hosts: hosts.run(NODE, "riak-admin status", as_root=True, timeout=20, keep=1000),
        "tunables": lambda hosts: hosts.perform(TUNING),
    }
    for what, work in rows.items():
        with subtests.test(what=what), contextlib.closing(TunableHosts(settings)) as hosts:
            (sudo / "attempts").unlink(missing_ok=True)
            for _ in range(3):
                work(hosts)
            assert (sudo / "attempts").read_text().split() == ["wrong"]
            told = hosts.observe([NODE], rights=True)[NODE]
            assert isinstance(told, HostView)
            assert "is not sent again" in told.detail
            said.append(PASSWORD)
            assert hosts.perform(StopNode(node=NODE)) == Done(output="input:")
            said.append("wrong")
    (sudo / "attempts").unlink()
    checks = check_hosts(settings.values(), Connections(), reboot=True, redact=Redactor())
    assert (sudo / "attempts").read_text().split() == ["wrong"]
    assert {check.grade for check in checks[nodes[2]] if check.point in RIGHTS} == {Grade.BAD}


def test_a_rule_that_asks_for_a_password_is_no_right(sudo: Path) -> None:
    """As sudo 1.9.13p3 answers: the command alone, with 0, since another rule has NOPASSWD."""
    entry = "Sudoers entry:\n    RunAsUsers: root\n{}    Commands:\n\t{}\n\n"
    nopasswd = "    Options: !authenticate\n"
    stand_in = '#!/bin/sh\n[ "$2" = -ll ] || exit 1\n[ "$3" ] && echo "$3" || cat ${0%/*}/list\n'
    (sudo / "sudo").write_text(stand_in)
    for command, may in [("/usr/bin/true", False), (str(sudo / "prints-its-input"), True)]:
        (sudo / "list").write_text(entry.format("", "ALL") + entry.format(nopasswd, command))
        settings = on_host(sudo, sudo=Sudo.PASSWORDLESS, sudo_password=None)
        with contextlib.closing(TunableHosts({NODE: settings})) as hosts:
            view = hosts.observe([NODE], rights=True)[NODE]
        assert isinstance(view, HostView)
        assert view.may_control is may, view.detail


@pytest.mark.parametrize("by", ["rights", "verb", "tuning"])
def test_a_password_that_a_host_took_is_sent_to_it(sudo: Path, tmp_path: Path, by: str) -> None:
    """Another host that refuses it must not keep a node down here."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "sudo").write_text(_SUDO.replace("correct horse", "changed"))
    (other / "sudo").chmod(0o755)
    (other / "options").write_text("")
    es2 = NodeName("es2")
    there = on_host(sudo, es2, user="es2", environment={"PATH": f"{other}:/usr/bin:/bin"})
    with contextlib.closing(TunableHosts({NODE: on_host(sudo), es2: there})) as hosts:
        if by == "rights":
            hosts.observe([NODE, es2], rights=True)
        else:
            assert isinstance(hosts.perform(TUNING if by == "tuning" else StopNode(node=NODE)), Done)
        assert isinstance(hosts.perform(StartNode(node=es2)), Refused)
        assert hosts.perform(StartNode(node=NODE)) == Done(output="input:")
    assert (other / "attempts").read_text().splitlines() == [PASSWORD]


def test_a_host_that_took_a_password_gets_it_again_slowly(sudo: Path) -> None:
    """Its directory was out of reach for a moment: the node must not stay down until the end of the run."""
    clock = [0.0]
    with contextlib.closing(TunableHosts({NODE: on_host(sudo)}, now=lambda: clock[0])) as hosts:
        hosts.observe([NODE], rights=True)
        assert hosts.perform(StopNode(node=NODE)) == Done(output="input:")
        (sudo / "sudo").write_text(_SUDO.replace("correct horse", "nothing"))
        for clock[0] in (0.0, 479.0, 480.0, 959.0):
            assert isinstance(hosts.perform(StartNode(node=NODE)), Refused)
            hosts.observe([NODE], rights=True)
        assert (sudo / "attempts").read_text().splitlines() == [PASSWORD] * 2
        (sudo / "sudo").write_text(_SUDO)
        assert isinstance(hosts.perform(StartNode(node=NODE)), Refused)
        clock[0] = 960.0
        for _ in range(2):
            assert hosts.perform(StartNode(node=NODE)) == Done(output="input:")


def test_words_of_a_command_are_no_refusal_of_sudo(sudo: Path) -> None:
    line = str(sudo / "riak-admin")
    Path(line).write_text("#!/bin/sh\necho Sorry, try again. >&2\nexit 1\n")
    Path(line).chmod(0o755)
    with contextlib.closing(hosts_with(sudo, Redactor())) as hosts:
        hosts.run(NODE, line, as_root=True, timeout=20, keep=1000)
        assert hosts.perform(StartNode(node=NODE)) == Done(output="input:")


def test_a_taken_password_needs_a_right_that_was_allowed(sudo: Path, subtests: pytest.Subtests) -> None:
    settings = on_host(sudo)
    refused = Right(what="stop", command="stop", allowed=False, said="no answer")
    for what, right, taken in [
        ("cut off", refused, False),
        ("no sudo", replace(refused, said="sudo: command not found"), False),
        ("a shell that shows it", replace(refused, said="sudo: a password is required, which"), False),
        ("the lock", replace(refused, what="lock", allowed=True), False),
        ("a rule with NOPASSWD", replace(refused, allowed=True, asks_nothing=True), False),
        ("allowed", replace(refused, allowed=True), True),
    ]:
        with subtests.test(what=what):
            passwords = SentPasswords()
            passwords.learn_rights(settings, f"{PASSWORD}\n", [refused, right])
            assert passwords.any_was_taken is taken


def test_a_password_that_reached_a_command_is_redacted(sudo: Path) -> None:
    (sudo / "open").touch()  # and this sudo does not tell, as those before 1.9.13
    redact = Redactor()
    redact.learn(PASSWORD)
    with contextlib.closing(hosts_with(sudo, redact)) as hosts:
        hosts.observe([NODE], rights=True)
        assert hosts.perform(StopNode(node=NODE)) == Done(output="input: [redacted]")


CLUSTER = """
kind: elasticsearch
name: prod
endpoints: [https://127.0.0.1:9200]
auth: {basic: {username: op, password: env:ES_PASSWORD}}
hosts:
  sudo: {password: env:SUDO_PASSWORD}
"""


def test_every_resolved_secret_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "prod.yml"
    path.write_text(CLUSTER)
    secrets = {"ES_PASSWORD": "es-s3cret", "SUDO_PASSWORD": "sudo-s3cret"}
    files = Files(environment=secrets, home=tmp_path, warn=lambda _line: None)
    with contextlib.closing(FilePorts(load_cluster(path, home=tmp_path), files, SystemClock())) as made:
        (reference,) = made.file.sudo_passwords()
        assert made.cluster is not None
        made.resolver.resolve(reference)
        assert made.redact("es-s3cret, sudo-s3cret") == "[redacted], [redacted]"


def test_a_command_that_prints_without_end_is_refused_and_ended(tmp_path: Path) -> None:
    assert len(run_command(["yes"])) == MAX_SECRET_BYTES + 1
    resolver = SecretResolver(environment={}, folder=tmp_path, home=tmp_path)
    with pytest.raises(ConfigError, match="secret command:yes: holds more than 64 KiB"):
        resolver.resolve(parse_reference("command:yes"))


@pytest.mark.parametrize("sudo", [Sudo.OFF, Sudo.PASSWORDLESS, Sudo.PASSWORD])
@pytest.mark.parametrize("said", ["", "sudo: a password is required"])
def test_the_remedy_for_a_missing_right_is_not_redacted(tmp_path: Path, sudo: Sudo, said: str) -> None:
    line = "/usr/bin/systemctl --no-block {} elasticsearch".format
    stop, start = (
        Right(what=verb, command=line(verb), allowed=False, said=said) for verb in ("stop", "start")
    )
    password = (lambda: PASSWORD) if sudo is Sudo.PASSWORD else None
    settings = on_host(tmp_path, sudo=sudo, sudo_password=password)
    (told,) = missing_rights(settings, [stop, start, replace(stop, allowed=True)])
    assert Redactor()(told) == told
    assert f"`{stop.command}` and `{start.command}`" in told
    assert sudo is Sudo.OFF or "`orchestrate explain least-rights`" in told
    assert len(missing_rights(settings, [stop, replace(start, said="another answer")])) == 2
