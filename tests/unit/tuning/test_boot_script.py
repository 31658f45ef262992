"""The boot script on file trees: what it sets, what it leaves out and says, and when it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    ServiceChange,
    ServiceMode,
    TunedChange,
    TuningProfile,
    TuningSetting,
    ValueChange,
)
from orchestrator.tuning import boot
from orchestrator.tuning.facts import facts_script
from orchestrator.tuning.registry import TUNABLES
from orchestrator.tuning.tuning_script import tuning_script
from tests.fakes import host_kinds
from tests.fakes.block_tree import BlockTree
from tests.fakes.cases import rows
from tests.fakes.host_tree import THP, HostTree
from tests.tools import SHELLS, needs, shell_words

PART = boot.part_path("prod+es1")
SCHEDULER = "/sys/block/nvme0n1/queue/scheduler"
VM = "/proc/sys/vm/"
SWAPPINESS = f"{VM}swappiness"
ROWS = rows("tuning/boot_lines.yml")
OFF, ON = ServiceMode(running=False, enabled=False), ServiceMode(running=True, enabled=True)
CHANGES: tuple[Change, ...] = (
    ValueChange(path=SWAPPINESS, found="60", wanted="1"),
    FileChange(path=PART, found=None, wanted="x\n"),
    BlockChange(path="/etc/riak/riak.conf", name="x", found=None, wanted="y"),
    ServiceChange(service="numad", found=ON, wanted=OFF),
    TunedChange(found="a", wanted="b"),
)
BOTH = ("disks scheduler none none", "parameter vm.swappiness 1")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return shell_words(request.param)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    made = host_kinds.debian(tmp_path / "host")
    write_part(made, ["parameter vm.swappiness 1"])
    return made


def write_part(
    tree: HostTree, lines: Sequence[str], *, name: str = "prod+es1", at: str = "/data", kind: str = ""
) -> None:
    """The part of a node whose data path is on the file system that is mounted at `at`."""
    data = host_kinds.DATA
    text = boot.part_text("elasticsearch", lines, {data: at}, {data: kind} if kind else {})
    tree.write(boot.part_path(name), text)


def run(
    tree: HostTree, words: Sequence[str] = ("/bin/sh",), script: str = ""
) -> subprocess.CompletedProcess[str]:
    """A boot. Its folder holds a file that `?` would match."""
    tree.write("/tmp/work/7", "")
    done = tree.shell(script or boot.script_text(str(tree.path)), words)
    assert done.stderr == ""
    assert list(tree.path.rglob("ran")) == [], "what a command in a name or in a value would have made"
    return done


def read(tree: HostTree, path: str) -> str:
    return (tree.read(path) or "").strip()


def test_a_shell_checker_has_nothing_to_say(tree: HostTree, tmp_path: Path) -> None:
    """Of the scripts that stay on a host, and of those that read and change one."""
    scripts = {
        "boot.sh": boot.script_text(""),
        "init": boot.INIT_TEXT,
        "facts.sh": f"#!/bin/sh\n{facts_script(tree.settings(), [one.reads for one in TUNABLES.values()])}",
        "change.sh": f"#!/bin/sh\n{tuning_script(tree.settings(), CHANGES)}",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    words = [needs("shellcheck"), *(str(tmp_path / name) for name in scripts)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert done.returncode == 0, done.stdout


def test_it_sets_what_differs_says_so_and_is_quiet_then(tree: HostTree, shell: list[str]) -> None:
    lines = ["parameter vm.swappiness 1", "at_least vm.max_map_count 262144", "huge_pages enabled never"]
    write_part(tree, [*lines, "huge_pages khugepaged/defrag 0", "disks scheduler none bfq"])
    write_part(tree, ["parameter net.ipv4.tcp_retries2 5"], name="other+es1")
    done = run(tree, shell)
    assert done.returncode == 0
    assert f"{SWAPPINESS}: 60 -> 1" in done.stdout.splitlines()
    wanted = {
        SWAPPINESS: "1",
        f"{VM}max_map_count": "262144",
        "/proc/sys/net/ipv4/tcp_retries2": "5",
        f"{THP}/enabled": "never",
        f"{THP}/khugepaged/defrag": "0",
        SCHEDULER: "none",
    }
    assert {path: read(tree, path) for path in wanted} == wanted
    assert read(tree, "/sys/block/sda/queue/scheduler") != "none"
    again = run(tree, shell)
    assert (again.returncode, again.stdout) == (0, "")


def test_a_value_that_is_high_enough_is_never_lowered(tree: HostTree, shell: list[str]) -> None:
    tree.sysctl("vm.max_map_count", 9999999)
    write_part(tree, ["at_least vm.max_map_count 262144", "at_least vm.min_free_kbytes 999999999 5"])
    assert run(tree, shell).returncode == 0
    assert read(tree, f"{VM}max_map_count") == "9999999"
    assert int(read(tree, f"{VM}min_free_kbytes")) == (256 << 20) * 5 // 100


def test_queues_of_the_disks_under_the_data_are_set(
    subtests: pytest.Subtests, tmp_path: Path, shell: list[str]
) -> None:
    for number, (stack, lines, changed) in enumerate(ROWS["stacks"]):
        with subtests.test(stack=stack):
            tree = HostTree(tmp_path / str(number))
            tree.machine()
            tree.systemd()
            blocks = BlockTree(tree)
            for line in stack.split("; "):
                blocks.build(line)
            tree.folder(host_kinds.DATA)
            write_part(tree, lines)
            before = tree.files()
            assert run(tree, shell).returncode == 0
            found = {
                f"{path.split('/')[-3]} {path.split('/')[-1]} {text.strip()}"
                for path, text in tree.files().items()
                if "/queue/" in path and before[path] != text
            }
            assert found == set(changed)


def test_a_line_that_cannot_be_set_is_named_and_left_out_alone(tree: HostTree, shell: list[str]) -> None:
    """Each is in a part of its own, with a parameter of its own that is set all the same."""
    before = read(tree, SCHEDULER)
    cut_off = {"at_least vm.max_map_count 1": "its last line is cut off: at_least vm.max_map_count 1"}
    said = ROWS["left_out"] | cut_off
    tree.remove(PART)
    tree.sysctl("vm.max_map_count", 5)
    for number, line in enumerate(said):
        tree.sysctl(f"vm.own{number}", 60)
        own = (BOTH[0], f"parameter vm.own{number} 1")
        lines = (*own, line) if line in cut_off else (line, *own, "")
        tree.write(boot.part_path(f"p{number}+es1"), boot.HEADER + "\n".join(lines))
    done = run(tree, shell)
    assert done.returncode == 1
    assert [text for text in said.values() if text not in done.stdout] == []
    assert {read(tree, f"{VM}own{number}") for number in range(len(said))} == {"1"}
    assert (read(tree, f"{VM}max_map_count"), read(tree, SCHEDULER)) == ("5", before)


def test_data_paths_with_any_name_are_found(tree: HostTree, shell: list[str]) -> None:
    for number, name in enumerate((*ROWS["names"], "a" * 250)):
        path = f"/data/{name}"
        tree.folder(path)
        text = boot.part_text("elasticsearch", BOTH, {path: "/data"}, {path: "ssd"})
        tree.write(boot.part_path(f"p{number}+es1"), text)
    done = run(tree, shell)
    assert (done.returncode, "NOT set" in done.stdout, read(tree, SCHEDULER)) == (0, False, "none")


def test_a_value_is_written_as_it_is_and_read_back(tree: HostTree, shell: list[str]) -> None:
    own = {f"vm.own{number}": value for number, value in enumerate((*ROWS["values"], "9" * 3000))}
    tree.sysctls(dict.fromkeys(own, 60))
    write_part(tree, [f"parameter {name} '{value}'" for name, value in own.items()])
    run(tree, shell)
    assert {name: read(tree, f"/proc/sys/{name.replace('.', '/')}") for name in own} == own
    tree.remove(SWAPPINESS)
    tree.at(SWAPPINESS).symlink_to("/proc/sys/kernel/ostype")
    write_part(tree, ["parameter vm.swappiness 1", "parameter vm.zone_reclaim_mode 0"])
    done = run(tree, shell)
    assert done.returncode == 1
    assert f"{SWAPPINESS}: NOT set: reads Linux instead of 1" in done.stdout
    assert read(tree, f"{VM}zone_reclaim_mode") == "0"


def test_a_piece_of_a_part_sets_only_its_whole_lines(tree: HostTree) -> None:
    """A kill while it was written leaves one: `vm.b 1` of 10 would be another value."""
    whole = boot.part_text("elasticsearch", ["parameter vm.a@ 0", "parameter vm.b@ 10"], {}, {})
    first, end = whole.index("parameter"), whole.index("\n", whole.index("parameter"))
    lengths = sorted({*range(first, len(whole), 9), end, end + 1, len(whole) - 2, len(whole) - 1})
    letters = dict(zip("cdefghijklmnopqrstuvwxyz", lengths, strict=False))
    assert len(letters) == len(lengths)
    for letter, length in letters.items():
        tree.sysctls({f"vm.a{letter}": 1, f"vm.b{letter}": 60})
        tree.write(boot.part_path(f"p{letter}+es1"), whole.replace("@", letter)[:length])
    run(tree)
    found = {letter: (read(tree, f"{VM}a{letter}"), read(tree, f"{VM}b{letter}")) for letter in letters}
    assert found == {letter: ("0" if length > end else "1", "60") for letter, length in letters.items()}


# Beside tuned.

LOG = "/var/log/tuned/tuned.log"
TUNED = "tuned.daemon.daemon: "
APPLIED = f"{TUNED}static tuning from profile 'balanced' applied"


def beside_tuned(tree: HostTree, last: str, naps: str = "exit 0") -> None:
    """A tuned whose log ends in a line; a body for `sleep`, which each round of the script calls."""
    tree.write("/run/tuned/tuned.pid", "1\n")
    tree.write("/etc/tuned/active_profile", "balanced\n")
    tree.write(LOG, f"{APPLIED}\n{last}\n")
    tree.program("sleep", f"{naps}\n")
    (tree.path / "toolbox" / "sleep").unlink()
    (tree.path / "toolbox" / "sleep").symlink_to(tree.path / "bin" / "sleep")


@pytest.mark.parametrize(
    "last", ["starting tuning", "stopping tuning", "static tuning from profile 'powersave' applied"]
)
def test_it_waits_until_tuned_has_applied_the_active_profile(tree: HostTree, last: str) -> None:
    """tuned 2.20 writes the name of a new profile before it applies it: the log alone has the end."""
    # Each wait is a round; in the fourth, tuned writes its own value and ends its work.
    fourth = f"""n=$(($(cat "$root/.naps" 2>/dev/null || echo 0) + 1)); echo $n >"$root/.naps"
