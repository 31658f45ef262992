"""What came of a ping, a stop and a start, by their texts: the recorded ones, and those of Riak's source."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from orchestrator.hosts import outcomes, services
from orchestrator.hosts.script import Section
from orchestrator.hosts.services import ServiceReading, ServiceVerb
from orchestrator.model.action import ActionResult, InDoubt, Refused
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown
from orchestrator.riak.output import CommandOutput, node_down
from orchestrator.riak.wording import RiakWording
from tests.fakes.cases import cases

PROGRAM = "/usr/sbin/riak"
DOWN = "Node riak@riak1 is not responding to pings"
ULIMIT = "!!!!\n!!!! WARNING: ulimit -n is 1024; 65536 is the recommended minimum.\n!!!!"
CODES = (0, 1)


def host(program: str = PROGRAM, *, mode: Sudo = Sudo.OFF, **lines: str) -> HostSettings:
    usual = {"stop": f"{program} stop", "start": f"{program} start", "status": f"{program} ping"}
    service = ServiceSettings(
        manager=Manager.COMMAND,
        wording=RiakWording(program=tuple(program.split())),
        stop=lines.get("stop", usual["stop"]),
        start=lines.get("start", usual["start"]),
        status=lines.get("status", usual["status"]),
        status_as_root="status" not in lines,
    )
    return HostSettings(node="riak@riak1", address="riak1", sudo=mode, service=service)


def init_script() -> HostSettings:
    service = ServiceSettings(manager=Manager.SYSV, unit="riak", wording=RiakWording(program=(PROGRAM,)))
    return HostSettings(node="riak@riak1", address="riak1", service=service)


def state_of(settings: HostSettings, code: int, text: str) -> ServiceState | None:
    """None: unknown."""
    found = services.read_state(settings, Section(exit=code, text=text))
    return None if isinstance(found, Unknown) else found.state


def result(settings: HostSettings, verb: ServiceVerb, code: int, text: str) -> ActionResult:
    return outcomes.result_of(settings, verb, services.command(settings, verb), code, text)


SETTINGS = {
    "riak": host(),
    "own": host(stop="riak stop && riak stop", start="depool {node}; riak start", status="my-status {node}"),
    "init": init_script(),
}
"""Riak's own commands, lines of the operator, which keep their exit codes, and the init script."""


def test_what_came_of_a_command_by_its_text(subtests: pytest.Subtests) -> None:
    """The packaged `riak` exits 0 for a node that is down: it counted as running, and was never started."""
    for case, expected in cases("riak/outcomes.txt"):
        head, _, text = case.partition("\n")
        word, _, code = head.partition(" ")
        text = text.removesuffix("\n")
        for whose, _, outcome in (line.partition(": ") for line in expected):
            for name in whose.split():
                with subtests.test(case, name=name):
                    if word == "status":
                        state = state_of(SETTINGS[name], int(code), text)
                        assert (state.name if state else "unknown") == outcome
                        assert (
                            outcome != "STOPPED"
                            or name == "own"
                            or node_down(CommandOutput(exit=0, stdout=text))
                        ), "the pattern for the host is the parsers'"
                        continue
                    found = result(SETTINGS[name], ServiceVerb(word), int(code), text)
                    assert type(found).__name__ == outcome, found
                    if name == "riak" and isinstance(found, InDoubt | Refused) and text:
                        assert text.splitlines()[0][:40] in found.reason
    reading = services.read_state(host(), Section(exit=0, text=DOWN))
    assert reading == ServiceReading(state=ServiceState.STOPPED, detail=DOWN)


