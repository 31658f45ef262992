"""Two operators with two state files restart Riak on five hosts over SSH: a majority of the hosts decides."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.fixtures_riak_hosts import kept_hosts
from tests.integration.riak_operating import RiakOperator, at_rest, limits, member, starts, wait_for

if TYPE_CHECKING:
    from tests.integration.riaklab.hosts import RiakHosts

pytestmark = [pytest.mark.docker, pytest.mark.part(name="riak")]
PACE = 0.05
DONE, LEASED = 0, 6
FILES = "/var/tmp/orchestrate-lease.ring-*.json"


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[RiakHosts]:
    with kept_hosts(request, formed=True, pace=PACE, plain=("riak2", "riak4")) as hosts:
        yield hosts


def records(lab: RiakHosts) -> dict[str, str]:
    """The content of the lease's last file, by host."""
    found = {name: lab.exec(name, f"sh -c {shlex.quote(f'cat {FILES} 2>/dev/null')}") for name in lab.names}
    return {name: done.stdout.splitlines()[-1] for name, done in found.items() if done.stdout}


def test_a_second_operator_may_restore_only_a_dead_run(lab: RiakHosts, tmp_path: Path) -> None:
    (tmp_path / "anna").mkdir()
    (tmp_path / "ben").mkdir()
    anna = RiakOperator(folder=tmp_path / "anna", lab=lab)
    ben = RiakOperator(folder=tmp_path / "ben", lab=lab, user="tuner")
    anna.write()
    ben.write()
    assert lab.riak("riak1", f"admin transfer-limit {member('riak1')} 3").returncode == 0
    found, before = limits(lab), starts(lab)
    with anna.begun("restart") as run:
        wait_for(lambda: starts(lab) != before, seconds=120, what="no node is restarted")
        code, lines = ben.orchestrate("restart")
        assert code == LEASED, lines[-3:]
        assert "another run holds the lease on ring: run " in lines[-1]["message"]
        kept = records(lab)
        assert sorted(kept) == sorted(lab.names)
        record = json.loads(kept["riak5"])["record"]
        assert record["run"] in lines[-1]["message"]
        assert {debt["found"] for debt in record["debts"]} == {"2", "3"}
        run.process.kill()
        run.process.wait()
    code, lines = ben.orchestrate("restore")
    assert code == DONE, lines[-3:]
    wait_for(lambda: at_rest(lab), seconds=120, what="a node is not back")
    assert limits(lab) == found
    assert all(number - before[name] <= 1 for name, number in starts(lab).items())
    # They log in with two accounts: Anna's file cannot be removed by Ben, so the lease is marked as released.
    assert {json.loads(kept)["lease"] for kept in records(lab).values()} == {"released"}
    code, lines = anna.orchestrate("restart", "--only", member("riak3"))
    assert code == DONE, lines[-3:]
