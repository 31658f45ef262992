"""Command lines and answers of the service managers, as tables."""

from __future__ import annotations

import re
import subprocess
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
from orchestrator.sudo_question import ASK_SUDO, ONLY_DOAS
from orchestrator.untrusted import UntrustedValue
from tests.tools import SHELLS, needs

SYSTEMD, SYSV, DOCKER, COMMAND = Manager.SYSTEMD, Manager.SYSV, Manager.DOCKER, Manager.COMMAND
RUNNING, STOPPED, FAILED = ServiceState.RUNNING, ServiceState.STOPPED, ServiceState.FAILED
STARTING, STOPPING = ServiceState.STARTING, ServiceState.STOPPING


def host(manager: Manager, *, mode: Sudo = Sudo.OFF, node: str = "es1", **service: object) -> HostSettings:
    if manager is COMMAND:
        lines = {verb: f"ctl {verb} {{node}}" for verb in ("stop", "start", "status")}
        service = {**lines, **service}
    made = ServiceSettings(manager=manager, **service)
    return HostSettings(node=node, address="es1", sudo=mode, sudo_password=lambda: "secret", service=made)


def checked(settings: HostSettings) -> dict[Point, str]:
    """What `validate` finds wrong."""
    with closing(Connections()) as connections:
        checks = check_host(settings, connections, reboot=False, redact=Redactor())
    return {check.point: check.message for check in checks if check.grade is Grade.BAD}


# Command lines.


def test_command_lines(subtests: pytest.Subtests) -> None:
    systemctl = "/usr/bin/systemctl --no-block"
    for settings, stop, start in [
        (
            host(SYSTEMD, mode=Sudo.PASSWORDLESS),
            f"sudo -n {systemctl} stop elasticsearch",
            f"sudo -n {systemctl} start elasticsearch",
        ),
        (host(SYSTEMD, unit="es-{node}"), f"{systemctl} stop es-es1", f"{systemctl} start es-es1"),
        (
            host(SYSV, mode=Sudo.PASSWORD),
            "sudo -k -S -p '' /usr/sbin/service elasticsearch stop",
            "sudo -k -S -p '' /usr/sbin/service elasticsearch start",
        ),
        (
            host(DOCKER, unit="{node}", grace=90.0),
            "/usr/bin/docker stop -t 90 es1",
            "/usr/bin/docker start es1",
        ),
        (host(COMMAND), "ctl stop es1", "ctl start es1"),
        (
            host(COMMAND, mode=Sudo.PASSWORDLESS, stop="cd /opt && ./stop {node}"),
            "sudo -n /bin/sh -c 'cd /opt && ./stop es1'",
            "sudo -n ctl start es1",
        ),
        (
            host(SYSTEMD, program="/bin/systemctl", unit="es\\x2d1"),
            "/bin/systemctl --no-block stop 'es\\x2d1'",
            "/bin/systemctl --no-block start 'es\\x2d1'",
        ),
    ]:
        with subtests.test(stop):
            assert services.command(settings, Verb.STOP) == stop
            assert services.command(settings, Verb.START) == start


def test_reads_never_go_through_sudo_and_end_their_options() -> None:
    for manager in Manager:
        settings = host(manager, mode=Sudo.PASSWORDLESS)
        assert "sudo" not in services.status_command(settings)
        assert "sudo" not in services.mark_command(settings)
    for manager in (SYSTEMD, DOCKER):
        assert " -- elasticsearch " in services.status_command(host(manager))


def test_a_status_that_needs_root_uses_sudo_unless_root(subtests: pytest.Subtests) -> None:
    """As another user `riak ping` cannot read its configuration, and says that a running node is down."""
    plain, through = (f"/bin/sh -c '{words}riak ping' </dev/null 2>&1" for words in ("", "sudo -n "))
    for mode, line in {
        Sudo.OFF: plain,
        Sudo.PASSWORDLESS: through,
        Sudo.PASSWORD: through,
        Sudo.AUTO: f"if {sudo.IS_ROOT}; then {plain}; else {through}; fi",
    }.items():
        with subtests.test(mode):
            settings = host(COMMAND, mode=mode, status="riak ping", status_as_root=True)
            assert services.status_command(settings) == line


# Answers.


def show(active: str, sub: str, **more: str) -> Section:
    """What `systemctl show` prints of a unit."""
    usual = {"MainPID": "42", "Result": "success", "ExecMainStatus": "0", "LoadState": "loaded", "Job": "0"}
    lines = {**usual, **more, "ActiveState": active, "SubState": sub}
    return Section(exit=0, text="\n".join(f"{name}={value}" for name, value in lines.items()))


