"""What happens on ordinary nights must not end a run: six nodes, with hooks and tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from typing import Final

import pytest

from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import ActionFailed, NotWaitedFor
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Awareness,
    Deadlines,
    DisabledPredicate,
    Hook,
    Hooks,
    Policy,
    Selection,
)
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import How, Mishap, Trip, What
from orchestrator.simulation.world import World
from tests.simulation import index_mishaps, node_mishaps, program_mishaps, tuned
from tests.simulation.play import policy
from tests.simulation.scene import (
    ES1,
    ES2,
    ES3,
    ES4,
    ES5,
    FAILED,
    HELD,
    HOOKS,
    INTERRUPTED,
    Played,
    Scene,
    asked,
    at,
    first,
    late,
    lost,
    refused,
    resume,
    trip,
    unheard,
)

QUIET: Final = 200.0
"""Six nodes, one after the other, take less when nothing happens; so much is added to what a night brings."""
COORDINATING: Final = NodeName("front")
LONG: Final = Deadlines(hold=7200.0)


def six(*, coordinating: bool = False) -> World:
    """Six nodes in three zones, all with a vote, and perhaps one that does nothing but coordinate."""
    world = World()
    for number in range(1, 7):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    if coordinating:
        world.add_node(COORDINATING, zone="a", roles=frozenset({Role.COORDINATING}))
    world.add_index("logs", shards=6, replicas=1)
    world.add_index("archive", shards=2, replicas=1, written=False, size=512 << 20)
    return tuned.detune(world)


def with_front() -> World:
    return six(coordinating=True)


def wanted(**changes: object) -> Policy:
    """The shipped playbook, with hooks and tuning that every turn owes."""
    return policy(**{"hooks": HOOKS, "tune": tuned.profile(*tuned.WANTED), **changes})


PLAIN: Final = policy()


def night(name: str, *befalls: Mishap | Trip, within: float = QUIET, **more: object) -> Scene:
    """Nothing is rescued, unless a row says so."""
    return Scene(
        **{
            "name": name,
            "of": six,
            "wanted": wanted(),
            "befalls": befalls,
            "within": within,
            "events": {"rescued": 0},
            **more,
        }
    )


def at_stop(what: What, node: NodeName = ES3, *, after: float = 2.0) -> Mishap:
    """While that node goes down."""
    return at("stop", what, node, after=after)


def stopped_early(played: Played) -> int:
    """How many nodes were stopped in the time that a quiet night takes."""
    facts = [fact for node in played.world.nodes.values() for fact in node.facts]
    return sum(fact.what == "stopped" and fact.at < played.began + QUIET for fact in facts)


def _out_and_in_again(played: Played, node: NodeName | None = None) -> bool:
    """Whether the hooks of the first node, or of this one, were undone before its stop."""
    nodes = [played.world.nodes[node]] if node else played.world.nodes.values()
    told = [
        [fact for fact in one.facts if fact.what.startswith(("hook before", "hook after", "stopped"))]
        for one in nodes
    ]
    facts = min(told, key=lambda facts: facts[0].at)
    undone = ["hook before_stop 0", "hook after_recovery 0", "hook after_recovery 1"]
    return [fact.what for fact in facts[:3]] == undone


def _not_waited_for(played: Played) -> list[str]:
    return [one.index for event in played.found(NotWaitedFor) for one in event.shards]


def _copied_slowly() -> World:
    """A copy that es2 and es3 have takes minutes to be copied."""
    world = six()
    logs = next(index for index in world.indices.values() if index.name == "logs")
    logs.keeps, logs.shards[1].size = 0.0, 50 << 30
    return world


def _in_zones(zones: str, **index: object) -> World:
    """Nodes in these zones, and awareness of them."""
    world = World()
    for number, zone in enumerate(zones, 1):
        world.add_node(f"es{number}", zone=zone)
    if index:
        world.add_index("everywhere", **index)
    world.set(Level.PERSISTENT, AWARENESS, "zone")
    return world


AWARE: Final = policy(awareness=Awareness(attributes=("zone",)), zone_attribute="zone")


def _three(size: int = 64 << 20, **changes: object) -> World:
    """Three nodes; the index `pair` is on es3, its primary, and on es2."""
    world = World()
    for name in (ES1, ES2, ES3):
        world.add_node(str(name))
    index = world.add_index("pair", replicas=1, places=[ES3, ES2], size=size)
    for attribute, value in changes.items():
        setattr(index, attribute, value)
    return world


def _tasks() -> World:
    world = World()
    for number in range(1, 7):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    world.add_index(".tasks", replicas=5).auto_expand = "0-all"
    return tuned.detune(world)


def _asked_again(played: Played) -> bool:
    return {(event.passes, event.in_doubt) for event in played.found(ActionFailed)} == {(True, False)}


def _goes_late(played: Played, node: NodeName) -> None:
    """Another one goes at once, and this one not before it answers."""
    stops = {
        name: fact.at - played.began
        for name, each in played.world.nodes.items()
        for fact in each.facts
        if fact.what == "stopped"
    }
    assert min(stops.values()) < 25.0
    assert stops.get(node, 25.0) >= 25.0


def _last_but_one(played: Played) -> bool:
    """es3 goes after all but the elected master."""
    nodes = played.world.nodes
    last = {name: max(f.at for f in node.facts if f.what == "stopped") for name, node in nodes.items()}
    return sorted(last, key=last.__getitem__)[-2:] == [ES3, ES1]


def _newer(*nodes: NodeName) -> list[Mishap]:
    return [
        at_stop(node_mishaps.ReturnsChanged(node=each, version="9.1.1"), each, after=0.0) for each in nodes
    ]


CROWDED: Final = mishaps.IndexMade(name="crowded", on=ES1, replicas=6)
UNPLACEABLE: Final = [pytest.mark.proves("unplaceable-copies")]

_WITHOUT_A_PLACE: Final[Mapping[str, tuple[What, float]]] = {
    "IndexMade while it is down": (CROWDED, 2.0),
    "IndexMade while it starts": (CROWDED, 8.0),
    "Rollovers": (index_mishaps.Rollovers(index="logs", every=20.0, times=6, crowded=1), 0.0),
    "ReplicasSet": (index_mishaps.ReplicasSet(index="archive", replicas=6), 2.0),
}
_BY_OTHERS: Final[tuple[What, ...]] = (
    index_mishaps.IndexRestored(name="restored", seconds=120.0),
    index_mishaps.IndexRestored(name="restored", seconds=5.0),
    index_mishaps.IndexMounted(name="mounted", seconds=60.0),
    index_mishaps.IndexRestoredOver(index="archive", seconds=60.0),
    index_mishaps.IndexReopened(index="logs", seconds=0.5),
    index_mishaps.IndexReopened(index="archive", seconds=20.0),
    index_mishaps.IndexDeleted(index="archive"),
    index_mishaps.IndexDeleted(index="archive", made_again=True),
    index_mishaps.ReplicasSet(index="logs", replicas=2),
)
"""A primary that is restored, mounted or reopened is red for a while, and not by us."""

# fmt: off
_INDICES: Final = (
    *(
        night(f"a copy without a place is not waited for, {how}",
            at_stop(what, after=after), marks=UNPLACEABLE)
        for how, (what, after) in _WITHOUT_A_PLACE.items()
    ),
    night(
        "a copy without a place holds no wave after NodeFlaps",  # which copy is assigned then is chance
        at_stop(CROWDED),
        at_stop(node_mishaps.NodeFlaps(node=ES5, seconds=2.0), after=18.0),
    ),
    night(
        "a copy that awareness would not place is not waited for",
        # It was set after the index was made: what has a place keeps it until its node restarts.
        of=lambda: _in_zones("aaabc", replicas=4, places=[f"es{number}" for number in range(1, 6)]),
        wanted=replace(AWARE, accept_not_returning=("everywhere",)),
        events={"foreseen_not_to_return": 1, "not_waited_for": 1},
    ),
    night("a copy that awareness would not place holds no wave after NodeFlaps",
        first(mishaps.IndexMade(name="crowded", on=ES1, replicas=7)),
        first(node_mishaps.NodeFlaps(node=ES5, seconds=2.0), after=0.5),
        of=lambda: _in_zones("baaaaab"), wanted=AWARE, within=QUIET + 60.0,
        shows=lambda played: played.happened("es5 left")),
    night("NotWaitedFor: a copy that no node of an older version may hold",
        *_newer(ES2), of=_three, wanted=PLAIN, shows=lambda played: _not_waited_for(played) == ["pair"]),
    night(
        "NotWaitedFor: a copy is awaited once a second node has the newer version",
        *_newer(ES2, ES1),
        of=lambda: _three(2 << 30, delay=0.0, keeps=0.0),
        wanted=PLAIN,
        within=2 * QUIET,
        shows=lambda played: (
            _not_waited_for(played) == ["pair"]
            and all(copy.serves for i in played.world.indices.values() for s in i.shards for copy in s.copies)
        ),
    ),
    *(
        night(f"others work on indices beside a node after {after} s: {what}",
            at_stop(what, after=after), within=QUIET + 200.0,
            marks=[pytest.mark.proves("index-changes")])
        # While it stops, starts, or is down; drawn runs have each in every phase.
        for what, after in zip(_BY_OTHERS, cycle((0.5, 9.0, 5.0)), strict=False)
    ),
)
# fmt: on

# fmt: off
_NODES: Final = (
    *(
        night(f"NodeFlaps: {node} for {seconds} s after {verb} of {target}",
            at(verb, node_mishaps.NodeFlaps(node=node, seconds=seconds), target, after=after),
            of=with_front, within=QUIET + 60.0, events={})
        for node, seconds, verb, target, after in (
            (COORDINATING, 0.3, "stop", ES2, 6.0),
            (ES5, 5.0, "start", ES2, 12.0),
            (ES1, 5.0, "start", ES3, 13.0),  # the elected master
        )
    ),
    *(
        night(f"NodeFlaps with a copy on its way: the red shard ends no run {how}",
            at_stop(node_mishaps.NodeFlaps(node=ES3, seconds=20.0), ES2, after=after), *still,
            of=_copied_slowly, within=1200.0)
        for how, after, still in (
            ("as it is read", 90.0, ()),
            ("as it was read", 65.0, [at_stop(mishaps.ProgramStalls(seconds=25.0), ES2, after=70.0)]),
        )
    ),
    night("NodeFlaps: no node stops beside a replica that waits for allocation after it",
        at("set_allocation", node_mishaps.NodeFlaps(node=ES5, seconds=2.0), nth=2, after=1.0),
        unheard("set_allocation", first=2), of=_tasks, within=QUIET + 60.0),
    *(
        night(
            f"NodePauses: a joined node pauses with its {'machine' if host else 'process'} after {after} s",
            at_stop(node_mishaps.NodePauses(node=ES5, seconds=30.0, host=host), ES2, after=after),
            within=QUIET + 90.0,
        )
        for host, after in ((True, 8.0), (False, 14.0))
    ),
    *(
        night(
            f"NodePauses: {node} pauses at the beginning, and others go first",
            first(node_mishaps.NodePauses(node=node, seconds=25.0)),
            of=with_front,
            wanted=policy(selection=Selection(only=("es*",))),
            within=QUIET + 60.0,
            shows=lambda played, node=node: _goes_late(played, node),
        )
        for node in (COORDINATING, ES1)
    ),
    night("HostCutOff: a host out of reach at the first reading is waited for",
        first(mishaps.HostCutOff(node=ES3, seconds=20.0)), within=QUIET + 60.0),
    night("HostCutOff: its minute counts from when the host was silent, not from the hold",
        first(mishaps.SnapshotBegun(name="nightly", seconds=400.0)),
        first(mishaps.HostCutOff(node=ES2, seconds=25.0), after=300.0), wanted=wanted(deadlines=LONG),
        within=QUIET + 500.0),
    night("HostCutOff: selected_hosts_ready ends a run in minutes for a host that stays out of reach",
        first(mishaps.HostCutOff(node=ES3, seconds=2000.0)), ends=HELD,
        says="selected_hosts_ready (host of es3", within=180.0, sent={"stop": 0}),
    night(
        "DiesAgain: a start that crashes once is sent again",  # its service manager leaves it down
        at_stop(node_mishaps.DiesAgain(node=ES3, times=1, after=1.0)),
        within=QUIET + 60.0,
    ),
    *(
        night(f"HostCutOff: the second {moment} hook finds no host, and runs when it answers",
            at(f"hook_{moment}", mishaps.HostCutOff(node=ES3, seconds=20.0), ES3, after=after),
            wanted=wanted(
                hooks=Hooks(**{moment: (Hook(run="first {node}"), Hook(run="second {node}"))})
            ),
            within=QUIET + 90.0, shows=_asked_again)
        for moment, after in (("before_stop", 0.31), ("while_stopped", 0.31), ("after_recovery", 0.01))
    ),
    night("HostCutOff: an after_recovery hook has the limit deadlines.rejoin",
        at("hook_after_recovery", mishaps.HostCutOff(node=ES3, seconds=7200.0), ES3, after=0.01),
        wanted=wanted(deadlines=Deadlines(rejoin=120.0)), ends=FAILED,
        says="hook after_recovery on es3: ssh to es3: timed out", within=600.0),
)
# fmt: on

_BUSY_FIRST: Final = {
    "wanted": wanted(deadlines=LONG),
    "within": 3300.0,
    "marks": [pytest.mark.proves("busy-candidate")],
}
# fmt: off
_CANDIDATES: Final = (
    *(
        night(
            f"{name}: the others go first",
            first(what),
            shows=lambda played: stopped_early(played) == 4,  # all but the busy one and the elected master
            **_BUSY_FIRST,
        )
        for name, what in {
            "a candidate that force-merges": index_mishaps.WorkBegun(node=ES2, seconds=3000.0, reindex=False),
            "a candidate that reindexes": index_mishaps.WorkBegun(node=ES2, seconds=3000.0, reindex=True),
            "DiskFills over the watermark": node_mishaps.DiskFills(node=ES2, share=0.93, seconds=3000.0),
        }.items()
    ),
    *(
        night(
            f"HostRefuses: by its {'key' if key else 'sudo'}, the others go first until people repair it",
            at_stop(node_mishaps.HostRefuses(node=ES5, seconds=600.0, key=key), ES2), within=900.0)
        for key in (False, True)
    ),
    night("SnapshotBegun after before_stop hooks: the node is put into service while it waits",
        at("hook_before_stop", mishaps.SnapshotBegun(seconds=600.0)), within=QUIET + 660.0,
        shows=_out_and_in_again),
    *(
        night(
            f"WorkBegun on {node} after its before_stop hooks: others go first, and it is in service",
            at("hook_before_stop", index_mishaps.WorkBegun(node=node, seconds=3000.0), node),
            wanted=wanted(deadlines=LONG),
            within=3300.0,
            shows=lambda played, node=node: stopped_early(played) >= 4 and _out_and_in_again(played, node),
        )
        for node in (ES4, ES5)
    ),
)
# fmt: on

# fmt: off
_REFUSED: Final = (
    *(
        night(f"a call that fails once ends no run: {each.verb} {each.how.name}, the {each.first}.",
            each, within=QUIET + 90.0, marks=[pytest.mark.proves("refused-calls")])
        for each in (
            *(refused(verb) for verb in ("set_allocation", "restore_allocation", "probe_settings")),
            *(refused(verb) for verb in ("restore_settings", "flush", "stop", "start")),
            refused("set_allocation", first=3),
            *(trip(verb, How.PARTLY) for verb in ("set_allocation", "restore_settings")),
            unheard("set_allocation"),
            lost("stop"),
        )
    ),
    *(
        night(f"a cluster that fails to respond for a while ends no run: {what} after {verb}",
            at(verb, what, nth=2, after=after), within=QUIET + 120.0)
        for verb, after, what in (
            ("set_allocation", 0.05, program_mishaps.EndpointsDisagree(seconds=60.0)),
            ("stop", 0.0, mishaps.LeaseUnrefreshed(seconds=50.0)),
            ("start", 1.0, program_mishaps.CredentialsRefused(seconds=20.0)),
            ("start", 1.0, program_mishaps.EndpointsDisagree(seconds=60.0)),
        )
    ),
)
# fmt: on

# fmt: off
_OWED: Final = (
    *(
        night(f"interrupted {after} s after a stop: started at once, and resume gives it its whole turn",
            asked(Request.INTERRUPT, "stop", ES3, after=after), ends=INTERRUPTED, then=[60.0, resume()],
            marks=[pytest.mark.proves("interrupted")])
        for after in (1.0, 5.5, 12.0)
    ),
    night("rescued: an index made between the last reading and the stop",
        at_stop(mishaps.IndexMade(name="raced", on=ES3, replicas=0), after=0.0), ends=HELD,
        says="zero_replica_indices (index raced", within=4000.0, events={"rescued": 1},
        then=[lambda played: played.world.delete_index("raced"), resume()]),
    night("rescued: a node goes after the others, but before the elected master",
        at_stop(mishaps.IndexMade(name="raced", on=ES3), after=0.0), within=2 * QUIET,
        events={"rescued": 1}, shows=_last_but_one),
    night("rescued: an index restored just before the stop, whose replica came from nowhere yet",
        at_stop(index_mishaps.IndexRestored(name="restored", seconds=0.1), ES4, after=0.0),
        within=2 * QUIET, events={"rescued": 1}),
    night("SnapshotAborted holds the run, which says what ends it",
        first(mishaps.SnapshotAborted(node=ES3)), ends=HELD, within=4000.0,
        says=("repo/nightly): is aborted and has not ended on es3", "a restart of that node ends it"),
        then=[lambda played: played.world.aborted.clear(), resume()]),
    night("SnapshotAborted, accepted: the restart of the node ends it",
        first(mishaps.SnapshotAborted(node=ES3)), within=2 * QUIET,
        wanted=wanted(disabled_predicates=(DisabledPredicate(name="no_running_snapshot"),)),
        shows=lambda played: not played.world.aborted),
    *(
        night(f"an after_recovery hook in doubt after a kill is no node out of service, {why}",
            *befalls, killed="after hook_after_recovery", then=[900.0, resume()])
        for why, befalls in {
            "interrupted while a snapshot holds": [
                at("hook_before_stop", mishaps.SnapshotBegun(seconds=300.0)),
                asked(Request.INTERRUPT, "hook_before_stop", after=100.0),
            ],
            "LeaseUnrefreshed": [at("set_allocation", mishaps.LeaseUnrefreshed(seconds=50.0), after=0.05)],
        }.items()
    ),
    night("a stop of es3 that is done 70 s late leaves no node down, with hooks and tuning",
        late("stop", 70.0, ES3), within=3 * QUIET, events={}, then=[300.0]),
)
# fmt: on

# fmt: off
_PROGRAM: Final = (
    *(
        night(f"JournalFails: locked for {seconds} s after {verb}, and nothing is left behind",
            at(verb, program_mishaps.JournalFails(reason="database is locked", seconds=seconds), nth=2),
            ends=None, then=[seconds, resume()])
        for seconds, verb in ((3.0, "hook_before_stop"), (60.0, "stop"), (3.0, "start"))
    ),
)
# fmt: on

SCENES: Final = (*_INDICES, *_NODES, *_CANDIDATES, *_REFUSED, *_OWED, *_PROGRAM)
