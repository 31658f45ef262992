"""The version with which a node returns from an upgrade: whether it is the target, and who has missed it.

A node is upgraded once a process that began after its last install step reports the target.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import Situation
from orchestrator.model.archived import what_to_do
from orchestrator.model.cluster import Node
from orchestrator.model.event import Event, RunStarted
from orchestrator.model.phase import VERSION, NodePhase, Work
from orchestrator.model.policy import Policy, numbers
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import Upgrade
from orchestrator.model.work_event import Upgraded, UpgradeMissed


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


def version_after(begun: RunStarted, node: NodeProgress) -> str:
    """The version with which a node of the run starts next, as far as its journal shows it."""
    upgrade = begun.policy.upgrade
    installed = upgrade is not None and node.installs and node.install is None and not _steps_owed(node)
    return upgrade.target if upgrade is not None and installed else begun.version


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
