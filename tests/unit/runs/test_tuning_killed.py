"""Tuning that is killed after every step on a host: next boot, values, and what an earlier ledger has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import pytest

from orchestrator.model.action import Done
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BlockChange,
    FileChange,
    TunedChange,
    TuningProfile,
)
from orchestrator.runs.tuning import TunedHosts, look, make, undo
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.ledger import Ledger, Tuning
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.runtime.waiting import SystemClock
from orchestrator.tuning.tuner import TunableHosts
from tests.fakes import host_kinds
from tests.fakes.host_tree import HostTree
from tests.fakes.tuned_hosts import profile, setting

ES1 = NodeName("es1")
PROFILE = profile(setting("numad", "off"), setting("vm.swappiness", "1"), setting("io_scheduler", "noop"))
RC_LOCAL = "/etc/rc.d/rc.local"
HEAD = "# Written by orchestrate for vm.swappiness; `orchestrate tune revert` takes it away again.\n"
LASTED: tuple[FileChange | TunedChange | BlockChange, ...] = (
    FileChange(path="/etc/sysctl.d/90-orchestrate-vm.swappiness.conf", found=None, wanted=f"{HEAD}x = 1\n"),
    FileChange(path="/etc/udev/rules.d/90-orchestrate-io_scheduler.rules", found=None, wanted=f"{HEAD}x\n"),
    FileChange(
        path="/etc/tuned/orchestrate/tuned.conf",
        found=None,
        wanted=f"{HEAD}[main]\ninclude=throughput-performance\n",
    ),
    TunedChange(found="throughput-performance", wanted="orchestrate"),
    BlockChange(path=RC_LOCAL, name="vm.swappiness", found=None, wanted="echo 1"),
)
"""What an earlier version made to last, as its ledger has it."""
MUTATING = {
    **dict.fromkeys(("tee", "rm", "mkdir", "rmdir", "chmod"), "*"),
    "systemctl": "stop*|start*|enable*|disable*|mask*|unmask*|daemon-reload*",
    "tuned-adm": "profile*|off",
    "chkconfig": "*",
    "service": "*stop|*start",
}
"""Command lines of a host that change it, as patterns of the shell."""
KILLER = """#!/bin/sh
case "$*" in {pattern}) ;; *) exec {real} "$@" ;; esac
calls=$(($(cat {state}/calls) + 1)); echo "$calls" >{state}/calls
case ${{0##*/}}:$1 in
tee:*/rc.local) ;;
tee:*) if [ -e {state}/half ] && [ "$calls" = "$(cat {state}/fatal)" ]; then
    head -c 60 >"$1"; : >{state}/died; kill -9 0; fi ;;