def test_states_of_a_service(subtests: pytest.Subtests) -> None:
    failed = {"Result": "exit-code"}
    for manager, answer, state, detail in [
        (SYSTEMD, show("active", "running"), RUNNING, "active (running)"),
        (SYSTEMD, show("reloading", "reload"), RUNNING, "reloading (reload)"),
        (SYSTEMD, show("inactive", "dead"), STOPPED, "inactive (dead)"),
        (SYSTEMD, show("inactive", "dead", Job="812"), STARTING, "inactive (dead), a job is queued"),
        (SYSTEMD, show("activating", "start"), STARTING, "activating (start)"),
        (SYSTEMD, show("activating", "auto-restart"), STARTING, "activating (auto-restart)"),
        (SYSTEMD, show("deactivating", "stop-sigterm"), STOPPING, "deactivating (stop-sigterm)"),
        (SYSTEMD, show("failed", "failed", **failed), FAILED, "failed (Result: exit-code)"),
        (
            SYSTEMD,
            show("failed", "failed", **failed, ExecMainStatus="78"),
            FAILED,
            "failed (Result: exit-code, status 78)",
        ),
        (SYSTEMD, show("failed", "failed", Job="9"), STARTING, "failed (failed), a job is queued"),
        (SYSV, Section(exit=0, text=" * elasticsearch is running"), RUNNING, None),
        (SYSV, Section(exit=1, text="dead but pid file exists"), FAILED, None),
        (SYSV, Section(exit=2, text=""), FAILED, None),
        (SYSV, Section(exit=3, text="stopped"), STOPPED, None),
        (DOCKER, Section(exit=0, text="running|0|2026|"), RUNNING, None),
        (DOCKER, Section(exit=0, text="restarting|1|2026|"), STARTING, None),
        (DOCKER, Section(exit=0, text="created|0|2026|"), STOPPED, None),
        (DOCKER, Section(exit=0, text="exited|143|2026|"), STOPPED, None),
        (DOCKER, Section(exit=0, text="exited|137|2026|"), FAILED, None),
        (DOCKER, Section(exit=0, text="dead|0|2026|"), FAILED, None),
        (COMMAND, Section(exit=0, text="up"), RUNNING, None),
        (COMMAND, Section(exit=1, text=""), STOPPED, None),
        (COMMAND, Section(exit=1, text="Node is not responding"), STOPPED, "Node is not responding"),
    ]:
        with subtests.test(manager=manager, answer=answer):
            reading = services.read_state(host(manager), answer)
            assert isinstance(reading, ServiceReading)
            assert reading.state is state
            assert detail in {None, reading.detail}


def test_what_is_not_understood_is_unknown(subtests: pytest.Subtests) -> None:
    for manager, answer, words in [
        (SYSTEMD, show("inactive", "dead", LoadState="not-found"), "has no unit elasticsearch"),
        (SYSTEMD, show("inactive", "dead", LoadState="masked"), "systemctl unmask"),
        (SYSTEMD, show("active", "exited"), "does not follow its process"),
        (SYSTEMD, show("maintenance", "x"), "maintenance"),
        (SYSTEMD, Section(exit=1, text="Failed to connect to bus: No such file"), "connect to bus"),
        (SYSTEMD, Section(exit=127, text=""), "exit 127"),
        (SYSV, Section(exit=4, text=""), "status exits 4"),
        (SYSV, Section(exit=127, text="sh: /usr/sbin/service: not found"), "not found"),
        (SYSV, Section(exit=1, text="es: unrecognized service"), "unrecognized service"),
        (DOCKER, Section(exit=1, text="Error: No such container: es1"), "No such container"),
        (DOCKER, Section(exit=1, text="permission denied while trying"), "group docker"),
        (DOCKER, Section(exit=0, text="paused|0|x|"), "paused"),
        (COMMAND, Section(exit=127, text="ctl: not found"), "cannot be run"),
        (COMMAND, Section(exit=126, text=""), "cannot be run"),
        # Sudo exits 1, as the command itself does of a service that does not run.
        (
            COMMAND,
            Section(exit=1, text="sudo: a password is required"),
            "refused by sudo: sudo: a password is required; copy the sudoers file of docs/how-to",
        ),
    ]:
        with subtests.test(manager=manager, answer=answer):
            lines = {"status": "sudo -n /usr/sbin/riak ping"} if manager is COMMAND else {}
            reading = services.read_state(host(manager, **lines), answer)
            assert isinstance(reading, Unknown)
            assert words in reading.reason


