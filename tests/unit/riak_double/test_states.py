"""The double goes through the states of the recording by itself, in its order and in about its time.

The nodes live on one clock without processes. Where the numbers of a text vary in the recording from reading
to reading, the rule is: every digit is replaced by `#`, all else is equal.
"""

from __future__ import annotations

import re

import pytest

from tests.doubles.riak_double.machine import INACTIVITY_SECONDS
from tests.doubles.riak_double.ring import N_VAL, SPACING, fallbacks, formed, preference_list
from tests.riak_transcripts import TIMELINE, recordings
from tests.unit.riak_double.world import World

DEV1, DEV2, DEV3 = NAMES = tuple(f"dev{number}@127.0.0.1" for number in (1, 2, 3))
SETTLED_SECONDS = 400.0


def masked(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def shape(text: str) -> str:
    """Which lines `transfers` has, in order, without their numbers."""
    kinds = re.findall(r"currently down|does not have|waiting to|No transfers|transfer type|contacted", text)
    return " ".join(kinds)


def recorded(state: str, command: str) -> str:
    return next(each.output for each in recordings() if (each.state, each.command) == (state, command))


def settled(**faults: str) -> World:
    world = World(names=NAMES)
    world.run(SETTLED_SECONDS)
    for name in NAMES:
        world.set(name, **faults)
    return world


def test_a_settled_cluster_says_what_was_recorded() -> None:
    world = settled()
    for command in ("admin member-status", "admin cluster status", "admin ring-status"):
        assert world.ask(DEV1, command) == recorded("settled", f"riak {command}")
    assert world.ask(DEV1, "admin transfers") == recorded("pre", "riak admin transfers")


@pytest.mark.parametrize(
    "command",
    [
        "member-status",
        "ringready",
        "ring-status",
        "transfers",
        "handoff summary",
        "handoff details",
        "cluster status",
    ],
)
def test_a_node_down_is_what_was_recorded(command: str) -> None:
    """The trap too: `No transfers active` stands there while the node is down."""
    world = settled()
    world.stop(DEV2)
    world.run(5)
    assert world.ask(DEV1, f"admin {command}") == recorded("dev2down", f"riak admin {command}")


def test_the_claimant_down_is_what_was_recorded() -> None:
    world = settled()
    world.stop(DEV1)
    world.run(5)
    for command in ("ring-status", "cluster status", "ringready"):
        assert world.ask(DEV3, f"admin {command}") == recorded("claimantdown", f"riak admin {command}")


def test_with_writes_the_fallbacks_are_as_many_as_recorded() -> None:
    world = settled(writes="on")
    world.stop(DEV2)
    world.run(5)
    for command in ("transfers", "handoff summary"):
        assert world.ask(DEV1, f"admin {command}") == recorded("dev2down+writes", f"riak admin {command}")


def test_the_drain_after_a_restart_follows_the_time_line() -> None:
    world = settled(writes="on")
    world.stop(DEV2)
    world.run(30)
    world.start(DEV2)
    began, shapes, active, quiet, last_active = world.now, [], 0.0, 0.0, world.now
    first_waiting = 0.0
    while "No transfers" not in (text := world.ask(DEV1, "admin transfers")):
        assert world.now - began < 300, text
        if not shapes or shape(text) != shapes[-1]:
            shapes.append(shape(text))
        if "'dev2@127.0.0.1' waiting to handoff 11" in text and not first_waiting:
            first_waiting = world.now - began
        if "transfer type" in text:
            active = active or world.now - began
            last_active = world.now
        quiet = max(quiet, world.now - last_active)
        world.run(0.5)
    moments = [each for each in recordings(TIMELINE) if each.command == "riak admin transfers"]
    assert masked(text) == masked(moments[-1].output)
    assert [shape(each.output) for each in moments[:2]] == [shapes[0], shapes[2]]
    assert first_waiting == pytest.approx(10, abs=2)
    assert active == pytest.approx(77, abs=15)  # nothing moves before, though all waits
    assert quiet >= INACTIVITY_SECONDS
    assert 120 <= world.now - began <= 240  # two to four minutes; 174 s in the recording
    in_flight = next(each for each in moments if "transfer type" in each.output)
    assert in_flight.moment is not None
    assert in_flight.moment == pytest.approx(active, abs=15)


def test_a_restart_without_writes_leaves_the_nodes_own_fallbacks_alone_to_drain() -> None:
    world = settled()
    world.stop(DEV2)
    world.run(30)
    world.start(DEV2)
    seen = []
    for _ in range(24):
        world.run(0.5)
        seen.append(world.ask(DEV1, "admin transfers"))
    just_up = [each.output for each in recordings() if re.fullmatch(r"justup\d", each.state)]
    assert [text for text in just_up if text not in seen] == []
    assert world.machines[DEV2].vnodes == set(range(16))


def test_service_is_up_long_before_the_vnodes_run() -> None:
    world = settled()
    world.stop(DEV2)
    world.start(DEV2)
    world.run(1.5)
    view = world.view(DEV1)
    assert view.others[DEV2].services
    assert view.others[DEV2].vnodes == frozenset()
    assert world.ask(DEV1, "admin ringready").startswith("TRUE")


def test_a_raised_transfer_limit_lets_more_through_at_a_time_and_is_forgotten_at_a_restart() -> None:
    took = {}
    for limit in (1, 8):
        world = settled(writes="on")
        world.stop(DEV2)
        world.run(5)
        world.start(DEV2)
        world.ask(DEV1, f"admin transfer-limit {limit}")
        most = 0
        began = world.now
        while "No transfers" not in world.ask(DEV1, "admin transfers"):
            most = max(most, *(len(machine.running) for machine in world.machines.values()))
            assert most <= limit
            world.run(0.5)
        took[limit] = (most, world.now - began)
    assert took[8] > (took[1][0], 0.0)
    assert took[8][1] < took[1][1]
    world.stop(DEV1)
    world.start(DEV1)
    assert re.search(r"\n    2        'dev1", world.ask(DEV2, "admin transfer-limit"))
    assert re.search(r"\n    8        'dev3", world.ask(DEV2, "admin transfer-limit"))


def test_a_node_sends_no_more_at_a_time_than_its_own_limit() -> None:
    world = settled(writes="on")
    world.stop(DEV2)
    world.run(5)
    world.start(DEV2)
    world.ask(DEV1, "admin transfer-limit 8")
    world.ask(DEV1, "admin set transfer_limit=1")
    most = {DEV1: 0, DEV3: 0}
    while "No transfers" not in world.ask(DEV1, "admin transfers"):
        most = {name: max(count, len(world.machines[name].running)) for name, count in most.items()}
        world.run(0.5)
    assert most[DEV1] == 1


def test_handoff_that_stalls_waits_for_ever_and_one_that_sticks_stays_active() -> None:
    for fault, active in (("stalls", False), ("sticks", True)):
        world = settled(writes="on", handoff=fault)
        world.stop(DEV2)
        world.run(5)
        world.start(DEV2)
        world.run(1200)
        text = world.ask(DEV1, "admin transfers")
        assert ("transfer type" in text, "waiting to handoff" in text) == (active, True)


def test_a_ring_that_differs_or_never_settles_and_a_peer_out_of_reach() -> None:
    world = settled()
    world.set(DEV2, ring="differs")
    assert world.ask(DEV1, "admin ringready").startswith("FALSE Node")
    assert "Ring Ready: false" in world.ask(DEV1, "admin ring-status")
    world.set(DEV2)
    world.set(DEV1, ring="unsettled")
    assert "Ring Ready: false" in world.ask(DEV1, "admin ring-status")
    world.set(DEV1, unreachable=DEV3)
    assert "'dev3@127.0.0.1' could not be contacted" in world.ask(DEV1, "admin transfers")
    assert "could not be contacted" not in world.ask(DEV2, "admin transfers")


def test_no_vnode_runs_while_that_fault_is_set_and_they_climb_afterwards() -> None:
    world = settled()
    world.set(DEV2, vnodes="none")
    world.run(60)
    assert "'dev2@127.0.0.1' does not have 5 primary" in world.ask(DEV1, "admin transfers")
    world.set(DEV2)
    world.run(5)
    assert 0 < len(world.machines[DEV2].vnodes) < 5
    world.run(8)
    assert len(world.machines[DEV2].vnodes) == 16


@pytest.mark.parametrize(("count", "size"), [(3, 16), (5, 16), (5, 64), (8, 64), (16, 64)])
def test_rings_are_even_and_fallbacks_stand_in_for_every_preference_list(count: int, size: int) -> None:
    names = [f"riak{number:02}" for number in range(count)]
    ring = formed(names, size)
    owned = [len(ring.owned(name)) for name in names]
    assert max(owned) - min(owned) <= 1
    if count > SPACING:
        for first in range(size):
            assert len({ring.owners[each] for each in preference_list(ring, first, SPACING)}) == SPACING
    taken = fallbacks(ring, frozenset(names[1:]))
    assert set().union(*taken.values()) == ring.owned(names[0])
    assert N_VAL < SPACING
