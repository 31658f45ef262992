"""A run is taken up on whose cluster another one has died since: its leftovers are restored too."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.action import Purpose, SettingChange
from orchestrator.model.event import RestoreBegun, RunFinished, RunStarted, SettingChanged
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind, LeasePlace, Policy
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.store import StateStore
from tests.cli.console import Console, Said
from tests.cli.runs import DEAD_PROCESS, entry, leave, record_of, started
from tests.cli.small_cluster import LEASES, SmallCluster
from tests.fakes.scripted_http import reply
from tests.tools import heeding_modes, own_mounts

SPEED = "indices.recovery.max_bytes_per_sec"
OURS, THEIRS = "20261101-0300-abcd", "20261102-0300-efgh"
ENDED = f"1 setting: left by run {THEIRS} of ben@here; this run restores it first"
ALIVE = str(current_process())
UNREADABLE = {"template": {}, "_meta": {"orchestrate": "once upon a time"}}
"""A template of a lease that holds no record."""


@pytest.fixture
def cluster(cluster: SmallCluster) -> SmallCluster:
    cluster.settings["persistent"][SPEED] = "100mb"
    return cluster


class Scene:
    """A run of ours that was interrupted before it touched a node, and what another run has left."""

    def __init__(self, console: Console, cluster: SmallCluster, store: StateStore) -> None:
        self.console, self.cluster, self.store = console, cluster, store
        self.file = cluster.write_file(console.folder)

    def ended(self, lease: LeasePlace = LeasePlace.CLUSTER, *, uuid: str = "uuid") -> None:
        policy = Policy(kind=Kind.ELASTICSEARCH, cluster="lab", lease=lease)
        begun = started(policy=policy, cluster_uuid=uuid, cluster_file=self.file)
        events = [begun, RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=1.0)]
        self.store.create_run(entry(OURS, "boot/1/2/3")).append(events, 1.0)

    def left(self, place: LeasePlace = LeasePlace.CLUSTER, process: str = DEAD_PROCESS) -> None:
        """The record of a run that had raised a limit of recovery, in the cluster or in the state."""
        record = replace(THEIR_RECORD, process=process)
        if place is LeasePlace.CLUSTER:
            leave(self.cluster, record)
        else:
            self.store.lease("uuid").create(record)

    def restore(self, *what: str) -> Said:
        return self.console.run("restore", *(what or (OURS,)))

    def read_only(self, *what: str) -> Said:
        """`restore` by an account that may read the state and not write it."""
        self.console.state.chmod(0o444)
        return self.console.run("restore", *(what or (OURS,)), before=heeding_modes() or ("env",))

    def on_a_full_disk(self, *what: str) -> Said:
        """The same with the state on a file system without a byte left, that nobody but the program sees."""
        folder = self.console.folder / "small"
        folder.mkdir()
        script = (
            f"mount -t tmpfs -o size=1m,mode=700 none {folder} && "
            f"cp {self.console.state} {folder}/state.db && "
            f'{{ cat /dev/zero > {folder}/fill 2> /dev/null; [ -s {folder}/fill ]; }} && exec "$@"'
        )
        alone = (*own_mounts(), "sh", "-c", script, "sh")
        there = replace(self.console, environment={"ORCHESTRATE_STATE": f"sqlite:///{folder}/state.db"})
        return there.run("restore", *(what or (OURS,)), before=alone)

    def repairs(self) -> list[str]:
        """Whose leftovers the runs of the state restored."""
        begun = [record.event for entry in self.store.runs() for record in self.store.replay(entry.run)]
        return [event.repairs for event in begun if isinstance(event, RunStarted) and event.repairs]

    def is_restored(self) -> bool:
        return (self.cluster.templates, self.cluster.settings["persistent"]) == ({}, {})


RAISED = SettingChange(level=Level.PERSISTENT, key=SPEED, found=None, wanted="100mb")
THEIR_RECORD = record_of(THEIRS, DEAD_PROCESS, debts=(RAISED,))


@pytest.fixture
def scene(console: Console, cluster: SmallCluster, store: StateStore) -> Scene:
    return Scene(console, cluster, store)


def test_a_missed_record_is_seen_when_the_lease_is_taken(scene: Scene) -> None:
    """The other run's record cannot be read at first: unknown is not nothing."""
    scene.ended()
    scene.left()
    down = reply({"error": {"type": "master_not_discovered_exception"}, "status": 503}, status=503)
    scene.cluster.on(f"{LEASES}*", down, *scene.cluster.answers[f"{LEASES}*"])
    said = scene.restore()
    assert (said.code, ENDED in said.err) == (ExitCode.DONE, True)
    assert (scene.repairs(), scene.is_restored()) == ([THEIRS], True)
    assert any(isinstance(record.event, RestoreBegun) for record in scene.store.replay(OURS))


