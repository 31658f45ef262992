"""What a TAB offers, as bash asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.runs import RUN, ended_run


def tab(console: Console, line: str) -> list[str]:
    """What is offered at the end of the line."""
    words = line.split(" ")
    asked = {"_ORCHESTRATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    said = replace(console, environment={**console.environment, **asked}).run()
    assert (said.code, said.err) == (0, "")
    return said.out.split()


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
    assert tab(console, "orchestrate res") == ["restart", "resume", "restore"]
    assert tab(console, "orchestrate init --fing") == ["--fingerprint"]
    assert tab(console, "orchestrate init --kind ") == ["elasticsearch", "riak"]


def test_runs_are_offered_from_the_state(console: Console) -> None:
    ended_run(console)
    assert tab(console, "orchestrate resume ") == [RUN]
    assert tab(console, "orchestrate resume 2027") == []


def test_nodes_are_those_of_the_last_run(console: Console) -> None:
    ended_run(console)
    assert tab(console, "orchestrate restart --only ") == ["es1", "es2", "es3"]
    assert tab(console, "orchestrate resume --skip es2") == ["es2"]


def test_nodes_are_those_of_the_named_cluster(console: Console) -> None:
    ended_run(console, cluster="prod", nodes=2, at=1.0)
    ended_run(console, run="20261101-0400-abcd", at=2.0)
    for text in (
        "kind: elasticsearch\nname: prod  # ours\n",
        '{"kind": "elasticsearch",\n "name": "prod"\n}',
    ):
        (console.folder / "named.yml").write_text(text)
        assert tab(console, "orchestrate restart --cluster named.yml --only ") == ["es1", "es2"]
    (console.folder / "named.yml").write_text("kind: elasticsearch\nname: other\n")
    assert tab(console, "orchestrate restart --cluster named.yml --only ") == []


def test_the_state_that_is_named_is_looked_at(console: Console) -> None:
    ended_run(console)
    here = f"--state sqlite:///{console.state}"
    nowhere = replace(console, environment={"ORCHESTRATE_STATE": ""})
    assert tab(nowhere, "orchestrate resume ") == []
    assert tab(nowhere, f"orchestrate resume {here} ") == [RUN]
    assert tab(console, "orchestrate resume --state postgresql+psycopg://db/state ") == []


def test_explained_terms_are_offered_in_words_a_shell_takes(console: Console) -> None:
    assert "stand-down" in tab(console, "orchestrate explain ")
    assert tab(console, "orchestrate explain no_other_m") == ["no_other_maintenance"]


def test_rules_that_may_be_switched_off_are_offered(console: Console) -> None:
    offered = tab(console, "orchestrate restart --disable-predicate ")
    assert {"no_other_maintenance", "all_members_up"} <= set(offered), "of both kinds of cluster"
    assert "lease_is_held" not in offered


@pytest.mark.parametrize("place", [{"COMP_CWORD": "x"}, {"COMP_CWORD": ""}, {}])
def test_variables_that_cannot_be_read_offer_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: dict[str, str]
) -> None:
    words = {"_ORCHESTRATE_COMPLETE": "complete_bash", "COMP_WORDS": "orchestrate res", **place}
    monkeypatch.delenv("COMP_CWORD", raising=False)
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert run([]) == ExitCode.USAGE
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("line", ["resume ", "restart --only ", "restart --cluster nowhere --only "])
def test_without_readable_files_nothing_is_offered_or_printed(console: Console, line: str) -> None:
    console.state.write_text("no database")
    assert tab(console, f"orchestrate {line}") == []
    assert console.state.read_text() == "no database"


def test_an_option_given_twice_prints_nothing_at_a_tab(console: Console) -> None:
    ended_run(console)
    assert tab(console, "orchestrate status --output json --output json ") == [RUN]


def test_no_nodes_are_offered_for_a_cluster_that_is_unreadable(console: Console) -> None:
    ended_run(console)
    (console.folder / "binary.yml").write_bytes(bytes(range(256)))
    for file in ("./binary.yml", "./nowhere.yml", "./"):
        assert tab(console, f"orchestrate restart --cluster {file} --only ") == []
