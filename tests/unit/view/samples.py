"""One example of every event, in `tests/data/view/events.jsonl`, and a run and a plan in several moments."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.action import RunHook, SettingChange
from orchestrator.model.cluster import Health, NodeName, ShardId, Zone
from orchestrator.model.event import ActionSent, Event, Hold, Record, RunStarted
from orchestrator.model.observation import Level, Recovery
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.plan import Plan, PlannedWave, Step
from orchestrator.model.policy import Kind, Strategy, Wave
from orchestrator.model.prediction import Prediction
from orchestrator.runtime import codec
from orchestrator.view.progress import CopiesNow, Seen
from tests.states import state_with


class Ascii(io.StringIO):
    """A stream whose encoding has no sign."""

    encoding = "ascii"


t0 = 1_800_000_000.0
GOLDEN = Path(__file__).parents[2] / "data" / "view"
ES = tuple(NodeName(f"es{number}") for number in range(1, 4))
ENABLE = "cluster.routing.allocation.enable"
WITHHOLD = SettingChange(level=Level.PERSISTENT, key=ENABLE, found="all", wanted="primaries")
RECOVERED, STARTING, PENDING = NodePhase.RECOVERED, NodePhase.STARTING, NodePhase.PENDING


@cache
def _examples() -> tuple[Event, ...]:
    lines = (GOLDEN / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(codec.decode_event(json.loads(line)) for line in lines)


def examples() -> list[Event]:
    """One of each event, two where it can say two things."""
    return list(_examples())


started = next(one for one in _examples() if isinstance(one, RunStarted))
policy = started.policy
hold = next(one for one in _examples() if isinstance(one, Hold))
hook = next(
    one.action for one in _examples() if isinstance(one, ActionSent) and isinstance(one.action, RunHook)
)


def records(events: Sequence[Event]) -> list[Record]:
    """In the journal, a second apart."""
    return [Record(run="run-1", sequence=n, at=t0 + n, event=one) for n, one in enumerate(events, start=1)]


def nodes_in(phases: Mapping[NodeName, NodePhase]) -> dict[NodeName, NodeProgress]:
    """Nodes, each in its phase."""
    return {name: NodeProgress(name=name, phase=phase, since=t0 + 100) for name, phase in phases.items()}


def run_state(**changes: Any) -> RunState:
    """A run of three nodes: es1 is back, es2 starts, es3 is to come."""
    usual: dict[str, Any] = {
        "started": t0,
        "cluster": "prod",
        "version": "9.1.0",
        "policy": policy,
        "phase": Phase.DOWN,
        "since": t0 + 90,
        "nodes": nodes_in(dict(zip(ES, (RECOVERED, STARTING, PENDING), strict=True))),
        "wave": Wave(number=2, nodes=ES[1:2], zone=Zone("b"), why="fewest shards shared"),
        "wave_since": t0 + 80,
        "waves_finished": 1,
        "settings": {(Level.PERSISTENT, ENABLE): WITHHOLD},
        "withheld_since": t0 + 85,
    }
    return state_with(RunState(run="run-1"), **{**usual, **changes})


def _nothing_down(phases: Mapping[NodeName, NodePhase], **changes: Any) -> RunState:
    usual = {"nodes": nodes_in(phases), "wave": None, "settings": {}, "withheld_since": None}
    return run_state(**{**usual, **changes})


def held_state(**changes: Any) -> RunState:
    """The same run before its second wave: nothing is down or changed, and a predicate is not met."""
    usual = {"phase": Phase.GATED, "holds": (hold,), "holding_since": t0 + 100}
    phases = dict(zip(ES, (RECOVERED, PENDING, PENDING), strict=True))
    return _nothing_down(phases, **{**usual, **changes})


def ended_state(**changes: Any) -> RunState:
    """The same run at its good end."""
    usual = {"phase": Phase.ENDED, "outcome": Outcome.DONE}
    return _nothing_down(dict.fromkeys(ES, RECOVERED), **{**usual, **changes})


def large_run(count: int) -> RunState:
    """A run of many nodes, a third of them done, and one that recovers."""
    names, third = [NodeName(f"es{number:02d}") for number in range(1, count + 1)], count // 3
    phases = [*[RECOVERED] * third, NodePhase.REJOINED, *[PENDING] * (count - third - 1)]
    wave = Wave(number=third + 1, nodes=(names[third],), zone=Zone("b"), why="fewest shards shared")
    return _nothing_down(dict(zip(names, phases, strict=True)), wave=wave, phase=Phase.REASSIGNED)


def seen_recovering() -> Seen:
    """Three copies on their way, 31 unassigned, as read at t0 + 110."""
    moving = tuple(
        Recovery(
            shard=ShardId(index="logs", index_uuid="u1", number=number),
            target=ES[1],
            source=ES[0] if number else None,
            stage="INDEX",
            bytes_total=5 * 10**9,
            bytes_reused=10**9,
            bytes_copied=number * 10**9,
            operations_replayed=0,
        )
        for number in range(3)
    )
    copies = CopiesNow(health=Health.YELLOW, unassigned=31, recovering=3)
    return Seen(recoveries=moving, recoveries_at=t0 + 110, copies=copies, copies_at=t0 + 110)


def plan(**changes: Any) -> Plan:
    """A plan of three waves."""
    put = "PUT /_cluster/settings"
    set_it = f'{put} {{"persistent": {{"{ENABLE}": "primaries"}}}}'
    steps = (
        Step(wave=0, order=1, target="cluster", action="probe_settings", detail=f"{put} {{}}"),
        Step(wave=1, order=2, target="cluster", action="set_allocation", detail=set_it),
        Step(wave=1, order=3, target="es1", action="stop", detail="sudo -n systemctl stop elasticsearch"),
    )
    each = Prediction(low=60, likely=75.26, high=140)
    why = zip("abc", ("no data, so first", "one node a wave", "elected master, so last"), strict=True)
    waves = tuple(
        PlannedWave(number=number, zone=Zone(zone), nodes=(ES[number - 1],), why=said, predicted=each)
        for number, (zone, said) in enumerate(why, start=1)
    )
    usual: dict[str, Any] = {
        "cluster": "prod",
        "kind": Kind.ELASTICSEARCH,
        "distribution": "elasticsearch",
        "version": "9.1.0",
        "strategy": Strategy.NODE,
        "fingerprint": "sha256:0123",
        "waves": waves,
        "predicates": 25,
        "predicted": Prediction(low=200, likely=260, high=500),
        "steps": steps,
        "settings_changed": {ENABLE: (None, "primaries"), "a.list": (("x", "y"), None)},
    }
    return Plan(**{**usual, **changes})
