"""`tune` on whole hosts made of files, by the shipped profile: drifted, applied, checked, brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import TuningProfile, TuningSetting
from orchestrator.tuning.boot import HEADER, part_path
from tests.cli.operating import Operating
from tests.fakes import host_kinds
from tests.fakes.host_tree import THP, HostTree

ES1 = NodeName("es1")
KINDS: Mapping[str, Callable[[Path], HostTree]] = {
    "RHEL 6": host_kinds.rhel6,
    "RHEL 7": host_kinds.rhel7,
    "Debian": host_kinds.debian,
    "virtual machine": host_kinds.virtual_machine,
}


@pytest.fixture
def operating(tmp_path: Path) -> Iterator[Callable[..., Operating]]:
    made: list[Operating] = []

    def make(tree: HostTree, name: str = "anna", node: str = "es1") -> Operating:
        made.append(Operating(tree, tmp_path / name, node))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("kind", "name"), [*((kind, "elasticsearch") for kind in KINDS), ("Debian", "riak")])
def test_apply_and_revert_of_a_shipped_profile_on_a_whole_host(
    kind: str, name: str, tmp_path: Path, operating: Callable[..., Operating]
) -> None:
    tree = KINDS[kind](tmp_path / "host")
    tree.folder("/etc/security/limits.d")
    if name == "riak":
        tree.write("/etc/riak/riak.conf", "nodename = riak@riak1\nring_size = 64\n")
    anna = operating(tree, node="riak@riak1" if name == "riak" else "es1")
    before = tree.files()
    profile = anna.around.files.tuning_profile(name)
    code, said = anna.apply(profile)
    assert code is ExitCode.DONE, said
    assert tree.files() != before
    if name == "riak":
        assert "erlang.schedulers" in (tree.read("/etc/riak/riak.conf") or "")
    anna.restores(before)


@pytest.mark.parametrize("wanted", ["1024", "512"])
def test_values_that_a_change_resets_are_restored_too(
    wanted: str, tmp_path: Path, operating: Callable[..., Operating]
) -> None:
    """tuned's profile and a new scheduler write values of their own, as they are undone too."""
    tree = host_kinds.rhel7(tmp_path / "host")
    tree.write("/sys/block/sdb/queue/nr_requests", "512\n")
    tree.write(f"{THP}/enabled", "always [madvise] never\n")
    before, anna = tree.files(), operating(tree)
    settings = {
        "tuned": "off",
        "transparent_hugepage.enabled": "never",
        "io_scheduler": "noop",
        "nr_requests": wanted,
    }
    code, said = anna.apply(profile_of(settings))
    assert code is ExitCode.DONE, said
    assert tree.read("/sys/block/sdb/queue/nr_requests") == f"{wanted}\n"
    anna.restores(before)


PART = "/etc/orchestrate-tuning/prod+es1.part"
SCRIPT = "/etc/orchestrate-tuning/boot.sh"
SWAPPINESS = "/proc/sys/vm/swappiness"


def profile_of(settings: Mapping[str, str], *, persist: bool = True) -> TuningProfile:
    wanted = tuple(TuningSetting(tunable=name, wanted=value) for name, value in settings.items())
    return TuningProfile(name="own", applies_to="elasticsearch", settings=wanted, persist=persist)


def wanting(value: str, *, persist: bool = True) -> TuningProfile:
    return profile_of({"vm.swappiness": value}, persist=persist)


@pytest.fixture
def operators(tmp_path: Path, operating: Callable[..., Operating]) -> list[Operating]:
    tree = host_kinds.debian(tmp_path / "host")
    return [operating(tree, name) for name in ("anna", "ben")]


