"""`--strategy zone` on Riak: the nodes of a location go together, as long as every key keeps its quorum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.restarting import events, orchestrate
from tests.integration.riak_processes import riak_processes
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of

PACE = 0.02
APART = ("north", "east", "south", "west", "north", "east", "south", "west")
"""On a ring of 64, eight nodes own every eighth partition: two of one location are four partitions apart."""
CLOSE = ("north", "north", "east", "east", "south", "south", "west", "west")
"""Two of one location own partitions side by side, which is two of three owners of a key."""
PLAYBOOK: dict[str, Any] = {
    "kind": "riak",
    "strategy": "zone",
    "settle": {"consecutive": 2},
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "5m", "hold": "1m"},
}


@pytest.mark.part(name="riak")  # a minute each; the simulation has both, in `make test` too
@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
@pytest.mark.parametrize(
    ("locations", "together", "waves"),
    [(APART, 2, ["dev1 dev5", "dev2 dev6", "dev3 dev7", "dev4 dev8"]), (CLOSE, 1, None)],
    ids=["apart", "side by side"],
)
def test_a_location_goes_together_as_far_as_the_quorum_allows(
    tmp_path: Path,
    locations: tuple[str, ...],
    together: int,
    waves: list[str] | None,
    command: RiakCommand,
) -> None:
    with riak_processes(tmp_path / "riak", 8, pace=PACE, locations=locations, command=command) as lab:
        for node in lab.nodes:
            node.faults(writes="on")
        found = lab.limits()
        with lab.watched() as watch:
            code, lines = orchestrate(lab, tmp_path, "restart", playbook=PLAYBOOK)
        assert code == 0, lines[-1]["message"]
        assert watch.starts() == dict.fromkeys(found, 1)
        assert lab.limits() == found
    begun = [event["wave"]["nodes"] for event in events(lines, "wave_started")]
    taken = sorted(" ".join(sorted(name.partition("@")[0] for name in wave)) for wave in begun)
    assert taken == (waves or [f"dev{number}" for number in range(1, 9)])
    assert len(watch.most_down) == together, watch.most_down
