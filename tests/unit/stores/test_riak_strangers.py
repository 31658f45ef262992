"""Who answers where a node is looked for: another cluster, another node, another machine's process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.model.action import InDoubt, ProbeSettings, Purpose, Refused, SettingChange, WriteSettings
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.observation import ClusterView, Level, Look
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.stores.riak.output import CommandOutput
from tests.doubles.riak_double.stats import stats
from tests.fakes.riak_world import World
from tests.fakes.scripted_http import reply
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of
from tests.unit.stores.riak_cluster import BOOT, DEV1, DEV2, DEV3, NAMES, Staged, staged

EVERYTHING = frozenset({Look.CLUSTER, Look.HEALTH, Look.ACTIVITY, Look.SETTINGS})
OTHERS = tuple(NodeName(f"test{number}@127.0.0.1") for number in (1, 2, 3))


@pytest.fixture(params=RIAK_COMMANDS, ids=name_of)
def stage(request: pytest.FixtureRequest) -> Iterator[Staged]:
    with staged(request.param) as each:
        yield each


def _answers(stage: Staged, port: NodeName, page: dict[str, object]) -> None:
    stage.ports[port].on("/stats", reply(json.dumps(page).encode(), headers={"Connection": "close"}))


def _shown(name: str) -> CommandOutput:
    border = f"+{'-' * (len(name) + 2)}+--------------+"
    rows = (
        border,
        f"| {'node'.center(len(name))} |transfer_limit|",
        border,
        f"| {name} |      2       |",
        border,
    )
    return CommandOutput(exit=0, stdout="\n".join((*rows, "", "ok", "")))


def _lives(stage: Staged) -> tuple[dict[NodeName, str | None], dict[NodeName, str]]:
    view = stage.cluster.observe({Look.CLUSTER}).cluster
    assert isinstance(view, ClusterView)
    assert view.riak is not None
    return {node.name: node.incarnation.ephemeral_id for node in view.nodes}, dict(view.riak.unidentified)


def test_endpoints_of_two_clusters_are_no_cluster(stage: Staged) -> None:
    other = World(names=OTHERS)
    other.run(60)
    _answers(stage, DEV2, stats(other.view(OTHERS[0])))
    readings = stage.cluster.observe(EVERYTHING)
    for reading in (readings.cluster, readings.settings, readings.health, readings.activity):
        assert isinstance(reading, Unknown)
        assert DEV1 in reading.reason
        assert OTHERS[0] in reading.reason
    assert stage.runner.asked == []
    assert isinstance(stage.cluster.perform(ProbeSettings()), Refused)


def test_a_node_that_has_left_is_no_endpoint_of_its_cluster(stage: Staged) -> None:
    """It has a ring of its own, and the others have one without it."""
    page = stats(stage.world.view(DEV3))
    alone = {"ring_members": [DEV3], "ring_ownership": f"[{{'{DEV3}',16}}]"}
    _answers(stage, DEV3, {**page, **alone})
    assert isinstance(stage.cluster.observe({Look.CLUSTER}).cluster, Unknown)


def test_a_page_of_a_node_that_is_no_member_is_none(stage: Staged) -> None:
    for port in NAMES:
        _answers(stage, port, {**stats(stage.world.view(DEV1)), "nodename": OTHERS[0]})
    assert isinstance(stage.cluster.observe({Look.CLUSTER}).cluster, Unknown)


def test_nothing_is_read_or_set_where_no_endpoint_answers(stage: Staged) -> None:
    for node in NAMES:
        stage.world.stop(node)
    readings = stage.cluster.observe(EVERYTHING)
    for reading in (readings.cluster, readings.settings, readings.health, readings.activity):
        assert isinstance(reading, Unknown)
    assert stage.cluster.observe({Look.HEALTH}).activity is NOT_READ
    assert stage.cluster.observe({Look.ACTIVITY}).health is NOT_READ
    assert isinstance(stage.cluster.perform(ProbeSettings()), Refused)
    assert stage.cluster.describe(ProbeSettings()).startswith("(not known: ")


def test_a_machine_on_which_another_node_answers_has_no_life(stage: Staged) -> None:
    """As with two addresses of `hosts.nodes` that changed places: the other node would be stopped."""
    stage.runner.instead[DEV2, "admin show transfer_limit"] = _shown(DEV3)
    lives, unidentified = _lives(stage)
    assert lives == {DEV1: f"{BOOT} 100 1000", DEV2: None, DEV3: f"{BOOT} 102 1000"}
    assert unidentified == {
        DEV2: f"on the machine of {DEV2} (127.0.0.1) {DEV3} answers: correct `hosts.nodes` or "
        "`hosts.overrides` in the cluster file"
    }


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_a_machine_that_does_not_say_who_answers_has_no_life(
    subtests: pytest.Subtests, command: RiakCommand
) -> None:
    for output in [
        CommandOutput(exit=None, stdout=""),
        CommandOutput(exit=0, stdout=""),
        CommandOutput(exit=0, stdout="ok\n"),
        replace(_shown(DEV2), exit=1),
        CommandOutput(exit=0, stdout=_shown(DEV2).stdout.replace("ok\n", "")),
        CommandOutput(exit=0, stdout=f"Last login: today\n{_shown(DEV2).stdout}"),
        Unknown(reason="no route to host"),
    ]:
        with subtests.test(output=output), staged(command) as stage:
            stage.runner.instead[DEV2, "admin show transfer_limit"] = output
            lives, unidentified = _lives(stage)
            assert lives[DEV2] is None
            assert list(unidentified) == [DEV2]
            assert "answers: correct" not in unidentified[DEV2], "nobody said that it is another one"
            del stage.runner.instead[DEV2, "admin show transfer_limit"]
            assert _lives(stage) == ({name: f"{BOOT} {100 + at} 1000" for at, name in enumerate(NAMES)}, {})


def test_a_node_that_has_said_its_name_is_not_asked_again(stage: Staged) -> None:
    stage.cluster.observe({Look.CLUSTER})
    stage.cluster.observe({Look.CLUSTER})
    assert sorted(stage.runner.on("admin", "show", "transfer_limit")) == list(NAMES)


@pytest.mark.parametrize(
    "said",
    [
        f"Set transfer limit for '{DEV3}' to 8",
        f"Set transfer limit for '{DEV2}' to 2",
        "Setting transfer limit to 8 across the cluster",
        'transfer_limit set to "8"',
    ],
)
def test_a_limit_that_was_set_differently_is_in_doubt(stage: Staged, said: str) -> None:
    stage.runner.instead[DEV1, f"admin transfer-limit {DEV2} 8"] = CommandOutput(
        exit=0, stdout=f"{said}\nok\n"
    )
    change = SettingChange(level=Level.TRANSIENT, key=f"transfer_limit.{DEV2}", found="2", wanted="8")
    done = stage.cluster.perform(WriteSettings(changes=(change,), purpose=Purpose.RAISE_LIMITS))
    assert isinstance(done, InDoubt)
    assert DEV2 in done.reason


def test_no_life_is_no_other_life() -> None:
    assert not Incarnation().differs_from(Incarnation(ephemeral_id=f"{BOOT} 100 1000"))
