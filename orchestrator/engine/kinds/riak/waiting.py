"""Partitions that wait for handoff, perhaps for weeks: which of them hold a run, and which do not.

A node may hold data of a partition that belongs to another one: a fallback, or what it gave away. `transfers`
counts these by holder; `cluster partitions` has their numbers, and the ring their owners. Normally a vnode
is handed off a minute or two after its last message. If each handoff fails (a port that is closed), or none
begins (a transfer limit of 0, handoff that was disabled by hand), it waits for ever.

So two rules, as for copies of shards that were missing before a run:

- Before a stop, what waits holds the run until nothing has changed for `STILL_SECONDS` while no transfer
  moved data, every member was up and all vnodes ran: it does not go by itself. A restart of its holder or its
  owner may cure that, so the time begins again then. At the stop itself no transfer is active.
- After a stop, its recovery waits for everything but what waited before it, by holder and partition.

What waits may be all that a node of a preference list has of a write: a quorum had it, and the owner may lack
it. So its holder goes down alone: with an owner of the same list it could take the last copy. What nothing
shows: whether a waiting vnode holds anything at all, whether read repair or active anti-entropy have brought
it to its owner already, and whether `vnode_inactivity_timeout` was set to more than the time that is waited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.kinds.riak.settings import limit_key
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Level, SettingsView
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.model.riak import HASH_SPACE, ActiveTransfer, RiakView, Ring, Transfers
from orchestrator.model.work_event import HandoffLeftWaiting, HandoffWaits, WaitingPartition

STILL_SECONDS: Final[Seconds] = 900.0
"""Riak tries again after 60 to 120 s. While a started node looks for fallbacks, what waits changes often."""

_LISTED: Final = 3

Held = Mapping[NodeName, frozenset[int]]
"""Partitions of others, by the node that holds them."""


def still(riak: RiakView) -> frozenset[WaitingPartition] | None:
    """What waits while nothing moves; empty where nothing waits or something moves; None if not read."""
    transfers, waiting, ring = riak.transfers, riak.waiting, riak.ring
    if isinstance(transfers, Unknown) or isinstance(waiting, Unknown) or isinstance(ring, Unknown):
        return None
    counts = {node: len(numbers) for node, numbers in waiting.items()}
    for each in transfers.values():
        if isinstance(each, Unknown):
            return None
        lines = {line.node: line.partitions for line in each.waiting}
        moving = tuple(one for one in each.active if not _in_vain(one, waiting, ring))
        if lines != counts or not replace(each, waiting=(), active=moving).clean:
            return frozenset()
    return frozenset(_with_owners(waiting, ring))


def _in_vain(active: ActiveTransfer, waiting: Held, ring: Ring) -> bool:
    """Whether a transfer of what waits has moved nothing yet: one that fails is begun every minute or two."""
    number = active.index * ring.size // HASH_SPACE
    here = active.source is not None and number in waiting.get(active.source, frozenset())
    return here and not active.percent


def _with_owners(waiting: Held, ring: Ring) -> Iterator[WaitingPartition]:
    for holder, numbers in waiting.items():
        for number in numbers:
            yield WaitingPartition(partition=number, holder=holder, owner=ring.owners[number])


def less(transfers: Transfers, riak: RiakView, excused: Held) -> Transfers:
    """What `transfers` says without the nodes on which no partition waits but these."""
    held = {} if isinstance(riak.waiting, Unknown) else riak.waiting
    waiting = tuple(
        line
        for line in transfers.waiting
        if len(here := held.get(line.node, frozenset())) != line.partitions
        or not here <= excused.get(line.node, frozenset())
    )
    return replace(transfers, waiting=waiting)


def news(state: RunState, view: ClusterView) -> HandoffWaits | None:
    """The event that other partitions wait than before; None where none do, and where that was not read."""
    found = None if view.riak is None else still(view.riak)
    if found is None or found == frozenset(state.handoff.still):
        return None
    return HandoffWaits(partitions=_sorted(found))


def excused(question: Question, riak: RiakView) -> Held:
    """What does not hold a stop: it has not changed for long, and none of its nodes has a limit of 0."""
    found, handoff = still(riak), question.state.handoff
    if not found or found != frozenset(handoff.still):
        return {}
    if question.observation.at - handoff.since < STILL_SECONDS or any(shut(question, found)):
        return {}
    return held(found)


def shut(question: Question, waiting: Iterable[WaitingPartition]) -> Iterator[NodeName]:
    """The nodes of these handoffs that take part in none, as their transfer limit is 0."""
    settings: Reading[SettingsView] = question.observation.settings
    for node in sorted({node for one in waiting for node in (one.holder, one.owner)}):
        if not isinstance(settings, Unknown) and settings.at(Level.TRANSIENT, limit_key(node)) == "0":
            yield node


def advice(question: Question, riak: RiakView) -> str:
    """When what waits holds no more, and what an operator can do; empty where something moves."""
    found = still(riak)
    if not found:
        return ""
    limits = ", ".join(shut(question, found))
    if limits:
        return f": the transfer limit of {limits} is 0; set one with `riak admin transfer-limit NODE LIMIT`"
    owners = ", ".join(sorted({one.owner for one in found})[:_LISTED])
    return (
        f", to {owners}, and no transfer moves data: after {STILL_SECONDS / 60:.0f} min without a change the "
        f"run no longer waits for them; {_HELP}"
    )


_HELP: Final = (
    "`riak admin transfers` shows them, console.log on both nodes why handoff fails; check port 8099, "
    "`riak admin transfer-limit` and whether handoff is disabled"
)


def left_waiting(question: Question) -> HandoffLeftWaiting | None:
    """The event at a stop that names what waits and is not waited for; None if it is as at the last stop."""
    view, handoff = question.observation.cluster, question.state.handoff
    riak = None if isinstance(view, Unknown) else view.riak
    if riak is None or isinstance(riak.waiting, Unknown) or isinstance(riak.ring, Unknown):
        return None
    waiting = _sorted(_with_owners(riak.waiting, riak.ring))
    if waiting == handoff.left:
        return None
    same = frozenset(waiting) == frozenset(handoff.still)
    return HandoffLeftWaiting(
        partitions=waiting, seconds=question.observation.at - handoff.since if same and waiting else 0.0
    )


def shortfall(state: RunState) -> str:
    """What waited at the last stop and was not waited for, for a run's last message; empty if nothing did."""
    if not state.handoff.left:
        return ""
    return f"not waited for: {in_words(state.handoff.left)}, as before the last stop; {_HELP}"


def in_words(waiting: Iterable[WaitingPartition]) -> str:
    """By holder the number of its partitions that wait, with their owners."""
    found: dict[NodeName, set[NodeName]] = {}
    counts: dict[NodeName, int] = {}
    for one in waiting:
        found.setdefault(one.holder, set()).add(one.owner)
        counts[one.holder] = counts.get(one.holder, 0) + 1
    parts = [f"{counts[node]} on {node} for {', '.join(sorted(found[node]))}" for node in sorted(found)]
    more = f" and on {len(parts) - _LISTED} more nodes" if len(parts) > _LISTED else ""
    return f"partitions that wait for handoff: {'; '.join(parts[:_LISTED])}{more}"


def held(waiting: Iterable[WaitingPartition]) -> Held:
    """These by holder."""
    found: dict[NodeName, set[int]] = {}
    for one in waiting:
        found.setdefault(one.holder, set()).add(one.partition)
    return {node: frozenset(numbers) for node, numbers in found.items()}


def _sorted(waiting: Iterable[WaitingPartition]) -> tuple[WaitingPartition, ...]:
    return tuple(sorted(waiting, key=lambda one: (one.holder, one.partition)))
