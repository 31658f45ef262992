"""`tune` by an operator on a host of files."""

from __future__ import annotations

import io
from pathlib import Path

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune import apply, revert
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import TuningProfile
from orchestrator.runs.tuning import TunedHosts
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock
from orchestrator.tuning.tuner import TunableHosts
from tests.fakes.host_tree import HostTree


class Operating:
    """`tune` on a host of files, from a machine with a state database of its own."""

    def __init__(
        self,
        tree: HostTree,
        folder: Path,
        node: str = "es1",
        *,
        cluster: str = "prod",
        output: Output = Output.TEXT,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.tree, self.node = tree, NodeName(node)
        self.out = io.StringIO()
        self.around = Context(
            environment={},
            home=folder,
            clock=SystemClock(),
            output=output,
            out=self.out,
            err=io.StringIO(),
        )
        self.store = open_store(f"sqlite:///{folder}/state.db", {}, access=DatabaseUse.WRITE)
        self.ledger = self.store.ledger(cluster)
        self.port = TunableHosts({self.node: tree.settings(node, cluster=cluster)})
        self.where = TunedHosts(
            clock=self.around.clock,
            cluster=cluster,
            port=self.port,
            nodes=(self.node,),
            addresses={self.node: "10.0.0.1"},
            machines={},
        )

    def apply(self, wanted: TuningProfile) -> tuple[ExitCode, str]:
        """The exit code, and what was printed."""
        self.out.truncate(self.out.seek(0))
        code = apply(self.where, wanted, lambda: self.ledger, self.around, operator="anna", yes=True)
        return code, self.out.getvalue()

    def revert(self) -> tuple[ExitCode, str]:
        """The same of a revert."""
        self.out.truncate(self.out.seek(0))
        code = revert(self.where, self.ledger, self.ledger.owed(), self.around, operator="ben", yes=True)
        return code, self.out.getvalue()

    def restores(self, before: dict[str, str]) -> None:
        """A revert leaves the host as it was before, and nothing to restore."""
        code, said = self.revert()
        assert code is ExitCode.DONE, said
        assert self.tree.files() == before
        assert self.ledger.owed() == {}

    def close(self) -> None:
        """Close its connections and its state."""
        self.port.close()
        self.store.close()
