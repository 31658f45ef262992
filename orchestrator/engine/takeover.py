"""What another run left behind, as the beginning of a run that only puts it back."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.kinds.elasticsearch.settings import ALLOCATION
from orchestrator.model.action import Purpose
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    Event,
    ReplicasAdded,
    RestoreBegun,
    RunStarted,
    SettingChanged,
    VotingExcluded,
    WaveStarted,
    node_phase,
)
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Wave


def from_record(record: LeaseRecord, started: RunStarted) -> tuple[Event, ...]:
    """The events of a run that owes what the record in the cluster says, and does nothing but pay it.

    Args:
        record: the last words of the run that was taken over.
        started: how the new run begins; its nodes become those that the record has in hand.
    """
    names = tuple(node.node for node in record.in_hand)
    addresses: dict[NodeName, str] = {
        **started.addresses,
        **{node.node: node.address for node in record.in_hand if node.address},
    }
    # A node in hand is to be started, whatever the new run was to do: the record knows of no boot.
    policy = replace(started.policy, reboot=False)
    events: list[Event] = [
        replace(
            started,
            nodes=names,
            addresses=addresses,
            policy=policy,
            repairs=record.debtor,
            restarted=record.restarted,
        )
    ]
    for debt in record.debts:
        purpose = Purpose.WITHHOLD if debt.key == ALLOCATION else Purpose.RAISE_LIMITS
        events.append(
            SettingChanged(
                level=debt.level, key=debt.key, found=debt.found, wanted=debt.wanted, purpose=purpose
            )
        )
    events += [
        ReplicasAdded(index=r.index, index_uuid=r.index_uuid, found=r.found, wanted=r.wanted)
        for r in record.replicas
    ]
    events += [VotingExcluded(node=name) for name in record.excluded]
    if names:
        lives = {node.node: node.incarnation for node in record.in_hand}
        why = f"in hand of run {record.debtor}"
        events.append(WaveStarted(wave=Wave(number=1, nodes=names, why=why), incarnations=lives))
        events += [node_phase(name, NodePhase.PENDING, NodePhase.STOPPING, why=why) for name in names]
    events.append(RestoreBegun(operator=started.operator, host=started.host))
    return tuple(events)


def owes_nothing(record: LeaseRecord) -> bool:
    """Whether there is nothing to put back."""
    return not (record.debts or record.replicas or record.excluded or record.in_hand)
