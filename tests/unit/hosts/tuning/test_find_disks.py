"""From data paths to disks: stacks of devices in a file tree, found by the shell of the boot script."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.hosts.tunables import registry
from orchestrator.hosts.tuning import boot_files
from orchestrator.hosts.tuning.boot import Place
from orchestrator.model.host_facts import BlockDevice
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import ValueChange
from tests.fakes.asking import known_facts_of
from tests.fakes.block_tree import BlockTree
from tests.fakes.host_kinds import virtual_machine
from tests.fakes.host_tree import HostTree
from tests.fakes.tuned_hosts import profile, setting


class Host:
    """A host with a system disk `sda` on `/`, which carries no data."""

    def __init__(self, path: Path) -> None:
        self.tree: HostTree = virtual_machine(path)
        for name in ("proc/self/mountinfo", "sys/block", "sys/dev", "sys/class/block", "data"):
            _take_away(path / name)
        self.blocks = BlockTree(self.tree)
        self.blocks.disk("sda")
        self.blocks.mount(self.blocks.partition("sda"), "/")

    def disks(self, *data: str) -> Reading[tuple[BlockDevice, ...]]:
        return known_facts_of(self.tree, settings=self.tree.settings(data=data or ("/data",))).devices

    def names(self, *data: str) -> tuple[str, ...]:
        found = self.disks(*data)
        assert not isinstance(found, Unknown), found
        return tuple(device.name for device in found if device.is_disk)

    def roles(self, *data: str) -> dict[str, tuple[str, ...]]:
        found = self.disks(*data)
        assert not isinstance(found, Unknown), found
        return {device.name: device.roles for device in found}

    def reason(self, *data: str) -> str:
        found = self.disks(*data)
        assert isinstance(found, Unknown), found
        return found.reason


def _take_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for each in path.iterdir():
            _take_away(each)
        path.rmdir()
    else:
        path.unlink()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_partition_is_on_its_disk(host: Host) -> None:
    host.blocks.disk("sdb", rotational=False)
    host.blocks.disk("sdc")
    host.blocks.mount(host.blocks.partition("sdb", 2), "/data")
    assert host.disks() == (
        BlockDevice(name="sdb", roles=("top", "leaf"), rotational=False, data_paths=("/data",)),
    )


def test_lvm_on_raid_on_partitions_of_two_disks(host: Host) -> None:
    blocks = host.blocks
    for name in ("sdb", "sdc", "sdd"):
        blocks.disk(name)
    raid = blocks.md("md0", [blocks.partition("sdb"), blocks.partition("sdc")])
    volume = blocks.lvm("data-es", [raid])
    blocks.lvm("data-other", [blocks.partition("sdd")])
    blocks.mount(volume, "/data", source="/dev/mapper/data-es")
    assert host.roles() == {"dm-0": ("top",), "sdb": ("leaf",), "sdc": ("leaf",)}


@pytest.mark.parametrize(
    ("flags", "expected"), [(("0", "0"), False), (("0", "1"), True), (("0", None), None), (("1", None), None)]
)
def test_a_volume_turns_where_one_of_its_disks_does(
    host: Host, *, flags: tuple[str | None, ...], expected: bool | None
) -> None:
    """The kernel's flag of the volume itself is wrong for RAID before Linux 4.10."""
    for name, flag in zip(("sdb", "sdc"), flags, strict=True):
        host.blocks.disk(name)
        at = f"/sys/block/{name}/queue/rotational"
        host.tree.remove(at) if flag is None else host.tree.write(at, f"{flag}\n")
    host.blocks.mount(host.blocks.md("md0", ["sdb", "sdc"]), "/data")
    found = host.disks()
    assert not isinstance(found, Unknown)
    assert {device.name: device.rotational for device in found}["md0"] is expected


def test_a_partition_on_lvm_on_raid_on_two_disks(host: Host) -> None:
    blocks = host.blocks
    raid = blocks.md("md127", [blocks.disk("sdb"), blocks.disk("sdc")])
    volume = blocks.lvm("data-es", [blocks.partition(raid)])
    part = blocks.mapped("data-es1", [volume], uuid="part1-LVM-data")
    blocks.mount(part, "/data")
    assert host.roles() == {"dm-1": ("top",), "sdb": ("leaf",), "sdc": ("leaf",)}


