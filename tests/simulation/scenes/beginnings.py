"""What bars the beginning of a run or a stop: gates and their limit, waves that cannot finish, rights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from orchestrator.model.action import StopNode
from orchestrator.model.event import ActionSent, AlertsAtStart, GatesPassed, Hold, HoldsCleared
from orchestrator.model.gate import Gate
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Policy, Together
from orchestrator.simulation import allocation, mishaps
from orchestrator.simulation.mishaps import Mishap
from orchestrator.simulation.parts import GateState, SimGate
from tests.simulation import program_mishaps
from tests.simulation.gated import ALERTS, QUEUE
from tests.simulation.play import cluster, policy
from tests.simulation.scene import DONE, HELD, PAUSED, Played, Scene, asked, at, first, resume

SIX: Final = partial(cluster, 6)
BARE: Final = {"bare": {"replicas": 0, "places": ["es6"]}}
NO_STOP: Final = {"stop": 0, "set_allocation": 0}
CANNOT: Final = "it could not finish, so it does not begin"


def _gated(hold: float, gate: float, of: Gate = QUEUE) -> Policy:
    return policy(gates=(of,), deadlines=Deadlines(hold=hold, gate=gate))


def _shut(seconds: float | None, **more: Any) -> program_mishaps.GateShut:
    return program_mishaps.GateShut(**{"name": QUEUE.name, "seconds": seconds, "readable": True, **more})


WATCHED: Final = _gated(60.0, 1200.0, ALERTS)


def _fires(seconds: float | None, **more: Any) -> program_mishaps.GateShut:
    return _shut(seconds, name=ALERTS.name, **more)


def _held_until_resolved(seconds: float, played: Played) -> None:
    """No node is stopped while it fires; what fired before the run does not hold it."""
    began = played.happened("gate alertmanager is closed")
    stops = [
        record.at
        for record in played.simulation.journal.records
        if isinstance(record.event, ActionSent) and isinstance(record.event.action, StopNode)
    ]
    assert not [at for at in stops if began < at < began + seconds]
    assert len(stops) == 3
    assert set(played.found(AlertsAtStart)[0].alerts) == {"35c09500004f2c5f"}


def _snapshot(seconds: float | None, after: float = 0.0) -> Mishap:
    return first(mishaps.SnapshotBegun(seconds=seconds), after=after)


def _cleared(but_gates: Mapping[bool, int], played: Played) -> None:
    """Whether each time it was the holds of predicates alone that were over."""
    assert [one.but_gates for one in played.found(HoldsCleared)] == list(but_gates)
    assert len(played.found(GatesPassed)) >= 3, "before each wave"


def _closed(gate: Gate, played: Played) -> None:
    played.world.gates[gate.name] = SimGate(state=GateState.CLOSED)


def _asked_at_most(most: float, played: Played) -> None:
    assert played.world.gates[QUEUE.name].asked <= most


def _held_by_it_alone(played: Played) -> None:
    assert {one.predicate for one in played.found(Hold)} == {"zero_replica_indices"}


def _replicated(played: Played) -> None:
    allocation.set_replicas(played.world, played.world.indices["bare-uuid"], 1)


# fmt: off
SCENES: Final = (
    *(
        Scene(name=f"gates: {what}", wanted=_gated(hold, gate), befalls=befalls,
            shows=partial(_cleared, dict.fromkeys(cleared)))
        for what, befalls, hold, gate, cleared in (
            ("closed longer than a hold", [first(_shut(1800.0))], 60.0, 3600.0, ()),
            ("unreadable longer than a hold", [first(_shut(1800.0, readable=False))], 60.0, 3600.0, ()),
            ("closed, then a snapshot", [first(_shut(600.0)), _snapshot(200.0, 550.0)], 240.0, 720.0,
                (False,)),
            ("closed beside a snapshot that ends", [first(_shut(900.0)), _snapshot(200.0)], 240.0, 1200.0,
                (True,)),
        )
    ),
    Scene(name="gates: closed at the last reading, allocation is enabled until they open",
        wanted=_gated(60.0, 600.0), befalls=[at("flush", _shut(500.0))], events={"gate_closed": 2}),
    *(
        Scene(name=f"gates: {what}", wanted=_gated(hold, gate), befalls=befalls, ends=HELD, says=said,
            lives={f"es{n}": 1 for n in (1, 2, 3)}, sent={"stop": 0})
        for what, befalls, hold, gate, said in (
            ("closed for good", [first(_shut(None))], 60.0, 600.0,
                "held for 10m 0s by gates_open (rabbitmq_queue ingest"),
            ("closed beside a snapshot, whose limit is over first", [first(_shut(None)), _snapshot(None)],
                240.0, 3600.0, "held for 4m 0s by no_run"),
        )
    ),
    Scene(name="gates: asked every five seconds while one is closed", wanted=_gated(3600.0, 600.0),
        prepares=partial(_closed, QUEUE), ends=HELD, lives={f"es{n}": 1 for n in (1, 2, 3)}, sent=NO_STOP,
        shows=partial(_asked_at_most, 600 / 5 + 3)),
    *(
        Scene(name=f"alertmanager: an alert that begins during the run holds it, {killed or 'not killed'}",
            wanted=WATCHED, befalls=[at("stop", _fires(900.0))], lives={}, killed=killed,
            then=[resume()] if killed else [], shows=partial(_held_until_resolved, 900.0),
            events={"alerts_at_start": 1, "gate_closed": 2 if killed else 1, "gate_opened": 1})
        for killed in ("", "after the commit of gate_closed")
    ),
    Scene(name="alertmanager: what fires when the run begins does not hold it",
        wanted=WATCHED, prepares=partial(_closed, ALERTS), lives={},
        events={"alerts_at_start": 1, "gate_closed": 0}),
    Scene(name="alertmanager: one that was resolved and fires again is a new one",
        wanted=WATCHED, prepares=partial(_closed, ALERTS), lives={},
        befalls=[at("stop", _fires(0.5, readable=False)), at("stop", _fires(900.0), after=1.0)],
        events={"alerts_at_start": 1, "gate_closed": 1, "gate_opened": 1}),
    Scene(name="alertmanager: that cannot be read holds, and the alerts of the start are read then",
        wanted=WATCHED, befalls=[first(_fires(600.0, readable=False))], lives={},
        events={"alerts_at_start": 1, "gate_closed": 1, "gate_opened": 1}),
    Scene(name="alertmanager: an alert that a person accepts no longer holds the run",
        wanted=WATCHED, befalls=[at("stop", _fires(None))], ends=HELD, lives={},
        says="held for 20m 0s by gates_open (alertmanager): 1 alert fires: DiskFull",
        then=[resume(ends=HELD), resume(accept_alerts=["DiskFull"])], events={"alerts_at_start": 1}),
    Scene(name="gates: not asked while nodes are down", wanted=_gated(3600.0, 600.0),
        shows=partial(_asked_at_most, 3 * 6)),
    Scene(name="zero_replica_indices: a run that cannot finish does not begin until it is corrected",
        of=SIX, indices=BARE, ends=HELD, says=CANNOT, lives={}, shows=_held_by_it_alone,
        marks=[pytest.mark.proves("no-replicas")],
        then=[resume(ends=HELD, says=CANNOT), _replicated, resume(ends=DONE)]),
    Scene(name="zero_replica_indices: a run that has begun is held at its wave alone",
        of=SIX, befalls=[asked(Request.PAUSE, "stop")], ends=PAUSED, lives={"es1": 1, "es6": 1},
        then=[
            lambda played: played.world.add_index("bare", replicas=0, places=["es6"]) is not None,
            resume(ends=HELD, says="zero_replica_indices (index bare")
        ]),
    Scene(name="begin_anyway: what is held is skipped, and named at the end", of=SIX, indices=BARE,
        wanted=policy(begin_anyway=True), ends=HELD, lives={"es6": 1},
        says="es6 was skipped: held at planning by zero_replica_indices (index bare"),
    Scene(name="reboot: not begun while the last host may not be rebooted",
        nodes={"es3": {"may_reboot": False}}, wanted=policy(reboot=True), ends=HELD, sent=NO_STOP,
        lives={f"es{n}": 1 for n in (1, 2, 3)}, says="does not begin: selected_hosts_ready (host of es3"),
    Scene(name="together: a canary does not part what shares a machine", of=SIX,
        nodes={"es3": {"machine": "host-1"}, "es6": {"machine": "host-1"}},
        wanted=policy(reboot=True, together=Together.REBOOT, pause_after=1, max_unavailable=2),
        planned=(("es2",),), ends=PAUSED, lives={f"es{n}": 1 for n in (1, 3, 4, 5, 6)},
        says="paused after 1 node, as asked"),
)
# fmt: on
