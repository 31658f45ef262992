"""The lease of a Riak cluster on its hosts: a majority decides, whoever else writes there, whatever is down.

Every host is a folder that real shells work on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Level
from orchestrator.model.reading import Garbled, Reading, Unknown
from orchestrator.riak.lease_files import Damaged, LeaseMark, parse_listing, text_of
from orchestrator.riak.output import CommandOutput
from tests.fakes.lease_hosts import CLUSTER, LeaseHosts, lease_hosts
from tests.tools import SHELLS, needs, shell_words

pytestmark = pytest.mark.proves("riak-lease")

ANNA = LeaseRecord(
    epoch=1,
    run="20261121-0413-anna",
    owner="anna@bastion1",
    process="boot/1/2/3",
    started="2026-11-21T04:13:00+00:00",
    debts=(SettingChange(level=Level.TRANSIENT, key="transfer_limit.riak@m1", found="2", wanted="8"),),
    in_hand=(NodeInHand(node=NodeName("riak@m2"), incarnation=Incarnation(), address="10.0.0.2"),),
    restarted=(NodeName("riak@m1"),),
)
LIMIT_SECONDS = 30.0
"""Of a wait in a test that goes wrong."""
BEN = replace(ANNA, run="20261121-0500-ben", owner="ben@bastion2", process="boot/1/9/9")


@pytest.fixture
def three(tmp_path: Path) -> LeaseHosts:
    return lease_hosts(tmp_path, 3)


@pytest.fixture
def five(tmp_path: Path) -> LeaseHosts:
    return lease_hosts(tmp_path, 5)


def where(hosts: LeaseHosts, number: int = 1) -> list[str]:
    """The machines that have a file of this number."""
    return [name for name in hosts.machines.values() if hosts.file(name, number).exists()]


def kept(hosts: LeaseHosts, machine: str) -> Any:
    """The record that a machine has."""
    return json.loads(hosts.file(machine).read_text())["record"]


def reason_of(found: ActionResult | Reading[LeaseRecord | None]) -> str:
    assert isinstance(found, Refused | InDoubt | Unknown), found
    return found.reason


def test_the_record_is_on_every_host_for_every_account_to_read(three: LeaseHosts) -> None:
    before = os.umask(0o077)
    try:
        assert three.lease().create(ANNA) == Done()
    finally:
        os.umask(before)
    for machine in three.machines.values():
        assert three.files(machine) == [three.file(machine).name], "nothing else is left there"
        assert stat.S_IMODE(three.file(machine).stat().st_mode) == 0o644
        assert kept(three, machine)["debts"][0]["found"] == "2"
    assert "run 20261121-0413-anna of anna@bastion1" in reason_of(three.lease().create(BEN))
    assert [kept(three, machine)["run"] for machine in three.machines.values()] == [ANNA.run] * 3


# Races


def test_the_first_on_the_first_host_has_it_alone(three: LeaseHosts) -> None:
    """Both have read that there is no lease before either creates it."""
    results: list[ActionResult] = []

    def meanwhile(_node: NodeName, verb: str) -> None:
        if verb == "create":
            three.before = lambda _node, _verb: None
            results.append(three.lease().create(BEN))

    three.before = meanwhile
    said = reason_of(three.lease().create(ANNA))
    assert results == [Done()]
    assert BEN.run in said
    assert three.lease().read() == BEN
    assert where(three) == ["m1", "m2", "m3"]


def test_the_second_on_the_first_host_takes_no_other_host(
    three: LeaseHosts,
) -> None:
    """Ben has the first host and not yet the others as Anna, who has read before, creates hers."""
    ben, has_first, anna_ended = three.seen_by(), threading.Event(), threading.Event()
    results: list[ActionResult] = []

    def wait_for_anna(node: NodeName, verb: str) -> None:
        if verb == "create" and node != "riak@m1":
            has_first.set()
            anna_ended.wait(LIMIT_SECONDS)

    def begin_with_ben(node: NodeName, verb: str) -> None:
        if verb == "create" and node == "riak@m1":
            thread.start()
            has_first.wait(LIMIT_SECONDS)

    ben.before, three.before = wait_for_anna, begin_with_ben
    thread = threading.Thread(target=lambda: results.append(ben.lease().create(BEN)), daemon=True)
    try:
        assert isinstance(three.lease().create(ANNA), Refused)
    finally:
        anna_ended.set()
    thread.join(LIMIT_SECONDS)
    assert results == [Done()]
    assert [node for node, verb in three.asked if verb == "create"] == ["riak@m1"]


def test_a_withdrawal_leaves_the_file_of_another_run(
    three: LeaseHosts,
) -> None:
    """The network breaks as Anna creates, Ben takes the lease, and it heals as she withdraws."""
    ben, lock = three.seen_by().lease(), threading.Lock()
    results: list[ActionResult] = []

    def meanwhile(_node: NodeName, verb: str) -> None:
        if verb == "create":
            three.down = {"m1", "m2", "m3"}
        with lock:
            if verb == "withdraw" and not results:
                results.append(ben.create(BEN))
                three.down = set()

    three.before = meanwhile
    assert isinstance(three.lease().create(ANNA), Refused)
    assert results == [Done()]
    assert [verb for _, verb in three.asked].count("withdraw") == 3
    assert three.seen_by().lease().read() == BEN
    assert ben.write(replace(BEN, heartbeat=1)) == Done()


def test_a_run_without_the_first_host_may_win(
    three: LeaseHosts,
) -> None:
    elsewhere = three.seen_by("m1")
    results: list[ActionResult] = []

    def meanwhile(node: NodeName, verb: str) -> None:
        if verb == "create" and node != "riak@m1" and not results:
            results.append(Refused(reason="under way"))
            results[0] = elsewhere.lease().create(BEN)

    three.before = meanwhile
    three.shell = ("/bin/sh", "-c")
    first = three.lease().create(ANNA)
    won = [result for result in (first, *results) if result == Done()]
    assert len(won) == 1
    winner = ANNA if first == Done() else BEN
    assert three.lease().read() == winner
    assert elsewhere.lease().read() == winner
    assert not three.file("m1").exists() or kept(three, "m1")["run"] == winner.run, "the loser's is removed"


@pytest.mark.parametrize("unreached", [("", ""), ("m1", ""), ("m1", "m3")], ids=str)
def test_of_two_that_create_at_once_one_has_it_at_most(tmp_path: Path, unreached: tuple[str, str]) -> None:
    """Each may miss another host, so that they do not begin at the same one."""
    winners = []
    for attempt in range(4):
        hosts = lease_hosts(tmp_path / str(attempt), 3)
        hosts.base.mkdir()
        results: dict[str, ActionResult] = {}
        barrier = threading.Barrier(2)

        def go(record: LeaseRecord, down: str) -> None:
            lease = hosts.seen_by(*([down] if down else [])).lease()  # noqa: B023  (joined before the next)
            barrier.wait()  # noqa: B023
            results[record.run] = lease.create(record)  # noqa: B023

        threads = [
            threading.Thread(target=go, args=(record, down))
            for record, down in zip((ANNA, BEN), unreached, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won = [run for run, result in results.items() if result == Done()]
        assert len(won) <= 1, results
        assert all(isinstance(result, Done | Refused) for result in results.values())
        found = hosts.lease().read()
        if won:
            assert isinstance(found, LeaseRecord)
            assert [found.run] == won
            winners += won
        else:
            assert found is None, "what both had made is removed again"
    assert winners, "none of the attempts came through"


def test_an_attempt_on_a_minority_deposes_nobody(five: LeaseHosts) -> None:
    """A program that was killed while it took over, or a stranger's file with a high number."""
    anna = five.lease()
    anna.create(ANNA)
    text = text_of(replace(BEN, epoch=2), LeaseMark.HELD)
    for machine in ("m1", "m2"):
        five.file(machine, 2).write_text(text)
    assert anna.write(replace(ANNA, heartbeat=1)) == Done()
    assert five.lease().read() == replace(ANNA, heartbeat=1)
    five.file("m3", 2).write_text(text)
    assert BEN.run in reason_of(anna.write(replace(ANNA, heartbeat=2)))
    assert five.lease().read() == replace(BEN, epoch=2)


