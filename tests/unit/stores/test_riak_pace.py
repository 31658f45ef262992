"""Handoff that is hastened, as the nodes are asked for it: timers, the call to all, what is left to start.

The answers are those of the product's source; none was recorded. How they are read is in
`tests/data/parsers/stores.riak.parse_pace.*`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from orchestrator.engine.kinds.riak.hasten import planned_too
from orchestrator.engine.kinds.riak.settings import timer_key
from orchestrator.engine.phases import READS
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
from orchestrator.model.reading import Reading, Unknown
from orchestrator.stores.riak.output import CommandOutput
from orchestrator.stores.riak.parse_pace import parse_unstarted
from orchestrator.stores.riak.reading import Memory
from tests.unit.stores.cases import known
from tests.unit.stores.riak_cluster import DEV1, DEV2, DEV3, NAMES, VERSIONS, Staged, staged

MODULES = "[riak_kv_vnode,riak_pipe_vnode]"
STATE = f'{{state,#Ref<0.1.2.3>,{{dict,\'a@b\',"[{{,"}},[],{MODULES},%s,16,{{x,<<"}},">>}},[]}}'
"""In the order of riak_core's record; what is in the other members is made up to mislead."""
FORCE = ("rpc", "rpc", "multicall", "[riak_core_vnode_manager,force_handoffs,[]]")
MANAGER = ("rpc", "sys", "get_state", "[riak_core_vnode_manager]")
TIMER = ("rpc", "application", "get_env", "[riak_core,vnode_management_timer]")


def out(text: str, code: int | None = 0) -> CommandOutput:
    return CommandOutput(exit=code, stdout=text)


@pytest.fixture
def stage() -> Iterator[Staged]:
    with staged() as each:
        each.world.run(120)
        yield each


def restarted(stage: Staged) -> None:
    """DEV3 is up again, and has not yet started all that it could hold for others."""
    stage.cluster.avoid({DEV3})
    stage.world.stop(DEV3)
    stage.world.run(30)
    stage.world.start(DEV3)
    stage.runner.starts[DEV3] += 1
    stage.world.run(5)
    stage.runner.asked.clear()


def paced(phase: Phase) -> frozenset[Look]:
    return READS[phase].look | {Look.PACE}


def test_a_node_whose_manager_has_no_list_is_asked_again(stage: Staged) -> None:
    """That it has none to start is not remembered of a life that has only begun."""
    restarted(stage)
    listed = stage.runner.world.ask(DEV3, " ".join(MANAGER))
    stage.runner.instead[DEV3, " ".join(MANAGER)] = out((STATE % "[]").replace(MODULES, "[]"))
    assert isinstance(unstarted_of(stage, DEV3), Unknown)
    stage.runner.instead[DEV3, " ".join(MANAGER)] = out(listed)
    assert unstarted_of(stage, DEV3) == parse_unstarted(out(listed))


def unstarted_of(stage: Staged, node: NodeName) -> Reading[int]:
    view = known(stage.cluster.observe(paced(Phase.REASSIGNED)).cluster)
    assert view.riak is not None
    return view.riak.unstarted[node]


def timers(stage: Staged, look: Collection[Look]) -> set[str]:
    return {key for key in known(stage.cluster.observe(look).settings).transient if "timer" in key}


def test_every_node_is_asked_until_it_has_nothing_to_start(stage: Staged) -> None:
    restarted(stage)
    found = stage.cluster.observe(paced(Phase.REASSIGNED))
    view = known(found.cluster).riak
    assert view is not None
    machine = stage.world.machines[DEV3]
    missing = machine.ring.size - len(machine.vnodes | machine.ring.owned(DEV3))
    assert view.unstarted == {DEV1: 0, DEV2: 0, DEV3: 2 * missing}, "two modules of each partition"
    assert sorted(stage.runner.on(*MANAGER)) == [DEV1, DEV2, DEV3]
    assert known(found.settings).transient[timer_key(DEV3)] == "10000"
    stage.runner.asked.clear()
    stage.cluster.observe(paced(Phase.REASSIGNED))
    assert stage.runner.on(*MANAGER) == [DEV3]
    assert stage.runner.on(*TIMER) == [], "read a moment ago"


