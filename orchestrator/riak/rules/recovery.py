"""When a Riak node is back, and when the cluster has handed off what the node missed.

`riak ping` and `/ping` answer while no vnode runs; vnodes come up for some ten seconds after a start;
and a node that has just started has hints of its own to hand off (all recorded on 3.2.1). So a node is back
only when all of these agree: the node itself, a peer, the ring, and the count of its vnodes. It has recovered
when two nodes report no transfers. A small restart drains for minutes, mostly without a moving transfer, so
no stretch of waiting counts as a stall.

Partitions may wait for weeks. A node may hold data of a partition that belongs to another one: a fallback, or
what it gave away. `transfers` counts these by holder; `cluster partitions` has their numbers, and the ring
their owners. Normally a vnode is handed off a minute or two after its last message. If each handoff fails (a
port that is closed), or none begins (a transfer limit of 0, handoff that was disabled by hand), it waits for
ever. So two rules, as for copies of shards that were missing before a run:

- Before a stop, what waits holds the run until nothing has changed for `STILL_SECONDS` while no transfer
  moved data, every member was up and all vnodes ran: it does not go by itself. A restart of its holder or its
  owner may cure that, so the time begins again then. At the stop itself no transfer is active.
- After a stop, its recovery waits for everything but what waited before it, by holder and partition.

What waits may be all that a node of a preference list has of a write: a quorum had it, and the owner may lack
it. So its holder goes down alone: with an owner of the same list it could take the last copy. What nothing
shows: whether a waiting vnode holds anything at all, whether read repair or active anti-entropy have brought
it to its owner already, and whether `vnode_inactivity_timeout` was set to more than the time that is waited.

Handoff without its timers (`hasten_handoff`) takes well under a minute instead of minutes: nearly all of a
restarted node's handoff is waiting (measured on 3.2.1, ring size 64). Its vnodes are started 16 at a time
every `vnode_management_timer` (10 s), and a vnode is handed off once it was idle for
`vnode_inactivity_timeout` (60 s and more). So the restarted node's timer is set to a second, and handoff
is forced on every node, again and again. That obeys the transfer limit and goes only to owners whose
service is up. Riak calls it for "support/debug purposes". Two conditions come with it. A forced handoff would
also move partitions to new owners, so it is sent only while no change of owners is pending. And between two
ticks of the timer the transfers may be clean while some vnodes were never started. These may hold data of
other nodes, so handoff is done once all were started. If it cannot be forced, the wave waits for its
transfers as usual, and the run says so (`NotHastened`). After a force the wait lasts until Riak's own timer
has started every vnode: then clean transfers are final.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine.predicates import Finding, Question, evidence_of
from orchestrator.engine.state import RunState
from orchestrator.formats import duration
from orchestrator.model.action import ForceHandoff, SettingChange, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import BaselineRecorded, Event, FallbacksHome, RunStarted
from orchestrator.model.observation import (
    ClusterView,
    Level,
    Look,
    Observation,
    SettingsView,
    SettingValue,
)
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.plan import ValueToday
from orchestrator.model.policy import Policy
from orchestrator.model.prediction import Prediction, Usual
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.model.riak import (
    HASH_SPACE,
    ActiveTransfer,
    Membership,
    RiakView,
    Ring,
    SignsOfLife,
    Transfers,
    holder,
    is_limit,
    is_timer,
    limit_key,
    timer_key,
)
from orchestrator.model.work_event import HandoffLeftWaiting, HandoffWaits, NotHastened, WaitingPartition

ASKED_AT_LEAST: Final = 2
"""Nodes that must report no transfers: one node does not report nodes that it cannot reach."""

# What waits ------------------------------------

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
    for node, numbers in waiting.items():
        for number in numbers:
            yield WaitingPartition(partition=number, holder=node, owner=ring.owners[number])


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
    if _unchanged(question) < STILL_SECONDS or any(shut(question, found)):
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
    return HandoffLeftWaiting(partitions=waiting, seconds=_unchanged(question) if same and waiting else 0.0)


def _unchanged(question: Question) -> Seconds:
    """For how long the readings have shown the same partitions."""
    return question.state.process.clock.passed(question.state.handoff.since, question.observation.at)


def in_words(waiting: Iterable[WaitingPartition]) -> str:
    """By holder the number of its partitions that wait, with their owners."""
    owners: dict[NodeName, list[NodeName]] = {}
    for one in waiting:
        owners.setdefault(one.holder, []).append(one.owner)
    parts = [f"{len(of)} on {node} for {', '.join(sorted(set(of)))}" for node, of in sorted(owners.items())]
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


# Whether anything is handed off ------------------------------------


def unclean(view: RiakView, excused: Held) -> Iterator[Finding]:
    """Transfers that run, wait or are unknown; without what is excused."""
    if isinstance(view.transfers, Unknown):
        yield "transfers", view.transfers
        return
    for asked, transfers in view.transfers.items():
        if isinstance(transfers, Unknown):
            yield f"transfers by {asked}", transfers
        elif not (left := less(transfers, view, excused)).clean:
            yield f"transfers by {asked}", "; ".join(what_transfers(left))
    known = ASKED_AT_LEAST if isinstance(view.cluster, Unknown) else len(view.cluster.members)
    wanted = min(ASKED_AT_LEAST, known)
    if len(view.transfers) < wanted:
        yield "transfers", f"{len(view.transfers)} nodes were asked instead of {wanted}"


def what_transfers(transfers: Transfers) -> Iterator[str]:
    """Everything that keeps transfers from being clean, for people."""
    for node in transfers.down:
        yield f"{node} is down"
    for count in transfers.waiting:
        yield f"{count.node} has {count.partitions} partitions waiting to be handed off"
    for count in transfers.not_running:
        yield f"{count.node} does not run {count.partitions} of its primary partitions"
    for active in transfers.active:
        yield f"a transfer ({active.kind}) to {active.target} is active"
    for node in transfers.uncontacted:
        yield f"{node} could not be contacted"


# Whether a node is back ------------------------------------


def baseline_of(view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
    """The members that are up, and their lives. None may be missing at the start: predicates check that."""
    lives = {node.name: node.incarnation for node in view.nodes}
    partitions = view.riak.ring_size if view.riak is not None else None
    return BaselineRecorded(missing=(), incarnations=lives, boots=boots, partitions=partitions)


def not_back(view: ClusterView, node: NodeName) -> str | None:
    """What a node that is up lacks to count as back; None when it lacks nothing."""
    return next(_lacking(view, node), None)


def _lacking(view: ClusterView, node: NodeName) -> Iterator[str]:
    riak = view.riak
    if riak is None:
        yield "the ring was not read"
        return
    signs = riak.signs.get(node, SignsOfLife())
    if isinstance(signs.ping, Unknown) or not signs.ping:
        yield f"/ping: {signs.ping.reason if isinstance(signs.ping, Unknown) else 'no answer'}"
    yield from _vnodes_run(riak, signs, node)
    yield from _peers_see(riak, view, node)
    # Only commands show the rest. They run once the checks above pass.
    yield from _ring_agrees(riak, view)
    if isinstance(signs.service, Unknown):
        yield f"riak_kv, asked of a peer: {signs.service.reason}"
    elif not signs.service.up:
        yield f"riak_kv is not up, asked of a peer: {signs.service.last}"


def _ring_agrees(riak: RiakView, view: ClusterView) -> Iterator[str]:
    ready = riak.ring_ready
    if isinstance(ready, Unknown):
        yield f"ringready: {ready.reason}"
    elif not ready.agreed:
        apart = ", ".join((*ready.down, *ready.differing)) or "the nodes"
        yield f"ringready: {apart} do not agree on the ring"
    elif not view.members.keys() <= set(ready.nodes):
        unasked = ", ".join(sorted(view.members.keys() - set(ready.nodes)))
        yield f"ringready: {unasked} did not answer"


def _peers_see(riak: RiakView, view: ClusterView, node: NodeName) -> Iterator[str]:
    for peer in (name for name in view.members if name != node):
        stats = riak.signs.get(peer, SignsOfLife()).stats
        if isinstance(stats, Unknown):
            yield f"whether {peer} is connected to it is unknown: {stats.reason}"
        elif node not in stats.connected:
            yield f"{peer} is not connected to it"


def _vnodes_run(riak: RiakView, signs: SignsOfLife, node: NodeName) -> Iterator[str]:
    stats = signs.stats
    if isinstance(stats, Unknown):
        yield f"its vnodes cannot be counted: {stats.reason}"
        return
    owned = stats.ownership.get(node, 0)
    members = () if isinstance(riak.cluster, Unknown) else riak.cluster.members
    if not owned and any(each.node == node and each.ring_share for each in members):
        yield "its own ring gives it no partitions, and that of the cluster does"
    if stats.kv_vnodes < owned:
        yield f"{stats.kv_vnodes} of its {owned} vnodes run"


def unsettled(state: RunState, view: ClusterView) -> str | None:
    """Transfers that still run or are unknown, for people; None when two nodes report no transfers.

    What waited before the stop is not waited for. The counters in `/stats` can prove that handoff still runs.
    They never prove that it is done.
    """
    if view.riak is None:
        return "the transfers were not read"
    if view.riak.beyond:
        return f"{sum(view.riak.beyond.values())} vnodes to be handed off to their owners, by /stats"
    found = next(unclean(view.riak, held(state.handoff.left)), None)
    return unstarted(state, view.riak) if found is None else f"{found[0]}: {evidence_of(found[1])}"


# The limits of transfers ------------------------------------

# A limit is how many transfers a node takes part in at a time, 2 unless configured otherwise. It is not a
# cluster setting but a number in each node's memory: a stop clears it, and a start reads it from the node's
# files. So a restarted node does not show the limit that it had before. The run still restores that limit.


def limit_changes(state: RunState, settings: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
    """The limits that are lower than wanted, raised; of a restarted node, with what was found before that.

    One that is high enough already is written down too before its node is restarted: it is forgotten then.
    """
    if policy.transfer_limit is None:
        return ()
    changes: list[SettingChange] = []
    for key, value in sorted(settings.transient.items()):
        if not (is_limit(key) and isinstance(value, str) and value.isdecimal()):
            continue
        found = _found(state, key, value)
        wanted = max(int(found), policy.transfer_limit)
        if int(value) < wanted or _to_be_forgotten(state, key):
            changes.append(
                SettingChange(level=Level.TRANSIENT, key=key, found=found, wanted=str(wanted)),
            )
    return tuple(changes)


def _found(state: RunState, key: str, value: str) -> str:
    debt, restarted = state.unrestored.settings.get((Level.TRANSIENT, key)), holder(key) in state.forgetful
    return debt.found if debt is not None and restarted and isinstance(debt.found, str) else value


def _to_be_forgotten(state: RunState, key: str) -> bool:
    """Whether its node is still to be restarted and its original value is not recorded."""
    node = state.nodes.get(holder(key) or NodeName(""))
    pending = node is not None and node.phase is NodePhase.PENDING
    return pending and (Level.TRANSIENT, key) not in state.unrestored.settings


# Handoff without its timers ------------------------------------

TIMER_MILLISECONDS: Final = 1000
TICK_SECONDS: Final[Seconds] = 10.0
"""`vnode_management_timer`, unless it is shortened."""
_MODULES: Final = 2
"""`riak_kv` and `riak_pipe` have a vnode each for every partition."""
_ROLLING_START: Final = 16
"""`vnode_rolling_start`: a node that has started starts so many vnodes at each tick, to look for hints."""
_LARGEST_RING: Final = 1024
"""Partitions of a ring whose size was not read; a smaller number could end the wait too early."""
_LEEWAY_SECONDS: Final[Seconds] = 60.0
"""For the first tick, and for a slow host; handoff that takes less time needs no force."""
_FAILING_SECONDS: Final[Seconds] = 30.0
"""After a force was accepted, failures for less than this are not reported."""
_VERSION: Final = re.compile(r"3\.2(?!\d)")
"""Versions whose vnode manager's own record has been read in the source."""
_PHASES: Final = frozenset({Phase.REASSIGNED, Phase.FINISHING, Phase.STANDING_DOWN})
"""Phases in which handoff is hastened, and phases in which the timers are restored."""