def test_what_is_not_certainly_on_a_minority_counts(five: LeaseHosts) -> None:
    anna = five.lease()
    anna.create(ANNA)
    five.file("m1", 2).write_text(text_of(replace(BEN, epoch=2), LeaseMark.HELD))
    five.down = {"m4", "m5"}
    assert five.lease().read() == replace(BEN, epoch=2)
    assert isinstance(anna.write(replace(ANNA, heartbeat=1)), Refused)


def test_a_number_that_failed_is_outranked_by_the_next(five: LeaseHosts) -> None:
    """Two programs were killed while they created it: no third can have a majority of it."""
    for machine, record in (("m1", ANNA), ("m2", ANNA), ("m3", BEN)):
        five.file(machine).write_text(text_of(record, LeaseMark.HELD))
    lease = five.lease()
    assert lease.read() == ANNA, "on most machines: it is watched, and runs out"
    third = replace(BEN, epoch=2, run="r3")
    assert lease.create(third) == Done()
    assert five.lease().read() == third


# Hosts that do not answer


def test_a_minority_may_be_down(tmp_path: Path) -> None:
    for count, down in ((3, {"m2"}), (5, {"m1", "m4"})):
        (base := tmp_path / str(count)).mkdir()
        hosts = lease_hosts(base, count)
        hosts.down = set(down)
        lease = hosts.lease()
        assert lease.create(ANNA) == Done()
        changed = replace(ANNA, heartbeat=3, debts=())
        assert lease.write(changed) == Done()
        assert hosts.lease().read() == changed
        hosts.down = set()
        assert not down & set(where(hosts))
        assert hosts.lease().read() == changed


