"""The lease's record of a run: everything that another machine needs to restore the cluster."""

from __future__ import annotations

from orchestrator.engine import late_stop
from orchestrator.engine.progress import MAY_BE_DOWN, Mark
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import Incarnation
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.phase import HooksOf, in_order


def record_of(state: RunState, record: LeaseRecord) -> LeaseRecord:
    """`record` updated to this state."""
    settings = state.unrestored.settings.values()
    out = (*(node.name for node in state.nodes.of(Mark.UNDOES)), *state.unserved)
    own = HooksOf(run=state.run, playbook=state.begun.policy.playbook)
    return LeaseRecord(
        epoch=record.epoch,
        run=record.run,
        owner=record.owner,
        process=record.process,
        started=record.started,
        heartbeat=record.heartbeat,
        debts=tuple(debt for _, debt in state.unrestored.in_order),
        replicas=tuple(added for _, added in sorted(state.unrestored.replicas.items())),
        excluded=tuple(sorted(state.unrestored.excluded)),
        in_hand=tuple(
            NodeInHand(
                node=node.name,
                incarnation=node.life or Incarnation(),
                address=state.begun.addresses.get(node.name, ""),
                owed=in_order(node.owed),
            )
            for node in state.nodes.of(Mark.AWAKE)
            if node.phase in MAY_BE_DOWN or late_stop.may_be_done(state, node)
        ),
        out_of_service=out,
        hooks_of=(state.begun.hooks_of or own) if out else None,
        # A setting that is in the memory of a node is cleared by a restart of it.
        restarted=tuple(sorted(state.forgetful)) if any(debt.holder for debt in settings) else (),
    )
