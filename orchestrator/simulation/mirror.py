"""A simulated cluster that starts as a real one was read; the basis of a rehearsal.

Members, settings, disks, gates and known facts of the hosts are copied. Features that the simulation does not
have (a pinned index, a reindex) are missing, so the rehearsal compares the holds of both clusters.
"""

from __future__ import annotations

from orchestrator.engine.gates import judged
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import machines_of
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import HostView, Observation
from orchestrator.model.policy import Kind, Policy, Strategy
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import HostTuning, Verdict
from orchestrator.simulation import gates
from orchestrator.simulation.coherence import require_coherent
from orchestrator.simulation.mirror_elasticsearch import mirrored_elasticsearch
from orchestrator.simulation.mirror_riak import mirrored_riak
from orchestrator.simulation.parts import GateState, SimGate, SimNode
from orchestrator.simulation.required import require
from orchestrator.simulation.tuning import UNREADABLE
from orchestrator.simulation.world import World


def mirrored(started: RunStarted, seen: Observation, *, seed: int) -> World:
    """Build the cluster of this reading.

    Args:
        started: how the run on it would begin.
        seen: everything that a plan reads.
        seed: seed of the random choices in the simulation.

    Raises:
        UsageError: a part could not be read, or the parts do not fit together.
    """
    policy, view = started.policy, require(seen.cluster, "the cluster")
    require_coherent(started, view, seen.at)
    of_kind = mirrored_riak if policy.kind is Kind.RIAK else mirrored_elasticsearch
    world = of_kind(view, seen, policy, seed)
    world.uuid = view.uuid
    world.one_machine = policy.strategy is Strategy.NODE
    world.across_zones = policy.strategy is Strategy.SHARD_SAFE and policy.zone_attribute is None
    _machines(world, seen)
    for name, node in world.nodes.items():
        if name in seen.hosts:
            _host(node, seen.hosts[name])
        if name in seen.tuning:
            _kernel(node, seen.tuning[name])
    _gates(world, seen, policy)
    return world


def _machines(world: World, seen: Observation) -> None:
    """Nodes share a machine here if the run would treat them so: clones of one image share only its id."""
    for shared in machines_of(RunState(run=""), seen).among(world.nodes):
        for name in shared:
            world.nodes[name].machine = shared[0]


def _host(node: SimNode, read: Reading[HostView]) -> None:
    """A host that did not answer does not answer here either."""
    if isinstance(read, Unknown):
        node.unreachable_until = float("inf")
        return
    node.service = read.service


def _kernel(node: SimNode, read: Reading[HostTuning]) -> None:
    if isinstance(read, Unknown):
        return
    for state in read.states:
        if state.changes:
            node.kernel[state.tunable] = state.former or UNREADABLE
        elif state.verdict is Verdict.UNKNOWN:
            node.kernel[state.tunable] = UNREADABLE


def _gates(world: World, seen: Observation, policy: Policy) -> None:
    """A gate that alerts close is closed by those that would hold a run that begins now."""
    for gate in policy.gates:
        said = judged(gate, seen.gate(gate.name), RunState(run=""))
        if isinstance(said, Unknown):
            state = GateState.UNREADABLE
        else:
            state = GateState.OPEN if said.open else GateState.CLOSED
        world.gates[gate.name] = SimGate(state=state)
    gates.add_gates(world, policy.gates)
