"""Where a host has its programs, and what sudo is asked there."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.contact import FIND_PROGRAM, FirstContact, contact_script, find, read_contact
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.services import BY_ITSELF, BY_SYSTEMD, MANAGERS, Docker, HostProgram, Reboot, Systemd
from orchestrator.hosts.survey import read_survey, survey_script, survey_stdin
from orchestrator.model.action import Done, RebootHost, Refused, StartNode, StopNode
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Unknown

ROOT = Path(__file__).parents[3]
SUDOERS = {"this": ROOT / "docs" / "reference", "last": ROOT / "tests" / "data" / "sudoers" / "last"}
SYSTEMCTL = """#!/bin/sh
echo "$0 $*" >>{folder}/calls
case $1 in show) echo LoadState=loaded; echo ActiveState=active; echo SubState=running ;; esac
"""
SUDO = """#!/bin/sh
probe=
while :; do case $1 in -n|-k|-S) shift ;; -p) shift 2 ;; -ll|-v) probe=1; shift ;; *) break ;; esac; done
echo "$*" >>{folder}/sudo.calls
[ -z "$probe" ] || exit 0
exec "$@"
"""


def script(path: Path, text: str, folder: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(folder=folder))
    path.chmod(0o755)
    return path


def here(folder: Path, service: ServiceSettings, **changes: object) -> HostSettings:
    values = {
        "node": "es1",
        "address": "localhost",
        "connect": Connect.LOCAL,
        "service": service,
        "sudo": Sudo.OFF,
        "environment": {"PATH": f"{folder}/bin:/usr/bin:/bin"},
    }
    return HostSettings(**{**values, **changes})


def sh(lines: str, path: str) -> str:
    words, environment = ["/bin/sh", "-c", lines], {"PATH": path}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)  # noqa: S603  (the lines of these tests)
    return done.stdout.strip()


def test_a_program_at_its_usual_path_or_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 9 has `/bin/systemctl`, RHEL 6 `/sbin/service`; sudoers files name the usual path."""
    usual = tmp_path / "usual" / "systemctl"
    other = script(tmp_path / "bin" / "systemctl", SYSTEMCTL, tmp_path)
    monkeypatch.setattr(Systemd, "program", HostProgram(name="systemctl", path=str(usual)))
    for expected in (other, usual):
        if expected is usual:
            script(usual, SYSTEMCTL, tmp_path)
        with closing(Hosts({"es1": here(tmp_path, ServiceSettings())})) as hosts:
            view = hosts.observe(["es1"], rights=False)["es1"]
            assert isinstance(view, HostView), view
            assert view.service is ServiceState.RUNNING
            assert hosts.perform(StopNode(node="es1")) == Done(output="")
            assert hosts.describe(StopNode(node="es1")) == f"{expected} --no-block stop elasticsearch"
        calls = (tmp_path / "calls").read_text().splitlines()
        assert {line.split()[0] for line in calls} == {str(expected)}
        assert calls[-1] == f"{expected} --no-block stop elasticsearch"
        (tmp_path / "calls").unlink()


def test_a_verb_before_any_reading_finds_its_program_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = script(tmp_path / "bin" / "systemctl", SYSTEMCTL, tmp_path)
    monkeypatch.setattr(Systemd, "program", HostProgram(name="systemctl", path="/no/such/systemctl"))
    with closing(Hosts({"es1": here(tmp_path, ServiceSettings())})) as hosts:
        assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    assert f"{other} --no-block start elasticsearch" in (tmp_path / "calls").read_text()


def test_the_folders_of_administrators_are_searched() -> None:
    """An SSH session of an ordinary account has no `/usr/sbin` in its path."""
    useradd = HostProgram(name="useradd", path="/no/useradd")
    assert sh(f"{FIND_PROGRAM}\n{find(useradd, 'x')}; echo $x", "/usr/bin:/bin").endswith("/sbin/useradd")
    absent = HostProgram(name="no-such", path="/no/such")
    assert sh(f"{FIND_PROGRAM}\n{find(absent, 'x')}; echo $x", "/usr/bin:/bin") == "/no/such"