def impossible(version: str) -> str | None:
    """Why handoff of this version of Riak cannot be hastened; None where it can be."""
    return (
        None if _VERSION.match(version.strip()) else f"only Riak 3.2 can be hastened, and this is {version}"
    )


def ticks_of(partitions: int) -> float:
    """How often a vnode manager starts vnodes until all of a ring of this size are started."""
    return partitions * _MODULES / _ROLLING_START


def planned_too(policy: Policy) -> frozenset[Look]:
    """The timers, for the plan of a run that shortens them."""
    return frozenset({Look.PACE}) if policy.hasten_handoff else frozenset()


def reads_too(state: RunState) -> frozenset[Look]:
    """The pace of handoff, for a run that hastens it, or that restores a timer of such a run."""
    unrestored = any(is_timer(key) for _, key in state.unrestored.settings)
    paced = state.begun.policy.hasten_handoff or unrestored
    return frozenset({Look.PACE}) if paced and state.phase in _PHASES else frozenset()


def timer_changes(state: RunState, settings: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
    """The timers of nodes that were restarted, shortened; never made longer."""
    if not policy.hasten_handoff:
        return ()
    return tuple(
        SettingChange(level=Level.TRANSIENT, key=key, found=value, wanted=str(TIMER_MILLISECONDS))
        for key, value in sorted(settings.transient.items())
        if is_timer(key) and holder(key) in state.forgetful
        if isinstance(value, str) and value.isdecimal() and int(value) > TIMER_MILLISECONDS
    )


def raised(settings: SettingsView, policy: Policy, state: RunState) -> tuple[SettingChange, ...]:
    """The transfer limits of all nodes, and with `hasten_handoff` the timers of restarted ones."""
    return (*limit_changes(state, settings, policy), *timer_changes(state, settings, policy))


def value_today(
    settings: SettingsView, key: str, wanted: SettingValue | None, _begun: RunStarted
) -> ValueToday:
    """The number in the memory of a node, and how many times as high the wanted one is."""
    found = settings.effective(key)
    if found is None:
        return ValueToday()
    before, after = (
        int(value) if isinstance(value, str) and value.isdecimal() else 0 for value in (found, wanted)
    )
    times = after / before if 0 < before < after else None
    return ValueToday(value=found, source=Level.TRANSIENT.value, times=times)


def hastened(
    state: RunState, view: ClusterView, now: Instant
) -> tuple[ForceHandoff | None, tuple[Event, ...]]:
    """Handoff is forced. New is that only the wave itself has data left, or that it cannot be forced."""
    events = (home(state, view, now), given_up(state, view, now))
    return forced(state, view), tuple(event for event in events if event is not None)


def forced(state: RunState, view: ClusterView) -> ForceHandoff | None:
    """The verb that forces handoff on every node; None if it is not wanted, or would move owners."""
    riak = view.riak
    if riak is None or not state.begun.policy.hasten_handoff:
        return None
    return ForceHandoff() if next(against(view, riak), None) is None else None


def against(view: ClusterView, riak: RiakView) -> Iterator[str]:
    """Why handoff is not forced by this reading."""
    yield from _uncounted(view, riak)
    status = riak.cluster
    if isinstance(status, Unknown):
        yield f"`cluster status` cannot be read: {status.reason}"
    elif any(m.membership is not Membership.VALID or m.pending_share is not None for m in status.members):
        yield "partitions are to change their owner, and forcing handoff would move these too"
    elif status.ring_ready is False:
        yield "the ring is not ready"


def _uncounted(view: ClusterView, riak: RiakView) -> Iterator[str]:
    """The members with an unknown number of vnodes that are not started, each with the reason."""
    never = impossible(view.version)
    if never is not None:
        yield never
    for name in sorted(view.members):
        count = riak.unstarted.get(name, Unknown(reason="it was not read"))
        if isinstance(count, Unknown):
            yield _uncounted_of(name, count)


def _uncounted_of(name: NodeName, count: Unknown) -> str:
    return f"the vnodes that {name} has not started are unknown: {count.reason}"


def unstarted(state: RunState, riak: RiakView) -> str | None:
    """Why clean transfers may be clean only for a moment; None if they are done.

    Without an answer they may be so only after a force, until `given_up`. A force that a former process of
    the run sent is not on record in this phase.
    """
    lost, here = state.failure_of(ForceHandoff()), state.in_phase
    perhaps = (lost is not None and lost.in_doubt) or (state.process.resumed and here.before is None)
    was_forced = ForceHandoff() in here.confirmed or perhaps
    for name, count in sorted(riak.unstarted.items()):
        if not isinstance(count, Unknown) and count:
            return f"{name} has not started {count} of its vnodes yet, which may hold data of other nodes"
        if isinstance(count, Unknown) and (was_forced or count.passes) and not here.usual_pace:
            return _uncounted_of(name, count)
    return None


def given_up(state: RunState, view: ClusterView, now: Instant) -> NotHastened | None:
    """While handoff is waited for: that this is done at Riak's own pace; None otherwise, or if said.

    At once where it cannot be hastened. Otherwise once it could not be forced for as long as Riak itself
    takes to start every vnode: none that was not started at the last force is left then.
    """
    if view.riak is None or not state.begun.policy.hasten_handoff or state.in_phase.usual_pace:
        return None
    never = impossible(view.version)
    if never is not None:
        return NotHastened(nodes=_restarted(state), why=never)
    known = state.baseline.partitions if state.baseline else None
    longest = ticks_of(known or _LARGEST_RING) * TICK_SECONDS + _LEEWAY_SECONDS
    if state.process.clock.passed(max(state.in_phase.since, state.process.acted_at), now) <= longest:
        return None
    why = next(against(view, view.riak), None)
    return NotHastened(nodes=_restarted(state), why=why) if why is not None else None


def missed(
    state: RunState, view: ClusterView, settings: Reading[SettingsView], now: Instant
) -> NotHastened | None:
    """When handoff of a wave is done: that it was not or only partly hastened; None otherwise or if said."""
    if view.riak is None or not state.begun.policy.hasten_handoff or state.in_phase.usual_pace:
        return None
    why = next(_uncounted(view, view.riak), None) or _not_forced(state, now)
    if why is not None:
        return NotHastened(nodes=_restarted(state), why=why)
    slow = {} if isinstance(settings, Unknown) else _slow_timers(state, settings)
    return NotHastened(nodes=tuple(slow), why=next(iter(slow.values()))) if slow else None


def _not_forced(state: RunState, now: Instant) -> str | None:
    """That forcing handoff was never accepted in this phase, or has failed for a while since."""
    failure, since = state.failure_of(ForceHandoff()), state.failing_since(ForceHandoff())
    once, passed = ForceHandoff() in state.in_phase.confirmed, state.process.clock.passed
    waited = passed(state.in_phase.since, now)
    if failure is not None and since is not None:
        passing = once and passed(since, now) < _FAILING_SECONDS
        return None if passing else f"it could not be forced: {failure.reason}"
    if once or waited <= _LEEWAY_SECONDS:
        return None
    return f"it was never forced in the {duration(waited)} until it was done"


def _slow_timers(state: RunState, settings: SettingsView) -> dict[NodeName, str]:
    """The restarted nodes whose vnode manager keeps its usual time, each with the reason."""
    writes = (one for one in state.in_phase.failed if isinstance(one.action, WriteSettings))
    failed = next((f": {one.reason}" for one in writes), "")
    slow: dict[NodeName, str] = {}
    for name in _restarted(state):
        value = settings.at(Level.TRANSIENT, timer_key(name))
        if value is None and (Level.TRANSIENT, timer_key(name)) not in state.unrestored.settings:
            slow[name] = "its vnodes start at their usual pace: its vnode_management_timer cannot be read"
        elif isinstance(value, str) and value.isdecimal() and int(value) > TIMER_MILLISECONDS:
            slow[name] = f"its vnodes start at their usual pace, every {value} ms{failed}"
    return slow


def _restarted(state: RunState) -> tuple[NodeName, ...]:
    return tuple(node.name for node in state.wave_nodes if node.phase is NodePhase.REJOINED)


def home(state: RunState, view: ClusterView, now: Instant) -> FallbacksHome | None:
    """The event that only the wave's own nodes have data to hand off; None otherwise, and after the first."""
    if view.riak is None or state.wave is None or state.in_phase.home:
        return None
    holders = _holders(view.riak, held(state.handoff.left))
    if holders is None or holders - set(state.wave.nodes):
        return None
    return FallbacksHome(number=state.wave.number, seconds=now - state.wave_since)


def _holders(riak: RiakView, before: Held) -> frozenset[NodeName] | None:
    """The nodes that have something to hand off, by the nodes that were read; None without every answer.

    Without what waited before the stop.
    """
    if riak.beyond:
        return frozenset(riak.beyond)
    if isinstance(riak.transfers, Unknown) or not riak.transfers:
        return None
    found: set[NodeName] = set()
    for each in riak.transfers.values():
        if not isinstance(each, Transfers) or each.down or any(one.source is None for one in each.active):
            return None
        found.update(line.node for line in less(each, riak, before).waiting)
        found.update(one.source for one in each.active if one.source is not None)
    return frozenset(found)


def shortfall(state: RunState, _view: ClusterView | None = None) -> str:
    """For a run's last message, what was not hastened and what was not waited for; empty if nothing.

    The nodes after whose restart handoff was not hastened, and what waited at the last stop.
    """
    nodes_of: dict[str, list[NodeName]] = {}
    for name, why in state.unhastened.items():
        nodes_of.setdefault(why, []).append(name)
    said = []
    if nodes_of:
        nodes = "; ".join(f"{', '.join(names)} ({why})" for why, names in nodes_of.items())
        said.append(f"handoff was not hastened after the restart of {nodes}")
    if state.handoff.left:
        said.append(f"not waited for: {in_words(state.handoff.left)}, as before the last stop; {_HELP}")
    return "; ".join(said)


# How long it takes ------------------------------------

# Measured on five nodes of 3.2.1 with a ring of 64 partitions: 200 to 250 s a node. A transfer of a hint took
# 0.09 s; the rest is Riak's waiting (read in the source of riak_core).

_UP_AGAIN_SECONDS: Final[Seconds] = 45.0
"""Stop 6 to 11, start 4 to 7, until it counts as back 25 to 29."""
_INACTIVE_SECONDS: Final[Seconds] = 60.0
"""`vnode_inactivity_timeout`: a vnode hands off after so long without a message, and up to as long again."""
_HASTENED_SECONDS: Final[Seconds] = 15.0
"""From then on, with `hasten_handoff`: all was clean 34 s after the stop, by a loop that did nothing else."""
_USUAL_RING: Final = 64
"""Partitions of a ring whose size was not read: Riak's own default."""


def usual_restart(seen: Observation, policy: Policy) -> Usual:
    """The time of a node from its stop until handoff is done, without a past run to go by.

    It is by Riak's own timers and the size of the ring. Where handoff cannot be hastened it takes its usual
    time; a node whose timer was not read is not hastened.
    """
    view = None if isinstance(seen.cluster, Unknown) else seen.cluster
    read = view.riak.ring_size if view is not None and view.riak is not None else None
    size = read or _USUAL_RING
    ticks = ticks_of(size)
    never = _not_hastened(view, seen.settings) if policy.hasten_handoff and view is not None else None
    if policy.hasten_handoff and never is None:
        low = _UP_AGAIN_SECONDS + ticks * TIMER_MILLISECONDS / 1000
        likely = low + _HASTENED_SECONDS
        return Usual(
            node=Prediction(low=low, likely=likely, high=likely + _INACTIVE_SECONDS),
            rests_on=f"hastened handoff: {duration(ticks)} to start the vnodes of a ring of {size} "
            f"partitions, {duration(_UP_AGAIN_SECONDS)} to stop and start; large data takes longer",
        )
    rolling = ticks * TICK_SECONDS
    low = _UP_AGAIN_SECONDS + rolling + _INACTIVE_SECONDS
    likely = low + _INACTIVE_SECONDS
    ring = "a ring of" if read else "the usual ring of"
    idle = f"{duration(_INACTIVE_SECONDS)} to {duration(2 * _INACTIVE_SECONDS)}"
    return Usual(
        # A handoff that is refused at the transfer limit waits once more, as long as the first time.
        node=Prediction(low=low, likely=likely, high=likely + 2 * 2 * _INACTIVE_SECONDS),
        rests_on=f"Riak's default timers: {duration(rolling)} to start the vnodes of {ring} {size} "
        f"partitions, {idle} without a message until a vnode hands off, {duration(_UP_AGAIN_SECONDS)} to "
        "stop and start; large data takes longer",
        instead=f"handoff is not hastened: {never}" if never is not None else "",
    )


def _not_hastened(view: ClusterView, settings: Reading[SettingsView]) -> str | None:
    """Why the time of a hastened restart cannot be promised; None where nothing is known to be against it."""
    unread = [
        node.name
        for node in view.nodes
        if not isinstance(settings, Unknown) and timer_key(node.name) not in settings.transient
    ]
    untimed = f"vnode_management_timer of {', '.join(unread)} cannot be read" if unread else None
    return impossible(view.version) or untimed
