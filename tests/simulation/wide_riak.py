"""One whole run on a Riak cluster of a seed, kills and all, and what must hold of it by the world's truth."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import Final

from orchestrator.engine.state import RunState
from orchestrator.model.action import Moment
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import OwedAgain, PhaseEntered, RestoreBegun, RunResumed, SettingRestored
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.riak import holder, limit_key
from orchestrator.model.work_event import HandoffLeftWaiting
from orchestrator.simulation import machines
from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.riak import WAITS_SECONDS
from tests.simulation.chance_riak import RiakChance, world_of
from tests.simulation.lived import AnyLife, BrokenError, Noting
from tests.simulation.play import plan_holds_for
from tests.simulation.program_mishaps import SettingsRefused

_BY_THE_MAKING: Final = frozenset(
    {"budget_not_exceeded", "preference_lists_keep_quorum", "selected_hosts_ready"}
)
PASSED: Final = "what waits for handoff is not waited for"
"""Counted once for a run that is done though partitions waited for handoff at one of its stops."""
_PEOPLE_SECONDS: Final = 600.0
"""Whoever repaired a node waits until it has what it missed."""
_START: Final = re.compile(r"after start of (\S+)")


class Proving(Noting):
    """The seams of hosts; notes a start of a node that was not seen to be down."""

    def point(self, what: str) -> None:
        found = _START.fullmatch(what)
        if found is not None and not self._standing_down():
            name = NodeName(found[1])
            entered = [
                event.to
                for record in self._simulation.journal.records
                if isinstance(event := record.event, PhaseEntered) and event.node == name
            ]
            since = entered[len(entered) - entered[::-1].index(NodePhase.STOPPING.value) :]
            if NodePhase.STOPPED.value not in since:
                self._simulation.world.violated(f"{name} is started, and nothing says that it was stopped")
        super().point(what)

    def _standing_down(self) -> bool:
        """Then what may be down is started, whatever is known of it; without a journal nothing tells."""
        if self._simulation.fate.disk_full_until > 0.0:
            return True
        events = [record.event for record in self._simulation.journal.records]
        entered = [each.to for each in events if isinstance(each, PhaseEntered) and each.node is None]
        begun = [each for each in events if isinstance(each, RunResumed | RestoreBegun)]
        restoring = bool(begun) and isinstance(begun[-1], RestoreBegun)
        return restoring or entered[-1:] == [Phase.STANDING_DOWN.value]


class RiakLife(AnyLife):
    """A Riak cluster with the runs on it, one after the other, until one is done."""

    def __init__(self, drawn: RiakChance) -> None:
        self.ring = world_of(drawn)
        super().__init__(drawn, self.ring)
        self.drawn = drawn
        self.limits = {name: vnodes.limit for name, vnodes in self.ring.vnodes.items()}

    def _seams(self) -> Seams:
        return Proving(self.simulation)

    def _attempt(self, attempt: int, state: RunState) -> tuple[RunState, bool]:
        """A node that comes up when the run has ended, and has told of it, comes up as its files have it."""
        self.ring.attended = True
        state, ended = super()._attempt(attempt, state)
        self.ring.attended = not ended
        return state, ended

    def _cannot_be(self, state: RunState) -> bool:
        del state
        return self._too_few

    @cached_property
    def _too_few(self) -> bool:
        """Whether the ring as it was at the beginning cannot spare a node, however long one waits."""
        whole = replace(self.drawn.wanted, pause_after=None)  # a plan tells of nothing behind a pause
        return plan_holds_for(world_of(self.drawn), whole, _BY_THE_MAKING)

    # Between two attempts -----------------------------------------------------------------------------

    def _repair(self, state: RunState | None, *, ended: bool) -> None:
        """What only people can do: start what died or was reported as failed, let a limit be set again."""
        world = self.ring
        if world.refuse_settings is not None:
            self.simulation.fate.befall(SettingsRefused(reason=""))
        left = self._left_to_people(state, ended=ended)
        for node in world.nodes.values():
            vnodes = world.vnodes[node.name]
            if node in left:
                node.starts_that_fail = 0
                if not node.process:
                    # What the program had of it went with the process; it comes up as its files have it.
                    vnodes.others.append(vnodes.configured)
                machines.start(world, node)
            halts = vnodes.most < len(vnodes.owned) or vnodes.unseen
            if ended and halts:
                vnodes.most, vnodes.unseen = len(vnodes.owned), False
                if node.process:
                    vnodes.others.append(vnodes.configured)
                    machines.restart(world, node)
        if ended:
            for each in world.fallbacks:
                if each.stuck is not None:
                    world.free(each)
            world.agenda.advance(_PEOPLE_SECONDS)

    # What must hold --------------------------------------------------------------------------------------

    def _not_as_found(self) -> list[tuple[str, str]]:
        """Limits that are neither as found nor as others have set them, nor as files have them."""
        world = self.ring
        now = world.limits
        given_up = {
            holder(event.key)
            for event in self._events
            if isinstance(event, SettingRestored) and event.note.startswith("its node is down")
        }
        wrong = []
        for name, found in self.limits.items():
            may_be = world.may_be(name, found)
            if self.drawn.wanted.transfer_limit is None or name in given_up:
                may_be |= {world.vnodes[name].configured}  # it comes up with what its files say
            if name in now and now[name] not in may_be:
                should = " or ".join(str(limit) for limit in sorted(may_be))
                key = limit_key(name)
                wrong.append((f"{key} ({Level.TRANSIENT.value}) is {now[name]} and should be {should}", key))
        return wrong

    def _judge_done(self, state: RunState) -> None:
        world = self.ring
        recovered = self._settled()
        since = [what for at, what in world.story if at >= recovered]
        gone = {what.removesuffix(" dies").removesuffix(" left") for what in since}
        for name in state.nodes:
            node = world.nodes[name]
            stops = node.restarts_by_us - self.stops_before.get(name, 0)
            if not node.joined and (name not in gone or node.stopped_by_us):
                raise BrokenError("completeness", f"{name} is away at the end")
            if name not in gone and not world.serves(name):
                raise BrokenError("completeness", f"{name} does not run all its vnodes at the end")
            if node.life == 1:
                raise BrokenError("completeness", f"{name} was not restarted")
            again = sum(isinstance(event, OwedAgain) and event.node == name for event in self._events)
            if stops > 1 + again and not self.drawn.wanted.reboot:
                raise BrokenError("completeness", f"{name} was stopped {stops} times")
            hooks = [moment for each, moment, _ in self.simulation.hosts.hooks if each == name]
            undone_by_hooks = bool(self.drawn.wanted.hooks.after_recovery)
            if hooks and undone_by_hooks and hooks[-1] != Moment.AFTER_RECOVERY.value:
                raise BrokenError("completeness", f"{name} is left out of service: {hooks[-1]}")
        excused = max(node.stop_sent for node in world.nodes.values()) - WAITS_SECONDS
        left = [each for each in world.fallbacks if excused < each.made < recovered]
        passed = [event for event in self._events if isinstance(event, HandoffLeftWaiting)]
        if any(event.partitions for event in passed):
            self.simulation.fate.happened[PASSED] += 1
        if left and not gone & set(world.nodes):
            raise BrokenError("completeness", f"{len(left)} fallbacks wait to be handed off at the end")
