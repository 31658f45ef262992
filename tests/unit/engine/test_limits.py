"""Every limit: the engine waits to its last moment and not longer, and a view shows that same moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from orchestrator.engine import limits, refusals
from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.left_over import left_over, texts
from orchestrator.engine.merge_state import Merging
from orchestrator.engine.node import turn
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import Absence, Failing, RefusedAccess, RunState
from orchestrator.merging import decide
from orchestrator.model.action import (
    Action,
    Flush,
    Moment,
    Purpose,
    RetryFailed,
    RunHook,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.event import ActionFailed, RunFinished, StandingDown, StoodStill
from orchestrator.model.gate import GateView
from orchestrator.model.host_event import AccessRefused
from orchestrator.model.merging import MergePolicy
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Deadlines, Hook, Hooks
from orchestrator.model.reading import Instant, Refusal, Seconds, Unauthorized, Unknown
from orchestrator.model.turn import VERSION, Doubt, Installing, Owed, Verb, Work
from orchestrator.model.upgrade import InstallState, InstallView
from tests.simulation.gated import QUEUE
from tests.simulation.play import cluster, policy
from tests.simulation.upgrading import wanted
from tests.states import state_with
from tests.unit.engine.asking import (
    ALLOCATION,
    ES1,
    ES2,
    begun,
    evolved,
    question,
    seeing,
    situation_of,
    view_of,
    viewing,
    wanting,
    with_node,
)
from tests.unit.engine.cells import effect, node_in, now, situation
from tests.unit.engine.merge_steps import IN_HAND

DEADLINES: Final = Deadlines(
    stop=101.0,
    start=211.0,
    rejoin=307.0,
    recover=401.0,
    withheld=503.0,
    hold=601.0,
    gate=701.0,
    reboot=809.0,
    install=1009.0,
    refused=127.0,
)
"""No two of them, nor their sums, are the same."""

LATER: Final = 0.125
"""Seconds after the last moment of a wait."""


@dataclass(frozen=True, kw_only=True)
class _Wait:
    """A wait that has lasted for some seconds.

    Attributes:
        at: a state and a reading in which it has lasted that long.
        seconds: how long it may last, written by hand here.
        shown: whether a view can show the limit; it cannot where only a reading has the reason of the wait.
    """

    at: Callable[[Seconds], Situation]
    seconds: Seconds
    shown: bool = True


# A node ------------------------------------


def _node(
    phase: NodePhase, service: str, member: str, **changes: Callable[[Instant], object]
) -> Callable[[Seconds], Situation]:
    def at(lasted: Seconds) -> Situation:
        since = now() - lasted
        node = node_in(phase, since=lasted, **{name: make(since) for name, make in changes.items()})
        asked = situation(node, service, member)
        policy = replace(asked.policy, deadlines=DEADLINES)
        return replace(asked, policy=policy, state=state_with(asked.state, policy=policy))

    return at


def _doubt(verb: Verb, *, accepted: bool, later: Seconds = 0.0) -> Callable[[Instant], object]:
    return lambda since: Doubt(verb=verb, since=since + later, accepted=accepted)


def _installing(lasted: Seconds) -> Situation:
    """A step that its host shows as running."""
    sent = Installing(number=0, ticket="run-1/es2/0/1", since=now() - lasted)
    asked = _node(
        NodePhase.STOPPED,
        "gone",
        "absent",
        install=lambda _: sent,
        owed=lambda _: frozenset({Owed(work=Work.INSTALL), VERSION}),
    )(lasted)
    host = asked.seen.hosts[ES2]
    assert not isinstance(host, Unknown)
    shown = replace(host, install=InstallView(ticket=sent.ticket, state=InstallState.RUNNING))
    policy = replace(asked.policy, upgrade=wanted())
    state = state_with(asked.state, policy=policy)
    return replace(asked, seen=replace(asked.seen, hosts={ES2: shown}), policy=policy, state=state)


def _missing(lasted: Seconds) -> Situation:
    asked = _node(NodePhase.REJOINED, "silent", "no master")(0.0)
    absent = {ES2: Absence(since=now() - lasted, readings=1)}
    return replace(asked, state=state_with(asked.state, phase=Phase.REASSIGNED, absent=absent, since=now()))


NODES: Final[Mapping[str, _Wait]] = {
    "stop": _Wait(at=_node(NodePhase.STOPPING, "silent", "absent"), seconds=101.0),
    "stopping": _Wait(
        at=_node(NodePhase.STOPPED, "stops", "absent", doubt=_doubt(Verb.REBOOT, accepted=True)),
        seconds=809.0,
    ),
    "stopping, without a doubt": _Wait(
        at=_node(NodePhase.STOPPED, "stops", "absent"), seconds=101.0, shown=False
    ),
    "install": _Wait(at=_installing, seconds=1009.0),
    "host": _Wait(at=_node(NodePhase.STOPPED, "silent", "absent"), seconds=30.0, shown=False),
    "start": _Wait(
        at=_node(NodePhase.STARTING, "gone", "absent", start_sent=lambda since: since), seconds=211.0
    ),
    "start_in_doubt": _Wait(
        at=_node(NodePhase.STARTING, "silent", "absent", doubt=_doubt(Verb.REBOOT, accepted=True, later=5.0)),
        seconds=809.0,
    ),
    "join": _Wait(at=_node(NodePhase.STARTING, "runs", "absent"), seconds=211.0 + 307.0, shown=False),
    "back": _Wait(at=_missing, seconds=307.0),
}


def _ends_for_the_node(asked: Situation) -> bool:
    told = turn(asked, asked.state.nodes[ES2])
    return told.flip is not None or ">starting" in effect(told)


# The run ------------------------------------

_AT: Final = question().observation.at
_KEY: Final = (Level.PERSISTENT, ALLOCATION)
_CHANGE: Final = SettingChange(level=_KEY[0], key=ALLOCATION, found="all", wanted="primaries")
_OFF: Final[dict[str, Any]] = {"settings": {_KEY: _CHANGE}, "withheld": frozenset({_KEY})}
_UNREAD: Final = Unknown(reason="timed out")
_LOGIN: Final = Refusal(endpoint="https://es1:9200", credentials="user ops")


def _asked(**changes: object) -> Question:
    return wanting(question(), deadlines=DEADLINES, **changes)


def _run(asked: Question, phase: Phase = Phase.GATED, **fields: object) -> Situation:
    """The question as the situation of a resumed run, with these fields of its state."""
    return situation_of(asked, phase, **{"since": _AT, "started": _AT, "resumed": True, **fields})


def _wave(asked: Question, phase: NodePhase, **fields: object) -> dict[str, object]:
    """A wave of es2, which is in this phase."""
    state = with_node(asked.state, ES2, phase=phase, **{"since": _AT, **fields})
    return {"wave": asked.wave, "nodes": state.nodes}


def _without_es2(asked: Question) -> Question:
    return viewing(asked, nodes=tuple(node for node in view_of(asked).nodes if node.name != ES2))


def _recovered(asked: Question, **fields: object) -> RunState:
    """Every node is done, and es2 has these fields."""
    nodes = {name: replace(node, phase=NodePhase.RECOVERED) for name, node in asked.state.nodes.items()}
    return with_node(state_with(asked.state, nodes=nodes), ES2, **fields)


def _withheld(lasted: Seconds) -> Situation:
    asked = _without_es2(seeing(_asked(), hosts={ES2: _UNREAD}))
    wave = _wave(asked, NodePhase.STOPPING)
    return _run(asked, Phase.DOWN, withheld_since=_AT - lasted, **_OFF, **wave)


def _hold(lasted: Seconds) -> Situation:
    return _run(seeing(_asked(), health=_UNREAD), holding_since=_AT - lasted)


def _gate(lasted: Seconds) -> Situation:
    return _run(_asked(gates=(QUEUE,)), gates_closed_since=_AT - lasted)


def _called_off(lasted: Seconds) -> Situation:
    asked = seeing(_asked(gates=(QUEUE,)), gates={QUEUE.name: GateView(open=True, evidence="12 messages")})
    return _run(asked, called_off_since=_AT - lasted)


def _failing(lasted: Seconds) -> Situation:
    hook = Hook(run="pool")
    asked = _asked(hooks=Hooks(after_recovery=(hook,)))
    action = RunHook(node=ES2, moment=Moment.AFTER_RECOVERY, number=0, hook=hook)
    failed = ActionFailed(action=action, reason="no route to host", in_doubt=False, passes=True)
    wave = _wave(asked, NodePhase.REJOINED, owed=frozenset({Owed(work=Work.UNDO)}))
    return _run(asked, Phase.SETTLED, failing=(Failing(last=failed, since=_AT - lasted),), **wave)


def _refused(lasted: Seconds) -> Situation:
    asked = seeing(_asked(), cluster=Unauthorized(reason=_LOGIN.sentence, refusal=_LOGIN))
    found = RefusedAccess(refusal=_LOGIN, since=_AT - lasted, reading=True)
    return _run(asked, Phase.REJOINED, refused=found, **_wave(asked, NodePhase.STARTING))


def _rejoin(lasted: Seconds) -> Situation:
    asked = _without_es2(_asked())
    return _run(asked, Phase.REJOINED, since=_AT - lasted, **_wave(asked, NodePhase.STARTING))


def _restoring(lasted: Seconds) -> Situation:
    """The update is refused, so that it is neither read as restored nor sent again at once."""
    asked = seeing(_asked(), settings=_UNREAD)
    return _run(asked, Phase.REASSIGNED, since=_AT - lasted, **_OFF, **_wave(asked, NodePhase.REJOINED))


def _recovery(lasted: Seconds) -> Situation:
    asked = seeing(_asked(), health=_UNREAD)
    return _run(asked, Phase.REASSIGNED, since=_AT - lasted, **_wave(asked, NodePhase.REJOINED))


def _seen_again(lasted: Seconds) -> Situation:
    asked = _without_es2(_asked())
    absent = {ES2: Absence(since=_AT, readings=1)}
    return _run(asked, Phase.SETTLED, since=_AT - lasted, absent=absent, **_wave(asked, NodePhase.REJOINED))


def _standing_down(lasted: Seconds) -> Situation:
    asked = seeing(_asked(), cluster=_UNREAD)
    since = _AT - lasted
    nodes = {name: replace(node, since=since) for name, node in asked.state.nodes.items()}
    nodes[ES2] = replace(nodes[ES2], phase=NodePhase.REJOINED)
    down = StandingDown(reason="asked to stop", outcome=Outcome.INTERRUPTED)
    fields = {"since": since - 60.0, "standing_down": down, "settings": {_KEY: _CHANGE}, "nodes": nodes}
    return _run(asked, Phase.STANDING_DOWN, **fields)


def _lost_stop(lasted: Seconds) -> Situation:
    asked = _asked()
    return _run(asked, Phase.FINISHING, nodes=_recovered(asked, lost_at=_AT - lasted).nodes)


def _merge(lasted: Seconds) -> Situation:
    asked = seeing(_asked(merge=MergePolicy(patterns=("*",), deadline=907.0)), bulk=_UNREAD)
    one = replace(IN_HAND, begun=_AT - 9000.0, asked=1, asked_at=_AT - lasted)
    merging = Merging(indices={"u": one}, writes={}, writes_at=_AT - 100.0)
    return _run(asked, Phase.MERGING, merging=merging, started=_AT - 9000.0)


def _settling(lasted: Seconds) -> Situation:
    asked = seeing(_asked(merge=MergePolicy(patterns=("*",))), bulk=_UNREAD)
    return _run(asked, Phase.MERGED, since=_AT - lasted)


def _last_count(lasted: Seconds) -> Situation:
    asked = seeing(_asked(merge=MergePolicy(patterns=("*",))), bulk=_UNREAD)
    merging = Merging(indices={"u": replace(IN_HAND, ended=True)}, settled=True)
    nodes = _recovered(asked).nodes
    return _run(asked, Phase.FINISHING, since=_AT - lasted, nodes=nodes, merging=merging)


RUNS: Final[Mapping[str, _Wait]] = {
    "timeout": _Wait(at=lambda lasted: _run(_asked(timeout=907.0), started=_AT - lasted), seconds=907.0),
    "withheld": _Wait(at=_withheld, seconds=503.0),
    "hold": _Wait(at=_hold, seconds=601.0),
    "gate": _Wait(at=_gate, seconds=701.0),
    "called_off": _Wait(at=_called_off, seconds=601.0 + 701.0),
    "failing": _Wait(at=_failing, seconds=307.0, shown=False),
    "refused": _Wait(at=_refused, seconds=127.0),
    "rejoin": _Wait(at=_rejoin, seconds=307.0),
    "restoring": _Wait(at=_restoring, seconds=307.0),
    "recovery": _Wait(at=_recovery, seconds=401.0),
    "seen_again": _Wait(at=_seen_again, seconds=307.0),
    "standing_down": _Wait(at=_standing_down, seconds=307.0),
    "lost_stop": _Wait(at=_lost_stop, seconds=101.0),
    "merge": _Wait(at=_merge, seconds=907.0),
    "settling": _Wait(at=_settling, seconds=401.0),
    "last_count": _Wait(at=_last_count, seconds=60.0, shown=False),
}


def _ends(asked: Situation) -> bool:
    decided = decide(asked.state, asked.seen, asked.now)
    return any(isinstance(event, StandingDown | RunFinished) for event in decided.events)


def _wrong(waits: Mapping[str, _Wait], ends: Callable[[Situation], bool]) -> list[str]:
    found = []
    for name, wait in waits.items():
        if ends(wait.at(wait.seconds)):
            found.append(f"{name} ends before {wait.seconds:.0f} s")
        if not ends(wait.at(wait.seconds + LATER)):
            found.append(f"{name} does not end after {wait.seconds:.0f} s")
        asked = wait.at(wait.seconds - 7.0)
        limit = limits.nearest(asked.state, asked.now)
        if wait.shown and (limit is None or limit.until != asked.now + 7.0):
            found.append(f"{name} is shown as {limit}, {asked.now:.0f} now")
    return found


def test_a_node_waits_as_long_as_is_written_here() -> None:
    assert _wrong(NODES, _ends_for_the_node) == []


def test_a_run_waits_as_long_as_is_written_here() -> None:
    assert _wrong(RUNS, _ends) == []


def test_every_limit_has_its_wait_here() -> None:
    public = {
        name for name, found in vars(limits).items() if getattr(found, "__module__", "") == limits.__name__
    }
    functions = {name for name in public if name[0].islower() and name[0] != "_"}
    tested = {name.partition(",")[0] for name in (*NODES, *RUNS)}
    assert functions - {"effect", "unheard_stop", "of_node", "in_words", "nearest"} == tested


def test_how_long_a_verb_in_doubt_may_take_effect() -> None:
    """A stop that was not heard counts as lost for as long as an accepted one."""
    state = _run(_asked()).state
    for verb, accepted, seconds, unheard in (
        (Verb.STOP, False, 30.0, 101.0),
        (Verb.STOP, True, 101.0, None),
        (Verb.REBOOT, False, 30.0, None),
        (Verb.REBOOT, True, 809.0, None),
    ):
        doubt = Doubt(verb=verb, since=_AT, accepted=accepted, heard=accepted)
        assert limits.effect(state, doubt).seconds == seconds
        found = limits.unheard_stop(state, replace(state.nodes[ES2], doubt=doubt))
        assert (found and found.seconds) == unheard
    assert limits.unheard_stop(state, state.nodes[ES2]) is None


def test_which_limit_is_the_nearest() -> None:
    """One that is over is not shown; a run that finishes has none but that of restoring."""
    asked = NODES["join"].at(300.0)
    limit = limits.nearest(asked.state, asked.now)
    assert limit is not None
    assert limit.seconds == 211.0 + 307.0
    state = _run(_asked(timeout=907.0), Phase.FINISHING, withheld_since=_AT).state
    assert limits.nearest(state, _AT) is None
    restoring = limits.nearest(state_with(state, settings={_KEY: _CHANGE}), _AT)
    assert restoring is not None
    assert restoring.seconds == 307.0
    assert [f"`{name}`" in limits.in_words(Phase.GATED) for name in ("hold", "gate")] == [True, True]
    assert limits.in_words(Phase.ENDED) == ""


# Refusals of the credentials ------------------------------------

_RIGHT: Final = replace(_LOGIN, status=403, call="PUT /x")


def test_what_counts_as_a_refusal(subtests: pytest.Subtests) -> None:
    """A reading that fails for another reason ends none; a lacking right counts where it restores."""
    fresh = RunState(run="r")
    refused = state_with(fresh, refused=RefusedAccess(refusal=_LOGIN, since=_AT, reading=True))
    login, timed_out = Unauthorized(reason="401", refusal=_LOGIN), Unknown(reason="timed out", passes=True)
    told = AccessRefused(refusal=_LOGIN, reading=True)
    for state, reading, news in (
        (refused, timed_out, ()),
        (fresh, timed_out, ()),
        (refused, login, ()),
        (fresh, login, (told,)),
    ):
        assert refusals.of_reading(state, reading, _AT + 9.0) == news

    def of(action: Action, refusal: Refusal) -> tuple[object, ...]:
        failed = ActionFailed(action=action, reason="403", in_doubt=False, refusal=refusal)
        return refusals.of_outcomes(fresh, (failed,), _AT)

    for action, counts in [
        (WriteSettings(changes=(), purpose=Purpose.PUT_BACK), True),
        (WriteSettings(changes=(), purpose=Purpose.REASSIGN), True),
        (SetReplicas(index="a", index_uuid="u", found=1, wanted=0), True),
        (WriteSettings(changes=(), purpose=Purpose.WITHHOLD), False),
        (SetReplicas(index="a", index_uuid="u", found=0, wanted=1), False),
        (Flush(), False),
        (RetryFailed(), False),
    ]:
        with subtests.test(action=action):
            lacking = AccessRefused(refusal=_RIGHT, reading=False)
            assert of(action, _RIGHT) == ((lacking,) if counts else ())
            assert of(action, _LOGIN) == (told,), "a login that is refused counts everywhere"
    limit = limits.refused(evolved(refused, StoodStill(nodes=(), seconds=900.0), at=_AT + 1000.0))
    assert limit is not None
    assert limit.since == _AT + 900.0, "a standstill does not count"


def test_left_over_tells_an_unseen_node_from_one_that_starts() -> None:
    state = begun(cluster(3), policy())
    for name in (ES1, ES2):
        state = with_node(state, name, phase=NodePhase.STARTING)
    assert set(texts(left_over(state, running=[ES1]))) == {
        "node es1 was started, and not seen in the cluster",
        "node es2 is starting",
    }
