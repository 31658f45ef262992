"""Why a service did not start: what is read, when, and what is left out of it."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.hosts import script
from orchestrator.hosts.connection import CommandResult, Lost
from orchestrator.hosts.last_words import LINE_CHARACTERS, SOURCE_LINES, LastWords, last_lines, newest_log
from orchestrator.hosts.outcomes import failure_of
from orchestrator.hosts.services import MANAGERS
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.redact import Redactor
from tests.fakes.framing import part
from tests.tools import shell_words

STACK = "".join(f"\tat org.elasticsearch.Node.start(Node.java:{number})\n" for number in range(40))
JOURNAL = f"fatal exception: unknown setting [totl]\n{STACK}\t... 12 more\nERROR: did not exit normally\n"
FAILED = HostView(service=ServiceState.FAILED, detail="failed (Result: exit-code, status 1)")


class Host:
    """A connection that answers every named part with the text given for it."""

    def __init__(self, **texts: str) -> None:
        self.texts, self.asked = texts, 0
        self.lost = False

    def run(self, command: str, **_: Any) -> CommandResult | Lost:
        self.asked += 1
        assert "sudo" not in command, "an unprivileged account reads"
        if self.lost:
            return Lost(reason="the limit ran out", timed_out=True)
        return CommandResult(exit=0, stdout="".join(part(name, text) for name, text in self.texts.items()))


def settings(manager: Manager) -> HostSettings:
    return HostSettings(
        node="es1",
        address="10.0.0.1",
        service=ServiceSettings(
            manager=manager, unit="elasticsearch", stop="es stop", start="es start", status="es status"
        ),
    )


def read(
    host: Any,
    view: HostView = FAILED,
    *,
    manager: Manager = Manager.SYSTEMD,
    printed: str = "",
) -> tuple[str, ...]:
    return LastWords(Redactor()).of(settings(manager), host, view, mark="m", printed=printed)


def test_how_a_command_failed_is_said_without_the_stack() -> None:
    """Half a frame of it is all that a person would see of a start that failed, and not the cause."""
    cause = "java.lang.IllegalArgumentException: unknown setting [no.such]"
    frames = "".join(f"\tat org.opensearch.cli.Command.main(Command.java:{line})\n" for line in range(40))
    end = CommandResult(exit=1, stdout=f"uncaught exception\n\n{cause}\n{frames}", stderr="see the log\n")
    assert failure_of(end) == f"exited 1: uncaught exception\n{cause}\nsee the log"


def test_the_cause_is_said_and_not_the_stack(subtests: pytest.Subtests) -> None:
    """Of a container its log; without a journal, what the start printed."""
    status = "  Main PID: 8 (code=exited, status=1/FAILURE)"
    too_low = "max virtual memory areas vm.max_map_count is too low"
    printed = "Starting riak\nulimit is too low\n"
    stopped = {"service": ServiceState.STOPPED, "detail": "stopped"}
    for manager, texts, view, said in [
        (
            Manager.SYSTEMD,
            {"status": status, "journal": JOURNAL},
            {},
            (
                "Main PID: 8 (code=exited, status=1/FAILURE)",
                "fatal exception: unknown setting [totl]",
                "ERROR: did not exit normally",
            ),
        ),
        (Manager.SYSV, {}, stopped, ("Starting riak", "ulimit is too low")),
        (Manager.COMMAND, {}, stopped, ("Starting riak", "ulimit is too low")),
        (Manager.DOCKER, {"error": "OCI failed", "log": too_low}, {}, ("OCI failed", too_low)),
    ]:
        with subtests.test(manager=manager):
            words = "" if texts else printed
            assert read(Host(**texts), replace(FAILED, **view), manager=manager, printed=words) == said


@pytest.mark.parametrize(
    ("manager", "detail"),
    [
        (Manager.SYSTEMD, "activating (auto-restart)"),
        (Manager.SYSTEMD, "active (running), restarted by systemd: 3"),
        (Manager.DOCKER, "restarting (exit 1)"),
    ],
)
def test_a_service_that_is_started_again_and_again_has_failed(manager: Manager, detail: str) -> None:
    view = replace(FAILED, service=ServiceState.STARTING, detail=detail)
    assert read(Host(journal=JOURNAL, log=JOURNAL), view, manager=manager)


def test_a_host_that_is_well_is_asked_nothing_more() -> None:
    for state in (ServiceState.RUNNING, ServiceState.STOPPED, ServiceState.STARTING, ServiceState.STOPPING):
        host = Host(journal=JOURNAL)
        assert read(host, replace(FAILED, service=state, detail="active (running)")) == ()
        assert host.asked == 0


def test_the_same_failure_is_read_once_and_a_new_start_again() -> None:
    words, host = LastWords(Redactor()), Host(journal=JOURNAL)

    def again() -> tuple[str, ...]:
        return words.of(settings(Manager.SYSTEMD), host, FAILED, mark="m", printed="")

    assert again() == again()
    assert host.asked == 1
    words.forget("es1")
    host.texts = {"journal": "another reason"}
    assert again() == ("another reason",)


def test_a_host_that_says_nothing_in_time_costs_no_reading() -> None:
    host = Host()
    host.lost = True
    assert read(host) == ()


@pytest.mark.parametrize("manager", list(MANAGERS))
def test_what_is_said_is_bounded_visible_and_without_secrets(manager: Manager) -> None:
    nasty = "\x1b[2Jpassword=hunter2secret " + "x" * 5000 + "\n"
    text = nasty + "line\n" * 200 + nasty
    said = read(Host(status=text, journal=text, error=text, log=text), printed=text, manager=manager)
    assert said
    assert len(said) <= 4 * SOURCE_LINES
    assert all(len(line) <= LINE_CHARACTERS and line.isprintable() for line in said)
    assert "hunter2secret" not in "".join(said)


@pytest.mark.parametrize("manager", list(MANAGERS))
def test_a_real_shell_answers_every_part(manager: Manager) -> None:
    """None of the programs need be there: a part that fails keeps no other from its answer."""
    parts: list[str] = []

    class Here(Host):
        def run(self, command: str, **_: Any) -> CommandResult:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
            parts.extend(script.read_sections(done.stdout))
            return CommandResult(exit=done.returncode, stdout=done.stdout, stderr=done.stderr)

    read(Here(), manager=manager)
    assert parts == [*(name for name, _ in MANAGERS[manager].last_words(settings(manager))), "server-log"]


def test_a_long_log_is_named_as_a_short_one_is() -> None:
    """A host may have several servers; the name comes before many lines, of which the last are shown."""
    name = "/var/log/elasticsearch/prod.log:"
    for many in (1, 60):
        host = Host(**{"server-log": "\n".join([name, *(f"line {number}" for number in range(many))])})
        said = read(host)
        assert said[0] == name
        assert said[1:] == tuple(f"line {number}" for number in range(many))[1 - SOURCE_LINES :]
    assert read(Host(**{"server-log": f"{name}\n"})) == (), "an empty log says nothing"


@pytest.mark.parametrize("shell", ["dash", "busybox"])
def test_the_newest_log_is_found_behind_a_link_and_named(tmp_path: Path, shell: str) -> None:
    """Operators move logs to a larger disk, and leave a link."""
    disk, linked, missing = tmp_path / "disk", tmp_path / "elasticsearch", tmp_path / "riak"
    disk.mkdir()
    linked.symlink_to(disk)
    for number, name in enumerate(("prod.log", "prod_index_search_slowlog.log", "gc.log", "old.log")):
        (disk / name).write_text(f"line of {name}\n")
        seconds = time.time() + (-600 if name == "old.log" else number)
        os.utime(disk / name, (seconds, seconds))
    assert _printed(shell, newest_log([str(missing), str(linked)], "prod")) == (
        f"{linked}/prod.log:\nline of prod.log\n"
    )


@pytest.mark.parametrize("shell", ["dash", "busybox"])
@pytest.mark.parametrize("cluster", ["prod", "a [b] 'c'", "*"])
def test_the_log_of_the_cluster_is_found_in_any_folder(tmp_path: Path, cluster: str, shell: str) -> None:
    """`path.logs` may be elsewhere; what other programs write there is no server's log."""
    for name in (f"node/{cluster}.log", "node/other.log", f"deep/er/{cluster}.log", "auth.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"line of {name}\n")
        os.utime(tmp_path / name, (time.time() + 5 * ("other" in name or "auth" in name),) * 2)
    line = newest_log([str(tmp_path / "elasticsearch")], cluster, root=str(tmp_path))
    assert _printed(shell, line) == f"{tmp_path}/node/{cluster}.log:\nline of node/{cluster}.log\n"


def _printed(shell: str, line: str) -> str:
    words = (*shell_words(shell), "-c", line)
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout  # noqa: S603  (the text under test)


def test_a_line_beside_a_gap_is_left_out() -> None:
    """It may be the rest of a secret that is not recognised any more."""
    text = "first\npassword=hun\n… 4000 bytes left out …\nter2 is wrong\nlast\n"
    assert last_lines(text, Redactor()) == ("first", "last")
