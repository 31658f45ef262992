"""Hosts and clusters that do not answer, and services that do not start, in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from orchestrator.engine.memory import CLUSTER, Silence
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.state import RunState
from orchestrator.kinds import needed
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import fields_of
from orchestrator.model.event import ActionFailed
from orchestrator.model.reading import Instant, Refusal, Seconds
from orchestrator.model.work_event import (
    AccessGranted,
    AccessRefused,
    Answered,
    FellSilent,
    HostEvent,
    InstallEnded,
    StartFailed,
    TuningMissed,
)
from orchestrator.untrusted import one_line
from orchestrator.view.text import duration, listed

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Hosts that do not answer, or slowly, for the same reason; without nodes it is the cluster."""

    nodes: tuple[NodeName, ...]
    seconds: Seconds  # since the first reading without an answer; of a slow one, since its answer
    why: str = ""
    took: Seconds | None = None  # seconds of the last answer of a slow one; None while there is no answer

    @property
    def sentence(self) -> str:
        """Who does not answer, for how long, what that may be, and how the reading failed."""
        why = f": {one_line(self.why)}" if self.why else ""
        if self.took is not None:
            verb = "answers" if len(self.nodes) <= 1 else "answer"
            return f"{_who(self.nodes)} {verb} slowly: the last answer took {duration(self.took)}"
        if not self.nodes:
            return f"the cluster has not answered for {duration(self.seconds)}{why}"
        one = len(self.nodes) == 1
        perhaps = "its node may be down" if one else "their nodes may be down"
        has = "has" if one else "have"
        return f"{_who(self.nodes)} {has} not answered over SSH for {duration(self.seconds)} ({perhaps}){why}"

    def as_object(self) -> dict[str, object]:
        """The same for JSON."""
        return {
            "nodes": list(self.nodes),
            "seconds": round(self.seconds, 3),
            "why": self.why,
            "answer_seconds": None if self.took is None else round(self.took, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLost:
    """Credentials that the cluster refuses."""

    refusal: Refusal
    seconds: Seconds  # for how long

    @property
    def sentence(self) -> str:
        """Who refuses which credentials, for how long, and whether they can change while the program runs."""
        return f"{self.refusal.sentence} for {duration(self.seconds)}; {_may_change(self.refusal)}"

    def as_object(self) -> dict[str, object]:
        """The same for JSON."""
        return {**fields_of(self.refusal, without={"fixed"}), "seconds": round(self.seconds, 3)}


def access_lost(state: RunState, now: Instant) -> AccessLost | None:
    """The credentials that the cluster refuses; None while it accepts them."""
    found = state.process.refused
    return None if found is None else AccessLost(refusal=found.refusal, seconds=max(0.0, now - found.since))


def _may_change(refusal: Refusal) -> str:
    """What a person can do while the run waits."""
    if not refusal.of_login:
        return "give the right back"
    if refusal.fixed or not refusal.source:
        return "this program cannot get another secret: have this one accepted again, or end the run"
    return f"write the new secret to {refusal.source}: it is read again"


def silences(state: RunState, now: Instant) -> tuple[Silent, ...]:
    """Whose answer the run waits for longer than usual; hosts with the same reason together.

    Of hosts only those that the run reads in this phase: nothing is known any more of the others.
    """
    read = needed(state)[1]
    known = {name: one for name, one in state.process.silent.items() if name == CLUSTER or name in read}
    found = []
    for names in _together(known):
        first = known[names[0]]
        found.append(
            Silent(
                nodes=tuple(name for name in names if name != CLUSTER),
                seconds=max(0.0, now - min(known[name].since for name in names)),
                why=first.why,
                took=None if first.took is None else max(known[name].took or 0.0 for name in names),
            )
        )
    return tuple(found)


def host_sentence(event: HostEvent) -> str:
    """An event about a host as one line."""
    match event:
        case StartFailed(node=node, why=why):
            return f"{node}: the service did not start: {one_line(why)}"
        case FellSilent(nodes=nodes, seconds=seconds, why=why):
            return Silent(nodes=nodes, seconds=seconds, why=why).sentence
        case Answered(nodes=nodes, seconds=seconds, slowly=True):
            return Silent(nodes=nodes, seconds=0.0, took=seconds).sentence
        case Answered(nodes=nodes, seconds=seconds):
            verb = "answers" if len(nodes) <= 1 else "answer"
            return f"{_who(nodes)} {verb} again, within {duration(seconds)}"
        case AccessRefused(refusal=refusal):
            return f"{refusal.sentence}; {_may_change(refusal)}"
        case AccessGranted(seconds=seconds):
            return f"the cluster accepts the credentials again, after {duration(seconds)}"
        case _:
            assert_never(event)


def said_lines(event: object) -> list[str]:
    """What was said of a start that failed, as lines below that of the event; none for any other event."""
    return [f"  | {line}" for line in event.said] if isinstance(event, StartFailed) else []


def start_failures(failed: Sequence[StartFailed]) -> list[str]:
    """The nodes whose start failed, and what was said of it; of nodes that failed alike, of the first."""
    return [line for _, one in together(failed) for line in (host_sentence(one), *said_lines(one))]


AboutNode: TypeAlias = StartFailed | InstallEnded | TuningMissed | ActionFailed
"""Events that say of one node what failed there."""

_About = TypeVar("_About", bound=AboutNode)


def node_of(event: AboutNode) -> NodeName | None:
    """The node that an event is about; None for an action on the cluster."""
    return getattr(event.action, "node", None) if isinstance(event, ActionFailed) else event.node


def together(events: Sequence[_About]) -> list[tuple[_About, _About]]:
    """Events about single nodes, those with the same reason as one: the first of them, and it with all names.

    What was printed beside the reason is that of the first. Times and process numbers are no difference.
    """
    kinds: dict[object, list[_About]] = {}
    for event in events:
        kinds.setdefault(_without_node(event), []).append(event)
    merged: list[tuple[_About, _About]] = []
    for alike in kinds.values():
        reasons = [(node_of(event) or NodeName(""), _OWN.sub("", _reason(event))) for event in alike]
        for reason, nodes in by_same_reason(reasons).items():
            first = next(one for one, (_, own) in zip(alike, reasons, strict=True) if own == reason)
            merged.append((first, _of(first, NodeName(listed(nodes))) if len(nodes) > 1 else first))
    return merged


_OWN: Final = re.compile(
    r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?|\b[\d.]+(?:ms|s|min|h) ago"
    r"|\[\d+\]|(?i:\bp(?:rocess|id)[:= ]+)\d+"
)
"""Times and process numbers in what a service manager prints: each host has its own."""


_PARTS: Final[Mapping[type[AboutNode], tuple[Sequence[str], Sequence[str]]]] = {
    StartFailed: (("why", "said"), ()),
    InstallEnded: (("said",), ("number", "state")),
    TuningMissed: (("why",), ("tunable", "on_failure")),
    ActionFailed: (("reason",), ("in_doubt",)),
}
"""Fields of an event about a node: those of its reason, and those that are equal in two that are one."""


def _reason(event: AboutNode) -> str:
    parts = [getattr(event, name) for name in _PARTS[type(event)][0]]
    return "\n".join(part if isinstance(part, str) else "\n".join(part) for part in parts)


def _without_node(event: AboutNode) -> object:
    """What has to be equal in two events that are one, beside their reasons."""
    action = repr(_at(event.action, NodeName(""))) if isinstance(event, ActionFailed) else ""
    return type(event), action, *(getattr(event, name) for name in _PARTS[type(event)][1])


def _of(event: _About, node: NodeName) -> _About:
    """The event of this node."""
    if isinstance(event, ActionFailed):
        return replace(event, action=_at(event.action, node))
    return replace(event, node=node)


def _at(action: Any, node: NodeName) -> Any:
    """The action on this node; one on the cluster as it is."""
    return replace(action, node=node) if hasattr(action, "node") else action


def _together(known: dict[NodeName, Silence]) -> list[tuple[NodeName, ...]]:
    """Names of those that are said in one line: the cluster by itself."""
    groups: list[tuple[NodeName, ...]] = [(CLUSTER,)] if CLUSTER in known else []
    for slow in (False, True):
        reasons = (
            (name, one.why)
            for name, one in known.items()
            if name != CLUSTER and (one.took is not None) is slow
        )
        groups += [tuple(names) for names in by_same_reason(reasons).values()]
    return groups


def _who(nodes: Collection[NodeName]) -> str:
    if not nodes:
        return "the cluster"
    return f"{'host' if len(nodes) == 1 else 'hosts'} {listed(nodes, _NAMED)}"
