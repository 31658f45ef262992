"""Every limit: the engine waits to its last moment and not longer, and a view shows that same moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pytest

from orchestrator.engine import limits
from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.merge_state import Merging
from orchestrator.engine.node import turn
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import Absence, Failing, RefusedAccess
from orchestrator.merging import decide
from orchestrator.model.action import Moment, RunHook, SettingChange
from orchestrator.model.event import ActionFailed, RunFinished, StandingDown
from orchestrator.model.gate import GateView
from orchestrator.model.merging import MergePolicy
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Deadlines, Hook, Hooks
from orchestrator.model.reading import Instant, Refusal, Seconds, Unauthorized, Unknown
from orchestrator.model.turn import VERSION, Doubt, Installing, Owed, Verb, Work
from orchestrator.model.upgrade import InstallState, InstallView
from tests.simulation.gated import QUEUE
from tests.simulation.upgrading import wanted
from tests.states import state_with
from tests.unit.engine.asking import ES2, cluster_of, question, seeing, viewing, wanting
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
_ALLOCATION: Final = (Level.PERSISTENT, "cluster.routing.allocation.enable")
_CHANGE: Final = SettingChange(level=_ALLOCATION[0], key=_ALLOCATION[1], found="all", wanted="primaries")


def _asked(**changes: object) -> Question:
    return wanting(question(), deadlines=DEADLINES, **changes)


def _run(asked: Question, phase: Phase = Phase.GATED, **fields: object) -> Situation:
    """The question as the situation of a resumed run, with these fields of its state."""
    usual: dict[str, object] = {"since": _AT, "started": _AT, "resumed": True}
    state = state_with(asked.state, **{**usual, "phase": phase, **fields})
    kind = situation(node_in(NodePhase.PENDING), "runs", "same").kind
    return Situation(state=state, policy=asked.policy, kind=kind, seen=asked.observation, now=_AT)


def _wave(asked: Question, phase: NodePhase, **fields: object) -> dict[str, object]:
    """A wave of es2, which is in this phase."""
    node = replace(asked.state.nodes[ES2], phase=phase, **{"since": _AT, **fields})
    return {"wave": asked.wave, "nodes": {**asked.state.nodes, ES2: node}}


def _without_es2(asked: Question) -> Question:
    view = cluster_of(asked.observation.cluster)
    return viewing(asked, nodes=tuple(node for node in view.nodes if node.name != ES2))


def _withheld(lasted: Seconds) -> Situation:
    asked = _without_es2(seeing(_asked(), hosts={ES2: Unknown(reason="timed out")}))
    wave = _wave(asked, NodePhase.STOPPING)
    unrestored = {"settings": {_ALLOCATION: _CHANGE}, "withheld": frozenset({_ALLOCATION})}
    return _run(asked, Phase.DOWN, withheld_since=_AT - lasted, **unrestored, **wave)


def _hold(lasted: Seconds) -> Situation:
    asked = seeing(_asked(), health=Unknown(reason="timed out"))
    return _run(asked, holding_since=_AT - lasted)


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
    refusal = Refusal(endpoint="https://es1:9200", credentials="user ops")
    asked = seeing(_asked(), cluster=Unauthorized(reason=refusal.sentence, refusal=refusal))
    found = RefusedAccess(refusal=refusal, since=_AT - lasted, reading=True)
    return _run(asked, Phase.REJOINED, refused=found, **_wave(asked, NodePhase.STARTING))


def _rejoin(lasted: Seconds) -> Situation:
    asked = _without_es2(_asked())
    return _run(asked, Phase.REJOINED, since=_AT - lasted, **_wave(asked, NodePhase.STARTING))


def _restoring(lasted: Seconds) -> Situation:
    """The update is refused, so that it is neither read as restored nor sent again at once."""
    asked = seeing(_asked(), settings=Unknown(reason="timed out"))
    unrestored = {"settings": {_ALLOCATION: _CHANGE}, "withheld": frozenset({_ALLOCATION})}
    return _run(asked, Phase.REASSIGNED, since=_AT - lasted, **unrestored, **_wave(asked, NodePhase.REJOINED))


def _recovery(lasted: Seconds) -> Situation:
    asked = seeing(_asked(), health=Unknown(reason="timed out"))
    return _run(asked, Phase.REASSIGNED, since=_AT - lasted, **_wave(asked, NodePhase.REJOINED))


def _seen_again(lasted: Seconds) -> Situation:
    asked = _without_es2(_asked())
    absent = {ES2: Absence(since=_AT, readings=1)}
    return _run(asked, Phase.SETTLED, since=_AT - lasted, absent=absent, **_wave(asked, NodePhase.REJOINED))


def _standing_down(lasted: Seconds) -> Situation:
    asked = seeing(_asked(), cluster=Unknown(reason="timed out"))
    down = StandingDown(reason="asked to stop", outcome=Outcome.INTERRUPTED)
    since, settings = _AT - lasted, {_ALLOCATION: _CHANGE}
    nodes = {name: replace(node, since=since) for name, node in asked.state.nodes.items()}
    nodes[ES2] = replace(nodes[ES2], phase=NodePhase.REJOINED)
    fields = {"since": since - 60.0, "standing_down": down, "settings": settings, "nodes": nodes}
    return _run(asked, Phase.STANDING_DOWN, **fields)


def _lost_stop(lasted: Seconds) -> Situation:
    asked = _asked()
    done = {name: replace(node, phase=NodePhase.RECOVERED) for name, node in asked.state.nodes.items()}
    done[ES2] = replace(done[ES2], lost_at=_AT - lasted)
    return _run(asked, Phase.FINISHING, nodes=done)


def _merge(lasted: Seconds) -> Situation:
    asked = _asked(merge=MergePolicy(patterns=("*",), deadline=907.0))
    one = replace(IN_HAND, begun=_AT - 9000.0, asked=1, asked_at=_AT - lasted)
    merging = Merging(indices={"u": one}, writes={}, writes_at=_AT - 100.0)
    asked = seeing(asked, bulk=Unknown(reason="timed out"))
    return _run(asked, Phase.MERGING, merging=merging, started=_AT - 9000.0)


def _settling(lasted: Seconds) -> Situation:
    asked = seeing(_asked(merge=MergePolicy(patterns=("*",))), bulk=Unknown(reason="timed out"))
    return _run(asked, Phase.MERGED, since=_AT - lasted)


def _last_count(lasted: Seconds) -> Situation:
    asked = seeing(_asked(merge=MergePolicy(patterns=("*",))), bulk=Unknown(reason="timed out"))
    done = {name: replace(node, phase=NodePhase.RECOVERED) for name, node in asked.state.nodes.items()}
    merging = Merging(indices={"u": replace(IN_HAND, ended=True)}, settled=True)
    return _run(asked, Phase.FINISHING, since=_AT - lasted, nodes=done, merging=merging)


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


def test_a_verb_in_doubt_may_take_effect_for_as_long() -> None:
    state = _run(_asked()).state
    said = {
        (verb, accepted): limits.effect(state, Doubt(verb=verb, since=_AT, accepted=accepted)).seconds
        for verb in (Verb.STOP, Verb.REBOOT)
        for accepted in (False, True)
    }
    assert said == {
        (Verb.STOP, False): 30.0,
        (Verb.STOP, True): 101.0,
        (Verb.REBOOT, False): 30.0,
        (Verb.REBOOT, True): 809.0,
    }


@pytest.mark.parametrize(
    ("doubt", "seconds"),
    [
        (Doubt(verb=Verb.STOP, since=_AT), 101.0),
        (Doubt(verb=Verb.STOP, since=_AT, accepted=True, heard=True), None),
        (Doubt(verb=Verb.REBOOT, since=_AT), None),
        (None, None),
    ],
)
def test_a_stop_that_was_not_heard_counts_as_lost(doubt: Doubt | None, seconds: Seconds | None) -> None:
    state = _run(_asked()).state
    node = replace(next(iter(state.nodes.values())), doubt=doubt)
    found = limits.unheard_stop(state, node)
    assert (None if found is None else found.seconds) == seconds


def test_a_limit_that_is_over_is_not_shown_and_the_next_one_is() -> None:
    asked = NODES["join"].at(300.0)
    limit = limits.nearest(asked.state, asked.now)
    assert limit is not None
    assert limit.seconds == 211.0 + 307.0


def test_a_run_that_finishes_has_no_limit_but_that_of_restoring() -> None:
    """Neither `--timeout` nor disabled allocation ends it: the engine does not ask them there."""
    state = _run(_asked(timeout=907.0), Phase.FINISHING, withheld_since=_AT).state
    assert limits.nearest(state, _AT) is None
    restoring = limits.nearest(state_with(state, settings={_ALLOCATION: _CHANGE}), _AT)
    assert restoring is not None
    assert restoring.seconds == 307.0


def test_the_reference_names_the_limits_of_each_phase() -> None:
    assert "`hold`" in limits.in_words(Phase.GATED)
    assert "`gate`" in limits.in_words(Phase.GATED)
    assert limits.in_words(Phase.ENDED) == ""
