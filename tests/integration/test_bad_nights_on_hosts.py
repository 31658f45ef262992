"""Bad nights on real hosts: what befalls a run, how soon a line names it, and what is left afterwards.

Everything is typed as an operator types it, on Elasticsearch with TLS and file users. The seconds are shown
in a table at the end of the tests; they are no conditions, because a busy machine is slow.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
import urllib3

from tests.integration.host_scenes import Scene
from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.mistuned import put
from tests.integration.operating import Operator, leases
from tests.lab.client import Access, LabClient

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

FLAVOUR = "8.19.0"
pytestmark = [pytest.mark.docker, pytest.mark.part(name="nights"), pytest.mark.timeout(2400)]
PLAIN = ("--yes", "--output", "plain")
SILENT_SECONDS = 75.0
REFUSAL = r"refused user orchestrator \(401"
NOTHING = "nothing"
FAST_CLOCK = ("env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", "+3600s")
"""Starts a program whose clock is an hour fast. Monotonic clocks stay true: with a faked one Python hangs."""
OTHER_MACHINE = (
    *("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", 'hostname bastion2 && exec "$0" "$@"'),
)
"""Starts a program of which nobody on this machine can tell whether it still runs."""
TYPO = "indices.breaker.totl.limit"
"""A setting that no server has."""
CONFIGURATION = "/etc/node/elasticsearch.yml"
UNAUTHORIZED = 401
REJECTED_SECONDS = 60.0
"""Nodes read their users every five seconds; a busy machine takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of output."""

    at: float  # when it was read, by the monotonic clock
    text: str


class Typed:
    """A command that runs while something befalls it. Use as a context manager: it ends with the block.

    Args:
        operator: who types it.
        words: the command without the program's name.
    """

    def __init__(self, operator: Operator, *words: str) -> None:
        self.began = time.monotonic()
        self._said: list[Line] = []
        self._process = operator.begin(*words)
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.append(Line(at=time.monotonic(), text=line.rstrip("\n")))

    @property
    def lines(self) -> tuple[Line, ...]:
        """What it has said so far."""
        return tuple(self._said)

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(line.text for line in self.lines)

    def find(self, pattern: str, *, since: float = 0.0) -> Line | None:
        """The first line since a moment in which the pattern is found."""
        return next((line for line in self.lines if line.at >= since and re.search(pattern, line.text)), None)

    def wait_for(self, pattern: str, *, since: float = 0.0, seconds: float = 300.0) -> Line:
        """The same, waiting for it; fails if the command ends without it, or takes too long."""
        limit = time.monotonic() + seconds
        while True:
            ended = not self._reader.is_alive()
            if (found := self.find(pattern, since=since)) is not None:
                return found
            assert not ended, f"ended without {pattern}:\n{self.text}"
            assert time.monotonic() < limit, f"no {pattern} within {seconds:.0f} s:\n{self.text}"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._process.kill()
        self.end()

    def end(self, seconds: float = 900.0) -> int:
        """Wait for its end and its last line; the exit code. Fails if that takes longer."""
        assert wait_until(lambda: self._process.poll() is not None, seconds=seconds), (
            f"not ended after {seconds:.0f} s:\n{self.text}"
        )
        self._reader.join()
        return int(self._process.returncode)


def advised(text: str, verb: str) -> list[str]:
    """The words of the one command with this verb that a text advises, as typed behind the program's name."""
    found = {each.strip(" .,;") for each in re.findall(rf"orchestrate ({verb} [^\n`;]*)", text)}
    assert len(found) == 1, f"not one command to {verb} but {sorted(found)}:\n{text}"
    return shlex.split(found.pop())


def killed_at_stop(operator: Operator, file: Path, victim: str) -> str:
    """Type `restart`, and kill it once it has stopped the node's service; the run's id, by the state."""
    with Typed(operator, "restart", "--cluster", str(file), "--yes", "--output", "plain") as night:
        night.wait_for(f"{victim}: stop the service - accepted")
        night.kill()
    with closing(sqlite3.connect(operator.folder / "state.db")) as state:
        (only,) = state.execute("SELECT id FROM runs WHERE outcome IS NULL").fetchall()
    return str(only[0])


