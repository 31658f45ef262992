"""Host tuning on real hosts: wrong everywhere, right after a restart and a boot, as found in the end.

systemd, init scripts, sshd, sudo, udev, tuned, numad and the kernel are real. The kernel is the machine's,
and one for all hosts: what the tuning of the first host made right is right on the others too, and they have
files, services and disks of their own to change.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.hostlab import docker
from tests.integration.hostlab.flavours import find_flavour
from tests.integration.hostlab.hosts import wait_until
from tests.integration.hostlab.images import build
from tests.integration.hostlab.kernel import kept, read_kernel
from tests.integration.mistuned import (
    HUGE_PAGES,
    OTHER_PROFILE,
    SCHEDULER,
    TUNED_PROFILE,
    WRONG,
    applied_by_tuned,
    assert_same,
    device,
    mistune,
    reboot,
    scheduler,
    standing,
    values,
)
from tests.integration.operating import Operator, lives
from tests.integration.zoning import events

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.fixtures_processes import Show
    from tests.integration.hostlab.hosts import HostCluster

FLAVOUR = "tuning"
pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]
in_tuning = pytest.mark.part(name="tuning")
DRIFT = 3
OF_KERNEL = frozenset(
    {
        "transparent_hugepage.enabled",
        "transparent_hugepage.defrag",
        "transparent_hugepage.khugepaged_defrag",
        "vm.zone_reclaim_mode",
        "vm.swappiness",
        "vm.max_map_count",
    }
)
OF_HOST = frozenset({"boot", "io_scheduler", "numad"})
PLAYBOOK = {"tune": "elasticsearch", "settle": {"consecutive": 2}}


class Scene:
    """Hosts on which everything is wrong, and an operator."""

    def __init__(self, cluster: HostCluster, folder: Path, show: Show) -> None:
        self.cluster, self.show = cluster, show
        for name in cluster.names:
            mistune(cluster, name)
        self.before = {name: standing(cluster, name) for name in cluster.names}
        self.wrong = {name: {**WRONG, scheduler(cluster, name): SCHEDULER} for name in cluster.names}
        for name, found in self.before.items():  # the test's own preparation, read past the program
            assert found.values.items() >= self.wrong[name].items(), name
        self.others = self._other_disks()
        self.operator = Operator(folder=folder, cluster=cluster)
        self.file = self.operator.write(playbook=PLAYBOOK)
        run = self.tune("check", code=DRIFT)
        self.drift = self.verdicts(run, "drift")
        show(f"tune check, exit 3, on each of {len(self.drift)}: {', '.join(sorted(self.drift['es1']))}")
        assert all(drift >= OF_KERNEL | OF_HOST for drift in self.drift.values()), self.drift
        assert not any(self.verdicts(run, "unknown").values())

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints that ends with this code."""
        run = self.operator.orchestrate(*words, "--cluster", str(self.file), "--output", "json", seconds=900)
        assert run.returncode == code, run.stdout + run.stderr
        return run.stdout

    def tune(self, verb: str, code: int = 0) -> str:
        """`tune check`, `apply` or `revert`."""
        return self.run("tune", verb, *(() if verb == "check" else ("--yes",)), code=code)

    @staticmethod
    def verdicts(output: str, verdict: str) -> dict[str, set[str]]:
        """Tunables of that verdict, by host, as `tune check` has them."""
        found: dict[str, set[str]] = {}
        for line in events(output, "tunable"):
            found.setdefault(line["node"], set()).update(
                {line["tunable"]} if line["verdict"] == verdict else ()
            )
        assert found, output
        return found

    def journal(self) -> list[dict[str, Any]]:
        """Every event of the only run, from the state database itself, past the program."""
        file = f"file:{self.operator.folder}/state.db?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as database:
            rows = database.execute("select event from events order by sequence").fetchall()
        return [json.loads(row[0]) for row in rows]

    def assert_tuned_by_a_restart(self) -> None:
        """A rolling restart tunes every host while its node is down, and no other disk."""
        born = lives(self.cluster)
        self.run("restart", "--yes")
        after, written = lives(self.cluster), self.journal()
        assert all(after[name] != born[name] for name in self.cluster.names)
        # The kernel is one: its values are changed at the first host, and right at the next ones.
        sent = [event["action"] for event in written if event["event"] == "action_sent"]
        stops = [action["node"] for action in sent if action["verb"] == "stop"]
        for name in self.cluster.names:
            wanted = self.drift[name] if name == stops[0] else self.drift[name] - OF_KERNEL
            assert_in_the_window(written, name, wanted)
        found = {
            change["path"]: change["found"]
            for action in sent
            if action["verb"] == "tune" and action["node"] == stops[0]
            for change in action["changes"]
            if change["change"] == "value"
        }
        assert found == self.wrong[stops[0]], "what was found is recorded before it is changed"
        self.assert_right()

    def assert_applied(self) -> None:
        """`tune apply` makes the same changes, without a restart."""
        born = lives(self.cluster)
        applied = events(self.tune("apply"), "tuning_applied")
        assert {line["tunable"] for line in applied} == self.drift["es1"]
        self.assert_right()
        assert lives(self.cluster) == born

    def assert_right(self) -> None:
        """`tune check` finds nothing on any host, and the kernel agrees; other disks are as they were."""
        assert self.verdicts(self.tune("check"), "drift") == {name: set() for name in self.cluster.names}
        for name in self.cluster.names:
            assert not self._still_wrong(name), name
        assert self._other_disks() == self.others

    def assert_right_after_a_boot(self, name: str) -> None:
        """A host comes up anew, from the kernel's wrong defaults, and is right by itself."""
        reboot(self.cluster, name)
        assert not self._still_wrong(name)
        self.cluster.wait_ready(status="green")  # a node that is not there is not checked
        self.assert_right()

    def assert_right_after_tuned(self, name: str) -> None:
        """tuned starts again, then changes its profile by hand: our unit writes last each time."""
        for line in (
            "systemctl restart tuned",
            f"tuned-adm profile {OTHER_PROFILE}",
            f"tuned-adm profile {TUNED_PROFILE}",
        ):
            applied = applied_by_tuned(self.cluster, name)
            self.cluster.exec(name, line)

            def has_applied(before: int = applied) -> bool:
                return applied_by_tuned(self.cluster, name) > before

            assert wait_until(has_applied, seconds=60.0), line
            assert wait_until(lambda: self._is_right(name), seconds=60.0), (line, values(self.cluster, name))
            shown = self.cluster.exec(name, "journalctl -u orchestrate-tuning -o cat -n 20").stdout
            assert "/sys/kernel/mm/transparent_hugepage/enabled: always -> never" in shown, shown
        # tuned writes the values that it found at its start, which were wrong.
        for line in (
            f"systemctl stop tuned && sleep 1 && echo always > {HUGE_PAGES}/enabled && systemctl start tuned",
            "systemctl stop tuned",
            "systemctl start tuned",
        ):
            self.cluster.exec(name, line)
            assert wait_until(lambda: self._is_right(name), seconds=60.0), (line, values(self.cluster, name))

    def assert_reverted(self) -> None:
        """`tune revert` brings every host back to what it was, file by file and value by value."""
        self.tune("revert")
        for name, before in self.before.items():
            now = standing(self.cluster, name)
            assert_same(now, before, name)
            self.show(f"{name} as found: {len(now.files)} lines on files, {len(now.values)} of the kernel")
        assert self.verdicts(self.tune("check", code=DRIFT), "drift") == self.drift

    def _still_wrong(self, name: str) -> set[tuple[str, str]]:
        return set(self.wrong[name].items()) & set(values(self.cluster, name).items())

    def _is_right(self, name: str) -> bool:
        idle = self.cluster.exec(name, "systemctl is-active orchestrate-tuning", check=False).stdout.strip()
        return idle == "inactive" and not self._still_wrong(name)

    def _other_disks(self) -> dict[str, str]:
        """Schedulers of the block devices that carry no node's data."""
        own = {device(self.cluster, name) for name in self.cluster.names}
        return {
            path: value
            for path, value in values(self.cluster, "es1").items()
            if path.startswith("/sys/block/") and path.split("/")[3] not in own
        }


