"""Troubles of a rehearsal, drawn from a seed, each with a description for people.

A few at a time, of the kinds that operators report: hosts that are cut off, starts that fail, a second node
that dies, another person at work, the program killed. A trouble that is tied to a verb of the program happens
at that verb, so that it meets the run and not the quiet time before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from orchestrator.elasticsearch.rules.settings import EXCLUSIONS
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.riak import limit_key
from orchestrator.simulation import mishaps, riak_mishaps
from orchestrator.simulation.mishaps import How, Mishap, Trip, What
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World

QUIET: Final = 0
"""The seed of a run without troubles."""
_NEVER_SUCCEEDS: Final = 99
_SEAMS_A_NODE: Final = 25
"""Approximate number of commits and verbs in a node's restart; kills are drawn from this range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightTrouble:
    """One trouble."""

    words: str  # what happens, for people
    happens: Mishap | Trip  # the mishap and its time


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """All troubles of one rehearsal."""

    troubles: tuple[NightTrouble, ...] = ()
    # numbers of commits and verbs after which the program is killed, counted from 0 after each kill
    kills: tuple[int, ...] = ()

    @property
    def plan(self) -> tuple[Mishap, ...]:
        """The mishaps of the cluster and its machines."""
        return tuple(each.happens for each in self.troubles if isinstance(each.happens, Mishap))

    @property
    def trips(self) -> tuple[Trip, ...]:
        """Verbs that go wrong."""
        return tuple(each.happens for each in self.troubles if isinstance(each.happens, Trip))

    @property
    def words(self) -> Mapping[What | Trip, str]:
        """The description of each, shown when it happens."""
        return {
            each.happens.what if isinstance(each.happens, Mishap) else each.happens: each.words
            for each in self.troubles
        }


def night(seed: int, world: World, nodes: Sequence[NodeName]) -> Night:
    """Draw the troubles of a seed.

    Args:
        seed: the same one draws the same troubles for the same cluster.
        world: the cluster as it is before the run.
        nodes: nodes that are to be restarted, at least one.
    """
    if seed == QUIET:
        return Night()
    dice = Random(f"night {seed}")  # noqa: S311  (repeatable, and not a secret)
    drawn: dict[What | Trip, NightTrouble] = {}
    for _ in range(dice.choice((1, 1, 2, 2, 3))):
        node = dice.choice(nodes)
        others = [name for name, each in world.nodes.items() if name != node and each.process]
        other = dice.choice(others or [node])
        own = _of_riak(world, node, other) if isinstance(world, RiakWorld) else _of_shards(world, dice, node)
        one = dice.choice((*_of_machines(node, other), *own))
        drawn[one.happens.what if isinstance(one.happens, Mishap) else one.happens] = one
    most = _SEAMS_A_NODE * len(nodes)
    return Night(
        troubles=tuple(drawn.values()),
        kills=tuple(dice.randint(2, most) for _ in range(dice.choice((0, 0, 1, 1, 2)))),
    )


def _at(verb: str, node: NodeName, what: What, words: str, *, after: float = 1.0) -> NightTrouble:
    return NightTrouble(words=words, happens=Mishap(what=what, verb=verb, target=node, after=after))


def _from_the_start(what: What, words: str) -> NightTrouble:
    return NightTrouble(words=words, happens=Mishap(what=what))