def test_a_kill_between_takeover_and_record_forgets_nothing(scene: Scene) -> None:
    """The record bears our run's name already, and what it lists is the other one's."""
    scene.ended()
    record = replace(THEIR_RECORD, epoch=2, run=OURS, owner="ann@bastion", left_by=THEIRS)
    leave(scene.cluster, record)
    said = scene.restore()
    assert said.code == ExitCode.DONE
    assert f"1 setting: left by run {THEIRS}; this run restores it first" in said.err
    assert (scene.repairs(), scene.is_restored()) == ([THEIRS], True)


@pytest.mark.parametrize("place", LeasePlace)
def test_what_the_state_alone_lists_is_restored_too(scene: Scene, place: LeasePlace) -> None:
    scene.ended(place)
    scene.left(LeasePlace.STATE)
    said = scene.restore()
    assert (said.code, ENDED in said.err) == (ExitCode.DONE, True)
    assert scene.repairs() == [THEIRS]
    assert scene.store.lease("uuid").read() is None


@pytest.mark.parametrize("left", [False, True])
def test_a_record_stays_if_an_attempt_cannot_begin(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, left: bool
) -> None:
    """Another machine restores by it what this run changed, or the other one."""
    scene.ended()
    if left:
        scene.left()

    def append(*_: object) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr(SqlJournal, "append", append)
    said = scene.console.run("resume", OURS, "--yes")
    assert (said.code, "the disk is full" in said.err) == (ExitCode.USAGE, True)
    record = scene.store.lease("uuid").read()
    assert isinstance(record, LeaseRecord)
    assert (record.run == OURS) is not left
    shown = scene.cluster.templates[max(scene.cluster.templates)]
    assert (SPEED in str(shown)) is left


@pytest.mark.parametrize("command", ["resume --yes", "restore"])
def test_a_run_that_is_alive_is_not_said_to_have_ended(scene: Scene, command: str) -> None:
    """It has changed a setting, as every run at work has."""
    scene.ended()
    scene.left(process=ALIVE)
    said = scene.console.run(*command.split(), OURS)
    assert said.code == ExitCode.LEASED
    assert f"run {THEIRS} of ben@here" in said.err
    assert "left by" not in said.err


@pytest.fixture
def suspended() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])  # noqa: S607  (in the path of every system)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    yield process
    process.kill()
    process.wait()


def _identity(process: subprocess.Popen[bytes]) -> str:
    begun = int(Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return str(replace(current_process(), pid=process.pid, started=begun))


def test_stop_and_pause_name_a_suspended_process(scene: Scene, suspended: subprocess.Popen[bytes]) -> None:
    """It reads the request later."""
    journal = scene.store.create_run(entry(OURS, _identity(suspended)))
    journal.append([started()], 1.0)
    pid = suspended.pid
    for command in ("stop", "pause"):
        said = scene.console.run(command, OURS)
        assert (said.code, f"asked run {OURS} on lab" in said.out) == (ExitCode.DONE, True)
        assert f"its process {pid} is suspended and reads it after `kill -CONT {pid}`" in said.out
    suspended.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, pid, os.WCONTINUED)
    said = scene.console.run("stop", OURS)
    assert (said.code, "suspended" in said.out) == (ExitCode.DONE, False)


def test_a_suspended_holder_has_to_continue_first(scene: Scene, suspended: subprocess.Popen[bytes]) -> None:
    """It acts on no request of `orchestrate stop`, and on no signal before that one."""
    scene.ended()
    scene.left(process=_identity(suspended))
    said, pid = scene.restore(), suspended.pid
    assert said.code == ExitCode.LEASED
    assert f"run {THEIRS} of ben@here" in said.err
    assert f"its process {pid} is suspended on this machine" in said.err
    assert f"`kill -CONT {pid}`" in said.err
    assert f"`kill {pid}`" in said.err
    assert "orchestrate stop" not in said.err


def test_a_garbled_record_is_named_at_once_with_the_way_out(scene: Scene, subtests: pytest.Subtests) -> None:
    scene.cluster.templates["orchestrate-lease-7"] = UNREADABLE
    for line in (f"restart --yes --cluster {scene.file}", f"restore --cluster {scene.file}", "resume --yes"):
        with subtests.test(line=line):
            if line == "resume --yes":
                scene.ended()
            began = time.monotonic()
            said = scene.console.run(*line.split())
            assert said.code == ExitCode.HELD
            assert time.monotonic() - began < 30
            named = "component template orchestrate-lease-7 holds no record that this version can read"
            assert named in said.err
            assert "`orchestrate restore RUN`" in said.err
            assert "DELETE /_component_template/orchestrate-lease-7" in said.err
    assert scene.restore().code == ExitCode.DONE, "of a run of the state"


@pytest.mark.parametrize("command", ["resume", "restore"])
@pytest.mark.parametrize("wrong", ["name", "uuid"])
def test_a_run_is_not_continued_on_another_cluster(scene: Scene, command: str, wrong: str) -> None:
    if wrong == "name":
        scene.cluster.write_file(scene.console.folder, name="other")
    scene.ended(uuid="another" if wrong == "uuid" else "uuid")
    said = scene.console.run(command, OURS, "--yes")
    assert said.code == ExitCode.USAGE
    assert f"run {OURS} began on cluster 'lab'" in said.err
    assert ("'other'" if wrong == "name" else "another") in said.err
    assert (scene.cluster.templates, scene.cluster.settings["persistent"]) == ({}, {SPEED: "100mb"})


