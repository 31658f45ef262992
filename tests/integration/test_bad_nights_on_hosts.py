"""Bad nights on real hosts: what befalls a run, how soon a line names it, and what is left afterwards.

Everything is typed as an operator types it, on Elasticsearch with TLS and file users. The seconds are shown
in a table at the end of the tests; they are no conditions, because a busy machine is slow.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.bad_nights import (
    FAST_CLOCK,
    OTHER_MACHINE,
    TYPO,
    Line,
    Mishap,
    Rotation,
    Typed,
    advised,
    dropped,
    fill,
    killed_at_stop,
    left,
    misspelt,
    readable_journal,
    rotation,
    usual_logs,
)
from tests.integration.faults import changed, first, prepared
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.operating import Operator, leases, lives, settings

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

    ShowMishap = Callable[[Mishap], None]

FLAVOUR = "8.19.0"
pytestmark = [pytest.mark.docker, pytest.mark.part(name="nights"), pytest.mark.timeout(2400)]
PLAIN = ("--yes", "--output", "plain")
SILENT_SECONDS = 75.0
REFUSAL = r"refused user orchestrator \(401"
NOTHING = "nothing"


class Night:
    """A cluster, its operator, and the truth before anything befalls it."""

    def __init__(self, cluster: HostCluster, operator: Operator) -> None:
        self.cluster, self.operator = cluster, operator
        self.was, self.born, self.victim = settings(cluster), lives(cluster), first(cluster)
        self.stopped = f"{self.victim}: stop the service - accepted"
        self.started = f"{self.victim}: start the service"

    def left(self) -> str:
        """What is other than before."""
        return left(self.cluster, self.was)

    def restarted(self) -> set[str]:
        """The nodes that live another life."""
        return changed(self.born, lives(self.cluster))

    def is_up(self) -> bool:
        """Whether the node that was stopped is in the cluster."""
        return self.victim in lives(self.cluster)


@pytest.fixture
def night(host_cluster: HostClusterFactory, tmp_path: Path) -> Night:
    """A fresh cluster with a little data and the operator's settings."""
    return Night(*prepared(host_cluster, tmp_path, flavour=FLAVOUR))


@pytest.fixture
def rotated(night: Night) -> Iterator[Rotation]:
    """A way to change the password; it is changed again at the end."""
    with rotation(night.cluster) as change:
        yield change


def named(line: Line | None, since: float) -> tuple[float | None, str]:
    """The seconds to a line, and the line."""
    return (None, "no line") if line is None else (line.at - since, line.text)


@pytest.mark.parametrize(
    "machines",
    ["one", "two with one state", "two with a state each"],
    ids=["one-machine", "one-state", "two-states"],
)
def test_a_killed_run_is_restored_under_a_fast_clock(
    night: Night, tmp_path: Path, machines: str, show_mishap: ShowMishap
) -> None:
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
    seconds, text = named(line, restore.began)
    show_mishap(
        Mishap(what=f"1 killed run, {machines}: restore", seconds=seconds, line=text, left=night.left())
    )
    assert code == 0, restore.text
    assert line is not None, restore.text
    assert "nothing to restore" not in restore.text
    assert night.left() == NOTHING
    again = here.orchestrate("restore", *by_record, *PLAIN)
    assert again.returncode == 0, again.stdout + again.stderr
    assert night.left() == NOTHING


