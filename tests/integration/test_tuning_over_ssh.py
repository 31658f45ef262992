"""Hosts tuned over a real sshd: the healthy ones, and each kind of host that is not as one would like it."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BOOT,
    FileChange,
    HostTuning,
    TunableState,
    TuningProfile,
    TuningSetting,
    Verdict,
)
from orchestrator.tuning.tuner import TunableHosts
from tests.fakes.host_kinds import debian
from tests.fakes.host_tree import HostTree
from tests.integration.hostlab.hosts import wait_until
from tests.integration.sshd import QUICK, Sshd, make_key
from tests.tools import as_nobody

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SWAPPINESS = "/proc/sys/vm/swappiness"
PART = "/etc/orchestrate-tuning/lab+{node}.part"
SYSCTL_FILE = "/etc/sysctl.d/90-orchestrate-vm.swappiness.conf"
PASSWORD = "open sesame"  # noqa: S105  (of a fake)
HUGE_PAGES, SWAP = "transparent_hugepage.enabled", "vm.swappiness"
PROFILE = TuningProfile(
    name="test",
    applies_to="elasticsearch",
    settings=(TuningSetting(tunable=HUGE_PAGES, wanted="never"), TuningSetting(tunable=SWAP, wanted="1")),
)
FLOOD = "head -c 20971520 /dev/zero | tr '\\0' x; "


@dataclass(kw_only=True)
class Machine:
    """One host: a tree of files behind an sshd of its own."""

    tree: HostTree
    sshd: Sshd
    settings: HostSettings


Make = Callable[..., Machine]


@pytest.fixture(scope="module")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys") / "id")


@pytest.fixture
def make(tmp_path: Path, client_key: Path) -> Iterator[Make]:
    made: list[Machine] = []
    known_hosts = tmp_path / "known_hosts"
    known_hosts.touch()
    for folder in (tmp_path, *tmp_path.parents):  # for those hosts whose user is nobody
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)

    def begin(node: str, *, entry: str = "", sudo: Sudo = Sudo.OFF, **environment: str) -> Machine:
        """A host with the usual wrong values; `entry` is a shell line that ends in the command asked for."""
        tree = debian(tmp_path / node)
        tree.at("/.log").chmod(0o666)  # for the same
        options: tuple[str, ...] = ()
        if entry:
            tree.program("enter", entry)
            options = (f"ForceCommand {tree.at('/bin/enter')}",)
        sshd = Sshd(
            folder=tmp_path / f"sshd-{node}",
            client_key=client_key,
            options=options,
            environment={"PATH": f"{tree.environment['PATH']}:/usr/bin:/bin", **environment},
        ).start()
        with known_hosts.open("a") as file:
            file.write(sshd.known())
        secret = None if sudo is not Sudo.PASSWORD else lambda: PASSWORD
        changes = {"sudo": sudo, "sudo_password": secret, "root": str(tree.path), "cluster": "lab"}
        machine = Machine(tree=tree, sshd=sshd, settings=sshd.settings(node, known_hosts, **changes))
        made.append(machine)
        return machine

    yield begin
    for machine in made:
        machine.sshd.signal_sessions(signal.SIGCONT)
        machine.sshd.stop()


CALL = '/bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'


def read_only(folder: Path) -> str:
    quoted = shlex.quote(str(folder))
    mounts = f"mount --bind {quoted} {quoted} && mount -o remount,ro,bind {quoted}"
    return f"exec unshare -m /bin/sh -c '{mounts} && exec {CALL.strip()}'\n"


def tune_all(
    machines: Mapping[str, Machine],
) -> tuple[dict[str, object], dict[tuple[str, str], ActionResult]]:
    """Read all of them in one go, and make what has drifted; readings, and results by node and tunable."""
    nodes = [NodeName(name) for name in machines]
    hosts = TunableHosts({node: machines[node].settings for node in nodes})
    try:
        readings = hosts.tuning(nodes, PROFILE)
        results = {
            (node, state.tunable): hosts.perform(
                TuneHost(node=node, tunable=state.tunable, changes=state.changes)
            )
            for node, reading in readings.items()
            if isinstance(reading, HostTuning)
            for state in reading.drifted
        }
        return dict(readings), results
    finally:
        hosts.close()


def state(readings: Mapping[str, object], node: str, tunable: str) -> TunableState:
    reading = readings[node]
    assert isinstance(reading, HostTuning), reading
    return next(one for one in reading.states if one.tunable == tunable)


def is_right(machine: Machine) -> bool:
    tree = machine.tree
    return (
        tree.read(THP) == "always madvise [never]\n"
        and tree.read(SWAPPINESS) == "1\n"
        and "parameter vm.swappiness 1" in tree.at(PART.format(node=machine.settings.node)).read_text()
    )


@pytest.mark.parametrize("sudo", list(Sudo))
def test_a_host_is_read_tuned_found_right_and_put_back(make: Make, sudo: Sudo) -> None:
    machine = make("es1", sudo=sudo)
    if sudo is Sudo.PASSWORD:
        machine.tree.write("/.state/password", PASSWORD)
    before = machine.tree.snapshot()
    hosts = TunableHosts({NodeName("es1"): machine.settings})
    try:
        found = hosts.tuning(["es1"], PROFILE)["es1"]
        assert isinstance(found, HostTuning)
        assert [one.verdict for one in found.states] == [Verdict.DRIFT] * 3  # the next boot is one
        for one in found.drifted:
            result = hosts.perform(TuneHost(node=NodeName("es1"), tunable=one.tunable, changes=one.changes))
            assert isinstance(result, Done), result
        assert is_right(machine)
        after = hosts.tuning(["es1"], PROFILE)["es1"]
        assert isinstance(after, HostTuning)
        assert [one.verdict for one in after.states] == [Verdict.OK] * 3
        for one in reversed(found.drifted):
            back = tuple(change.undone() for change in reversed(one.changes))
            result = hosts.perform(TuneHost(node=NodeName("es1"), tunable=one.tunable, changes=back))
            assert isinstance(result, Done), result
    finally:
        hosts.close()
    undone = {name: one for name, one in machine.tree.snapshot().items() if not name.startswith("/.state/")}
    assert undone == {name: one for name, one in before.items() if not name.startswith("/.state/")}
    assert machine.tree.said("leaks") == []


def test_odd_hosts_get_a_verdict_each_and_the_others_are_tuned(make: Make) -> None:
    machines = {
        "good1": make("good1"),
        "unreadable": make("unreadable", entry=f"exec {shlex.join(as_nobody())} {CALL}"),
        "flooding": make("flooding", entry=f"{FLOOD}exec {CALL}"),
        "german": make("german", sudo=Sudo.PASSWORDLESS, LC_ALL="de_DE.UTF-8", LANG="de_DE.UTF-8"),
        "refusing": make("refusing", sudo=Sudo.PASSWORDLESS),
        "away": make("away"),
        "locked": make("locked", entry="echo This account is currently not available.; exit 1\n"),
        "good2": make("good2"),
    }
    machines["unreadable"].tree.at(THP).chmod(0o000)
    machines["away"].sshd.stop()
    refusing = machines["refusing"].tree
    refusing.refuse_sudo(f"tee {refusing.at(THP)}")
    german = machines["german"].tree
    german.program("tee", 'cat >/dev/null; echo "tee: $1: Das Argument ist ungültig" >&2; exit 1\n')
    for name in ("flooding", "unreadable"):
        limits = replace(QUICK, command=60.0)
        machines[name].settings = replace(machines[name].settings, limits=limits)

    readings, results = tune_all(machines)

    assert is_right(machines["good1"])
    assert is_right(machines["good2"])
    unread = state(readings, "unreadable", HUGE_PAGES)
    assert unread.verdict is Verdict.UNKNOWN
    assert "ermission" in unread.detail
    swap = results["unreadable", SWAP]  # read it may, write it may not
    assert isinstance(swap, Refused)
    assert "Permission denied" in swap.reason
    assert is_right(machines["flooding"])
    for name in ("away", "locked"):
        reading = readings[name]
        assert isinstance(reading, Unknown), (name, reading)
        assert f"host of {name}" in reading.reason
        assert len(reading.reason) < 1000
    for tunable in (HUGE_PAGES, SWAP):
        said = results["german", tunable]
        assert isinstance(said, Refused), said
        assert "ungültig" in said.reason
    one, other = results["refusing", HUGE_PAGES], results["refusing", SWAP]
    assert isinstance(one, Refused)
    assert one.reason.startswith(HUGE_PAGES)
    assert "sudo refused" in one.reason
    assert isinstance(other, Done)


def test_an_answer_between_two_floods_is_read(make: Make) -> None:
    around = f'{FLOOD}/bin/sh -c "$SSH_ORIGINAL_COMMAND"; {FLOOD}exit 0\n'
    machine = make("es1", entry=around)
    machine.settings = replace(machine.settings, limits=replace(QUICK, command=60.0))
    hosts = TunableHosts({NodeName("es1"): machine.settings})
    change = FileChange(path=SYSCTL_FILE, found=None, wanted="vm.swappiness = 1\n")
    try:
        result = hosts.perform(TuneHost(node=NodeName("es1"), tunable=SWAP, changes=(change,)))
    finally:
        hosts.close()
    # What comes before its mark and behind it is no part of the answer.
    assert isinstance(result, Done)
    assert len(result.output) < 1000
    assert machine.tree.at(SYSCTL_FILE).read_text() == "vm.swappiness = 1\n"


def test_a_read_only_file_system_is_told_and_nothing_is_altered(make: Make, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    machine = make("es1", entry=read_only(tmp_path / "es1" / "etc"))
    _, results = tune_all({"es1": machine, "es2": (other := make("es2"))})
    boot = results["es1", BOOT]
    assert isinstance(boot, Refused)  # the running value is set; the script of the next boot is not there
    assert "Read-only file system" in boot.reason
    assert isinstance(results["es1", SWAP], Done)
    assert machine.tree.read(SWAPPINESS) == "1\n"
    assert not machine.tree.at("/etc/orchestrate-tuning").exists()
    assert is_right(other)


def test_a_connection_that_goes_does_not_stop_the_change(make: Make, tmp_path: Path) -> None:
    machine = make("es1")
    gone = tmp_path / "gone"
    slow = f'touch {gone}; sleep 1; exec cat >"$1"\n'
    machine.tree.program("tee", slow)
    hosts = TunableHosts({NodeName("es1"): machine.settings})
    changes = tuple(
        FileChange(path=f"/etc/sysctl.d/{name}.conf", found=None, wanted=name) for name in ("one", "two")
    )
    action = TuneHost(node=NodeName("es1"), tunable=SWAP, changes=changes)
    cutter = threading.Thread(
        target=lambda: wait_until(gone.exists, seconds=10) and machine.sshd.signal_sessions(signal.SIGKILL)
    )
    cutter.start()
    try:
        result = hosts.perform(action)
        cutter.join()
        assert isinstance(result, InDoubt), result
        assert wait_until(machine.tree.at("/etc/sysctl.d/two.conf").exists, seconds=10)
        machine.tree.without("tee")
        assert wait_until(lambda: machine.tree.at("/etc/sysctl.d/two.conf").read_text() == "two", seconds=10)
        # Sent again, it finds itself done.
        again = hosts.perform(action)
        assert isinstance(again, Done)
        assert "2 made before" in again.output
    finally:
        hosts.close()