@contextmanager
def dropped(cluster: HostCluster, name: str, port: int) -> Iterator[None]:
    """Drop every packet from this machine to one port of a host."""
    if os.geteuid() != 0:
        pytest.fail("dropping packets needs root")
    address = cluster.host(name).address
    rule = ("OUTPUT", "-d", address, "-p", "tcp", "--dport", str(port), "-j", "DROP")
    docker.run(("iptables", "--wait", "-I", *rule))
    try:
        yield
    finally:
        docker.run(("iptables", "--wait", "-D", *rule))


def fill(folder: Path) -> float:
    """Fill the file system of a folder with a file `fill`; the moment at which it is full."""
    file = folder / "fill"
    docker.run(("dd", "if=/dev/zero", f"of={file}", "bs=4k"), check=False)
    assert shutil.disk_usage(folder).free == 0, file
    return time.monotonic()


@contextmanager
def misspelt(cluster: HostCluster, name: str) -> Iterator[None]:
    """Write a setting that no server has into the node's configuration, until the block ends."""
    right = cluster.exec(name, "cat", CONFIGURATION).stdout
    put(cluster, name, CONFIGURATION, f"{right}{TYPO}: 70%\n")
    try:
        yield
    finally:
        put(cluster, name, CONFIGURATION, right)


@contextmanager
def readable_journal(cluster: HostCluster, name: str) -> Iterator[None]:
    """The program's account may read the journal of the host, until the block ends."""
    cluster.exec(name, "usermod", "--append", "--groups", "systemd-journal", cluster.ssh_user)
    try:
        yield
    finally:
        cluster.exec(name, "gpasswd", "--delete", cluster.ssh_user, "systemd-journal")


@contextmanager
def usual_logs(cluster: HostCluster, name: str) -> Iterator[None]:
    """Logs that everybody may read are where packages of the server have them, until the block ends."""
    cluster.exec(name, "ln", "-s", "/var/log/node", "/var/log/elasticsearch")
    try:
        yield
    finally:
        cluster.exec(name, "rm", "/var/log/elasticsearch")


@contextmanager
def rotation(cluster: HostCluster) -> Iterator[Rotation]:
    """Lets the password be changed in the block; at its end the first one is the right one again."""
    try:
        yield Rotation(cluster)
    finally:
        first = cluster.keys.orchestrator_password
        cluster.change_password(first)
        assert wait_until(
            lambda: all(_accepts(cluster, each, first) for each in cluster.endpoints), seconds=300
        )


class Rotation:
    """Another password for the program's user."""

    password = "another-password"  # noqa: S105  (dies with the lab)

    def __init__(self, cluster: HostCluster) -> None:
        self._cluster = cluster

    def change(self) -> float:
        """Change it on every host; the moment at which the first node refuses the old one."""
        old = self._cluster.keys.orchestrator_password
        up = [each for each in self._cluster.endpoints if _accepts(self._cluster, each, old)]
        assert up, "no node is up that could refuse anything"
        self._cluster.change_password(self.password)
        refused = wait_until(
            lambda: any(_accepts(self._cluster, each, old) is False for each in up), seconds=REJECTED_SECONDS
        )
        assert refused, "the nodes did not read their users again"
        return time.monotonic()


def _accepts(cluster: HostCluster, endpoint: str, password: str) -> bool | None:
    """Whether a node takes the password; None if it does not answer."""
    user = cluster.orchestrator.user
    client = LabClient(Access(endpoints=(endpoint,), user=user, password=password, ca=str(cluster.ca)))
    try:
        return client.send(endpoint, "GET", "/_security/_authenticate", seconds=5.0).status != UNAUTHORIZED
    except urllib3.exceptions.HTTPError:
        return None
    finally:
        client.close()


class Night(Scene):
    """A cluster, its operator, and the truth before anything befalls it."""

    record: Callable[[str, object], None]  # keeps something for the summary of the tests

    @property
    def stopped(self) -> str:
        """The line that says that the first node is being stopped."""
        return f"{self.victim}: stop the service - accepted"

    @property
    def started(self) -> str:
        """And started."""
        return f"{self.victim}: start the service"

    def show(self, what: str, line: Line | None, since: float) -> None:
        """Add the seconds to the line that names a mishap to the table, and what is left."""
        seconds, text = ("-", "no line") if line is None else (f"{line.at - since:.1f} s", line.text)
        self.record("mishap", [f"{seconds:>7}  {what}; left: {self.left()}", f"         {text}"])


