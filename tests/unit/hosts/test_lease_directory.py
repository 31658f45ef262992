"""Whether the folder of the lease takes files, as `validate` finds it out: real shells on this machine."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.hosts.check import Grade, HostCheck, Point, check_host, check_hosts
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.survey import read_survey, survey_script
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.redact import Redactor
from tests.tools import SHELLS, shell_words

NODE = NodeName("riak@riak1")
SETTINGS = HostSettings(
    node=NODE,
    address="127.0.0.1",
    connect=Connect.LOCAL,
    sudo=Sudo.OFF,
    service=ServiceSettings(manager=Manager.COMMAND, stop="true", start="true", status="true"),
)


def found(folder: str | None) -> HostCheck | None:
    with closing(Connections()) as connections:
        checks = check_hosts(
            [SETTINGS], connections, reboot=False, redact=Redactor(), lease_directory=folder
        )[NODE]
    return next((check for check in checks if check.point is Point.LEASE_DIRECTORY), None)


def test_a_folder_that_takes_files_is_good_and_stays_empty(tmp_path: Path) -> None:
    place = tmp_path / "a folder; it's odd"
    place.mkdir()
    (place / ".link").touch()
    check = found(str(place))
    assert check is not None
    assert (check.grade, check.message) == (Grade.GOOD, f"{place} takes files")
    assert [each.name for each in place.iterdir()] == [".link"]


def test_a_folder_that_takes_none_is_named_with_what_to_do(subtests: pytest.Subtests, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    # Not even root creates a file in the last one.
    for place in (tmp_path / "missing", tmp_path / "file", Path("/proc")):
        with subtests.test(place.name):
            check = found(str(place))
            assert check is not None
            assert check.grade is Grade.BAD
            assert check.message.startswith(f"no file can be created in {place} (")
            assert "create the folder on this host and let the account create files in it" in check.message
            assert "`riak.lease_directory`" in check.message
            assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_without_a_lease_on_the_hosts_no_folder_is_checked() -> None:
    assert found(None) is None


def test_a_host_that_cannot_be_reached_has_it_unchecked() -> None:
    away = HostSettings(node=NODE, address="127.0.0.1", port=1, service=SETTINGS.service)
    with closing(Connections(wait=lambda _: None)) as connections:
        checks = check_host(away, connections, reboot=False, redact=Redactor(), lease_directory="/var/tmp")
    assert {check.point: check.grade for check in checks}[Point.LEASE_DIRECTORY] is Grade.NOT_CHECKED


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
def test_an_account_without_the_right_is_said_so_by_every_shell(shell: str) -> None:
    """In a folder of root's that all may enter; the account is `nobody`."""
    script = survey_script(SETTINGS, rights=False, folder="/usr/lib")
    done = subprocess.run(  # noqa: S603  (our own script)
        [*shell_words(shell), "-c", script],
        capture_output=True,
        text=True,
        check=True,
        user="nobody",
        cwd="/",
    )
    assert "ermission denied" in read_survey(SETTINGS, done.stdout, rights=False).folder_fault
