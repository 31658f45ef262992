"""Command lines and answers of the service managers, as tables."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.hosts import outcomes, services, sudo
from orchestrator.hosts.check import Grade, Point, check_host
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.managers.manager import ServiceReading, Verb
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.action import Refused, StopNode
from orchestrator.model.hosts import Connect, Manager
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor
from orchestrator.untrusted import UntrustedValue

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def host(manager: Manager, *, mode: Sudo = Sudo.OFF, node: str = "es1", **service: object) -> HostSettings:
    if manager is Manager.COMMAND:
        service = {
            "stop": "ctl stop {node}",
            "start": "ctl start {node}",
            "status": "ctl status {node}",
            **service,
        }
    made = ServiceSettings(manager=manager, **service)  # type: ignore[arg-type]  # field names by keyword
    return HostSettings(node=node, address="es1", sudo=mode, sudo_password=lambda: "secret", service=made)


@pytest.mark.parametrize(
    ("settings", "stop", "start"),
    [
        (
            host(Manager.SYSTEMD, mode=Sudo.PASSWORDLESS),
            "sudo -n /usr/bin/systemctl --no-block stop elasticsearch",
            "sudo -n /usr/bin/systemctl --no-block start elasticsearch",
        ),
        (
            host(Manager.SYSTEMD, unit="es-{node}"),
            "/usr/bin/systemctl --no-block stop es-es1",
            "/usr/bin/systemctl --no-block start es-es1",
        ),
        (
            host(Manager.SYSV, mode=Sudo.PASSWORD),
            "sudo -k -S -p '' /usr/sbin/service elasticsearch stop",
            "sudo -k -S -p '' /usr/sbin/service elasticsearch start",
        ),
        (
            host(Manager.DOCKER, unit="{node}", grace=90.0),
            "/usr/bin/docker stop -t 90 es1",
            "/usr/bin/docker start es1",
        ),
        (host(Manager.COMMAND), "ctl stop es1", "ctl start es1"),
        (
            host(Manager.COMMAND, mode=Sudo.PASSWORDLESS, stop="cd /opt && ./stop {node}"),
            "sudo -n /bin/sh -c 'cd /opt && ./stop es1'",
            "sudo -n ctl start es1",
        ),
        (
            host(Manager.SYSTEMD, program="/bin/systemctl", unit="es\\x2d1"),
            "/bin/systemctl --no-block stop 'es\\x2d1'",
            "/bin/systemctl --no-block start 'es\\x2d1'",
        ),
    ],
)
def test_command_lines(settings: HostSettings, stop: str, start: str) -> None:
    assert services.command(settings, Verb.STOP) == stop
    assert services.command(settings, Verb.START) == start


@pytest.mark.parametrize(
    ("manager", "file"),
    [(Manager.SYSTEMD, "sudoers-elasticsearch"), (Manager.SYSV, "sudoers-elasticsearch-sysv")],
)
def test_the_shipped_sudoers_allow_these_lines_word_for_word(manager: Manager, file: str) -> None:
    text = (DOCS / file).read_text(encoding="utf-8")
    allowed = {line.strip() for line in re.findall(r"/usr/s?bin/[^,\n\\]+", text)}
    settings = host(manager)
    assert services.plain_command(settings, Verb.STOP) in allowed
    assert services.plain_command(settings, Verb.START) in allowed
    assert services.plain_reboot(settings) in allowed


def test_reads_never_go_through_sudo() -> None:
    for manager in Manager:
        settings = host(manager, mode=Sudo.PASSWORDLESS)
        assert "sudo" not in services.status_command(settings)
        assert "sudo" not in services.mark_command(settings)


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (Sudo.OFF, "/bin/sh -c 'riak ping' </dev/null 2>&1"),
        (Sudo.PASSWORDLESS, "/bin/sh -c 'sudo -n riak ping' </dev/null 2>&1"),
        (Sudo.PASSWORD, "/bin/sh -c 'sudo -n riak ping' </dev/null 2>&1"),
        (
            Sudo.AUTO,
            (
                f"if {sudo.IS_ROOT}; then /bin/sh -c 'riak ping' </dev/null 2>&1;"
                " else /bin/sh -c 'sudo -n riak ping' </dev/null 2>&1; fi"
            ),
        ),
    ],
)
def test_a_status_that_needs_root_uses_sudo_unless_root(mode: Sudo, line: str) -> None:
    """As another user `riak ping` cannot read its configuration, and says that a running node is down."""
    assert (
        services.status_command(host(Manager.COMMAND, mode=mode, status="riak ping", status_as_root=True))
        == line
    )


def show(
    active: str,
    sub: str,
    *,
    result: str = "success",
    load: str = "loaded",
    job: str = "0",
    status: str = "0",
    code: int = 0,
) -> Section:
    lines = (
        "MainPID=42",
        f"Result={result}",
        f"ExecMainStatus={status}",
        f"LoadState={load}",
        f"ActiveState={active}",
        f"SubState={sub}",
        f"Job={job}",
    )
    return Section(exit=code, text="\n".join(lines))


@pytest.mark.parametrize(
    ("answer", "state", "detail"),
    [
        (show("active", "running"), ServiceState.RUNNING, "active (running)"),
        (show("reloading", "reload"), ServiceState.RUNNING, "reloading (reload)"),
        (show("inactive", "dead"), ServiceState.STOPPED, "inactive (dead)"),
        (show("inactive", "dead", job="812"), ServiceState.STARTING, "inactive (dead), a job is queued"),
        (show("activating", "start"), ServiceState.STARTING, "activating (start)"),
        (show("activating", "auto-restart"), ServiceState.STARTING, "activating (auto-restart)"),
        (show("deactivating", "stop-sigterm"), ServiceState.STOPPING, "deactivating (stop-sigterm)"),
        (show("failed", "failed", result="exit-code"), ServiceState.FAILED, "failed (Result: exit-code)"),
        (
            show("failed", "failed", result="exit-code", status="78"),
            ServiceState.FAILED,
            "failed (Result: exit-code, status 78)",
        ),
        (show("failed", "failed", job="9"), ServiceState.STARTING, "failed (failed), a job is queued"),
    ],
)
def test_systemd_states(answer: Section, state: ServiceState, detail: str) -> None:
    assert services.read_state(host(Manager.SYSTEMD), answer) == ServiceReading(state=state, detail=detail)


@pytest.mark.parametrize(
    ("manager", "answer", "words"),
    [
        (Manager.SYSTEMD, show("inactive", "dead", load="not-found"), "has no unit elasticsearch"),
        (Manager.SYSTEMD, show("inactive", "dead", load="masked"), "systemctl unmask"),
        (Manager.SYSTEMD, show("active", "exited"), "does not follow its process"),
        (Manager.SYSTEMD, show("maintenance", "x"), "maintenance"),
        (Manager.SYSTEMD, Section(exit=1, text="Failed to connect to bus: No such file"), "connect to bus"),
        (Manager.SYSTEMD, Section(exit=127, text=""), "exit 127"),
        (Manager.SYSV, Section(exit=4, text=""), "status exits 4"),
        (Manager.SYSV, Section(exit=127, text="sh: /usr/sbin/service: not found"), "not found"),
        (Manager.SYSV, Section(exit=1, text="es: unrecognized service"), "unrecognized service"),
        (Manager.DOCKER, Section(exit=1, text="Error: No such container: es1"), "No such container"),
        (Manager.DOCKER, Section(exit=1, text="permission denied while trying"), "group docker"),
        (Manager.DOCKER, Section(exit=0, text="paused|0|x|"), "paused"),
        (Manager.COMMAND, Section(exit=127, text="ctl: not found"), "cannot be run"),
        (Manager.COMMAND, Section(exit=126, text=""), "cannot be run"),
    ],
)
def test_what_is_not_understood_is_unknown(manager: Manager, answer: Section, words: str) -> None:
    reading = services.read_state(host(manager), answer)
    assert isinstance(reading, Unknown)
    assert words in reading.reason


@pytest.mark.parametrize("rights", [True, False])
def test_a_unit_that_runs_and_is_masked_is_held_before_the_stop(tmp_path: Path, *, rights: bool) -> None:
    """It was stopped, and then its start was refused."""
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\ncat <<'end'\n{show('active', 'running', load='masked').text}\nend\n")
    systemctl.chmod(0o755)
    settings = replace(host(Manager.SYSTEMD, program=str(systemctl)), connect=Connect.LOCAL)
    with closing(Hosts({"es1": settings})) as hosts:
        view = hosts.observe(["es1"], rights=rights)["es1"]
    assert isinstance(view, HostView)
    assert (view.service, view.may_control) == (ServiceState.RUNNING, False)
    assert "unit elasticsearch is masked and cannot be started: `systemctl unmask` it" in view.detail
    with closing(Connections()) as connections:
        checks = check_host(settings, connections, reboot=False, redact=Redactor())
    assert {check.point: check.message for check in checks if check.grade is Grade.BAD}[Point.SERVICE] == (
        "unit elasticsearch is masked and cannot be started: `systemctl unmask` it"
    )


@pytest.mark.parametrize(
    ("settings", "fine"),
    [
        (host(Manager.COMMAND, node="-f"), False),
        (host(Manager.COMMAND, stop='ctl "{node}"', start="ctl", status="ctl", node="-f"), False),
        (host(Manager.COMMAND, stop="ctl", start="ctl", status="ctl", node="-f"), True),
        (host(Manager.SYSTEMD, node="-x"), True),
        (host(Manager.SYSTEMD, unit="es@{node}", node="-x"), True),
    ],
)
def test_a_name_that_would_be_an_option_is_sent_nowhere(settings: HostSettings, *, fine: bool) -> None:
    assert (services.fault(settings) is None) is fine
    if not fine:
        with closing(Hosts({settings.node: settings})) as hosts:
            reading = hosts.observe([settings.node], rights=True)[settings.node]
            assert isinstance(reading, Unknown)
            assert not reading.passes
            assert re.search("begins with a dash|is not plain", reading.reason)
            assert isinstance(hosts.perform(StopNode(node=settings.node)), Refused)
        with closing(Connections()) as connections:
            checks = check_host(settings, connections, reboot=False, redact=Redactor())
        assert any(check.grade is Grade.BAD and re.search("a dash|plain", check.message) for check in checks)


@pytest.mark.parametrize(
    ("unit", "node"),
    [
        ("{node}", "-H=elsewhere"),
        ("{node}", "--time=1"),
        ("{node}", "../../evil"),
        ("{node}", ".."),
        ("elasticsearch@{node}", "*"),
        ("elasticsearch@{node}", "x/../../../tmp/evil"),
        ("elasticsearch-{node}", "a b"),
        ("elasticsearch-{node}", "es1\nDone. all checks passed"),
        ("es-{node}", "[12]"),
        ("es-{node}", "es?"),
        ("es-{node}", "$(id)"),
        ("es-{node}", "es1\u202e"),
        ("es-{node}", "n" * 300),
        ("-x", "es1"),
    ],
)
@pytest.mark.parametrize("manager", [Manager.SYSTEMD, Manager.SYSV, Manager.DOCKER])
def test_a_unit_that_names_something_else_is_sent_nowhere(manager: Manager, unit: str, node: str) -> None:
    """A service manager would read it as an option, another file, or several services."""
    settings = host(manager, unit=unit, node=node)
    for build in (
        partial(services.plain_command, settings, Verb.STOP),
        lambda: services.status_command(settings),
    ):
        with pytest.raises(UntrustedValue, match="cannot be the name of a service"):
            build()
    with closing(Hosts({node: replace(settings, connect=Connect.LOCAL)})) as hosts:
        reading = hosts.observe([node], rights=True)[node]
        stopped = hosts.perform(StopNode(node=node))
    assert isinstance(reading, Unknown)
    assert not reading.passes
    assert "set `service.unit` or `data` without `{node}` for it under `hosts.overrides`" in reading.reason
    assert isinstance(stopped, Refused)
    with closing(Connections()) as connections:
        checks = check_host(settings, connections, reboot=False, redact=Redactor())
    assert any("cannot be the name of a service" in check.message for check in checks)


@pytest.mark.parametrize("node", ["../../srv/other", "..", "es*", "es1\n/", "es\\1"])
def test_a_data_path_that_leads_elsewhere_is_sent_nowhere(node: str) -> None:
    settings = replace(host(Manager.SYSTEMD, node=node), data=("/var/lib/es/{node}",))
    said = services.fault(settings)
    assert said is not None
    assert "cannot be a part of a path" in said
    assert services.fault(replace(settings, data=("/var/lib/es",))) is None


@pytest.mark.parametrize("manager", [Manager.SYSTEMD, Manager.DOCKER])
def test_a_read_ends_its_options_before_the_name(manager: Manager) -> None:
    assert " -- elasticsearch " in services.status_command(host(manager))


def test_a_status_that_sudo_refuses_is_no_word_about_the_service() -> None:
    """Sudo exits 1 then, as the command itself does of a service that does not run."""
    settings = host(Manager.COMMAND, status="sudo -n /usr/sbin/riak ping")
    refused = Section(exit=1, text="sudo: a password is required")
    reading = services.read_state(settings, refused)
    assert isinstance(reading, Unknown)
    assert (
        "refused by sudo: sudo: a password is required; copy the sudoers file of docs/how-to/least-rights.md"
        in reading.reason
    )
    down = Section(exit=1, text="Node riak@riak1 is not responding to pings")
    assert services.read_state(settings, down) == ServiceReading(
        state=ServiceState.STOPPED, detail="Node riak@riak1 is not responding to pings"
    )


@pytest.mark.parametrize(
    ("manager", "answer", "state"),
    [
        (Manager.SYSV, Section(exit=0, text=" * elasticsearch is running"), ServiceState.RUNNING),
        (Manager.SYSV, Section(exit=1, text="dead but pid file exists"), ServiceState.FAILED),
        (Manager.SYSV, Section(exit=2, text=""), ServiceState.FAILED),
        (Manager.SYSV, Section(exit=3, text="stopped"), ServiceState.STOPPED),
        (Manager.DOCKER, Section(exit=0, text="running|0|2026|"), ServiceState.RUNNING),
        (Manager.DOCKER, Section(exit=0, text="restarting|1|2026|"), ServiceState.STARTING),
        (Manager.DOCKER, Section(exit=0, text="created|0|2026|"), ServiceState.STOPPED),
        (Manager.DOCKER, Section(exit=0, text="exited|143|2026|"), ServiceState.STOPPED),
        (Manager.DOCKER, Section(exit=0, text="exited|137|2026|"), ServiceState.FAILED),
        (Manager.DOCKER, Section(exit=0, text="dead|0|2026|"), ServiceState.FAILED),
        (Manager.COMMAND, Section(exit=0, text="up"), ServiceState.RUNNING),
        (Manager.COMMAND, Section(exit=1, text=""), ServiceState.STOPPED),
    ],
)
def test_states_of_the_other_managers(manager: Manager, answer: Section, state: ServiceState) -> None:
    reading = services.read_state(host(manager), answer)
    assert isinstance(reading, ServiceReading)
    assert reading.state is state


@pytest.mark.parametrize(
    ("settings", "output", "nothing"),
    [
        (host(Manager.SYSTEMD), "Failed to stop es.service: Unit es.service not loaded.", True),
        (host(Manager.SYSTEMD), "Failed to start es.service: Connection timed out", False),
        (host(Manager.SYSTEMD, mode=Sudo.PASSWORDLESS), "sudo: a password is required", True),
        (host(Manager.SYSV), "stopping: timeout", False),
        (host(Manager.SYSV), "es: unrecognized service", True),
        (host(Manager.SYSV), "/etc/init.d/es: 9: rm-pid: not found", False),
        (host(Manager.DOCKER), "Error response from daemon: No such container: es1", True),
        (host(Manager.DOCKER), "Error response from daemon: cannot stop container", False),
        (host(Manager.COMMAND), "sh: 1: ctl: not found", True),
        (host(Manager.COMMAND), "bash: line 1: ctl: command not found", True),
        (host(Manager.COMMAND), "/bin/sh: 1: ctl: Permission denied", True),
        (host(Manager.COMMAND), "half done", False),
        (host(Manager.COMMAND), "", False),
        (host(Manager.COMMAND, stop="kill $(cat pid); ctl tell"), "sh: 1: ctl: not found", False),
        (host(Manager.COMMAND), "/usr/bin/ctl: 3: tell: not found", False),
        (host(Manager.COMMAND), "stopping\nsudo: a password is required", False),
        (host(Manager.COMMAND, mode=Sudo.PASSWORDLESS), "sudo: a password is required", True),
        (host(Manager.COMMAND, stop="docker stop a; docker stop b"), "No such container: b", False),
    ],
)
def test_certainly_nothing_done(settings: HostSettings, output: str, *, nothing: bool) -> None:
    line = services.command(settings, Verb.STOP)
    assert outcomes.did_nothing(settings, line, output) is nothing


MATCHED = (
    "Sudoers entry: /etc/sudoers.d/x\n    RunAsUsers: root\n{options}    Commands:\n\tALL\n    Matched: /x\n"
)
OPEN = MATCHED.format(options="    Options: !authenticate\n")
ASKS = MATCHED.format(options="")


@pytest.mark.parametrize(
    ("mode", "code", "output", "never_asks", "allowed"),
    [
        (Sudo.PASSWORDLESS, 0, OPEN, False, True),
        # Seen on 1.9.16: -l succeeds though the command itself would ask for a password.
        (Sudo.PASSWORDLESS, 0, ASKS, False, False),
        (Sudo.PASSWORDLESS, 0, ASKS, True, True),
        (Sudo.PASSWORDLESS, 0, "/usr/bin/systemctl stop elasticsearch", False, True),  # before 1.9.13
        (Sudo.PASSWORDLESS, 1, "sudo: a password is required", False, False),
        (Sudo.PASSWORD, 0, ASKS, False, True),
        (Sudo.PASSWORD, 1, "sudo: 1 incorrect password attempt", False, False),
    ],
)
def test_what_sudo_allows(mode: Sudo, code: int, output: str, *, never_asks: bool, allowed: bool) -> None:
    assert sudo.allows(mode, code, output, never_asks=never_asks) is allowed


@pytest.mark.parametrize(
    ("output", "refused"),
    [
        ("sudo: a password is required", True),
        ("sudo: sorry, you must have a tty to run sudo", True),
        ("Sorry, user pw is not allowed to execute '/usr/bin/false' as root on h.", True),
        ("deploy is not in the sudoers file.  This incident will be reported.", True),
        ("sudo: unable to resolve host es1: Name or service not known", False),
        ("Failed to stop es.service: Unit es.service not loaded.", False),
    ],
)
def test_refusals_of_sudo(output: str, *, refused: bool) -> None:
    assert (sudo.refusal(output) is not None) is refused


def test_settings_refuse_what_cannot_work() -> None:
    with pytest.raises(ConfigError, match=r"hosts\.service\.start"):
        ServiceSettings(manager=Manager.COMMAND, stop="x", status="y")
    with pytest.raises(ConfigError, match=r"hosts\.sudo"):
        HostSettings(node="n", address="n", sudo=Sudo.PASSWORD)
    assert "secret" not in repr(host(Manager.SYSTEMD, mode=Sudo.PASSWORD))