@pytest.mark.parametrize(
    ("systemctl", "reboot", "line"),
    [
        ("/bin/true", "/no/reboot", "/bin/true reboot"),
        ("/no/systemctl-of-nobody", "/bin/true", "/bin/true"),
        ("/no/systemctl-of-nobody", "/no/reboot-of-nobody", "/no/systemctl-of-nobody reboot"),
    ],
)
def test_a_host_without_systemd_reboots_by_reboot(
    monkeypatch: pytest.MonkeyPatch, systemctl: str, reboot: str, line: str
) -> None:
    ways = (
        Reboot(program=HostProgram(name=Path(systemctl).name, path=systemctl), words=" reboot"),
        Reboot(program=HostProgram(name=Path(reboot).name, path=reboot)),
    )
    monkeypatch.setattr(Docker, "reboots", ways)
    settings = HostSettings(node="es1", address="es1", service=ServiceSettings(manager=Manager.DOCKER))
    met = read_contact(sh(contact_script(Manager.DOCKER), "/usr/bin:/bin"))
    assert met.reboot == line
    assert met.completed(settings).service.reboot == line


def test_what_the_settings_name_stays() -> None:
    service = ServiceSettings(program="/opt/systemctl", reboot="/opt/reboot now")
    settings = HostSettings(node="es1", address="es1", service=service)
    found = FirstContact(root=False, boot=None, program="/a", reboot="/b")
    assert found.completed(settings) == settings
    asked = replace(settings, sudo=Sudo.AUTO)
    assert found.completed(asked).sudo is Sudo.PASSWORDLESS
    assert replace(found, root=True).completed(asked) == settings


@pytest.mark.parametrize("change", ["boot", "account", "nothing"])
def test_a_host_is_asked_once_and_again_as_another_one(tmp_path: Path, change: str) -> None:
    """It was booted, or installed again: programs may be elsewhere, or the account may be root."""
    service = ServiceSettings(manager=Manager.COMMAND, stop="true", start="true", status="true")
    settings, asked = here(tmp_path, service, sudo=Sudo.AUTO), list[str]()
    said = {"boot": "1", "account": "1000"}

    class Host(LocalConnection):
        def run(self, command: str, **_limits: object) -> CommandResult:
            asked.append("met" if command == contact_script(Manager.COMMAND) else "read")
            known = f"cat() {{ echo {said['boot']}; }}; id() {{ echo {said['account']}; }}"
            return CommandResult(exit=0, stdout=sh(f"{known}\n{command}", "/usr/bin:/bin"))

    connections = cast("Connections", SimpleNamespace(to=lambda _settings: Host(), close=lambda: None))
    with closing(Hosts({"es1": settings}, connections=connections)) as hosts:
        for sudo in ("sudo -n ", "sudo -n ", "" if change == "account" else "sudo -n "):
            assert isinstance(hosts.observe(["es1"], rights=False)["es1"], HostView)
            said.update({"boot": {"boot": "2"}, "account": {"account": "0"}}.get(change, {}))
            last, expected = hosts.describe(StopNode(node="es1")), f"{sudo}true"
        assert last == expected
    assert asked == ["met", *["read"] * 2, *([] if change == "nothing" else ["met"]), "read"]


@pytest.mark.parametrize("how", [Sudo.AUTO, Sudo.PASSWORDLESS])
def test_a_host_without_id_is_asked_once_a_minute(tmp_path: Path, how: Sudo) -> None:
    service = ServiceSettings(manager=Manager.COMMAND, stop="true", start="true", status="true")
    settings, asked, now = here(tmp_path, service, sudo=how), list[str](), [0.0]
    no_id = ["id() { echo no free process; return 1; }"]

    class Host(LocalConnection):
        def run(self, command: str, **_limits: object) -> CommandResult:
            asked.append("met" if command == contact_script(Manager.COMMAND) else "read")
            return CommandResult(exit=0, stdout=sh("\n".join((*no_id, command)), "/usr/bin:/bin"))

    connections = cast("Connections", SimpleNamespace(to=lambda _settings: Host(), close=lambda: None))
    with closing(Hosts({"es1": settings}, connections=connections, now=lambda: now[0])) as hosts:
        for at in (0.0, 1.0, 59.0):
            now[0] = at
            seen = hosts.observe(["es1"], rights=False)["es1"]
            if how is Sudo.AUTO:
                assert isinstance(seen, Unknown)
                assert "`id -u` was not answered (no free process), so sudo" in seen.reason
            else:
                assert isinstance(seen, HostView), seen
        assert asked.count("met") == 1
        no_id.clear()
        now[0] = 61.0
        assert isinstance(hosts.observe(["es1"], rights=False)["es1"], HostView)
        assert asked.count("met") == 2


