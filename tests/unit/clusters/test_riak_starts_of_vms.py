"""What a reading costs the nodes: commands that start an Erlang VM, and where `/stats` and `/proc` do.

And handoff that is hastened, as the nodes are asked for it: timers, the call to all, what is left to start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest

from orchestrator.engine.phases import READS
from orchestrator.engine.state import RunState, WaitingHandoff
from orchestrator.model.action import (
    Done,
    ForceHandoff,
    InDoubt,
    Purpose,
    Refused,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import Incarnation, Node, NodeName
from orchestrator.model.observation import ClusterView, Level, Look, SettingsView
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.model.riak import RiakView, timer_key
from orchestrator.model.work_event import WaitingPartition
from orchestrator.ports import ClusterReadings
from orchestrator.riak.output import CommandOutput, reading
from orchestrator.riak.parse_handoff import parse_unstarted
from orchestrator.riak.reading import Memory
from orchestrator.riak.rules.kind import Riak
from orchestrator.riak.rules.recovery import not_back, planned_too, still, unsettled
from tests.doubles.riak_double.stats import stats
from tests.fakes.scripted_http import reply
from tests.unit.clusters.cases import known
from tests.unit.clusters.riak_cluster import (
    BOOT,
    DEV1,
    DEV2,
    DEV3,
    NAMES,
    VERSIONS,
    Staged,
    staged,
    stat_line,
)

RUN = RunState(run="run-1")

WATCHED = ("rpc", "riak_core_node_watcher", "nodes", "[riak_kv]")


@pytest.fixture
def stage() -> Iterator[Staged]:
    """Three nodes at rest, of which everything was read once."""
    with staged() as each:
        for machine in each.world.machines.values():
            machine.vnodes = set(machine.ring.owned(machine.name))
            machine.due.clear()
        each.world.run(120)
        read(each, Phase.GATED)
        yield each


def read(stage: Staged, phase: Phase) -> ClusterReadings:
    """A reading as a phase of a run wants it, and nothing asked before it."""
    stage.runner.asked.clear()
    return stage.cluster.observe(READS[phase].look)


def view(readings: ClusterReadings) -> ClusterView:
    return known(readings.cluster)


def riak(readings: ClusterReadings) -> RiakView:
    found = view(readings).riak
    assert found is not None
    return found


def restart(stage: Staged, seconds: float = 20) -> None:
    """DEV3 goes down and comes up as another process; it hands off, and gets handed off."""
    stage.cluster.avoid({DEV3})
    stage.world.stop(DEV3)
    stage.world.run(30)
    stage.world.start(DEV3)
    stage.runner.starts[DEV3] += 1
    stage.world.run(seconds)


def beyond(stage: Staged) -> int:
    machines = stage.world.machines.values()
    return sum(len(machine.vnodes - set(machine.ring.owned(machine.name))) for machine in machines)


def spoil_stats(stage: Staged, name: str, **fields: object) -> None:
    said = {**stats(stage.world.view(name)), **fields}
    stage.ports[name].on("/stats", reply(json.dumps(said).encode(), headers={"Connection": "close"}))


# While handoff is waited for ------------------------------------


def test_handoff_is_followed_over_http_without_a_start_of_a_vm(stage: Staged) -> None:
    restart(stage)
    read(stage, Phase.REASSIGNED)  # the new process and the limits are read
    found = read(stage, Phase.REASSIGNED)
    assert stage.runner.starts_of_vms() == dict.fromkeys(NAMES, 0)
    assert beyond(stage) > 0
    assert sum(riak(found).beyond.values()) == beyond(stage)
    assert riak(found).transfers is NOT_READ, "so `no_transfers` is not met"
    said = f"{beyond(stage)} vnodes to be handed off to their owners, by /stats"
    assert unsettled(RUN, view(found)) == said
    assert [node.name for node in view(found).nodes] == list(NAMES)
    assert view(found).members[DEV3].incarnation.ephemeral_id is not None
    assert not isinstance(found.settings, Unknown)
    assert not isinstance(found.health, Unknown)


def test_where_handoff_is_hastened_stats_alone_are_no_reading(stage: Staged) -> None:
    """The next node waits until every vnode was started, and /stats does not count those that were not."""
    restart(stage)
    read(stage, Phase.REASSIGNED)
    assert riak(read(stage, Phase.REASSIGNED)).beyond, "now /stats would do"
    found = riak(stage.cluster.observe(READS[Phase.REASSIGNED].look | {Look.PACE}))
    assert set(found.unstarted) == set(NAMES)


def test_the_end_of_handoff_is_what_two_nodes_call_clean(stage: Staged) -> None:
    restart(stage)
    stage.world.clean(within=600)
    found = read(stage, Phase.REASSIGNED)
    assert not riak(found).beyond
    assert len(known(riak(found).transfers)) == 2
    assert unsettled(RUN, view(found)) is None
    assert max(stage.runner.starts_of_vms().values()) <= 2


def test_stats_alone_never_call_handoff_done(stage: Staged) -> None:
    """Where they count less than `transfers`, the transfers decide."""
    restart(stage)
    for name in NAMES:
        own = len(stage.world.machines[name].ring.owned(name))
        spoil_stats(stage, name, riak_kv_vnodes_running=own, riak_pipe_vnodes_running=own)
    found = view(read(stage, Phase.REASSIGNED))
    assert len([line for _, line in stage.runner.asked if line == "admin transfers"]) == 2
    assert unsettled(RUN, found) is not None


def test_stats_that_count_too_much_delay_a_minute_at_most(stage: Staged) -> None:
    restart(stage)
    stage.world.clean(within=600)
    spoil_stats(stage, DEV1, riak_kv_vnodes_running=64)
    assert unsettled(RUN, view(read(stage, Phase.REASSIGNED))) is not None
    stage.later(61)
    assert unsettled(RUN, view(read(stage, Phase.REASSIGNED))) is None


def stick(stage: Staged) -> int:
    """DEV1 holds a partition of DEV2 for good."""
    number = min(stage.world.machines[DEV2].ring.owned(DEV2))
    stage.world.machines[DEV1].vnodes.add(number)
    stage.world.machines[DEV1].due[number] = float("inf")
    return number


def test_what_waited_before_the_stop_is_no_handoff_in_progress(stage: Staged) -> None:
    number = stick(stage)
    left = (WaitingPartition(partition=number, holder=DEV1, owner=DEV2),)
    assert still(riak(read(stage, Phase.GATED))) == frozenset(left)
    after = replace(RUN, handoff=WaitingHandoff(left=left))
    restart(stage)
    read(stage, Phase.REASSIGNED)
    found = read(stage, Phase.REASSIGNED)
    assert stage.runner.starts_of_vms() == dict.fromkeys(NAMES, 0)
    assert sum(riak(found).beyond.values()) == beyond(stage) - 1
    stage.world.run(600)
    assert beyond(stage) == 1
    found = read(stage, Phase.REASSIGNED)
    assert stage.runner.on("admin", "cluster", "partitions", "-n", DEV1) == [DEV1]
    assert riak(found).waiting == {DEV1: frozenset({number})}
    assert unsettled(after, view(found)) is None
    assert "1 partitions waiting" in str(unsettled(RUN, view(found)))
    stage.world.machines[DEV1].vnodes.discard(number)
    assert riak(read(stage, Phase.REASSIGNED)).waiting == {}
    assert stage.runner.on("admin", "cluster", "partitions", "-n", DEV1) == []


def test_a_process_that_made_no_stop_itself_needs_the_commands() -> None:
    """It does not know what waited before: `/stats` would count that as handoff in progress for ever."""
    with staged() as stage:
        stage.world.run(600)
        stick(stage)
        stage.cluster.avoid({DEV3})
        for _ in range(2):
            found = riak(read(stage, Phase.REASSIGNED))
            assert (found.beyond, isinstance(found.transfers, Unknown)) == ({}, False)


UNEQUAL = f"[{{'{DEV1}',7}},{{'{DEV2}',4}},{{'{DEV3}',5}}]"
TWO_OWNERS = f"[{{'{DEV1}',8}},{{'{DEV2}',8}}]"
DISAGREEING: dict[str, dict[str, object]] = {
    "a peer that is not connected": {"connected_nodes": [DEV1]},
    "a ring with another owner": {"ring_ownership": UNEQUAL},
    "a member less": {"ring_members": [DEV1, DEV2], "ring_ownership": TWO_OWNERS},
    "no count of vnodes": {"riak_kv_vnodes_running": None},
    "another node's page": {"nodename": DEV1},
}


def test_stats_that_do_not_agree_leave_it_to_the_commands(subtests: pytest.Subtests, stage: Staged) -> None:
    restart(stage)
    read(stage, Phase.REASSIGNED)
    for name, fields in DISAGREEING.items():
        with subtests.test(name):
            spoil_stats(stage, DEV2, **fields)
            found = riak(read(stage, Phase.REASSIGNED))
            assert not found.beyond
            known(found.transfers)


def test_a_member_that_goes_down_meanwhile_is_missed(stage: Staged) -> None:
    restart(stage)
    read(stage, Phase.REASSIGNED)
    stage.world.stop(DEV2)
    found = view(read(stage, Phase.REASSIGNED))
    assert [node.name for node in found.nodes] == [DEV1, DEV3]


def test_limits_are_read_again_after_a_restart_or_a_write(stage: Staged) -> None:
    limits = ("admin", "transfer-limit")
    restart(stage)
    read(stage, Phase.REASSIGNED)
    assert len(stage.runner.on(*limits)) == 1
    read(stage, Phase.REASSIGNED)
    assert stage.runner.on(*limits) == []
    change = SettingChange(level=Level.TRANSIENT, key=f"transfer_limit.{DEV3}", found="2", wanted="8")
    written = WriteSettings(changes=(change,), purpose=Purpose.RAISE_LIMITS)
    assert stage.cluster.perform(written) == Done()
    assert known(read(stage, Phase.REASSIGNED).settings).transient[change.key] == "8"
    stage.runner.starts[DEV1] += 1
    read(stage, Phase.REASSIGNED)
    assert len(stage.runner.on(*limits)) == 1
    stage.later(31)
    read(stage, Phase.REASSIGNED)
    assert len(stage.runner.on(*limits)) == 1, "somebody may have changed them"


# Which process a node is ------------------------------------


def test_a_process_that_is_known_is_not_asked_for_again(stage: Staged) -> None:
    read(stage, Phase.DOWN)
    assert stage.runner.on("pid") == []
    stage.runner.starts[DEV2] += 1
    stage.runner.asked.clear()
    read(stage, Phase.DOWN)
    assert stage.runner.on("pid") == [DEV2]


def test_the_process_that_a_restart_ends_is_not_believed(stage: Staged) -> None:
    """It may still be there, on its way out, while the next one runs already."""
    stage.cluster.avoid({DEV3})
    before = view(read(stage, Phase.DOWN)).members[DEV3].incarnation
    assert stage.runner.on("pid") == [DEV3]
    stage.runner.instead[DEV3, "pid"] = CommandOutput(exit=0, stdout="777\n")
    after = view(read(stage, Phase.DOWN)).members[DEV3].incarnation
    assert after.differs_from(before)
    read(stage, Phase.DOWN)
    assert stage.runner.on("pid") == [], "the new one is known"


def test_after_a_resume_a_process_may_be_the_old_one() -> None:
    with staged() as stage:
        stage.cluster.avoid({DEV3})
        for _ in range(3):
            read(stage, Phase.DOWN)
            assert stage.runner.on("pid")[-1] == DEV3


def test_a_process_that_has_ended_is_no_life(stage: Staged) -> None:
    line = "/proc/sys/kernel/random/boot_id /proc/101/stat /proc/stat"
    ended = f"{BOOT}\n{stat_line(101, 1000).replace(') S ', ') Z ')}"
    stage.runner.instead[DEV2, line] = CommandOutput(exit=0, stdout=ended)
    found = riak(read(stage, Phase.DOWN))
    assert stage.runner.on("pid") == [DEV2]
    assert found.unidentified == {DEV2: "process 101 has ended"}


# While a node comes back ------------------------------------


def test_ring_and_peers_are_asked_once_the_node_looks_ready(stage: Staged) -> None:
    stage.cluster.avoid({DEV3})
    stage.world.stop(DEV3)
    stage.world.run(30)
    stage.world.start(DEV3)
    stage.runner.starts[DEV3] += 1
    found = view(read(stage, Phase.REJOINED))
    assert stage.runner.starts_of_vms() == {DEV1: 1, DEV2: 0, DEV3: 1}, "its new process is found"
    assert "vnodes run" in str(not_back(found, DEV3))
    stage.world.run(30)
    found = view(read(stage, Phase.REJOINED))
    assert not_back(found, DEV3) is None
    assert stage.runner.starts_of_vms() == {DEV1: 2, DEV2: 1, DEV3: 0}
    assert len(stage.runner.on(*WATCHED)) == 1
    assert not any("wait-for-service" in line for _, line in stage.runner.asked)


def test_a_node_is_not_ready_before_a_peer_sees_its_store(stage: Staged) -> None:
    restart(stage)
    stage.world.run(30)
    for peer in (DEV1, DEV2):
        stage.runner.instead[peer, " ".join(WATCHED)] = CommandOutput(exit=0, stdout=f"['{DEV1}','{DEV2}']\n")
    assert "riak_kv is not up" in str(not_back(view(read(stage, Phase.REJOINED)), DEV3))


def test_without_rpc_a_service_is_waited_for_once_a_minute(stage: Staged) -> None:
    """Ended from outside, `wait-for-service` leaves its loop behind on the host."""
    restart(stage)
    stage.world.run(30)
    stage.runner.refused = ("rpc",)
    assert not_back(view(read(stage, Phase.REJOINED)), DEV3) is None
    assert not_back(view(read(stage, Phase.REJOINED)), DEV3) is None, "it ended by itself, so it may be sent"
    cut = CommandOutput(exit=None, stdout="riak_kv is not up: []\n")
    for peer in (DEV1, DEV2):
        stage.runner.instead[peer, f"admin wait-for-service riak_kv {DEV3}"] = cut
    sent = 0
    for _ in range(5):
        assert not_back(view(read(stage, Phase.REJOINED)), DEV3) is not None
        sent += sum("wait-for-service" in line for _, line in stage.runner.asked)
    assert sent == 1
    stage.later(61)
    read(stage, Phase.REJOINED)
    assert sum("wait-for-service" in line for _, line in stage.runner.asked) == 1


# Before a stop ------------------------------------


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.GATED, Phase.WITHHELD])
def test_before_a_stop_the_commands_themselves_are_asked(stage: Staged, phase: Phase) -> None:
    found = riak(read(stage, phase))
    lines = [line for _, line in stage.runner.asked]
    for part in (found.cluster, found.ring_ready, found.ring, found.n_vals):
        assert not isinstance(part, Unknown)
    assert lines.count("admin transfers") == 2
    for command in ("ringready", "cluster status", "bucket-type list"):
        assert lines.count(f"admin {command}") == 1, command
    assert not found.beyond
    assert max(stage.runner.starts_of_vms().values()) <= 6, "spread over the members"


def test_a_member_on_an_unreachable_host_is_sent_nothing_else(stage: Staged) -> None:
    for line in ("/proc/sys/kernel/random/boot_id /proc/101/stat /proc/stat", "pid"):
        stage.runner.instead[DEV2, line] = Unknown(reason="no route to host")
    known(riak(read(stage, Phase.GATED)).ring)  # a peer tells of its partitions
    assert {line for node, line in stage.runner.asked if node == DEV2} <= {
        "/proc/sys/kernel/random/boot_id /proc/101/stat /proc/stat",
        "pid",
    }


# At no time ------------------------------------


def test_vnode_status_is_never_sent(stage: Staged) -> None:
    """A message to every vnode puts off handoff, which begins after a time without any."""
    sent: list[str] = []
    for phase in Phase:
        read(stage, phase)
        sent += [line for _, line in stage.runner.asked]
    restart(stage)
    for phase in (*Phase, Phase.REASSIGNED):
        read(stage, phase)
        sent += [line for _, line in stage.runner.asked]
    assert sent
    assert not [line for line in sent if re.search(r"vnode[-_]status|vnode-query", line)]
    assert Riak.predicates, "of a kind that has them"


# Handoff that is hastened: the answers are those of the product's source, none was recorded ----------------

MODULES = "[riak_kv_vnode,riak_pipe_vnode]"
STATE = f'{{state,#Ref<0.1.2.3>,{{dict,\'a@b\',"[{{,"}},[],{MODULES},%s,16,{{x,<<"}},">>}},[]}}'
"""In the order of riak_core's record; what is in the other members is made up to mislead."""
FORCE = ("rpc", "rpc", "multicall", "[riak_core_vnode_manager,force_handoffs,[]]")
MANAGER = ("rpc", "sys", "get_state", "[riak_core_vnode_manager]")
TIMER = ("rpc", "application", "get_env", "[riak_core,vnode_management_timer]")


