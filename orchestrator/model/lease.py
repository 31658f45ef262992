"""The lease: one run per cluster, and everything another bastion needs to restore the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import Incarnation, NodeName, require_address
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.phase import HooksOf


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInHand:
    """A node that the run stopped or is about to stop, with its incarnation before the stop."""

    node: NodeName
    incarnation: Incarnation
    address: str = ""  # address of its host. A node that is down does not report it.
    owed: tuple[str, ...] = ()  # names of the node's owed work, for a person who reads the record

    def __post_init__(self) -> None:
        """Refuse an invalid address; raises `UntrustedValue`."""
        require_address(self.node, self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The record that is stored in the cluster while a run is active."""

    epoch: int  # counts takeovers. A takeover creates the next epoch, and only one process can succeed.
    run: str
    owner: str  # `user@host`, for people
    # boot id, pid and start time of the owner's process. On the same machine they can prove that the process
    # has ended.
    process: str
    started: str  # RFC 3339
    heartbeat: int = 0  # counter. A watcher that sees the same value for 90 s by its own clock may take over.
    # settings changed and not restored yet, with the original value at both levels
    debts: tuple[SettingChange, ...] = ()
    replicas: tuple[ReplicasAdded, ...] = ()
    excluded: tuple[NodeName, ...] = ()  # nodes that the run excluded from voting
    in_hand: tuple[NodeInHand, ...] = ()  # nodes that the run has to start
    # nodes whose `before_stop` hooks ran, or may have run, and whose `after_recovery` hooks did not run yet
    out_of_service: tuple[NodeName, ...] = ()
    # the run whose hooks these are, even if another run holds the record; None where no node is out of
    # service
    hooks_of: HooksOf | None = None
    # nodes whose in-memory settings (Riak's limits) were lost by a restart of this run, so that a different
    # value there is not a change by a person
    restarted: tuple[NodeName, ...] = ()
    # the earlier run whose pending changes these are, while the run that took over the lease still keeps them
    # in its record; empty once they are the run's own
    left_by: str = ""

    @property
    def debtor(self) -> str:
        """The run that made the pending changes in this record."""
        return self.left_by or self.run

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to restore."""
        return not (self.debts or self.replicas or self.excluded or self.in_hand or self.out_of_service)
