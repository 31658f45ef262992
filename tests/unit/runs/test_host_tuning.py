"""Undoing on a machine that several nodes or clusters share, and with a ledger that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import JournalError
from orchestrator.model.action import ActionResult, Done, HostAction, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import BOOT, HostTuning, Verdict
from orchestrator.runs.tuning import TunedHosts, Undone, look, make, selected, undo
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.runtime.waiting import SystemClock
from orchestrator.tuning.tuner import TunableHosts
from tests.fakes import host_kinds
from tests.fakes.host_tree import HostTree
from tests.fakes.tuned_hosts import profile, setting

PROFILE = profile(setting("vm.swappiness", "1"), setting("vm.zone_reclaim_mode", "0"))
MACHINE = "machine"


class Interrupted(TunableHosts):
    """Hosts on which something happens before a change is made."""

    before: Callable[[TuneHost], None] = staticmethod(lambda _action: None)

    def perform(self, action: HostAction) -> ActionResult:
        assert isinstance(action, TuneHost)
        self.before(action)
        return super().perform(action)


@dataclass(kw_only=True)
class Cluster:
    """A cluster with its nodes on one machine."""

    where: TunedHosts
    ledger: Ledger
    port: Interrupted

    @classmethod
    def of(cls, tree: HostTree, store: StateStore, name: str, *nodes: str) -> Cluster:
        names = tuple(map(NodeName, nodes))
        port = Interrupted({node: tree.settings(node, cluster=name) for node in names})
        where = TunedHosts(
            clock=SystemClock(),
            cluster=name,
            port=port,
            nodes=names,
            addresses=dict.fromkeys(names, "10.0.0.1"),
            machines=dict.fromkeys(names, MACHINE),
        )
        return cls(where=where, ledger=store.ledger(name), port=port)

    def apply(self) -> None:
        found = self.where.read(PROFILE)
        made = make(self.where, PROFILE, self.ledger, found, operator="anna", stop=lambda: False)
        assert made.broken is None
        assert [one for one in made.made if one.failed] == []

    def revert(self, *nodes: str) -> list[Undone]:
        """What was not undone."""
        owed = self.ledger.owed(self.where.machine)
        owed = selected(owed, [NodeName(node) for node in nodes]) if nodes else owed
        done, broken = undo(
            self.where, self.ledger, look(self.where, owed), operator="ben", stop=lambda: False
        )
        assert broken is None
        return [one for one in done if not isinstance(one.result, Done)]

    @property
    def owes(self) -> bool:
        return self.ledger.owed() != {}


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return host_kinds.debian(tmp_path / "host")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    made = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=DatabaseUse.WRITE)
    yield made
    made.close()


def test_a_node_reverted_alone_leaves_what_its_neighbour_needs(tree: HostTree, store: StateStore) -> None:
    """Undone later with the neighbour: recorded as undone now, it would stay on the host for good."""
    before, prod = tree.files(), Cluster.of(tree, store, "prod", "es1", "es2")
    prod.apply()
    assert prod.revert("es1") == []
    assert tree.read("/etc/orchestrate-tuning/prod+es1.part") is None
    assert tree.read("/etc/orchestrate-tuning/boot.sh")
    assert prod.revert("es2") == []
    assert tree.files() == before
    assert not prod.owes


@pytest.mark.parametrize(
    "every", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["every third", "every one"]
)
def test_a_cluster_that_installs_in_a_revert_keeps_the_script(
    tree: HostTree, store: StateStore, every: int
) -> None:
    """At a step of the revert: what all parts share is never taken away under a part that is new."""
    before = tree.files()
    steps = 1
    while True:
        prod, log = Cluster.of(tree, store, "prod", "es1"), Cluster.of(tree, store, "log", "es9")
        prod.apply()
        seen: list[TuneHost] = []

        def install(
            action: TuneHost, seen: list[TuneHost] = seen, log: Cluster = log, step: int = steps
        ) -> None:
            seen.append(action)
            if len(seen) == step:
                log.apply()

        prod.port.before = install
        left = prod.revert()
        if len(seen) < steps:
            break
        prod.port.before = lambda _action: None
        assert {type(one.result) for one in left} <= {Refused}
        for one in left:
            assert isinstance(one.result, Refused)
            assert "it stays for /etc/orchestrate-tuning/log+es9.part" in one.result.reason
        again = log.where.read(PROFILE)[NodeName("es9")]
        assert isinstance(again, HostTuning)
        assert (again.states[0].tunable, again.states[0].verdict) == (BOOT, Verdict.OK), f"step {steps}"
        assert prod.revert() == []
        assert not prod.owes
        assert log.revert() == []
        assert not log.owes
        assert tree.files() == before
        steps += every
    assert steps > 6


def test_nothing_more_is_undone_once_the_ledger_fails(tree: HostTree, store: StateStore) -> None:
    prod = Cluster.of(tree, store, "prod", "es1")
    prod.apply()
    seen: list[TuneHost] = []
    prod.port.before = seen.append

    class Full(Ledger):
        def undone(self, *_: Any, **__: Any) -> None:
            raise JournalError("no space is left")

    ledger = prod.ledger
    owed = ledger.owed(prod.where.machine)
    full = Full(ledger._engine, "prod")
    done, broken = undo(prod.where, full, look(prod.where, owed), operator="ben", stop=lambda: False)
    assert str(broken) == "no space is left"
    assert len(seen) == 1
    assert [one.result is None for one in done] == [False, *[True] * (len(done) - 1)]
    assert prod.revert() == []
    assert not prod.owes
