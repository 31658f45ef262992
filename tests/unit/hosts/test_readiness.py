"""Whether a host can install a version: the script on this machine, and what it may answer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest

from orchestrator.hosts import readiness
from orchestrator.hosts.connection import CommandResult, HostConnection, Lost, Outcome, Trouble, Unreachable
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.management import IN_CONTAINER
from orchestrator.hosts.script import sections, untranslated
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.upgrade import HostReadiness, InstallStep, Upgrade
from orchestrator.redact import Redactor
from tests.fakes.framing import part
from tests.tools import by_shell

ES1 = NodeName("es1")
SHELLS = ("sh", "busybox")
PROTECTED = "Keystore is password-protected"
OPEN = "Keystore is not password-protected"
PATH = "path" + "".join("abcdefghij"[int(digit)] for digit in str(os.getpid()))
"""What the pretended servers of this process say in place of `path`: real ones may run beside it."""


def _upgrade(*verify: str) -> Upgrade:
    return Upgrade(target="9.1.4", install=(InstallStep(run="install {version}"),), verify=verify)


def _ready(reading: Reading[HostReadiness]) -> HostReadiness:
    assert isinstance(reading, HostReadiness), reading
    return reading


def _asked(upgrade: Upgrade, shell: str) -> HostReadiness:
    line = by_shell(shell, readiness.readiness_script(ES1, upgrade))
    outcome = LocalConnection({}).run(_of_the_pretended(line), timeout=100.0)
    assert isinstance(outcome, CommandResult), outcome
    return _ready(readiness.read_readiness(outcome.stdout, ES1, upgrade))


def _of_the_pretended(line: str) -> str:
    assert "path[.]home" in line
    return line.replace("path[.]", f"{PATH}[.]")


@contextmanager
def _server(folder: Path, name: str, *, said: str, conf: str | None = None) -> Iterator[None]:
    """A process with a server's command line, and a tool for its keystore in its home."""
    home = folder / name
    (home / "bin").mkdir(parents=True)
    (home / "config").mkdir()
    tool = home / "bin" / "elasticsearch-keystore"
    tool.write_text(f'#!/bin/sh\n[ "$1" = has-passwd ] && echo "{said}; $ES_PATH_CONF" && exit 1\n')
    tool.chmod(0o755)
    words = [f"-Des.{PATH}.home={home}", *([f"-Des.{PATH}.conf={conf}"] if conf else [])]
    with subprocess.Popen(  # noqa: S603  (waits for a line)
        ["/bin/sh", "-c", "read -r line", "java", *words], stdin=subprocess.PIPE
    ) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verify_line_is_run_for_the_target(tmp_path: Path, shell: str) -> None:
    (tmp_path / "elasticsearch-9.1.4").touch()
    upgrade = _upgrade(
        f"test -e {tmp_path}/elasticsearch-{{version}}", "echo no such package for {node}; exit 7", "exit 3"
    )
    found = _asked(upgrade, shell)
    assert found.failed == (
        "`echo no such package for es1; exit 7` ended with 7: no such package for es1",
        "`exit 3` ended with 3",
    )
    assert found.free_bytes is not None
    assert found.free_bytes > 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("said", "password"),
    [([PROTECTED], True), ([OPEN], False), (["access denied"], None), ([OPEN, PROTECTED], True)],
)
def test_the_keystores_of_unpacked_servers_are_asked(
    tmp_path: Path, said: list[str], *, password: bool | None, shell: str
) -> None:
    with ExitStack() as servers:
        for number, each in enumerate(said):
            servers.enter_context(_server(tmp_path, f"elasticsearch-8.19.{number}", said=each))
        assert _asked(_upgrade(), shell).keystore_password is password


def test_the_keystore_is_that_of_the_servers_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    script = sections([("keystore", f"( {readiness._KEYSTORE_SCRIPT}\n)")])
    with (
        _server(tmp_path, "one", said=OPEN, conf=str(tmp_path / "etc")),
        _server(tmp_path, "two", said=OPEN),
    ):
        outcome = LocalConnection({}).run(_of_the_pretended(untranslated(script)), timeout=60.0)
    assert isinstance(outcome, CommandResult)
    assert f"{OPEN}; {tmp_path}/etc" in outcome.stdout
    assert f"{OPEN}; {tmp_path}/two/config" in outcome.stdout


