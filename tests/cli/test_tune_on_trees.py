"""`tune` on whole hosts made of files, by the shipped profile: drifted, applied, checked, brought back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.program import run
from orchestrator.cli.work.tune_apply import apply
from orchestrator.cli.work.tune_revert import revert
from orchestrator.cli.work.tune_show import verdict_on
from orchestrator.errors import ExitCode
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.tuning.boot_files import HEADER, part_path
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import FileChange, TuningProfile, TuningSetting
from orchestrator.runs import from_file
from orchestrator.runs.tuned_hosts import TunedHosts
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.database import Access
from orchestrator.runtime.ledger import Ledger, Tuning
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster
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
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    store = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=Access.WRITE)
    yield store.ledger("prod")
    store.close()


@pytest.fixture
def around(tmp_path: Path) -> Context:
    return Context(
        environment={},
        home=tmp_path,
        clock=SystemClock(),
        output=Output.TEXT,
        out=io.StringIO(),
        err=io.StringIO(),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_is_tuned_and_comes_back_file_by_file(
    kind: str, tmp_path: Path, around: Context, ledger: Ledger
) -> None:
    tree = KINDS[kind](tmp_path / "host")
    tree.folder("/etc/security/limits.d")
    before = tree.files()
    port = Hosts({ES1: tree.settings()})
    where = TunedHosts(
        clock=around.clock,
        cluster="prod",
        port=port,
        nodes=(ES1,),
        addresses={ES1: "10.0.0.1"},
        machines={},
    )
    profile = around.files.tuning_profile("elasticsearch")
    try:
        found = where.read(profile)
        assert verdict_on(found) is ExitCode.HELD
        assert tree.files() == before
        code = apply(where, profile, lambda: ledger, around, operator="anna", yes=True)
        assert code is ExitCode.DONE, _said(around)
        assert tree.files() != before
        again = where.read(profile)[ES1]
        assert not isinstance(again, Unknown)
        assert again.drifted == ()
        assert again.unread == ()
        code = revert(where, ledger, ledger.owed(), around, operator="ben", yes=True)
        assert code is ExitCode.DONE, _said(around)
        assert tree.files() == before
        assert ledger.owed() == {}
    finally:
        port.close()


def _said(around: Context) -> str:
    assert isinstance(around.out, io.StringIO)
    return around.out.getvalue()


@pytest.mark.parametrize("wanted", ["1024", "512"])
def test_values_that_others_set_anew_come_back_all_the_same(
    wanted: str, tmp_path: Path, around: Context, ledger: Ledger
) -> None:
    """tuned's profile and a new scheduler write values of their own, as they are undone too."""
    tree = host_kinds.rhel7(tmp_path / "host")
    tree.write("/sys/block/sdb/queue/nr_requests", "512\n")
    tree.write(f"{THP}/enabled", "always [madvise] never\n")
    before = tree.files()
    port = Hosts({ES1: tree.settings()})
    where = TunedHosts(
        clock=around.clock, cluster="prod", port=port, nodes=(ES1,), addresses={ES1: "10.0.0.1"}, machines={}
    )
    settings = {
        "tuned": "override",
        "transparent_hugepage.enabled": "never",
        "io_scheduler": "noop",
        "nr_requests": wanted,
    }
    profile = TuningProfile(
        name="own",
        applies_to="elasticsearch",
        settings=tuple(TuningSetting(tunable=name, wanted=value) for name, value in settings.items()),
    )
    try:
        code = apply(where, profile, lambda: ledger, around, operator="anna", yes=True)
        assert code is ExitCode.DONE, _said(around)
        assert tree.read("/sys/block/sdb/queue/nr_requests") == f"{wanted}\n"
        assert revert(where, ledger, ledger.owed(), around, operator="ben", yes=True) is ExitCode.DONE
        assert tree.files() == before
        assert ledger.owed() == {}
    finally:
        port.close()


def test_a_riak_host_gets_schedulers_and_is_restored(tmp_path: Path, around: Context, ledger: Ledger) -> None:
    riak1 = NodeName("riak@riak1")
    tree = host_kinds.debian(tmp_path / "host")
    tree.write("/etc/riak/riak.conf", "nodename = riak@riak1\nring_size = 64\n")
    tree.folder("/etc/security/limits.d")
    before = tree.files()
    port = Hosts({riak1: tree.settings(riak1)})
    where = TunedHosts(
        clock=around.clock,
        cluster="ring",
        port=port,
        nodes=(riak1,),
        addresses={riak1: "10.0.0.1"},
        machines={},
    )
    profile = around.files.tuning_profile("riak")
    try:
        assert verdict_on(where.read(profile)) is ExitCode.HELD
        code = apply(where, profile, lambda: ledger, around, operator="anna", yes=True)
        assert code is ExitCode.DONE, _said(around)
        assert "erlang.schedulers" in (tree.read("/etc/riak/riak.conf") or "")
        assert revert(where, ledger, ledger.owed(), around, operator="ben", yes=True) is ExitCode.DONE, _said(
            around
        )
        assert tree.files() == before
    finally:
        port.close()