@pytest.mark.parametrize("rights", [True, False])
def test_a_unit_that_runs_and_is_masked_is_held_before_the_stop(tmp_path: Path, *, rights: bool) -> None:
    """It was stopped, and then its start was refused."""
    systemctl = tmp_path / "systemctl"
    answer = show("active", "running", LoadState="masked").text
    systemctl.write_text(f"#!/bin/sh\ncat <<'end'\n{answer}\nend\n")
    systemctl.chmod(0o755)
    settings = replace(host(SYSTEMD, program=str(systemctl)), connect=Connect.LOCAL)
    with closing(Hosts({"es1": settings})) as hosts:
        view = hosts.observe(["es1"], rights=rights)["es1"]
    assert isinstance(view, HostView)
    assert (view.service, view.may_control) == (RUNNING, False)
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


NAMES = [
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
]
"""Units and nodes that a service manager would read as an option, another file, or several services."""


@pytest.mark.parametrize("manager", [SYSTEMD, SYSV, DOCKER])
def test_a_unit_that_names_something_else_is_sent_nowhere(
    subtests: pytest.Subtests, manager: Manager
) -> None:
    for unit, node in NAMES:
        with subtests.test(unit=unit, node=node):
            settings = host(manager, unit=unit, node=node)
            stop = partial(services.plain_command, settings, Verb.STOP)
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


def test_certainly_nothing_done(subtests: pytest.Subtests) -> None:
    passwordless = {"mode": Sudo.PASSWORDLESS}
    for settings, output, nothing in [
        (host(SYSTEMD), "Failed to stop es.service: Unit es.service not loaded.", True),
        (host(SYSTEMD), "Failed to start es.service: Connection timed out", False),
        (host(SYSTEMD, **passwordless), "sudo: a password is required", True),
        (host(SYSV), "stopping: timeout", False),
        (host(SYSV), "es: unrecognized service", True),
        (host(SYSV), "/etc/init.d/es: 9: rm-pid: not found", False),
        (host(DOCKER), "Error response from daemon: No such container: es1", True),
        (host(DOCKER), "Error response from daemon: cannot stop container", False),
        (host(COMMAND), "sh: 1: ctl: not found", True),
        (host(COMMAND), "bash: line 1: ctl: command not found", True),
        (host(COMMAND), "/bin/sh: 1: ctl: Permission denied", True),
        (host(COMMAND), "half done", False),
        (host(COMMAND), "", False),
        (host(COMMAND, stop="kill $(cat pid); ctl tell"), "sh: 1: ctl: not found", False),
        (host(COMMAND), "/usr/bin/ctl: 3: tell: not found", False),
        (host(COMMAND), "stopping\nsudo: a password is required", False),
        (host(COMMAND, **passwordless), "sudo: a password is required", True),
        (host(COMMAND, stop="docker stop a; docker stop b"), "No such container: b", False),
    ]:
        with subtests.test(manager=settings.service.manager, output=output):
            line = services.command(settings, Verb.STOP)
            assert outcomes.did_nothing(settings, line, output) is nothing


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


OF_SUDO_RS = (
    "sudo-rs: interactive authentication is required",
    "sudo-rs: I'm sorry deploy. I'm afraid I can't do that",
    "\nsudo: Authentication failed, try again.\n\nsudo-rs: Maximum 3 incorrect authentication attempts",
    "sudo: maximum 3 incorrect authentication attempts",
)
"""As sudo-rs 0.2.5 says them: no status behind it reads as stopped, and no verb as in doubt."""


def test_refusals_of_sudo(subtests: pytest.Subtests) -> None:
    for output, refused in {
        "sudo: a password is required": True,
        "sudo: sorry, you must have a tty to run sudo": True,
        "Sorry, user pw is not allowed to execute '/usr/bin/false' as root on h.": True,
        "deploy is not in the sudoers file.  This incident will be reported.": True,
        "sudo: unable to resolve host es1: Name or service not known": False,
        "Failed to stop es.service: Unit es.service not loaded.": False,
        **dict.fromkeys(OF_SUDO_RS, True),
    }.items():
        with subtests.test(output):
            assert (sudo.refusal(output) is not None) is refused
    behind = host(COMMAND, **{verb: f"sudo -n a {verb}" for verb in ("stop", "start", "status")})
    for output in OF_SUDO_RS:
        status = services.read_state(behind, Section(exit=1, text=output))
        assert isinstance(status, Unknown)
        assert "refused by sudo" in status.reason
        line = services.command(behind, Verb.STOP)
        assert isinstance(outcomes.result_of(behind, Verb.STOP, line, 1, output), Refused)


def test_settings_refuse_what_cannot_work() -> None:
    with pytest.raises(ConfigError, match=r"hosts\.service\.start"):
        ServiceSettings(manager=COMMAND, stop="x", status="y")
    with pytest.raises(ConfigError, match=r"hosts\.sudo"):
        HostSettings(node="n", address="n", sudo=Sudo.PASSWORD)
    assert "secret" not in repr(host(SYSTEMD, mode=Sudo.PASSWORD))
