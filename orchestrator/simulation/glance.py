"""Everything that a plan reads, from a simulated cluster, without letting time pass."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.event import RunStarted
from orchestrator.model.observation import EVERYTHING, Look, Observation
from orchestrator.model.reading import Unknown
from orchestrator.riak.rules.recovery import planned_too
from orchestrator.simulation import bulk, tuning, views
from orchestrator.simulation.gates import SimulatedGates
from orchestrator.simulation.world import World


def glance(world: World, started: RunStarted) -> Observation:
    """The observation from which that run would be planned."""
    now, profile, upgrade = world.agenda.now, started.policy.tune, started.policy.upgrade
    look = EVERYTHING - {Look.RECOVERIES} | {Look.STORED} | ({Look.UPGRADE} if upgrade else set())
    silent = {name for name, node in world.nodes.items() if now < node.unreachable_until}
    return replace(
        views.readings(world, look | planned_too(started.policy)).seen(now),
        hosts={
            name: Unknown(reason=f"host of {name}: no route to it")
            if name in silent
            else views.host(node, rights=True, reboot=started.policy.reboot, now=now)
            for name, node in world.nodes.items()
        },
        tuning=tuning.read([node for node in world.nodes.values() if node.name not in silent], profile)
        if profile
        else {},
        bulk=bulk.bulk(world, [index.index_uuid for index in started.indices]),
        readiness={name: node.disk.ready for name, node in world.nodes.items()} if upgrade else {},
        gates=SimulatedGates(world=world).states(),
    )
