"""What came of a ping, a stop and a start, by their texts: the recorded ones, and those of Riak's source."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from orchestrator.hosts import outcomes, services
from orchestrator.hosts.managers.manager import ServiceReading, Verb
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, Manager, ServiceSettings, Sudo
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.output import CommandOutput, node_down
from orchestrator.stores.riak.wording import RiakWording
from tests.fakes.riak_meanings import parser_of, value_of
from tests.fakes.riak_transcripts import recorded

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


def test_a_node_that_is_down_is_stopped_whatever_the_exit_code(subtests: pytest.Subtests) -> None:
    """The packaged `riak` exits 0 then: the service counted as running, and was never started again."""
    for text in [
        DOWN,
        "Node 'riak@riak1' not responding to pings.",
        "Node did not respond to ping!",
        f"{ULIMIT}\n{DOWN}",
    ]:
        for code in CODES:
            with subtests.test(text=text, code=code):
                assert state_of(host(), code, text) is STOPPED
                assert state_of(host(status="my-status {node}"), code, text) is STOPPED
                assert state_of(init_script(), code, text) is STOPPED


def test_the_text_is_the_detail_of_a_reading() -> None:
    found = services.read_state(host(), Section(exit=0, text=DOWN))
    assert found == ServiceReading(state=STOPPED, detail=DOWN)


@pytest.mark.parametrize(
    "text",
    [
        "pong",
        f"{ULIMIT}\npong",
        "sudo: unable to resolve host riak1: Name or service not known\npong",
        "bash: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8)\npong\r",
    ],
)
def test_pong_is_a_service_that_runs(text: str) -> None:
    assert state_of(host(), 0, text) is RUNNING


def test_any_other_text_of_a_ping_is_unknown(subtests: pytest.Subtests) -> None:
    for text in ["", "pang", "pon", "pong pong", "hello\npong", "{badrpc,nodedown}", USAGE, f"pong\n{DOWN}"]:
        for code in CODES:
            with subtests.test(text=text, code=code):
                assert state_of(host(), code, text) is None


def test_pong_with_a_bad_exit_code_is_unknown() -> None:
    assert state_of(host(), 1, "pong") is None
    assert state_of(host(status="my-status"), 1, "pong") is None


@pytest.mark.parametrize(
    ("code", "text", "state"), [(0, "up", RUNNING), (0, "", RUNNING), (1, "", STOPPED), (3, "down", STOPPED)]
)
def test_a_status_line_of_the_operator_keeps_its_exit_code(code: int, text: str, state: ServiceState) -> None:
    assert state_of(host(status="my-status {node}"), code, text) is state


def test_which_lines_are_commands_of_riak(subtests: pytest.Subtests) -> None:
    for line, own in [
        (f"{PROGRAM} ping", True),
        ("riak stop", True),
        ("sudo -n /usr/sbin/riak daemon", True),
        ("sudo -H -u riak /opt/riak/bin/riak start", True),
        ("sudo -uriak riak stop", True),
        ("sudo -nHu riak riak stop", True),
        ("sudo -n -p pass riak stop", True),
        ("sudo --user riak riak stop", True),
        ("sudo --user=riak --non-interactive riak stop", True),
        ("sudo --non-interactive --group riak riak ping", True),
        ("sudo -u riak -- riak stop", True),
        ("/usr/bin/sudo -n -u riak riak stop", True),
        ("sudo --user riak", False),
        ("sudo -n -u riak stop", False),
        ("sudo --user riak my-riak.sh stop", False),
        ("/opt/ring.sh ping", False),
        ("service riak stop", False),
        ("/etc/init.d/riak-kv stop", False),
        ("riak stop && riak stop", False),
        ("pkill riak", False),
        ("riak", False),
        ("", False),
        ("sudo", False),
    ]:
        with subtests.test(line=line, own=own):
            assert RiakWording(program=(PROGRAM,)).decides(line) is own


def test_the_words_of_the_file_are_a_command_of_riak() -> None:
    words = ("docker", "exec", "ring", "riak")
    assert RiakWording(program=words).decides("docker exec ring riak ping")
    assert not RiakWording(program=words).decides("docker exec other riak ping")
    assert RiakWording(program=("/opt/ring.sh",)).decides("/opt/ring.sh ping")


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


def test_an_operators_start_keeps_its_exit_code(
    subtests: pytest.Subtests,
) -> None:
    for code, text, kind in [
        (0, "started", Done),
        (1, "half done", Refused),
        (0, "Error reading /etc/riak/app.config", Refused),
        (0, LATE, InDoubt),
        (1, "Node is already running!", Done),
    ]:
        with subtests.test(code=code, text=text, kind=kind):
            for settings in (host(start="depool {node}; riak start"), init_script()):
                assert isinstance(result(settings, Verb.START, code, text), kind)


@pytest.mark.parametrize(("code", "text", "kind"), [(0, "", Done), (0, DOWN, Done), (0, USAGE, Refused)])
def test_a_stop_of_the_operator_keeps_its_exit_code(code: int, text: str, kind: type[ActionResult]) -> None:
    for settings in (host(stop="riak stop && riak stop"), init_script()):
        assert isinstance(result(settings, Verb.STOP, code, text), kind)


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


@pytest.mark.parametrize(
    ("code", "text", "runs"), [(0, "up", True), (1, "up", False), (0, DOWN, False), (1, DOWN, False)]
)
def test_so_it_is_with_a_status_line_of_the_operator(
    program: HostSettings, code: int, text: str, *, runs: bool
) -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        DOWN,
        "Node 'riak@riak1' not responding to pings.",
        "Node did not respond to ping!",
        "Node is not running!",
    ],
)
def test_the_pattern_for_the_host_is_that_of_the_parsers(text: str) -> None:
    assert re.search(RiakWording(program=(PROGRAM,)).stopped, text)
    assert node_down(CommandOutput(exit=0, stdout=text))


# Every command ------------------------------------------------------------------------------------------

READ = [each for each in recorded() if parser_of(each.command) is not None and each.exit]


def test_a_recorded_failure_is_one_with_exit_code_0_too(subtests: pytest.Subtests) -> None:
    """As the packaged `riak` has it; what was recorded with 0 stays what it is."""
    for record in READ:
        with subtests.test(str(record)):
            packaged, meant = value_of(replace(record, exit=0)), value_of(record)
            assert isinstance(packaged, Unknown) == isinstance(meant, Unknown)
            assert isinstance(meant, Unknown) or packaged == meant