OWN = (
    f"{PROGRAM} ping",
    "riak stop",
    "sudo -n /usr/sbin/riak daemon",
    "sudo -H -u riak /opt/riak/bin/riak start",
    "sudo -uriak riak stop",
    "sudo -nHu riak riak stop",
    "sudo -n -p pass riak stop",
    "sudo --user riak riak stop",
    "sudo --user=riak --non-interactive riak stop",
    "sudo --non-interactive --group riak riak ping",
    "sudo -u riak -- riak stop",
    "/usr/bin/sudo -n -u riak riak stop",
)
OF_OTHERS = (
    *("sudo --user riak", "sudo -n -u riak stop", "sudo --user riak my-riak.sh stop", "/opt/ring.sh ping"),
    *("service riak stop", "/etc/init.d/riak-kv stop", "riak stop && riak stop", "pkill riak"),
    *("riak", "", "sudo"),
)


def test_which_lines_are_commands_of_riak(subtests: pytest.Subtests) -> None:
    inside = RiakWording(program=("docker", "exec", "ring", "riak"))
    script = RiakWording(program=("/opt/ring.sh",))
    usual = RiakWording(program=(PROGRAM,))
    for wording, lines, own in (
        (usual, OWN, True),
        (usual, OF_OTHERS, False),
        (inside, ["docker exec ring riak ping"], True),
        (inside, ["docker exec other riak ping"], False),
        (script, ["/opt/ring.sh ping"], True),
    ):
        for line in lines:
            with subtests.test(line):
                assert wording.decides(line) is own


def test_a_refusal_of_sudo_is_said_as_such() -> None:
    found = result(host(mode=Sudo.PASSWORDLESS), ServiceVerb.STOP, 1, "sudo: a password is required")
    assert isinstance(found, Refused)
    assert found.reason.startswith(
        "sudo refused: sudo: a password is required; copy the sudoers file that `orchestrate explain least-"
    )


# What runs on the host -----------------------------------------------------------------------------------

SAID = {"pong": True, f"{ULIMIT}\npong": True, "pong\r": True, DOWN: False, "": False, "pong pong": False}


def run(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)  # noqa: S603  (these tests' lines)


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> HostSettings:
    """A `riak` that prints the file `said` and exits with the number in `code`."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "riak"
    script.write_text(f"#!/bin/sh\ncat {folder}/said; exit $(cat {folder}/code)\n")
    script.chmod(0o755)
    return host(str(script))


def say(settings: HostSettings, text: str, code: int) -> None:
    assert settings.service.status is not None
    folder = settings.service.status.rpartition("/")[0]
    run(f"printf '%s\\n' '{text}' >{folder}/said; echo {code} >{folder}/code")


def test_a_start_is_left_out_only_where_the_node_answers(
    subtests: pytest.Subtests, program: HostSettings
) -> None:
    """By its exit code the packaged `riak ping` succeeds always: a node that was down was never started."""
    for text, answers in SAID.items():
        for code in CODES:
            with subtests.test(text=text, code=code):
                say(program, text, code)
                line = services.running_command(program)
                done = run(f"if {line}\nthen exit 0; fi; exit 1")
                assert (done.returncode == 0, done.stdout, done.stderr) == (answers, "", "")
    for code, text, runs in ((0, "up", True), (1, "up", False), (0, DOWN, False), (1, DOWN, False)):
        say(program, text, code)
        own = replace(program.service, status=f"{program.service.status}; exit {code}")
        done = run(services.running_command(replace(program, service=own)))
        assert (done.returncode == 0, done.stdout, done.stderr) == (runs, "", "")


def test_the_mark_on_the_host_is_that_of_the_reading(
    subtests: pytest.Subtests, program: HostSettings
) -> None:
    for text, answers in SAID.items():
        for code in CODES:
            with subtests.test(text=text, code=code):
                say(program, text, code)
                answer = run(services.status_command(program))
                known = services.mark(
                    program, Section(exit=answer.returncode, text=answer.stdout.strip("\n"))
                )
                assert run(f'printf %s "$({services.mark_command(program)})"').stdout == known
                say(program, DOWN if answers else "pong", code)
                assert run(f'printf %s "$({services.mark_command(program)})"').stdout != known
