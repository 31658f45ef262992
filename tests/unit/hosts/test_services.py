"""Command lines and answers of the service managers, as tables."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ConfigError
from orchestrator.hosts import outcomes, services, sudo
from orchestrator.hosts.check import Grade, Point, check_host
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.script import Section
from orchestrator.hosts.services import ServiceReading, ServiceVerb
from orchestrator.model.action import Refused, StopNode
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor
from orchestrator.sudo_question import ASK_SUDO, ONLY_DOAS
from orchestrator.untrusted import UntrustedValue
from tests.fakes.cases import rows
from tests.tools import SHELLS, needs

SYSTEMD, COMMAND = Manager.SYSTEMD, Manager.COMMAND
ROWS = rows("hosts/services.yml", "of service sudo node stop start show exit text is detail barred says")
LINES = {verb: f"ctl {verb} {{node}}" for verb in ("stop", "start", "status")}


def host(manager: Manager, *, mode: Sudo = Sudo.OFF, node: str = "es1", **service: object) -> HostSettings:
    made = ServiceSettings(manager=manager, **{**(LINES if manager is COMMAND else {}), **service})
    return HostSettings(node=node, address="es1", sudo=mode, sudo_password=lambda: "secret", service=made)


def host_of(row: dict[str, Any]) -> HostSettings:
    return host(Manager(row["of"]), mode=Sudo(row.get("sudo", "off")), **row.get("service", {}))


def answer_of(row: dict[str, Any]) -> Section:
    """The given text, or what `systemctl show` prints of a unit."""
    if "show" not in row:
        return Section(exit=row["exit"], text=row.get("text", ""))
    active, sub, *more = row["show"].split()
    usual = ["MainPID=42", "Result=success", "ExecMainStatus=0", "LoadState=loaded", "Job=0"]
    return Section(exit=0, text="\n".join([*usual, *more, f"ActiveState={active}", f"SubState={sub}"]))


def checked(settings: HostSettings) -> dict[Point, str]:
    """What `validate` finds wrong."""
    with closing(Connections()) as connections:
        checks = check_host(settings, connections, reboot=False, redact=Redactor())
    return {check.point: check.message for check in checks if check.grade is Grade.BAD}


def test_command_lines_of_stop_and_start(subtests: pytest.Subtests) -> None:
    for row in ROWS["lines"]:
        with subtests.test(row=row):
            assert services.command(host_of(row), ServiceVerb.STOP) == row["stop"]
            start = row.get("start", row["stop"].replace(" stop", " start"))
            assert services.command(host_of(row), ServiceVerb.START) == start


def test_status_commands_use_no_sudo_and_end_their_options() -> None:
    for manager in Manager:
        settings = host(manager, mode=Sudo.PASSWORDLESS)
        assert "sudo" not in services.status_command(settings) + str(services.mark_command(settings))
    for manager in (SYSTEMD, Manager.DOCKER):
        assert " -- elasticsearch " in services.status_command(host(manager))


def test_a_status_that_needs_root_uses_sudo_unless_root(subtests: pytest.Subtests) -> None:
    """As another user `riak ping` cannot read its configuration, and says that a running node is down."""
    plain, through = (f"/bin/sh -c '{words}riak ping' </dev/null 2>&1" for words in ("", "sudo -n "))
    for mode, line in {
        Sudo.OFF: plain,
        Sudo.PASSWORDLESS: through,
        Sudo.PASSWORD: through,
    }.items():
        with subtests.test(mode):
            settings = host(COMMAND, mode=mode, status="riak ping", status_as_root=True)
            assert services.status_command(settings) == line


def test_read_state_of_known_and_of_other_answers(subtests: pytest.Subtests) -> None:
    for row in (*ROWS["states"], *ROWS["unknown"]):
        with subtests.test(row=row):
            reading = services.read_state(host_of(row), answer_of(row))
            if "is" not in row:
                assert isinstance(reading, Unknown)
                assert row["says"] in reading.reason
                continue
            assert isinstance(reading, ServiceReading)
            assert reading.state is ServiceState(row["is"])
            assert row.get("detail") in {None, reading.detail}
            assert row.get("barred", "") in reading.barred
            assert bool(reading.barred) is ("barred" in row)


@pytest.mark.parametrize("rights", [True, False])
def test_a_unit_that_runs_and_is_masked_is_held_before_the_stop(tmp_path: Path, *, rights: bool) -> None:
    """It was stopped, and then its start was refused."""
    systemctl = tmp_path / "systemctl"
    answer = answer_of({"show": "active running LoadState=masked"}).text
    systemctl.write_text(f"#!/bin/sh\ncat <<'end'\n{answer}\nend\n")
    systemctl.chmod(0o755)
    settings = replace(host(SYSTEMD, program=str(systemctl)), connect=Connect.LOCAL)
    with closing(Hosts({"es1": settings})) as hosts:
        view = hosts.observe(["es1"], rights=rights)["es1"]
    assert isinstance(view, HostView)
    assert (view.service, view.may_control) == (ServiceState.RUNNING, False)
    masked = "unit elasticsearch is masked and cannot be started: `systemctl unmask` it"
    assert masked in view.detail
    assert checked(settings)[Point.SERVICE] == masked


# Names that would be something else.


def refused_everywhere(settings: HostSettings) -> tuple[str, str]:
    """It is not read and not stopped; the reason of the reading, and what `validate` says."""
    with closing(Hosts({settings.node: replace(settings, connect=Connect.LOCAL)})) as hosts:
        reading = hosts.observe([settings.node], rights=True)[settings.node]
        stopped = hosts.perform(StopNode(node=settings.node))
    assert isinstance(reading, Unknown)
    assert not reading.passes
    assert isinstance(stopped, Refused)
    return reading.reason, "; ".join(checked(settings).values())


def test_a_name_that_would_be_an_option_is_sent_nowhere(subtests: pytest.Subtests) -> None:
    plain = {"stop": "ctl", "start": "ctl", "status": "ctl"}
    for settings in (host(COMMAND, node="-f"), host(COMMAND, **{**plain, "stop": 'ctl "{node}"'}, node="-f")):
        with subtests.test(settings.service.stop):
            assert services.fault(settings) is not None
            for said in refused_everywhere(settings):
                assert re.search("a dash|plain", said)
    for settings in (
        host(COMMAND, **plain, node="-f"),
        host(SYSTEMD, node="-x"),
        host(SYSTEMD, unit="es@{node}", node="-x"),
    ):
        with subtests.test(settings.service.unit):
            assert services.fault(settings) is None


@pytest.mark.parametrize("manager", [SYSTEMD, Manager.SYSV, Manager.DOCKER])
def test_a_unit_that_names_something_else_is_sent_nowhere(
    subtests: pytest.Subtests, manager: Manager
) -> None:
    for unit, node in (*ROWS["other_names"], ("es-{node}", "n" * 300)):
        with subtests.test(unit=unit, node=node):
            settings = host(manager, unit=unit, node=node)
            stop = partial(services.plain_command, settings, ServiceVerb.STOP)
            for build in (stop, partial(services.status_command, settings)):
                with pytest.raises(UntrustedValue, match="cannot be the name of a service"):
                    build()
            read, said = refused_everywhere(settings)
            remedy = "set `service.unit` or `data` without `{node}` for it under `hosts.overrides`"
            assert remedy in read
            assert "cannot be the name of a service" in said


def test_a_data_path_that_leads_elsewhere_is_sent_nowhere(subtests: pytest.Subtests) -> None:
    for node in ("../../srv/other", "..", "es*", "es1\n/", "es\\1"):
        with subtests.test(node=node):
            settings = replace(host(SYSTEMD, node=node), data=("/var/lib/es/{node}",))
            assert "cannot be a part of a path" in str(services.fault(settings))
            assert services.fault(replace(settings, data=("/var/lib/es",))) is None


# What sudo and a failed stop say.


def test_outcomes_did_nothing_where_it_is_certain(subtests: pytest.Subtests) -> None:
    for row in ROWS["nothing_done"]:
        with subtests.test(row=row):
            line = services.command(host_of(row), ServiceVerb.STOP)
            assert outcomes.did_nothing(host_of(row), line, row["text"]) is row["is"]


def test_what_sudo_allows(subtests: pytest.Subtests) -> None:
    matched = (
        "Sudoers entry: /etc/sudoers.d/x\n    RunAsUsers: root\n{}    Commands:\n\tALL\n    Matched: /x\n"
    )
    opened, asks = matched.format("    Options: !authenticate\n"), matched.format("")
    for mode, code, output, never_asks, allowed in [
        (Sudo.PASSWORDLESS, 0, opened, False, True),
        # Seen on 1.9.16: -l succeeds though the command itself would ask for a password.
        (Sudo.PASSWORDLESS, 0, asks, False, False),
        (Sudo.PASSWORDLESS, 0, asks, True, True),
        # As sudo before 1.9.14 and sudo-rs print it, where the list of all shows no rule for it either.
        (Sudo.PASSWORDLESS, 0, "/usr/bin/systemctl stop elasticsearch", False, None),
        (Sudo.PASSWORDLESS, 0, "/usr/bin/systemctl stop elasticsearch", True, True),
        (Sudo.PASSWORDLESS, 1, "sudo: a password is required", False, False),
        (Sudo.PASSWORD, 0, asks, False, True),
        (Sudo.PASSWORD, 1, "sudo: 1 incorrect password attempt", False, False),
    ]:
        with subtests.test(mode=mode, code=code, output=output, never_asks=never_asks):
            assert sudo.allows(mode, code, output, never_asks=never_asks) is allowed


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("mode", [Sudo.PASSWORDLESS, Sudo.PASSWORD])
def test_a_host_with_doas_alone_is_refused_by_name(tmp_path: Path, shell: str, mode: Sudo) -> None:
    settings = host(SYSTEMD)
    asked = f"{sudo.PROBES if mode is Sudo.PASSWORD else ASK_SUDO}\n{sudo.probe(mode, 'true')}\n"
    for name in ("sh", "cat", "grep"):
        (tmp_path / name).symlink_to(needs(shell if name == "sh" else name))

    def said() -> str:
        done = subprocess.run(  # noqa: S603
            [str(tmp_path / "sh"), "-c", asked],
            env={"PATH": str(tmp_path)},
            input="x\n",
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 1
        return sudo.refusal(done.stdout + done.stderr) or ""

    assert sudo.is_missing(said())
    assert "install it" in sudo.advice(settings, said())
    for name in ("doas", "sudo"):
        (tmp_path / name).write_text("#!/bin/sh\necho sudo: a password is required >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
        if name == "doas":
            assert said() == ONLY_DOAS
            assert sudo.advice(settings, said()).startswith("doas is not supported: install sudo, or log in")
    assert said() == "sudo: a password is required"


def test_refusals_of_sudo(subtests: pytest.Subtests) -> None:
    behind = host(COMMAND, **{verb: f"sudo -n a {verb}" for verb in ("stop", "start", "status")})
    for output, refused in (row.values() for row in ROWS["refusals"]):
        with subtests.test(output):
            assert (sudo.refusal(output) is not None) is refused
            status = services.read_state(behind, Section(exit=1, text=output))
            assert (isinstance(status, Unknown) and "refused by sudo" in status.reason) is refused
            result = outcomes.result_of(
                behind, ServiceVerb.STOP, services.command(behind, ServiceVerb.STOP), 1, output
            )
            assert isinstance(result, Refused) is refused


def test_settings_refuse_what_cannot_work() -> None:
    with pytest.raises(ConfigError, match=r"hosts\.service\.start"):
        ServiceSettings(manager=COMMAND, stop="x", status="y")
    with pytest.raises(ConfigError, match=r"hosts\.sudo"):
        HostSettings(node="n", address="n", sudo=Sudo.PASSWORD)
    assert "secret" not in repr(host(SYSTEMD, mode=Sudo.PASSWORD))
