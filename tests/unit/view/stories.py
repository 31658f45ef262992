"""A run as its public records, one with every event, and the same with markup in each text."""

from __future__ import annotations

from typing import Any, Final

from orchestrator.model.encoding import encode_event
from orchestrator.redact import cleaned
from orchestrator.view.report.facts import facts_of
from orchestrator.view.report.page import history_page, run_page
from orchestrator.view.status import status_object
from tests.fakes.recorded_cluster import fields_of
from tests.unit.view import samples

Public = dict[str, Any]
T0: Final = samples.t0
POLICY: Final = {"kind": "elasticsearch", "strategy": "node", "playbook": "ours", "reason": "JDK 21"}


def public(at: float, event: str, **fields: Any) -> Public:
    return {"run": "run-1", "sequence": 1, "at": T0 + at, "event": event, "said": event, **fields}


def begun(*nodes: str, **more: Any) -> Public:
    given = {"cluster": "prod", "version": "9.1.0", "distribution": "elasticsearch", "operator": "ann"}
    return public(0, "run_started", **{**given, "host": "b1", "policy": POLICY, "nodes": list(nodes), **more})


def phase(at: float, node: str | None, before: str, after: str) -> Public:
    return public(at, "phase_entered", node=node, **{"from": before, "to": after})


def turn(at: float, node: str, number: int, *, seconds: float = 40.0) -> list[Public]:
    """A wave of one node: 2 s to stop, 20 s to start, the rest to recover."""
    stop = {"verb": "stop", "node": node}
    return [
        public(at, "wave_started", wave={"number": number, "nodes": [node], "zone": "a", "why": ""}),
        phase(at, node, "pending", "stopping"),
        public(at, "action_sent", action=stop),
        public(at + 0.5, "action_confirmed", action=stop, output=""),
        phase(at + 2, node, "stopping", "stopped"),
        phase(at + 2, node, "stopped", "starting"),
        phase(at + 22, node, "starting", "rejoined"),
        public(
            at + seconds, "node_recovered", node=node, seconds=seconds, bytes_reused=900, bytes_copied=100
        ),
        phase(at + seconds, node, "rejoined", "recovered"),
        public(at + seconds, "wave_finished", number=number, seconds=seconds),
    ]


def sample(at: float, health: str, unassigned: int = 0, recovering: int = 0) -> Public:
    fields = {"health": health, "unassigned": unassigned, "recovering": recovering}
    return public(at, "cluster_sampled", read=T0 + at, **fields)


def story() -> list[Public]:
    """Two nodes are restarted; the run is held, killed at the third node, fails, and is done after that."""
    key = {"level": "persistent", "key": samples.ENABLE}
    hold = {"predicate": "no_running_snapshot", "subject": "nightly", "evidence": "it is running", "count": 2}
    return [
        begun("es1", "es2", "es3", forecast={"in_all": {"low": 60, "likely": 90, "high": 200}, "nodes": {}}),
        sample(0, "green"),
        public(1, "hold", **hold),
        public(5, "gate_closed", gate="queue", evidence="9 messages"),
        public(11, "holds_cleared", but_gates=True),
        public(15, "gate_opened", gate="queue", evidence="0 messages"),
        public(16, "gates_passed", gates={"queue": "0 messages"}),
        public(17, "setting_changed", **key, found=None, wanted="primaries", purpose="set_allocation"),
        *turn(20, "es1", 1),
        sample(25, "yellow", 4),
        sample(55, "green"),
        public(60, "setting_restored", **key, value=None),
        *turn(70, "es2", 2, seconds=100.0),
        *turn(180, "es3", 3)[:5],
        public(1000, "run_resumed", operator="ben", host="b2"),
        phase(1010, "es3", "starting", "failed"),
        public(1010, "standing_down", reason="es3 failed", outcome="failed"),
        public(1020, "run_finished", outcome="failed", exit_code=4, seconds=20.0, message=""),
        public(5000, "run_resumed", operator="ann", host="b1"),
        *turn(5010, "es3", 4),
        public(5060, "run_finished", outcome="done", exit_code=0, seconds=60.0),
    ]


PAST: Final = {
    "run": "run-1",
    "cluster": "prod",
    "version": "9.1.0",
    "strategy": "node",
    "kind": "restart",
    "started": "2026-01-02T03:04:05.000Z",
    "seconds": 90.0,
    "outcome": "done",
    "reason": "JDK",
    "nodes_selected": 3,
    "nodes_restarted": 3,
    "seconds_a_node": 30.0,
    "node_seconds": {"es1": 20.0, "es2": 30.0, "es3": 45.0},
}

MARKUP: Final = (
    """"'`></title></style></svg></textarea>--><script>acted()</script><img src=x onerror=acted()>"""
    """<svg onload=acted()><a href="javascript:acted()">x</a>"""
    """<iframe srcdoc="<script>parent.acted()</script>"></iframe>"""
    """" onmouseover="acted()" style="background:url(//evil.example/x)" x='{{ 7 * 7 }}&lt;"""
)
"""Leaves a text, an attribute, a style and a drawing; calls `acted`, and asks for something, in any way."""

KEPT: Final = ("event", "sequence", "at")


def every_event() -> list[Public]:
    """A run with an example of each event."""
    events = [encode_event(event) for event in samples.examples()]
    others = [one for one in events if one["event"] != "run_started"]
    return [*story()[:20], *(public(300 + n, **one) for n, one in enumerate(others))]


NAMES: Final = frozenset(
    {name for one in every_event() for field in fields_of(one) for name in field if isinstance(name, str)}
)
"""Names of fields: they are the program's own, except those of nodes and gates."""


def marked(value: Any, mark: str) -> Any:
    """The value with the mark at the end of each text in it."""
    return cleaned(value, lambda text: text if text in NAMES else f"{text}{mark}")


def with_known_words(changed: list[Public], plain: list[Public]) -> list[Public]:
    """Phases, purposes and verbs are compared with the program's own, so a journal has no others."""
    words = ("from", "to", "purpose", "health", "level", "outcome")
    found = []
    for one, before in zip(changed, plain, strict=True):
        kept = {name: before[name] for name in words if name in before}
        found.append({**one, **kept})
    return found


def pages(mark: str) -> dict[str, str]:
    """Each kind of page, with a mark at the end of every text that is not the program's own."""
    records = [
        {name: value if name in KEPT else marked(value, mark) for name, value in one.items()}
        for one in every_event()
    ]
    facts = facts_of(with_known_words(records, every_event()))
    held = samples.held_state()
    state = samples.run_state(holds=held.in_phase.holds, holding_since=held.in_phase.holding_since)
    status = status_object(state, samples.records(samples.examples()), now=T0 + 200)
    times = ("phase_since", "waiting_since", "waiting_until")
    words = {name: marked(value, mark) for name, value in status.items() if name not in times}
    now = {**status, **words, "standing_down": f"why{mark}", "request": f"stop{mark}"}
    past = {**{name: value if name == "started" else marked(value, mark) for name, value in PAST.items()}}
    past |= {"target_version": f"9.3{mark}", "node_seconds": PAST["node_seconds"]}
    own = dict.fromkeys(("run", "cluster", "operator", "host"), f"x{mark}")
    links = {past["run"]: "runs/run-1", own["run"]: "runs/run-2"}
    return {
        "report": run_page(facts),
        "live run": run_page({**facts, "finished": False}, status=now),
        "past runs": history_page([past], links),
        "live runs": history_page([past], links, live={"under_way": [own], "faults": [f"why{mark}"]}),
    }
