"""Riak after a start: when a node is back, when a wave is over, hastened handoff, and transfer limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine.memory import Failing
from orchestrator.engine.state import RunState
from orchestrator.kinds import kind_of
from orchestrator.model.action import ForceHandoff, Purpose
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    BaselineRecorded,
    Event,
    SettingChanged,
)
from orchestrator.model.observation import ClusterView, Level, Look, SettingsView
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Kind, Wave
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.model.riak import (
    ActiveTransfer,
    ClusterStatus,
    Membership,
    NodeStats,
    PartitionCount,
    RiakView,
    RingReady,
    ServiceWait,
    Transfers,
    holder,
    limit_key,
    timer_key,
)
from orchestrator.model.work_event import NotHastened
from orchestrator.riak.rules.kind import Riak
from orchestrator.riak.rules.optimism import at_rest
from orchestrator.riak.rules.recovery import (
    baseline_of,
    forced,
    given_up,
    home,
    impossible,
    limit_changes,
    missed,
    not_back,
    shortfall,
    timer_changes,
    unsettled,
    unstarted,
)
from orchestrator.simulation import views
from tests.simulation.ringed import FIVE, ONE, THREE, TWO, riak_policy, ringed
from tests.states import state_with
from tests.unit.engine.asking import begun, evolved, with_node

SILENT: Final = Unknown(reason="no answer within 60 s")
STRANGER: Final = NodeName("riak9@10.0.0.9")
RUN: Final = RunState(run="run-1")


def _view(*look: Look) -> ClusterView:
    """All well, and a peer was asked after `TWO`."""
    world = ringed()
    world.asked_after = frozenset({TWO})
    read = views.readings(world, {Look.CLUSTER, Look.HEALTH, Look.RECOVERIES, *look}).cluster
    assert isinstance(read, ClusterView)
    return read


SEEN: Final = _view(Look.PACE)
NODES: Final = tuple(SEEN.members)
assert SEEN.riak is not None
READ: Final[RiakView] = SEEN.riak


def _with(**changed: Any) -> ClusterView:
    return replace(SEEN, riak=replace(READ, **changed))


# When a node is back ------------------------------------


def _signs(name: NodeName, **changed: Any) -> dict[str, Any]:
    return {"signs": {**READ.signs, name: replace(READ.signs[name], **changed)}}


def _counting(name: NodeName, **changed: Any) -> dict[str, Any]:
    stats = READ.signs[name].stats
    assert isinstance(stats, NodeStats)
    return _signs(name, stats=replace(stats, **changed))


def _owning_nothing() -> dict[str, Any]:
    """`TWO` has left its partitions to others, or has not been given any yet: by both rings."""
    assert isinstance(READ.cluster, ClusterStatus)
    members = tuple(
        replace(each, ring_share=0.0) if each.node == TWO else each for each in READ.cluster.members
    )
    cluster = replace(READ.cluster, members=members)
    return {**_counting(TWO, ownership={ONE: 64}, kv_vnodes=0), "cluster": cluster}


def test_what_keeps_a_node_from_being_back(subtests: pytest.Subtests) -> None:
    """Each sign that is missing alone says so; what its peers lack is not held against it."""
    down = ServiceWait(service="riak_kv", up=False, last="riak_kv is not up: []")
    without = {"signs": {name: sign for name, sign in READ.signs.items() if name != TWO}}
    others = tuple(name for name in NODES if name != FIVE)
    for parts, said in [
        ({}, None),
        (_counting(TWO, kv_vnodes=13 + 7), None),
        (_owning_nothing(), None),
        ({"cluster": SILENT}, None),
        (_counting(FIVE, kv_vnodes=3), None),
        (_signs(FIVE, ping=False, service=down), None),
        (_signs(TWO, ping=SILENT), f"/ping: {SILENT.reason}"),
        (_signs(TWO, ping=False), "/ping: no answer"),
        (without, "/ping: "),
        (_signs(TWO, service=NOT_READ), "riak_kv, asked of a peer: "),
        (_signs(TWO, service=down), "riak_kv is not up, asked of a peer: riak_kv is not up: []"),
        ({"ring_ready": SILENT}, f"ringready: {SILENT.reason}"),
        (
            {"ring_ready": RingReady(agreed=False, down=(FIVE,))},
            f"ringready: {FIVE} do not agree on the ring",
        ),
        (
            {"ring_ready": RingReady(agreed=False, differing=(ONE, TWO))},
            f"ringready: {ONE}, {TWO} do not agree on the ring",
        ),
        ({"ring_ready": RingReady(agreed=True, nodes=others)}, f"ringready: {FIVE} did not answer"),
        (_signs(FIVE, stats=SILENT), f"whether {FIVE} is connected to it is unknown: {SILENT.reason}"),
        (_counting(FIVE, connected=frozenset({ONE, THREE})), f"{FIVE} is not connected to it"),
        (_signs(TWO, stats=SILENT), f"its vnodes cannot be counted: {SILENT.reason}"),
        (_counting(TWO, kv_vnodes=12), "12 of its 13 vnodes run"),
        ({**_counting(TWO, kv_vnodes=12), "cluster": SILENT}, "12 of its 13 vnodes run"),
        (_counting(TWO, kv_vnodes=0), "0 of its 13 vnodes run"),
        (
            _counting(TWO, ownership={ONE: 64}, kv_vnodes=0),
            "its own ring gives it no partitions, and that of the cluster does",
        ),
    ]:
        with subtests.test(said, parts=list(parts)):
            found = not_back(_with(**parts), TWO)
            assert (found is None) is (said is None)
            assert (found or "").startswith(said or "")
    assert not_back(replace(SEEN, riak=None), TWO) == "the ring was not read"
    # A plan counts a node as back whose stats were not read.
    silent = _with(**_signs(TWO, ping=SILENT, stats=SILENT))
    assert silent.riak is not None
    assert not_back(replace(SEEN, riak=at_rest(silent, silent.riak)), TWO) is None
    baseline = baseline_of(SEEN, {ONE: "boot-1"})
    assert (baseline.missing, baseline.boots) == ((), {ONE: "boot-1"})
    assert baseline.incarnations == {node.name: node.incarnation for node in SEEN.nodes}


def test_what_keeps_a_wave_from_being_over(subtests: pytest.Subtests) -> None:
    moving = ActiveTransfer(kind="hinted", vnode="riak_kv_vnode", index=0, source=ONE, target=TWO)
    count = (PartitionCount(node=TWO, partitions=3),)
    assert unsettled(RUN, SEEN) is None
    for said, told in [
        (Transfers(down=(FIVE,)), f"{FIVE} is down"),
        (Transfers(waiting=count), f"{TWO} has 3 partitions waiting to be handed off"),
        (Transfers(not_running=count), f"{TWO} does not run 3 of its primary partitions"),
        (Transfers(active=(moving,)), f"a transfer (hinted) to {TWO} is active"),
        (Transfers(uncontacted=(FIVE,)), f"{FIVE} could not be contacted"),
        (SILENT, SILENT.reason),
    ]:
        with subtests.test(told):
            found = unsettled(RUN, _with(transfers={ONE: Transfers(), TWO: said}))
            assert found == f"transfers by {TWO}: {told}"
    alone = "transfers: 1 nodes were asked instead of 2"
    assert unsettled(RUN, _with(transfers={ONE: Transfers()})) == alone
    assert unsettled(RUN, _with(transfers=SILENT)) == f"transfers: {SILENT.reason}"
    assert unsettled(RUN, replace(SEEN, riak=None)) == "the transfers were not read"


# Hastened handoff ------------------------------------

FORCE: Final = ForceHandoff()
ACCEPTED: Final = (ActionSent(action=FORCE), ActionConfirmed(action=FORCE))
REFUSED: Final = ActionFailed(action=FORCE, reason="sudo refuses it", in_doubt=False)
HASTENED: Final = riak_policy(hasten_handoff=True)
WAVE: Final = Wave(number=1, nodes=(TWO,), why="in order")
STATE: Final = state_with(
    with_node(begun(ringed(), HASTENED), TWO, phase=NodePhase.REJOINED, stopped_at=10.0),
    phase=Phase.REASSIGNED,
    wave=WAVE,
    wave_since=5.0,
)
"""A run in whose wave `TWO` came back."""
RING: Final = state_with(
    STATE, baseline=BaselineRecorded(missing=(), incarnations={}, partitions=64), since=0.0, acted_at=0.0
)
STARTED: Final = 64 * 2 / 16 * 10.0
"""Seconds in which Riak itself starts every vnode of the ring."""
WITHOUT_FIVE: Final = _with(unstarted={**READ.unstarted, FIVE: SILENT})
UNKNOWN: Final = f"the vnodes that {FIVE} has not started are unknown: {SILENT.reason}"
SHORT: Final = SettingsView(transient={timer_key(TWO): "1000"})
FAILS: Final = (ActionSent(action=FORCE), REFUSED)
SAID: Final = NotHastened(nodes=(TWO,), why=UNKNOWN)


def _after(state: RunState, *events: Event, at: float = 100.0) -> RunState:
    return evolved(state, *events, at=at)


def _status(**changed: Any) -> ClusterStatus:
    """With a member that is not as it should be."""
    assert isinstance(READ.cluster, ClusterStatus)
    first, *others = READ.cluster.members
    return replace(READ.cluster, members=(replace(first, **changed), *others))


def _unstarted(count: Any, name: NodeName = TWO) -> RiakView:
    return replace(READ, unstarted={TWO: 0, name: count})


def test_forced_where_all_is_known_and_no_owner_changes(subtests: pytest.Subtests) -> None:
    assert forced(STATE, SEEN) == FORCE
    assert forced(begun(ringed(), riak_policy()), SEEN) is None
    for what, seen in [
        ("unread", _with(cluster=SILENT)),
        ("a share changes", _with(cluster=_status(pending_share=25.0))),
        ("one leaves", _with(cluster=_status(membership=Membership.LEAVING))),
        ("one joins", _with(cluster=_status(membership=Membership.JOINING))),
        ("not counted", _with(unstarted={})),
        ("one not counted", WITHOUT_FIVE),
        ("no ring", replace(SEEN, riak=None)),
        ("the ring is not ready", _with(cluster=replace(_status(), ring_ready=False))),
    ]:
        with subtests.test(what):
            assert forced(STATE, seen) is None


def test_vnodes_that_are_left_to_start_keep_the_wave(subtests: pytest.Subtests) -> None:
    """An unknown number does once handoff was forced: a version that does not tell would keep any run.

    A resumed process knows of no force before it; a repeatable one makes an unknown number count again.
    """
    left = f"{FIVE} has not started 3 of its vnodes yet, which may hold data of other nodes"
    unknown = f"the vnodes that {TWO} has not started are unknown: {SILENT.reason}"
    in_doubt = Failing(last=replace(REFUSED, in_doubt=True), since=0.0)
    resumed = state_with(STATE, resumed=True)
    for what, state, riak, said in [
        ("none", STATE, _unstarted(0), None),
        ("some", STATE, _unstarted(3, FIVE), left),
        ("unknown", STATE, _unstarted(SILENT), None),
        ("refused", state_with(STATE, failing=(Failing(last=REFUSED, since=0.0),)), _unstarted(SILENT), None),
        ("forced", state_with(STATE, confirmed=(FORCE,)), _unstarted(SILENT), unknown),
        ("in doubt", state_with(STATE, failing=(in_doubt,)), _unstarted(SILENT), unknown),
        ("resumed", resumed, _unstarted(SILENT), unknown),
        ("resumed before", state_with(resumed, before=Phase.REJOINED), _unstarted(SILENT), None),
        ("given up", _after(RING, *ACCEPTED, SAID), _unstarted(SILENT), None),
        ("given up, and known", _after(RING, *ACCEPTED, SAID), _unstarted(3, FIVE), left),
        ("forced again", _after(RING, SAID, *ACCEPTED), _unstarted(SILENT), unknown),
    ]:
        with subtests.test(what):
            assert unstarted(state, riak) == said


def test_handback_is_over_when_the_wave_alone_holds_anything(subtests: pytest.Subtests) -> None:
    def waiting(*holders: NodeName) -> Transfers:
        return Transfers(waiting=tuple(PartitionCount(node=name, partitions=2) for name in holders))

    two, sends = waiting(TWO), ActiveTransfer(kind="hinted", vnode="v", index=0, source=FIVE, target=TWO)
    for what, changed, over in [
        ("the wave alone", {"transfers": {ONE: two, THREE: two}}, True),
        ("by /stats", {"beyond": {TWO: 3}}, True),
        ("another holds", {"transfers": {ONE: two, THREE: waiting(TWO, FIVE)}}, False),
        ("unread by one", {"transfers": {ONE: SILENT, THREE: two}}, False),
        ("nobody asked", {"transfers": {}}, False),
        ("another by /stats", {"beyond": {TWO: 1, FIVE: 1}}, False),
        ("one sends", {"transfers": {ONE: Transfers(active=(sends,))}}, False),
    ]:
        with subtests.test(what):
            news = home(STATE, _with(**changed), 42.0)
            assert (news and (news.number, news.seconds)) == ((1, 37.0) if over else None)
            assert home(state_with(STATE, home=True), _with(**changed), 43.0) is None, "once a phase"


def test_timers_of_restarted_nodes_get_shorter() -> None:
    timers = {ONE: "10000", TWO: "10000", THREE: "500", FIVE: "soon"}
    keys = {timer_key(name): value for name, value in timers.items()}
    settings = SettingsView(transient={**keys, limit_key(TWO): "2"})
    restarted = STATE
    for name in (TWO, THREE, FIVE):
        restarted = with_node(restarted, name, stopped_at=10.0)
    changes = timer_changes(restarted, settings, HASTENED)
    assert [(one.key, one.found, one.wanted) for one in changes] == [(timer_key(TWO), "10000", "1000")]
    assert timer_changes(restarted, settings, riak_policy()) == ()


def test_only_handoff_of_3_2_can_be_hastened() -> None:
    for version in ("3.2", "3.2.1", "3.2.0-rc1"):
        assert impossible(version) is None
    for version in ("3.0.16", "3.20.0", "2.9.10", "3.3", "4.0"):
        assert version in str(impossible(version))


def test_hastening_ends_once_every_vnode_has_started(subtests: pytest.Subtests) -> None:
    """By the size of the ring, as for the largest where it is unknown; said once."""
    state, unknown = (
        _after(RING, *ACCEPTED),
        _after(state_with(RING, baseline=None), ActionSent(action=FORCE)),
    )
    over = 161.0 + STARTED
    for what, of, seen, at, said in [
        ("not yet", state, WITHOUT_FIVE, 100.0 + STARTED, False),
        ("over", state, WITHOUT_FIVE, over, True),
        ("all is known: it is forced at any moment", state, SEEN, over, False),
        ("a ring of unknown size", unknown, WITHOUT_FIVE, over, False),
        ("as for the largest ring", unknown, WITHOUT_FIVE, 161.0 + 16 * STARTED, True),
        ("said before", _after(state, SAID, at=over), WITHOUT_FIVE, 1000.0, False),
    ]:
        with subtests.test(what):
            assert given_up(of, seen, at) == (SAID if said else None)


def test_what_was_not_hastened_is_told_when_the_wave_is_done(subtests: pytest.Subtests) -> None:
    """Partitions may have changed their owner meanwhile, and do no more at its end."""
    usual = replace(STATE, begun=replace(STATE.begun, policy=riak_policy()))
    once = _after(STATE, *ACCEPTED)
    slow = SettingsView(transient={timer_key(TWO): "10000"})
    for what, state, seen, settings, at, why in [
        ("all went well", STATE, SEEN, SHORT, 100.0, None),
        ("unknown", STATE, WITHOUT_FIVE, SHORT, 100.0, UNKNOWN),
        ("said before", _after(STATE, SAID), WITHOUT_FIVE, SHORT, 100.0, None),
        ("not wanted", usual, WITHOUT_FIVE, SHORT, 100.0, None),
        ("slow", STATE, SEEN, slow, 100.0, "its vnodes start at their usual pace, every 10000 ms"),
        ("no timer", STATE, SEEN, SettingsView(), 100.0, "vnode_management_timer cannot be read"),
        ("unread", STATE, SEEN, NOT_READ, 100.0, None),
        ("refused", _after(STATE, *FAILS), SEEN, SHORT, 100.0, "it could not be forced: sudo refuses it"),
        ("accepted", once, SEEN, SHORT, 100.0, None),
        ("just accepted", _after(once, *FAILS), SEEN, SHORT, 110.0, None),
        ("accepted long ago", _after(once, *FAILS), SEEN, SHORT, 140.0, "sudo refuses it"),
        ("soon over", RING, SEEN, SHORT, 60.0, None),
        ("never forced", RING, SEEN, SHORT, 75.0, "it was never forced in the 1m 15s until it was done"),
        ("forced", _after(RING, *ACCEPTED), SEEN, SHORT, 200.0, None),
    ]:
        with subtests.test(what):
            event = missed(state, seen, settings, at)
            assert (event is None) is (why is None)
            assert event is None or ((why or "") in event.why and event.nodes == (TWO,))
    assert shortfall(STATE) == ""
    other = NotHastened(nodes=(ONE,), why="it could not be forced: no answer")
    told = _after(STATE, SAID, other, NotHastened(nodes=(THREE,), why=UNKNOWN))
    assert shortfall(told) == (
        f"handoff was not hastened after the restart of {TWO}, {THREE} ({UNKNOWN}); "
        f"{ONE} (it could not be forced: no answer)"
    )


# Transfer limits ------------------------------------

AT: Final = 1_000_000.0
LIMITED: Final = riak_policy()


def _settings(limits: Mapping[NodeName, Any]) -> SettingsView:
    return SettingsView(transient={limit_key(name): str(limit) for name, limit in limits.items()})


def _state(phase: NodePhase = NodePhase.PENDING, owed: tuple[int, int] | None = None) -> RunState:
    """A run with `TWO` in this phase, which was stopped unless it waits, and owes this limit, if any."""
    stopped = None if phase is NodePhase.PENDING else AT
    state = with_node(begun(ringed(), LIMITED), TWO, phase=phase, stopped_at=stopped)
    return _owing(state, TWO, *owed) if owed else state


def _owing(state: RunState, name: NodeName, found: int, wanted: int) -> RunState:
    event = SettingChanged(
        level=Level.TRANSIENT,
        key=limit_key(name),
        found=str(found),
        wanted=str(wanted),
        purpose=Purpose.RAISE_LIMITS,
    )
    return evolved(state, event, at=AT)


def test_limit_changes_raise_and_note_what_was_found(subtests: pytest.Subtests) -> None:
    """A higher limit is never lowered, and is noted first: its node forgets it when it restarts."""
    pending, recovered, rejoined = NodePhase.PENDING, NodePhase.RECOVERED, NodePhase.REJOINED
    assert (holder(limit_key(TWO)), holder("cluster.routing.allocation.enable")) == (TWO, None)
    assert isinstance(kind_of(Kind.RIAK), Riak)
    for what, state, limits, wanted in [
        ("lower", _state(), {ONE: 2, TWO: 7}, {ONE: ("2", "8"), TWO: ("7", "8")}),
        ("the same", _state(), {TWO: 8}, {TWO: ("8", "8")}),
        ("higher", _state(), {TWO: 16}, {TWO: ("16", "16")}),
        ("noted already", _state(pending, (16, 16)), {TWO: 16}, {}),
        ("nothing will make it forget", _state(recovered), {TWO: 16}, {}),
        ("a stranger", _state(), {STRANGER: 16}, {}),
        ("a stranger's lower one", _state(), {STRANGER: 2}, {STRANGER: ("2", "8")}),
        ("no number", _state(), {TWO: "offline"}, {}),
        ("half a number", _state(), {TWO: "2.5"}, {}),
        ("restarted without debt", _state(recovered), {TWO: 2}, {TWO: ("2", "8")}),
        ("found first", _state(rejoined, (4, 8)), {TWO: 2}, {TWO: ("4", "8")}),
        ("found first, higher", _state(rejoined, (16, 16)), {TWO: 3}, {TWO: ("16", "16")}),
        ("changed by others", _state(pending, (4, 8)), {TWO: 3}, {TWO: ("3", "8")}),
    ]:
        with subtests.test(what):
            changes = limit_changes(state, _settings(limits), LIMITED)
            assert {holder(one.key): (one.found, one.wanted) for one in changes} == wanted
            assert all(one.level is Level.TRANSIENT for one in changes)
    others = SettingsView(transient={"handoff_concurrency": "2", limit_key(TWO): ("2", "3")})
    assert limit_changes(_state(), others, LIMITED) == ()
    assert limit_changes(_state(), _settings({ONE: 2}), riak_policy(transfer_limit=None)) == ()
    again = _owing(_state(rejoined, (4, 8)), TWO, 4, 8)
    assert again.unrestored.settings[Level.TRANSIENT, limit_key(TWO)].found == "4", "the first note stands"
