"""What a TAB offers, as bash asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.runs import entry
from tests.simulation import play

RUN = "20261101-0300-abcd"


def tab(console: Console, line: str) -> list[str]:
    """What is offered at the end of the line."""
    words = line.split(" ")
    asked = {"_ORCHESTRATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    said = replace(console, environment={**console.environment, **asked}).run()
    assert (said.code, said.err) == (0, "")
    return said.out.split()


def a_run(console: Console, cluster: str = "lab") -> None:
    """One that is over, in the state."""
    world = play.cluster(3)
    world.name = cluster
    simulation, _ = play.run(world, wanted=play.policy(cluster=cluster))
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    events = [record.event for record in simulation.journal.records]
    store.create_run(replace(entry(RUN, "boot/1/2/3"), cluster=cluster)).append(events, 1.0)
    store.close()


@pytest.fixture
def configured(console: Console) -> Console:
    """Two clusters and a playbook of the operator's."""
    for name in ("clusters/prod.yml", "clusters/staging.yml", "playbooks/careful.yml"):
        file = console.folder / "configs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("kind: elasticsearch\n")
    return console


def test_files_are_offered_by_name_and_shipped_ones_too(configured: Console) -> None:
    assert tab(configured, "orchestrate restart --cluster ") == ["prod", "staging"]
    assert tab(configured, "orchestrate status --cluster st") == ["staging"]
    playbooks = tab(configured, "orchestrate restart --playbook ")
    assert "careful" in playbooks
    assert len(playbooks) > 1
    assert "elasticsearch" in tab(configured, "orchestrate tune apply --profile ")


def test_options_and_kinds_of_a_new_file_are_offered(console: Console) -> None:
    assert tab(console, "orchestrate ini") == ["init"]
    assert tab(console, "orchestrate init --fing") == ["--fingerprint"]
    assert tab(console, "orchestrate init --kind ") == ["elasticsearch", "riak"]


def test_runs_are_offered_from_the_state(console: Console) -> None:
    a_run(console)
    assert tab(console, "orchestrate resume ") == [RUN]
    assert tab(console, "orchestrate resume 2027") == []


def test_nodes_are_those_of_the_last_run(console: Console) -> None:
    a_run(console)
    assert tab(console, "orchestrate restart --only ") == ["es1", "es2", "es3"]
    assert tab(console, "orchestrate resume --skip es2") == ["es2"]


def test_rules_that_may_be_switched_off_are_offered(console: Console) -> None:
    offered = tab(console, "orchestrate restart --disable-predicate ")
    assert {"no_other_maintenance", "all_members_up"} <= set(offered), "of both kinds of cluster"
    assert "lease_is_held" not in offered


@pytest.mark.parametrize("line", ["resume ", "restart --only ", "restart --cluster nowhere --only "])
def test_where_nothing_can_be_read_nothing_is_offered_and_nothing_said(console: Console, line: str) -> None:
    console.state.write_text("no database")
    assert tab(console, f"orchestrate {line}") == []
    assert console.state.read_text() == "no database"
