"""`tune` on whole hosts made of files, by the shipped profile: drifted, applied, checked, brought back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune_apply import apply
from orchestrator.cli.work.tune_revert import revert
from orchestrator.cli.work.tune_show import verdict_on
from orchestrator.errors import ExitCode
from orchestrator.hosts.port import Hosts
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TuningProfile, TuningSetting
from orchestrator.runs.tuned_hosts import TunedHosts
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.database import Access
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.store import open_store
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