@pytest.mark.parametrize("late", [0.0, 20.0], ids=["at-once", "20-s-later"])
def test_a_password_rotated_in_its_file_costs_nothing(
    night: Night, rotated: Rotation, tmp_path: Path, late: float, show_mishap: ShowMishap
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
    seconds, text = named(run.find(REFUSAL, since=mishap), mishap)
    show_mishap(
        Mishap(
            what=f"2a password rotated, in its file {late:.0f} s later",
            seconds=seconds,
            line=text,
            left=night.left(),
        )
    )
    assert code == 0, run.text
    assert night.restarted() == set(night.cluster.names), run.text
    assert night.left() == NOTHING


def test_a_refused_password_of_the_environment_ends_the_run(
    night: Night, rotated: Rotation, show_mishap: ShowMishap
) -> None:
    file = night.operator.write()
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        run.wait_for(night.stopped)
        mishap = rotated.change()
        code = run.end()
    line = run.find(REFUSAL, since=mishap)
    seconds, text = named(line, mishap)
    show_mishap(
        Mishap(what="2b password of the environment refused", seconds=seconds, line=text, left=night.left())
    )
    assert code == 8, run.text
    assert line is not None, run.text
    assert re.search(r"https://[\d.]+:9200", line.text), line.text
    assert night.operator.password_source in line.text
    assert night.is_up(), run.text
    assert night.started in run.text
    assert night.restarted() == {night.victim}
    assert "NOT RESTORED: cluster.routing.allocation.enable (persistent)" in run.text
    assert "runs out by itself" in run.text, "the lease"
    command = advised(run.text, "restore")
    knowing = replace(night.operator, password=rotated.password)
    restored = knowing.orchestrate(*command, *PLAIN)
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert night.left() == NOTHING


def test_restore_with_a_refused_password_starts_the_node(night: Night, show_mishap: ShowMishap) -> None:
    run = killed_at_stop(night.operator, night.operator.write(), night.victim)
    mistaken = replace(night.operator, password="wrong")  # noqa: S106  (it is wrong)
    with Typed(mistaken, "restore", *PLAIN) as restore:
        code = restore.end(300)
    line = restore.find(REFUSAL)
    seconds, text = named(line, restore.began)
    show_mishap(
        Mishap(what="3 restore with a refused password", seconds=seconds, line=text, left=night.left())
    )
    assert code == 8, restore.text
    assert line is not None, restore.text
    assert night.operator.password_source in line.text
    assert "waiting for a master" not in restore.text
    assert re.search(rf"start(ing|ed)? .*{night.victim}|{night.victim}.*start", restore.text), restore.text
    assert wait_until(night.is_up, seconds=300), restore.text
    assert advised(restore.text, "restore")[:2] == ["restore", run]
    right = night.operator.orchestrate(*advised(restore.text, "restore"), *PLAIN)
    assert right.returncode == 0, right.stdout + right.stderr
    assert night.left() == NOTHING


def test_restore_with_a_refused_password_and_no_changes(night: Night, show_mishap: ShowMishap) -> None:
    file = night.operator.write(playbook={"gates": [{"command": {"run": "echo not yet; false"}}]})
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        run.wait_for("not yet")
        run.kill()
    mistaken = replace(night.operator, password="wrong")  # noqa: S106  (it is wrong)
    with Typed(mistaken, "restore", *PLAIN) as restore:
        code = restore.end(300)
    line = restore.find(REFUSAL)
    seconds, text = named(line, restore.began)
    show_mishap(Mishap(what="3 the same, nothing was changed", seconds=seconds, line=text, left=night.left()))
    assert code == 2, restore.text
    assert line is not None, restore.text
    assert night.operator.password_source in line.text
    right = night.operator.orchestrate("restore", *PLAIN)
    assert right.returncode == 0, right.stdout + right.stderr
    assert night.left() == NOTHING
    assert night.restarted() == set()


def test_a_unit_that_does_not_start_is_retried_after_repair(night: Night, show_mishap: ShowMishap) -> None:
    with misspelt(night.cluster, night.victim), readable_journal(night.cluster, night.victim):
        failed = fails_to_start(night, TYPO, "its account reads the journal", show_mishap)
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


def test_a_failed_unit_shows_the_servers_own_log(night: Night, show_mishap: ShowMishap) -> None:
    with misspelt(night.cluster, night.victim), usual_logs(night.cluster, night.victim):
        failed = fails_to_start(night, TYPO, "its account reads the server's log", show_mishap)
    assert "/var/log/elasticsearch/lab.log:" in failed


def test_a_failed_unit_shows_the_status_that_all_may_see(night: Night, show_mishap: ShowMishap) -> None:
    with misspelt(night.cluster, night.victim):
        fails_to_start(night, r"\| .*code=exited, status=1", "its account reads no log", show_mishap)


def fails_to_start(night: Night, shown: str, reader: str, show_mishap: ShowMishap) -> str:
    """What a run printed whose node did not start; it shows the reason, and only that node is down."""
    file = night.operator.write()
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        mishap = run.wait_for(f"{night.victim}: start the service - accepted").at
        code = run.end()
    line = run.find(shown, since=mishap)
    seconds, text = named(line, mishap)
    show_mishap(
        Mishap(what=f"4 unit does not start, {reader}", seconds=seconds, line=text, left=night.left())
    )
    assert code == 4, run.text
    assert line is not None, run.text
    assert night.left() == f"{night.victim} is down"
    return run.text


def test_a_host_that_falls_silent_in_a_wave_is_named_and_heals(night: Night, show_mishap: ShowMishap) -> None:
    file = night.operator.write()
    silent = rf"{night.victim}.* SSH"
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN) as run:
        mishap = run.wait_for(night.stopped).at
        with dropped(night.cluster, night.victim, 22):
            line = run.wait_for(silent, since=mishap, seconds=SILENT_SECONDS)
            shown = night.operator.orchestrate("status", "--output", "plain").stdout
            wait_until(lambda: run.find(r"run ended") is not None, seconds=SILENT_SECONDS)
        code = run.end()
    seconds, text = named(line, mishap)
    show_mishap(
        Mishap(what="5 host silent over SSH in a wave", seconds=seconds, line=text, left=night.left())
    )
    assert re.search(silent, shown), shown
    assert code == 0, run.text
    heard = run.find(rf"{night.victim}: (stopping -> stopped|stopped -> starting)")
    assert heard is not None, run.text
    assert line.at < heard.at, run.text
    assert night.restarted() == set(night.cluster.names)
    assert night.left() == NOTHING