def assert_in_the_window(written: list[dict[str, Any]], name: str, tunables: set[str]) -> None:
    """Stopped, everything sent, all read back, started: in this order, once each."""
    told: list[tuple[str, str]] = []
    for event in written:
        match event:
            case {"event": "action_sent" as kind, "action": {"node": node, "verb": verb} as action}:
                what = (f"{kind} {verb}", action.get("tunable", ""))
            case {"event": "phase_entered" as kind, "node": node, "to": to}:
                what = (to, "")
            case {"event": "tuning_applied" | "tuning_missed" as kind, "node": node, "tunable": tunable}:
                what = (kind, tunable)
            case _:
                continue
        if node == name:
            told.append(what)
    stop, start = told.index(("stopped", "")), told.index(("action_sent start", ""))
    assert [kind for kind, _ in told].count("action_sent stop") == 1, told
    for kind in ("action_sent tune", "tuning_applied"):
        places = [place for place, (each, _) in enumerate(told) if each == kind]
        assert {told[place][1] for place in places} == tunables, told
        assert len(places) == len(tunables), told
        assert all(stop < place < start for place in places), told
    for tunable in tunables:
        assert told.index(("action_sent tune", tunable)) < told.index(("tuning_applied", tunable)), told
    assert "tuning_missed" not in {kind for kind, _ in told}, told


