"""The input of a decision, its result, and the reading for it.

A `Situation` is the state, the policy, the reading and the time: all that code of the core may use. A
`Decision` is the result: events to commit, actions to perform, or something to listen to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar, overload

from orchestrator.engine import limits
from orchestrator.engine.clock import UNWATCHED_SECONDS
from orchestrator.engine.fold import evolve
from orchestrator.engine.gates import gates_are_asked
from orchestrator.engine.kind import KindOfCluster
from orchestrator.engine.limits import Limit
from orchestrator.engine.memory import Absence
from orchestrator.engine.phases import READS, HostsRead
from orchestrator.engine.progress import Mark, NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, HostAction, RunHook, RunInstall
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.event import ActionSent, Event, Hold, Record, StandingDown, run_phase
from orchestrator.model.observation import (
    ClusterView,
    ClusterWatch,
    HostView,
    Look,
    NodesJoined,
    Observation,
    Watch,
)
from orchestrator.model.phase import Goal, NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Seconds, Unknown

_About = TypeVar("_About")

POLL_SECONDS: Final[Seconds] = 2.0
"""How long a decision listens before it reads again in any case: no reading in a wait is older."""

_PART_WAITED: Final = 0.1
_LONGEST_PAUSE: Final[Seconds] = 15.0
"""While copies recover, a long poll ends the wait. Beside it the state is read at most every 2 s, and less
and less often: a reading is late by a tenth of the time that was waited, and by 15 s at most."""

QUICK_SECONDS: Final[Seconds] = 0.2
"""Seconds between readings that must agree in a row: far enough apart to be different."""

RETRY_SECONDS: Final[Seconds] = 5.0
"""Seconds before a verb that was refused or is in doubt is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next step of a run.

    The events are committed first; if that fails, no action is performed. Then the actions are performed, and
    each outcome is an event too. Then, unless something happened, the shell listens to `watch` and looks
    again.
    """

    events: tuple[Event, ...] = ()  # to be committed, `ActionSent` for each action among them
    actions: tuple[Action, ...] = ()  # to be performed once the events are committed
    holds: tuple[Hold, ...] = ()  # why the run does not continue, as of this reading
    watch: Watch | None = None  # what to listen to until then; None = look again at once
    # before a stop, the nodes whose hosts the next reading reads; None = as the phase has it
    hosts: frozenset[NodeName] | None = None
    finished: bool = False  # whether the next reading of recoveries includes those that have ended

    @property
    def at_once(self) -> bool:
        """Whether nothing is performed and the run does not wait: it commits events, or reads again."""
        return not self.actions and self.watch is None


class Retry(Enum):
    """When an action may be sent that was perhaps tried before."""

    NOW = "it did not fail, or its pause is over"
    LATER = "it failed a moment ago"
    NEVER = "it was refused for good, or has failed for too long"


def _is_same_work(tried: Action, action: Action) -> bool:
    """Whether both do the same. Each refused try of an install step had a ticket of its own."""
    if isinstance(tried, RunInstall) and isinstance(action, RunInstall):
        return (tried.node, tried.number) == (action.node, action.number)
    return tried == action


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a step of a decision needs."""

    state: RunState
    policy: Policy
    kind: KindOfCluster
    seen: Observation
    now: Instant

    def after(self, *events: Event) -> Situation:
        """The situation once these events are committed; the reading stays the same."""
        state = self.state
        for event in events:
            state = evolve(state, Record(run=state.run, sequence=0, at=self.now, event=event))
        return Situation(state=state, policy=self.policy, kind=self.kind, seen=self.seen, now=self.now)

    @property
    def view(self) -> ClusterView | None:
        """The cluster state if it is known *and* has an elected master, else None."""
        view = self.seen.cluster
        return None if isinstance(view, Unknown) or view.master is None else view

    @property
    def fresh(self) -> bool:
        """Whether the reading was begun after the last thing that the run did."""
        return self.seen.at >= self.state.process.acted_at

    @property
    def readable(self) -> bool:
        """Whether the cluster state and the settings were read."""
        return self.view is not None and not isinstance(self.seen.settings, Unknown)

    @property
    def unread_for_now(self) -> bool:
        """Whether the state before an upgrade was not read, or in part, and may be a little later."""
        found = self.seen.upgrade
        parts = (found,) if isinstance(found, Unknown) else (found.deprecations, found.snapshot_ended)
        return any(isinstance(part, Unknown) and part.passes for part in parts)

    @property
    def settled(self) -> bool:
        """Whether health was read, in a current reading."""
        return not isinstance(self.seen.health, Unknown) and self.seen.health.settled

    @property
    def hosts(self) -> dict[NodeName, HostView]:
        """The hosts that were read."""
        return {name: host for name, host in self.seen.hosts.items() if not isinstance(host, Unknown)}

    def member(self, name: NodeName) -> Node | None:
        """The node as the master lists it; None when it is absent, or nothing was read."""
        return self.view.node(name) if self.view else None

    def goal(self, node: NodeProgress) -> Goal:
        """The goal of a node: a run that stands down, or that was deposed, only brings nodes up."""
        down = self.state.phase is Phase.STANDING_DOWN or self.state.process.deposed is not None
        return Goal.BRING_UP if down else node.goal

    def same_process(self, node: NodeProgress) -> bool:
        """Whether the node is a member in the life accounted for."""
        member = self.member(node.name)
        return member is not None and node.life is not None and member.incarnation.is_same_as(node.life)

    def rebooted(self, node: NodeProgress) -> bool:
        """Whether the node's host provably has another boot id than in the last life accounted for."""
        host = self.seen.host(node.name)
        return (
            not isinstance(host, Unknown)
            and None not in (host.boot_id, node.boot)
            and host.boot_id != node.boot
        )

    @overload
    def over(self, limit: Limit[None]) -> Seconds | None: ...
    @overload
    def over(self, limit: Limit[_About], about: _About) -> Seconds | None: ...
    def over(self, limit: Limit[Any], about: object = None) -> Seconds | None:
        """How long a wait may last, once it has lasted longer; None before. See `clock`."""
        now = self.now if limit.real else min(self.now, self.seen.at + UNWATCHED_SECONDS)
        return limit.over(self.state, about, self.seen.at if limit.by_reading else now)

    def rested(self, pause: Seconds = RETRY_SECONDS) -> bool:
        """Whether the run has sent nothing, and had no outcome, for so long."""
        return self.now - self.state.process.acted_at >= pause

    def retry(self, action: Action, *, pause: Seconds = RETRY_SECONDS) -> Retry:
        """When an action may be sent that may have failed since the phase was entered.

        A hook or an install step runs once: if its host refuses it, that is for good. If the host was out of
        reach, it is sent again, but not forever. An install step in doubt is sent again too, since its ticket
        keeps it from being done twice. All other actions end with the limits of their phase.
        """
        failing = [one for one in self.state.in_phase.failing if _is_same_work(one.last.action, action)]
        if not failing:
            return Retry.NOW
        last = failing[-1].last
        if isinstance(action, RunHook | RunInstall):
            passes = last.passes or (last.in_doubt and isinstance(action, RunInstall))
            if not passes or self.fails_too_long(failing[0].last.action):
                return Retry.NEVER
        return Retry.NOW if self.rested(pause) else Retry.LATER

    def fails_too_long(self, action: Action) -> bool:
        """Whether an action has failed for longer than it is sent again, from its first failure in a row."""
        return self.over(limits.FAILING, action) is not None

    def machine(self, node: NodeProgress) -> tuple[NodeProgress, ...]:
        """The nodes of the wave that go down and come up with a node's machine, itself included."""
        names = self.state.wave.machine(node.name) if self.state.wave else (node.name,)
        return tuple(self.state.nodes[name] for name in names)

    def absence(self, name: NodeName) -> Absence | None:
        """The absence of a member once enough readings in a row agree on it; None before."""
        absence = self.state.process.absent.get(name)
        if absence is None or absence.readings < self.policy.settle_consecutive:
            return None
        return absence

    def has_left(self, name: NodeName) -> bool:
        """Whether a member is gone: as many readings as for coming back, and at least half a minute."""
        return self.absence(name) is not None and self.over(limits.LEAVING, name) is not None

    @property
    def absent_members(self) -> tuple[NodeName, ...]:
        """Members that the cluster cannot spare and that are missing, besides what the wave took down.

        Those that a lost stop took down after all are among them, also while this run starts them.
        """
        spared = set(self.state.baseline.bystanders) if self.state.baseline else set[NodeName]()
        given_up = {node.name for node in self.state.nodes_in(NodePhase.FAILED, NodePhase.SKIPPED)}
        starting = self.state.nodes_in(NodePhase.STARTING)
        late = {node.name for node in starting if node.goal is Goal.BRING_UP}
        return tuple(sorted((self.state.process.absent.keys() | late) - spared - given_up))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStep:
    """What one node does by this reading; all empty = it waits."""

    enter: NodePhase | None = None  # after `events`
    why: str = ""  # it enters that phase
    events: tuple[Event, ...] = ()
    actions: tuple[HostAction, ...] = ()
    flip: str | None = None  # the reason to stand down; None = the run continues
    overdue: bool = False  # the reason is that the time of this node is over


