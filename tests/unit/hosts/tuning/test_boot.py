"""The next boot: its script on file trees, its unit, its parts, and what earlier versions left."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts.tunables import registry
from orchestrator.hosts.tuning import boot, boot_files, old_ways
from orchestrator.hosts.tuning.boot import Place
from orchestrator.hosts.undoing import Back, Ours, rank, reads_for, standing
from orchestrator.model.host_facts import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BOOT,
    BlockChange,
    FileChange,
    ServiceChange,
    ServiceMode,
    TunableState,
    TunedChange,
    TuningProfile,
    ValueChange,
    Verdict,
    subject_of,
)
from tests.fakes import host_kinds
from tests.fakes.block_tree import BlockTree
from tests.fakes.host_tree import THP, HostTree
from tests.fakes.tuned_hosts import current, profile, rhel6, setting, with_files
from tests.tools import needs

PLACE = Place(part="prod+es1")
PART = "/etc/orchestrate-tuning/prod+es1.part"
WANTED = profile(setting("vm.swappiness", "1"), setting("io_scheduler", {"ssd": "none", "rotational": "bfq"}))
LOG = "/var/log/tuned/tuned.log"


def state(host: HostFacts, place: Place = PLACE, wanted: TuningProfile = WANTED) -> TunableState:
    found = registry.compare(host, wanted, place).states[0]
    assert found.tunable == BOOT
    return found


def installed(host: HostFacts, place: Place = PLACE, wanted: TuningProfile = WANTED) -> HostFacts:
    """The host once the boot's own changes are made."""
    files, services = dict(host.files), dict(host.services)
    for change in state(host, place, wanted).changes:
        match change:
            case FileChange(path=path, wanted=text):
                files[path] = text
            case ServiceChange(service=name, wanted=mode):
                services[name] = ServiceFacts(present=True, running=mode.running, enabled=mode.enabled)
    return replace(
        host, files={path: text for path, text in files.items() if text is not None}, services=services
    )