@pytest.fixture
def night(
    host_cluster: HostClusterFactory, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Night:
    """A fresh cluster with a little data and the operator's settings."""
    made = Night(host_cluster(FLAVOUR), tmp_path)
    made.record = record_property
    return made


@pytest.fixture
def rotated(night: Night) -> Iterator[Rotation]:
    """A way to change the password; it is changed again at the end."""
    with rotation(night.cluster) as change:
        yield change


@pytest.mark.parametrize(
    "machines",
    ["one", "two with one state", "two with a state each"],
    ids=["one-machine", "one-state", "two-states"],
)
def test_a_killed_run_is_restored_under_a_fast_clock(night: Night, tmp_path: Path, machines: str) -> None:
    here = doomed = night.operator
    if machines != "one":
        doomed = replace(here, before=OTHER_MACHINE)
    if machines == "two with a state each":
        doomed = replace(doomed, folder=tmp_path / "bastion2")
        doomed.folder.mkdir()
        doomed.write()
    file = here.write()
    fast = replace(here, before=FAST_CLOCK)
    finished = fast.orchestrate("restart", "--cluster", str(file), "--only", night.victim, *PLAIN)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    run = killed_at_stop(doomed, file, night.victim)
    shown = doomed.orchestrate("status", "--output", "plain")
    assert run in shown.stdout, shown.stdout + shown.stderr
    if machines == "one":  # from another PID namespace nobody can tell that its process is gone
        assert advised(shown.stdout, "restore")[:2] == ["restore", run]
    by_record = ("--cluster", str(file)) if here.folder != doomed.folder else ()
    with Typed(here, "restore", *by_record, *PLAIN) as restore:
        code = restore.end()
    line = restore.find(run)
    night.show(f"1 killed run, {machines}: restore", line, restore.began)
    assert code == 0, restore.text
    assert line is not None, restore.text
    assert "nothing to restore" not in restore.text
    assert night.left() == NOTHING
    again = here.orchestrate("restore", *by_record, *PLAIN)
    assert again.returncode == 0, again.stdout + again.stderr
    assert night.left() == NOTHING


@pytest.mark.parametrize("late", [0.0, 20.0], ids=["at-once", "20-s-later"])
def test_a_password_rotated_in_its_file_costs_nothing(
    night: Night, rotated: Rotation, tmp_path: Path, late: float
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(night.cluster.orchestrator.password or "", encoding="utf-8")
    file = replace(night.operator, password_file=secret).write()
    unset = replace(night.operator, password="not-used")  # noqa: S106  (the file has it)
    with Typed(unset, "restart", "--cluster", str(file), *PLAIN) as run:
        run.wait_for(night.stopped)
        if not late:
            secret.write_text(rotated.password, encoding="utf-8")
        mishap = rotated.change()
        if late:
            time.sleep(late)  # the cluster has the new password before the file has it
            secret.write_text(rotated.password, encoding="utf-8")
        code = run.end()
    night.show(
        f"2a password rotated, in its file {late:.0f} s later", run.find(REFUSAL, since=mishap), mishap
    )
    assert code == 0, run.text
    assert night.restarted() == set(night.cluster.names), run.text
    assert night.left() == NOTHING


def test_a_refused_password_of_the_environment_ends_the_run(night: Night, rotated: Rotation) -> None:
    file = night.operator.write()
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        run.wait_for(night.stopped)
        mishap = rotated.change()
        code = run.end()
    line = run.find(REFUSAL, since=mishap)
    night.show("2b password of the environment refused", line, mishap)
    assert code == 8, run.text
    assert line is not None, run.text
    assert re.search(r"https://[\d.]+:9200", line.text), line.text
    assert night.operator.password_source in line.text
    assert night.is_up(), run.text
    assert night.started in run.text
    assert night.restarted() == {night.victim}
    assert "NOT RESTORED   setting cluster.routing.allocation.enable (persistent)" in run.text
    assert "runs out by itself" in run.text, "the lease"
    command = advised(run.text, "restore")
    knowing = replace(night.operator, password=rotated.password)
    restored = knowing.orchestrate(*command, *PLAIN)
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert night.left() == NOTHING


def test_a_unit_that_does_not_start_is_retried_after_repair(night: Night) -> None:
    with misspelt(night.cluster, night.victim), readable_journal(night.cluster, night.victim):
        failed = fails_to_start(night, TYPO, "its account reads the journal")
        retry = advised(failed, "resume")
        assert retry[2:3] == ["--retry-failed"], failed
        assert "orchestrate restore" not in failed
        shown = night.operator.orchestrate("status", "--output", "plain").stdout
        assert TYPO in shown
        assert advised(shown, "resume") == retry
        restore = night.operator.orchestrate("restore", retry[1], *PLAIN)
        assert restore.returncode == 4, restore.stdout + restore.stderr
        assert advised(restore.stdout + restore.stderr, "resume") == retry
    repaired = night.operator.orchestrate(*retry, *PLAIN)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert night.restarted() == set(night.cluster.names)
    assert night.left() == NOTHING


def test_a_failed_unit_shows_the_servers_own_log(night: Night) -> None:
    with misspelt(night.cluster, night.victim), usual_logs(night.cluster, night.victim):
        failed = fails_to_start(night, TYPO, "its account reads the server's log")
    assert "/var/log/elasticsearch/lab.log:" in failed


def test_a_failed_unit_shows_the_status_that_all_may_see(night: Night) -> None:
    with misspelt(night.cluster, night.victim):
        fails_to_start(night, r"\| .*code=exited, status=1", "its account reads no log")


def fails_to_start(night: Night, shown: str, reader: str) -> str:
    """What a run printed whose node did not start; it shows the reason, and only that node is down."""
    file = night.operator.write()
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        mishap = run.wait_for(f"{night.victim}: start the service - accepted").at
        code = run.end()
    line = run.find(shown, since=mishap)
    night.show(f"4 unit does not start, {reader}", line, mishap)
    assert code == 4, run.text
    assert line is not None, run.text
    assert night.left() == f"{night.victim} is down"
    return run.text


def test_a_host_that_falls_silent_in_a_wave_is_named_and_heals(night: Night) -> None:
    file = night.operator.write()
    silent = rf"{night.victim}.* SSH"
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        mishap = run.wait_for(night.stopped).at
        with dropped(night.cluster, night.victim, 22):
            line = run.wait_for(silent, since=mishap, seconds=SILENT_SECONDS)
            shown = night.operator.orchestrate("status", "--output", "plain").stdout
            wait_until(lambda: run.find(r"run ended") is not None, seconds=SILENT_SECONDS)
        code = run.end()
    night.show("5 host silent over SSH in a wave", line, mishap)
    assert re.search(silent, shown), shown
    assert code == 0, run.text
    heard = run.find(rf"{night.victim}: (stopping -> stopped|stopped -> starting)")
    assert heard is not None, run.text
    assert line.at < heard.at, run.text
    assert night.restarted() == set(night.cluster.names)
    assert night.left() == NOTHING


@pytest.mark.proves("full-disk")
def test_a_full_disk_under_the_state_is_known_for_what_it_is(night: Night, small_disk: Path) -> None:
    state = ("--state", f"sqlite:///{small_disk}/state.db")
    file = night.operator.write()
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN, *state) as run:
        run.wait_for(night.stopped)
        mishap = fill(small_disk)
        code = run.end()
    line = run.find("cannot be written|no space", since=mishap)
    night.show("6 disk full under the state", line, mishap)
    assert code == 4, run.text
    assert line is not None, run.text
    assert night.is_up(), run.text
    assert night.left() == NOTHING
    assert night.restarted() == {night.victim}
    assert advised(run.text, "resume")[-2:] == list(state)
    shown = night.operator.orchestrate("status", "--output", "plain", *state)
    assert re.search("nothing is left of .*; read from the cluster now", shown.stdout), shown
    assert "the state could not be written" in shown.stdout
    with contextlib.ExitStack() as deaf:
        for name in night.cluster.names:
            deaf.enter_context(dropped(night.cluster, name, 9200))
        blind = night.operator.orchestrate("status", "--output", "plain", *state)
    unknown = "NOT RESTORED: .*, as of .*, the state could not be written; the cluster was not read"
    assert re.search(unknown, blind.stdout), blind.stdout + blind.stderr
    (small_disk / "fill").unlink()
    resumed = night.operator.orchestrate(*advised(run.text, "resume"), *PLAIN)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert leases(night.cluster) == []
    assert night.left() == NOTHING
