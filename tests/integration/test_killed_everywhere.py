"""Killed at every event of a real run, many to a run: each process dies a little after the one before it.

`test_killed_at_every_event.py` asks the same of one seam at a time, which takes hours; see `chains.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.chains import Chain, Rescuer, kill_everywhere
from tests.integration.killing import (
    PLAYBOOK,
    QUICKEST,
    Truth,
    assert_put_back,
    assert_restarted_once,
    prepare,
    truth,
)
from tests.integration.nursery import Nursery
from tests.integration.zoning import SIX_IN_THREE, elected_master, whole_zones, zones_of
from tests.lab.layout import THREE_ZONES

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

RESCUER: Mapping[str, Any] = {**PLAYBOOK, "deadlines": {**PLAYBOOK["deadlines"], "stop": "10s"}}
"""After nearly every death one waits so long for a stop that may have been sent; here none is on its way."""

pytestmark = [pytest.mark.real, pytest.mark.part(name="kills"), pytest.mark.timeout(7200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Judges by what stood before the run."""

    lab: LabCluster
    before: Truth

    def restarted_once(self, story: str) -> None:
        assert_restarted_once(self.lab, self.before, story)

    def put_back(self, story: str) -> None:
        assert_put_back(self.lab, self.before, story)


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """Nodes that search, in zones."""

    lab: LabCluster

    def names(self) -> dict[str, str]:
        """Nodes by their places in the run that is to come: the elected master goes last, and it changes."""
        waves = whole_zones(zones_of(self.lab.nodes), elected_master(self.lab.client))
        return {
            name: f"node{place}of{wave}"
            for wave, nodes in enumerate(waves)
            for place, name in enumerate(nodes)
        }

    @contextmanager
    def judged(self) -> Iterator[Compared]:
        """A look before is enough: the nodes tell how often they were started."""
        yield Compared(lab=self.lab, before=truth(self.lab))


@pytest.mark.parametrize("rescue", ["resume", "restore", "takeover"])
@pytest.mark.parametrize("strategy", ["node", "zone"])
@pytest.mark.proves("sigkill")
def test_a_run_may_be_killed_anywhere(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    nursery: Nursery,
    capsys: pytest.CaptureFixture[str],
    strategy: str,
    rescue: str,
) -> None:
    """`takeover`: another bastion with an empty state puts back what the dead one left, after each death."""
    lab = process_cluster(QUICKEST, nodes=SIX_IN_THREE if strategy == "zone" else THREE_ZONES)
    bastion, number = bastion_of(lab, strategy=strategy, nursery=nursery), count()
    rescuers: dict[str, Rescuer | None] = {
        "resume": None,
        "restore": lambda: bastion,
        "takeover": lambda: bastion_of(lab, f"other-{next(number)}", nursery=nursery, playbook=RESCUER),
    }
    prepare(lab)
    chain = Chain(Zones(lab=lab), bastion, rescuers[rescue])
    kill_everywhere(chain, f"{strategy} {rescue}", capsys)
