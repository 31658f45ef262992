"""What ordinary nights bring, and the mishaps that are worse than that, drawn from dice."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Policy
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import How, Mishap, Trip, What
from tests.simulation import index_mishaps, node_mishaps, program_mishaps

ORDINARY_KINDS: Final = (
    index_mishaps.Rollovers,
    index_mishaps.IndexRestored,
    index_mishaps.IndexRestoredOver,
    index_mishaps.IndexReopened,
    index_mishaps.IndexMounted,
    index_mishaps.ReplicasSet,
    index_mishaps.WorkBegun,
    mishaps.IndexMade,
    index_mishaps.IndexDeleted,
    mishaps.SnapshotBegun,
    node_mishaps.DiskFills,
    mishaps.HostCutOff,
    mishaps.Unreadable,
    program_mishaps.StaleReadings,
    program_mishaps.EndpointsDisagree,
    mishaps.ProgramStalls,
    mishaps.LeaseUnrefreshed,
    node_mishaps.NodeFlaps,
    node_mishaps.NodePauses,
)
"""What happens on every cluster, and must never end a run."""

HOWS: Final = (How.REFUSED, How.LOST, How.UNACKNOWLEDGED, How.LATE)
"""What becomes of any verb; one that is done in part is drawn here alone."""

_CALLS: Final = (
    "set_allocation",
    "restore_allocation",
    "restore_settings",
    "probe_settings",
    "flush",
    "stop",
    "start",
)
_INDICES: Final = ("logs", "archive")


def patient(wanted: Policy) -> Policy:
    """The policy without what ends a run by itself, and with limits that outlast an ordinary night."""
    return replace(
        wanted,
        gates=(),
        merge=None,
        pause_after=None,
        timeout=None,
        deadlines=Deadlines(
            stop=300.0,
            start=300.0,
            rejoin=300.0,
            recover=2 * 3600.0,
            withheld=1800.0,
            hold=2 * 3600.0,
            reboot=600.0,
        ),
    )


def ordinary(dice: Random, names: list[NodeName]) -> tuple[tuple[Mishap, ...], tuple[Trip, ...]]:
    """A few ordinary mishaps, and at most two calls that are refused or cut off once."""
    plan = tuple(
        at_some_moment(dice, names, _ordinary(dice, dice.choice(names), number, len(names)))
        for number in range(dice.choice((1, 1, 2, 3, 5)))
    )
    trips = tuple(
        Trip(
            verb=dice.choice(_CALLS),
            how=dice.choice((How.REFUSED, How.REFUSED, How.LOST, How.UNACKNOWLEDGED)),
            first=dice.randint(1, 4),
        )
        for _ in range(dice.choice((0, 0, 1, 2)))
    )
    return plan, trips


def worse(
    dice: Random, names: list[NodeName], zones: tuple[str, ...]
) -> tuple[tuple[Mishap, ...], tuple[Trip, ...]]:
    """A mishap or two that may well end an attempt, and perhaps a stop that is done very late."""
    plan = tuple(
        at_some_moment(dice, names, _worse(dice, dice.choice(names), zones))
        for _ in range(dice.choice((1, 1, 2)))
    )
    late = Trip(
        verb="stop", how=How.LATE, first=dice.randint(1, 3), late=dice.choice((35.0, 70.0, 110.0, 400.0))
    )
    partly = Trip(verb=dice.choice(_CALLS[:3]), how=How.PARTLY, first=dice.randint(1, 3))
    return plan, dice.choice(((), (), (late,), (partly,)))


def at_some_moment(dice: Random, names: list[NodeName], what: What) -> Mishap:
    """At some moment, or around what the program does to a node, often the very one that it befalls."""
    if dice.random() < 0.4:
        return Mishap(what=what, after=dice.uniform(0.0, 30.0 * min(len(names), 10)))
    of_node = getattr(what, "node", None)
    target = of_node if of_node is not None and dice.random() < 0.5 else dice.choice(names)
    verb = dice.choice(("stop", "stop", "start", "start", "set_allocation"))
    after = dice.choice((0.0, 0.05, 1.0, 3.0, 8.0, 15.0))
    if verb == "set_allocation":
        return Mishap(what=what, verb=verb, nth=dice.randint(1, 4), after=after)
    return Mishap(what=what, verb=verb, target=target, after=after)


def _ordinary(dice: Random, node: NodeName, number: int, nodes: int) -> What:
    index = dice.choice(_INDICES)
    choices: tuple[What, ...] = (
        index_mishaps.Rollovers(
            index="logs",
            every=dice.choice((10.0, 20.0)),
            times=dice.choice((2, 6)),
            crowded=dice.randint(0, 2),
        ),
        mishaps.IndexMade(name=f"crowded-{number}", on=node, replicas=nodes),
        index_mishaps.IndexRestored(
            name=f"restored-{number}",
            seconds=dice.choice((5.0, 60.0, 400.0)),
            replicas=dice.choice((1, 1, 2)),
        ),
        index_mishaps.IndexRestoredOver(index="archive", seconds=dice.choice((5.0, 90.0))),
        index_mishaps.IndexReopened(index=index, seconds=dice.choice((0.5, 5.0, 30.0))),
        index_mishaps.IndexMounted(name=f"mounted-{number}", seconds=dice.choice((2.0, 30.0))),
        index_mishaps.ReplicasSet(index=index, replicas=dice.choice((1, 2, nodes))),
        index_mishaps.WorkBegun(
            node=node, seconds=dice.choice((60.0, 600.0, 1800.0)), reindex=dice.random() < 0.4
        ),
        index_mishaps.IndexDeleted(index="archive", made_again=dice.random() < 0.5),
        mishaps.SnapshotBegun(name=f"repo/hourly-{number}", seconds=dice.choice((20.0, 200.0, 900.0))),
        node_mishaps.DiskFills(
            node=node, share=dice.choice((0.87, 0.93)), seconds=dice.choice((120.0, 600.0))
        ),
        mishaps.HostCutOff(node=node, seconds=dice.choice((5.0, 20.0))),
        mishaps.Unreadable(seconds=5.0),
        program_mishaps.StaleReadings(seconds=3.0),
        program_mishaps.EndpointsDisagree(seconds=dice.choice((5.0, 30.0))),
        mishaps.ProgramStalls(seconds=20.0),
        mishaps.LeaseUnrefreshed(seconds=50.0),
        node_mishaps.NodeFlaps(node=node, seconds=dice.choice((0.3, 2.0, 10.0, 20.0))),
        node_mishaps.NodeFlaps(node=node, seconds=dice.choice((0.3, 2.0))),
        node_mishaps.NodePauses(node=node, seconds=dice.choice((5.0, 20.0, 35.0)), host=dice.random() < 0.3),
    )
    return dice.choice(choices)


def _worse(dice: Random, node: NodeName, zones: tuple[str, ...]) -> What:
    journal = dice.choice(
        (
            program_mishaps.JournalFails(reason="database is locked", seconds=dice.choice((3.0, 60.0))),
            program_mishaps.JournalFails(reason="attempt to write a readonly database", seconds=300.0),
            program_mishaps.JournalFails(reason="database disk image is malformed", seconds=None),
        )
    )
    choices: tuple[What, ...] = (
        node_mishaps.DiesAgain(
            node=node,
            times=dice.choice((1, 2, 4)),
            after=dice.choice((1.0, 5.0, 30.0)),
            back_after=dice.choice((None, None, 0.5, 10.0)),
        ),
        node_mishaps.DiskLost(node=node),
        node_mishaps.ReturnsChanged(node=node, version=dice.choice(("9.0.4", "9.1.1"))),
        node_mishaps.ReturnsChanged(node=node, zone=dice.choice(zones) if zones else None),
        node_mishaps.ZoneLost(zone=dice.choice(zones), back_after=600.0)
        if zones
        else mishaps.NodeDies(node=node, back_after=600.0),
        node_mishaps.RebootHangs(node=node),
        node_mishaps.HostRefuses(node=node, seconds=dice.choice((60.0, 900.0)), key=dice.random() < 0.5),
        node_mishaps.PeersUnreachable(node=node, seconds=dice.choice((20.0, 300.0))),
        node_mishaps.NodePauses(node=node, seconds=400.0, host=dice.random() < 0.5),
        index_mishaps.RecoveriesStall(seconds=dice.choice((120.0, 1500.0))),
        mishaps.AllocationsFail(index=dice.choice(_INDICES), times=5),
        program_mishaps.CredentialsRefused(seconds=dice.choice((10.0, 900.0))),
        journal,
        program_mishaps.TakenOver(seconds=dice.choice((110.0, 150.0, 400.0)), restarts=dice.random() < 0.4),
        program_mishaps.TakenOver(seconds=dice.choice((110.0, 150.0, 400.0)), restarts=dice.random() < 0.4),
        mishaps.PersonAsked(request=dice.choice((Request.PAUSE, Request.INTERRUPT))),
    )
    return dice.choice(choices)
