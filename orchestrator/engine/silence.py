"""Who does not answer a reading: the events for the journal, from how long each one takes.

A silence is said when it begins, when its reason becomes known, and when it ends: views count its seconds
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.memory import CLUSTER
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.work_event import Answered, FellSilent

LATE_SECONDS: Final[Seconds] = 10.0
"""A longer reading is late: one of a busy cluster takes some seconds, one of a host less than one."""

_SLOWER: Final = 2.0
"""A host that answers slowly is late again after so many times its last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """How far the reading of one host, or of the cluster, is."""

    # when the first reading was sent that has no answer; of one that answered, when it was asked
    since: Instant
    took: Seconds | None = None  # the seconds of the answer; None while there is none
    why: str = ""  # how the reading failed; empty while it goes on

    @property
    def open(self) -> bool:
        """Whether the reading goes on."""
        return self.took is None and not self.why


def news(state: RunState, heard: Mapping[NodeName, Heard], now: Instant) -> tuple[FellSilent | Answered, ...]:
    """The events for those that fell silent, and for those that answer again or slowly."""
    silent = [name for name, one in heard.items() if _falls_silent(state, name, one, now)]
    answered = [name for name, one in heard.items() if _answers(state, name, one)]
    events: list[FellSilent | Answered] = []
    for group in _alike(silent, {name: heard[name].why for name in silent}):
        since = min(heard[name].since for name in group or (CLUSTER,))
        why = heard[(group or (CLUSTER,))[0]].why
        events.append(FellSilent(nodes=group, seconds=max(0.0, now - since), why=why))
    slowly = {name: (heard[name].took or 0.0) >= LATE_SECONDS for name in answered}
    for group in _alike(answered, slowly):
        names = group or (CLUSTER,)
        took = max(heard[name].took or 0.0 for name in names)
        events.append(Answered(nodes=group, seconds=took, slowly=slowly[names[0]]))
    return tuple(events)


def _falls_silent(state: RunState, name: NodeName, one: Heard, now: Instant) -> bool:
    """A host whose reading failed is silent at once; a cluster may be electing its master."""
    known = state.process.silent.get(name)
    if one.took is not None:
        return False
    if known is not None and known.took is None:
        return bool(one.why) and not known.why
    if one.why and name != CLUSTER:
        return True
    late = LATE_SECONDS if known is None or known.took is None else _SLOWER * known.took
    return now - one.since >= late


def _answers(state: RunState, name: NodeName, one: Heard) -> bool:
    known = state.process.silent.get(name)
    if one.took is None:
        return False
    slowly = one.took >= LATE_SECONDS
    return slowly if known is None else known.took is None or not slowly


def _alike(names: list[NodeName], by: Mapping[NodeName, object]) -> list[tuple[NodeName, ...]]:
    """The names in groups of one event each; the cluster is the group without a name."""
    groups: list[tuple[NodeName, ...]] = [()] if CLUSTER in names else []
    hosts = [name for name in names if name != CLUSTER]
    reasons = {name: str(by[name]) for name in hosts}
    return [*groups, *(tuple(group) for group in by_same_reason(reasons.items()).values())]