def act(*actions: Action, events: Iterable[Event] = ()) -> Decision:
    """Commit these events, then perform these actions."""
    sent = tuple(ActionSent(action=action) for action in actions)
    return Decision(events=(*events, *sent), actions=actions)


def note(*events: Event) -> Decision:
    """Commit these events, then decide again."""
    return Decision(events=events)


LOOK_AGAIN: Final = Decision()
"""The reading is older than the last action of the run: read again at once."""


def pause_after(waited: Seconds) -> Seconds:
    """Until the next reading while copies recover; a long poll may end it."""
    return min(max(POLL_SECONDS, _PART_WAITED * waited), _LONGEST_PAUSE)


def wait(
    now: Instant,
    for_people: str = "",
    *,
    seconds: Seconds = POLL_SECONDS,
    cluster: ClusterWatch | None = None,
    services: Iterable[NodeName] = (),
    holds: tuple[Hold, ...] = (),
    events: tuple[Event, ...] = (),
) -> Decision:
    """Listen at most so long, then look again; `for_people` is that of the `Watch`."""
    watch = Watch(until=now + seconds, cluster=cluster, services=frozenset(services), for_people=for_people)
    return Decision(events=events, holds=holds, watch=watch)


def stand_down(
    state: RunState,
    reason: str,
    outcome: Outcome,
    *events: Event,
    overdue: Iterable[NodeName] = (),
    failed: Iterable[NodeName] = (),
    hook_on: NodeName | None = None,
    names_hold: bool = False,
    never_began: bool = False,
) -> Decision:
    """Stop safely: nodes are brought up, settings restored, and the run can be resumed.

    Nodes that are `overdue` are not waited for any more. What the reason speaks of (nodes that `failed`, a
    hook, a hold) is not said again at the end of the run.
    """
    why = StandingDown(
        reason=reason,
        outcome=outcome,
        overdue=tuple(overdue),
        failed=tuple(failed),
        hook_on=hook_on,
        names_hold=names_hold,
        never_began=never_began,
    )
    return note(
        *events,
        why,
        run_phase(state.phase, Phase.STANDING_DOWN, why=reason),
    )