def test_the_keystore_of_a_containers_server_is_not_the_hosts(tmp_path: Path) -> None:
    """By the line of its status, here the one that every process has: this one counts as a container's."""
    line = _of_the_pretended(readiness.readiness_script(ES1, _upgrade()))
    elsewhere = line.replace(IN_CONTAINER, "^NSpid:[[:space:]]+[0-9]+")
    assert elsewhere != line
    with _server(tmp_path, "elasticsearch-8.19.0", said=PROTECTED):
        for asked, password in ((line, True), (elsewhere, None)):
            outcome = LocalConnection({}).run(asked, timeout=100.0)
            assert isinstance(outcome, CommandResult), outcome
            found = _ready(readiness.read_readiness(outcome.stdout, ES1, _upgrade()))
            assert found.keystore_password is password


def test_an_answer_that_is_cut_off_says_nothing() -> None:
    upgrade = _upgrade("true")
    whole = "@@orchestrate-00000000-0000-4000 begin free\n4096\n@@orchestrate-00000000-0000-4000 end free 0\n"
    assert isinstance(readiness.read_readiness(whole, ES1, upgrade), Unknown)
    assert isinstance(readiness.read_readiness("", ES1, upgrade), Unknown)
    assert isinstance(readiness.read_readiness("", ES1, _upgrade()), Unknown)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_step_that_sudo_refuses_is_found_before_the_first_stop(tmp_path: Path, shell: str) -> None:
    upgrade = _upgrade()
    allowed = tmp_path / "allowed"
    fake = tmp_path / "sudo"
    fake.write_text(
        f'#!/bin/sh\n[ -e {allowed} ] || {{ echo "sudo: a password is required" >&2; exit 1; }}\n'
    )
    fake.chmod(0o755)

    def asked() -> HostReadiness:
        line = by_shell(shell, readiness.readiness_script(ES1, upgrade, Sudo.PASSWORDLESS))
        line = line.replace('[ "$(id -u)" = 0 ]', "false")
        outcome = LocalConnection({"PATH": f"{tmp_path}:/usr/bin:/bin"}).run(line, timeout=100.0)
        assert isinstance(outcome, CommandResult), outcome
        return _ready(readiness.read_readiness(outcome.stdout, ES1, upgrade, Sudo.PASSWORDLESS))

    where = "`orchestrate explain least-rights`: install steps of an upgrade"
    (why,) = asked().failed
    assert why == f"install step 1 may not run as root: sudo: a password is required ({where})"
    allowed.touch()
    assert asked().failed == ()


class _Answers:
    """A connection on which every command ends so."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run(self, *_: object, **__: object) -> Outcome:
        return self._outcome


def _came_of(outcome: Outcome, *verify: str) -> Reading[HostReadiness]:
    settings = HostSettings(node=ES1, address="localhost", service=ServiceSettings())
    found = cast("tuple[HostSettings, HostConnection]", (settings, _Answers(outcome)))
    return readiness.ask(lambda _: found, ES1, _upgrade(*verify), Redactor(["hunter22"]))


@pytest.mark.parametrize(
    "outcome",
    [
        Lost(
            reason="connection lost",
            timed_out=False,
            output="@@orchestrate-00000000-0000-4000 begin free\n9\n",
        ),
        Unreachable(trouble=Trouble.SETTINGS, reason="no route"),
    ],
    ids=["lost", "not reached"],
)
def test_a_host_that_does_not_answer_is_not_ready(outcome: Outcome) -> None:
    read = _came_of(outcome)
    assert isinstance(read, Unknown)
    assert outcome.reason in read.reason


def test_no_secret_is_shown_of_a_verify_line_or_its_answer() -> None:
    said = part("verify-0", "401 for https://ops:hunter22@mirror", 1)
    read = _came_of(CommandResult(exit=0, stdout=said), "curl -u ops:hunter22 https://mirror")
    assert isinstance(read, HostReadiness)
    assert read.failed
    assert "hunter22" not in str(read)