def _of_machines(node: NodeName, other: NodeName) -> tuple[NightTrouble, ...]:
    """Troubles of any kind of node, and of the program."""
    return (
        _from_the_start(mishaps.StartsFail(node=node, times=1), f"the next start of {node} will fail"),
        _from_the_start(
            mishaps.StartsFail(node=node, times=_NEVER_SUCCEEDS), f"no start of {node} will succeed"
        ),
        _from_the_start(mishaps.StopHangs(node=node), f"a stop of {node} will never end"),
        _from_the_start(
            mishaps.RisesByItself(node=node), f"something will start {node} again right after its stop"
        ),
        NightTrouble(
            words=f"the connection to {node} is lost as it is stopped, and the stop continues",
            happens=Trip(verb="stop", how=How.UNACKNOWLEDGED, target=node),
        ),
        NightTrouble(
            words=f"the connection to {node} is lost before its start is begun",
            happens=Trip(verb="start", how=How.LOST, target=node),
        ),
        _at(
            "stop",
            node,
            mishaps.HostCutOff(node=node, seconds=90.0),
            f"the host of {node} cannot be reached for 90 s",
        ),
        _at(
            "stop",
            node,
            mishaps.NodeDies(node=other, back_after=300.0),
            f"{other} dies, and somebody starts it after 5 min",
        ),
        _at("start", node, mishaps.Unreadable(seconds=60.0), "the cluster answers no read for 60 s"),
        _at(
            "start",
            node,
            mishaps.LeaseUnrefreshed(seconds=200.0),
            "no refresh of the run's lease arrives for 200 s",
        ),
        _at(
            "start",
            node,
            mishaps.ProgramStalls(seconds=70.0),
            "the machine of the program is suspended for 70 s",
        ),
    )


def _of_shards(world: World, dice: Random, node: NodeName) -> tuple[NightTrouble, ...]:
    """Troubles of indices and settings of Elasticsearch and OpenSearch."""
    replicated = sorted(index.name for index in world.indices.values() if index.replicas and not index.closed)
    failing = dice.choice(replicated) if replicated else None
    return (
        _at(
            "start",
            node,
            mishaps.SnapshotBegun(name="repository/nightly", seconds=600.0),
            "snapshot repository/nightly begins; it takes 10 min",
        ),
        _at(
            "stop",
            node,
            mishaps.IndexMade(name=f"made-on-{node.lower()}", on=node),
            f"an index is made whose primary lands on {node} while it is being stopped",
            after=0.0,
        ),
        _at(
            "start",
            node,
            mishaps.SettingMeddled(key=ALLOCATION, value="none"),
            "somebody else sets allocation to none",
            after=30.0,
        ),
        _at(
            "start",
            node,
            mishaps.PlacesRuled(key=f"{EXCLUSIONS}_name", value=node),
            f"somebody else begins to empty {node}",
            after=30.0,
        ),
        NightTrouble(
            words="the answer to a change of allocation is lost; it takes effect",
            happens=Trip(verb="set_allocation", how=How.UNACKNOWLEDGED, first=2),
        ),
        *(
            ()
            if failing is None
            else (
                _at(
                    "start",
                    node,
                    mishaps.AllocationsFail(index=failing, times=5),
                    f"five allocations of copies of {failing} will fail",
                    after=0.0,
                ),
                _from_the_start(
                    mishaps.IndexPinned(index=failing, node=node),
                    f"a shrink by hand has pinned index {failing} to {node}",
                ),
            )
        ),
    )


def _of_riak(world: RiakWorld, node: NodeName, other: NodeName) -> tuple[NightTrouble, ...]:
    """Troubles of a ring."""
    half = len(world.vnodes[node].owned) // 2
    return (
        _at(
            "start",
            node,
            riak_mishaps.HandoffStalls(seconds=900.0),
            "no hand-off moves for 15 min",
            after=10.0,
        ),
        _from_the_start(
            riak_mishaps.VnodesHalt(node=node, most=half),
            f"from its next start on {node} will run {half} vnodes and no more",
        ),
        _from_the_start(
            riak_mishaps.ServiceNeverUp(node=node),
            f"from its next start on no peer will see riak_kv on {node}",
        ),
        _at(
            "start",
            node,
            riak_mishaps.OwnershipMoves(to=other, partitions=2, seconds=200.0),
            f"somebody commits a plan by which {other} gets two partitions more",
            after=40.0,
        ),
        _at(
            "start",
            node,
            riak_mishaps.MemberJoins(node=NodeName("riak@newcomer"), seconds=300.0),
            "a new node, riak@newcomer, begins to join",
            after=40.0,
        ),
        _at(
            "start",
            node,
            mishaps.SettingMeddled(key=limit_key(other), value="5", level=Level.TRANSIENT),
            f"somebody else sets the transfer limit of {other} to 5",
            after=20.0,
        ),
        _from_the_start(
            riak_mishaps.HandoffSticks(holder=other, partitions=2),
            f"2 partitions of others have waited on {other} for weeks, and each of their handoffs fails",
        ),
    )
