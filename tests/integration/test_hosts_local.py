"""The host port on this machine, with a real script service and a stand-in for sudo."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts.connection import CommandResult, Lost
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings, Manager, ServiceSettings, Sudo
from orchestrator.lab import nodectl
from orchestrator.model.action import (
    ActionResult,
    Done,
    HostAction,
    InDoubt,
    Moment,
    RebootHost,
    Refused,
    RunHook,
    StartNode,
    StopNode,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Hook
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.hosts import SimulatedHosts
from tests.integration.hostlab.hosts import wait_until
from tests.integration.script_service import ScriptService
from tests.simulation.play import cluster, play, policy

PASSWORD = "correct horse"  # noqa: S105  (of the stand-in)
_SUDO = """#!/bin/sh
# Answers as sudo 1.9.16 was seen to: -n without a rule, -S with a password on standard input, -ll, -v.
printf '%s\\n' "$*" >>{folder}/sudo.log
probe=; quiet=; asks=
while [ $# -gt 0 ]; do case $1 in
  -n) quiet=1; shift ;;  -k) shift ;;  -S) asks=1; shift ;;  -p) shift 2 ;;
  -ll) probe=1; shift ;; -v) exit 0 ;; *) break ;;
esac; done
if [ -n "$asks" ]; then read -r given
  [ "$given" = "{password}" ] || {{ echo "sudo: 1 incorrect password attempt" >&2; exit 1; }}
elif [ -e {folder}/refuse ]; then echo "sudo: a password is required" >&2; exit 1; fi
[ -z "$probe" ] || {{ printf 'Sudoers entry: x\\nOptions: !authenticate\\nMatched: %s\\n' "$*"; exit; }}
exec "$@"
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptService]:
    made = ScriptService(folder=tmp_path / "service").install()
    yield made
    made.end()


def local(service: ScriptService, **changes: object) -> HostSettings:
    values = {"node": "n1", "address": "localhost", "connect": Connect.LOCAL, "service": service.settings()}
    return HostSettings(**{**values, **changes})  # type: ignore[arg-type]  # field names by keyword


@pytest.fixture
def hosts(service: ScriptService) -> Iterator[Hosts]:
    port = Hosts({"n1": local(service)}, redact=Redactor([PASSWORD]))
    yield port
    port.close()


def seen(hosts: Hosts, *, rights: bool = False) -> HostView:
    reading = hosts.observe(["n1"], rights=rights)["n1"]
    assert isinstance(reading, HostView), reading
    return reading


def test_a_node_is_stopped_and_started_and_each_end_is_noticed(hosts: Hosts, service: ScriptService) -> None:
    assert hosts.perform(StartNode(node="n1")) == Done(output="started n1")
    assert seen(hosts).service is ServiceState.RUNNING
    service.stop_takes(5)
    assert isinstance(hosts.perform(StopNode(node="n1")), Done)
    assert seen(hosts).service is ServiceState.STOPPING
    assert hosts.watch(["n1"], 60.0) is True
    assert seen(hosts).service is ServiceState.STOPPED


def test_a_start_waits_behind_the_stop_that_is_under_way(hosts: Hosts, service: ScriptService) -> None:
    hosts.perform(StartNode(node="n1"))
    first = service.pid("n1")
    service.stop_takes(2)
    hosts.perform(StopNode(node="n1"))
    assert hosts.perform(StartNode(node="n1")) == Done(output="waits behind the stop that is under way")
    assert service.pid("n1") == first
    states = []
    while (view := seen(hosts)).service is not ServiceState.RUNNING and len(states) < 50:
        states.append(view.service)
        hosts.watch(["n1"], 5.0)
    assert states[0] is ServiceState.STOPPING
    assert service.pid("n1") not in (None, first)


def test_a_start_that_fails_is_refused_and_seen_as_failed(hosts: Hosts, service: ScriptService) -> None:
    service.breaks()
    result = hosts.perform(StartNode(node="n1"))
    assert isinstance(result, Refused)
    assert "disk full" in result.reason
    assert "hunter22" not in result.reason
    view = seen(hosts)
    assert view.service is ServiceState.FAILED
    assert "exited 7" in view.detail
    assert "hunter22" not in view.detail


