"""Small pieces from which decisions are put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.decision import Decision
from orchestrator.engine.kinds.kind import KindOfCluster
from orchestrator.engine.state import NodeProgress, RunState
from orchestrator.model.action import Action
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.event import ActionSent, Event, Hold, StandingDown, run_phase
from orchestrator.model.observation import ClusterView, HostView, Observation, ServiceState
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Seconds, Unknown
from orchestrator.model.watch import ClusterWatch, Watch

POLL_SECONDS: Final = 2.0
"""How long a decision listens before it looks again all the same: nothing that we wait for is older."""

QUICK_SECONDS: Final = 0.2
"""Between readings that must agree in a row: far enough apart to be different ones."""

RETRY_SECONDS: Final = 5.0
"""Before a verb that was refused or is in doubt is sent again."""

GRACE_SECONDS: Final = 3.0
"""A service manager may show the state of before a verb for a moment after it has accepted the verb."""


_UP: Final = (ServiceState.RUNNING, ServiceState.STARTING)
_ON_THE_WAY_DOWN: Final = (NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.TUNED)

DOUBT_SECONDS: Final = 30.0
"""A stop whose connection was lost may reach a slow host later: until then it may still be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a step of a decision needs."""

    state: RunState
    policy: Policy
    kind: KindOfCluster
    seen: Observation
    now: Instant

    @property
    def view(self) -> ClusterView | None:
        """The cluster state if it is known *and* a master stands behind it, else None."""
        view = self.seen.cluster
        return None if isinstance(view, Unknown) or view.master is None else view

    @property
    def fresh(self) -> bool:
        """Whether the reading was begun after the last thing we did."""
        return self.seen.at >= self.state.acted_at

    @property
    def hosts(self) -> dict[NodeName, HostView]:
        """The hosts that were read."""
        return {name: host for name, host in self.seen.hosts.items() if not isinstance(host, Unknown)}

    def member(self, name: NodeName) -> Node | None:
        """The node as the master lists it; None when it is away or nobody knows."""
        return self.view.node(name) if self.view else None

    def reborn(self, node: NodeProgress) -> bool:
        """Whether the node is back: in the cluster in another life than before its wave.

        While a reboot of its host is awaited, a life of the boot before it is none: it ends with that boot.
        """
        member = self.member(node.name)
        if member is None or node.before is None or not member.incarnation.differs_from(node.before):
            return False
        return not self.reboot_awaited(node)

    def to_reboot(self, node: NodeProgress) -> bool:
        """Whether its host is to be rebooted before it counts as started.

        A rescued node has no time for it. Once the lease is lost no reboot is begun, since somebody else may
        be at work on the cluster; a start is owed all the same. So it is where another node of the machine
        is up: the reboot would take it down, unstopped.
        """
        begun = self.state.lease_lost is None or (node.rebooted and not self.reboot_lost(node))
        return self.policy.reboot and not node.rescued and begun and not self.beside_one_that_is_up(node)

    def machine(self, node: NodeProgress) -> tuple[NodeProgress, ...]:
        """The nodes of the wave that go down and come up with a node's machine, itself included."""
        names = self.state.wave.machine(node.name) if self.state.wave else (node.name,)
        return tuple(self.state.nodes[name] for name in names)

    def beside_one_that_is_up(self, node: NodeProgress) -> bool:
        """Whether of several nodes on one machine one is up or on its way up, and no reboot may be to come.

        Then a reboot has to wait for another wave, in which all of them are stopped first.
        """
        machine = self.machine(node)
        if len(machine) == 1 or any(one.rebooted and not self.reboot_lost(one) for one in machine):
            return False
        return any(self._is_up(one) for one in machine)

    def _is_up(self, node: NodeProgress) -> bool:
        host = self.seen.host(node.name)
        runs = not isinstance(host, Unknown) and host.service in _UP
        if node.phase is not NodePhase.STOPPING and (runs or self.reborn(node)):
            return True
        awaits = node.phase is NodePhase.STARTING and node.rebooted
        return not awaits and node.phase not in _ON_THE_WAY_DOWN

    def reboot_awaited(self, node: NodeProgress) -> bool:
        """Whether its host was told to reboot and has not provably done so; a rescued node has no time."""
        asked = node.rebooted and not self.reboot_lost(node)
        return asked and not node.rescued and not self.rebooted(node)

    def reboot_lost(self, node: NodeProgress) -> bool:
        """Whether a reboot in doubt can be taken as not done: the same boot, long after it was asked for."""
        host, since = self.seen.host(node.name), node.reboot_doubt_since
        if since is None or isinstance(host, Unknown) or host.boot_id is None:
            return False
        return host.boot_id == node.boot_before and self.seen.at - since > DOUBT_SECONDS

    def reboot_due(self, node: NodeProgress) -> bool:
        """Whether the node's turn is not over though it is back: its host was to be rebooted, and was not."""
        return self.policy.reboot and not self.rebooted(node)

    def stop_in_doubt(self, node: NodeProgress) -> bool:
        """Whether a stop whose connection was lost may still be done, or is being done now.

        Until then a node is not back: it would be taken down with nobody looking.
        """
        if node.doubt_since is None:
            return False
        host = self.seen.host(node.name)
        running = not isinstance(host, Unknown) and host.service is ServiceState.RUNNING
        return not running or self.seen.at - node.doubt_since <= DOUBT_SECONDS

    def rebooted(self, node: NodeProgress) -> bool:
        """Whether the node's host provably has another boot id than before its wave."""
        host = self.seen.host(node.name)
        return (
            not isinstance(host, Unknown)
            and None not in (host.boot_id, node.boot_before)
            and (host.boot_id != node.boot_before)
        )

    def same_life(self, node: NodeProgress) -> bool:
        """Whether the node is in the cluster in the very life that it had before its wave."""
        member = self.member(node.name)
        before = node.before
        return member is not None and before is not None and member.incarnation.is_same_as(before)

    def never_stopped(self, node: NodeProgress) -> bool:
        """Whether a stop in doubt can be taken as not done: the same life, long after it was asked for.

        By the moment of the reading: a program that stood still since then knows nothing of the time between.
        """
        return self.seen.at - node.since > DOUBT_SECONDS and self.same_life(node)

    def gone_late(self, node: NodeProgress) -> bool:
        """Whether a node whose stop was taken as not done is away after all: then it is ours to start."""
        if node.phase is not NodePhase.PENDING or self.view is None:
            return False
        return self.stop_may_come_late(node) and self.member(node.name) is None

    def stop_may_come_late(self, node: NodeProgress) -> bool:
        """Whether what takes a node down now may be our own stop, which was taken as not done.

        Only within a stop's own time: who is away later was taken down by somebody else.
        """
        return node.stopped_at is not None and self.now - node.stopped_at <= self.policy.deadlines.stop


