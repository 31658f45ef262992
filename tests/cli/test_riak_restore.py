"""`restore` of a Riak cluster on which no run has left a record: what can be seen of it is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.errors import ExitCode
from orchestrator.model.observation import Look
from orchestrator.model.policy import LeasePlace
from orchestrator.riak.output import CommandOutput
from orchestrator.runs.unfinished import limits_without_record
from tests.cli.console import Console
from tests.riak_nodes import RIAK_COMMANDS, name_of
from tests.unit.clusters.riak_cluster import DEV1, DEV2, NAMES, Staged, staged

WHERE = "state file /home/ann/state.db"


@pytest.fixture(params=RIAK_COMMANDS, ids=name_of)
def stage(request: pytest.FixtureRequest) -> Iterator[Staged]:
    with staged(request.param) as each:
        each.cluster.observe({Look.CLUSTER})
        yield each


def restored(
    stage: Staged,
    console: Console,
    capsys: pytest.CaptureFixture[str],
    place: LeasePlace = LeasePlace.CLUSTER,
) -> tuple[int, str]:
    """Exit code and message."""
    path = console.folder / "ring.yml"
    path.write_text("kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n")
    context = context_of(Output.JSON)
    ports = context.ports(context.cluster(str(path)))
    ports.cluster = stage.cluster
    code = context.ended(limits_without_record(context.connect(ports, None), WHERE, place))
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["exit_code"] == code
    return code, last["message"]


def test_limits_are_listed_and_count_as_unrestored(
    stage: Staged, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.world.machines[DEV2].limit = 8
    code, said = restored(stage, console, capsys)
    assert code == ExitCode.DONE
    assert "nothing to restore" not in said
    assert said.startswith("no run has left a record on the hosts of ring. Transfer limits are now:")
    assert said.endswith(f"now: {NAMES[0]} 2, {NAMES[1]} 8, {NAMES[2]} 2")


def test_without_a_lease_on_the_hosts_the_other_state_is_named(
    stage: Staged, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = restored(stage, console, capsys, LeasePlace.STATE)
    assert code == ExitCode.DONE
    assert said.startswith(f"{WHERE} has no run with unrestored changes on ring")
    assert "with its own state file (--state)" in said


def test_a_node_that_is_down_is_named_and_is_a_failure(
    stage: Staged, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.world.stop(DEV2)
    code, said = restored(stage, console, capsys)
    assert code == ExitCode.FAILED
    assert f"Down: {DEV2};" in said
    assert DEV1 not in said.partition("Down: ")[2]


@pytest.mark.parametrize("command", ["cluster status", "transfer-limit"])
def test_what_cannot_be_read_is_not_put_back(
    stage: Staged, console: Console, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for node in NAMES:
        stage.runner.instead[node, f"admin {command}"] = CommandOutput(exit=None, stdout="")
    code, said = restored(stage, console, capsys)
    assert code == ExitCode.NOT_RESTORED
    assert "cannot be read" in said
