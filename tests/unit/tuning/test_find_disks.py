"""From data paths to disks: stacks of devices in a file tree, found by the shell of the boot script."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.model.host import BlockDevice
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import ValueChange
from orchestrator.tuning import boot, tuner
from orchestrator.tuning.boot import BootPlace
from tests.fakes.block_tree import BlockTree
from tests.fakes.host_tree import HostTree
from tests.fakes.tuned_hosts import profile, setting

CASES = Path(__file__).parents[2] / "data" / "tuning" / "disks.txt"


class Host:
    """A host with a system disk `sda` on `/`, which carries no data."""

    def __init__(self, path: Path) -> None:
        self.tree = HostTree(path)
        self.tree.machine()
        self.tree.systemd()
        self.blocks = BlockTree(self.tree)
        self.blocks.disk("sda")
        self.blocks.mount(self.blocks.partition("sda"), "/")

    def disks(self, *data: str) -> Reading[tuple[BlockDevice, ...]]:
        return self.tree.known_facts(data=data).devices

    def known(self, *data: str) -> tuple[BlockDevice, ...]:
        found = self.disks(*data)
        assert not isinstance(found, Unknown), found
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_devices_and_roles_under_a_data_path(subtests: pytest.Subtests, tmp_path: Path) -> None:
    cases = CASES.read_text().split("\n= ")[1:]
    assert len(cases) > 20
    for number, case in enumerate(cases):
        title, *lines = case.strip().splitlines()
        host = Host(tmp_path / str(number))
        for line in lines:
            if not line.startswith("/"):
                host.blocks.build(line)
                continue
            with subtests.test(title, line=line):
                path, mark, said = line.partition("? ") if "? " in line else line.partition(":")
                found = host.disks(path)
                if isinstance(found, Unknown):
                    assert mark == "? ", found.reason
                    assert said in found.reason
                else:
                    roles = {" ".join((device.name, *device.roles)) for device in found}
                    assert roles == {each.strip() for each in said.split(",") if each.strip()}


def test_data_paths_of_a_disk_and_several_disks(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb", rotational=False), "/data/es7")
    host.blocks.mount(host.blocks.disk("sdc"), "/data/2")
    host.tree.folder("/data/es7/more")
    paths = ("/data/{node}", "/data/2", "/data/{node}/more")
    facts = host.tree.known_facts(node="es7", data=paths)
    assert facts.data_paths == ("/data/es7", "/data/2", "/data/es7/more")
    assert facts.devices == (
        BlockDevice(
            name="sdb",
            roles=("top", "leaf"),
            rotational=False,
            data_paths=("/data/es7", "/data/es7/more"),
        ),
        BlockDevice(name="sdc", roles=("top", "leaf"), rotational=True, data_paths=("/data/2",)),
    )
    lost = host.disks("/data/2", "/data/3")
    assert isinstance(lost, Unknown), "one that cannot be followed makes all of them unknown"
    assert lost.reason.startswith("/data/3: there is no such path")
    none = host.disks()
    assert isinstance(none, Unknown)
    assert "hosts.data" in none.reason


def test_a_volume_turns_where_one_of_its_disks_does(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """The kernel's flag of the volume itself is wrong for RAID before Linux 4.10."""
    for flags, expected in [("00", False), ("01", True), ("0-", None), ("1-", None)]:
        with subtests.test(flags=flags):
            host = Host(tmp_path / flags)
            for name, flag in zip(("sdb", "sdc"), flags, strict=True):
                host.blocks.disk(name)
                at = f"/sys/block/{name}/queue/rotational"
                host.tree.remove(at) if flag == "-" else host.tree.write(at, f"{flag}\n")
            host.blocks.mount(host.blocks.md("md0", ["sdb", "sdc"]), "/data")
            turns = {device.name: device.rotational for device in host.known("/data")}
            assert turns["md0"] is expected


def test_a_data_path_is_never_read_by_the_shell(host: Host) -> None:
    paths = (
        "/da ta/e s",
        "/d'q/$(touch pwned)`touch pwned`",
        '/d"q"/\\back\\',
        "/-rf",
        "/glob*/[x]?",
        "/\u00e4/\u6570\u636e",
        "/~/;exit",
    )
    host.blocks.disk("sdb")
    for path in paths:
        host.blocks.mount("sdb", path)
    before = host.tree.files()
    (found,) = host.known(*paths)
    assert (found.name, found.data_paths) == ("sdb", paths)
    assert host.tree.files() == before


