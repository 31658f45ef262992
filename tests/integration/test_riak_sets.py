"""`--strategy shard-safe` on Riak without locations: nodes that share no preference list go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.restarting import events, orchestrate
from tests.integration.riak_processes import CLAIMANT, riak_processes
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of

PACE = 0.02
PLAYBOOK: dict[str, Any] = {
    "kind": "riak",
    "strategy": "shard-safe",
    "settle": {"consecutive": 2},
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "5m", "hold": "1m"},
}


@pytest.mark.part(name="riak")  # a minute each; the simulation has it, in `make test` too
@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_eight_nodes_are_restarted_in_four_waves_under_writes(tmp_path: Path, command: RiakCommand) -> None:
    with riak_processes(tmp_path / "riak", 8, pace=PACE, command=command) as lab:
        for node in lab.nodes:
            node.faults(writes="on")
        lab.limit(dev2=4)
        found = lab.limits()
        code, lines = orchestrate(lab, tmp_path, "plan", playbook=PLAYBOOK)
        assert code == 0, lines
        (plan,) = events(lines, "plan")
        print(json.dumps(plan["waves"], indent=1))  # noqa: T201  (with `-s`: what was seen is part of it)
        assert plan["lower_bound_waves"] == len(plan["waves"]) == 4
        owners = json.loads(lab.nodes[0].double("report").stdout)["ring"]["owners"]
        with lab.watched() as watch:
            code, lines = orchestrate(lab, tmp_path, "restart", playbook=PLAYBOOK)
        assert code == 0, lines[-1]["message"]
        assert watch.starts() == dict.fromkeys(found, 1)
        assert lab.limits() == found
    begun = [event["wave"]["nodes"] for event in events(lines, "wave_started")]
    assert begun == [wave["nodes"] for wave in plan["waves"]]
    assert [len(wave) for wave in begun] == [2, 2, 2, 2]
    assert CLAIMANT in begun[-1], "it goes last"
    around = [*owners, *owners[:2]]
    for at in range(len(owners)):
        assert max(len({*around[at : at + 3]} & {*wave}) for wave in begun) == 1, around[at : at + 3]
    assert len(watch.most_down) == 2, watch.most_down


@pytest.mark.part(name="riak")  # as above
def test_with_locations_a_set_stays_in_one(tmp_path: Path) -> None:
    """dev1, dev2 and dev5 share a location, and dev1 and dev2 preference lists."""
    places = ("north", "north", "east", "south", "north", "east", "south", "west")
    with riak_processes(tmp_path / "riak", 8, pace=PACE, locations=places) as lab:
        found = lab.limits()
        with lab.watched() as watch:
            code, lines = orchestrate(lab, tmp_path, "restart", playbook=PLAYBOOK)
        assert code == 0, lines[-1]["message"]
        assert watch.starts() == dict.fromkeys(found, 1)
    begun = [event["wave"]["nodes"] for event in events(lines, "wave_started")]
    place = {f"dev{number}": place for number, place in enumerate(places, start=1)}
    taken = [sorted(name.partition("@")[0] for name in wave) for wave in begun]
    assert all(len({place[name] for name in wave}) == 1 for wave in taken), taken
    assert sum(place[wave[0]] == "north" for wave in taken) == 2, taken
    assert not any({"dev1", "dev2"} <= {*wave} for wave in taken)
    assert len(watch.most_down) == 2, watch.most_down
