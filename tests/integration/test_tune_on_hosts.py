"""Host tuning on real hosts: wrong everywhere, right after a restart and a boot, as found in the end.

systemd, sshd, sudo, udev, tuned, numad and the kernel are real. The kernel is the machine's, and one for all
hosts: what the first host's tuning made right is right on the others too, and they have their own files,
services and disks to change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.hostlab.hosts import wait_until
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
from tests.integration.tuning import (
    assert_in_the_window,
    check,
    found_values,
    journal,
    revert,
    verdicts,
    window,
)
from tests.integration.zoning import events

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.hostlab.hosts import HostCluster

FLAVOUR = "tuning"
pytestmark = pytest.mark.docker
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
Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")  # noqa: T201  (what was seen is part of what this shows)

    return line


class Scene:
    """Hosts on which everything is wrong, and an operator."""

    def __init__(self, cluster: HostCluster, folder: Path, say: Say) -> None:
        self.cluster, self.say = cluster, say
        for name in cluster.names:
            mistune(cluster, name)
        self.before = {name: standing(cluster, name) for name in cluster.names}
        self.wrong = {name: {**WRONG, scheduler(cluster, name): SCHEDULER} for name in cluster.names}
        self.others = other_disks(cluster)
        self.operator = Operator(folder=folder, cluster=cluster)
        self.file = self.operator.write(playbook={"tune": "elasticsearch", "settle": {"consecutive": 2}})
        self.drift = self._found_wrong()

    def _found_wrong(self) -> dict[str, set[str]]:
        """`tune check` names everything; first the test's own preparation, read past the program."""
        for name, found in self.before.items():
            assert {path: found.values[path] for path in self.wrong[name]} == self.wrong[name], name
            assert found.services.count("ActiveState=active") == 2, found.services
            assert found.services.count("UnitFileState=enabled") == 2, found.services
        run = check(self.operator)
        assert run.returncode == DRIFT, run.stdout + run.stderr
        drift = verdicts(run, "drift")
        self.say(f"tune check, exit 3, on each of {len(drift)}: {', '.join(sorted(drift['es1']))}")
        assert drift == dict.fromkeys(self.cluster.names, drift["es1"] | OF_KERNEL | OF_HOST)
        assert not any(verdicts(run, "unknown").values())
        return drift

    def assert_tuned_by_a_restart(self) -> None:
        """A rolling restart tunes every host while its node is down, and no other disk."""
        cluster, born = self.cluster, lives(self.cluster)
        run = self.operator.orchestrate("restart", "--cluster", str(self.file), "--yes", "--output", "json")
        assert run.returncode == 0, run.stdout + run.stderr
        after = lives(cluster)
        assert all(after[name] != born[name] for name in cluster.names)
        written = journal(self.operator)
        # The kernel is one: its values are changed at the first host, and right at the next ones.
        first = min(cluster.names, key=lambda name: written.index(sent_stop(name)))
        for name in cluster.names:
            wanted = self.drift[name] if name == first else self.drift[name] - OF_KERNEL
            assert_in_the_window(written, name, wanted)
        assert found_values(written, first) == self.wrong[first]
        self.say("\n".join(f"  {kind} {tunable}" for kind, tunable in window(written, first)))
        self.assert_right()
        assert other_disks(cluster) == self.others

    def assert_applied(self) -> None:
        """`tune apply` makes the same changes, without a restart."""
        born = lives(self.cluster)
        words = ("tune", "apply", "--cluster", str(self.file), "--yes", "--output", "json")
        run = self.operator.orchestrate(*words)
        assert run.returncode == 0, run.stdout + run.stderr
        assert {line["tunable"] for line in events(run.stdout, "tuning_applied")} == self.drift["es1"]
        self.assert_right()
        assert other_disks(self.cluster) == self.others
        assert lives(self.cluster) == born

    def assert_right(self) -> None:
        """`tune check` finds nothing on any host, and the kernel agrees."""
        run = check(self.operator)
        assert run.returncode == 0, run.stdout + run.stderr
        assert verdicts(run, "drift") == {name: set() for name in self.cluster.names}, run.stdout
        for name in self.cluster.names:
            found = values(self.cluster, name)
            assert not set(self.wrong[name].items()) & set(found.items()), name

    def assert_right_after_a_boot(self, name: str) -> None:
        """A host comes up anew, from the kernel's wrong defaults, and is right by itself."""
        reboot(self.cluster, name)
        found = values(self.cluster, name)
        assert not set(self.wrong[name].items()) & set(found.items()), name
        assert standing(self.cluster, name).services.count("ActiveState=inactive") == 1  # numad; tuned runs
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
            self.say(f"{line}: right again")
        self._assert_right_after_a_stop_of_tuned(name)

    def _assert_right_after_a_stop_of_tuned(self, name: str) -> None:
        """tuned writes the values that it found at its start, which were wrong."""
        for line in (
            f"systemctl stop tuned && sleep 1 && echo always > {HUGE_PAGES}/enabled && systemctl start tuned",
            "systemctl stop tuned",
            "systemctl start tuned",
        ):
            self.cluster.exec(name, line)
            assert wait_until(lambda: self._is_right(name), seconds=60.0), (line, values(self.cluster, name))
            self.say(f"{line}: right again")

    def _is_right(self, name: str) -> bool:
        idle = self.cluster.exec(name, "systemctl is-active orchestrate-tuning", check=False).stdout.strip()
        found = values(self.cluster, name)
        return idle == "inactive" and not set(self.wrong[name].items()) & set(found.items())

    def assert_reverted(self) -> None:
        """`tune revert` brings every host back to what it was, file by file and value by value."""
        run = revert(self.operator)
        assert run.returncode == 0, run.stdout + run.stderr
        for name, before in self.before.items():
            now = standing(self.cluster, name)
            assert_same(now, before, name)
            self.say(f"{name} as found: {len(now.files)} lines on files, {len(now.values)} of the kernel")
        reverted = check(self.operator)
        assert (reverted.returncode, verdicts(reverted, "drift")) == (DRIFT, self.drift)


def test_one_host_is_set_right_it_lasts_and_a_revert_undoes_it(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    scene = Scene(fresh_host_cluster(FLAVOUR, nodes=1), tmp_path, say)
    scene.assert_applied()
    scene.assert_right_after_tuned("es1")
    scene.assert_right_after_a_boot("es1")
    scene.assert_reverted()


@pytest.mark.part(name="tuning")  # five minutes
def test_a_restart_tunes_every_host_while_its_node_is_down(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path, say: Say
) -> None:
    scene = Scene(fresh_host_cluster(FLAVOUR), tmp_path, say)
    scene.assert_tuned_by_a_restart()
    scene.assert_right_after_a_boot("es1")
    scene.assert_reverted()


def sent_stop(name: str) -> dict[str, Any]:
    return {"event": "action_sent", "action": {"verb": "stop", "node": name}}


def other_disks(cluster: HostCluster) -> dict[str, str]:
    """Schedulers of the block devices that carry no node's data."""
    own = {device(cluster, name) for name in cluster.names}
    return {
        path: value
        for path, value in values(cluster, "es1").items()
        if path.startswith("/sys/block/") and path.split("/")[3] not in own
    }