def out(text: str, code: int | None = 0) -> CommandOutput:
    return CommandOutput(exit=code, stdout=text)


@pytest.fixture
def fresh() -> Iterator[Staged]:
    """Three nodes of which nothing was read."""
    with staged() as each:
        each.world.run(120)
        yield each


@pytest.fixture
def restarted(fresh: Staged) -> Staged:
    """The same, five seconds after a restart of the third one, since which nothing was asked."""
    restart(fresh, 5)
    fresh.runner.asked.clear()
    return fresh


def paced(phase: Phase) -> frozenset[Look]:
    return READS[phase].look | {Look.PACE}


def test_a_node_whose_manager_has_no_list_is_asked_again(restarted: Staged) -> None:
    """That it has none to start is not remembered of a life that has only begun."""
    listed = restarted.runner.world.ask(DEV3, " ".join(MANAGER))
    restarted.runner.instead[DEV3, " ".join(MANAGER)] = out((STATE % "[]").replace(MODULES, "[]"))
    assert isinstance(unstarted_of(restarted, DEV3), Unknown)
    restarted.runner.instead[DEV3, " ".join(MANAGER)] = out(listed)
    assert unstarted_of(restarted, DEV3) == reading(lambda: parse_unstarted(out(listed)))


def unstarted_of(fresh: Staged, node: NodeName) -> Reading[int]:
    return riak(fresh.cluster.observe(paced(Phase.REASSIGNED))).unstarted[node]


