"""Two programs on one Riak cluster, each with a state file of its own: they see each other on its hosts.

The nodes are those of the double, each behind an sshd of its own, all on this machine: its folder decides.
What a majority of several machines decides is shown in `tests/unit/stores/test_riak_lease.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import KILLED, entered
from tests.integration.riak_processes import RiakProcesses, riak_processes

pytestmark = pytest.mark.proves("riak-lease")

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf

PACE = 0.02
NODES = 5
EXPIRY_SECONDS = 30.0
"""In place of 90."""
DONE, LEASED = 0, 6
PLAYBOOK: Mapping[str, Any] = {
    "kind": "riak",
    "settle": {"consecutive": 2},
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "3m", "hold": "1m"},
}
FOUND = {"dev1": 2, "dev2": 3, "dev3": 2, "dev4": 1, "dev5": 9}
"""Set by hand: the first node to be restarted forgets its own, and its files say 2."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path_factory.mktemp("riak"), NODES, pace=PACE) as processes:
        yield processes


def found() -> dict[str, int]:
    return {f"{short}@127.0.0.1": limit for short, limit in FOUND.items()}


def test_a_second_run_is_refused_and_a_killed_one_restored(lab: RiakProcesses, bastion_of: BastionOf) -> None:
    lab.limit(**FOUND)
    first = bastion_of(lab, "first", playbook=PLAYBOOK, foreign=True, expiry=EXPIRY_SECONDS)
    second = bastion_of(lab, "second", playbook=PLAYBOOK, expiry=EXPIRY_SECONDS)
    with lab.watched() as watch:
        run = first.begin_restart()
        first.await_seam(run, entered("starting", node="dev2"))
        assert second.restart() == LEASED, second.story()
        holder = re.search(
            r"another run holds the lease on lab: run (\S+) of (\S+@\S+), since", second.said[-1]
        )
        assert holder is not None, second.story()
        assert run.poll() is None, "the first run is over: nothing was shown"
        run.kill()
        assert first.end(run) == KILLED
        assert holder.group(1) in first.aside("status")[1]
        (file,) = lab.leases.iterdir()
        record = json.loads(file.read_text())["record"]
        assert record["run"] == holder.group(1)
        original = {debt["key"]: debt["found"] for debt in record["debts"]}
        assert original == {f"transfer_limit.{name}": str(limit) for name, limit in found().items()}
        assert "dev2@127.0.0.1" in record["restarted"]
        assert lab.limits() != found(), "the first run was killed too late"
        assert second.restore() == DONE, second.story()
        assert "it expires in" in second.said[-1], second.story()
        lab.wait_ready()
    assert lab.limits() == found(), second.story()
    assert set(watch.starts().values()) <= {0, 1}, second.story()
    assert len(watch.most_down) == 1, second.story()
    assert list(lab.leases.iterdir()) == []


def test_a_lease_in_the_state_alone_writes_nothing_to_hosts(
    lab: RiakProcesses, bastion_of: BastionOf
) -> None:
    bastion = bastion_of(lab, "alone", playbook={**PLAYBOOK, "lease": "state"})
    assert bastion.restart("--only", "dev3@127.0.0.1") == DONE, bastion.story()
    assert list(lab.leases.iterdir()) == []