class Tree:
    """A host tree, and the boot script in it."""

    def __init__(self, tree: HostTree) -> None:
        self.tree = tree
        self.write_part(["parameter vm.swappiness 1"])

    def write_part(self, lines: list[str], *, name: str = "prod+es1", at: str = "/data") -> None:
        text = boot_files.part_text("elasticsearch", lines, {host_kinds.DATA: at}, {})
        self.tree.write(boot_files.part_path(name), text)

    def run(self, text: str = "") -> subprocess.CompletedProcess[str]:
        script = self.tree.at("/boot-under-test.sh")
        script.write_text(text or boot_files.script_text(str(self.tree.path)))
        tools = f"{self.tree.path}/toolbox"
        return subprocess.run(  # noqa: S603  (our own script on a tree)
            ["/bin/sh", str(script)],
            env={"PATH": tools},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def naps(self, body: str) -> None:
        """What `sleep` does on the host."""
        self.tree.program("sleep", body)
        (self.tree.path / "toolbox" / "sleep").unlink()
        (self.tree.path / "toolbox" / "sleep").symlink_to(self.tree.path / "bin" / "sleep")

    def read(self, path: str) -> str:
        return (self.tree.read(path) or "").strip()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(host_kinds.debian(tmp_path / "host"))


def test_a_shell_checker_has_nothing_to_say(tmp_path: Path) -> None:
    checker = needs("shellcheck")
    script, init = tmp_path / "boot.sh", tmp_path / "init"
    script.write_text(boot_files.script_text(""))
    init.write_text(boot_files.INIT_TEXT)
    done = subprocess.run(  # noqa: S603  (a checker that is given our own file)
        [checker, str(script), str(init)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_it_sets_what_differs_says_so_and_is_quiet_then(tree: Tree) -> None:
    lines = ["parameter vm.swappiness 1", "at_least vm.max_map_count 262144", "huge_pages enabled never"]
    tree.write_part([*lines, "huge_pages khugepaged/defrag 0", "disks scheduler none bfq"])
    done = tree.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "/proc/sys/vm/swappiness: 60 -> 1" in done.stdout.splitlines()
    assert [tree.read(f"/proc/sys/vm/{name}") for name in ("swappiness", "max_map_count")] == ["1", "262144"]
    assert [tree.read(f"{THP}/{name}") for name in ("enabled", "khugepaged/defrag")] == ["never", "0"]
    assert tree.read("/sys/block/nvme0n1/queue/scheduler") == "none"
    assert tree.read("/sys/block/sda/queue/scheduler") != "none"
    again = tree.run()
    assert (again.returncode, again.stdout) == (0, "")


def test_a_value_that_is_high_enough_is_never_lowered(tree: Tree) -> None:
    tree.tree.sysctl("vm.max_map_count", 9999999)
    tree.write_part(["at_least vm.max_map_count 262144", "at_least vm.min_free_kbytes 999999999 5"])
    assert tree.run().returncode == 0
    assert tree.read("/proc/sys/vm/max_map_count") == "9999999"
    assert int(tree.read("/proc/sys/vm/min_free_kbytes")) == (256 << 20) * 5 // 100


def test_disks_that_swapped_their_names_are_found_by_the_data(tmp_path: Path) -> None:
    """The part names the data path alone: the disk behind it was `sdb`, and is `sdc` after the boot."""
    for number, data in enumerate(("sdb", "sdc")):
        host = HostTree(tmp_path / f"boot{number}")
        host.machine()
        host.systemd()
        blocks = BlockTree(host)
        for name in ("sdb", "sdc"):
            blocks.disk(name, rotational=False, scheduler="none [mq-deadline] bfq")
            blocks.mount(blocks.partition(name), "/data" if name == data else "/other")
        host.folder(host_kinds.DATA)
        found = Tree(host)
        found.write_part(["disks scheduler none bfq"])
        assert found.run().returncode == 0
        written = {
            name for name in ("sdb", "sdc") if found.read(f"/sys/block/{name}/queue/scheduler") == "none"
        }
        assert written == {data}


def test_on_lvm_the_volume_decides_what_is_read_ahead_and_its_disks_are_scheduled(tmp_path: Path) -> None:
    host = HostTree(tmp_path / "host")
    host.machine()
    host.systemd()
    blocks = BlockTree(host)
    for name in ("sdb", "sdc"):
        blocks.disk(name, rotational=False, scheduler="none [mq-deadline] bfq", read_ahead_kb=128)
    volume = blocks.lvm("data", [blocks.md("md0", [blocks.partition("sdb"), blocks.partition("sdc")])])
    blocks.mount(volume, "/data")
    host.folder(host_kinds.DATA)
    host.write(f"/sys/block/{volume}/queue/read_ahead_kb", "128\n")
    found = Tree(host)
    found.write_part(["disks scheduler none bfq", "disks read_ahead_kb 8 8"])
    done = found.run()
    assert done.returncode == 0, done.stdout
    ahead = {name: found.read(f"/sys/block/{name}/queue/read_ahead_kb") for name in (volume, "sdb", "sdc")}
    assert ahead == {volume: "8", "sdb": "128", "sdc": "128"}
    assert [found.read(f"/sys/block/{name}/queue/scheduler") for name in ("sdb", "sdc")] == ["none", "none"]


def test_multipath_is_scheduled_itself_and_its_paths_are_not(tmp_path: Path) -> None:
    host = HostTree(tmp_path / "host")
    host.machine()
    host.systemd()
    blocks = BlockTree(host)
    for name in ("sdb", "sdc"):
        blocks.disk(name, scheduler="noop [deadline] cfq")
    top = blocks.multipath("mpatha", ["sdb", "sdc"], scheduler="noop deadline [cfq]")
    blocks.mount(top, "/data")
    host.folder(host_kinds.DATA)
    found = Tree(host)
    found.write_part(["disks scheduler noop noop"])
    assert found.run().returncode == 0
    assert found.read(f"/sys/block/{top}/queue/scheduler") == "noop"
    assert found.read("/sys/block/sdb/queue/scheduler") == "noop [deadline] cfq"


def test_a_path_whose_file_system_is_not_mounted_is_left_out_and_named(tree: Tree) -> None:
    tree.write_part(["disks scheduler none bfq", "parameter vm.swappiness 1"], at="/elsewhere")
    before = tree.read("/sys/block/nvme0n1/queue/scheduler")
    done = tree.run()
    assert done.returncode == 1
    assert "/data/es: NOT set: it is on the file system of /data, not on that of /elsewhere" in done.stdout
    assert tree.read("/sys/block/nvme0n1/queue/scheduler") == before
    assert tree.read("/proc/sys/vm/swappiness") == "1"


def test_parts_of_several_clusters_are_merged_and_one_bad_part_is_its_own(tree: Tree) -> None:
    tree.write_part(["parameter net.ipv4.tcp_retries2 5"], name="other+es1")
    tree.tree.write(boot_files.part_path("a-bad"), "parameter vm.nothing 1\n")
    done = tree.run()
    assert done.returncode == 1
    assert tree.read("/proc/sys/vm/swappiness") == "1"
    assert tree.read("/proc/sys/net/ipv4/tcp_retries2") == "5"


def test_words_of_a_profile_and_of_a_host_are_quoted() -> None:
    text = boot_files.part_text(
        "a b", ["parameter x 1", "disks x y z"], {"/d a$(x)": "/m'"}, {"/d a$(x)": "ssd"}
    )
    assert text.splitlines()[1:] == [
        "unit='a b.service'",
        "parameter x 1",
        """data '/d a$(x)' '/m'"'"'' ssd""",
        "disks x y z",
    ]


def test_a_line_that_is_not_understood_is_left_out_alone(tree: Tree) -> None:
    bad = (
        "data '/data/es /data",
        "parameter vm.swappiness",
        "rm -rf /",
        "$(touch $root/ran)",
        "at_least x y",
    )
    lines = (
        "parameter vm.zone_reclaim_mode 0",
        *bad,
        "parameter vm.swappiness 1",
        "at_least vm.max_map_count 1",
    )
    tree.tree.write(PART, boot_files.HEADER + "\n".join(lines))
    done = tree.run()
    assert (done.returncode, done.stderr) == (1, "")
    for line in bad[:4]:
        assert f"NOT set: this line is not understood: {line}" in done.stdout
    assert "x: NOT set: x y is not understood" in done.stdout
    assert "NOT set: its last line is cut off: at_least vm.max_map_count 1" in done.stdout
    assert [tree.read(f"/proc/sys/vm/{name}") for name in ("zone_reclaim_mode", "swappiness")] == ["0", "1"]


VALUES = ("zone_reclaim_mode", "swappiness")


def test_a_killed_boot_script_is_completed_by_the_next(tree: Tree) -> None:
    tree.write_part(["parameter vm.zone_reclaim_mode 0", "parameter vm.swappiness 10"])
    script = boot_files.script_text(str(tree.tree.path))
    for call in (1, 2):
        tree.tree.sysctls({"vm.zone_reclaim_mode": 1, "vm.swappiness": 60})
        kill = f"moved=yes; n=$((${{n:-0}} + 1)); [ $n -lt {call} ] || kill -9 $$\n"
        killed = tree.run(script.replace("moved=yes\n", kill))
        assert killed.returncode == -9
        assert [tree.read(f"/proc/sys/vm/{name}") for name in VALUES] == ["0", "10" if call == 2 else "60"]
        assert tree.run().returncode == 0
        assert [tree.read(f"/proc/sys/vm/{name}") for name in VALUES] == ["0", "10"]


def test_a_piece_of_a_part_sets_only_its_whole_lines(tree: Tree) -> None:
    """A kill while it was written leaves one: `vm.swappiness 1` of 10 would be another value."""
    tree.write_part(["parameter vm.zone_reclaim_mode 0", "parameter vm.swappiness 10"])
    whole = str(tree.tree.read(PART))
    lines = whole.count("\n")
    for length in range(whole.index("parameter"), len(whole)):
        tree.tree.sysctls({"vm.zone_reclaim_mode": 1, "vm.swappiness": 60})
        tree.tree.write(PART, whole[:length])
        assert tree.run().stderr == ""
        wanted = ["0" if whole[:length].count("\n") == lines - 1 else "1", "60"]
        assert [tree.read(f"/proc/sys/vm/{name}") for name in VALUES] == wanted, length


TUNED_LINES = {
    "starting": "tuned.daemon.daemon: starting tuning",
    "applied": "tuned.daemon.daemon: static tuning from profile 'balanced' applied",
    "other": "tuned.daemon.daemon: static tuning from profile 'powersave' applied",
    "stopping": "tuned.daemon.daemon: stopping tuning",
}


@pytest.mark.parametrize(
    ("last", "waits"),
    [("starting", True), ("stopping", True), ("other", True), ("applied", False)],
)
def test_it_waits_until_tuned_has_applied_the_active_profile(tree: Tree, last: str, *, waits: bool) -> None:
    """tuned 2.20 writes the name of a new profile before it applies it: the log alone has the end."""
    host = tree.tree
    host.write("/run/tuned/tuned.pid", "1\n")
    host.write("/etc/tuned/active_profile", "balanced\n")
    host.write(LOG, f"{TUNED_LINES['applied']}\n{TUNED_LINES[last]}\n")
    # Each wait is a round; in the fourth, tuned writes its own value and ends its work.
    tree.naps(
        f"""n=$(($(cat "$root/.naps" 2>/dev/null || echo 0) + 1)); echo $n >"$root/.naps"
[ $n -eq 4 ] || exit 0
echo 60 >"$root/proc/sys/vm/swappiness"; echo "{TUNED_LINES["applied"]}" >>"$root{LOG}"
""",
    )
    done = tree.run()
    assert done.returncode == 0
    naps = int(tree.read("/.naps") or 0)
    assert (naps > 4) is waits, naps
    assert naps < 20
    assert tree.read("/proc/sys/vm/swappiness") == "1"


def test_a_tuned_that_never_ends_its_work_does_not_hold_the_boot(tree: Tree) -> None:
    host = tree.tree
    host.write("/run/tuned/tuned.pid", "1\n")
    host.write(LOG, f"{TUNED_LINES['starting']}\n")
    tree.naps("exit 0\n")
    assert tree.run().returncode == 0
    assert host.calls("sleep") == ("sleep 1",) * 19


def fights(tree: Tree) -> tuple[subprocess.CompletedProcess[str], int]:
    """A run of the script beside a tuned that has ended its work, and how often it slept."""
    tree.tree.write("/run/tuned/tuned.pid", "1\n")
    tree.tree.write("/etc/tuned/active_profile", "balanced\n")
    tree.tree.write(LOG, f"{TUNED_LINES['applied']}\n")
    return tree.run(), len(tree.tree.calls("sleep"))


def test_parts_that_conflict_do_not_hold_the_boot(tree: Tree) -> None:
    """Each wrote its own value over the other's, 20 times: 19 seconds before the node."""
    tree.naps("exit 0\n")
    tree.write_part(["parameter vm.swappiness 10", "disks scheduler mq-deadline bfq"], name="zz+es9")
    tree.write_part(["parameter vm.swappiness 1", "disks scheduler none bfq"])
    done, naps = fights(tree)
    assert (done.returncode, naps) == (0, 3)
    assert "/proc/sys/vm/swappiness: 60 -> 10" in done.stdout.splitlines()
    assert tree.read("/proc/sys/vm/swappiness") == "10"
    assert tree.read("/sys/block/nvme0n1/queue/scheduler") == "mq-deadline"


def test_a_program_that_never_leaves_a_value_alone_is_named(tree: Tree) -> None:
    tree.naps('echo 60 >"$root/proc/sys/vm/swappiness"\n')
    done, naps = fights(tree)
    assert (done.returncode, naps) == (1, 4)
    assert "another program changes these values again and again" in done.stdout
    assert tree.read("/proc/sys/vm/swappiness") == "1"


def test_the_unit_is_bounded_ordered_and_started_with_tuned() -> None:
    lines = boot_files.SERVICE_UNIT.splitlines()
    assert (
        "After=tuned.service systemd-sysctl.service systemd-tmpfiles-setup.service local-fs.target" in lines
    )
    assert {"PartOf=tuned.service", "Type=oneshot", "TimeoutStartSec=30"} <= set(lines)
    assert "WantedBy=multi-user.target tuned.service" in lines
    # An active unit would not be started again by tuned's start; a requirement would delay or fail the node.
    assert not any(word in boot_files.SERVICE_UNIT for word in ("RemainAfterExit", "RequiredBy", "Requires="))
    order = boot_files.order_text("elasticsearch", {"/data/es": "/data"})
    assert order.splitlines()[1:] == ["[Unit]", "After=data.mount", "Before=elasticsearch.service"]


def test_at_the_next_boot_is_a_fact_of_script_part_and_unit() -> None:
    host = current()
    found = registry.compare(host, WANTED, PLACE)
    assert {one.at_boot for one in found.states} == {boot.NOT_SET}
    made = installed(host)
    assert {one.at_boot for one in registry.compare(made, WANTED, PLACE).states} == {boot.SET_BY_US}
    assert state(made).verdict is Verdict.OK
    off = {**made.services, boot_files.NAME: ServiceFacts(present=True)}
    for broken in (
        replace(made, services=off),
        with_files(made, **{boot_files.SCRIPT: None}),
        with_files(made, **{PART: None}),
    ):
        assert {one.at_boot for one in registry.compare(broken, WANTED, PLACE).states} == {boot.NOT_SET}
        assert state(broken).verdict is Verdict.DRIFT


def test_what_is_shown_of_the_boot_is_what_is_installed() -> None:
    found = registry.compare(current(), WANTED, PLACE)
    files = {one.path: one.wanted for one in found.states[0].changes if isinstance(one, FileChange)}
    assert files[boot_files.SCRIPT] == boot_files.script_text("")
    assert found.part == {PART: files[PART]}
    assert registry.compare(installed(current()), WANTED, PLACE).part == found.part
    brief = registry.compare(current(), replace(WANTED, persist=False), PLACE)
    assert brief.part == {}


ORDER = f"{boot_files.UNIT}.d/prod+es1.conf"


def test_nothing_is_written_where_the_boot_cannot_be_known() -> None:
    denied = Unknown(reason="denied")
    for host in (
        replace(current(), init=InitSystem.OTHER),
        *(with_files(current(), **{path: denied}) for path in (boot_files.SCRIPT, boot_files.UNIT)),
        *(with_files(current(), **{path: denied}) for path in (boot_files.PATH_UNIT, ORDER, PART)),
        with_files(rhel6(), **{boot_files.INIT: denied}),
        *(
            replace(current(), services={**current().services, name: Unknown(reason="no bus")})
            for name in boot.SERVICES
        ),
    ):
        found = state(host)
        assert (found.verdict, found.changes) == (Verdict.UNKNOWN, ())
        assert found.detail


def test_unknown_disks_hold_back_the_lines_of_disks_alone() -> None:
    host = replace(current(), mounts=Unknown(reason="no mountinfo"))
    found = state(host)
    assert (found.verdict, found.detail) == (Verdict.DRIFT, "where the data is mounted: no mountinfo")
    after = installed(host)
    lines = str(after.text(PART)).splitlines()
    assert "parameter vm.swappiness 1" in lines
    assert not [line for line in lines if line.startswith(("disks", "data"))]
    assert (state(after).verdict, state(after).changes) == (Verdict.UNKNOWN, ())
    # A part that is there keeps the lines, byte for byte.
    moved = replace(installed(current()), mounts={**dict(current().mounts), "/data/slow": "/"})  # type: ignore[arg-type]
    other = profile(setting("vm.swappiness", "2"), *WANTED.settings[1:])
    before = str(moved.text(PART))
    assert {one.path for one in state(moved, wanted=other).changes if isinstance(one, FileChange)} >= {PART}
    after = installed(moved, wanted=other)
    assert after.text(PART) == before.replace("vm.swappiness 1", "vm.swappiness 2")
    assert state(after, wanted=other).verdict is Verdict.UNKNOWN


def test_what_no_longer_has_to_last_is_removed() -> None:
    """Its values came again at each boot: the script knew nothing of the profile."""
    made, brief = installed(current()), replace(WANTED, persist=False)
    found = state(made, wanted=brief)
    assert (found.verdict, found.wanted, found.at_boot) == (Verdict.DRIFT, boot.NOT_SET, boot.SET_BY_US)
    files = [one for one in found.changes if isinstance(one, FileChange)]
    assert all(one.found == made.text(one.path) and one.wanted is None for one in files)
    shared = {boot_files.SCRIPT, boot_files.UNIT, boot_files.PATH_UNIT}
    assert {one.path for one in files} == {ORDER, PART, *shared}
    services = [one for one in found.changes if isinstance(one, ServiceChange)]
    assert [one.service for one in services] == [boot_files.PATH_NAME, boot_files.NAME]
    # Off before their files are gone, and the part last: a removal that is killed is completed.
    assert found.changes[:2] == tuple(services)
    assert found.changes[-1] == files[-1] == FileChange(path=PART, found=made.text(PART), wanted=None)  # type: ignore[arg-type]
    assert registry.compare(installed(made, wanted=brief), brief, PLACE).states[0].tunable != BOOT
    both = installed(made, Place(part="other+es9"))
    assert [getattr(one, "path", "") for one in state(both, wanted=brief).changes] == [ORDER, PART]
    denied = Unknown(reason="denied")
    for unread in (
        *(with_files(made, **{path: denied}) for path in (PART, ORDER, *shared)),
        *(replace(made, services={**made.services, name: denied}) for name in boot.SERVICES),
    ):
        found = state(unread, wanted=brief)
        assert (found.verdict, found.changes) == (Verdict.UNKNOWN, ())


def test_a_value_that_cannot_be_read_stays_in_a_part_that_is_switched_off() -> None:
    """Its part was taken for one that nothing needs, and removed with the script."""
    only = profile(*WANTED.settings[1:])
    for wanted in (only, WANTED):
        made = installed(current(), wanted=wanted)
        off = replace(
            made,
            devices=Unknown(reason="no sysfs"),
            services={**made.services, boot_files.NAME: ServiceFacts(present=True)},
        )
        found = state(off, wanted=wanted)
        assert not [one for one in found.changes if isinstance(one, FileChange) and one.wanted is None]
        assert installed(off, wanted=wanted).text(PART) == made.text(PART)


def test_a_part_with_other_lines_is_replaced_and_they_are_named() -> None:
    """Another operator, with a state database of their own, wanted them."""
    theirs = profile(setting("vm.swappiness", "10"), *WANTED.settings[1:])
    found = state(installed(current(), wanted=theirs))
    assert found.detail == f"replaces in {PART}: parameter vm.swappiness 10"
    assert state(installed(current())).detail == ""


def test_a_part_that_a_person_broke_is_written_again() -> None:
    host = with_files(installed(current()), **{PART: "data '/data/es /data\n"})
    assert state(host).verdict is Verdict.DRIFT
    assert "data '/data/es /data" in state(host).detail


def test_an_init_script_that_was_switched_off_is_enabled() -> None:
    made = replace(
        installed(rhel6()), services={**rhel6().services, boot_files.NAME: ServiceFacts(present=True)}
    )
    (change,) = (one for one in state(made).changes if isinstance(one, ServiceChange))
    assert change == ServiceChange(
        service=boot_files.NAME,
        found=ServiceMode(running=False, enabled=False),
        wanted=ServiceMode(running=False, enabled=True),
    )


def test_data_on_another_file_system_than_recorded_is_not_touched() -> None:
    """The data's disk is not mounted: the path is on the system's disk now."""
    made = installed(current())
    moved = replace(made, mounts={**dict(made.mounts), "/data/slow": "/"})  # type: ignore[arg-type]
    found = registry.compare(moved, WANTED, PLACE)
    assert found.states[0].verdict is Verdict.UNKNOWN
    assert "/data/slow is on the file system of /; it was on that of /data/slow" in found.states[0].detail
    assert not [one for state in found.states for one in state.changes if "/sys/block" in str(one)]


def test_a_new_data_path_with_blanks_is_not_taken_for_moved() -> None:
    mounts = {"/data dir/a": "/m", "/data dir/b": "/n"}
    text = boot_files.part_text("x", ["disks scheduler none bfq"], {"/data dir/a": "/m"}, {})
    host = with_files(replace(current(), mounts=mounts), **{PART: text})
    assert boot.data_moved(host, PLACE) == ""
    assert "/data dir/a" in boot.data_moved(replace(host, mounts={**mounts, "/data dir/a": "/"}), PLACE)


def test_another_nodes_later_part_decides_what_lasts() -> None:
    """The script runs the parts by name, and the last value stays: ours is not the one after a boot."""
    later, earlier = (boot_files.part_path(name) for name in ("zz+es9", "aa+es9"))

    def at_boot(path: str, line: str) -> str:
        host = with_files(installed(current()), **{path: f"{boot_files.HEADER}{line}\n"})
        states = registry.compare(host, WANTED, PLACE).states
        return next(one.at_boot for one in states if one.tunable == "vm.swappiness")

    assert at_boot(later, "parameter vm.swappiness 10") == f"{later} sets another value after it"
    assert at_boot(earlier, "parameter vm.swappiness 10") == boot.SET_BY_US
    assert at_boot(later, "parameter vm.swappiness 1") == boot.SET_BY_US
    assert at_boot(later, "parameter vm.max_map_count 10") == boot.SET_BY_US


def test_a_value_that_a_later_part_replaces_is_counted() -> None:
    later = boot_files.part_path("zz+es9")

    def overridden(line: str) -> list[str]:
        host = with_files(installed(current()), **{later: f"{boot_files.HEADER}{line}\n"})
        return [one.tunable for one in registry.compare(host, WANTED, PLACE).overridden]

    assert overridden("parameter vm.swappiness 10") == ["vm.swappiness"]
    assert overridden("parameter vm.swappiness 1") == []


def test_what_of_an_installed_boot_script_differs_is_named() -> None:
    made = installed(current())
    assert state(current()).detail == ""
    edited = with_files(made, **{boot_files.PATH_UNIT: "[Path]\n"})
    assert state(edited).detail == f"edited, or of another version: {boot_files.PATH_UNIT}"
    gone = replace(made, files={path: text for path, text in made.files.items() if path != boot_files.SCRIPT})
    assert state(gone).detail == f"missing: {boot_files.SCRIPT}"
    off = {**made.services, boot_files.NAME: ServiceFacts(present=True)}
    assert state(replace(made, services=off)).detail == f"off: {boot_files.NAME}"


def test_a_stop_of_tuned_runs_the_script_again() -> None:
    """tuned then writes the values that it found at its start; its last act is to remove this file."""
    assert "PathChanged=/run/tuned/tuned.pid\n" in boot_files.PATH_UNIT_TEXT


def test_a_path_unit_that_is_enabled_and_stopped_is_started() -> None:
    """A kill between the two leaves it so: a change of tuned's profile would not run the script."""
    made = installed(current())
    stopped = ServiceFacts(present=True, enabled=True)
    found = state(replace(made, services={**made.services, boot_files.PATH_NAME: stopped}))
    assert found.verdict is Verdict.DRIFT
    wanted = ServiceMode(running=True, enabled=True)
    assert any(
        isinstance(one, ServiceChange) and (one.service, one.wanted) == (boot_files.PATH_NAME, wanted)
        for one in found.changes
    )


def test_mount_units_are_named_as_systemd_names_them() -> None:
    """`systemd-escape --path --suffix=mount` of systemd 252 prints these."""
    named = {
        "/": "-.mount",
        "/data/.es": "data-.es.mount",
        "/.data": r"\x2edata.mount",
        "/a-b/c:d_e": r"a\x2db-c:d_e.mount",
    }
    for point, unit in named.items():
        order = boot_files.order_text("elasticsearch", {"/x": point})
        assert f"After={unit}" in order.splitlines(), point


def test_a_kind_that_the_profile_names_is_recorded_with_the_path() -> None:
    told = replace(WANTED, devices={"sdc": "ssd"})
    (part,) = (
        change
        for change in registry.compare(current(), told, PLACE).states[0].changes
        if isinstance(change, FileChange) and change.path == PART
    )
    assert "data /data/slow /data/slow ssd\n" in str(part.wanted)
    assert "data /data/fast /data/fast\n" in str(part.wanted)


def test_the_script_of_another_cluster_is_shared_and_stays_for_it() -> None:
    other = Place(part="other+es9")
    both = installed(installed(current()), other)
    assert state(both).verdict is Verdict.OK
    claims = [one for one in state(installed(current()), other).changes if boot.is_shared(one)]
    assert {one.path for one in claims if isinstance(one, FileChange)} >= {boot_files.SCRIPT, boot_files.UNIT}
    # Before this program there was no script: whoever reverts last removes it.
    assert all(one.found is None for one in claims if isinstance(one, FileChange))
    (script,) = (one for one in claims if isinstance(one, FileChange) and one.path == boot_files.SCRIPT)
    undo = (script.undone(),)
    assert standing(both, undo, parts={PART}) == Back(
        why="it stays for /etc/orchestrate-tuning/other+es9.part"
    )
    gone = with_files(both, **{boot_files.part_path("other+es9"): None})
    files = {path: text for path, text in gone.files.items() if text is not None}
    assert standing(replace(gone, files=files), undo, parts={PART}) == Ours(change=undo[0])
    assert boot_files.PARTS in reads_for([script]).files


def test_our_unit_is_off_before_values_are_restored() -> None:
    off = ServiceMode(running=False, enabled=False)
    on = ServiceMode(running=False, enabled=True)
    unit = ServiceChange(service=boot_files.NAME, found=off, wanted=on)
    removed = ServiceChange(service=boot_files.NAME, found=on, wanted=off)
    part = FileChange(path=PART, found="x", wanted=None)
    value = ValueChange(path="/proc/sys/vm/swappiness", found="1", wanted="60")
    tuned = TunedChange(found="a", wanted="b")
    assert sorted([removed, value, tuned, part, unit], key=rank) == [part, unit, tuned, value, removed]


def test_our_unit_is_ours_while_it_runs() -> None:
    """tuned was started a moment ago: taken for another's change, it kept every value from being restored."""
    made = installed(current())
    runs = {**made.services, boot_files.NAME: ServiceFacts(present=True, running=True, enabled=True)}
    off, on = (ServiceMode(running=False, enabled=enabled) for enabled in (False, True))
    undo = ServiceChange(service=boot_files.NAME, found=on, wanted=off)
    assert standing(replace(made, services=runs), (undo,), parts={PART}) == Ours(change=undo)


def test_no_two_nodes_share_a_part() -> None:
    names = [
        ("a", "b"),
        ("a-b", "c"),
        ("a", "b-c"),
        ("", "a+b"),
        ("a", "riak@b"),
        ("a", "b/c"),
        ("a", "b_c"),
        ("..", "x"),
    ]
    found = [boot_files.part_name(*one) for one in names]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.@+-]*", name) for name in found), found


OLD = "# Written by orchestrate for x; `orchestrate tune revert` takes it away again.\n"


def test_what_earlier_versions_wrote_is_found_by_its_marks_and_removed_once() -> None:
    ours = {
        "/etc/sysctl.d/90-orchestrate-vm.swappiness.conf": f"{OLD}vm.swappiness = 1\n",
        "/etc/udev/rules.d/90-orchestrate-io_scheduler.rules": f"{OLD}x\n",
        "/etc/tuned/orchestrate/tuned.conf": f"{OLD}[main]\ninclude=balanced\n",
        "/etc/rc.local": "true\n# BEGIN orchestrate x\necho\n# END orchestrate x\n",
        old_ways.ACTIVE: "orchestrate\n",
    }
    theirs = {"/etc/sysctl.d/99-orchestrate-mine.conf": "vm.swappiness = 5\n"}
    host = with_files(current(), **ours, **theirs)
    removed = list(old_ways.removals(host))
    place = replace(PLACE, owed=frozenset(map(subject_of, removed)))
    assert [type(one) for one in removed] == [FileChange, FileChange, TunedChange, FileChange, BlockChange]
    assert TunedChange(found="orchestrate", wanted="balanced") in removed
    assert not [one for one in removed if "mine" in str(one)]
    found = state(host, place)
    assert found.verdict is Verdict.DRIFT
    assert "replaces what an earlier version wrote: /etc/sysctl.d" in found.detail
    # Our script is there before tuned's profile is switched, which restores values that tuned once found.
    kinds = [type(one) for one in found.changes]
    assert kinds.index(TunedChange) > kinds.index(ServiceChange)
    # It carries no cluster: what is not in this one's ledger is another cluster's, and stays.
    kept = state(host)
    assert not set(removed) & set(kept.changes)
    assert "leaves what an earlier version wrote from elsewhere: /etc/sysctl.d" in kept.detail
    after = replace(host, files={**current().files, **theirs})
    assert list(old_ways.removals(after)) == []


def test_a_sysv_host_has_an_init_script_that_is_bounded() -> None:
    files = [one.path for one in state(rhel6()).changes if isinstance(one, FileChange)]
    assert files == [PART, boot_files.SCRIPT, boot_files.INIT]
    assert "sleep 30; kill -KILL" in boot_files.INIT_TEXT
    assert os.linesep not in boot_files.NAME


def test_a_file_of_others_at_our_path_is_restored_and_not_removed() -> None:
    host = with_files(current(), **{boot_files.SCRIPT: "theirs\n"})
    made = [
        one for one in state(host).changes if isinstance(one, FileChange) and one.path == boot_files.SCRIPT
    ]
    assert [(one.found, one.undone().wanted) for one in made] == [("theirs\n", "theirs\n")]


def test_parts_that_cannot_be_listed_hold_the_boot() -> None:
    found = state(with_files(current(), **{boot_files.PARTS: Unknown(reason="may not be listed")}))
    assert (found.verdict, found.changes) == (Verdict.UNKNOWN, ())


def test_a_second_part_records_the_units_that_are_on() -> None:
    """The ledger of this cluster has to switch them off, if its part is the last one."""
    host = installed(current(), Place(part="other+es9"))
    services = [one.service for one in state(host).changes if isinstance(one, ServiceChange)]
    assert services == list(boot.SERVICES)


def test_the_unit_may_be_started_again_and_again() -> None:
    assert "StartLimitInterval=0" in boot_files.SERVICE_UNIT.splitlines()