def timers(fresh: Staged, look: Collection[Look]) -> set[str]:
    return {key for key in known(fresh.cluster.observe(look).settings).transient if "timer" in key}


def test_every_node_is_asked_until_it_has_nothing_to_start(restarted: Staged) -> None:
    found = restarted.cluster.observe(paced(Phase.REASSIGNED))
    machine = restarted.world.machines[DEV3]
    missing = machine.ring.size - len(machine.vnodes | machine.ring.owned(DEV3))
    assert riak(found).unstarted == {DEV1: 0, DEV2: 0, DEV3: 2 * missing}, "two modules of each partition"
    assert sorted(restarted.runner.on(*MANAGER)) == [DEV1, DEV2, DEV3]
    assert known(found.settings).transient[timer_key(DEV3)] == "10000"
    restarted.runner.asked.clear()
    restarted.cluster.observe(paced(Phase.REASSIGNED))
    assert restarted.runner.on(*MANAGER) == [DEV3]
    assert restarted.runner.on(*TIMER) == [], "read a moment ago"
    restarted.runner.asked.clear()
    restarted.cluster.observe(READS[Phase.REASSIGNED].look)
    assert not any(line.startswith(("rpc application", "rpc sys")) for _, line in restarted.runner.asked)


def test_a_plan_and_the_end_read_every_timer(fresh: Staged) -> None:
    every = {timer_key(name) for name in NAMES}
    assert timers(fresh, paced(Phase.FINISHING)) == every
    fresh.runner.asked.clear()
    wanted = Policy(kind=Kind.RIAK, cluster="ring", hasten_handoff=True)
    assert timers(fresh, READS[Phase.WITHHELD].look | planned_too(wanted)) == every
    assert fresh.runner.on(*MANAGER) == [], "a plan reads no state of a manager"