def test_paths_to_one_multipath_disk_are_leaves_that_name_the_device_above(host: Host) -> None:
    blocks = host.blocks
    above = blocks.multipath("mpatha", [blocks.disk("sdb"), blocks.disk("sdc")])
    part = blocks.mapped("mpatha1", [above], uuid="part1-mpath-mpatha")
    other = blocks.multipath("mpathb", [blocks.disk("sdd"), blocks.disk("sde")])
    blocks.mount(blocks.lvm("data", [part]), "/data")
    blocks.mount(other, "/backup")
    assert host.roles() == {"dm-3": ("top",), "dm-0": ("multipath",), "sdb": ("path",), "sdc": ("path",)}


def test_a_loop_device_is_a_leaf_and_the_disk_under_its_file_is_not_touched(host: Host) -> None:
    host.blocks.mount(host.blocks.loop("loop3", "/images/data.img"), "/data")
    assert host.names() == ("loop3",)


def test_nvme_disks_have_no_block_folder_above_them(host: Host) -> None:
    for name in ("nvme0n1", "nvme1n1"):
        host.blocks.disk(name, home=f"/sys/devices/virtual/nvme-subsystem/nvme-subsys{name[4]}/{name}")
    host.blocks.mount(host.blocks.partition("nvme1n1", 3), "/data")
    host.blocks.mount("nvme0n1", "/data/es")
    assert host.names("/data") == ("nvme1n1",)
    assert host.names("/data/es") == ("nvme0n1",)


def test_names_of_old_controllers_keep_their_exclamation_mark(host: Host) -> None:
    host.blocks.disk("cciss!c0d0")
    host.blocks.mount(host.blocks.partition("cciss!c0d0"), "/data")
    assert host.names() == ("cciss!c0d0",)


def test_btrfs_is_on_all_its_devices(host: Host) -> None:
    blocks = host.blocks
    for name in ("sdb", "sdc", "sdd", "sde"):
        blocks.disk(name)
    volume = blocks.lvm("fast", ["sdd"])
    blocks.btrfs("/data", [blocks.partition("sdb"), volume], uuid="1-1", source="/dev/mapper/fast")
    blocks.btrfs("/other", ["sde"], uuid="2-2")
    assert host.names() == ("sdb", "sdd")
    assert host.names("/other") == ("sde",)


def test_btrfs_of_a_kernel_that_lists_no_devices_goes_by_what_was_mounted(host: Host) -> None:
    host.blocks.disk("sdb")
    host.blocks.mount_without_device("/data", fs="btrfs", source="/dev/sdb")
    assert host.names() == ("sdb",)
    host.blocks.mount_without_device("/lost", fs="btrfs", source="/dev/gone")
    assert "/dev/gone, which leads to no known device" in host.reason("/lost")


def test_an_overlay_is_where_it_writes_to(host: Host) -> None:
    blocks = host.blocks
    blocks.mount(blocks.disk("sdb"), "/var/lib/docker")
    host.tree.folder("/var/lib/docker/overlay2/77/diff")
    blocks.overlay("/data", "/var/lib/docker/overlay2/77/diff")
    assert host.names() == ("sdb",)


@pytest.mark.parametrize("upper", ["/var/lib/docker/overlay2/88/diff", "88/diff"])
def test_an_overlay_that_writes_to_what_is_not_seen_is_unknown(host: Host, upper: str) -> None:
    """In a container: the path is the host's, and here something else may be mounted on a part of it."""
    host.blocks.mount(host.blocks.disk("sdb"), "/var/lib/docker")
    host.blocks.overlay("/data", upper)
    assert upper in host.reason()


def test_zfs_is_unknown_and_says_why(host: Host) -> None:
    host.blocks.mount_without_device("/data", fs="zfs", source="tank/es")
    assert "ZFS dataset tank/es" in host.reason()


@pytest.mark.parametrize(("fs", "source"), [("tmpfs", "tmpfs"), ("nfs4", "filer:/es"), ("ceph", "mon:/")])
def test_memory_and_other_machines_have_no_disk_here(host: Host, fs: str, source: str) -> None:
    host.blocks.mount_without_device("/data", fs=fs, source=source)
    assert host.disks() == ()


def test_a_file_system_nobody_knows_is_unknown(host: Host) -> None:
    host.blocks.mount_without_device("/data", fs="fuse.unheard-of", source="thing")
    assert "fuse.unheard-of" in host.reason()


