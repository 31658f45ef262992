"""The lease: one run a cluster, and what any bastion needs to put the cluster back without our state file."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.turn import HooksOf


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInHand:
    """A node that we took down or are about to, with the life it had before.

    Attributes:
        address: where its host is reached: a node that is down tells nobody.
        owed: names of the work that its turn owes, for a person who reads the record.
    """

    node: NodeName
    incarnation: Incarnation
    address: str = ""
    owed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """What stands in the cluster while a run is on.

    Attributes:
        epoch: counts takeovers; creating the next one is how a lease is taken over, which only one can.
        owner: `user@host`, for people.
        process: boot id, pid and start time of the owner's process, by which the same machine knows that
            it is provably gone.
        started: RFC 3339.
        heartbeat: counter; a watcher that sees the same one for 90 s of its own clock may take over.
        debts: settings changed and not yet put back, with what was found at both levels.
        excluded: nodes that we excluded from voting.
        in_hand: nodes that are ours to start.
        out_of_service: nodes whose `before_stop` hooks ran, or may have, and whose `after_recovery` hooks did
            not yet.
        hooks_of: the run whose hooks these are, whichever run holds the record; None where no node is out
            of service.
        restarted: nodes that forgot by us what stood in their memory (Riak's limits), so that what they show
            is nobody's change.
        left_by: the run whose leftovers these are, while they stand on in the record of the run that took
            the lease over from it; empty once they are the run's own.
    """

    epoch: int
    run: str
    owner: str
    process: str
    started: str
    heartbeat: int = 0
    debts: tuple[SettingChange, ...] = ()
    replicas: tuple[ReplicasAdded, ...] = ()
    excluded: tuple[NodeName, ...] = ()
    in_hand: tuple[NodeInHand, ...] = ()
    out_of_service: tuple[NodeName, ...] = ()
    hooks_of: HooksOf | None = None
    restarted: tuple[NodeName, ...] = ()
    left_by: str = ""

    @property
    def debtor(self) -> str:
        """The run that changed what stands here as owed."""
        return self.left_by or self.run

    @property
    def owes_nothing(self) -> bool:
        """Whether there is nothing to restore."""
        return not (self.debts or self.replicas or self.excluded or self.in_hand or self.out_of_service)