def test_a_full_disk_under_the_state_is_known_for_what_it_is(
    night: Night, small_disk: Path, show_mishap: ShowMishap
) -> None:
    state = ("--state", f"sqlite:///{small_disk}/state.db")
    file = night.operator.write()
    with Typed(night.operator, "restart", "--cluster", str(file), *PLAIN, *state) as run:
        run.wait_for(night.stopped)
        mishap = fill(small_disk)
        code = run.end()
    line = run.find("cannot be written|no space", since=mishap)
    seconds, text = named(line, mishap)
    show_mishap(Mishap(what="6 disk full under the state", seconds=seconds, line=text, left=night.left()))
    assert code == 4, run.text
    assert line is not None, run.text
    assert night.is_up(), run.text
    assert night.left() == NOTHING
    assert night.restarted() == {night.victim}
    assert advised(run.text, "resume")[-2:] == list(state)
    shown = night.operator.orchestrate("status", "--output", "plain", *state)
    assert "not restored: nothing, read from the cluster now" in shown.stdout, shown.stdout + shown.stderr
    assert "the state could not be written" in shown.stdout
    with contextlib.ExitStack() as deaf:
        for name in night.cluster.names:
            deaf.enter_context(dropped(night.cluster, name, 9200))
        blind = night.operator.orchestrate("status", "--output", "plain", *state)
    unknown = (
        r"not restored: unknown since [-\dT:Z]+, the state could not be written; the cluster was not read"
    )
    assert re.search(unknown, blind.stdout), blind.stdout + blind.stderr
    (small_disk / "fill").unlink()
    resumed = night.operator.orchestrate(*advised(run.text, "resume"), *PLAIN)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert leases(night.cluster) == []
    assert night.left() == NOTHING