def test_a_timer_is_set_on_its_own_node_and_read_again(restarted: Staged) -> None:
    change = SettingChange(level=Level.TRANSIENT, key=timer_key(DEV3), found="10000", wanted="1000")
    write = WriteSettings(changes=(change,), purpose=Purpose.RAISE_LIMITS)
    restarted.cluster.observe(paced(Phase.REASSIGNED))
    assert restarted.cluster.perform(write) == Done()
    assert [restarted.world.machines[name].timer for name in NAMES] == [10_000, 10_000, 1_000]
    found = known(restarted.cluster.observe(paced(Phase.REASSIGNED)).settings)
    assert found.transient[timer_key(DEV3)] == "1000"
    assert "set_env [riak_core,vnode_management_timer,1000] (on dev3" in restarted.cluster.describe(write)


def test_one_call_makes_all_nodes_hand_off(restarted: Staged) -> None:
    restarted.world.run(20)
    assert any(machine.due for machine in restarted.world.machines.values())
    assert restarted.cluster.perform(ForceHandoff()) == Done()
    assert restarted.runner.on(*FORCE) == [DEV1]
    assert all(
        due <= restarted.world.now
        for machine in restarted.world.machines.values()
        for due in machine.due.values()
    )
    assert restarted.cluster.describe(ForceHandoff()) == f"/usr/sbin/riak {' '.join(FORCE)}"
    restarted.runner.instead[DEV1, " ".join(FORCE)] = CommandOutput(exit=None, stdout="")
    assert isinstance(restarted.cluster.perform(ForceHandoff()), InDoubt)