def test_one_host_is_set_right_it_lasts_and_a_revert_undoes_it(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path, show: Show
) -> None:
    scene = Scene(fresh_host_cluster(FLAVOUR, nodes=1), tmp_path, show)
    scene.assert_applied()
    scene.assert_right_after_tuned("es1")
    scene.assert_right_after_a_boot("es1")
    scene.assert_reverted()


@in_tuning  # five minutes
def test_a_restart_tunes_every_host_while_its_node_is_down(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path, show: Show
) -> None:
    scene = Scene(fresh_host_cluster(FLAVOUR), tmp_path, show)
    scene.assert_tuned_by_a_restart()
    scene.assert_right_after_a_boot("es1")
    scene.assert_reverted()


@in_tuning
@pytest.mark.parametrize("flavour", ["sysv-tuning"])
def test_a_sysv_host_is_tuned_lastingly_and_reverted(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path, show: Show, flavour: str
) -> None:
    scene = Scene(fresh_host_cluster(flavour, nodes=1), tmp_path, show)
    scene.assert_applied()
    written = set(standing(scene.cluster, "es1").files) - set(scene.before["es1"].files)
    touched = {word for line in written for word in line.split() if word.startswith("/etc/")}
    assert touched >= {"/etc/orchestrate-tuning/boot.sh", "/etc/init.d/orchestrate-tuning"}, touched
    assert not touched & {"/etc/rc.local", "/etc/sysctl.conf"}, touched
    scene.assert_right_after_a_boot("es1")
    scene.assert_reverted()


KILLED = """
import os, sys
from tests.integration.hostlab.kernel import kept, write_kernel
with kept(sys.argv[1], print):
    write_kernel(sys.argv[1], dict([sys.argv[2:]]))
    os._exit(9)
"""


@in_tuning
@pytest.mark.usefixtures("fresh_host_cluster")  # no cluster of ours runs
def test_the_kernel_left_by_a_killed_run_is_restored_by_the_next() -> None:
    """The lab itself: it gives this machine's kernel back as it found it."""
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    image = build(find_flavour(FLAVOUR), progress=print)
    before, path = read_kernel(image), f"{HUGE_PAGES}/enabled"
    value = "madvise" if before[path] == "never" else "never"
    command = (sys.executable, "-c", KILLED, image, path, value)
    root = Path(__file__).parents[2]
    assert subprocess.run(command, cwd=root, check=False, timeout=120).returncode == 9  # noqa: S603  (ours)
    assert read_kernel(image)[path] == value
    with kept(image, print):
        assert read_kernel(image) == before
    assert read_kernel(image) == before
