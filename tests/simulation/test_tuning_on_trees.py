"""A restart that is killed between any two tunables, on a host made of files: resumed, and undone.

The cluster is simulated; what reads and changes the host, and the ledger, are those of a real run.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import make_url

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune import revert
from orchestrator.errors import ExitCode
from orchestrator.model.action import ActionResult, HostAction, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Policy, Selection
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import HostTuning, TuningProfile
from orchestrator.runs.tuning import TunedHosts
from orchestrator.runtime import tables
from orchestrator.runtime.database import DatabaseUse, open_engine
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.store import StateStore
from orchestrator.runtime.waiting import SystemClock
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import Crash
from orchestrator.tuning.tuner import TunableHosts
from tests.fakes import host_kinds
from tests.fakes.host_tree import HostTree
from tests.simulation.play import cluster, play, policy
from tests.simulation.program import Simulation
from tests.simulation.scene import EVERY

ES2 = NodeName("es2")
KINDS: Mapping[str, Callable[[Path], HostTree]] = {
    "RHEL 6": host_kinds.rhel6,
    "RHEL 7": host_kinds.rhel7,
    "Debian": host_kinds.debian,
}
RUN = "20261122-0300-k1l1"


@dataclass(slots=True, kw_only=True)
class HostsOfFiles(SimulatedHosts):
    """Simulated machines, of which tuning finds real files and changes them."""

    real: TunableHosts

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        return self.real.tuning(nodes, profile)

    def perform(self, action: HostAction) -> ActionResult:
        if not isinstance(action, TuneHost):
            return SimulatedHosts.perform(self, action)
        result = self.real.perform(action)
        self.seams.point(f"after tune of {action.tunable}")
        return result


class Life:
    """A host, a run on its node, and an operator."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.tree = KINDS[kind](folder / "host")
        self.tree.folder("/etc/security/limits.d")
        self.before = self.tree.files()
        self.around = Context(
            environment={},
            home=folder,
            clock=SystemClock(),
            output=Output.TEXT,
            out=io.StringIO(),
            err=io.StringIO(),
        )
        self.port = TunableHosts({ES2: self.tree.settings(node=ES2)})
        engine = open_engine(make_url(f"sqlite:///{folder}/state.db"), DatabaseUse.WRITE, make_folder=True)
        tables.ready(engine, DatabaseUse.WRITE)
        self.store = StateStore(engine)
        self.simulation = simulation = Simulation(cluster(3), run=RUN, state=engine)
        simulation.hosts = HostsOfFiles(
            world=simulation.world, fate=simulation.fate, seams=simulation.seams, real=self.port
        )
        simulation.listener.hosts = simulation.hosts
        self.wanted: Policy = policy(
            tune=self.around.files.tuning_profile("elasticsearch"), selection=Selection(only=(ES2,))
        )

    def close(self) -> None:
        self.port.close()
        self.store.close()

    @property
    def ledger(self) -> Ledger:
        return self.store.ledger("prod")

    def killed(self, point: int) -> None:
        """Up to that point of the run, where the program dies."""
        state = self.simulation.begin(self.wanted)
        self.simulation.seams.crash_at = point
        with pytest.raises(Crash):
            play(self.simulation, state)
        self.simulation.seams.crash_at = None

    def undo(self) -> None:
        """By `tune revert`, and all is as it was found, file by file."""
        where = TunedHosts(
            clock=self.around.clock,
            cluster="prod",
            port=self.port,
            nodes=(ES2,),
            addresses={ES2: "10.0.0.2"},
            machines={},
        )
        code = revert(where, self.ledger, self.ledger.owed(), self.around, operator="ben", yes=True)
        assert isinstance(self.around.out, io.StringIO)
        assert code is ExitCode.DONE, self.around.out.getvalue()
        assert self.tree.files() == self.before
        assert self.ledger.owed() == {}


def _points(kind: str, folder: Path) -> list[int]:
    """Where a run that nobody kills has just made a change, or is about to send them all."""
    life = Life(kind, folder)
    try:
        state = play(life.simulation, life.simulation.begin(life.wanted))
        assert state.outcome is Outcome.DONE, state.message
        passed = life.simulation.seams.passed
    finally:
        life.close()
    sent = next(n for n, point in enumerate(passed, 1) if point.startswith("after tune of ")) - 1
    return [sent, *(n for n, point in enumerate(passed, 1) if point.startswith("after tune of "))]


@pytest.mark.parametrize(
    ("kind", "every"),
    [("RHEL 7", EVERY), *(pytest.param(kind, 1, marks=pytest.mark.part(name="long")) for kind in KINDS)],
)
@pytest.mark.parametrize("resumed", [True, False], ids=["resumed and undone", "undone at once"])
def test_killed_between_any_two_tunables_nothing_is_lost(
    kind: str,
    every: int,
    resumed: bool,  # noqa: FBT001  (a case of the table)
    tmp_path: Path,
) -> None:
    points = _points(kind, tmp_path / "first")
    assert len(points) > 8, "a host on which nearly everything is wrong"
    for point in points[::every]:
        life = Life(kind, tmp_path / str(point))
        try:
            life.killed(point)
            assert life.ledger.owed(), "written down before the first change"
            if resumed:
                state = play(life.simulation, life.simulation.resume())
                assert state.outcome is Outcome.DONE, state.message
                found = life.port.tuning((ES2,), life.around.files.tuning_profile("elasticsearch"))[ES2]
                assert not isinstance(found, Unknown)
                assert found.drifted == ()
                assert found.unread == ()
            life.undo()
        finally:
            life.close()