@pytest.mark.parametrize("path", ["data", "", "~/data", "/data\nx", "/data\0"])
def test_a_data_path_that_means_nothing_on_a_host_is_refused(host: Host, path: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts\.data"):
        host.tree.settings(data=(path,))


MOUNTINFO = r"""1 1 0:1 / / rw - rootfs rootfs rw
20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
21 20 8:17 /srv\040x /da\040ta rw shared:3 master:1 - xfs /dev/sd\134b1 rw,noquota
22 20 0:30 / /over rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/u\134\0541,workdir=/w
short
x y 8:1 / / rw - ext4 /dev/sda1 rw
"""
HIDDEN = "8 2 8:1 / /data rw - xfs /dev/sda1 rw\n9 2 8:2 / /data rw - xfs /dev/sda2 rw\n"
CONTAINER = "900 850 0:50 / / rw - overlay overlay rw\n901 900 8:1 / /data rw - ext4 /dev/sda1 rw\n"


def test_the_mount_of_a_path(host: Host, subtests: pytest.Subtests) -> None:
    script = f'root={host.tree.path}\n{boot.shell_text("find.sh")}\nmount_of "$1"'
    for mounts, path, expected in [
        (MOUNTINFO, "/da ta/x", [r"8:17 xfs /dev/sd\134b1 /da\040ta"]),
        (MOUNTINFO, "/da", ["8:1 ext4 /dev/sda1 /"]),
        (MOUNTINFO, "/over/x", ["0:30 overlay overlay /over", "/u,1"]),
        # Of two mounts that show the same parent, the later counts.
        (HIDDEN, "/data/es", ["8:2 xfs /dev/sda2 /data"]),
        # In a container, the mount that the first one lies on is not in its mountinfo.
        (CONTAINER, "/data/es", ["8:1 ext4 /dev/sda1 /data"]),
        (CONTAINER.partition("\n")[2], "/data", ["8:1 ext4 /dev/sda1 /data"]),
        (CONTAINER.partition("\n")[2], "/etc", []),
    ]:
        with subtests.test(path=path, mounts=mounts):
            host.tree.write("/proc/self/mountinfo", mounts)
            done = subprocess.run(  # noqa: S603  (our own functions on a tree)
                ["/bin/sh", "-c", script, "sh", path],
                env=host.tree.environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            assert done.stdout.splitlines() == expected


def _stack(host: Host, dice: random.Random) -> dict[str, set[str]]:
    """Layers of devices, each on some of those below and mounted at its name; the disks that each is on."""
    under: dict[str, set[str]] = {}
    for letter in "bcde":
        flag = dice.random() < 0.5
        name = host.blocks.disk(f"sd{letter}", rotational=flag, scheduler="none [mq-deadline] bfq")
        under[name] = {name}
    for number in range(dice.randint(0, 5)):
        below = dice.sample(sorted(under), dice.randint(1, 3))
        make = dice.choice((host.blocks.lvm, host.blocks.multipath, host.blocks.md))
        label = f"md{number}" if make == host.blocks.md else str(number)
        under[make(label, below)] = {disk for each in below for disk in under[each]}
    for name in under:
        host.blocks.mount(name, f"/{name}")
    return under


WANTED = profile(
    setting("io_scheduler", {"ssd": "none", "rotational": "bfq"}),
    setting("nr_requests", {"ssd": "64", "rotational": "256"}),
    setting("read_ahead_kb", {"ssd": "8", "rotational": "1024"}),
)


@pytest.mark.parametrize("seed", range(6))
def test_check_and_boot_set_the_same_values_of_the_same_disks(host: Host, seed: int) -> None:
    """On a random stack, of exactly the disks under the data."""
    dice = random.Random(seed)  # noqa: S311  (a seed that can be given again)
    under = _stack(host, dice)
    names = dice.sample(sorted(under), min(len(under), 2))
    facts = host.tree.known_facts(tuner.reads(WANTED), data=tuple(f"/{name}" for name in names))
    assert isinstance(facts.devices, tuple)
    disks = {device.name for device in facts.devices if device.is_disk}
    assert disks == set().union(*(under[name] for name in names))
    found = tuner.compare(facts, WANTED, BootPlace(part="a+b"))
    changes = {
        (change.path, change.wanted)
        for state in found.states
        for change in state.changes
        if isinstance(change, ValueChange)
    }
    assert changes
    for path, text in found.part.items():
        host.tree.write(path, text)
    before = host.tree.files()
    done = host.tree.shell(boot.script_text(str(host.tree.path)))
    assert done.returncode == 0, (done.stdout, done.stderr)
    written = {
        (f"/sys/block/{path.split('/')[-3]}/queue/{path.split('/')[-1]}", text.strip())
        for path, text in host.tree.files().items()
        if "/queue/" in path and before[path] != text
    }
    assert written == changes