def test_every_manager_has_a_way_to_reboot() -> None:
    assert {name: manager.reboots[0] for name, manager in MANAGERS.items()} == {
        Manager.SYSTEMD: BY_SYSTEMD,
        Manager.SYSV: BY_ITSELF,
        Manager.DOCKER: BY_SYSTEMD,
        Manager.COMMAND: BY_SYSTEMD,
    }


# -- what sudo is asked, against the shipped files


def allowed(folder: Path, file: str) -> list[str]:
    """The commands of a sudoers file, those in comments too: an operator uncomments what is needed."""
    text = re.sub(r"^#(?=deploy|    )", "", (folder / file).read_text(), flags=re.MULTILINE)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [
        line.split("=", 1)[1].replace("(root) NOPASSWD:", "")
        for line in text.splitlines()
        if line.startswith(("Cmnd_Alias", "deploy"))
    ]
    return [" ".join(one.split()) for line in lines for one in re.split(r"(?<!\\),", line) if "/" in one]


RIAK = ServiceSettings(
    manager=Manager.COMMAND,
    stop="/usr/sbin/riak stop",
    start="/usr/sbin/riak start",
    status="/usr/sbin/riak ping",
    status_as_root=True,
)


def test_the_right_to_reboot_is_apart_from_the_service_rights(tmp_path: Path) -> None:
    """A host that may be controlled and not rebooted says so, with what to do; this machine never may."""
    refusing = SUDO.replace("shift ;; *) break", "shift ;; *reboot*) exit 1 ;; *) break")
    script(tmp_path / "bin" / "sudo", refusing, tmp_path)
    service = ServiceSettings(manager=Manager.COMMAND, stop="true", start="true", status="true")
    settings = here(tmp_path, replace(service, reboot="/sbin/reboot"), sudo=Sudo.PASSWORDLESS)
    done = sh(survey_script(settings, rights=True, reboot=True), f"{tmp_path}/bin:/usr/bin:/bin")
    elsewhere = replace(settings, connect=Connect.SSH)
    view = read_survey(elsewhere, done, rights=True, reboot=True).view
    assert isinstance(view, HostView), view
    assert (view.may_control, view.may_reboot) == (True, False)
    for reboot, may in ((True, False), (False, None)):
        with closing(Hosts({"es1": settings})) as hosts:
            view = hosts.observe(["es1"], rights=True, reboot=reboot)["es1"]
        assert isinstance(view, HostView), view
        assert (view.may_control, view.may_reboot) == (True, may)
        assert ("this machine is not rebooted under the run itself" in view.detail) is reboot


@pytest.mark.parametrize("version", SUDOERS)
@pytest.mark.parametrize(
    ("file", "service"),
    [
        ("sudoers-elasticsearch", ServiceSettings()),
        ("sudoers-elasticsearch-sysv", ServiceSettings(manager=Manager.SYSV)),
        ("sudoers-riak", RIAK),
        ("sudoers-riak", ServiceSettings(unit="riak")),
    ],
)
def test_every_verb_passes_through_the_sudoers_file(
    tmp_path: Path, version: str, file: str, service: ServiceSettings
) -> None:
    """Sudo matches word for word: a deployed file of the last version must go on to fit."""
    script(tmp_path / "bin" / "sudo", SUDO.replace('exec "$@"', "exit 0"), tmp_path)
    settings = here(tmp_path, service, sudo=Sudo.PASSWORDLESS)
    line = survey_script(settings, rights=True, reboot=True)
    done = sh(line, f"{tmp_path}/bin:/usr/bin:/bin")
    assert survey_stdin(settings, rights=True) is None
    elsewhere = replace(settings, connect=Connect.SSH)  # this machine is never rebooted
    survey = read_survey(elsewhere, done, rights=True, reboot=True)
    assert {right.what for right in survey.rights if right.allowed} >= {"stop", "start", "reboot"}
    with closing(Hosts({"es1": settings})) as hosts:
        hosts.perform(StopNode(node="es1"))
        hosts.perform(StartNode(node="es1"))
        assert isinstance(hosts.perform(RebootHost(node="es1")), Refused)  # of this machine, always
    calls = set((tmp_path / "sudo.calls").read_text().splitlines()) - {"-v", ""}
    assert len(calls) >= 3
    lines = [one.replace("\\", "") for one in allowed(SUDOERS[version], file)]
    assert {call for call in calls if not any(fnmatchcase(call, one) for one in lines)} == set()