class Operating:
    """`tune` on a host of files, from a machine with a state database of its own."""

    def __init__(self, tree: HostTree, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.tree = tree
        self.around = Context(
            environment={},
            home=folder,
            clock=SystemClock(),
            output=Output.TEXT,
            out=io.StringIO(),
            err=io.StringIO(),
        )
        self.store = open_store(f"sqlite:///{folder}/state.db", {}, access=Access.WRITE)
        self.ledger = self.store.ledger("prod")
        self.port = Hosts({ES1: tree.settings(cluster="prod")})
        self.where = TunedHosts(
            clock=self.around.clock,
            cluster="prod",
            port=self.port,
            nodes=(ES1,),
            addresses={ES1: "10.0.0.1"},
            machines={},
        )

    def apply(self, wanted: TuningProfile) -> tuple[ExitCode, str]:
        self._forget()
        code = apply(self.where, wanted, lambda: self.ledger, self.around, operator="anna", yes=True)
        return code, _said(self.around)

    def revert(self) -> tuple[ExitCode, str]:
        self._forget()
        code = revert(self.where, self.ledger, self.ledger.owed(), self.around, operator="ben", yes=True)
        return code, _said(self.around)

    def _forget(self) -> None:
        assert isinstance(self.around.out, io.StringIO)
        self.around.out.seek(0)
        self.around.out.truncate()

    def close(self) -> None:
        self.port.close()
        self.store.close()


PART = "/etc/orchestrate-tuning/prod+es1.part"
SCRIPT = "/etc/orchestrate-tuning/boot.sh"
SWAPPINESS = "/proc/sys/vm/swappiness"


def wanting(value: str, *, persist: bool = True) -> TuningProfile:
    settings = (TuningSetting(tunable="vm.swappiness", wanted=value),)
    return TuningProfile(name="test", applies_to="elasticsearch", settings=settings, persist=persist)


@pytest.fixture
def operators(tmp_path: Path) -> Iterator[list[Operating]]:
    tree = host_kinds.debian(tmp_path / "host")
    made = [Operating(tree, tmp_path / name) for name in ("anna", "ben")]
    yield made
    for one in made:
        one.close()


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
    assert anna.revert()[0] is ExitCode.DONE
    assert tree.files() == before


def test_a_boot_that_another_operator_removed_comes_back_whole(operators: list[Operating]) -> None:
    anna, ben = operators
    tree, before = anna.tree, anna.tree.files()
    assert anna.apply(wanting("10"))[0] is ExitCode.DONE
    made = tree.files()
    assert ben.apply(wanting("10", persist=False))[0] is ExitCode.DONE
    assert tree.read(PART) is tree.read(SCRIPT) is None
    assert ben.revert()[0] is ExitCode.DONE
    assert tree.files() == made, "its units are on again"
    assert anna.revert()[0] is ExitCode.DONE
    assert tree.files() == before


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
    assert anna.revert()[0] is ExitCode.DONE
    assert tree.files() == before


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


def test_an_init_script_switched_off_by_hand_is_enabled(tmp_path: Path) -> None:
    tree = host_kinds.rhel6(tmp_path / "host")
    tree.folder("/etc/security/limits.d")
    before, anna = tree.files(), Operating(tree, tmp_path / "anna")
    try:
        assert anna.apply(wanting("1"))[0] is ExitCode.DONE
        link = next(path for path in tree.files() if "/etc/rc3.d/S" in path and "orchestrate" in path)
        tree.connection().run("chkconfig orchestrate-tuning off", timeout=20.0)
        assert link not in tree.files()
        assert anna.apply(wanting("1"))[0] is ExitCode.DONE
        assert link in tree.files()
        assert anna.revert()[0] is ExitCode.DONE
        assert tree.files() == before
    finally:
        anna.close()


OLD_FILE = "/etc/sysctl.d/90-orchestrate-vm.swappiness.conf"
OLD_TEXT = (
    "# Written by orchestrate for vm.swappiness; `orchestrate tune revert` takes it away again.\nx = 1\n"
)


def test_a_check_looks_into_the_state_that_it_is_given(
    console: Console,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What an earlier version wrote carries no cluster: the ledger in that state says whose it is."""
    tree = host_kinds.debian(tmp_path / "host")
    tree.write(OLD_FILE, OLD_TEXT)
    settings = tree.settings(cluster="lab")
    monkeypatch.setattr(from_file, "host_settings", lambda *_: {ES1: settings})
    url = f"sqlite:///{tmp_path}/other.db"
    store = open_store(url, {}, access=Access.WRITE)
    change = FileChange(path=OLD_FILE, found=None, wanted=OLD_TEXT)
    store.ledger("lab").record(
        Tuning(node=ES1, tunable="vm.swappiness", changes=(change,), operator="anna"), 1.0
    )
    store.close()
    wanted = console.folder / "wanted.yml"
    wanted.write_text('{"applies_to": "elasticsearch", "settings": {"vm.swappiness": "1"}}')
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    monkeypatch.chdir(console.folder)
    with SmallCluster() as cluster:
        file = cluster.write_file(console.folder)
        command = ["tune", "check", "--cluster", file, "--profile", str(wanted), "--only", "es1"]
        assert run([*command, "--state", url]) == ExitCode.HELD
        assert f"replaces what an earlier version wrote: {OLD_FILE}" in capsys.readouterr().out
        assert run(command) == ExitCode.HELD
        assert f"leaves what an earlier version wrote from elsewhere: {OLD_FILE}" in capsys.readouterr().out