def test_a_plan_and_the_end_read_every_timer(stage: Staged) -> None:
    every = {timer_key(name) for name in NAMES}
    assert timers(stage, paced(Phase.FINISHING)) == every
    stage.runner.asked.clear()
    wanted = Policy(kind=Kind.RIAK, cluster="ring", hasten_handoff=True)
    assert timers(stage, READS[Phase.WITHHELD].look | planned_too(wanted)) == every
    assert stage.runner.on(*MANAGER) == [], "a plan reads no state of a manager"


def test_without_it_nothing_of_the_kind_is_asked(stage: Staged) -> None:
    restarted(stage)
    stage.cluster.observe(READS[Phase.REASSIGNED].look)
    assert not any("rpc application" in line or "rpc sys" in line for _, line in stage.runner.asked)


def test_a_timer_is_set_on_its_own_node_and_read_again(stage: Staged) -> None:
    restarted(stage)
    change = SettingChange(level=Level.TRANSIENT, key=timer_key(DEV3), found="10000", wanted="1000")
    write = WriteSettings(changes=(change,), purpose=Purpose.RAISE_LIMITS)
    stage.cluster.observe(paced(Phase.REASSIGNED))
    assert stage.cluster.perform(write) == Done()
    assert [stage.world.machines[name].timer for name in NAMES] == [10_000, 10_000, 1_000]
    found = known(stage.cluster.observe(paced(Phase.REASSIGNED)).settings)
    assert found.transient[timer_key(DEV3)] == "1000"
    assert "set_env [riak_core,vnode_management_timer,1000] (on dev3" in stage.cluster.describe(write)


def test_one_call_makes_all_nodes_hand_off(stage: Staged) -> None:
    restarted(stage)
    stage.world.run(20)
    assert any(machine.due for machine in stage.world.machines.values())
    assert stage.cluster.perform(ForceHandoff()) == Done()
    assert stage.runner.on(*FORCE) == [DEV1]
    assert all(
        due <= stage.world.now for machine in stage.world.machines.values() for due in machine.due.values()
    )
    assert stage.cluster.describe(ForceHandoff()) == f"/usr/sbin/riak {' '.join(FORCE)}"


def test_a_call_of_which_nothing_is_known_is_in_doubt(stage: Staged) -> None:
    stage.runner.instead[DEV1, " ".join(FORCE)] = CommandOutput(exit=None, stdout="")
    assert isinstance(stage.cluster.perform(ForceHandoff()), InDoubt)


def test_another_version_is_not_hastened(stage: Staged) -> None:
    for name in NAMES:
        stage.runner.instead[name, "versions"] = CommandOutput(
            exit=0, stdout=VERSIONS.replace("3.2.1", "3.0.16")
        )
    assert isinstance(stage.cluster.perform(ForceHandoff()), Refused)
    found = stage.cluster.observe(paced(Phase.REASSIGNED))
    assert not any("sys get_state" in line for _, line in stage.runner.asked)
    assert isinstance(found.cluster, ClusterView | Unknown)


def test_a_reading_is_used_for_half_a_minute_alone(stage: Staged) -> None:
    restarted(stage)
    stage.cluster.observe(paced(Phase.REASSIGNED))
    for _ in range(2):
        stage.later(20)
        stage.cluster.observe(paced(Phase.REASSIGNED))
    assert stage.runner.on(*TIMER).count(DEV3) == 2, "at once, and after 40 s"


def test_a_reading_that_ends_after_a_write_is_not_used_again() -> None:
    """It was given up, and its limits are those before the write."""
    memory = Memory(lambda: 0.0)
    nodes = (
        Node(
            name=DEV1,
            node_id=DEV1,
            incarnation=Incarnation(ephemeral_id="1"),
            roles=frozenset(),
            version="3.2.1",
            address="",
        ),
    )
    before = memory.writes
    memory.limits_written()
    memory.keep_limits(nodes, SettingsView(transient={"a": "1"}), before)
    assert memory.limits_of(nodes) is None
    memory.keep_limits(nodes, SettingsView(transient={"a": "1"}), memory.writes)
    assert memory.limits_of(nodes) is not None
