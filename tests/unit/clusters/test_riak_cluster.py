"""A Riak cluster as a port: what each part of a reading asks, of whom, and how limits are set."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from orchestrator.model.action import (
    Done,
    Flush,
    InDoubt,
    ProbeSettings,
    Purpose,
    Refused,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Level, Look, NodesJoined, SettingsView
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.model.riak import Availability, RiakView
from orchestrator.riak.output import CommandOutput
from tests.fakes.scripted_http import reply
from tests.unit.clusters.cases import known, why
from tests.unit.clusters.riak_cluster import BOOT, DEV1, DEV2, DEV3, NAMES, Staged

EVERYTHING = frozenset({Look.CLUSTER, Look.HEALTH, Look.ACTIVITY, Look.SETTINGS})
WATCHED = ("rpc", "riak_core_node_watcher", "nodes", "[riak_kv]")


def riak(stage: Staged, *look: Look) -> RiakView:
    found = cluster(stage, *look).riak
    assert found is not None
    return found


def cluster(stage: Staged, *look: Look) -> ClusterView:
    return known(stage.cluster.observe(look).cluster)


def limits_of(stage: Staged) -> list[int]:
    return [stage.world.machines[name].limit for name in NAMES]


def failing(name: str) -> CommandOutput:
    return CommandOutput(exit=0, stdout=f"Failed to set transfer limit for '{name}'\nok\n")


NOT_ENDED, LOST = CommandOutput(exit=None, stdout=""), Unknown(reason="no route to host")


def write(**limits: str) -> WriteSettings:
    changes = tuple(
        SettingChange(level=Level.TRANSIENT, key=f"transfer_limit.{short}@127.0.0.1", found="2", wanted=limit)
        for short, limit in limits.items()
    )
    return WriteSettings(changes=changes, purpose=Purpose.RAISE_LIMITS)


def test_each_look_adds_its_parts(stage: Staged) -> None:
    view = cluster(stage, Look.CLUSTER)
    found = view.riak
    assert (view.name, view.uuid, view.version, view.master) == ("ring", "riak:ring", "3.2.1", DEV1)
    assert [node.name for node in view.nodes] == list(NAMES)
    assert view.nodes[0].incarnation.ephemeral_id == f"{BOOT} 100 1000"
    assert found is not None
    assert not isinstance(found.cluster, Unknown)
    others = (found.ring_ready, found.transfers, found.ring, found.n_vals)
    assert (others, found.signs) == ((NOT_READ,) * 4, {})
    stage.runner.asked.clear()
    cluster(stage, Look.CLUSTER)
    assert stage.runner.starts_of_vms() == {DEV1: 1, DEV2: 0, DEV3: 0}
    found = riak(stage, Look.HEALTH)
    assert known(found.ring_ready).agreed
    for node in NAMES:
        signs = found.signs[node]
        assert (signs.ping, known(signs.stats).node) == (True, node)
        assert signs.service is NOT_READ  # nobody is in hand: nobody is waited for
    assert found.transfers is NOT_READ


@pytest.mark.parametrize("look", [Look.RECOVERIES, Look.ACTIVITY])
def test_transfers_are_asked_of_two_nodes(stage: Staged, look: Look) -> None:
    found = riak(stage, look)
    transfers = known(found.transfers)
    assert set(transfers) == {DEV2, DEV3}, "DEV1 was asked for the state of the cluster"
    assert not any(isinstance(each, Unknown) for each in transfers.values())
    if look is Look.ACTIVITY:
        assert (len(known(found.ring).owners), found.n_vals) == (16, {3})
    else:
        assert found.ring is NOT_READ


def test_limits_are_settings_that_a_restart_forgets(stage: Staged) -> None:
    stage.world.machines[DEV2].limit = 5
    readings = stage.cluster.observe({Look.SETTINGS})
    wanted = {"transfer_limit." + DEV1: "2", "transfer_limit." + DEV2: "5", "transfer_limit." + DEV3: "2"}
    assert readings.settings == SettingsView(transient=wanted)
    assert readings.cluster is NOT_READ


def test_the_one_that_is_asked_is_not_in_hand(stage: Staged) -> None:
    stage.cluster.avoid({DEV1})
    found = riak(stage, Look.CLUSTER, Look.HEALTH)
    assert stage.runner.on("admin", "cluster", "status") == [DEV2]
    assert stage.runner.on("admin", "ringready") == [DEV3]
    # Of the node in hand a peer says whether its store is there; of the others nobody asks.
    assert DEV1 not in stage.runner.on(*WATCHED)
    assert not isinstance(found.signs[DEV1].service, Unknown)
    assert found.signs[DEV1].service.up
    assert found.signs[DEV2].service is NOT_READ
    transfers = riak(stage, *EVERYTHING).transfers
    assert not isinstance(transfers, Unknown)
    assert set(transfers) == {DEV2, DEV3}


def test_a_member_that_does_not_answer_is_passed_over(stage: Staged) -> None:
    stage.cluster.observe({Look.CLUSTER})
    stage.world.stop(DEV1)
    view = cluster(stage, *EVERYTHING)
    assert [node.name for node in view.nodes] == [DEV2, DEV3]
    assert view.riak is not None
    assert not isinstance(view.riak.cluster, Unknown)
    down = [m.node for m in view.riak.cluster.members if m.availability is not Availability.UP]
    assert down == [DEV1]
    assert set(view.riak.signs) == {DEV2, DEV3}
    assert stage.runner.on("admin", "cluster", "status")[-2:] == [DEV1, DEV2]


def test_where_no_member_answers_all_is_unknown_with_reasons(stage: Staged) -> None:
    stage.cluster.observe({Look.CLUSTER})
    for node in NAMES:
        stage.world.stop(node)
    readings = stage.cluster.observe(EVERYTHING)
    for reading in (readings.cluster, readings.settings, readings.health, readings.activity):
        assert all(node in why(reading) for node in NAMES)


def test_a_node_whose_process_cannot_be_told_has_no_life(stage: Staged) -> None:
    stage.runner.instead[DEV2, "pid"] = CommandOutput(exit=None, stdout="10")
    stage.runner.instead[DEV3, "pid"] = LOST
    lives = {node.name: node.incarnation.ephemeral_id for node in cluster(stage, Look.CLUSTER).nodes}
    assert lives == {DEV1: f"{BOOT} 100 1000", DEV2: None, DEV3: None}


def test_another_node_at_its_port_is_no_sign_of_life(stage: Staged) -> None:
    """As where nodes share a machine, and the endpoints name the port of one of them only."""
    stage.cluster.observe({Look.CLUSTER})
    pages = {node: stage.ports[node].answers["/stats"][-1] for node in NAMES}
    stage.ports[DEV2].on("/stats", pages[DEV1])
    assert DEV1 in why(riak(stage, Look.HEALTH).signs[DEV2].stats)
    stage.ports[DEV1].on("/stats", pages[DEV2])
    assert DEV2 in why(riak(stage, Look.ACTIVITY).ring), "nor is the ring held against it"
    stage.ports[DEV1].on("/stats", reply(b"hello"))
    assert isinstance(riak(stage, Look.HEALTH).signs[DEV1].stats, Unknown)
    for node in (DEV1, DEV2):
        stage.ports[node].on("/stats", pages[node])
    stage.world.stop(DEV3)
    cluster(stage, Look.CLUSTER)
    stage.world.start(DEV3)
    stage.world.run(60)
    assert known(riak(stage, Look.HEALTH).signs[DEV3].stats).node == DEV3, "found at its own endpoint"


def test_limits_are_written_node_by_node_by_one_that_is_up(stage: Staged) -> None:
    stage.cluster.avoid({DEV1})
    assert stage.cluster.perform(write(dev1="8", dev3="4")) == Done()
    assert limits_of(stage) == [8, 2, 4]
    assert stage.runner.on("admin", "transfer-limit", DEV1, "8") == [DEV2]
    assert stage.runner.on("admin", "transfer-limit", DEV3, "4") == [DEV2]


def test_what_became_of_limits_that_were_not_all_set(subtests: pytest.Subtests, stage: Staged) -> None:
    """One that fails keeps no other node from its limit; where nothing was set on any, it is refused."""
    cut = [CommandOutput(exit=code, stdout="Set tr") for code in (None, 0)]
    two, all_three = {"dev2": "8"}, {"dev1": "8", "dev2": "8", "dev3": "4"}
    rows: list[tuple[dict[NodeName, Any], dict[str, str], type, list[int]]] = [
        ({DEV2: failing(DEV2)}, all_three, InDoubt, [8, 2, 4]),
        ({DEV2: NOT_ENDED}, all_three, InDoubt, [8, 2, 4]),
        ({DEV2: LOST}, all_three, InDoubt, [8, 2, 4]),
        ({DEV2: failing(DEV2)}, two, Refused, [2, 2, 2]),
        ({DEV1: failing(DEV1), DEV2: failing(DEV2)}, {"dev1": "8", "dev2": "8"}, Refused, [2, 2, 2]),
        *(({DEV2: output}, two, InDoubt, [2, 2, 2]) for output in cut),
    ]
    for failed, limits, result, after in rows:
        with subtests.test(failed=failed, limits=limits):
            stage.runner.instead = {
                (DEV1, f"admin transfer-limit {node} 8"): output for node, output in failed.items()
            }
            for machine in stage.world.machines.values():
                machine.limit = 2
            done = stage.cluster.perform(write(**limits))
            assert isinstance(done, result)
            assert all(node in why(done) for node in failed)
            assert limits_of(stage) == after
            assert result is Refused or limits is two or why(done).endswith(f"; set on {DEV1}, {DEV3}")


def test_only_transfer_limits_are_written_and_described(stage: Staged) -> None:
    assert stage.cluster.describe(write(dev3="4", dev1="8")) == (
        f"/usr/sbin/riak admin transfer-limit {DEV3} 4; /usr/sbin/riak admin transfer-limit {DEV1} 8"
    )
    assert stage.cluster.describe(ProbeSettings()) == "/usr/sbin/riak admin transfer-limit NODE (as it is)"
    for key, value in (("ring_size", "64"), (f"transfer_limit.{DEV1}", "many")):
        change = SettingChange(level=Level.TRANSIENT, key=key, found="2", wanted=value)
        action = WriteSettings(changes=(change,), purpose=Purpose.RAISE_LIMITS)
        assert isinstance(stage.cluster.perform(action), Refused)
        assert stage.cluster.describe(action) == f"({key} is no setting of a node)"
    assert stage.cluster.perform(Flush()) == Refused(reason="Riak has no Flush")
    assert stage.cluster.describe(Flush()) == "(no verb of Riak: Flush)"
    assert not any("transfer-limit" in line for _, line in stage.runner.asked)


def test_a_probe_sets_one_limit_to_what_it_is(stage: Staged) -> None:
    stage.world.machines[DEV1].limit = 7
    assert stage.cluster.perform(ProbeSettings()) == Done()
    assert stage.runner.on("admin", "transfer-limit", DEV1, "7") == [DEV1]
    assert stage.world.machines[DEV1].limit == 7


def test_a_wait_ends_as_soon_as_a_node_in_hand_answers_again(stage: Staged) -> None:
    stage.cluster.observe({Look.CLUSTER})
    stage.world.stop(DEV3)
    stage.cluster.avoid({DEV3})
    assert stage.cluster.watch(NodesJoined(count=3), 0.3) is False
    back = threading.Timer(0.3, stage.world.start, [DEV3])
    back.start()
    began = time.monotonic()
    assert stage.cluster.watch(NodesJoined(count=3), 30) is True
    assert time.monotonic() - began < 20
    back.join()
    assert stage.cluster.watch(NodesJoined(count=3), 0.3) is False  # it answered all the time


def test_health_counts_members_up_and_reads_only_what_is_asked(
    stage: Staged,
) -> None:
    stage.cluster.observe({Look.CLUSTER})
    stage.world.stop(DEV3)
    readings = stage.cluster.observe({Look.HEALTH})
    assert not isinstance(readings.health, Unknown)
    assert readings.health.nodes == 2
    assert (readings.settings, readings.activity) == (NOT_READ, NOT_READ)
    readings = stage.cluster.observe({Look.ACTIVITY})
    assert not isinstance(readings.activity, Unknown)
    assert (readings.settings, readings.health) == (NOT_READ, NOT_READ)


def test_a_probe_is_refused_where_limits_are_not_known(stage: Staged) -> None:
    others = stage.world.ask(DEV1, "admin transfer-limit").replace(f"'{DEV1}'", "'dev9@127.0.0.1'")
    stage.runner.instead[DEV1, "admin transfer-limit"] = CommandOutput(exit=0, stdout=others)
    assert DEV1 in why(stage.cluster.perform(ProbeSettings())), "it does not tell its own"
    for silent in ("admin transfer-limit", "admin cluster status"):
        for node in NAMES:
            stage.runner.instead[node, silent] = NOT_ENDED
        assert isinstance(stage.cluster.perform(ProbeSettings()), Refused)
        assert isinstance(stage.cluster.observe({Look.SETTINGS}).settings, Unknown)
    assert [line for _, line in stage.runner.asked if line.startswith("admin transfer-limit ")] == []
    assert isinstance(stage.cluster.perform(write(dev1="8")), Refused), "nobody says who is up"
    assert limits_of(stage) == [2, 2, 2]


def test_a_watch_ends_when_the_cluster_is_closed(stage: Staged) -> None:
    stage.cluster.observe({Look.CLUSTER})
    closing = threading.Timer(0.2, stage.cluster.close)
    closing.start()
    began = time.monotonic()
    assert stage.cluster.watch(NodesJoined(count=3), 60) is False
    assert time.monotonic() - began < 40
    closing.join()


def test_what_riak_does_not_tell_is_unknown(stage: Staged) -> None:
    assert isinstance(stage.cluster.data_paths(), Unknown)
    assert isinstance(stage.cluster.resolve(["posts-*"]), Unknown)
    assert isinstance(stage.cluster.bulk(["uuid"]), Unknown)