def test_another_version_is_not_hastened(fresh: Staged) -> None:
    for name in NAMES:
        fresh.runner.instead[name, "versions"] = out(VERSIONS.replace("3.2.1", "3.0.16"))
    assert isinstance(fresh.cluster.perform(ForceHandoff()), Refused)
    found = fresh.cluster.observe(paced(Phase.REASSIGNED))
    assert not any("sys get_state" in line for _, line in fresh.runner.asked)
    assert isinstance(found.cluster, ClusterView | Unknown)


def test_a_reading_is_used_for_half_a_minute_alone(restarted: Staged) -> None:
    restarted.cluster.observe(paced(Phase.REASSIGNED))
    for _ in range(2):
        restarted.later(20)
        restarted.cluster.observe(paced(Phase.REASSIGNED))
    assert restarted.runner.on(*TIMER).count(DEV3) == 2, "at once, and after 40 s"


def test_a_reading_that_ends_after_a_write_is_not_used_again() -> None:
    """It was given up, and its limits are those before the write."""
    memory = Memory(lambda: 0.0)
    life = Incarnation(ephemeral_id="1")
    nodes = (Node(name=DEV1, node_id=DEV1, incarnation=life, roles=frozenset(), version="3.2.1", address=""),)
    before = memory.writes
    memory.limits_written()
    memory.keep_limits(nodes, SettingsView(transient={"a": "1"}), before)
    assert memory.limits_of(nodes) is None
    memory.keep_limits(nodes, SettingsView(transient={"a": "1"}), memory.writes)
    assert memory.limits_of(nodes) is not None
