"""When handoff is hastened and when it may be called done; each condition alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.riak.hasten import (
    forced,
    given_up,
    home,
    impossible,
    missed,
    shortfall,
    timer_changes,
    unstarted,
)
from orchestrator.engine.kinds.riak.settings import limit_key, timer_key
from orchestrator.engine.state import Failing, RunState
from orchestrator.model.action import ForceHandoff
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    BaselineRecorded,
    Event,
    Record,
)
from orchestrator.model.handoff_event import NotHastened
from orchestrator.model.observation import ClusterView, Look, SettingsView
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Wave
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.model.riak import (
    ActiveTransfer,
    ClusterStatus,
    Membership,
    PartitionCount,
    RiakView,
    Transfers,
)
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from tests.simulation.ringed import FIVE, ONE, THREE, TWO, riak_policy, ringed

SILENT = Unknown(reason="no answer within 60 s")
HASTENED = riak_policy(hasten_handoff=True)


def _begun() -> RunState:
    """A run in whose wave `TWO` came back."""
    state = Simulation(ringed()).begin(HASTENED)
    nodes = state.nodes.changed(replace(state.nodes[TWO], phase=NodePhase.REJOINED, stopped_at=10.0))
    wave = Wave(number=1, nodes=(TWO,), why="in order")
    return replace(state, phase=Phase.REASSIGNED, nodes=nodes, wave=wave, wave_since=5.0)


STATE = _begun()


def _seen() -> ClusterView:
    look = {Look.CLUSTER, Look.HEALTH, Look.RECOVERIES, Look.PACE}
    read = views.readings(ringed(), look).cluster
    assert isinstance(read, ClusterView)
    return read


SEEN = _seen()
assert SEEN.riak is not None
RIAK: RiakView = SEEN.riak


def _with(**changed: object) -> ClusterView:
    riak: RiakView = replace(RIAK, **changed)
    return replace(SEEN, riak=riak)


def _status(**changed: object) -> ClusterStatus:
    """With a member that is not as it should be."""
    assert isinstance(RIAK.cluster, ClusterStatus)
    first, *others = RIAK.cluster.members
    return replace(RIAK.cluster, members=(replace(first, **changed), *others))


def test_it_is_forced_where_all_is_known_and_no_owner_changes() -> None:
    assert forced(STATE, SEEN) == ForceHandoff()


def test_it_is_not_forced_otherwise(subtests: pytest.Subtests) -> None:
    for case, seen in zip(
        ["unread", "a share changes", "one leaves", "one joins", "not counted", "one not counted", "no ring"],
        [
            _with(cluster=SILENT),
            _with(cluster=_status(pending_share=25.0)),
            _with(cluster=_status(membership=Membership.LEAVING)),
            _with(cluster=_status(membership=Membership.JOINING)),
            _with(unstarted={}),
            _with(unstarted={**RIAK.unstarted, FIVE: SILENT}),
            replace(SEEN, riak=None),
        ],
        strict=True,
    ):
        with subtests.test(case):
            assert forced(STATE, seen) is None


def test_it_is_not_forced_while_the_ring_is_not_ready() -> None:
    assert isinstance(RIAK.cluster, ClusterStatus)
    assert forced(STATE, _with(cluster=replace(RIAK.cluster, ring_ready=False))) is None


def test_it_is_not_forced_unless_the_playbook_wants_it() -> None:
    assert forced(Simulation(ringed()).begin(riak_policy()), SEEN) is None


def _riak(**counts: object) -> RiakView:
    named = {"two": TWO, "five": FIVE}
    return replace(RIAK, unstarted={named[name]: count for name, count in counts.items()})


def test_vnodes_that_are_left_to_start_keep_the_wave() -> None:
    assert unstarted(STATE, _riak(two=0, five=0)) is None
    assert (
        unstarted(STATE, _riak(two=0, five=3))
        == f"{FIVE} has not started 3 of its vnodes yet, which may hold data of other nodes"
    )


@pytest.mark.parametrize(
    "what",
    [
        {"confirmed": (ForceHandoff(),)},
        {
            "failing": (
                Failing(
                    last=ActionFailed(action=ForceHandoff(), reason="no answer", in_doubt=True), since=0.0
                ),
            )
        },
    ],
    ids=["confirmed", "in doubt"],
)
def test_an_unknown_number_keeps_it_once_handoff_was_forced(what: dict[str, Any]) -> None:
    """Not before: a version that does not tell would keep a run that hastens nothing."""
    refused = ActionFailed(action=ForceHandoff(), reason="sudo refuses it", in_doubt=False)
    assert unstarted(STATE, _riak(two=SILENT)) is None
    never = replace(STATE, in_phase=replace(STATE.in_phase, failing=(Failing(last=refused, since=0.0),)))
    assert unstarted(never, _riak(two=SILENT)) is None
    forced_once = replace(STATE, in_phase=replace(STATE.in_phase, **what))
    assert (
        unstarted(forced_once, _riak(two=SILENT))
        == f"the vnodes that {TWO} has not started are unknown: {SILENT.reason}"
    )


def test_only_timers_of_restarted_nodes_change_and_get_shorter() -> None:
    settings = SettingsView(
        transient={
            timer_key(ONE): "10000",
            timer_key(TWO): "10000",
            timer_key(THREE): "500",
            timer_key(FIVE): "soon",
            limit_key(TWO): "2",
        }
    )
    restarted = replace(
        STATE,
        nodes=STATE.nodes.changed(
            *(replace(STATE.nodes[name], stopped_at=10.0) for name in (TWO, THREE, FIVE))
        ),
    )
    changes = timer_changes(restarted, settings, HASTENED)
    assert [(change.key, change.found, change.wanted) for change in changes] == [
        (timer_key(TWO), "10000", "1000")
    ]
    assert timer_changes(restarted, settings, riak_policy()) == ()


def _waiting(*holders: NodeName) -> Transfers:
    return Transfers(waiting=tuple(PartitionCount(node=name, partitions=2) for name in holders))


def test_handback_is_over_when_the_wave_alone_holds_anything() -> None:
    alone = _with(transfers={ONE: _waiting(TWO), THREE: _waiting(TWO)})
    news = home(STATE, alone, 42.0)
    assert news is not None
    assert (news.number, news.seconds) == (1, 37.0)
    assert home(replace(STATE, in_phase=replace(STATE.in_phase, home=True)), alone, 43.0) is None, (
        "once a phase"
    )
    assert home(STATE, _with(beyond={TWO: 3}), 42.0) is not None, "by /stats"


def test_handback_is_not_over_while_another_may_hold_something(subtests: pytest.Subtests) -> None:
    for case, seen in zip(
        ["another holds", "unread by one", "one down", "nobody asked", "unread", "by stats", "one sends"],
        [
            _with(transfers={ONE: _waiting(TWO), THREE: _waiting(TWO, FIVE)}),
            _with(transfers={ONE: SILENT, THREE: _waiting(TWO)}),
            _with(transfers={ONE: Transfers(down=(FIVE,)), THREE: _waiting(TWO)}),
            _with(transfers={}),
            _with(transfers=SILENT),
            _with(beyond={TWO: 1, FIVE: 1}),
            _with(
                transfers={
                    ONE: Transfers(
                        active=(
                            ActiveTransfer(
                                kind="hinted", vnode="riak_kv_vnode", index=0, source=FIVE, target=TWO
                            ),
                        )
                    )
                }
            ),
        ],
        strict=True,
    ):
        with subtests.test(case):
            assert home(STATE, seen, 42.0) is None


# Given up, and missed --------------------------------------------------------------------------------

STARTED = 64 * 2 / 16 * 10.0
"""Seconds in which Riak itself starts every vnode of the ring."""
WITHOUT_FIVE = _with(unstarted={**RIAK.unstarted, FIVE: SILENT})
UNKNOWN = f"the vnodes that {FIVE} has not started are unknown: {SILENT.reason}"
SHORT = SettingsView(transient={timer_key(TWO): "1000"})
SAID = NotHastened(nodes=(TWO,), why=UNKNOWN)


def _as_usual() -> RunState:
    return replace(STATE, begun=replace(STATE.begun, policy=riak_policy()))


def _after(state: RunState, *events: Event, at: float = 100.0) -> RunState:
    for event in events:
        state = evolve(state, Record(run=state.run, sequence=0, at=at, event=event))
    return state


def _known_ring(state: RunState) -> RunState:
    baseline = BaselineRecorded(missing=(), incarnations={}, partitions=64)
    in_phase = replace(state.in_phase, since=0.0)
    return replace(state, baseline=baseline, in_phase=in_phase, process=replace(state.process, acted_at=0.0))


def test_only_handoff_of_3_2_can_be_hastened(subtests: pytest.Subtests) -> None:
    for version in ["3.0.16", "3.20.0", "2.9.10", "3.3", "4.0"]:
        with subtests.test(version=version):
            assert version in str(impossible(version))
            older = replace(SEEN, version=version)
            assert forced(STATE, older) is None
            assert given_up(STATE, older, STATE.in_phase.since) is not None, "it is said at once"
            assert missed(STATE, older, SHORT, 0.0) is not None


@pytest.mark.parametrize("version", ["3.2", "3.2.1", "3.2.0-rc1"])
def test_handoff_of_3_2_can_be(version: str) -> None:
    assert impossible(version) is None


def test_hastening_ends_once_every_vnode_has_started() -> None:
    force = ForceHandoff()
    state = _after(_known_ring(STATE), ActionSent(action=force), ActionConfirmed(action=force))
    assert unstarted(state, _riak(two=SILENT)) is not None
    assert given_up(state, WITHOUT_FIVE, 100.0 + STARTED) is None
    assert given_up(state, WITHOUT_FIVE, 161.0 + STARTED) == SAID
    assert given_up(state, SEEN, 161.0 + STARTED) is None, "all is known: it is forced at any moment"
    unknown_size = _after(replace(_known_ring(STATE), baseline=None), ActionSent(action=force))
    assert given_up(unknown_size, WITHOUT_FIVE, 161.0 + STARTED) is None
    assert given_up(unknown_size, WITHOUT_FIVE, 161.0 + 16 * STARTED) == SAID, "as for the largest ring"
    said = _after(state, SAID, at=161.0 + STARTED)
    assert given_up(said, WITHOUT_FIVE, 1000.0) is None, "it is said once"
    assert unstarted(said, _riak(two=SILENT)) is None
    assert unstarted(said, _riak(two=3)) is not None, "what is known to be left is waited for"


def test_a_manager_that_never_lists_its_vnodes_is_given_up_too() -> None:
    empty = Unknown(reason="its vnode manager has not listed its vnodes yet", passes=True)
    state = _known_ring(STATE)
    assert unstarted(state, _riak(two=empty)) is not None
    event = given_up(state, _with(unstarted={**RIAK.unstarted, FIVE: empty}), 141.0)
    assert event is not None
    assert unstarted(_after(state, event), _riak(two=empty)) is None


def test_a_repeatable_force_makes_an_unknown_number_count_again() -> None:
    force = ForceHandoff()
    state = _after(_known_ring(STATE), SAID, ActionSent(action=force), ActionConfirmed(action=force))
    assert unstarted(state, _riak(two=SILENT)) is not None


def test_a_resumed_process_knows_of_no_force_before_it() -> None:
    resumed = replace(STATE, process=replace(STATE.process, resumed=True))
    assert unstarted(resumed, _riak(two=SILENT)) is not None
    later = replace(resumed, in_phase=replace(resumed.in_phase, before=Phase.REJOINED))
    assert unstarted(later, _riak(two=SILENT)) is None


def test_what_was_not_hastened_is_told_when_the_wave_is_done() -> None:
    assert missed(STATE, SEEN, SHORT, 100.0) is None
    assert missed(STATE, WITHOUT_FIVE, SHORT, 100.0) == SAID
    assert missed(_after(STATE, SAID), WITHOUT_FIVE, SHORT, 100.0) is None, "it was said"
    assert missed(_as_usual(), WITHOUT_FIVE, SHORT, 100.0) is None
    slow = missed(STATE, SEEN, SettingsView(transient={timer_key(TWO): "10000"}), 100.0)
    assert slow == NotHastened(nodes=(TWO,), why="its vnodes start at their usual pace, every 10000 ms")
    unread = missed(STATE, SEEN, SettingsView(), 100.0)
    assert unread is not None
    assert "its vnode_management_timer cannot be read" in unread.why
    assert missed(STATE, SEEN, NOT_READ, 100.0) is None


def test_a_failed_force_is_named_unless_one_was_just_accepted() -> None:
    force = ForceHandoff()
    fails = (ActionSent(action=force), ActionFailed(action=force, reason="sudo refuses it", in_doubt=False))
    never = missed(_after(STATE, *fails), SEEN, SHORT, 100.0)
    assert never == NotHastened(nodes=(TWO,), why="it could not be forced: sudo refuses it")
    once = _after(STATE, ActionSent(action=force), ActionConfirmed(action=force))
    assert missed(once, SEEN, SHORT, 100.0) is None
    assert missed(_after(once, *fails), SEEN, SHORT, 110.0) is None
    assert missed(_after(once, *fails), SEEN, SHORT, 140.0) is not None


def test_handoff_that_took_long_and_was_never_forced_is_told() -> None:
    """As where partitions changed their owner meanwhile, and do no more at its end."""
    assert missed(_known_ring(STATE), SEEN, SHORT, 60.0) is None
    event = missed(_known_ring(STATE), SEEN, SHORT, 75.0)
    assert event == NotHastened(nodes=(TWO,), why="it was never forced in the 75 s until it was done")
    force = ForceHandoff()
    sent = _after(_known_ring(STATE), ActionSent(action=force), ActionConfirmed(action=force))
    assert missed(sent, SEEN, SHORT, 200.0) is None


def test_the_last_words_name_the_nodes_by_reason() -> None:
    assert shortfall(STATE) == ""
    other = NotHastened(nodes=(ONE,), why="it could not be forced: no answer")
    state = _after(STATE, SAID, other, NotHastened(nodes=(THREE,), why=UNKNOWN))
    assert (
        shortfall(state) == f"handoff was not hastened after the restart of {TWO}, {THREE} ({UNKNOWN}); "
        f"{ONE} (it could not be forced: no answer)"
    )
