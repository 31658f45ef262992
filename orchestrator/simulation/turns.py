"""Each node's turn by the ground truth: its stop, hooks, tuning, reboot and new life.

No code here reads the state of a run. A machine records when its process ended and began, when it booted, and
which hooks and tuning it received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.model.action import (
    ClearVotingExclusions,
    ClusterAction,
    ExcludeFromVoting,
    HostAction,
    Moment,
    RebootHost,
    SetIndexSettings,
    SetReplicas,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
    action_name,
    action_target,
)
from orchestrator.model.cluster import CopyState
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.tuning import OnFailure
from orchestrator.simulation import installs
from orchestrator.simulation.deciders import places_for
from orchestrator.simulation.facts import AbsentCopy, Fact
from orchestrator.simulation.parts import SimIndex, SimNode, SimShard
from orchestrator.simulation.world import World

_CHANGES: Final = (WriteSettings, SetReplicas, SetIndexSettings, ExcludeFromVoting, ClearVotingExclusions)
_BETWEEN_TWO_READINGS: Final[Seconds] = 6.0
"""Hosts may be read this long before the cluster, when one of them does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedProcess:
    """One process of the program, of several on one world."""

    run: str = ""
    epoch: int = 0  # epoch of its lease. An owner with a later epoch has taken over its run.
    blind: bool = False  # it cannot read the lease now, so its successor's nodes are unknown to it


def deposed(world: World, process: SimulatedProcess) -> bool:
    """Whether another machine took over, and this process has read the cluster since."""
    return 0 < process.epoch < world.owner.epoch and world.owner.since < world.last_read


def changes(world: World, action: ClusterAction, process: SimulatedProcess) -> None:
    """Record that a process changes the cluster after a takeover."""
    if isinstance(action, _CHANGES) and deposed(world, process):
        what = f"{action_name(action)} of {action_target(action)}"
        world.violated(f"{process.run} was taken over, and sends {what}")


def acts(world: World, action: HostAction, node: SimNode, process: SimulatedProcess) -> None:
    """Record that, after a takeover, a process does more than start nodes that it stopped itself."""
    if not deposed(world, process):
        return
    theirs = isinstance(action, StartNode) and not process.blind and node.name in world.owner.in_hand()
    if theirs or isinstance(action, StopNode | RebootHost | TuneHost):
        world.violated(f"{process.run} was taken over, and sends {action_name(action)} of {node.name}")


def stopped(world: World, node: SimNode) -> None:
    """A stop reaches a running process; record that the process is not ready for it."""
    out_since = node.began if _seen_back(world, node) else 0.0
    ready = {number for number, at in node.ready.items() if at >= out_since}
    due = set(range(len(world.hooks.before_stop))) - ready
    if due:
        world.violated(f"{node.name} is stopped, and before_stop hook {min(due)} did not run")
    node.to_undo = set(range(len(world.hooks.after_recovery)))
    node.facts.append(Fact(at=world.agenda.now, what="stopped", alive=True))
    for _, shard in world.placement.on(node.name):
        started = shard.started
        if any(copy.node == node.name for copy in started):
            shard.had = max(shard.had, len(started))


def _seen_back(world: World, node: SimNode) -> bool:
    """Whether the program could read this life of a node, in which it serves its clients again."""
    return node.joined and node.joins_at + _BETWEEN_TWO_READINGS < world.last_read


def ran(world: World, node: SimNode, moment: Moment, number: int) -> None:
    """A hook ran to its end; record that it ran beside a process that must not run then."""
    missing: tuple[AbsentCopy, ...] = ()
    match moment:
        case Moment.BEFORE_STOP:
            node.ready[number] = world.agenda.now
            node.to_undo = set(range(len(world.hooks.after_recovery)))
        case Moment.WHILE_STOPPED:
            seen = node.began + _BETWEEN_TWO_READINGS < world.last_read
            if node.process and seen and not world.news(node.name):
                world.violated(f"hook {number} of while_stopped runs on {node.name} beside its process")
        case Moment.AFTER_RECOVERY:
            missing = _missing(world, node)
            node.to_undo.discard(number)
            if not node.to_undo:
                node.ready.clear()
    what = f"hook {moment.value} {number}"
    node.facts.append(Fact(at=world.agenda.now, what=what, alive=node.process, missing=missing))


