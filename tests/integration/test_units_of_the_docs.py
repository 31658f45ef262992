"""The units of the docs under a real systemd: what starts, what is told to people, what a stop does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.hostlab.hosts import HostCluster

pytestmark = [pytest.mark.part(name="services"), pytest.mark.docker, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
HOST = "es1"
SECONDS = 60.0
PROGRAM = """#!/bin/sh
echo start >> /var/tmp/starts
trap 'echo TERM >> /var/tmp/signals; sleep 2; echo stood down >> /var/tmp/signals; exit 5' TERM
while [ -e /var/tmp/long ]; do sleep 0.1; done
exit "$(cat /var/tmp/code)"
"""
MAIL = """#!/bin/sh
{ echo "$@"; cat; } >> /var/tmp/mail
"""
EVERY_FIVE_SECONDS = "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/5\nAccuracySec=1s\n"


def _units() -> dict[str, str]:
    found = {}
    for page in (ROOT / "docs/how-to").glob("*.md"):
        for text in re.findall(r"(?ms)^```ini\n(.*?)^```", page.read_text()):
            named = re.match(r"# /etc/systemd/system/(\S+)\n", text)
            if named and re.match(r"orchestrate-(posts|canary|failed)", named[1]):
                found[named[1]] = text
    return found


class Host:
    """The first host of the lab, with the units and a stand-in for the program and for mail."""

    def __init__(self, cluster: HostCluster) -> None:
        self._cluster = cluster

    def run(self, line: str) -> str:
        """A shell line as root; what it printed, whatever its exit code."""
        done = self._cluster.exec(HOST, line, check=False)
        return str(done.stdout).strip()

    def write(self, path: str, text: str, mode: str = "644") -> None:
        self._cluster.exec(
            HOST, f"mkdir -p $(dirname {path}); cat > {path} <<'EOT'\n{text}\nEOT\nchmod {mode} {path}"
        )

    def lines(self, name: str) -> list[str]:
        return self.run(f"cat /var/tmp/{name} 2>/dev/null").splitlines()

    def until(self, seen: Callable[[], object]) -> None:
        end = time.monotonic() + SECONDS
        while not seen():
            assert time.monotonic() < end, self.run("journalctl --no-pager -n 30")
            time.sleep(0.2)


@pytest.fixture
def host(host_cluster: HostClusterFactory) -> Host:
    host = Host(host_cluster("9.1.0"))
    host.run("systemctl stop 'orchestrate-*'; rm -rf /etc/systemd/system/orchestrate-*")
    for name, text in _units().items():
        host.write(f"/etc/systemd/system/{name}", text)
    host.write("/usr/local/bin/orchestrate", PROGRAM, "755")
    host.write("/usr/local/bin/mail", MAIL, "755")
    host.run("id orchestrate || useradd --no-create-home orchestrate")
    host.run(
        "cd /var/tmp && rm -f starts signals long mail code; chmod 777 /var/tmp; systemctl daemon-reload"
    )
    return host


TOLD = {
    "posts": {0: False, 5: False, 6: False, 3: True, 4: True, 8: True, 9: True},
    "canary": {9: False, 8: True},
}
"""Whether people are told, by the unit and the exit code of its program."""


def test_people_get_the_messages_they_need_and_no_others(host: Host, subtests: pytest.Subtests) -> None:
    for unit, code, told in ((unit, *each) for unit, codes in TOLD.items() for each in codes.items()):
        with subtests.test(unit=unit, code=code):
            # Started so often in a row, systemd would refuse one.
            host.run("systemctl reset-failed 'orchestrate-*'; cd /var/tmp && rm -f starts mail")
            handler = f"orchestrate-failed@orchestrate-{unit}.service.service"
            runs = f"systemctl show --property ExecMainStartTimestampMonotonic --value {handler}"
            before = host.run(runs)
            host.run(f"echo {code} > /var/tmp/code; systemctl start orchestrate-{unit}.service")
            state = host.run(f"systemctl is-failed orchestrate-{unit}.service")
            assert state == ("failed" if told else "inactive")
            assert host.lines("starts") == ["start"]
            if told:
                host.until(lambda: host.lines("mail"))
                assert f"orchestrate-{unit}.service failed on" in host.lines("mail")[0]
            else:
                assert host.run(runs) == before
                assert host.lines("mail") == []


def test_a_stop_is_one_signal_and_waits_for_the_stand_down(host: Host) -> None:
    host.run("touch /var/tmp/long; systemctl start --no-block orchestrate-posts.service")
    host.until(lambda: host.lines("starts"))
    host.run("systemctl stop orchestrate-posts.service")
    assert host.run("systemctl is-failed orchestrate-posts.service") == "inactive"
    assert host.lines("signals") == ["TERM", "stood down"]
    assert host.lines("mail") == []


def test_the_timer_starts_its_service_and_no_second_beside_it(host: Host) -> None:
    host.run("echo 0 > /var/tmp/code; touch /var/tmp/long")
    host.write("/etc/systemd/system/orchestrate-posts.timer.d/soon.conf", EVERY_FIVE_SECONDS)
    host.run("systemctl daemon-reload; systemctl start orchestrate-posts.timer")
    host.until(lambda: host.lines("starts"))
    time.sleep(12)
    assert host.lines("starts") == ["start"], "a second one beside the first"
    host.run("rm /var/tmp/long")
    host.until(lambda: len(host.lines("starts")) >= 2)
    host.run("systemctl stop orchestrate-posts.timer")


def test_a_job_gets_the_exit_code_of_the_unit_it_runs(host: Host) -> None:
    host.run("echo 3 > /var/tmp/code")
    said = host.run(
        "systemd-run --wait --collect --unit=orchestrate-job --property=KillMode=mixed "
        "--property=TimeoutStopSec=30min --property=StandardOutput=truncate:/var/tmp/out --setenv=PATH "
        "/usr/local/bin/orchestrate post-bulk-index 2>&1; echo code $?"
    )
    assert said.endswith("code 3"), said
