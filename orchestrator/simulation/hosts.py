"""The simulated machines: `HostPort` over the world."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from orchestrator.model.action import (
    ActionResult,
    Done,
    HostAction,
    InDoubt,
    Moment,
    RebootHost,
    Refused,
    RunHook,
    RunInstall,
    StartNode,
    StopNode,
    TuneHost,
    action_name,
    action_target,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.model.tuning import HostTuning, TuningProfile
from orchestrator.model.upgrade import HostReadiness, Upgrade
from orchestrator.simulation import gates, installs, judge, machines, tuning, turns, views
from orchestrator.simulation.facts import Fact
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.mishaps import How, Seams
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World

_READ_SECONDS: Final = 0.1
_VERB_SECONDS: Final = 0.2
_TIMEOUT_SECONDS: Final = 10.0
_HANGING_SECONDS: Final = 20.0
"""The adapter's own limit of one command (`hosts.settings.Limits.command`)."""


@dataclass(slots=True, kw_only=True)
class SimulatedHosts:
    """The nodes' machines, as the program reaches them."""

    world: World
    fate: Fate
    seams: Seams
    sent: list[HostAction] = field(default_factory=list)  # every verb that was sent, for the tests
    # node, moment and number of each hook that ran
    hooks: list[tuple[NodeName, str, int]] = field(default_factory=list)
    # which process of the program this is, of several on one world
    process: Callable[[], turns.SimulatedProcess] = turns.SimulatedProcess

    def observe(
        self, nodes: Collection[NodeName], *, rights: bool, reboot: bool = False
    ) -> Mapping[NodeName, Reading[HostView]]:
        """Read each host. Hosts are read in parallel, so unanswered reads cost their limit only once."""
        wanted = [self.world.nodes[name] for name in sorted(nodes)]
        silent = [node for node in wanted if self._silent(node)]
        for node in wanted:
            if node not in silent:
                node.host_read = self.world.agenda.now
        read: dict[NodeName, Reading[HostView]] = {
            node.name: self._unread(node)
            if node in silent
            else views.host(
                node, rights=rights, reboot=reboot, may=not self._refuses(node), now=self.world.agenda.now
            )
            for node in wanted
        }
        late = (node.answer_takes for node in wanted if self.world.agenda.now < node.late_until)
        self.world.agenda.advance(max(_TIMEOUT_SECONDS / 2 if silent else _READ_SECONDS, *late, 0.0))
        return read

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        """Compare their machines with a profile. Hosts that do not answer cost their limit once."""
        wanted = [self.world.nodes[name] for name in sorted(nodes)]
        silent = [node for node in wanted if self._silent(node)]
        self.world.agenda.advance(_TIMEOUT_SECONDS / 2 if silent else _READ_SECONDS)
        read = tuning.read([node for node in wanted if node not in silent], profile)
        return {**read, **{node.name: self._unread(node) for node in silent}}

    def readiness(
        self, nodes: Collection[NodeName], _upgrade: Upgrade
    ) -> Mapping[NodeName, Reading[HostReadiness]]:
        """Of the hosts that answer."""
        wanted = [self.world.nodes[name] for name in sorted(nodes)]
        silent = [node for node in wanted if self._silent(node)]
        self.world.agenda.advance(_TIMEOUT_SECONDS / 2 if silent else _READ_SECONDS)
        ready: dict[NodeName, Reading[HostReadiness]] = {node.name: node.disk.ready for node in wanted}
        return ready | {node.name: self._unread(node) for node in silent}

    def _unreachable(self, node: SimNode) -> bool:
        return self.world.agenda.now < node.unreachable_until

    def _hangs(self, node: SimNode) -> bool:
        return self.world.agenda.now < node.hangs_until

    def _refuses(self, node: SimNode) -> bool:
        return self.world.agenda.now < node.refuses_until

    def _silent(self, node: SimNode) -> bool:
        return self._unreachable(node) or self._hangs(node) or (self._refuses(node) and node.key_changed)

    def _unread(self, node: SimNode) -> Unknown:
        if self._refuses(node) and node.key_changed:
            return Unknown(reason=f"ssh to {node.name}: the host key is another one")
        return Unknown(reason=f"ssh to {node.name}: timed out", passes=True)

    def perform(self, action: HostAction) -> ActionResult:
        """Do the action, unless a mishap prevents it. The program may be killed right after."""
        result = self._perform(action)
        self.seams.point(f"after {action_name(action)} of {action_target(action)}")
        return result

    def _perform(self, action: HostAction) -> ActionResult:
        self.sent.append(action)
        self.fate.is_judged_by_its_own_reading()
        node = self.world.nodes[action.node]
        trip = self.fate.sent(action)
        if self._unreachable(node):
            self.world.agenda.advance(_TIMEOUT_SECONDS)
            return Refused(reason=f"ssh to {node.name}: timed out", passes=True)
        if self._refuses(node) or (isinstance(action, RebootHost) and not node.may_reboot):
            self.world.agenda.advance(_VERB_SECONDS)
            return Refused(
                reason=self._unread(node).reason if node.key_changed else "sudo: a password is required"
            )
        how, limit = trip.how if trip else None, _TIMEOUT_SECONDS
        if self._hangs(node):
            how, limit = How.UNACKNOWLEDGED if node.hangs_and_does else How.LOST, _HANGING_SECONDS
        if how is How.REFUSED:
            self.world.agenda.advance(_VERB_SECONDS)
            return Refused(reason="sudo: a password is required")
        lost = InDoubt(reason=f"ssh to {node.name}: connection lost")
        if how is How.LOST:
            if isinstance(action, StopNode):
                node.stop_lost_at = self.world.agenda.now
            self.world.agenda.advance(limit)
            return lost
        self._judge(action, node)
        if how is How.LATE and trip is not None:
            sent, read, boot = self.world.agenda.now, self.world.last_read, node.boot
            self.world.agenda.after(trip.late, lambda: self._late(action, node, sent, read, boot))
            self.world.agenda.advance(_VERB_SECONDS)
            return lost
        result = self._do(action, node)
        self.world.agenda.advance(_VERB_SECONDS)
        if how in (How.UNACKNOWLEDGED, How.PARTLY):
            self.world.agenda.advance(limit)
            return lost
        return result

    def _judge(self, action: HostAction, node: SimNode) -> None:
        turns.acts(self.world, action, node, self.process())
        match action:
            case StopNode():
                if node.process:
                    gates.judge(self.world, f"{node.name} is stopped")
                judge.stop(self.world, node)
            case StartNode():
                judge.start(self.world, node)
                installs.judge_start(self.world, node)
            case RunInstall():
                judge.delay(self.world, node, "an install step")
                installs.judge(self.world, node)
            case RebootHost():
                for each in machines.of_one(self.world, node):
                    judge.delay(self.world, each, "a reboot")
                    judge.start(self.world, each)
                    judge.reboot(self.world, each, node)
            case RunHook(moment=moment):
                if moment is Moment.WHILE_STOPPED:
                    judge.delay(self.world, node, "a hook")
            case TuneHost():
                tuning.judge(self.world, node)
            case _:
                assert_never(action)

    def _late(self, action: HostAction, node: SimNode, sent: Instant, read: Instant, boot: int) -> None:
        if node.boot != boot or (isinstance(action, RunInstall) and self._unreachable(node)):
            return  # its connection, and what was left of it on the host, ended with that boot
        if isinstance(action, StopNode):
            judge.late_stop(self.world, node, sent, read)
        if isinstance(action, TuneHost):
            tuning.tune(node, action)  # not recorded: the program's answer was that it may not be done
        elif not isinstance(
            action, RunHook
        ):  # a hook that runs so late is not in `hooks`: it cannot be undone
            self._do(action, node)

    def _do(self, action: HostAction, node: SimNode) -> ActionResult:
        match action:
            case StopNode():
                return machines.stop(self.world, node)
            case StartNode() if installs.bars_start(node):
                return Refused(reason="an install step runs there", passes=True)
            case StartNode():
                return machines.start(self.world, node)
            case RunInstall():
                return installs.begin(self.world, node, action)
            case RebootHost():
                return machines.reboot(self.world, node)
            case RunHook(moment=moment, number=number):
                self.hooks.append((node.name, moment.value, number))
                turns.ran(self.world, node, moment, number)
                return Done(output=f"hook {number} of {moment.value} ran")
            case TuneHost():
                node.facts.append(
                    Fact(at=self.world.agenda.now, what=f"tuned {action.tunable}", alive=node.process)
                )
                return tuning.tune(node, action)
            case _:
                assert_never(action)

    def describe(self, action: HostAction) -> str:
        """The command in short, as a real adapter describes it."""
        match action:
            case RunHook(hook=hook):
                return hook.run.replace("{node}", action.node)
            case RunInstall(step=step, target=target):
                return step.run.replace("{node}", action.node).replace("{version}", target)
            case TuneHost(tunable=tunable, wanted=wanted):
                return f"set {tunable} to {wanted}"
            case RebootHost():
                return "sudo -n systemctl reboot"
            case StopNode() | StartNode():
                return f"sudo -n systemctl {action_name(action)} elasticsearch"
            case _:
                assert_never(action)

    def watch(self, nodes: Collection[NodeName], timeout: Seconds) -> bool:
        """Let time pass until a service has changed its state."""
        before = self.services(nodes)
        return self.world.agenda.until(lambda: self.services(nodes) != before, timeout)

    def services(self, nodes: Collection[NodeName]) -> tuple[str, ...]:
        """The current states of their services, without hosts that do not answer."""
        hosts = [self.world.nodes[name] for name in sorted(nodes)]
        return tuple("?" if self._silent(node) else node.service.value for node in hosts)

    def close(self) -> None:
        """Do nothing: no connection is open."""
