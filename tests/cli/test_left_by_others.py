"""A run is taken up on whose cluster another one has died since: its leftovers are put back too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RestoreBegun, RunFinished, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind, LeasePlace, Policy
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import StateStore
from orchestrator.stores.elasticsearch.lease import lease_body
from tests.cli.console import LIMIT_SECONDS, SCRIPT, Console
from tests.cli.runs import entry
from tests.cli.small_cluster import NODES, SmallCluster
from tests.fakes.scripted_http import reply
from tests.tools import heeding_modes, own_mounts

SPEED = "indices.recovery.max_bytes_per_sec"
OURS, THEIRS = "20261101-0300-abcd", "20261102-0300-efgh"
LEASES = "/_component_template/orchestrate-lease-*"
UNREADABLE = {"template": {}, "_meta": {"orchestrate": "once upon a time"}}
"""A template of a lease that holds no record."""


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        server.settings["persistent"][SPEED] = "100mb"
        yield server


def _ended(store: StateStore, file: str, lease: LeasePlace, *, uuid: str = "uuid") -> None:
    """A run of ours that was interrupted before it touched a node."""
    ended = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=1.0)
    store.create_run(entry(OURS, "boot/1/2/3")).append([_begun(file, lease, uuid), ended], 1.0)


def _begun(file: str, lease: LeasePlace, uuid: str = "uuid") -> RunStarted:
    return RunStarted(
        cluster="lab",
        cluster_uuid=uuid,
        version="8.19.0",
        distribution="elasticsearch",
        policy=Policy(kind=Kind.ELASTICSEARCH, cluster="lab", lease=lease),
        nodes=tuple(NodeName(name) for name in NODES),
        addresses={NodeName(name): "127.0.0.1" for name in NODES},
        operator="ann",
        host="bastion",
        cluster_file=file,
    )


def _theirs() -> LeaseRecord:
    """The record of a run that is gone and had raised a limit of recovery."""
    boot, namespace, *_ = str(current_process()).split("/")
    return LeaseRecord(
        epoch=1,
        run=THEIRS,
        owner="ben@here",
        process=f"{boot}/{namespace}/{2**22 + 1}/1",  # above the highest pid that Linux gives
        started="2026-11-02",
        debts=(SettingChange(level=Level.PERSISTENT, key=SPEED, found=None, wanted="100mb"),),
    )


def _repairs(store: StateStore) -> list[str | None]:
    """Whose leftovers the runs of the state put back."""
    begun = [record.event for entry in store.runs() for record in store.replay(entry.run)]
    return [event.repairs for event in begun if isinstance(event, RunStarted) and event.repairs]


def test_a_missed_record_is_seen_when_the_lease_is_taken(
    console: Console, cluster: SmallCluster, store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other run's record cannot be read at first: unknown is not nothing."""
    _ended(store, cluster.write_file(console.folder), LeasePlace.CLUSTER)
    cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(_theirs())))
    down = reply({"error": {"type": "master_not_discovered_exception"}, "status": 503}, status=503)
    cluster.on(LEASES, down, *cluster.answers[LEASES])
    assert run(["restore", OURS]) == ExitCode.DONE
    assert f"run {THEIRS} of ben@here ended without restoring its changes" in capsys.readouterr().err
    assert _repairs(store) == [THEIRS]
    assert (cluster.templates, cluster.settings["persistent"]) == ({}, {})
    assert any(isinstance(record.event, RestoreBegun) for record in store.replay(OURS))


@pytest.mark.parametrize("command", ["resume", "restore"])
def test_a_run_that_is_alive_is_not_said_to_have_ended(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """It has changed a setting, as every run at work has."""
    _ended(store, cluster.write_file(console.folder), LeasePlace.CLUSTER)
    alive = replace(_theirs(), process=str(current_process()))
    cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(alive)))
    yes = ["--yes"] if command == "resume" else []
    assert run([command, OURS, *yes]) == ExitCode.LEASED
    said = capsys.readouterr().err
    assert f"run {THEIRS} of ben@here" in said
    assert "ended without restoring" not in said


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


@pytest.mark.parametrize("command", ["stop", "pause"])
def test_a_request_says_that_a_suspended_run_reads_it_later(
    store: StateStore, capsys: pytest.CaptureFixture[str], suspended: subprocess.Popen[bytes], command: str
) -> None:
    store.create_run(entry(OURS, _identity(suspended))).append([_begun("", LeasePlace.CLUSTER)], 1.0)
    assert run([command, OURS]) == ExitCode.DONE
    said, pid = capsys.readouterr().out, suspended.pid
    assert f"asked run {OURS} on lab" in said
    assert f"its process {pid} is suspended and reads it after `kill -CONT {pid}`" in said
    suspended.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, pid, os.WCONTINUED)
    assert run([command, OURS]) == ExitCode.DONE
    assert "suspended" not in capsys.readouterr().out


