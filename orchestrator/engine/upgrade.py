"""An upgrade in the turn of a node: install steps while it is down, and the version that it returns with.

A step is only begun; its host records how it ended, so nothing is lost with this program. A step is done by
one kind of reading alone: the host says that it ended well *and* that the node's process is gone. Whatever
process comes later began after it. A node is upgraded once such a process reports the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import RETRY_SECONDS, Situation
from orchestrator.model.action import HostAction, RunInstall
from orchestrator.model.archived import what_to_do
from orchestrator.model.cluster import Node
from orchestrator.model.event import Event
from orchestrator.model.observation import HostView
from orchestrator.model.phase import VERSION, Installing, NodePhase, Owed, Work, step_name
from orchestrator.model.policy import Policy, numbers
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import InstallState, InstallView, Upgrade
from orchestrator.model.work_event import InstallEnded, Upgraded, UpgradeMissed

_FAULTS: Final = {
    InstallState.FAILED: "it failed",
    InstallState.LOST: "its process is gone, and nothing says how it ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """What an install step of a stopped node does next; all empty = it runs, or waits for its machine.

    Attributes:
        flip: the reason to stand down; the step stays owed.
        overdue: the reason is that its time is over.
    """

    events: tuple[Event, ...] = ()
    actions: tuple[RunInstall, ...] = ()
    flip: str | None = None
    overdue: bool = False


def install(situation: Situation, node: NodeProgress) -> Install:
    """The next step of a node whose process is gone and that still owes install steps."""
    upgrade, host = situation.policy.upgrade, situation.seen.host(node.name)
    if upgrade is None or isinstance(host, Unknown):
        return Install()
    ended = ended_step(host, node)
    if ended is not None:
        fault = _FAULTS.get(ended.state)
        said = f": {ended.said}" if ended.said else ""
        return Install(events=(ended,), flip=f"{_step(node)}: {fault}{said}" if fault else None)
    if node.install is not None and _is_recorded(host, node.install):
        limit = limits.install(situation.state, node)
        if not limit.is_over(situation.seen.at):
            return Install()
        return Install(flip=f"{_step(node)} still runs after {limit.seconds:.0f} s", overdue=True)
    return _begin(situation, node, upgrade)


def _begin(situation: Situation, node: NodeProgress, upgrade: Upgrade) -> Install:
    """Send the step; again with the same ticket if nothing shows that it arrived. One at a time a machine."""
    if any(_may_run(situation, other) for other in _beside(situation, node)):
        return Install()
    number = min(item.number for item in node.owed if item.work is Work.INSTALL)
    again = node.install is not None and node.install.number == number
    tries = node.installs if again else node.installs + 1
    action = RunInstall(
        node=node.name,
        number=number,
        step=upgrade.install[number],
        ticket=f"{situation.state.run}/{node.name}/{number}/{tries}",
        target=upgrade.target,
        plugins=upgrade.plugins,
        installed=upgrade.installed if number == 0 else None,
    )
    failures = [one for one in situation.state.in_phase.failed if _is_of(one.action, node, number)]
    if failures:
        # Each refused try had a ticket of its own: the last one says why, and the first one since when.
        first, last = failures[0], failures[-1]
        why = f"{step_name(number)} on {node.name}: {last.reason}"
        if not (last.in_doubt or last.passes):
            return Install(flip=why)
        if situation.fails_too_long(first.action):
            return Install(flip=why, overdue=True)
        if situation.now - situation.state.process.acted_at < RETRY_SECONDS:
            return Install()
    return Install(actions=(action,))


def _beside(situation: Situation, node: NodeProgress) -> Iterator[NodeProgress]:
    """The other nodes of its machine, also where a wave does not take whole machines: they share packages."""
    here = _machine(situation, node)
    for other in situation.state.nodes.values():
        if other.name != node.name and here is not None and _machine(situation, other) == here:
            yield other


def _may_run(situation: Situation, node: NodeProgress) -> bool:
    """Whether a step that was sent may run now.

    A node that came up beside it keeps it open, since only a reading of the node down settles a step. If its
    host has no record of it by then, the step is refused when it arrives.
    """
    host = situation.seen.host(node.name)
    if node.install is None or isinstance(host, Unknown):
        return node.install is not None
    return is_running(host) if _is_recorded(host, node.install) else node.phase is NodePhase.STOPPED


def _machine(situation: Situation, node: NodeProgress) -> str | None:
    """By this reading; of a host that does not answer, by that of the beginning."""
    host, baseline = situation.seen.host(node.name), situation.state.baseline
    known = None if baseline is None else baseline.machines.get(node.name)
    return known if isinstance(host, Unknown) or host.machine_id is None else host.machine_id


def one_a_machine(situation: Situation, actions: Iterable[HostAction]) -> tuple[HostAction, ...]:
    """The actions of one decision less all install steps of a machine but the first."""
    kept: list[HostAction] = []
    taken: set[str] = set()
    for action in actions:
        machine = None
        if isinstance(action, RunInstall):
            machine = _machine(situation, situation.state.nodes[action.node])
        if machine is None or machine not in taken:
            kept.append(action)
        taken |= {machine} if machine is not None else set()
    return tuple(kept)


def _is_of(action: object, node: NodeProgress, number: int) -> bool:
    return isinstance(action, RunInstall) and action.node == node.name and action.number == number


def ended_step(host: HostView, node: NodeProgress) -> InstallEnded | None:
    """How the last step has ended, by the record on its host; None if there is none, or the step runs.

    A step that was given up counts if it has ended well after all, and the node still owes it.
    """
    sent, lost, seen = node.install, node.lost_install, host.install
    if sent is None and lost is not None and seen is not None and seen.state is InstallState.DONE:
        sent = lost if Owed(work=Work.INSTALL, number=lost.number) in node.owed else None
    if sent is None or seen is None or seen.ticket != sent.ticket or seen.state is InstallState.RUNNING:
        return None
    return InstallEnded(
        node=node.name, number=sent.number, ticket=sent.ticket, state=seen.state, said=seen.said
    )


def given_up(host: HostView, node: NodeProgress) -> InstallEnded | None:
    """The same before a start, where a step without a record counts as lost: it never arrived."""
    sent = node.install
    if sent is None or _is_recorded(host, sent):
        return ended_step(host, node)
    why = "its host has no record of it"
    return InstallEnded(
        node=node.name, number=sent.number, ticket=sent.ticket, state=InstallState.LOST, said=why
    )


def _is_recorded(host: HostView, sent: Installing) -> bool:
    return host.install is not None and host.install.ticket == sent.ticket


def _step(node: NodeProgress) -> str:
    number = node.install.number if node.install is not None else 0
    return f"{step_name(number)} on {node.name}"


def barring_start(situation: Situation, node: NodeProgress) -> str | None:
    """What keeps a start from being sent: an install that runs on the host, or may run there; None = nothing.

    Any process may have begun it. No start is sent beside it, not even for a rescue or a stand-down.
    """
    host = situation.seen.host(node.name)
    if isinstance(host, Unknown):
        return f"{_step(node)} may still run ({host.reason})" if node.install is not None else None
    return f"an install step still runs: {_shown(host.install)}" if is_running(host) else None


def is_running(host: HostView) -> bool:
    """Whether an install step runs on a host."""
    return host.install is not None and host.install.state is InstallState.RUNNING


def _shown(view: InstallView | None) -> str:
    lines = view.said.strip().splitlines() if view is not None else []
    return lines[-1] if lines else "it has printed nothing yet"


# The version ------------------------------------


def news(situation: Situation) -> tuple[Event, ...]:
    """Nodes that are back with the target."""
    upgrade = situation.policy.upgrade
    if upgrade is None or situation.view is None:
        return ()
    events: list[Event] = []
    for node in situation.state.nodes.values():
        member = _back(situation, node)
        if member is None or not is_target(upgrade, member) or lacks(upgrade, member) != frozenset():
            continue
        if node.install is None and (not _steps_owed(node) or node.installs == 0):
            by_others = bool(_steps_owed(node))
            events.append(Upgraded(node=node.name, version=member.version, by_others=by_others))
    return tuple(events)


def missed(situation: Situation) -> UpgradeMissed | None:
    """A node that came back with another version, or without a plugin, though its steps ended well."""
    upgrade = situation.policy.upgrade
    if upgrade is None or situation.view is None or not situation.fresh:
        return None
    for node in situation.state.nodes.values():
        member = _back(situation, node)
        if member is None or _steps_owed(node) or node.install is not None:
            continue
        without = lacks(upgrade, member)
        if without is None or (is_target(upgrade, member) and not without):
            continue
        return UpgradeMissed(
            node=node.name, version=member.version, wanted=upgrade.target, lacks=tuple(sorted(without))
        )
    return None


def is_target(upgrade: Upgrade, member: Node) -> bool:
    """Whether a member reports the wanted version."""
    return numbers(member.version) == numbers(upgrade.target)


def to_upgrade(policy: Policy, members: Iterable[Node]) -> tuple[Node, ...]:
    """The selected members that an upgrade takes, in their order; all of them for a restart.

    A node that runs the target with its plugins is left out, unless its machine is rebooted for another node.
    """
    members = tuple(members)
    upgrade = policy.upgrade
    if upgrade is None:
        return members
    due = {node.name for node in members if not is_target(upgrade, node) or lacks(upgrade, node)}
    rebooted = {node.address for node in members if node.name in due} if policy.reboot else set[str]()
    return tuple(node for node in members if node.name in due or node.address in rebooted)


def lacks(upgrade: Upgrade, member: Node) -> frozenset[str] | None:
    """Plugins that a member was to load and has not; None if they are wanted and were not read."""
    wanted = frozenset(upgrade.plugins)
    if not wanted:
        return frozenset()
    return None if member.plugins is None else wanted - member.plugins


def _back(situation: Situation, node: NodeProgress) -> Node | None:
    """The member, if the node owes the target and is back in the life that is accounted for."""
    if node.phase is not NodePhase.REJOINED or VERSION not in node.owed or node.life is None:
        return None
    member = situation.member(node.name)
    return member if member is not None and member.incarnation.is_same_as(node.life) else None


def _steps_owed(node: NodeProgress) -> bool:
    return any(item.work is Work.INSTALL for item in node.owed)


def archived(situation: Situation) -> str:
    """Settings that the target does not know and archived, with what to do; empty if there are none."""
    found = situation.seen.settings
    if situation.policy.upgrade is None or isinstance(found, Unknown) or not found.archived:
        return ""
    return what_to_do(found.archived)


def mixed(situation: Situation) -> str:
    """The versions of a cluster that the end of an upgrade leaves mixed, in words; empty if it is not."""
    upgrade, view = situation.policy.upgrade, situation.view
    if upgrade is None or view is None:
        return ""
    others = sorted(f"{node.name} {node.version}" for node in view.nodes if not is_target(upgrade, node))
    more = f" and {len(others) - 5} more" if len(others) > 5 else ""  # noqa: PLR2004  (as in every list)
    return f"the cluster is left with mixed versions: {', '.join(others[:5])}{more}" if others else ""