def test_without_a_majority_nothing_is_known_or_taken(five: LeaseHosts) -> None:
    lease = five.lease()
    five.down = {"m1", "m2", "m3"}
    said = reason_of(lease.read())
    assert "2 of 5 machines answered, and the lease needs 3" in said
    assert "riak@m1: no route to host" in said
    assert "needs 3" in reason_of(lease.create(ANNA))
    five.down = set()
    assert where(five) == []
    lease.create(ANNA)
    five.down = {"m1", "m2", "m3"}
    assert isinstance(lease.write(replace(ANNA, heartbeat=1)), Refused)
    assert isinstance(lease.remove(1), InDoubt)
    five.down = set()
    assert five.lease().read() == ANNA


def test_hosts_that_go_down_while_it_is_created_do_not_count(five: LeaseHosts) -> None:
    def fall(_node: NodeName, verb: str) -> None:
        if verb == "create":
            five.down = {"m3", "m4", "m5"}

    five.before = fall
    lease = five.lease()
    assert isinstance(lease.create(ANNA), Refused)
    five.before, five.down = (lambda _node, _verb: None), set()
    assert five.lease().read() is None
    assert five.lease().create(BEN) == Done()


def test_an_attempt_that_cannot_be_withdrawn_is_no_lease(five: LeaseHosts) -> None:
    """Three of five hosts go away after it was made on two: whether that is a majority nobody can see."""

    def fall(node: NodeName, verb: str) -> None:
        if verb == "create" and node in {"riak@m3", "riak@m4", "riak@m5"}:
            five.down = {"m3", "m4", "m5"}
        if verb == "remove":
            five.down = {"m1", "m2", "m3", "m4"}

    five.before = fall
    lease = five.lease()
    assert isinstance(lease.create(ANNA), Refused)
    five.before, five.down = (lambda _node, _verb: None), {"m4", "m5"}
    five.file("m1").write_text(text_of(ANNA, LeaseMark.HELD))
    assert "our own attempt" in reason_of(lease.read())


