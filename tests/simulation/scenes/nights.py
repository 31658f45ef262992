"""Nights on which several things go wrong at once, each found by somebody who tried to break the program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError
from orchestrator.model.action import Purpose, SettingChange
from orchestrator.model.cluster import Incarnation
from orchestrator.model.event import SettingChanged, SettingRestored
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Policy,
    Selection,
)
from orchestrator.model.reading import Instant
from orchestrator.model.work_event import MergeWarned
from orchestrator.simulation import machines, merges, mishaps
from orchestrator.simulation.world import World
from tests.simulation import program_mishaps
from tests.simulation.loaded import RIGHT, loaded, merged_policy, merging
from tests.simulation.play import cluster, lives, policy
from tests.simulation.program import Simulation
from tests.simulation.scene import (
    ALLOCATION,
    BANDWIDTH,
    ES1,
    ES2,
    FAILED,
    HELD,
    INTERRUPTED,
    NOT_RESTORED,
    PAUSED,
    POOL,
    RESTORED,
    Attempt,
    Played,
    Scene,
    asked,
    at,
    elsewhere,
    first,
    late,
    looking,
    lost,
    only_begun,
    restore,
    resume,
)

REBALANCE: Final = "cluster.routing.rebalance.enable"
five = partial(cluster, 5)


def _withheld(world: World) -> Iterator[tuple[Instant, Instant]]:
    """The spans in which allocation was disabled."""
    off: Instant | None = None
    for moment, said in world.story:
        if said.startswith(f"{ALLOCATION} (persistent) = "):
            now = said.endswith("= primaries")
            if now and off is None:
                off = moment
            elif not now and off is not None:
                yield off, moment
                off = None
    if off is not None:
        yield off, world.agenda.now


def _longest_withheld(played: Played) -> float:
    return max(until - since for since, until in _withheld(played.world))


def _stands(key: str, value: str | None, played: Played) -> bool:
    return played.world.persistent.get(key) == value


def _ran(played: Played, *moments: str) -> None:
    assert [moment for _, moment, _ in played.simulation.hosts.hooks] == [*moments]


def _restarted(played: Played, count: int) -> None:
    assert sum(lives(played.world).values()) == 3 + count


def _disabled(played: Played) -> None:
    assert played.world.persistent[ALLOCATION] == "primaries"


# Requests, pauses and limits --------------------------------------------------------------------------

_LATE_AND_SLOW: Final = policy(deadlines=Deadlines(withheld=60.0))
_SLOW_START: Final = {ES2: {"start_seconds": 300.0}}
# fmt: off
_LIMITS: Final = (
    *(
        Scene(
            name=f"Request.PAUSE is heard while the run holds, Unreadable {verb or 'from the beginning'}",
            wanted=policy(hooks=POOL),
            befalls=[
                mishaps.Mishap(what=mishaps.Unreadable(seconds=100_000.0), verb=verb),
                first(mishaps.PersonAsked(request=Request.PAUSE), after=10.0)
            ],
            ends=PAUSED, within=1000.0)
        for verb in (None, "hook_before_stop")
    ),
    Scene(name="Request.PAUSE: the run ends after the wave in progress",
        of=five, befalls=[asked(Request.PAUSE, "start")], ends=PAUSED,
        shows=lambda played: sorted(lives(played.world).values()) == [1, 1, 1, 1, 2]),
    Scene(name="Unreadable and no pending change: a run that is asked to stop ends without a master",
        befalls=[
            first(mishaps.Unreadable(seconds=1e6)),
            first(mishaps.PersonAsked(request=Request.STOP), after=10.0)
        ],
        ends=INTERRUPTED, within=60.0),
    Scene(
        name="--timeout: a run that has used up its time restarts no more nodes",
        of=five,
        wanted=policy(timeout=30.0),
        ends=None,
        within=60.0,
        sent={"stop": range(1, 5)},
        shows=lambda played: (
            max(t for t, what in played.world.story if what.endswith(" left")) < played.began + 40.0
        ),
    ),
    Scene(name="deadlines.withheld: allocation is disabled for no longer",
        nodes=_SLOW_START, wanted=_LATE_AND_SLOW, ends=FAILED,
        shows=lambda played: _longest_withheld(played) <= 90.0,
        marks=[pytest.mark.proves("withheld-limit")]),
    Scene(name="deadlines.withheld: in a stand down too",
        nodes=_SLOW_START, wanted=_LATE_AND_SLOW, befalls=[asked(Request.STOP, "start", after=1.0)],
        ends=None, shows=lambda played: _longest_withheld(played) <= 90.0,
        marks=[pytest.mark.proves("withheld-limit")]),
)
# fmt: on

# A cluster that cannot be read any more ---------------------------------------------------------------


def _readable(played: Played) -> None:
    played.simulation.fate.unreadable_until = played.world.agenda.now


def _gone_from_its_disk(played: Played, what: str) -> None:
    """Made on es2 as it goes down, and gone from its disk: the rescue brings the node, not the shard."""
    new = next((index for index in played.world.indices.values() if index.name == "new"), None)
    if what == "after start of es2" and new is not None:
        new.shards[0].on_disk = {}


def _red_for_good(played: Played) -> None:
    new = next(index for index in played.world.indices.values() if index.name == "new")
    assert new.shards[0].lost_at is not None
    assert played.world.agenda.now - played.happened("es2 joined") < 300.0


# fmt: off
_UNREAD: Final = (
    Scene(name="Unreadable during after_recovery hooks: deadlines.rejoin, and a resume runs the others",
        wanted=policy(
            hooks=Hooks(after_recovery=(Hook(run="first {node}"), Hook(run="second {node}")))
        ),
        befalls=[at("hook_after_recovery", mishaps.Unreadable(seconds=1e6), after=0.1)],
        ends=NOT_RESTORED, says="es2: not seen in the cluster for 10m 0s", then=[_readable, resume()],
        shows=lambda played: len(played.simulation.hosts.hooks) == 6),
    Scene(name="Unreadable in a stand down: no hook runs unseen, and a resume runs them",
        wanted=policy(hooks=POOL),
        befalls=[
            at("set_allocation", mishaps.Unreadable(seconds=1e6), after=0.1),
            asked(Request.STOP, "set_allocation", after=0.1)
        ],
        ends=NOT_RESTORED, then=[lambda played: _ran(played, "before_stop"), _readable, resume()]),
    Scene(name="second_failure: a shard that stays red ends the run in minutes",
        wanted=policy(selection=Selection(only=("es2",))),
        befalls=[at("stop", mishaps.IndexMade(name="new", on=ES2, replicas=0), ES2)],
        prepares=looking(_gone_from_its_disk), ends=None, shows=_red_for_good,
        marks=[pytest.mark.proves("second-failure")]),
)
# fmt: on


# Settings ---------------------------------------------------------------------------------------------


def _undone_once() -> Scene:
    """Confirmed, and undone before the next reading: the answer of the cluster alone is no proof."""
    undone: list[str] = []

    def look(played: Played, what: str) -> None:
        if what.startswith("after restore_allocation") and not undone:
            undone.append(what)
            played.world.set(Level.PERSISTENT, ALLOCATION, "primaries")

    return Scene(
        name="restore_allocation: a setting that reads as ours again is restored again",
        prepares=looking(look),
        shows=lambda _: undone != [],
    )


def _written_twice(played: Played) -> None:
    played.simulation.begin(policy())
    for found, wanted in ((None, "50mb"), ("50mb", "100mb")):
        played.world.set(Level.PERSISTENT, BANDWIDTH, wanted)
        changed = SettingChanged(
            level=Level.PERSISTENT, key=BANDWIDTH, found=found, wanted=wanted, purpose=Purpose.RAISE_LIMITS
        )
        played.simulation.journalled(changed)


# fmt: off
_SETTINGS: Final = (
    Scene(name="SettingMeddled: the value that somebody sets during the run stays",
        befalls=[at("start", mishaps.SettingMeddled(key=BANDWIDTH, value="20mb"))],
        shows=partial(_stands, BANDWIDTH, "20mb"), marks=[pytest.mark.proves("foreign-value")]),
    Scene(name="SettingMeddled: rebalancing that somebody sets during the run stays",
        befalls=[at("start", mishaps.SettingMeddled(key=REBALANCE, value="primaries"), after=1.0)],
        shows=partial(_stands, REBALANCE, "primaries")),
    Scene(name="SettingMeddled before a late update of ours: it is restored",
        befalls=[
            at(
                "set_allocation", mishaps.SettingMeddled(key=ALLOCATION, value="new_primaries"),
                after=5.0
            ),
            asked(Request.STOP, "set_allocation", after=5.0), late("set_allocation", 14.0)
        ],
        ends=INTERRUPTED, then=[60.0],
        shows=lambda played: not _stands(ALLOCATION, "primaries", played)),
    _undone_once(),
    Scene(name="SettingChanged twice: the first original value is restored",
        begins=_written_twice, nothing=True, then=[restore()]),
)
# fmt: on

# Lease, record and journal ----------------------------------------------------------------------------

TAKEN: Final = mishaps.LeaseRemoved()
WITHHELD: Final = "after set_allocation"
"""The point at which allocation was just disabled."""


def _without_its_lease(played: Played) -> RunState:
    state = played.simulation.resume()
    played.simulation.fate.befall(TAKEN)
    return state


def _removed_by_hand(played: Played) -> None:
    played.simulation.common.records.clear()


def _no_room_for_a_resume(played: Played) -> None:
    """The disk under the journal is full for good."""
    played.simulation.fate.disk_full_until = float("inf")
    with pytest.raises(JournalError):
        played.simulation.resume()


def _enabled_within(played: Played, seconds: float) -> bool:
    restored = [
        record.at
        for record in played.simulation.journal.records
        if isinstance(record.event, SettingRestored) and record.event.key == ALLOCATION
    ]
    return restored[0] - played.state.process.started < seconds


def _named_before_its_stop() -> Iterator[Scene]:
    """The master is lost in the moment between the last reading and the stop."""

    def look(played: Played, what: str) -> None:
        if what.startswith("after stop of "):
            told = {entry.node for entry in played.simulation.record.in_hand}
            assert what.removeprefix("after stop of ") in told

    for hundredth in range(10, 40, 6):
        yield Scene(
            name=f"record: no stop is sent that it does not name, no master after {hundredth / 100} s",
            wanted=policy(deadlines=Deadlines(hold=120.0)),
            befalls=[at("flush", mishaps.NodeDies(node=ES1, back_after=60.0), after=hundredth / 100)],
            prepares=looking(look),
            ends=None,
            away=None,
            then=[100.0],
            marks=[pytest.mark.proves("recorded-stop")],
        )


def _made_good() -> Scene:
    """Half a minute of silence, the same life: through the gates again, and then it is done after all."""
    flushes: list[str] = []

    def look(played: Played, what: str) -> None:
        if what.startswith("after flush"):
            flushes.append(what)
            if len(flushes) == 2:
                machines.stop(played.world, played.world.nodes[ES2])
                played.world.agenda.advance(0.1)

    return Scene(
        name="LOST: a stop that is done when it was taken as not done is made good",
        nodes={ES2: {"stop_seconds": 0.0}},
        wanted=policy(deadlines=Deadlines(hold=120.0)),
        befalls=[lost("stop", target=ES2)],
        prepares=looking(look),
        ends=None,
        shows=lambda _: len(flushes) >= 2,
    )


def _taken_over(wanted: Policy, played: Played) -> RunState | None:
    return played.simulation.take_over(wanted)


def _left_by_a_dead_run(played: Played) -> None:
    """A run that another account began has stopped es2, and disabled allocation."""
    world = played.world
    world.set(Level.PERSISTENT, ALLOCATION, "primaries")
    machines.stop(world, world.nodes[ES2])
    world.agenda.advance(60.0)
    played.simulation = Simulation(world, operator=("ben", "bastion2"))
    played.simulation.leases.records[1] = LeaseRecord(
        epoch=1,
        run="dead",
        owner="ann@bastion",
        process="p",
        started="",
        debts=(SettingChange(level=Level.PERSISTENT, key=ALLOCATION, found=None, wanted="primaries"),),
        in_hand=(
            NodeInHand(
                node=ES2, incarnation=Incarnation(ephemeral_id="es2-life-1", started_at_ms=1), address="es2"
            ),
        ),
    )


# fmt: off
_RECORD: Final = (
    Scene(name="LeaseTaken: a run whose record was removed does not wait for it",
        befalls=[at("stop", TAKEN, after=1.0)], ends=HELD,
        says="its record is gone from the cluster (somebody removed it)", within=300.0,
        then=[lambda played: _restarted(played, 1), resume()], lives={}),
    Scene(name="LeaseTaken at a resume: allocation is enabled all the same",
        killed=WITHHELD, then=[_disabled, Attempt(begins=_without_its_lease, ends=None)],
        shows=lambda played: _enabled_within(played, 60.0)),
    Scene(name="record: a resume that cannot be journalled leaves one to restore by",
        killed=WITHHELD, then=[_removed_by_hand, _no_room_for_a_resume, 600.0, elsewhere()]),
    Scene(name="record: a resume that is killed at once leaves one to restore by",
        killed=WITHHELD,
        then=[
            _removed_by_hand, only_begun(lambda played: played.simulation.resume()), 600.0, elsewhere()
        ]),
    *(
        Scene(name=f"record: nodes of a dead run are started by a new one, reboot {reboot}",
            prepares=_left_by_a_dead_run, begins=partial(_taken_over, policy(reboot=reboot)),
            ends=RESTORED, within=60.0, shows=lambda played: not played.world.persistent)
        for reboot in (False, True)
    ),
    *_named_before_its_stop(),
    _made_good(),
    Scene(
        name="DiskFull under the journal: the node is started, and nothing more is stopped",
        befalls=[at("stop", mishaps.DiskFull(seconds=7200.0), after=1.0)],
        ends=None,
        shows=lambda played: (
            played.happened("es2 joined") - played.happened("es2 left") < 60.0
            and _longest_withheld(played) < 120.0
            and sorted(lives(played.world).values()) == [1, 1, 2]
        ),
    ),
)
# fmt: on


# Merges -----------------------------------------------------------------------------------------------


def _away_at_the_beginning(played: Played, back_after: float, seconds: float) -> None:
    played.simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=back_after))
    played.world.agenda.advance(seconds)


def _merged(played: Played) -> bool:
    loads = [s for uuid in played.state.merging.indices for s in played.world.indices[uuid].shards]
    counts = {kept.count for shard in loads for kept in shard.segments.values()}
    return ({len(shard.started) for shard in loads}, counts) == ({2}, {5})


def _kept_in_place() -> World:
    """No other node is given copies of one that is away."""
    world = loaded(5)
    for index in world.indices.values():
        index.delay = 3600.0
    return world


def _named_unmerged(played: Played, *, counted: bool) -> None:
    world = played.world
    back = [c for uuid in played.state.merging.indices for c in merges.unmerged(world, uuid, 5, away=True)]
    assert back
    said = " ".join(event.what for event in played.found(MergeWarned))
    if counted:
        assert [copy for copy in back if copy.partition(":")[0] not in said] == []
    assert ("could not be counted" not in said) is counted


# fmt: off
_MERGES: Final = (
    Scene(name="force_merge: an index that is red at the beginning is merged once it is not",
        of=lambda: loaded(5, replicas=0), wanted=merged_policy(merging(put_right=RIGHT)),
        prepares=lambda played: _away_at_the_beginning(played, 100.0, 30.0), shows=_merged),
    *(
        Scene(
            name=f"MergeWarned: a copy that comes back unmerged is named, SegmentsUnreadable {seconds:.0f} s",
            of=_kept_in_place,
            wanted=merged_policy(),
            befalls=[at("stop", program_mishaps.SegmentsUnreadable(seconds=seconds), nth=4)],
            prepares=lambda played: _away_at_the_beginning(played, 150.0, 10.0),
            shows=partial(_named_unmerged, counted=seconds < 300.0),
        )
        for seconds in (0.0, 30.0, 600.0)
    ),
    Scene(name="force_merge: a run whose indices are all gone goes on to the restart",
        wanted=merged_policy(), shows=lambda played: not played.state.merging.indices),
)
# fmt: on

SCENES: Final = (*_LIMITS, *_UNREAD, *_SETTINGS, *_RECORD, *_MERGES)
