"""The boot script under each shell, with names and values that no operator should have, and some have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.hosts.tuning import boot_files
from tests.fakes import host_kinds
from tests.fakes.host_tree import HostTree
from tests.tools import SHELLS, shell_words

PART = boot_files.part_path("prod+es1")
SCHEDULER = "/sys/block/nvme0n1/queue/scheduler"
SWAPPINESS = "/proc/sys/vm/swappiness"
LINES = ("disks scheduler none none", "parameter vm.swappiness 1")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return shell_words(request.param)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return host_kinds.debian(tmp_path / "host")


def run(tree: HostTree, shell: list[str]) -> subprocess.CompletedProcess[str]:
    script, folder = tree.at("/boot-under-test.sh"), tree.at("/tmp/work")
    script.write_text(boot_files.script_text(str(tree.path)))
    folder.mkdir(exist_ok=True)
    (folder / "7").touch()
    return subprocess.run(  # noqa: S603  (our own script on a tree)
        [*shell, str(script)],
        env={"PATH": f"{tree.path}/toolbox"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def ran(tree: HostTree) -> list[Path]:
    """What a command in a name or in a value would have made."""
    return list(tree.path.rglob("ran"))


NAMES = (
    "two words",
    "  ",
    "it's",
    '"quoted"',
    "$(touch ran)",
    "`touch ran`",
    "; touch ran;",
    "back\\slash\\n",
    "%s%n",
    "*",
    "[a-z]?",
    "-n",
    "#hash",
    "\u00fcn\u00ef\u20ac",
    "a" * 250,
    "es/../es",
    "tab\there",
)


def test_data_paths_with_any_name_are_found(tree: HostTree, shell: list[str]) -> None:
    tree.folder("/data/es")
    found: dict[str, object] = {}
    before = str(tree.read(SCHEDULER))
    for name in NAMES:
        path = f"/data/{name}"
        tree.folder(path)
        tree.write(SCHEDULER, before)
        text = boot_files.part_text("elasticsearch", LINES, {path: "/data"}, {path: "ssd"})
        tree.write(PART, text)
        done = run(tree, shell)
        found[name] = (done.returncode, done.stderr, str(tree.read(SCHEDULER)).strip())
    assert {name: one for name, one in found.items() if one != (0, "", "none")} == {}
    assert ran(tree) == []


def test_a_data_path_with_a_newline_is_left_out_alone(tree: HostTree, shell: list[str]) -> None:
    before = tree.read(SCHEDULER)
    text = boot_files.part_text("elasticsearch", LINES, {"/data/a\ntouch ran\n": "/data"}, {})
    tree.write(PART, text)
    done = run(tree, shell)
    assert (done.returncode, done.stderr) == (1, "")
    assert "NOT set: this line is not understood" in done.stdout
    assert (tree.read(SCHEDULER), str(tree.read(SWAPPINESS)).strip()) == (before, "1")
    assert ran(tree) == []


def test_a_kind_that_is_none_is_named_and_runs_nothing(tree: HostTree, shell: list[str]) -> None:
    """The word went into a script of `sed`, which can run commands."""
    before = tree.read(SCHEDULER)
    tree.folder("/data/es")
    for kind in ("ssd/e", "ssd/;e touch ran", "&", "\\n", "disk"):
        tree.write(SWAPPINESS, "60\n")
        tree.write(
            PART, boot_files.part_text("elasticsearch", LINES, {"/data/es": "/data"}, {"/data/es": kind})
        )
        done = run(tree, shell)
        assert (done.returncode, done.stderr) == (1, ""), kind
        assert f"/data/es: NOT set: {kind} is no kind of a disk" in done.stdout
        assert (tree.read(SCHEDULER), str(tree.read(SWAPPINESS)).strip()) == (before, "1")
    assert ran(tree) == []


def test_a_value_is_written_as_it_is_and_never_read_by_the_shell(tree: HostTree, shell: list[str]) -> None:
    """No profile has these values: somebody edited the part. `?` would match a file of the folder."""
    for value in ("?", "*", "$(touch ran)", "1;touch ran", "\u00b2", "1 2", "-n", "%s", "9" * 3000):
        tree.write(PART, f"{boot_files.HEADER}parameter vm.swappiness '{value}'\n")
        assert run(tree, shell).stderr == ""
        assert str(tree.read(SWAPPINESS)).strip() == value
    assert ran(tree) == []


def test_a_value_that_the_kernel_does_not_take_is_read_back_and_named(
    tree: HostTree, shell: list[str]
) -> None:
    tree.at(SWAPPINESS).unlink()
    tree.at(SWAPPINESS).symlink_to("/proc/sys/kernel/ostype")
    tree.write(PART, f"{boot_files.HEADER}parameter vm.swappiness 1\nparameter vm.zone_reclaim_mode 0\n")
    done = run(tree, shell)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{SWAPPINESS}: NOT set: it reads Linux, not 1" in done.stdout
    assert str(tree.read("/proc/sys/vm/zone_reclaim_mode")).strip() == "0"


def test_a_bound_that_is_no_number_sets_nothing(tree: HostTree, shell: list[str]) -> None:
    tree.sysctl("vm.max_map_count", 5)
    for number in ("9" * 19, "0x10", "-1", "1e3", "", "\u0663"):
        tree.write(PART, f"{boot_files.HEADER}at_least vm.max_map_count '{number}'\n")
        done = run(tree, shell)
        assert (done.returncode, done.stderr) == (1, ""), number
        assert str(tree.read("/proc/sys/vm/max_map_count")).strip() == "5"
