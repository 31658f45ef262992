"""What one reading shows of a node: of what its host and the member list say, what counts."""

from __future__ import annotations

from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.grid import Sight
from orchestrator.engine.progress import GOING_UP_OR_DOWN, NodeProgress
from orchestrator.engine.situation import Situation
from orchestrator.model.observation import ServiceState
from orchestrator.model.phase import Verb
from orchestrator.model.reading import Unknown

_GONE: Final = (ServiceState.STOPPED, ServiceState.FAILED)
"""The process is gone: a unit whose exit status does not count as success is "failed" after a clean stop."""


def sight(situation: Situation, node: NodeProgress) -> Sight:
    """What this reading shows of a node.

    The host's "gone" overrides the member list: a start that is not needed is harmless. While a node goes up
    or down, a life counts only if the host reports a running service: a master may list a node that has just
    died. If the host has seen the end of a life, a member list with that life is old: the node is not back.
    """
    host = situation.seen.host(node.name)
    service = None if isinstance(host, Unknown) else host.service
    open_ = _doubt_is_open(situation, node)
    awaits_reboot = open_ and node.doubt is not None and node.doubt.verb is Verb.REBOOT
    if service is ServiceState.STOPPING:
        return Sight.STOPPING
    if service in _GONE and not awaits_reboot:
        return Sight.AWAY
    if open_:
        return Sight.DOUBT
    member = situation.member(node.name)
    moving = node.phase in GOING_UP_OR_DOWN
    runs = service is ServiceState.RUNNING
    if lives_on(situation, node):
        return Sight.SAME if runs or not moving else Sight.UNKNOWN
    if member is not None and node.life is not None and member.incarnation.differs_from(node.life):
        certain = runs or not moving or node.doubt is None
        return Sight.NEW if certain else Sight.UNKNOWN
    if service in (ServiceState.RUNNING, ServiceState.STARTING):
        return Sight.COMING
    if situation.view is not None and member is None:
        return Sight.LEFT
    return Sight.UNKNOWN


def lives_on(situation: Situation, node: NodeProgress) -> bool:
    """Whether the cluster has a node with the process that the run has recorded, whatever its host says."""
    member = situation.member(node.name)
    if member is None or node.life is None or node.over:
        return False
    return member.incarnation.is_same_as(node.life)


def _doubt_is_open(situation: Situation, node: NodeProgress) -> bool:
    """Whether a verb that was sent may still take effect.

    An accepted stop is done once the node lives another life.
    """
    doubt = node.doubt
    if doubt is None or situation.rebooted(node):
        return False
    if doubt.verb is Verb.STOP and doubt.accepted:
        member = situation.member(node.name)
        if member is not None and node.life is not None and member.incarnation.differs_from(node.life):
            return False
    return situation.over(limits.EFFECT, node) is None