[ $n -eq 4 ] || exit 0
echo 60 >"$root{SWAPPINESS}"; echo "{APPLIED}" >>"$root{LOG}"
"""
    beside_tuned(tree, f"{TUNED}{last}", fourth)
    assert run(tree).returncode == 0
    assert 4 < len(tree.calls("sleep")) < 20
    assert read(tree, SWAPPINESS) == "1"


def test_a_tuned_that_never_ends_its_work_does_not_hold_the_boot(tree: HostTree) -> None:
    beside_tuned(tree, f"{TUNED}starting tuning")
    assert run(tree).returncode == 0
    assert tree.calls("sleep") == ("sleep 1",) * 19


@pytest.mark.parametrize(("nap", "naps"), [("exit 0", 3), (f'echo 60 >"$root{SWAPPINESS}"', 4)])
def test_parts_that_conflict_do_not_hold_the_boot(tree: HostTree, nap: str, naps: int) -> None:
    """Each wrote its own value over the other's, 20 times: 19 seconds before the node. A program that never
    leaves a value alone is named."""
    write_part(tree, ["parameter vm.swappiness 10", "disks scheduler mq-deadline bfq"], name="zz+es9")
    write_part(tree, ["parameter vm.swappiness 1", "disks scheduler none bfq"])
    beside_tuned(tree, APPLIED, nap)
    done = run(tree)
    assert (done.returncode, len(tree.calls("sleep"))) == (int("60" in nap), naps)
    assert f"{SWAPPINESS}: 60 -> 10" in done.stdout.splitlines()
    assert (read(tree, SWAPPINESS), read(tree, SCHEDULER)) == ("10", "mq-deadline")
    named = "another program changes these values again and again"
    assert (named in done.stdout) is ("60" in nap)


SETTINGS: Mapping[str, Sequence[str]] = {
    "transparent_hugepage.enabled": ("always", "madvise", "never"),
    "transparent_hugepage.defrag": ("always", "defer+madvise", "never"),
    "transparent_hugepage.khugepaged_defrag": ("0", "1", "no", "yes"),
    "io_scheduler": ("none", "noop", "deadline", "mq-deadline", "cfq"),
    "nr_requests": ("64",),
    "read_ahead_kb": ("512",),
    "vm.swappiness": ("1",),
    "vm.min_free_kbytes": ("999999999",),
    "vm.max_map_count": ("262144",),
}


@pytest.mark.parametrize("kind", ["rhel6", "rhel7", "debian", "both folders"])
def test_a_boot_sets_what_an_apply_would_set(kind: str, subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Both choose by one table of words: now for the ledger, and at a boot from what that kernel offers."""
    tree = getattr(host_kinds, kind if kind != "both folders" else "rhel6")(tmp_path / "host")
    if kind == "both folders":
        tree.write(f"{THP}/enabled", "[always] madvise never\n")
        tree.write(f"{THP}/hugepages-64kB/enabled", "[always] inherit madvise never\n")
        tree.write(f"{THP}/khugepaged/defrag", "1\n")
        for group in ("system.slice", "system.slice/elasticsearch.service"):
            tree.write(f"/sys/fs/cgroup/memory/{group}/memory.swappiness", "60\n")
    # A kernel puts brackets around the word that is written, and this file tree does not.
    once = boot.script_text(str(tree.path)).replace('"$round" -ge 3', '"$round" -ge 1')
    seen = 0
    for name, words in SETTINGS.items():
        tunable = TUNABLES[name]
        for word in words:
            setting = TuningSetting(tunable=name, wanted=word)
            profile = TuningProfile(name="own", applies_to="elasticsearch", settings=(setting,))
            facts = tree.known_facts([tunable.reads])
            wanted = {one.path: one.wanted for one in tunable.check(facts, setting, profile).changes}
            write_part(tree, [tunable.line(setting)])
            run(tree, script=once)
            after = tree.known_facts([tunable.reads]).files
            with subtests.test(name=name, word=word):
                assert {path: text for path, text in after.items() if text != facts.files[path]} == wanted
            for path in wanted:
                tree.at(path).write_text(str(facts.files[path]))
            seen += len(wanted)
    assert seen > 12