READ_ONLY, FULL = "it may only be read", "no space is left on its disk"


@pytest.mark.parametrize(("place", "why"), [(LeasePlace.CLUSTER, FULL), (LeasePlace.STATE, READ_ONLY)])
def test_pending_changes_are_restored_without_a_journal(scene: Scene, place: LeasePlace, why: str) -> None:
    scene.ended(place)
    scene.left(place)
    said = scene.read_only() if why == READ_ONLY else scene.on_a_full_disk()
    assert said.code == ExitCode.DONE, said.err
    for part in ("continuing without writing to it", why, ENDED):
        assert part in said.err
    assert (scene.is_restored(), scene.repairs()) == (True, [])
    if why == READ_ONLY:  # the full disk is seen by that process alone
        assert scene.store.is_unwritten(OURS)


def test_a_read_only_state_hinders_no_restore_by_cluster(scene: Scene) -> None:
    scene.ended()
    scene.left()
    said = scene.read_only("--cluster", scene.file)
    assert said.code == ExitCode.DONE, said.err
    assert ("continuing without writing to it" in said.err, scene.is_restored()) == (True, True)


def test_a_live_holder_is_seen_without_a_journal(scene: Scene) -> None:
    """In the state too where the cluster has a lease: a repair without a master holds that one alone."""
    scene.ended()
    scene.left(LeasePlace.STATE, ALIVE)
    said = scene.read_only()
    assert said.code == ExitCode.LEASED, said.err
    assert f"another run holds the lease on lab: run {THEIRS} of ben@here" in said.err


def test_without_any_lease_that_can_be_written_only_restores(scene: Scene) -> None:
    """The cluster may have no master because of us."""
    scene.ended()
    scene.left(LeasePlace.STATE)
    for epoch in (1, 2):
        scene.cluster.on(f"{LEASES}{epoch}", reply({"status": 403, "error": "no"}, status=403))
    said = scene.read_only()
    assert said.code == ExitCode.DONE, said.err
    assert "continuing with the lease in the state alone" in said.err
    assert (ENDED in said.err, scene.is_restored()) == (True, True)


def test_a_record_in_the_cluster_alone_is_restored_elsewhere(scene: Scene) -> None:
    """The state here knows of no run, and takes none: there is nothing in it to continue from."""
    scene.left()
    scene.store.close()
    said = scene.on_a_full_disk("--cluster", scene.file)
    assert said.code == ExitCode.USAGE, said.err
    assert FULL in said.err
    assert "--state sqlite:///$HOME/empty.db restores what the record in the cluster lists" in said.err
    assert "orchestrate-lease-1" in scene.cluster.templates


def test_a_run_that_restored_another_first_says_so_at_its_end(scene: Scene) -> None:
    """Its own restart is held, and the end of the restore has scrolled away by then."""
    book = scene.console.folder / "book.yml"
    book.write_text('{"kind": "elasticsearch", "upgrade": {"install": [{"run": "install {version}"}]}}')
    scene.cluster.write_file(scene.console.folder, hosts={"together": "never"}, playbook=str(book))
    critical = {"level": "critical", "message": "node.x is gone", "url": ""}
    found = {"cluster_settings": [critical], "node_settings": [], "index_settings": {}}
    scene.cluster.on("/_migration/deprecations", reply(found))
    scene.left()
    said = scene.console.run("upgrade", "--cluster", scene.file, "--to", "9.1.0", "--yes")
    assert (said.code, scene.is_restored()) == (ExitCode.HELD, True), said.err
    restored = f"restored after run {THEIRS}: 1 setting as before"
    assert f"✓ lab: {restored}\n" in said.out
    (first,) = [line for line in said.out.splitlines() if line.startswith("  First  ")]
    assert first.split(maxsplit=1)[1] == restored
    verb, run = said.out.splitlines()[-1].split()[1:3]
    assert (verb, run) == ("resume", scene.store.runs()[0].run)


def test_what_the_status_of_a_killed_run_says_is_typed(scene: Scene) -> None:
    """Its last line restores; the last line of that end continues the run."""
    limits = Purpose.RAISE_LIMITS
    raised = SettingChanged(level=Level.PERSISTENT, key=SPEED, found=None, wanted="100mb", purpose=limits)
    journal = scene.store.create_run(entry(OURS, DEAD_PROCESS))
    journal.append([started(cluster_file=scene.file), raised], 1.0)
    line = scene.console.run("status").out.splitlines()[-1]
    assert line == f"    orchestrate restore {OURS}"
    said = scene.console.run(*line.split()[1:])
    assert (said.code, scene.is_restored()) == (ExitCode.DONE, True)
    assert f"✓ lab: restored after run {OURS}: 1 setting as before\n" in said.out
    assert said.out.splitlines()[-1].split()[:3] == ["orchestrate", "resume", OURS]
