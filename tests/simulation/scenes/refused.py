"""What a run cannot reach, and names: credentials that are refused, hosts that are silent, failed starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from orchestrator.engine.fold import evolve
from orchestrator.engine.state import RunState
from orchestrator.model.action import ProbeSettings, StopNode, WriteSettings
from orchestrator.model.event import ActionConfirmed, PhaseEntered, Record, StandingDown
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Deadlines
from orchestrator.model.work_event import AccessGranted, AccessRefused, Answered, FellSilent, StartFailed
from orchestrator.simulation.cluster import LOGIN_REFUSED, RIGHT_TAKEN
from orchestrator.simulation.mishaps import HostCutOff, Mishap, ProgramStalls, SettingMeddled, StartsFail
from orchestrator.view.progress import wait_of
from orchestrator.view.reporters import waiting_lines, waiting_object
from orchestrator.view.screen import Screen
from orchestrator.view.status import status_object, status_text
from orchestrator.view.summary import Summary, summary, summary_lines, summary_object
from tests.simulation.node_mishaps import HostHangs
from tests.simulation.play import policy
from tests.simulation.program_mishaps import CredentialsRefused
from tests.simulation.scene import (
    ALLOCATION,
    ES1,
    ES2,
    FAILED,
    NOT_RESTORED,
    POOL,
    Played,
    Scene,
    at,
    first,
    late,
    restore,
    resume,
)
from tests.simulation.scenes.no_lease import LINE

LONG: Final = 3000.0


def refused(seconds: float, verb: str = "stop", *, writes: bool = False, after: float = 0.3) -> Mishap:
    return at(verb, CredentialsRefused(seconds=seconds, writes=writes), after=after)


def taken(seconds: float, verb: str = "stop", *, after: float = 0.3) -> Mishap:
    """The right to change settings."""
    return refused(seconds, verb, writes=True, after=after)


# What is said of it -----------------------------------------------------------------------------------


def as_of(played: Played, holds: Callable[[RunState], object]) -> tuple[RunState, list[Record]]:
    """The first state on the way for which this holds, with the records up to it."""
    state, records = RunState(run="run-1"), played.simulation.journal.records
    for number, record in enumerate(records, start=1):
        state = evolve(state, record)
        if holds(state):
            return state, [*records[:number]]
    raise AssertionError("never")


def _named(
    line: str,
    value: Mapping[str, object],
    key: str,
    after: float,
    played: Played,
    *,
    left: float | None = None,
) -> None:
    """So long after the journal tells of it, in the waiting line, in the status, and in the JSON of both."""
    state, so_far = as_of(played, lambda state: getattr(state.process, key))
    now = so_far[-1].at + after
    wait = wait_of(state, None, now)
    assert wait is not None
    assert left is None or (wait.until is not None and round(wait.until - now) == left)
    assert line in waiting_lines(state, wait, now)[1]
    assert line in " ".join(status_text(state, so_far, now=now).split())
    shown = Screen(state, None, now=now).wait
    assert shown is not None
    assert key != "silent" or [one.sentence for one in shown.silent] == [line]
    for of_json in (waiting_object(state, wait, now), status_object(state, so_far, now=now)):
        said: Any = json.loads(json.dumps(of_json[key]))
        (said,) = said if isinstance(said, list) else (said,)
        assert {**said, "seconds": round(said["seconds"])} == value


def _summary(played: Played) -> Summary:
    records, outcome = played.simulation.journal.records, played.state.outcome
    assert outcome is not None
    return summary(played.state, outcome, [one.event for one in records], records[-1].at)


def _since(played: Played, one: type[AccessRefused | StandingDown | StartFailed]) -> float:
    """How long before the end the journal told of that for the first time."""
    return played.simulation.journal.records[-1].at - played.times(one)[0]


def _login_refused(played: Played) -> bool:
    return [event.refusal for event in played.found(AccessRefused)] == [LOGIN_REFUSED]


def _what_is_left(verb: str, played: Played) -> None:
    (told,), (standing_down,) = played.found(AccessRefused), played.found(StandingDown)
    assert told.reading
    assert abs(played.times(StandingDown)[0] - played.times(AccessRefused)[0] - 120.0) < 5.0
    assert LINE in standing_down.reason
    assert _since(played, StandingDown) < 60.0, "it does not wait for what cannot be seen"
    assert all(node.process for node in played.world.nodes.values()), "a start needs no API"
    lines = summary_lines(_summary(played))
    parts = [
        "NOT RESTORED   setting cluster.routing",
        LINE,
        "runs out by itself",
        "orchestrate restore run-1",
    ]
    if verb in ("stop", "start"):
        parts.append("was started, and not seen in the cluster")
    assert [part for part in parts if not any(part in line for line in lines)] == []
    assert lines[-1] == "    orchestrate restore run-1"


def _right_taken(played: Played) -> None:
    (told,) = played.found(AccessRefused)
    assert (told.refusal, told.reading) == (RIGHT_TAKEN, False)
    assert _since(played, AccessRefused) < 200.0
    assert all(node.phase is not NodePhase.STARTING for node in played.state.nodes.values())


def _stood_down(reason: str, played: Played) -> bool:
    (down,) = played.found(StandingDown)
    return down.reason.endswith(reason)


def _seen_at_the_next_write(played: Played) -> None:
    (granted,), (since,) = played.times(AccessGranted), played.times(AccessRefused)
    records = [r for r in played.simulation.journal.records if isinstance(r.event, ActionConfirmed)]
    writes = [r.at for r in records if isinstance(r.event.action, WriteSettings | ProbeSettings)]
    assert granted == min(at for at in writes if at > since), (
        "it restores nothing before the next wave is back"
    )


def _all_run(played: Played) -> None:
    assert all(node.process for node in played.world.nodes.values())


_OF_LOGIN: Final = {
    "endpoint": "https://es1:9200",
    "credentials": "user ops",
    "source": "env:ES_PASSWORD",
    "status": 401,
    "call": "",
    "seconds": 50,
}
_SHORT: Final = policy(deadlines=Deadlines(refused=30.0))
_AT_AN_EARLY_END: Final = {"ends": NOT_RESTORED, "away": None}
# fmt: off
_CREDENTIALS: Final = (
    *(
        Scene(name=f"CredentialsRefused: a rotated secret costs nothing, {verb}",
            befalls=[refused(20.0, verb)], shows=_login_refused,
            events={"access_refused": 1, "access_granted": 1, "fell_silent": 0})
        for verb in ("stop", "start", "set_allocation", "restore_allocation")
    ),
    *(
        Scene(name=f"CredentialsRefused: one that lasts ends the run with what is left, {verb}",
            befalls=[refused(LONG, verb)], **_AT_AN_EARLY_END,
            then=[partial(_what_is_left, verb), LONG, restore()])
        for verb in ("stop", "start", "set_allocation", "restore_allocation")
    ),
    Scene(name="CredentialsRefused: named in the waiting line and in the status",
        befalls=[refused(LONG)], **_AT_AN_EARLY_END,
        shows=partial(_named, f"{LINE} for 50s; this program cannot get another secret", _OF_LOGIN,
            "refused", 50.0, left=70)),
    Scene(name="CredentialsRefused: a right that is taken away ends the run too",
        befalls=[taken(LONG)], **_AT_AN_EARLY_END, then=[_right_taken, LONG, restore()]),
    Scene(name="CredentialsRefused: a stand down before the limit names the refusal",
        wanted=policy(deadlines=Deadlines(refused=900.0)), befalls=[taken(LONG)], ends=None, away=None,
        shows=partial(_stood_down, f"allocation could not be restored yet: {RIGHT_TAKEN.sentence}")),
    Scene(name="CredentialsRefused: a right that is given back in time costs nothing",
        befalls=[taken(60.0)], events={"access_granted": 1}),
    Scene(name="CredentialsRefused: a right that is given back is seen at the next write",
        befalls=[
            taken(20.0, "restore_allocation", after=0.0),
            at("restore_allocation", SettingMeddled(key=ALLOCATION, value="all"), after=5.0),
        ],
        events={"access_refused": 1}, shows=_seen_at_the_next_write),
    Scene(name="CredentialsRefused: allocation that is disabled is not called enabled",
        wanted=policy(deadlines=Deadlines(withheld=60.0)), befalls=[refused(LONG, after=0.1)],
        **_AT_AN_EARLY_END, shows=partial(_stood_down, f"it cannot be enabled, {LINE}")),
    Scene(name="CredentialsRefused: settings that cannot be restored say why",
        befalls=[taken(LONG, "restore_settings", after=0.0)], ends=NOT_RESTORED,
        says=f"settings could not be restored yet: {RIGHT_TAKEN.sentence}",
        shows=lambda played: _since(played, AccessRefused) < 200.0),
    Scene(name="CredentialsRefused: a host out of reach beyond the limit is awaited",
        befalls=[refused(LONG), at("stop", HostCutOff(node=ES2, seconds=250.0), after=2.0)],
        **_AT_AN_EARLY_END, then=[_all_run],
        shows=lambda played: _since(played, StandingDown) > 100.0),
    Scene(name="CredentialsRefused: a node that is back is put into service all the same",
        wanted=policy(hooks=POOL), befalls=[taken(LONG, "restore_allocation", after=0.0)],
        ends=NOT_RESTORED, hooks={ES2: ["before_stop", "after_recovery"]}),
    *(
        Scene(name=f"CredentialsRefused: a stop that may still be done is awaited, {seconds} s late",
            wanted=_SHORT, befalls=[refused(LONG, after=0.0), late("stop", seconds)], ends=None, away=None,
            then=[400.0, _all_run])
        for seconds in (20.0, 40.0, 110.0)
    ),
    Scene(name="CredentialsRefused: a stop taken as lost is awaited at the early end",
        wanted=policy(deadlines=Deadlines(refused=5.0, stop=30.0)),
        befalls=[refused(LONG, after=34.0), late("stop", 50.0)], **_AT_AN_EARLY_END, then=[400.0, _all_run]),
    *(
        Scene(name=f"CredentialsRefused: a standstill takes nothing of the limit, {verb}",
            befalls=[
                refused(430.0, verb, after=after),
                at(verb, ProgramStalls(seconds=400.0), after=after + asleep),
            ],
            events={"access_granted": 1})
        for verb, after, asleep in (("stop", 0.3, 19.7), ("set_allocation", 1.0, 2.2))
    ),
)
# fmt: on

# Hosts ------------------------------------------------------------------------------------------------

SAID: Final = "unknown setting [indices.breaker.totl.limit]"
SILENT: Final = "host es1 has not answered over SSH for 50s (its node may be down): ssh to es1: timed out"
_OF_SILENCE: Final = {
    "nodes": ["es1"],
    "seconds": 50,
    "why": "ssh to es1: timed out",
    "answer_seconds": None,
}
CUT_OFF: Final = at("stop", HostCutOff(node=ES1, seconds=70.0), ES1, after=0.3)


def _silent_and_back(played: Played) -> None:
    records = played.simulation.journal.records
    stopped = next(r.at for r in records if r.event == ActionConfirmed(action=StopNode(node=ES1)))
    (silent,), (answered,) = played.found(FellSilent), played.found(Answered)
    assert silent.nodes == answered.nodes == (ES1,)
    assert played.times(FellSilent)[0] - stopped <= 20.0
    assert played.times(Answered)[0] >= stopped + 70.0


def _not_named_later(played: Played) -> None:
    """Its host is not read any more."""
    state, _ = as_of(played, lambda state: state.process.silent)
    later, so_far = as_of(played, lambda state: state.phase is Phase.REASSIGNED)
    stale = replace(later, process=replace(later.process, silent=state.process.silent))
    assert "not answered" not in status_text(stale, so_far, now=so_far[-1].at)


def _start_named(played: Played) -> None:
    """At once, with the last words of the service, and with what to do."""
    (failed,) = played.found(StartFailed)
    assert (failed.node, failed.why, failed.said) == (ES1, "failed (Result: exit-code)", (SAID,))
    failed_at = next(
        record.at
        for record in played.simulation.journal.records
        if isinstance(record.event, PhaseEntered) and record.event.to == NodePhase.FAILED.value
    )
    assert failed_at - played.times(StartFailed)[0] > 10.0, "long before the third start has failed"
    end, records = _summary(played), played.simulation.journal.records
    lines, status = summary_lines(end), status_text(played.state, records, now=records[-1].at)
    assert "  es1       it was started 3 times: failed (Result: exit-code)" in lines
    assert "es1: the service did not start: failed (Result: exit-code)" in status
    for text in ("\n".join(lines), status):
        assert f"| {SAID}" in text
        assert "orchestrate restore" not in text
    assert summary_object(end)["start_failures"] == [
        {"node": "es1", "why": "failed (Result: exit-code)", "said": [SAID]}
    ]
    nodes: Any = status_object(played.state, records, now=0.0)["nodes"]
    assert (nodes["es1"]["said"], "said" in nodes["es2"]) == ([SAID], False)
    assert lines[-2].endswith("repair es1, then continue:")
    assert lines[-1] == "    orchestrate resume run-1 --retry-failed"
    assert status.endswith(f"repair es1, then continue:\n{lines[-1]}\n")


def _said_again(played: Played) -> None:
    lines = summary_lines(_summary(played))
    assert lines[-1].endswith("orchestrate resume run-1 --retry-failed")
    assert any(SAID in line for line in lines)


def _no_failure(played: Played) -> bool:
    return "did not start" not in status_text(played.state, (), now=0.0)


# fmt: off
_HOSTS: Final = (
    Scene(name="FellSilent: a host that falls silent in a wave is named everywhere",
        befalls=[CUT_OFF],
        shows=lambda played: (
            _silent_and_back(played), _not_named_later(played),
            _named(SILENT, _OF_SILENCE, "silent", 45.0, played)
        )),
    Scene(name="FellSilent: nothing is said of silence without trouble",
        events={"fell_silent": 0, "answered": 0}),
    Scene(name="FellSilent: at most once a reboot",
        wanted=policy(reboot=True), events={"fell_silent": range(4)}),
    Scene(name="FellSilent: a hanging host is silent too",
        befalls=[at("stop", HostHangs(node=ES1, seconds=40.0), ES1, after=0.3)], events={"fell_silent": 1}),
    Scene(name="StartFailed: named at once with its last words",
        befalls=[first(StartsFail(node=ES1, times=3))], ends=FAILED, away=[ES1],
        then=[_start_named, resume(retry_failed=True)],
        shows=lambda played: played.state.nodes[ES1].start_failed is None),
    Scene(name="StartFailed: a restore that fails alike says the same again, once",
        befalls=[first(StartsFail(node=ES1, times=99))], ends=FAILED, away=[ES1],
        then=[restore(ends=None, away=[ES1])], events={"start_failed": 2}, shows=_said_again),
    Scene(name="StartFailed: a start that succeeds at last is no failure",
        befalls=[first(StartsFail(node=ES1, times=1))], events={"start_failed": 1}, shows=_no_failure),
)
# fmt: on

SCENES: Final = (*_CREDENTIALS, *_HOSTS)