@pytest.mark.parametrize(
    "line", ["/bin/sh -c 'oops {node}", "echo no space left; exit 7", "./no-such-program"]
)
def test_a_start_command_that_fails_is_tried_three_times(
    line: str, service: ScriptService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on simulated nodes, of which one has this command."""
    es2, sent = NodeName("es2"), list[ActionResult]()
    commands = ServiceSettings(manager=Manager.COMMAND, stop="true", start=line, status="false")
    real, perform = Hosts({es2: replace(local(service), node=es2, service=commands)}), SimulatedHosts.perform

    def performed(self: SimulatedHosts, action: HostAction) -> ActionResult:
        if not (isinstance(action, StartNode) and action.node == es2):
            return perform(self, action)
        sent.append(real.perform(action))
        return sent[-1]

    monkeypatch.setattr(SimulatedHosts, "perform", performed)
    with contextlib.closing(real):
        simulation = Simulation(cluster(3))
        state = play(simulation, simulation.begin(policy()))
    assert state.outcome is Outcome.FAILED
    assert "es2 failed: it was started 3 times: " in state.message
    assert state.nodes[es2].phase is NodePhase.FAILED
    assert len(sent) == 3


def test_a_job_goes_on_when_the_port_is_closed(service: ScriptService) -> None:
    hosts = Hosts({"n1": local(service)})
    hosts.perform(StartNode(node="n1"))
    service.stop_takes(2)
    hosts.perform(StopNode(node="n1"))
    hosts.close()
    deadline = time.monotonic() + 5
    while service.stops("n1") != ["begun", "ended"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert service.stops("n1") == ["begun", "ended"]


def test_a_command_that_is_not_there_is_refused(service: ScriptService) -> None:
    (service.folder / "service").unlink()
    hosts = Hosts({"n1": local(service)})
    assert isinstance(hosts.perform(StopNode(node="n1")), Refused)
    reading = hosts.observe(["n1"], rights=True)["n1"]
    assert isinstance(reading, Unknown)
    assert "cannot be run" in reading.reason


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("no-such-program {node}", Refused),
        ("echo {node} >>./out-of-service; no-such-program", InDoubt),
        ("./depool {node}", InDoubt),
        ("./not-to-be-run {node}", Refused),
    ],
)
def test_a_hook_that_ends_with_not_found_may_be_half_done(
    hosts: Hosts, tmp_path: Path, line: str, kind: type
) -> None:
    """Whatever took a node out of service is to be undone: 127 may be the end of a line that did so."""
    script = tmp_path / "depool"
    script.write_text(f"#!/bin/sh\necho $1 >>{tmp_path}/out-of-service\nno-such-program\n")
    script.chmod(0o755)
    (tmp_path / "not-to-be-run").touch(mode=0o644)
    hook = Hook(run=line.replace("./", f"{tmp_path}/"))
    result = hosts.perform(RunHook(node="n1", moment=Moment.BEFORE_STOP, number=0, hook=hook))
    assert isinstance(result, kind), result


def test_a_node_without_settings_is_unknown_and_refused(hosts: Hosts) -> None:
    assert isinstance(hosts.observe(["other", "n1"], rights=False)["other"], Unknown)
    assert isinstance(hosts.perform(StopNode(node="other")), Refused)


def test_this_machine_is_not_rebooted(hosts: Hosts) -> None:
    assert isinstance(hosts.perform(RebootHost(node="n1")), Refused)


def test_secrets_of_our_environment_stay_here(hosts: Hosts) -> None:
    os.environ["ES_API_KEY_OF_THIS_TEST"] = "very-secret"
    try:
        hook = Hook(run="env; echo LC_ALL=$LC_ALL", local=True)
        result = hosts.perform(RunHook(node="n1", moment=Moment.BEFORE_STOP, number=0, hook=hook))
    finally:
        del os.environ["ES_API_KEY_OF_THIS_TEST"]
    assert isinstance(result, Done)
    assert "very-secret" not in result.output
    assert "LC_ALL=C" in result.output


def test_the_limit_kills_the_whole_group() -> None:
    began = time.monotonic()
    end = LocalConnection().run("sleep 50 & echo $!; wait", timeout=0.5)
    assert isinstance(end, Lost)
    assert end.timed_out
    assert time.monotonic() - began < 40
    assert wait_until(lambda: nodectl.start_time(int(end.output)) is None, seconds=30)


def test_a_daemon_that_keeps_the_output_open_does_not_keep_us() -> None:
    began = time.monotonic()
    end = LocalConnection().run("sleep 50 & echo $!", timeout=45.0)
    assert isinstance(end, CommandResult)
    assert time.monotonic() - began < 40
    os.kill(int(end.stdout), signal.SIGKILL)


# -- sudo


@pytest.fixture
def sudo_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sudo"
    folder.mkdir()
    program = folder / "sudo"
    program.write_text(_SUDO.format(folder=folder, password=PASSWORD))
    program.chmod(0o755)
    return folder


def with_sudo(service: ScriptService, folder: Path, sudo: Sudo, password: str = PASSWORD) -> Hosts:
    path = f"{folder}:/usr/bin:/bin"
    settings = local(service, sudo=sudo, sudo_password=lambda: password, environment={"PATH": path})
    return Hosts({"n1": settings}, redact=Redactor([PASSWORD]))


def test_only_stop_and_start_go_through_sudo(service: ScriptService, sudo_folder: Path) -> None:
    hosts = with_sudo(service, sudo_folder, Sudo.PASSWORDLESS)
    assert isinstance(hosts.perform(StartNode(node="n1")), Done)
    seen(hosts)
    script = service.folder / "service"
    assert (sudo_folder / "sudo.log").read_text().splitlines() == [f"-n {script} start n1"]


def test_a_machine_without_sudo_is_no_reason_to_hold_root(service: ScriptService, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "sudo":
            (tools / program.name).symlink_to(program)
    settings = local(service, sudo=Sudo.AUTO, environment={"PATH": str(tools)})
    hosts = Hosts({"n1": settings})
    view, started = seen(hosts, rights=True), hosts.perform(StartNode(node="n1"))
    if os.geteuid() == 0:
        assert view.may_control is True
        assert started == Done(output="started n1")
        assert hosts.describe(StartNode(node="n1")) == f"{service.folder}/service start n1"
    else:
        assert "there is no sudo on the host: install it, or log in as root" in view.detail
        assert isinstance(started, Refused)
        assert hosts.describe(StartNode(node="n1")) == f"sudo -n {service.folder}/service start n1"


def test_rights_are_asked_for_without_doing_anything(service: ScriptService, sudo_folder: Path) -> None:
    hosts = with_sudo(service, sudo_folder, Sudo.PASSWORDLESS)
    assert seen(hosts, rights=True).may_control is True
    (sudo_folder / "refuse").touch()
    assert seen(hosts, rights=True).may_control is False
    result = hosts.perform(StopNode(node="n1"))
    assert isinstance(result, Refused)
    assert "a password is required" in result.reason
    assert service.stops("n1") == []


def test_the_password_goes_to_standard_input_alone(service: ScriptService, sudo_folder: Path) -> None:
    hosts = with_sudo(service, sudo_folder, Sudo.PASSWORD)
    assert seen(hosts, rights=True).may_control is True
    assert isinstance(hosts.perform(StartNode(node="n1")), Done)
    assert seen(hosts).service is ServiceState.RUNNING
    assert PASSWORD not in (sudo_folder / "sudo.log").read_text()
    assert PASSWORD not in hosts.describe(StartNode(node="n1"))
    wrong = with_sudo(service, sudo_folder, Sudo.PASSWORD, password="wrong one")  # noqa: S106  (wrong on purpose)
    assert seen(wrong, rights=True).may_control is False
    assert isinstance(wrong.perform(StopNode(node="n1")), Refused)