def members_awaited(situation: Situation) -> ClusterWatch | None:
    """Listen for nodes to join while some are absent: with all present the long poll would not wait."""
    if situation.view is None or situation.state.baseline is None:
        return None
    expected = len(set(situation.state.baseline.incarnations) | {n.name for n in situation.view.nodes})
    return NodesJoined(count=expected) if len(situation.view.nodes) < expected else None


# What to read ------------------------------------


def needed(
    kind: KindOfCluster, state: RunState, last: Decision
) -> tuple[frozenset[Look], frozenset[NodeName]]:
    """What to read for the next decision, and which nodes' hosts: as little as it needs.

    A run that has changed nothing and is to end needs no reading: one may take minutes where nothing answers.

    Args:
        kind: of its cluster.
        state: of the run.
        last: the decision before, which may ask for more.
    """
    if _only_ends(state):
        return frozenset(), frozenset()
    reads = READS[state.phase]
    look = reads.look
    if not gates_are_asked(state):
        look -= {Look.GATES}
    if state.phase is Phase.FINISHING and (state.unrestored.anything or not state.merging.indices):
        look -= {Look.BULK}  # at the end segments are counted last: nothing is restored later because of that
    hosts = _hosts_needed(state, reads.hosts, last.hosts)
    if last.finished and Look.RECOVERIES in look:
        look |= {Look.FINISHED}
    look |= kind.reads_too(state)
    if state.begun.policy.upgrade is not None and state.phase is Phase.GATED and not state.waves_begun:
        look |= {Look.UPGRADE}
    if state.phase is Phase.MERGING and (state.merging.begun or not state.unfinished):
        look -= {Look.RECOVERIES, Look.HOSTS, Look.HOST_RIGHTS}
        hosts = frozenset()
    return (look if hosts else look - {Look.HOSTS, Look.HOST_RIGHTS}), hosts


def _only_ends(state: RunState) -> bool:
    """Whether the run is to end, has changed nothing, and has sent no verb that may still take effect."""
    ends = state.phase is Phase.STANDING_DOWN or state.process.request in (Request.STOP, Request.INTERRUPT)
    open_ = bool(state.nodes.of(Mark.OPEN))
    return ends and state.untouched and not open_


def _hosts_needed(
    state: RunState, hosts: HostsRead, asked: frozenset[NodeName] | None
) -> frozenset[NodeName]:
    wave = frozenset(state.wave.nodes) if state.wave else frozenset[NodeName]()
    # An install step bars another one on its machine, also after its node was started beside it.
    open_ = {node.name for mark in (Mark.OPEN, Mark.INSTALLS) for node in state.nodes.of(mark)}
    late = frozenset(name for name in state.process.absent if name in state.nodes) | open_
    match hosts:
        case HostsRead.NONE:
            return frozenset()
        case HostsRead.PENDING:
            return frozenset(state.unfinished) | late
        case HostsRead.CANDIDATES if asked is not None:
            return asked | late
        case HostsRead.CANDIDATES:
            # All at the beginning, so that everything that holds the run is reported at once.
            held = state.in_phase.holds or state.process.called_off_since is not None
            all_ = not (state.waves_begun or held)
            return (frozenset(state.unfinished) if all_ else wave or _likely(state)) | late
        case HostsRead.WAVE:
            return wave | late
        case HostsRead.ABSENT:
            return late
        case HostsRead.OURS:
            return frozenset(node.name for node in state.in_turn) | late


def _likely(state: RunState) -> frozenset[NodeName]:
    """The next wave if nothing holds it. Another wave costs one more reading."""
    waiting = state.nodes_in(NodePhase.PENDING)
    pending = {node.name for node in waiting}
    planned = (found for group in state.begun.planned if (found := pending.intersection(group)))
    return frozenset(next(planned, {node.name for node in waiting[:1]}))