def test_a_record_that_is_gone_is_made_again_unless_everywhere(three: LeaseHosts) -> None:
    lease = three.lease()
    lease.create(ANNA)
    three.file("m1").unlink()  # it lost its disk
    three.down = {"m3"}
    later = replace(ANNA, heartbeat=1, debts=())
    assert lease.write(later) == Done()
    three.down = set()
    assert three.lease().read() == later, "the one that was away has an older one"
    assert lease.write(replace(later, heartbeat=2)) == Done()
    assert [kept(three, machine)["heartbeat"] for machine in three.machines.values()] == [2, 2, 2]
    for machine in ("m1", "m2"):
        three.file(machine).unlink()
    assert lease.write(replace(later, heartbeat=3)) == Done()
    assert where(three) == ["m1", "m2", "m3"], "one is enough to know it by"
    for machine in three.machines.values():
        three.file(machine).unlink()
    assert "somebody removed it" in reason_of(lease.write(replace(ANNA, heartbeat=4)))
    assert where(three) == []


def test_a_host_that_hangs_delays_no_other_host(three: LeaseHosts) -> None:
    over = threading.Event()

    def hang(node: NodeName, _verb: str) -> None:
        if node == "riak@m3":
            over.wait(60)

    three.before = hang
    lease = three.lease(clock=time.monotonic)
    try:
        for _ in range(3):
            lease.read()
        assert [node for node, _ in three.asked].count(NodeName("riak@m3")) == 1
        assert lease.create(ANNA) == Done()
    finally:
        over.set()


# Released


def test_nothing_is_left_after_a_release(three: LeaseHosts) -> None:
    lease = three.lease()
    lease.create(ANNA)
    assert three.lease().remove(1) == Done()
    assert three.lease().read() == ANNA, "a program removes no lease that it does not hold"
    lease.create(replace(BEN, epoch=2))
    assert lease.remove(2) == Done()
    assert [three.files(machine) for machine in three.machines.values()] == [[], [], []]
    three.file("m2").write_text(text_of(replace(ANNA, heartbeat=9), LeaseMark.RELEASED))
    for machine in ("m1", "m3"):
        three.file(machine).write_text(text_of(ANNA, LeaseMark.HELD))
    assert three.lease().read() == ANNA, "one machine's word is no release"


def test_a_run_may_be_killed_and_resumed_as_often_as_one_likes(three: LeaseHosts) -> None:
    """Each time it takes the next number, and a host lists no more than sixteen."""
    for epoch in range(1, 19):
        three.down = {"m3"} if epoch == 5 else set()
        record = replace(ANNA, epoch=epoch, process=f"boot/1/{epoch}/1")
        assert three.lease().create(record) == Done()
        assert three.lease().read() == record
    assert [where(three, epoch) for epoch in range(1, 18)] == [[]] * 17
    assert where(three, 18) == ["m1", "m2", "m3"]


def test_an_older_file_that_could_not_be_removed_is_outranked(three: LeaseHosts) -> None:
    three.lease().create(ANNA)
    three.down = {"m3"}
    later = replace(BEN, epoch=2)
    assert three.lease().create(later) == Done()
    three.down = set()
    assert (where(three, 1), where(three, 2)) == (["m3"], ["m1", "m2"])
    assert three.lease().read() == later


def test_a_host_away_at_the_release_revives_no_old_run(three: LeaseHosts) -> None:
    anna = three.lease()
    anna.create(ANNA)
    three.down = {"m3"}
    assert anna.remove(1) == Done()
    three.down = set()
    later = three.lease()
    assert later.read() is None
    assert later.create(BEN) == Done()
    assert where(three, 2) == ["m1", "m2", "m3"]
    three.down = {"m1"}
    assert three.lease().read() == BEN
    assert later.write(replace(BEN, heartbeat=1)) == Done()
    three.down = set()
    assert later.remove(1) == Done()
    assert three.lease().read() is None
    assert [three.files(machine) for machine in three.machines.values()] == [[], [], []]


# Machines


def test_nodes_of_one_machine_share_one_file_and_count_once(tmp_path: Path) -> None:
    on = {"a": "m1", "b": "m1", "c": "m1", "d": "m2", "e": "m3"}
    hosts = LeaseHosts(base=tmp_path, machines={NodeName(f"riak@{node}"): m for node, m in on.items()})
    lease = hosts.lease()
    assert lease.create(ANNA) == Done()
    assert [verb for _, verb in hosts.asked].count("create") == 3
    hosts.down = {"m1"}  # three of five nodes, and one of three machines
    assert lease.read() == ANNA
    # Who has never seen these nodes must take each for a machine: that errs on the safe side.
    assert "2 of 5 machines answered" in reason_of(hosts.lease().read())
    hosts.down = {"m2", "m3"}
    assert "1 of 3 machines answered, and the lease needs 2" in reason_of(hosts.lease().read())


