"""What came of a ping, a stop and a start, by their texts: the recorded ones, and those of Riak's source."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from itertools import product

import pytest

from orchestrator.hosts import outcomes, services
from orchestrator.hosts.managers.manager import ServiceReading, Verb
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.hosts import Manager
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.output import CommandOutput, node_down
from orchestrator.stores.riak.wording import RiakWording

PROGRAM = "/usr/sbin/riak"
DOWN = "Node riak@riak1 is not responding to pings"
DEPRECATED = (
    "riak start is deprecated, and scripts should be change to use riak daemon where riak cannot be started"
    " as a service.  Riak starting .."
)
ULIMIT = "!!!!\n!!!! WARNING: ulimit -n is 1024; 65536 is the recommended minimum.\n!!!!"
LATE = "Riak failed to start within 15 seconds,\nsee the output of 'riak console' for more information."
USAGE = "Usage: riak [COMMAND] [ARGS]\n\nCommands:\n\n  foreground              Start release"
RUNNING, STOPPED = ServiceState.RUNNING, ServiceState.STOPPED
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


def result(settings: HostSettings, verb: Verb, code: int, text: str) -> ActionResult:
    return outcomes.result_of(settings, verb, services.command(settings, verb), code, text)


NOT_RUNNING = (
    DOWN,
    "Node 'riak@riak1' not responding to pings.",
    "Node did not respond to ping!",
    "Node is not running!",
)
PONG = (
    "pong",
    f"{ULIMIT}\npong",
    "sudo: unable to resolve host riak1: Name or service not known\npong",
    "bash: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8)\npong\r",
)
OTHER = ("", "pang", "pon", "pong pong", "hello\npong", "{badrpc,nodedown}", USAGE, f"pong\n{DOWN}")


def test_the_state_of_a_service_by_its_text(subtests: pytest.Subtests) -> None:
    """The packaged `riak` exits 0 for a node that is down: it counted as running, and was never started."""
    own = host(status="my-status {node}")
    for text in (*NOT_RUNNING, f"{ULIMIT}\n{DOWN}"):
        for code, settings in product(CODES, (host(), own, init_script())):
            with subtests.test(text, code=code):
                assert state_of(settings, code, text) is STOPPED
    for text, state in ((text, state) for texts, state in ((PONG, RUNNING), (OTHER, None)) for text in texts):
        with subtests.test(text):
            assert state_of(host(), 0, text) is state
            assert state_of(host(), 1, text) is None
    assert state_of(own, 1, "pong") is None
    for code, text, found in ((0, "up", RUNNING), (0, "", RUNNING), (1, "", STOPPED), (3, "down", STOPPED)):
        assert state_of(own, code, text) is found, "a line of the operator keeps its exit code"
    reading = services.read_state(host(), Section(exit=0, text=DOWN))
    assert reading == ServiceReading(state=STOPPED, detail=DOWN)
    for text in NOT_RUNNING:
        assert re.search(RiakWording(program=(PROGRAM,)).stopped, text)
        assert node_down(CommandOutput(exit=0, stdout=text)), "the pattern for the host is the parsers'"


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


def test_what_came_of_a_stop_and_a_start(subtests: pytest.Subtests) -> None:
    for verb, code, text, kind in [
        (Verb.STOP, 0, "ok", Done),
        (Verb.STOP, 1, "ok", InDoubt),
        (Verb.STOP, 0, "", InDoubt),
        (Verb.STOP, 1, "", InDoubt),
        (Verb.STOP, 0, DOWN, InDoubt),
        (Verb.STOP, 1, DOWN, InDoubt),
        (Verb.STOP, 0, f"ok\n{DOWN}", InDoubt),
        (Verb.STOP, 0, "{badrpc,timeout}", InDoubt),
        (Verb.STOP, 0, USAGE, Refused),
        (Verb.STOP, 0, "su: Authentication failure", Refused),
        (Verb.STOP, 0, "sh: 1: /usr/sbin/riak: not found", Refused),
        (Verb.STOP, 127, "sh: 1: /usr/sbin/riak: not found", Refused),
        (Verb.START, 0, "", Done),
        (Verb.START, 0, ULIMIT, Done),
        (Verb.START, 0, DEPRECATED, Done),
        (Verb.START, 0, f"{DEPRECATED}\n{ULIMIT}", Done),
        (Verb.START, 1, DEPRECATED, InDoubt),
        (Verb.START, 0, "Node is already running!", Done),
        (Verb.START, 1, "Node is already running!", Done),
        (Verb.START, 0, LATE, InDoubt),
        (Verb.START, 1, LATE, InDoubt),
        (Verb.START, 0, "Error reading /etc/riak/app.config", Refused),
        (Verb.START, 0, "vm.args needs to have either -name or -sname parameter.", Refused),
        (Verb.START, 0, USAGE, Refused),
        (Verb.START, 0, "{error,eacces}", InDoubt),
        (Verb.START, 1, "{error,eacces}", Refused),
        (Verb.START, 1, "", Refused),
    ]:
        with subtests.test(verb=verb, code=code, text=text, kind=kind):
            found = result(host(), verb, code, text)
            assert isinstance(found, kind), found
            if isinstance(found, InDoubt | Refused) and text:
                assert text.splitlines()[0][:40] in found.reason


def test_a_line_of_the_operator_keeps_its_exit_code(subtests: pytest.Subtests) -> None:
    stops, starts = host(stop="riak stop && riak stop"), host(start="depool {node}; riak start")
    for verb, code, text, kind in [
        (Verb.START, 0, "started", Done),
        (Verb.START, 1, "half done", Refused),
        (Verb.START, 0, "Error reading /etc/riak/app.config", Refused),
        (Verb.START, 0, LATE, InDoubt),
        (Verb.START, 1, "Node is already running!", Done),
        (Verb.STOP, 0, "", Done),
        (Verb.STOP, 0, DOWN, Done),
        (Verb.STOP, 0, USAGE, Refused),
    ]:
        with subtests.test(verb, code=code, text=text):
            for settings in (starts if verb is Verb.START else stops, init_script()):
                assert isinstance(result(settings, verb, code, text), kind)


def test_a_refusal_of_sudo_is_said_as_such() -> None:
    found = result(host(mode=Sudo.PASSWORDLESS), Verb.STOP, 1, "sudo: a password is required")
    assert isinstance(found, Refused)
    assert found.reason.startswith(
        "sudo refused: sudo: a password is required; copy the sudoers file of docs/how-to/least-rights.md"
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