def test_a_bind_mount_is_on_the_disk_of_what_is_bound(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/big")
    host.blocks.mount("sdb", "/srv/es", root="/part/es")
    host.tree.folder("/srv/es/nodes")
    assert host.names("/srv/es/nodes") == ("sdb",)


def test_a_symbolic_link_leads_to_the_disk_of_its_target(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/mnt/ssd")
    host.tree.folder("/mnt/ssd/es")
    host.tree.link("/var/lib/elasticsearch", "/mnt/ssd/es")
    host.tree.link("/data", "/var/lib/elasticsearch")
    assert host.names("/data") == ("sdb",)
    assert host.names("/var/lib") == ("sda",)


def test_a_later_mount_hides_the_earlier_and_everything_below_it(host: Host) -> None:
    for name in ("sdb", "sdc", "sdd", "sde"):
        host.blocks.disk(name)
    host.blocks.mount("sdb", "/data")
    host.blocks.mount("sdc", "/data/es")
    assert host.names("/data/es") == ("sdc",)
    host.blocks.mount("sdd", "/data/es")
    assert host.names("/data/es") == ("sdd",)
    host.blocks.mount("sde", "/data")
    host.tree.folder("/data/es")
    assert host.names("/data/es") == ("sde",)


def test_a_mount_beside_a_path_does_not_carry_it(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/data")
    host.tree.folder("/data2")
    assert host.names("/data2") == ("sda",)


@pytest.mark.parametrize(
    "path",
    [
        "/da ta/e s",
        "/d'q/$(touch pwned)`touch pwned`",
        '/d"q"/\\back\\',
        "/-rf",
        "/glob*/[x]?",
        "/ä/数据",
        "/~/;exit",
    ],
)
def test_a_data_path_is_never_read_by_the_shell(host: Host, path: str) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), path)
    before = host.tree.files()
    assert host.names(path) == ("sdb",)
    assert host.tree.files() == before


@pytest.mark.parametrize("path", ["data", "", "~/data", "/data\nx", "/data\0"])
def test_a_data_path_that_means_nothing_on_a_host_is_refused(host: Host, path: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts\.data"):
        host.tree.settings(data=(path,))


def test_the_name_of_the_node_may_stand_in_a_data_path(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/data/es7")
    settings = host.tree.settings("es7", data=("/data/{node}",))
    facts = known_facts_of(host.tree, settings=settings)
    assert facts.data_paths == ("/data/es7",)
    assert isinstance(facts.devices, tuple)
    assert [device.name for device in facts.devices] == ["sdb"]


def test_several_data_paths_on_several_disks(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/data/1")
    host.blocks.mount(host.blocks.disk("sdc"), "/data/2")
    host.tree.folder("/data/1/more")
    found = host.disks("/data/1", "/data/2", "/data/1/more")
    assert not isinstance(found, Unknown)
    assert {device.name: device.data_paths for device in found} == {
        "sdb": ("/data/1", "/data/1/more"),
        "sdc": ("/data/2",),
    }


def test_one_data_path_that_cannot_be_followed_makes_the_disks_unknown(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/data/1")
    assert host.reason("/data/1", "/data/2").startswith("/data/2: there is no such path")


def test_without_data_paths_the_disks_are_unknown(host: Host) -> None:
    facts = known_facts_of(host.tree, settings=host.tree.settings(data=()))
    assert isinstance(facts.devices, Unknown)
    assert "hosts.data" in facts.devices.reason


def test_a_link_that_leads_out_of_the_tree_is_unknown(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/usr")
    assert "leads out" in host.reason("/data")


def test_a_mapped_device_that_shows_nothing_below_it_is_unknown(host: Host) -> None:
    host.blocks.mount(host.blocks.lvm("data", []), "/data")
    assert "the devices below dm-0 are not shown" in host.reason()


def test_a_device_that_sysfs_does_not_show_is_unknown(host: Host) -> None:
    host.blocks.mount(host.blocks.disk("sdb"), "/data")
    host.tree.remove("/sys/dev/block/" + host.blocks.numbers["sdb"])
    assert "which /sys/dev/block does not show" in host.reason()


def test_a_ring_of_devices_is_unknown(host: Host) -> None:
    first = host.blocks.lvm("one", [])
    second = host.blocks.lvm("two", [first])
    host.tree.link(f"{host.blocks.homes[first]}/slaves/{second}", host.blocks.homes[second])
    host.blocks.mount(second, "/data")
    assert "the devices below dm-1 are not shown" in host.reason()


def test_a_device_below_that_is_not_shown_is_unknown(host: Host) -> None:
    volume = host.blocks.lvm("data", [host.blocks.disk("sdb")])
    host.tree.at(f"{host.blocks.homes[volume]}/slaves/sdz").symlink_to("../../gone")
    host.blocks.mount(volume, "/data")
    assert "the devices below dm-0 are not shown" in host.reason()


MOUNTINFO = r"""1 1 0:1 / / rw - rootfs rootfs rw
20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
21 20 8:17 /srv\040x /da\040ta rw shared:3 master:1 - xfs /dev/sd\134b1 rw,noquota
22 20 0:30 / /over rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/u\134\0541,workdir=/w
short
x y 8:1 / / rw - ext4 /dev/sda1 rw
"""
HIDDEN = "8 2 8:1 / /data rw - xfs /dev/sda1 rw\n9 2 8:2 / /data rw - xfs /dev/sda2 rw\n"
CONTAINER = "900 850 0:50 / / rw - overlay overlay rw\n901 900 8:1 / /data rw - ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    ("mounts", "path", "expected"),
    [
        (MOUNTINFO, "/da ta/x", [r"8:17 xfs /dev/sd\134b1 /da\040ta"]),
        (MOUNTINFO, "/da", ["8:1 ext4 /dev/sda1 /"]),
        (MOUNTINFO, "/over/x", ["0:30 overlay overlay /over", "/u,1"]),
        # Of two mounts that show the same parent, the later counts.
        (HIDDEN, "/data/es", ["8:2 xfs /dev/sda2 /data"]),
        # In a container, the mount that the first one lies on is not in its mountinfo.
        (CONTAINER, "/data/es", ["8:1 ext4 /dev/sda1 /data"]),
        (CONTAINER.partition("\n")[2], "/data", ["8:1 ext4 /dev/sda1 /data"]),
        (CONTAINER.partition("\n")[2], "/etc", []),
    ],
)
def test_the_mount_of_a_path(host: Host, mounts: str, path: str, expected: list[str]) -> None:
    host.tree.write("/proc/self/mountinfo", mounts)
    script = f'root={host.tree.path}\n{boot_files.shell_text("find.sh")}\nmount_of "$1"'
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
        name = host.blocks.disk(
            f"sd{letter}", rotational=dice.random() < 0.5, scheduler="none [mq-deadline] bfq"
        )
        under[name] = {name}
    for number in range(dice.randint(0, 5)):
        below = dice.sample(sorted(under), dice.randint(1, 3))
        make = dice.choice(
            (host.blocks.lvm, host.blocks.multipath, lambda name, on: host.blocks.md(f"md{name}", on))
        )
        under[make(str(number), below)] = {disk for each in below for disk in under[each]}
    for name in under:
        host.blocks.mount(name, f"/{name}")
    return under


def test_the_check_and_the_boot_set_the_same_values_of_the_same_disks(tmp_path: Path) -> None:
    """On random stacks, of exactly the disks under the data."""
    wanted = profile(
        setting("io_scheduler", {"ssd": "none", "rotational": "bfq"}),
        setting("nr_requests", {"ssd": "64", "rotational": "256"}),
        setting("read_ahead_kb", {"ssd": "8", "rotational": "1024"}),
    )
    for seed in range(8):
        dice = random.Random(seed)  # noqa: S311  (a seed that can be given again)
        host = Host(tmp_path / str(seed))
        under = _stack(host, dice)
        names = dice.sample(sorted(under), min(len(under), 2))
        paths = tuple(f"/{name}" for name in names)
        assert set(host.names(*paths)) == set().union(*(under[name] for name in names)), seed
        settings = host.tree.settings(data=paths)

        def found() -> tuple[set[tuple[str, str]], dict[str, str]]:
            facts = known_facts_of(host.tree, registry.reads(wanted), settings)  # noqa: B023
            told = registry.compare(facts, wanted, Place(part="a+b"))
            changes = [change for state in told.states for change in state.changes]
            values = {(one.path, one.wanted) for one in changes if isinstance(one, ValueChange)}
            return values, dict(told.part)

        def queues() -> dict[str, str]:
            return {path: text for path, text in host.tree.files().items() if "/queue/" in path}  # noqa: B023

        changes, parts = found()
        assert changes
        before = queues()
        for path, text in parts.items():
            host.tree.write(path, text)
        script = host.tree.at("/boot.sh")
        script.write_text(boot_files.script_text(str(host.tree.path)))
        done = subprocess.run(  # noqa: S603  (our own script on a tree)
            ["/bin/sh", str(script)],
            env={"PATH": f"{host.tree.path}/toolbox"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (seed, done.stdout, done.stderr)
        written = {
            (f"/sys/block/{path.split('/')[-3]}/queue/{path.split('/')[-1]}", text.strip())
            for path, text in queues().items()
            if before[path] != text
        }
        assert written == changes, seed
