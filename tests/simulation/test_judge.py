"""The world's own judge: what it must notice, and what not, with no program at work but a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from orchestrator.elasticsearch.rules.settings import CONCURRENT_RECOVERIES
from orchestrator.model.action import (
    Done,
    Moment,
    Purpose,
    RunHook,
    StartNode,
    StopNode,
)
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.event import SettingChanged
from orchestrator.model.observation import EVERYTHING, Level
from orchestrator.model.policy import Hook, Hooks
from orchestrator.simulation import judge, merges, mishaps, turns
from orchestrator.simulation.beginning import note_unassigned, note_what_is
from orchestrator.simulation.mishaps import How, LeaseUnrefreshed, Trip, What
from orchestrator.simulation.parts import SimGate, SimOwner
from tests.simulation import index_mishaps, node_mishaps, program_mishaps, tuned
from tests.simulation.gated import QUEUE
from tests.simulation.index_mishaps import IndexReopened, ReplicasSet
from tests.simulation.loaded import SIZE, loaded, merged_policy, merging
from tests.simulation.node_mishaps import NodeFlaps
from tests.simulation.overlapping import slow
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation
from tests.simulation.scene import ES1, ES2, ES3, ES5
from tests.simulation.script import (
    WITHHELD,
    Script,
    Step,
    comes_back,
    enable,
    given,
    late,
    merge,
    on_hosts,
    read,
    reboot,
    same_as_recorded,
    start,
    stop,
    told,
    withhold,
)

RECORDED: Final = Path(__file__).parents[1] / "data/judge.txt"
HOOK: Final = Hook(run="say {node}")
HOOKED: Final = policy(hooks=Hooks(before_stop=(HOOK,), while_stopped=(HOOK,), after_recovery=(HOOK,)))


def hook(moment: Moment, node: NodeName = ES2) -> Step:
    return on_hosts(RunHook(node=node, moment=moment, number=0, hook=HOOK))


def of_one_machine(one: NodeName, other: NodeName) -> Step:
    def do(simulation: Simulation) -> None:
        nodes = simulation.world.nodes
        nodes[one].machine = nodes[other].machine

    return do


def turn(node: NodeName) -> Sequence[Step]:
    return (stop(node), 5.0, start(node), enable, 60.0, withhold, read)


# Stops -------------------------------------------------------------------------------------------------


def _with_tasks(simulation: Simulation) -> None:
    simulation.world.add_index(".tasks", replicas=2).auto_expand = "0-all"


def _index_without_copy(replicas: int, accepted: str) -> Step:
    """As the playbook has it: the index may have been made during the run, and has no copy yet."""

    def do(simulation: Simulation) -> None:
        simulation.world.exempt_without_replicas = (accepted,)
        simulation.world.add_index("new-1", replicas=0, places=[ES3]).replicas = replicas

    return do


def _stop_of_a_primary(simulation: Simulation) -> None:
    logs = next(index for index in simulation.world.indices.values() if index.name == "logs")
    simulation.hosts.perform(StopNode(node=NodeName(str(logs.shards[0].primary.node))))


def _quick(simulation: Simulation) -> None:
    simulation.world.files[CONCURRENT_RECOVERIES] = "15"


def _works(simulation: Simulation) -> None:
    judge.delay(simulation.world, simulation.world.nodes[ES2], "a hook")


def _kept(name: str, *steps: Step) -> Script:
    """An index with copies on es2 and es3, which only es3 may have, before the reading or after it."""

    def made(simulation: Simulation) -> None:
        simulation.world.add_index("pair", places=[ES3, ES2])

    return Script(f"kept on es3 alone: {name}", made, *steps)


_RULED: Final = mishaps.IndexRuled(index="pair", key="require._ip", value="es3.example")

# fmt: off
STOPS: Final = (
    _kept("es2 goes", _RULED, 1.0, read, stop(ES2)),
    _kept("es2 goes, and no reading could tell", 1.0, read, _RULED, stop(ES2)),
    _kept("es2 goes, as is accepted", given(exempt_returning=("pa*",)), _RULED, 1.0, read, stop(ES2)),
    _kept("es3 goes", _RULED, 1.0, read, stop(ES3)),
    Script("one stop after the other is right", *turn(ES2), *turn(ES3)),
    Script("a node that died by itself just before its stop is left down",
        mishaps.NodeDies(node=ES2), stop(ES2), 400.0),
    Script("once it was started it is ours to keep up",
        mishaps.NodeDies(node=ES2), stop(ES2), 400.0, start(ES2)),
    Script("the reboot of a machine on which one of two nodes was stopped",
        given(allowed_down=2), of_one_machine(ES2, ES3), stop(ES3), 5.0, read, reboot(ES3), 100.0),
    Script("the reboot of a machine whose nodes were stopped",
        given(allowed_down=2), of_one_machine(ES2, ES3), stop(ES3), stop(ES2), 5.0, read, reboot(ES3, ES2)),
    Script("two nodes of one machine down, then one of another",
        given(allowed_down=3, one_machine=True), of_one_machine(ES2, ES3), stop(ES2), stop(ES3), stop(ES1)),
    Script("a reboot of a stopped node, then of another one",
        stop(ES2), 5.0, read, reboot(ES2), reboot(ES3)),
    Script("copies that nobody works on", *comes_back(ES2), stop(ES3)),
    *(
        Script(f"copies that a closing set aside {seconds} s ago",
            IndexReopened(index="archive", seconds=30.0), seconds, read, stop(ES3))
        for seconds in (0.1, 5.0)
    ),
    Script("a replica that a flap took", _with_tasks, NodeFlaps(node=ES2, seconds=1.0), 5.0, read, stop(ES3)),
    *(
        Script(f"an index with {replicas} replicas that is made is excused by {accepted}",
            _index_without_copy(replicas, accepted), 1.0, read, stop(ES3))
        for replicas, accepted in ((0, "new-*"), (0, "old-*"), (1, "new-*"))
    ),
    *(
        Script(f"a last copy that others leave, read {bool(reads)}",
            ReplicasSet(index="logs", replicas=0), 1.0, *reads, _stop_of_a_primary)
        for reads in ((), (read,))
    ),
    *(
        Script(f"a part in a recovery, {node}",
            enable, _quick, *comes_back(ES2), withhold, read, stop(node), of=slow)
        for node in (ES1, ES5)
    ),
    *(
        Script(f"a stop that is not done for {seconds} s, then another",
            stop(ES2), seconds, stop(ES3), trips=late(400.0))
        for seconds in (20.0, 31.0)
    ),
    *(
        Script(f"a stop done {seconds} s late, read after it {bool(reads)}",
            stop(ES2), seconds - 1.0, read, 1.0, *reads, stop(ES3), trips=late(seconds))
        for seconds, reads in ((40.0, ()), (40.0, (read,)), (20.0, ()))
    ),
    *(
        Script(f"a node that leaves {seconds} s after its lost stop: {type(what).__name__}",
            stop(ES2), seconds, read, stop(ES3), what, 10.0, trips=late(110.0))
        for what in (mishaps.NodeDies(node=ES2, back_after=600.0), node_mishaps.RestartedByHand(node=ES2))
        for seconds in (20.0, 37.0)
    ),
    Script("a node that dies again at its start, before it has joined, stays down by us",
        stop(ES2), 60.0, start(ES2), 8.5, mishaps.NodeDies(node=ES2, back_after=600.0), stop(ES3)),
    Script("a late stop takes our second node down",
        stop(ES2), *comes_back(ES2), stop(ES3), 15.0, trips=late(20.0)),
    Script("a node left meanwhile", mishaps.NodeDies(node=ES3, back_after=100.0), 60.0, read, stop(ES2)),
    *(
        Script(f"work beside a node that is away and started, {bool(starts)}",
            stop(ES2), mishaps.NodeDies(node=ES3, back_after=600.0), 10.0, read, 1.0, *starts, _works,
            of=partial(cluster, 5))
        for starts in ((), (start(ES3),))
    ),
    Script("a late stop meets allocation on", stop(ES2), enable, 20.0, trips=late(20.0, None)),
    Script("what others take down is no fault", stop(ES2), mishaps.NodeDies(node=ES3), 20.0),
)
# fmt: on

# Turns -------------------------------------------------------------------------------------------------


def _begun(simulation: Simulation) -> None:
    simulation.begin(HOOKED)


def _begun_with_one_hook(simulation: Simulation) -> None:
    simulation.begin(HOOKED)
    simulation.world.hooks = Hooks(before_stop=(HOOK,))


def whole(*moments: Moment, again: Sequence[Step] = (enable, 30.0)) -> Sequence[Step]:
    """A turn of es2 with these hooks, each in its place."""
    steps: list[Step] = [hook(Moment.BEFORE_STOP)] * (Moment.BEFORE_STOP in moments)
    steps += [read, stop(ES2), 5.0]
    steps += [hook(Moment.WHILE_STOPPED)] * (Moment.WHILE_STOPPED in moments)
    steps += [start(ES2), 30.0, *again]
    return [*steps, *[hook(Moment.AFTER_RECOVERY)] * (Moment.AFTER_RECOVERY in moments)]


# fmt: off
TURNS: Final = (
    Script("a whole turn", *whole(*Moment), begins=_begun),
    Script("a stop without its before_stop hook",
        hook(Moment.BEFORE_STOP), hook(Moment.AFTER_RECOVERY), read, stop(ES2), begins=_begun),
    *(
        Script(f"a stop in another life, its before_stop hook ran again {bool(again)}",
            *whole(Moment.BEFORE_STOP), *again, withhold, read, stop(ES2), begins=_begun_with_one_hook)
        for again in ((), (hook(Moment.BEFORE_STOP),))
    ),
    Script("a life after the last reading needs no hook",
        hook(Moment.BEFORE_STOP), read, node_mishaps.RestartedByHand(node=ES2), 30.0, stop(ES2),
        begins=_begun),
    Script("a while_stopped hook beside a live process",
        60.0, read, hook(Moment.WHILE_STOPPED), begins=_begun),
)
# fmt: on

# Merges ------------------------------------------------------------------------------------------------


def _merging(simulation: Simulation) -> None:
    simulation.begin(merged_policy(merging()))
    simulation.world.gates[QUEUE.name] = SimGate()


def _allowed(simulation: Simulation) -> None:
    simulation.begin(merged_policy(merging(allow_writes=True)))


def _at_most(at_once: int, per_node: int) -> Step:
    def do(simulation: Simulation) -> None:
        simulation.world.forced.policy = merging(at_once=at_once, per_node=per_node)

    return do


def _filled(simulation: Simulation) -> None:
    merges.fill(simulation.world, ES2, 0.8999, 3600.0)


def _no_merges(simulation: Simulation) -> None:
    simulation.world.forced.policy = None


def _gates_read(simulation: Simulation) -> None:
    """A disk fills between the reading of the cluster and that of the indices, while gates are read."""
    simulation.cluster.observe(EVERYTHING)
    _filled(simulation)
    simulation.world.agenda.advance(0.02)
    simulation.cluster.bulk(tuple(simulation.world.indices))


_LEASE: Final = mishaps.LeaseRemoved()
_WRITER: Final = index_mishaps.WriterBegins(index="posts-1")
_GONE: Final = index_mishaps.IndexDeleted(index="posts-1", made_again=True)
_STALE: Final = program_mishaps.StaleReadings(seconds=60.0)
_SHUT: Final = program_mishaps.GateShut(name=QUEUE.name)
_BY_OTHERS: Final = index_mishaps.MergedByOthers(index="posts-1")
_ALL_OF_IT: Final = 3 * SIZE / (50 << 20)
"""Seconds in which every copy of an index is merged."""


def of_a_merge(name: str, *steps: Step, begins: Step = _merging, trips: Sequence[Trip] = ()) -> Script:
    ready = (enable, 5.0, read, 5.0, read)
    return Script(f"merging: {name}", *ready, *steps, of=loaded, begins=begins, trips=trips)


# fmt: off
MERGES: Final = (
    of_a_merge("twice", merge(), 5.0, read, merge()),
    of_a_merge("too many at once", _at_most(1, 9), merge(), merge("posts-2")),
    of_a_merge("too many on a node", _at_most(9, 1), merge(), merge("posts-2")),
    of_a_merge("written, as is allowed", _WRITER, 5.0, read, merge(), begins=_allowed),
    of_a_merge("without room", _filled, 5.0, read, merge()),
    of_a_merge("a disk that fills between two readings", 5.0, _gates_read, merge()),
    of_a_merge("a node that merges is stopped", merge(), 5.0, read, stop(ES2)),
    of_a_merge("a run that merges nothing", _no_merges, merge()),
    *(
        of_a_merge(f"{type(what).__name__}, {'known' if known else 'which no reading could tell'}",
            what, *known, merge())
        for what in (_BY_OTHERS, _WRITER, _LEASE, _GONE, _SHUT, _STALE)
        for known in ((), (70.0 if what is _LEASE else 5.0, read))  # a lost lease shows within a minute
    ),
    of_a_merge("DiskFills, which no reading could tell",
        node_mishaps.DiskFills(node=ES2, share=0.8999), merge()),
    *(
        of_a_merge(f"late, {type(what).__name__}, read {bool(known)}",
            *(*known, merge(), *([] if known else [what]), 5.0, read, 30.0, read),
            trips=[Trip(verb="force_merge", how=How.LATE, late=29.0)])
        for what in (_LEASE, _GONE)
        for known in ([], [what, 70.0, read])
    ),
    of_a_merge("one index after the other",
        *(step for number in (1, 2, 3) for step in (merge(f"posts-{number}"), _ALL_OF_IT, read))),
)
# fmt: on


def test_the_judge_notices_what_is_recorded_and_nothing_else() -> None:
    """By script in `tests/data/judge.txt`, which `ORCHESTRATE_REWRITE_GOLDEN=1` writes: read it."""
    assert same_as_recorded((*STOPS, *TURNS, *MERGES), RECORDED)


# What a node lacks of its turn --------------------------------------------------------------------------


def lacking(*steps: Step, trips: Sequence[Trip] = ()) -> list[str]:
    simulation = Script("", *steps, begins=_begun, trips=trips).play()
    return turns.lacking(simulation.world.nodes[ES2], HOOKED, simulation.began, simulation.began)


def test_lacking_says_what_is_missing_of_a_turn() -> None:
    down = "while_stopped hook 0 never ran on es2 while it was down"
    after = "after_recovery hook 0 did not run on es2 after its before_stop"
    early = "hook after_recovery 0 ran on es2 without a copy of ["
    assert lacking(*whole(*Moment)) == []
    assert lacking(*whole(Moment.BEFORE_STOP, Moment.AFTER_RECOVERY)) == [down]
    assert lacking(*whole(Moment.BEFORE_STOP, Moment.WHILE_STOPPED)) == [after]
    (said,) = lacking(*whole(*Moment, again=()))
    assert said.startswith(early)
    for reads in ([], [read]):  # between the stop that is late and the hook: a gate may take seconds there
        steps = (hook(Moment.BEFORE_STOP), stop(ES2), enable, 35.0, read, 10.0, *reads)
        lacks = lacking(*steps, hook(Moment.AFTER_RECOVERY), trips=late(40.0))
        assert any(said.startswith(early) for said in lacks) is bool(reads)


def test_a_node_not_restarted_rebooted_or_tuned_lacks_them() -> None:
    simulation = Simulation(tuned.detune(cluster(3)))
    asked = policy(reboot=True, tune=tuned.profile("vm.swappiness"))
    simulation.begin(asked)
    lacks = turns.lacking(simulation.world.nodes[ES2], asked, simulation.began, simulation.began)
    assert lacks == [
        "es2 has no new process",
        "the host of es2 was not rebooted",
        "vm.swappiness of es2 is found",
    ]


# Two programs -------------------------------------------------------------------------------------------


def test_a_deposed_process_may_only_start_what_is_still_its_own() -> None:
    first = Script("", stop(ES2), 5.0, begins=lambda one: one.begin(policy())).play()
    other = first.successor("run-2")
    first.fate.asleep_until = first.world.agenda.now + 100.0
    other.begin(policy())
    first.hosts.perform(StartNode(node=ES2))
    assert first.world.violations == [], "it could not know yet"
    first.world.agenda.advance(1.0)
    first.cluster.observe(EVERYTHING)
    first.hosts.perform(StartNode(node=ES2))
    assert first.world.violations == [], "nobody else has that node"
    enable(first)
    first.world.agenda.advance(60.0)
    first.hosts.perform(StopNode(node=ES3))
    assert told(first)[0].startswith("run-1 was taken over, and sends set_allocation")
    assert told(first)[1] == "run-1 was taken over, and sends stop of es3"
    assert first.deposed
    assert not first.attempt.lease.view().held
    assert other.attempt.lease.view().held


@pytest.mark.parametrize("blind", [False, True])
def test_without_the_lease_nodes_of_the_successor_are_unknown(*, blind: bool) -> None:
    world = cluster(3)
    world.owner = SimOwner(epoch=2, since=0.0, in_hand=lambda: [ES2])
    world.last_read = 1.0
    process = turns.SimulatedProcess(run="run-1", epoch=1, blind=blind)
    turns.acts(world, StartNode(node=ES2), world.nodes[ES2], process)
    assert bool(world.violations) is not blind
    turns.acts(world, StopNode(node=ES3), world.nodes[ES3], process)
    assert world.violations[-1].endswith("run-1 was taken over, and sends stop of es3")


def test_an_unrefreshed_lease_is_lost_in_a_minute_and_regained() -> None:
    simulation = Simulation(cluster(3))
    simulation.begin(policy())
    agenda, lease = simulation.world.agenda, simulation.attempt.lease
    ages = []
    for _ in range(8):
        agenda.advance(4.0)
        ages.append(lease.view().refreshed)
    assert min(ages) < 4.0 < max(ages) < 15.0
    simulation.fate.befall(LeaseUnrefreshed(seconds=70.0))
    for seconds, held, oldest in ((40.0, True, 60.0), (29.0, False, 90.0), (6.0, True, 6.0)):
        agenda.advance(seconds)
        assert (lease.view().held, lease.view().refreshed < oldest) == (held, True)
        assert held or lease.view().refreshed > 60.0


@pytest.mark.parametrize("what", [mishaps.LeaseRemoved(), LeaseUnrefreshed(seconds=10.0)], ids=str)
def test_no_record_is_written_over_a_lease_that_is_not_ours(what: What) -> None:
    simulation = Simulation(cluster(3))
    simulation.begin(policy())
    owing = simulation.journalled(
        SettingChanged(
            level=WITHHELD.level, key=ALLOCATION, found=None, wanted="primaries", purpose=Purpose.WITHHOLD
        )
    )
    simulation.fate.befall(what)
    assert not isinstance(simulation.attempt.lease.publish(owing), Done)
    stands = simulation.leases.in_force
    assert stands is None or stands.debts == ()


# What is as it was --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "reads", "ours"), [(150.0, 60.0, True), (200.0, 60.0, False), (200.0, 20.0, True)]
)
def test_a_stop_done_after_it_could_be_taken_as_lost_is_nobodys(
    seconds: float,
    reads: float,
    ours: bool,  # noqa: FBT001
) -> None:
    """A program that was killed before has the node in hand for the one that takes up its run."""
    steps: list[Step] = [stop(ES2), reads, read, seconds - reads + 30.0]
    node = Script("", *steps, trips=late(seconds)).play().world.nodes[ES2]
    assert (node.process, node.stopped_by_us) == (False, ours)


def test_what_another_operator_set_is_kept_if_it_could_be_known() -> None:
    meddled = mishaps.SettingMeddled(key=ALLOCATION, value="none")
    for steps, may in (
        ([meddled], ("none",)),
        ([meddled, withhold], ("none", "as found")),  # written on a reading from before it
        ([meddled, withhold, meddled, 1.0, read, withhold], ("none",)),
    ):
        world = Script("", *steps).play().world
        assert world.may_stand(Level.PERSISTENT, ALLOCATION, "as found") == may


def test_what_a_run_found_missing_is_none_of_its_doing() -> None:
    """What is lost between its beginning and its baseline counts too; a repair answers for what is built."""
    world = cluster(3)
    logs, archive = (next(iter(index.shards)) for index in world.indices.values())
    for shard in (logs, archive):
        world.missing[shard.id] = world.agenda.now
    built, lost = logs.copies[1], archive.copies[1]
    built.state = CopyState.INITIALIZING
    note_what_is(world, policy(), repairs=True)
    assert set(world.missing) == {logs.id}
    note_what_is(world, policy())
    assert world.missing == {}
    assert (world.missing_before, world.unassigned_before) == (Counter([logs.id]), Counter())
    lost.state = CopyState.UNASSIGNED
    note_unassigned(world)
    assert (world.missing_before, world.unassigned_before) == (Counter([logs.id]), Counter([archive.id]))


def test_a_node_away_before_the_run_is_missed_once_it_was_back() -> None:
    simulation = Simulation(cluster(3))
    simulation.fate.befall(mishaps.NodeDies(node=ES3, back_after=100.0))
    simulation.world.agenda.advance(60.0)
    simulation.begin(policy())
    assert simulation.world.away_before == {ES3}
    simulation.world.agenda.advance(60.0)
    assert simulation.world.away_before == set()