def act(*actions: Action, events: Iterable[Event] = ()) -> Decision:
    """Commit these events, then do these things."""
    sent = tuple(ActionSent(action=action) for action in actions)
    return Decision(events=(*events, *sent), actions=actions)


def note(*events: Event) -> Decision:
    """Commit these events, then decide again."""
    return Decision(events=events)


LOOK_AGAIN: Final = Decision()
"""The reading is older than what we did: read again at once."""


def wait(
    now: Instant,
    for_people: str,
    *,
    seconds: Seconds = POLL_SECONDS,
    cluster: ClusterWatch | None = None,
    services: Iterable[NodeName] = (),
    holds: tuple[Hold, ...] = (),
    events: tuple[Event, ...] = (),
) -> Decision:
    """Listen at most so long, then look again."""
    watch = Watch(until=now + seconds, cluster=cluster, services=frozenset(services), for_people=for_people)
    return Decision(events=events, holds=holds, watch=watch)


def stand_down(
    state: RunState, reason: str, outcome: Outcome, *events: Event, overdue: Iterable[NodeName] = ()
) -> Decision:
    """Give up for now: everything is put back as it was found, and the run can be resumed."""
    return note(
        *events,
        StandingDown(reason=reason, outcome=outcome, overdue=tuple(overdue)),
        run_phase(state.phase, Phase.STANDING_DOWN, why=reason),
    )