esac
{real} "$@"; code=$?
if [ "$calls" = "$(cat {state}/fatal)" ]; then : >{state}/died; kill -9 0; fi
exit "$code"
"""


@dataclass(kw_only=True)
class Scene:
    """A host with what an earlier version made to last, and the ledger of that."""

    tree: HostTree
    state: Path
    store: StateStore
    before: dict[str, str]

    @property
    def ledger(self) -> Ledger:
        return self.store.ledger("prod")

    def an_earlier_version_tuned(self) -> None:
        """Put in place what it made to last, and its ledger."""
        earlier = Tuning(
            node=ES1, tunable="vm.swappiness", changes=LASTED, operator="anna", address="10.0.0.1"
        )
        self.ledger.record(earlier, 1.0)
        for change in LASTED:
            match change:
                case FileChange(path=path, wanted=str(text)):
                    self.tree.write(path, text)
                case TunedChange():
                    self.tree.write("/etc/tuned/active_profile", "orchestrate\n")
                case BlockChange(path=path, name=name, wanted=lines):
                    marks = f"# BEGIN orchestrate {name}\n{lines}\n# END orchestrate {name}\n"
                    self.tree.write(path, f"{self.tree.read(path)}{marks}")
                case _:
                    assert_never(change)

    def dies_after(self, call: int) -> None:
        """Let the host's shell be killed after this change, and begin nothing more: this program died too."""
        (self.state / "calls").write_text("0\n")
        (self.state / "fatal").write_text(f"{call}\n")
        (self.state / "died").unlink(missing_ok=True)

    def died(self) -> bool:
        return (self.state / "died").exists()

    def where(self) -> TunedHosts:
        path = f"{self.state}:{self.tree.environment['PATH']}"
        port = TunableHosts({ES1: self.tree.settings(environment={"PATH": path}, cluster="prod")})
        return TunedHosts(
            clock=SystemClock(),
            cluster="prod",
            port=port,
            nodes=(ES1,),
            addresses={ES1: "10.0.0.1"},
            machines={},
        )

    def apply(self, wanted: TuningProfile = PROFILE) -> None:
        where = self.where()
        try:
            found = where.read(wanted)
            made = make(where, wanted, self.ledger, found, operator="anna", stop=self.died)
            assert made.broken is None
            assert self.died() or not [one for one in made.made if one.failed], made
        finally:
            where.port.close()  # type: ignore[attr-defined]  # of TunableHosts

    def revert(self) -> None:
        where = self.where()
        try:
            owed = self.ledger.owed()
            undone, broken = undo(where, self.ledger, look(where, owed), operator="ben", stop=self.died)
            assert broken is None
            assert self.died() or [one for one in undone if not isinstance(one.result, Done)] == []
        finally:
            where.port.close()  # type: ignore[attr-defined]  # of TunableHosts

    def is_right(self) -> bool:
        where = self.where()
        try:
            found = where.read(PROFILE)[ES1]
            assert not isinstance(found, Unknown), found
            return found.drifted == found.unread == ()
        finally:
            where.port.close()  # type: ignore[attr-defined]  # of TunableHosts

    def assert_as_before(self) -> None:
        assert self.tree.files() == self.before
        assert self.ledger.owed() == {}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    tree = host_kinds.rhel7(tmp_path / "host")
    tree.folder("/etc/security/limits.d")
    tree.write(RC_LOCAL, "#!/bin/sh\ntouch /var/lock/subsys/local\n")
    tree.write("/.state/tuned/orchestrate", "")
    before = tree.files()
    store = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=DatabaseUse.WRITE)
    state = tmp_path / "killer"
    state.mkdir()
    for name, pattern in MUTATING.items():
        real = next(
            (at for at in (tree.path / "bin" / name, tree.path / "toolbox" / name) if at.exists()), None
        )
        if real is not None:
            (state / name).write_text(KILLER.format(pattern=pattern, real=real, state=state))
            (state / name).chmod(0o755)
    made = Scene(tree=tree, state=state, store=store, before=before)
    made.dies_after(0)
    yield made
    store.close()
    shutil.rmtree(tree.path)


FEW = range(1, 18, 8)
"""Of the steps of an apply or a revert: near the first, in the middle, and near the last."""
EACH = pytest.mark.parametrize(
    "steps",
    [
        FEW,
        pytest.param(range(1, 100, 5), marks=pytest.mark.slow),
        pytest.param(range(1, 100), marks=pytest.mark.part(name="long")),
    ],
    ids=["few", "every fifth", "every one"],
)
"""A step takes half a second, with what is read before and after it."""


@EACH
def test_what_is_killed_in_an_apply_is_completed_or_reverted(scene: Scene, steps: range) -> None:
    """After a change that the host made: half of the times applied again first, then reverted."""
    for place, call in enumerate(steps):
        scene.an_earlier_version_tuned()
        scene.dies_after(call)
        scene.apply()
        if not scene.died():
            break
        scene.dies_after(0)
        if place % 2:
            scene.apply()
            assert scene.is_right(), call
        scene.revert()
        scene.assert_as_before()
    assert call > 15


@pytest.mark.parametrize(
    "steps",
    [
        (1, 7, 13),
        pytest.param(range(1, 14, 2), marks=pytest.mark.slow),
        pytest.param(range(2, 14, 2), marks=pytest.mark.part(name="long")),
    ],
    ids=["few", "odd", "even"],
)
def test_a_file_of_which_only_a_piece_is_there_is_reverted(scene: Scene, steps: Sequence[int]) -> None:
    """Killed while it was written: in a first apply, in one that replaces the text, in a removal."""
    (scene.state / "half").touch()
    for call in steps:
        scene.dies_after(call)
        scene.apply()
        assert scene.died()
        scene.dies_after(0)
        scene.revert()
        scene.assert_as_before()


@EACH
def test_what_is_killed_in_a_revert_is_reverted(scene: Scene, steps: range) -> None:
    for call in steps:
        scene.an_earlier_version_tuned()
        scene.dies_after(0)
        scene.apply()
        assert scene.is_right(), call
        scene.dies_after(call)
        scene.revert()
        if not scene.died():
            break
        scene.dies_after(0)
        scene.revert()
        scene.assert_as_before()
    else:
        scene.assert_as_before()
    assert call > 15