def test_a_part_of_two_operators_is_neither_lost_nor_half(operators: list[Operating]) -> None:
    anna, ben = operators
    tree, before = anna.tree, anna.tree.files()
    assert anna.apply(wanting("10"))[0] is ExitCode.DONE
    first = tree.read(PART)
    code, said = ben.apply(wanting("1"))
    assert (code, tree.read(SWAPPINESS)) == (ExitCode.DONE, "1\n")
    found = tree.files()
    code, said = anna.revert()
    assert code is ExitCode.HELD
    assert f"{PART}: NOT RESTORED" in said
    assert f"{SCRIPT}: NOT RESTORED: it stays while {PART}" in said
    assert tree.files() == found
    assert ben.revert()[0] is ExitCode.DONE
    assert (tree.read(PART), tree.read(SWAPPINESS)) == (first, "10\n")
    assert tree.read(SCRIPT) is not None
    anna.restores(before)


def test_a_boot_that_another_operator_removed_comes_back_whole(operators: list[Operating]) -> None:
    anna, ben = operators
    tree, before = anna.tree, anna.tree.files()
    assert anna.apply(wanting("10"))[0] is ExitCode.DONE
    made = tree.files()
    assert ben.apply(wanting("10", persist=False))[0] is ExitCode.DONE
    assert tree.read(PART) is tree.read(SCRIPT) is None
    assert ben.revert()[0] is ExitCode.DONE
    assert tree.files() == made, "its units are on again"
    anna.restores(before)


def test_a_value_that_another_part_sets_at_boot_is_no_success(operators: list[Operating]) -> None:
    anna = operators[0]
    assert anna.apply(wanting("1"))[0] is ExitCode.DONE
    anna.tree.write(part_path("zz+es9"), f"{HEADER}parameter vm.swappiness 30\n")
    code, said = anna.apply(wanting("1"))
    assert code is ExitCode.HELD
    assert said.endswith(": es1\n")
    assert "set to another value at the next boot by another node of the host: es1" in said


@pytest.mark.parametrize("path", [PART, SCRIPT])
def test_a_boot_that_a_person_edited_is_kept_as_a_whole(operators: list[Operating], path: str) -> None:
    anna, tree = operators[0], operators[0].tree
    before = tree.files()
    assert anna.apply(wanting("1"))[0] is ExitCode.DONE
    tree.write(path, f"{tree.read(path)}parameter vm.max_map_count 1\n")
    edited = tree.files()
    code, said = anna.revert()
    assert code is ExitCode.HELD
    assert f"{path}: NOT RESTORED: it shows another text" in said
    assert f"{SWAPPINESS}: NOT RESTORED: it stays while {path}" in said
    assert tree.files() == edited
    assert anna.apply(wanting("1"))[0] is ExitCode.DONE
    anna.restores(before)


def test_a_profile_that_stops_persisting_leaves_nothing_at_boot(operators: list[Operating]) -> None:
    anna, tree = operators[0], operators[0].tree
    before = tree.files()
    assert anna.apply(wanting("1"))[0] is ExitCode.DONE
    code, said = anna.apply(wanting("1", persist=False))
    assert code is ExitCode.DONE, said
    left = {
        path for path, text in tree.files().items() if before.get(path) != text and "/.state/" not in path
    }
    assert left == {SWAPPINESS}
    assert anna.revert()[0] is ExitCode.DONE
    assert {p: t for p, t in tree.files().items() if "/.state/" not in p} == {
        p: t for p, t in before.items() if "/.state/" not in p
    }


def test_an_init_script_switched_off_by_hand_is_enabled(
    tmp_path: Path, operating: Callable[..., Operating]
) -> None:
    tree = host_kinds.rhel6(tmp_path / "host")
    tree.folder("/etc/security/limits.d")
    before, anna = tree.files(), operating(tree)
    assert anna.apply(wanting("1"))[0] is ExitCode.DONE
    link = next(path for path in tree.files() if "/etc/rc3.d/S" in path and "orchestrate" in path)
    tree.connection().run("chkconfig orchestrate-tuning off", timeout=20.0)
    assert link not in tree.files()
    assert anna.apply(wanting("1"))[0] is ExitCode.DONE
    assert link in tree.files()
    anna.restores(before)
