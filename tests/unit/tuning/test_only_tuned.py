"""What `validate` asks of a host that is only tuned: no verb of a service, but the right to set a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.hosts.check import Grade, Point, check_host
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.survey import survey_script
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.redact import Redactor

ALLOWS = "echo 'Sudoers entry:'; echo 'Options: !authenticate'; echo \"Matched: $3\"\n"
REFUSES = "echo 'sudo: a password is required' >&2; exit 1\n"
WAY = [Point.RESOLVE, Point.CONNECT, Point.HOST_KEY, Point.LOG_IN]
LINE = "/usr/bin/tee /proc/sys/vm/swappiness"


def settings(folder: Path, unit: str = "", manager: Manager = Manager.SYSTEMD) -> HostSettings:
    return HostSettings(
        node="cass1",
        address="",
        connect=Connect.LOCAL,
        sudo=Sudo.PASSWORDLESS,
        environment={"PATH": f"{folder}:/usr/bin:/bin"},
        service=ServiceSettings(manager=manager, unit=unit, controlled=False),
    )


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("answer", "grade"), [(ALLOWS, Grade.GOOD), (REFUSES, Grade.BAD)])
def test_the_right_to_set_a_value_is_checked(tmp_path: Path, answer: str, grade: Grade) -> None:
    program(tmp_path, "sudo", answer)
    checks = check_host(settings(tmp_path), Connections(), reboot=False, redact=Redactor())
    assert [one.point for one in checks] == [*WAY, Point.RIGHT_TUNE]
    assert checks[-1].grade is grade, checks[-1]
    assert LINE in checks[-1].message


def test_a_named_service_is_looked_for(tmp_path: Path) -> None:
    program(tmp_path, "sudo", ALLOWS)
    missing = settings(tmp_path, "no-such-unit", Manager.SYSV)
    checks = check_host(missing, Connections(), reboot=False, redact=Redactor())
    assert [one.point for one in checks] == [*WAY, Point.SERVICE, Point.RIGHT_TUNE], "and no lock of verbs"
    assert checks[-2].grade is Grade.BAD


def test_nothing_is_asked_about_stops_and_starts(tmp_path: Path) -> None:
    script = survey_script(settings(tmp_path, "cassandra"), rights=True)
    assert f"ask_sudo {LINE}" in script
    assert not any(word in script for word in ("stop cassandra", "start cassandra", "may-lock"))


def test_the_line_is_one_of_the_sudoers_file_of_tuning() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "sudoers-tuning"
    assert f"    {LINE}, \\\n" in page.read_text()