# What others put there


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(text_of(BEN, LeaseMark.HELD))
    (tmp_path / "trap").mkdir()
    return path


ATTACKS: dict[str, Callable[[Path, Path], object]] = {
    "a link to a file": lambda path, secret: path.symlink_to(secret),
    "a link to a folder": lambda path, secret: path.symlink_to(secret.parent / "trap"),
    "a link to nothing": lambda path, secret: path.symlink_to(secret.parent / "nothing"),
    "a folder": lambda path, _: path.mkdir(),
    "a pipe": lambda path, _: os.mkfifo(path),
    "nonsense": lambda path, _: path.write_text("once upon a time\nfile 9 root {}\nend\n"),
}


def test_a_planted_file_counts_on_no_minority_and_is_named(
    subtests: pytest.Subtests, tmp_path: Path, secret: Path
) -> None:
    for number, (attack, plant) in enumerate(ATTACKS.items()):
        with subtests.test(attack):
            (base := tmp_path / str(number)).mkdir()
            three = lease_hosts(base, 3)
            plant(three.file("m1"), secret)
            lease = three.lease()
            assert lease.read() is None, "a link is not followed"
            assert lease.create(ANNA) == Done()
            assert lease.write(replace(ANNA, heartbeat=1)) == Done()
            assert three.lease().read() == replace(ANNA, heartbeat=1)
            assert json.loads(secret.read_text())["record"]["run"] == BEN.run, "nothing goes through a link"
            assert not (secret.parent / "nothing").exists()
            assert list((secret.parent / "trap").iterdir()) == []
            assert attack != "a folder" or list(three.file("m1").iterdir()) == []
            (base := tmp_path / f"{number} on many").mkdir()
            three = lease_hosts(base, 3)
            for machine in ("m1", "m3"):
                plant(three.file(machine), secret)
            found = three.lease().read()
            assert isinstance(found, Garbled)
            owner = three.file("m1").lstat().st_uid
            assert "/var/tmp/orchestrate-lease.ring-" in found.reason
            assert f"on riak@m1 of {'root' if owner == 0 else ''}" in found.reason
            assert found.remedy.endswith(".1.json")
            assert "rm /var/tmp/" in found.remedy
            assert isinstance(three.lease().create(ANNA), Refused)


def test_more_files_than_a_cluster_has_are_no_answer(three: LeaseHosts) -> None:
    for number in range(1, 18):
        three.file("m1", number).write_text("")
    for number in (2, 3):
        three.down = {f"m{number}"}
        assert "more than 16 files" in reason_of(three.lease().read())


def test_other_names_are_no_files_of_the_lease(three: LeaseHosts) -> None:
    for machine in three.machines.values():
        path = three.file(machine)
        for name in ("01", "x", "-1", "1234567890", "1 2"):
            path.with_name(path.name.replace(".1.json", f".{name}.json")).write_text("x")
    assert three.lease().read() is None
    for machine in ("m1", "m2"):
        shutil.rmtree(three.base / machine)
        (three.base / machine).write_text("a file")
    assert f"{three.base}/m1 cannot be entered" in reason_of(three.lease().read())


def test_a_host_without_room_is_named_and_nothing_is_left(three: LeaseHosts) -> None:
    """Its `mktemp` fails, as on a full disk or in a folder that takes no file of this account."""
    no_room = three.base / "mktemp"
    no_room.write_text("#!/bin/sh\necho 'mktemp: No space left on device' >&2; exit 1\n")
    no_room.chmod(0o755)
    three.shell = ("env", f"PATH={three.base}:{os.environ['PATH']}", "/bin/sh", "-c")
    said = reason_of(three.lease().create(ANNA))
    assert "riak@m1: mktemp: No space left on device" in said
    assert [three.files(machine) for machine in three.machines.values()] == [[], [], []]


