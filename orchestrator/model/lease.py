"""The lease: one run per cluster, and everything another bastion needs to restore the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import Incarnation, NodeName, require_address
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.phase import HooksOf


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInHand:
    """A node that the run stopped or is about to stop, with its incarnation before the stop.

    Attributes:
        address: address of its host. A node that is down does not report it.
        owed: names of the node's owed work, for a person who reads the record.
    """

    node: NodeName
    incarnation: Incarnation
    address: str = ""
    owed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an invalid address; raises `UntrustedValue`."""
        require_address(self.node, self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The record that is stored in the cluster while a run is active.

    Attributes:
        epoch: counts takeovers. A takeover creates the next epoch, and only one process can succeed.
        owner: `user@host`, for people.
        process: boot id, pid and start time of the owner's process. On the same machine they can prove that
            the process has ended.
        started: RFC 3339.
        heartbeat: counter. A watcher that sees the same value for 90 s by its own clock may take over.
        debts: settings changed and not restored yet, with the original value at both levels.
        excluded: nodes that the run excluded from voting.
        in_hand: nodes that the run has to start.
        out_of_service: nodes whose `before_stop` hooks ran, or may have run, and whose `after_recovery` hooks
            did not run yet.
        hooks_of: the run whose hooks these are, even if another run holds the record; None where no node is
            out of service.
        restarted: nodes whose in-memory settings (Riak's limits) were lost by a restart of this run, so that
            a different value there is not a change by a person.
        left_by: the earlier run whose pending changes these are, while the run that took over the lease still
            keeps them in its record; empty once they are the run's own.
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
        """The run that made the pending changes in this record."""
        return self.left_by or self.run

    @property
    def owes_nothing(self) -> bool:
        """Whether there is nothing to restore."""
        return not (self.debts or self.replicas or self.excluded or self.in_hand or self.out_of_service)
