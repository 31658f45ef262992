"""The units of the docs under a real systemd: what starts, what is told to people, what a stop does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hostlab.hosts import wait_until
from tests.integration.lone_host import LoneHost, accounts_host

pytestmark = [pytest.mark.part(name="services"), pytest.mark.docker, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneHost]:
    with accounts_host(tmp_path_factory.mktemp("host")) as made:
        yield made


@pytest.fixture
def host(machine: LoneHost) -> LoneHost:
    """With the units and a stand-in for the program and for mail."""
    machine.run("systemctl stop 'orchestrate-*'; rm -rf /etc/systemd/system/orchestrate-*")
    for name, text in _units().items():
        machine.write(f"/etc/systemd/system/{name}", text)
    for name, text in (("orchestrate", PROGRAM), ("mail", MAIL)):
        machine.write(f"/usr/local/bin/{name}", text)
        machine.run(f"chmod 755 /usr/local/bin/{name}")
    machine.run("id orchestrate || useradd --no-create-home orchestrate")
    machine.run(
        "cd /var/tmp && rm -f starts signals long mail code; chmod 777 /var/tmp; systemctl daemon-reload"
    )
    return machine


def lines(host: LoneHost, name: str) -> list[str]:
    """What a stand-in has written down."""
    return host.run(f"cat /var/tmp/{name} 2>/dev/null", check=False).splitlines()


def until(host: LoneHost, seen: Callable[[], object]) -> None:
    assert wait_until(lambda: bool(seen()), seconds=SECONDS), host.run("journalctl --no-pager -n 30")


def shown(host: LoneHost, line: str) -> str:
    """What a shell line prints, whatever its exit code."""
    return host.run(line, check=False)


TOLD = {
    "posts": {0: False, 5: False, 6: False, 3: True, 4: True, 8: True, 9: True},
    "canary": {9: False, 8: True},
}
"""Whether people are told, by the unit and the exit code of its program."""


def test_people_get_the_messages_they_need_and_no_others(host: LoneHost, subtests: pytest.Subtests) -> None:
    for unit, code, told in ((unit, *each) for unit, codes in TOLD.items() for each in codes.items()):
        with subtests.test(unit=unit, code=code):
            # Started so often in a row, systemd would refuse one.
            shown(host, "systemctl reset-failed 'orchestrate-*'; cd /var/tmp && rm -f starts mail")
            handler = f"orchestrate-failed@orchestrate-{unit}.service.service"
            runs = f"systemctl show --property ExecMainStartTimestampMonotonic --value {handler}"
            before = shown(host, runs)
            shown(host, f"echo {code} > /var/tmp/code; systemctl start orchestrate-{unit}.service")
            state = shown(host, f"systemctl is-failed orchestrate-{unit}.service")
            assert state == ("failed" if told else "inactive")
            assert lines(host, "starts") == ["start"]
            if told:
                until(host, lambda: lines(host, "mail"))
                assert f"orchestrate-{unit}.service failed on" in lines(host, "mail")[0]
            else:
                assert shown(host, runs) == before
                assert lines(host, "mail") == []


def test_a_stop_is_one_signal_and_waits_for_the_stand_down(host: LoneHost) -> None:
    shown(host, "touch /var/tmp/long; systemctl start --no-block orchestrate-posts.service")
    until(host, lambda: lines(host, "starts"))
    shown(host, "systemctl stop orchestrate-posts.service")
    assert shown(host, "systemctl is-failed orchestrate-posts.service") == "inactive"
    assert lines(host, "signals") == ["TERM", "stood down"]
    assert lines(host, "mail") == []


def test_the_timer_starts_its_service_and_no_second_beside_it(host: LoneHost) -> None:
    shown(host, "echo 0 > /var/tmp/code; touch /var/tmp/long")
    host.write("/etc/systemd/system/orchestrate-posts.timer.d/soon.conf", EVERY_FIVE_SECONDS)
    shown(host, "systemctl daemon-reload; systemctl start orchestrate-posts.timer")
    until(host, lambda: lines(host, "starts"))
    time.sleep(12)
    assert lines(host, "starts") == ["start"], "a second one beside the first"
    shown(host, "rm /var/tmp/long")
    until(host, lambda: len(lines(host, "starts")) >= 2)
    shown(host, "systemctl stop orchestrate-posts.timer")


def test_a_job_gets_the_exit_code_of_the_unit_it_runs(host: LoneHost) -> None:
    shown(host, "echo 3 > /var/tmp/code")
    said = shown(
        host,
        "systemd-run --wait --collect --unit=orchestrate-job --property=KillMode=mixed "
        "--property=TimeoutStopSec=30min --property=StandardOutput=truncate:/var/tmp/out --setenv=PATH "
        "/usr/local/bin/orchestrate post-bulk-index 2>&1; echo code $?",
    )
    assert said.endswith("code 3"), said
