"""For each predicate a whole run that nothing else would stop, and what shows that it was not stopped.

Each predicate is deleted in turn, and its scenario must notice: a rule whose deletion nothing notices is not
tested.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.model.action import StopNode, WriteSettings
from orchestrator.model.cluster import Incarnation, NodeName, Role
from orchestrator.model.event import WaveStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import (
    Deadlines,
    DisabledPredicate,
    Policy,
    RecoveryLimits,
    Wave,
)
from orchestrator.model.upgrade import Deprecation
from orchestrator.simulation import allocation, deciders, mishaps
from orchestrator.simulation.facts import FIT, READY
from orchestrator.simulation.mishaps import Mishap
from orchestrator.simulation.parts import GateState, SimGate, SimShard
from orchestrator.simulation.world import World
from tests.simulation import program_mishaps
from tests.simulation.gated import QUEUE
from tests.simulation.overlapping import overlapped, slowed, threefold
from tests.simulation.play import cluster, play, policy, run
from tests.simulation.program import Simulation
from tests.simulation.upgrading import wanted
from tests.simulation.zones import ZONED, lopsided, zoned

Lapse = str | None
"""What went wrong; None when the run behaved."""

_QUICK: Final = Deadlines(hold=60.0)
_ALLOCATION: Final = "cluster.routing.allocation.enable"


def _wanted(**changes: object) -> Policy:
    return policy(**{"deadlines": _QUICK, **changes})


def _stopped(simulation: Simulation) -> list[str]:
    return [action.node for action in simulation.hosts.sent if isinstance(action, StopNode)]


def _held(
    world: World, *, spare: str | None = None, plan: tuple[Mishap, ...] = (), **changes: object
) -> Lapse:
    """A lapse unless the run is held before it stops `spare` (None: any node at all)."""
    simulation, state = run(world, plan=plan, wanted=_wanted(**changes))
    stopped = _stopped(simulation)
    if world.violations:
        return world.violations[0]
    if spare in stopped or (spare is None and stopped):
        return f"stopped {', '.join(stopped)}, though it should have held"
    if state.outcome is not Outcome.HELD:
        return f"ended as {state.outcome}: {state.message}"
    return None


def _shard_with_primary_on(world: World, name: str) -> SimShard:
    return next(s for _, s in deciders.shards_of(world) if s.primary.node == name)


def observation_is_fresh() -> Lapse:
    """A reading that says it may be old, at the last look before a stop."""
    world = cluster(3)
    old = Mishap(what=program_mishaps.StaleReadings(seconds=30.0), verb="flush")
    _, state = run(world, plan=(old,))
    lapse = world.violations[0] if world.violations else None
    return lapse or (None if state.outcome is Outcome.DONE else f"ended as {state.outcome}: {state.message}")


def cluster_is_the_one_named() -> Lapse:
    """The endpoints belong to another cluster."""
    return _held(cluster(3), cluster="another")


def lease_is_held() -> Lapse:
    """Somebody removes the lease before the first stop: no node may be stopped, and no wave begun again."""
    simulation, state = run(cluster(3), plan=[Mishap(what=mishaps.LeaseRemoved())], wanted=_wanted())
    begun = sum(isinstance(record.event, WaveStarted) for record in simulation.journal.records)
    if simulation.hosts.sent or begun > 1 or state.outcome is not Outcome.HELD:
        return f"{len(simulation.hosts.sent)} verbs, {begun} waves begun; ended as {state.outcome}"
    return None


def settings_are_writable() -> Lapse:
    """Every settings update is refused: nothing may be tried on such a cluster."""
    world = cluster(3)
    world.refuse_settings = "400 archived settings"
    simulation, state = run(world, wanted=_wanted())
    writes = sum(isinstance(action, WriteSettings) for action in simulation.cluster.sent)
    if writes or state.outcome is not Outcome.HELD:
        return f"{writes} updates were tried; ended as {state.outcome}"
    return None


def no_other_maintenance() -> Lapse:
    """Somebody else has switched allocation off."""
    world = cluster(3)
    world.set(Level.PERSISTENT, _ALLOCATION, "none")
    return _held(world)


def expected_nodes_present() -> Lapse:
    """Four nodes are expected, three are there."""
    return _held(cluster(3), expect_nodes=4)


def cluster_not_red() -> Lapse:
    """An index has been red since before the run, and nobody accepted that."""
    world = cluster(3)
    world.add_index("broken", replicas=0, places=["es3"])
    shard = next(s for i, s in deciders.shards_of(world) if i.name == "broken")
    shard.primary.node, shard.primary.state = None, type(shard.primary.state).UNASSIGNED
    shard.primary.reason = "ALLOCATION_FAILED"
    shard.on_disk = {}
    return _held(world)


def no_worse_than_baseline() -> Lapse:
    """Copies of the wave before are still unassigned when the next one would go."""
    return copy_that_no_one_works_on()


def every_shard_keeps_started_copies() -> Lapse:
    """A started copy is not in the in-sync set: its node goes first, which repairs it."""
    world = cluster(3)
    shard = _shard_with_primary_on(world, "es2")
    shard.in_sync = frozenset({str(shard.primary.allocation_id)})
    _, state = run(world, wanted=_wanted())
    if world.violations:
        return world.violations[0]
    return None if state.outcome is Outcome.DONE else f"ended as {state.outcome}: {state.message}"


def no_recovery_on_candidates() -> Lapse:
    """A copy moves away from the candidate while the gates are asked."""
    world = cluster(3)
    shard = _shard_with_primary_on(world, "es2")
    free = next(name for name in world.nodes if all(copy.node != name for copy in shard.copies))
    allocation.relocate(world, shard.primary, free, 5000.0)
    return _held(world)


def copies_can_return() -> Lapse:
    """A replica is where its index no longer allows it, and no other node may have it."""
    world = cluster(3)
    index = world.add_index("pair", replicas=1, places=["es1", "es2"])
    index.rules = {"require._name": "es1"}
    return _held(world)


def zero_replica_indices() -> Lapse:
    """The candidate has the only copy of an index, by its making."""
    world = cluster(3)
    world.add_index("bare", replicas=0, places=["es2"])
    return _held(world)


def master_quorum_survives() -> Lapse:
    """Of two nodes, one is the only voter."""
    return _held(cluster(2), spare="es1")


def every_role_keeps_a_member() -> Lapse:
    """One node alone runs machine learning."""
    world = cluster(3)
    node = world.nodes[NodeName("es2")]
    node.roles |= {Role.ML}
    return _held(world)


def capacity_remains() -> Lapse:
    """A zone with three of the five data nodes, and nothing else against stopping all of it."""
    return _by_zone(lopsided())


def _by_zone(world: World, **changes: object) -> Lapse:
    """A lapse unless the run ends well and never has more nodes down than the world allows."""
    _, state = run(world, wanted=_wanted(**{**ZONED, **changes}))
    if world.violations:
        return world.violations[0]
    return None if state.outcome is Outcome.DONE else f"ended as {state.outcome}: {state.message}"


def _wave_of(names: tuple[str, ...]) -> Lapse:
    """A wave chosen elsewhere (by a later strategy, say) comes to the gates: it may only become smaller."""
    world = zoned()
    wanted = _wanted(**ZONED)
    undisturbed, _ = run(zoned(), wanted=wanted)
    simulation = Simulation(world)
    simulation.seams.crash_at = undisturbed.seams.passed.index("after the commit of phase_entered") + 1
    with contextlib.suppress(mishaps.Crash):  # no more than a way to halt at the gates
        play(simulation, simulation.begin(wanted))
    nodes = tuple(NodeName(name) for name in names)
    lives = {name: Incarnation(ephemeral_id=f"{name}-life-1", started_at_ms=1) for name in nodes}
    state = simulation.journalled(WaveStarted(wave=Wave(number=1, nodes=nodes), incarnations=lives))
    state = play(simulation, state)
    if world.violations:
        return world.violations[0]
    return None if state.outcome is Outcome.DONE else f"ended as {state.outcome}: {state.message}"


def one_zone_at_a_time() -> Lapse:
    """A wave of two nodes in two zones."""
    return _wave_of(("es1", "es5"))


def budget_not_exceeded() -> Lapse:
    """Zones of three nodes, and two may be away."""
    return _by_zone(zoned(9, most=2), max_unavailable=2)


def version_order() -> Lapse:
    """The candidate is older than the nodes that have the primaries of its replicas."""
    world = cluster(3)
    world.nodes[NodeName("es2")].version = "9.0.0"
    return _held(world)


def _not_upgraded(world: World, version: str = "9.1.0", **changes: object) -> Lapse:
    """A lapse unless the upgrade of a cluster with this version is held before it stops any node."""
    for node in world.nodes.values():
        node.version = version
    return _held(world, upgrade=wanted(**changes))


def upgrade_path_is_supported() -> Lapse:
    """A major version lies between the two."""
    return _not_upgraded(cluster(3), "7.17.28")


def no_node_is_newer() -> Lapse:
    """One node runs a newer version than the target."""
    world = cluster(3)
    world.nodes[NodeName("es3")].version = "9.3.0"
    return _held(world, upgrade=wanted(), disabled_predicates=(DisabledPredicate(name="version_order"),))


def indices_open_in_target() -> Lapse:
    """An index is older than what the target opens."""
    world = cluster(3)
    world.fitness = replace(FIT, created={"logs": "7.17.28"})
    return _not_upgraded(world, "8.19.0")


def no_critical_deprecations() -> Lapse:
    """The cluster itself lists what would stop working."""
    world = cluster(3)
    world.fitness = replace(FIT, deprecations=(Deprecation(subject="index logs", message="too old"),))
    return _not_upgraded(world, "8.19.0")


def snapshot_is_recent() -> Lapse:
    """There is no snapshot, and the playbook wants a recent one."""
    return _not_upgraded(cluster(3), snapshot_younger_than=3600.0)


def settings_known_to_target() -> Lapse:
    """A setting of the files is gone in the target."""
    world = cluster(3)
    world.fitness = replace(FIT, settings={NodeName("es3"): ("node.master",)})
    return _not_upgraded(world, "7.17.28", target="8.19.0")


def _with_host(**fields: object) -> Lapse:
    world = cluster(3)
    world.nodes[NodeName("es3")].disk.ready = replace(READY, **fields)
    return _not_upgraded(world)


def hosts_can_install() -> Lapse:
    """A host has no package of the target."""
    return _with_host(failed=("no such package",))


def keystores_need_no_password() -> Lapse:
    """A keystore asks for a password."""
    return _with_host(keystore_password=True)


def disk_space_for_install() -> Lapse:
    """A disk has no room for the package."""
    return _with_host(free_bytes=100 << 20)


def disk_below_watermark() -> Lapse:
    """A disk is too full for what would have to come back."""
    world = cluster(3)
    world.disks[NodeName("es2")] = 0.95
    return _held(world, spare="es2")


def no_running_snapshot() -> Lapse:
    """The nightly snapshot is running."""
    world = cluster(3)
    world.snapshots = ("repo/nightly",)
    return _held(world)


def no_force_merge_or_reindex_on_candidates() -> Lapse:
    """A force-merge runs on the candidate."""
    world = cluster(3)
    world.merges.add(NodeName("es2"))
    return _held(world, spare="es2")


def pending_tasks_drained() -> Lapse:
    """The master has had a task in its queue for a minute."""
    world = cluster(3)
    world.oldest_task = 60.0
    return _held(world)


def selected_hosts_ready() -> Lapse:
    """A host of a later wave does not answer: found before the first stop."""
    world = cluster(3)
    world.nodes[NodeName("es1")].unreachable_until = world.agenda.now + 100_000.0
    return _held(world)


def no_management_run_on_candidates() -> Lapse:
    """Puppet applies its catalog on the host of the candidate, and comes to no end."""
    world = cluster(3)
    world.nodes[NodeName("es2")].disk.managed = (0.0, 1e9)
    return _held(world, spare="es2")


def gates_open() -> Lapse:
    """The queue in front of the cluster is too long from the beginning, and stays so."""
    world = cluster(3)
    world.gates[QUEUE.name] = SimGate(state=GateState.CLOSED)
    return _held(world, gates=(QUEUE,), deadlines=Deadlines(hold=60.0, gate=60.0))


def _overlapped(world: World, **changes: object) -> Lapse:
    """A lapse by the ground truth alone, with nobody but the world's judge looking."""
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(overlapped(**changes)), invariants=False)
    if world.violations:
        return world.violations[0]
    return None if state.outcome is Outcome.DONE else f"ended as {state.outcome}: {state.message}"


def source_of_a_recovery() -> Lapse:
    """With overlap: the next node has one of two other copies of what the one before it still recovers."""
    return _overlapped(threefold())


def copy_that_no_one_works_on() -> Lapse:
    """With overlap: more copies come back to a node than may recover at a time, so some are unassigned."""
    world = zoned()
    world.add_index("more", shards=3, places=["es4", "es1"])
    return _overlapped(slowed(world), recovery_limits=RecoveryLimits(node_concurrent_recoveries=None))


OF_OVERLAP: Final[Mapping[str, tuple[str, Callable[[], Lapse]]]] = {
    source_of_a_recovery.__name__: ("no_recovery_on_candidates", source_of_a_recovery),
    copy_that_no_one_works_on.__name__: ("no_worse_than_baseline", copy_that_no_one_works_on),
}
"""With `overlap_recovery` two predicates have one more thing to stand against; by the scenario's name."""

SCENARIOS: Final[Mapping[str, Callable[[], Lapse]]] = {
    rule.name: globals()[rule.name] for rule in PREDICATES if rule.name in globals()
}
"""By the name of the predicate that alone stands in the way."""