@pytest.mark.skipif(os.getuid() != 0, reason="changes accounts: needs root")
def test_a_file_of_another_account_is_read_and_outranked() -> None:
    """In a sticky folder, as /var/tmp is: nobody can remove what is another one's."""
    setpriv = needs("setpriv")
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        base.chmod(0o755)
        hosts = lease_hosts(base, 3)
        for machine in hosts.machines.values():
            hosts.folder(machine).chmod(0o1777)
        anna, ben = (
            replace(  # noqa: S604  (a field of that name)
                hosts,
                shell=(setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/bin/sh", "-c"),
                _lock=threading.Lock(),
            )
            for uid in (23451, 23452)
        )
        assert anna.lease().create(ANNA) == Done()
        lease = ben.lease()
        assert lease.read() == ANNA, "with its original limits"
        assert "account 23451" in reason_of(lease.create(BEN))
        assert lease.create(replace(BEN, epoch=2)) == Done()
        assert lease.remove(2) == Done()
        assert where(hosts) == ["m1", "m2", "m3"], "they are not Ben's"
        assert ben.lease().read() is None
        assert anna.lease().read() is None
        again = ben.lease()
        assert again.create(BEN) == Done()
        assert anna.lease().read() == BEN
        assert "account 23452" in reason_of(anna.lease().create(ANNA))
    finally:
        shutil.rmtree(base)


def test_a_record_without_measure_is_none(subtests: pytest.Subtests) -> None:
    """Other records that this program does not write are in `tests/data/parsers`."""
    content = json.loads(text_of(ANNA, LeaseMark.HELD))
    in_hand = {"node": "riak@m1", "incarnation": {}, "address": "10.0.0.1"}
    content["record"] |= {"owner": "x" * 999, "in_hand": [in_hand] * 2000}
    for text in ("[" * 60_000, json.dumps(content)):
        with subtests.test(text[:9]):
            output = CommandOutput(exit=0, stdout=f"place b/m/h/1\nfile 1 mallory {text}\nend\n")
            assert isinstance(parse_listing(output).files[1], Damaged)


# Shells and names


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_does(three: LeaseHosts, shell: str, secret: Path) -> None:
    three.shell = (*shell_words(shell), *(["--posix"] if shell == "bash" else []), "-c")
    three.file("m3").symlink_to(secret)
    lease = three.lease()
    assert lease.create(ANNA) == Done()
    assert isinstance(three.lease().create(BEN), Refused)
    assert lease.write(replace(ANNA, heartbeat=1)) == Done()
    assert three.lease().read() == replace(ANNA, heartbeat=1)
    assert three.file("m3").is_symlink()
    three.file("m3").unlink()
    assert lease.remove(1) == Done()
    assert [three.files(machine) for machine in three.machines.values()] == [[], [], []]


def test_any_name_of_a_cluster_makes_a_file_name_of_its_own(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    record = replace(ANNA, owner="o'brien $(touch z)@b;astion")
    for number, cluster in enumerate(
        ["ring's $(touch x) `touch y`", "../ring", "ring;*", "Ré", "a/b", "a b"]
    ):
        with subtests.test(cluster):
            (base := tmp_path / str(number)).mkdir()
            hosts = lease_hosts(base, 3)
            assert hosts.lease(cluster).create(record) == Done()
            assert hosts.lease(cluster).read() == record
            assert hosts.lease().read() is None
            name = hosts.file("m1", cluster=cluster).name
            assert hosts.files("m1") == [name]
            assert re.fullmatch(r"[\w.-]+", name, re.ASCII)
    assert len({hosts.file("m1", cluster=name).name for name in ("a b", "a_b", "a/b", CLUSTER)}) == 4


def test_a_record_that_would_not_be_read_again_is_not_written(three: LeaseHosts) -> None:
    lease = three.lease()
    huge = tuple(NodeName(f"riak@{'m' * 60}{n}") for n in range(1000))
    assert "larger than 65536 bytes" in reason_of(lease.create(replace(ANNA, restarted=huge)))
    assert "no node name" in reason_of(lease.create(replace(ANNA, restarted=(NodeName("a;b"),))))
    assert three.asked == []
