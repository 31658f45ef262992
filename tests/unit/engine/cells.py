"""One node in a chosen cell of the table: a phase, a goal, and a reading that shows a chosen sight."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from orchestrator.engine.grid import Move, Sight, move_of
from orchestrator.engine.memory import Absence
from orchestrator.engine.node import turn
from orchestrator.engine.predicates import Question
from orchestrator.engine.progress import GOING_UP_OR_DOWN, NodeProgress
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import NodeStep, Situation
from orchestrator.model.action import action_name
from orchestrator.model.cluster import Incarnation
from orchestrator.model.event import PhaseEntered
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.phase import RESTART, Doubt, Goal, NodePhase, Owed, Phase, Verb, Work
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.model.reading import Seconds, Unknown
from tests.states import state_with
from tests.unit.engine.asking import ES2, question, seeing, situation_of, view_of

OLD, NEW = Incarnation(ephemeral_id="old"), Incarnation(ephemeral_id="new")
HOOKS = Hooks(before_stop=(Hook(run="a"),), while_stopped=(Hook(run="b"),), after_recovery=(Hook(run="c"),))
OWED = frozenset({RESTART, Owed(work=Work.HOOK)})
LONG: Seconds = 50_000.0
"""Longer than every limit."""

SERVICES: dict[str, ServiceState | None] = {
    "runs": ServiceState.RUNNING,
    "starts": ServiceState.STARTING,
    "stops": ServiceState.STOPPING,
    "gone": ServiceState.STOPPED,
    "failed": ServiceState.FAILED,
    "silent": None,
}
LIVES = {"same": OLD, "new": NEW, "vague": Incarnation(), "absent": None}
"""How the master lists the node; `vague` = its lives cannot be compared. `no master` = nothing was read."""

SHOWN: dict[Sight, tuple[str, str, bool]] = {
    Sight.STOPPING: ("stops", "same", False),
    Sight.AWAY: ("gone", "absent", False),
    Sight.DOUBT: ("runs", "same", True),
    Sight.SAME: ("runs", "same", False),
    Sight.NEW: ("runs", "new", False),
    Sight.COMING: ("runs", "absent", False),
    Sight.LEFT: ("silent", "absent", False),
    Sight.UNKNOWN: ("silent", "no master", False),
}
"""For each sight: the service, the member list, and whether a stop is in doubt."""


@cache
def _asked() -> Question:
    return question(hooks=HOOKS)


def situation(node: NodeProgress, service: str, member: str, *, goal: Goal = Goal.RESTART) -> Situation:
    """A wave of that one node, and this reading of it; a run that stands down where nodes are brought up."""
    asked, state = _asked(), SERVICES[service]
    view, life = view_of(asked), LIVES.get(member)
    nodes = [one for one in view.nodes if one.name != ES2]
    if life is not None:
        nodes.append(replace(view.members[ES2], incarnation=life))
    seen = seeing(
        asked,
        cluster=Unknown(reason="?") if member == "no master" else replace(view, nodes=tuple(nodes)),
        hosts={
            ES2: Unknown(reason="timed out")
            if state is None
            else HostView(service=state, detail=service, boot_id="b")
        },
    )
    phase = Phase.DOWN if goal is Goal.RESTART else Phase.STANDING_DOWN
    wave = Wave(number=1, nodes=(ES2,))
    return situation_of(seen, phase, wave=wave, nodes=asked.state.nodes.changed(node))


def node_in(phase: NodePhase, *, since: Seconds = 0.0, **fields: object) -> NodeProgress:
    """The node, in that phase for so many seconds."""
    node = NodeProgress(name=ES2, phase=phase, life=OLD, boot="b", owed=OWED, since=now() - since)
    return replace(node, **fields)


def now() -> float:
    """The time of every situation."""
    return _asked().observation.at


def doubt(ago: Seconds = 5.0, *, verb: Verb = Verb.STOP, accepted: bool = False) -> Doubt:
    """A verb that was sent so long ago."""
    return Doubt(verb=verb, since=now() - ago, accepted=accepted)


def cell(phase: NodePhase, shown: Sight, goal: Goal, *, since: Seconds = 0.0) -> Situation:
    """A situation in that cell; `since`: in its phase, started, and missing if it is, for so long."""
    service, member, in_doubt = SHOWN[shown]
    tried = {"start_sent": now() - since} if since else {}
    node = node_in(phase, since=since, doubt=doubt() if in_doubt else None, **tried)
    asked = situation(node, service, member, goal=goal)
    if not since or phase in GOING_UP_OR_DOWN:
        return asked
    absent = {ES2: Absence(since=now() - since, readings=9)}
    return replace(asked, state=state_with(asked.state, absent=absent))


def turned(asked: Situation) -> NodeStep:
    """What the reading leads the node to."""
    return turn(asked, asked.state.nodes[ES2])


def after_turn(asked: Situation) -> tuple[NodeProgress, Move]:
    """The node once it was moved, and its last move."""
    after = asked.after(*turned(asked).events)
    node = after.state.nodes[ES2]
    return node, move_of(node.phase, sight(after, node), after.goal(node))


def effect(told: NodeStep) -> str:
    """In one line: phases entered, verbs sent, and whether the run stands down."""
    steps = [f">{event.to}" for event in told.events if isinstance(event, PhaseEntered)]
    verbs = [action_name(action) for action in told.actions]
    return " ".join([*steps, *verbs, *(["flip"] if told.flip else [])])