def test_a_run_suspended_on_this_machine_continues_first(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    capsys: pytest.CaptureFixture[str],
    suspended: subprocess.Popen[bytes],
) -> None:
    """It acts on no request of `orchestrate stop`, and on no signal before that one."""
    _ended(store, cluster.write_file(console.folder), LeasePlace.CLUSTER)
    process = _identity(suspended)
    cluster.templates["orchestrate-lease-1"] = json.loads(
        json.dumps(lease_body(replace(_theirs(), process=process)))
    )
    assert run(["restore", OURS]) == ExitCode.LEASED
    said, pid = capsys.readouterr().err, suspended.pid
    assert f"run {THEIRS} of ben@here" in said
    assert f"its process {pid} is suspended on this machine" in said
    assert f"`kill -CONT {pid}`" in said
    assert f"`kill {pid}`" in said
    assert "orchestrate stop" not in said


def test_a_kill_between_takeover_and_record_forgets_nothing(
    console: Console, cluster: SmallCluster, store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record bears our run's name already, and what stands in it is the other one's."""
    _ended(store, cluster.write_file(console.folder), LeasePlace.CLUSTER)
    taken_over = replace(_theirs(), epoch=2, run=OURS, owner="ann@bastion", left_by=THEIRS)
    cluster.templates["orchestrate-lease-2"] = json.loads(json.dumps(lease_body(taken_over)))
    assert run(["restore", OURS]) == ExitCode.DONE
    assert f"run {THEIRS} ended without restoring its changes" in capsys.readouterr().err
    assert _repairs(store) == [THEIRS]
    assert (cluster.templates, cluster.settings["persistent"]) == ({}, {})


@pytest.mark.parametrize(
    "line", ["restart --yes --cluster {file}", "restore --cluster {file}", "resume --yes"]
)
def test_a_garbled_record_is_named_at_once_with_the_way_out(
    console: Console, cluster: SmallCluster, store: StateStore, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file = cluster.write_file(console.folder)
    if line.startswith("resume"):
        _ended(store, file, LeasePlace.CLUSTER)
    cluster.templates["orchestrate-lease-7"] = UNREADABLE
    began = time.monotonic()
    assert run(line.format(file=file).split()) == ExitCode.HELD
    assert time.monotonic() - began < 30
    said = capsys.readouterr().err
    assert "component template orchestrate-lease-7 holds no record that this version can read" in said
    assert "`orchestrate restore RUN`" in said
    assert "DELETE /_component_template/orchestrate-lease-7" in said


def test_a_run_of_the_state_is_restored_beside_a_garbled_record(
    console: Console, cluster: SmallCluster, store: StateStore
) -> None:
    _ended(store, cluster.write_file(console.folder), LeasePlace.CLUSTER)
    cluster.templates["orchestrate-lease-7"] = UNREADABLE
    assert run(["restore", OURS]) == ExitCode.DONE


@pytest.mark.parametrize("case", ["resume name", "resume uuid", "restore name", "restore uuid"])
def test_a_run_is_not_continued_on_another_cluster(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    capsys: pytest.CaptureFixture[str],
    case: str,
) -> None:
    verb, wrong = case.split()
    file = cluster.write_file(console.folder, **({"name": "other"} if wrong == "name" else {}))
    _ended(store, file, LeasePlace.CLUSTER, uuid="another" if wrong == "uuid" else "uuid")
    assert run([verb, OURS, "--yes"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"run {OURS} began on cluster 'lab'" in said
    assert ("'other'" if wrong == "name" else "another") in said
    assert cluster.templates == {}
    assert cluster.settings["persistent"] == {SPEED: "100mb"}


@pytest.mark.parametrize("place", LeasePlace)
@pytest.mark.parametrize("why", ["it may only be read", "no space is left on its disk"])
def test_pending_changes_are_restored_without_a_journal(
    console: Console, cluster: SmallCluster, store: StateStore, place: LeasePlace, why: str
) -> None:
    _ended(store, cluster.write_file(console.folder), place)
    if place is LeasePlace.CLUSTER:
        cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(_theirs())))
    else:
        store.lease("uuid").create(_theirs())
    done = _restored_on_a_full_disk(console) if "space" in why else _restored_read_only(console)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "continuing without writing to it" in done.stderr
    assert why in done.stderr
    assert f"run {THEIRS} of ben@here ended without restoring its changes" in done.stderr
    assert (cluster.templates, cluster.settings["persistent"]) == ({}, {})
    assert _repairs(store) == []
    if "space" not in why:  # the full disk is seen by that process alone
        assert store.is_unwritten(OURS)


def test_a_read_only_state_hinders_no_restore_by_cluster(
    console: Console, cluster: SmallCluster, store: StateStore
) -> None:
    file = cluster.write_file(console.folder)
    _ended(store, file, LeasePlace.CLUSTER)
    cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(_theirs())))
    done = _restored_read_only(console, "--cluster", file)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "continuing without writing to it" in done.stderr
    assert (cluster.templates, cluster.settings["persistent"]) == ({}, {})


@pytest.mark.parametrize("place", LeasePlace)
def test_a_live_holder_is_seen_without_a_journal(
    console: Console, cluster: SmallCluster, store: StateStore, place: LeasePlace
) -> None:
    """In the state too where the cluster has a lease: a repair without a master holds that one alone."""
    _ended(store, cluster.write_file(console.folder), place)
    store.lease("uuid").create(replace(_theirs(), process=str(current_process())))
    done = _restored_read_only(console)
    assert done.returncode == ExitCode.LEASED, done.stderr
    assert f"another run holds the lease on lab: run {THEIRS} of ben@here" in done.stderr


def test_without_any_lease_that_can_be_written_nothing_begins(
    console: Console, cluster: SmallCluster, store: StateStore
) -> None:
    """What was left is put back all the same: the cluster may have no master because of us."""
    _ended(store, cluster.write_file(console.folder), LeasePlace.CLUSTER)
    store.lease("uuid").create(_theirs())
    cluster.on("/_component_template/orchestrate-lease-1", reply({"status": 403, "error": "no"}, status=403))
    cluster.on("/_component_template/orchestrate-lease-2", reply({"status": 403, "error": "no"}, status=403))
    done = _restored_read_only(console)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "continuing with the lease in the state alone" in done.stderr
    assert f"run {THEIRS} of ben@here ended without restoring its changes" in done.stderr
    assert (cluster.templates, cluster.settings["persistent"]) == ({}, {})


def _restored_read_only(console: Console, *what: str) -> subprocess.CompletedProcess[str]:
    """`restore` of our run by an account that may read the state and not write it."""
    console.state.chmod(0o444)
    return _restored(console, console.state, *heeding_modes(), what=what or (OURS,))


def test_a_record_in_the_cluster_alone_is_restored_elsewhere(
    console: Console, cluster: SmallCluster, store: StateStore
) -> None:
    """The state here knows of no run, and takes none: there is nothing in it to go on from."""
    file = cluster.write_file(console.folder)
    cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(_theirs())))
    store.close()
    done = _restored_on_a_full_disk(console, "--cluster", file)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "no space is left on its disk" in done.stderr
    assert "--state sqlite:///$HOME/empty.db restores what the record in the cluster lists" in done.stderr
    assert "orchestrate-lease-1" in cluster.templates


def _restored_on_a_full_disk(console: Console, *what: str) -> subprocess.CompletedProcess[str]:
    """The same with the state on a file system without a byte left, that nobody but the program sees."""
    folder = console.folder / "small"
    folder.mkdir()
    script = (
        f"mount -t tmpfs -o size=1m,mode=700 none {folder} && cp {console.state} {folder}/state.db && "
        f'{{ cat /dev/zero > {folder}/fill 2> /dev/null; [ -s {folder}/fill ]; }} && exec "$@"'
    )
    alone = (*own_mounts(), "sh", "-c", script, "sh")
    return _restored(console, folder / "state.db", *alone, what=what or (OURS,))


def _restored(
    console: Console, state: Path, *before: str, what: tuple[str, ...] = (OURS,)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  (the program under test)
        [*before, str(SCRIPT), "restore", *what],
        env={**console.variables(), "ORCHESTRATE_STATE": f"sqlite:///{state}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


@pytest.mark.parametrize("place", LeasePlace)
def test_what_stands_in_the_state_alone_is_put_back_too(
    console: Console,
    cluster: SmallCluster,
    store: StateStore,
    capsys: pytest.CaptureFixture[str],
    place: LeasePlace,
) -> None:
    file = cluster.write_file(console.folder)
    _ended(store, file, place)
    store.lease("uuid").create(_theirs())
    assert run(["restore", OURS]) == ExitCode.DONE
    assert f"run {THEIRS} of ben@here ended without restoring its changes" in capsys.readouterr().err
    assert _repairs(store) == [THEIRS]
    assert store.lease("uuid").read() is None