def _missing(world: World, node: SimNode) -> tuple[AbsentCopy, ...]:
    """Shards of a node that lost a copy by a stop of the program and still wait for the node.

    A copy that is moving to another node no longer counts for this node. A copy whose node left by itself
    does not count for the program. A copy lost after the program's last reading is not its fault, if it has
    read since it sent the stop.
    """
    if not world.missing:
        return ()
    seen = world.last_read if node.stop_sent < world.last_read else world.agenda.now
    return tuple(
        AbsentCopy(shard=shard.id, serving=len(shard.started), had=shard.had)
        for index, shard in world.placement.missed()
        if shard.id in world.missing
        and world.missing[shard.id] < seen
        and node.name in shard.on_disk
        and not any(copy.node == node.name for copy in shard.started)
        and _waits_for(world, index, shard, node)
    )


def _waits_for(world: World, index: SimIndex, shard: SimShard, node: SimNode) -> bool:
    """Whether a copy is moving to the node, or is unassigned while fewer are moving than missing.

    Replicas that others added are not missing. Which unassigned copy gets a node is chance: copies that left
    by themselves do not count as missing, nor do copies that awareness leaves no place.
    """
    away = [copy for copy in shard.copies if not copy.serves]
    taken = [copy for copy in away if not copy.left_alone]
    if shard.had - len(shard.started) <= len(away) - len(taken):
        return False
    here = any(copy.node == node.name for copy in taken)
    arriving = sum(copy.state is CopyState.INITIALIZING for copy in shard.copies)
    lost = any(copy.state is CopyState.UNASSIGNED for copy in taken)
    had = min(shard.had, places_for(world, index, shard))
    return here or (lost and had - len(shard.started) > arriving)


def lacking(
    node: SimNode,
    policy: Policy,
    began: Instant,
    attempt: Instant,
    as_found: Callable[[Instant, AbsentCopy], bool] = lambda _at, _absent: False,
    *,
    by_others: bool = False,
) -> list[str]:
    """What a node still lacks of its turn at the end of a run that reports success.

    Args:
        node: the node.
        policy: of the run.
        began: when the run began.
        attempt: when its last attempt began.
        as_found: whether a shard was then as the last wave had found it, after the run had reported that it
            waits for no more.
        by_others: whether the run has reported that others had upgraded the node.
    """
    name, facts = node.name, [fact for fact in node.facts if fact.at >= began]
    wrong = []
    if not any(fact.what == "began" for fact in facts):
        wrong.append(f"{name} has no new process")
    wrong += [
        f"while_stopped hook {number} never ran on {name} while it was down"
        for number in range(len(policy.hooks.while_stopped))
        if not any(fact.what == f"hook while_stopped {number}" and not fact.alive for fact in facts)
    ]
    if node.to_undo:
        wrong.append(f"after_recovery hook {min(node.to_undo)} did not run on {name} after its before_stop")
    if policy.reboot and not any(fact.what == "booted" for fact in facts):
        wrong.append(f"the host of {name} was not rebooted")
    for fact in facts:
        missing = [absent for absent in fact.missing if not as_found(fact.at, absent)]
        if missing and fact.at >= attempt:
            wrong.append(f"{fact.what} ran on {name} without a copy of {missing[0]}")
    return wrong + installs.lacking(node, policy, began, by_others=by_others) + _untuned(node, policy)


def _untuned(node: SimNode, policy: Policy) -> list[str]:
    """Tunables that must be set and are not, or that were set while the current process ran."""
    wrong = []
    for setting in policy.tune.settings if policy.tune else ():
        wanted = str(setting.wanted)
        if setting.on_failure is not OnFailure.STOP:
            continue
        if node.kernel.get(setting.tunable, wanted) != wanted:
            wrong.append(f"{setting.tunable} of {node.name} is {node.kernel[setting.tunable]}")
        what = f"tuned {setting.tunable}"
        last = max((fact.at for fact in node.facts if fact.what == what), default=-1.0)
        if last > node.began:
            wrong.append(f"{setting.tunable} of {node.name} was set after its process began")
    return wrong
