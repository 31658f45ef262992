"""Files of kind riak at the command line: what is wrong with them is told before anything is asked."""

from __future__ import annotations

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console

# Nothing listens there: a message about something else shows that that was looked at first.
RIAK = "kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n"
ELASTICSEARCH = RIAK.replace("kind: riak", "kind: elasticsearch")


def _refused(console: Console, capsys: pytest.CaptureFixture[str], cluster: str, *words: str) -> str:
    """The one message on standard error, without the folder; nothing was written."""
    path = console.folder / "ring.yml"
    path.write_text(cluster)
    before = sorted(console.folder.rglob("*"))
    assert run([*words, "--cluster", str(path)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert sorted(console.folder.rglob("*")) == before
    assert not console.state.exists()
    assert said.err.startswith("orchestrate: ")
    return said.err.removeprefix("orchestrate: ").replace(f"{console.folder}/", "")


@pytest.mark.parametrize("command", ["restart", "plan", "validate", "diagnose"])
def test_a_key_of_elasticsearch_is_told_by_every_command(
    console: Console, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    said = _refused(console, capsys, RIAK + "zone_attribute: rack\n", command)
    assert said == (
        "ring.yml:4: zone_attribute: not for `kind: riak`: its zones are the locations of its members\n"
    )


@pytest.mark.parametrize(("kind", "other"), [("riak", "elasticsearch"), ("elasticsearch", "riak")])
@pytest.mark.parametrize("command", ["plan", "validate"])
def test_a_shipped_playbook_of_another_kind_is_refused(
    console: Console, capsys: pytest.CaptureFixture[str], command: str, kind: str, other: str
) -> None:
    playbook = f"{other}-rolling-restart"
    cluster = RIAK if kind == "riak" else ELASTICSEARCH
    assert _refused(console, capsys, cluster, command, "--playbook", playbook) == (
        f"the playbook {playbook} is for {other} (`kind`), and ring is {kind}: name another one in ring.yml "
        "(`playbook`) or with --playbook\n"
    )


@pytest.mark.parametrize(
    ("cluster", "profile", "message"),
    [
        (RIAK, "elasticsearch", "is for elasticsearch (`applies_to`), and ring is riak\n"),
        (ELASTICSEARCH, "riak", "is for riak (`applies_to`), and ring is elasticsearch\n"),
    ],
)
def test_a_tuning_profile_of_another_kind_is_refused(
    console: Console, capsys: pytest.CaptureFixture[str], cluster: str, profile: str, message: str
) -> None:
    said = _refused(console, capsys, cluster, "tune", "check", "--profile", profile)
    assert said == f"the tuning profile {profile} {message}"


@pytest.mark.parametrize(
    "command", [["post-bulk-index"], ["post-bulk-index", "--no-restart"], ["force-merge"]]
)
def test_a_merge_is_refused_on_riak(
    console: Console, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert _refused(console, capsys, RIAK, *command, "--index", "posts-*", "--yes") == (
        "ring is riak, which has no segments to merge: post-bulk-index and force-merge are for "
        "elasticsearch; `orchestrate restart` restarts its nodes\n"
    )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (
            "cluster_not_red",
            (
                "this is a predicate of elasticsearch clusters, and this cluster is of another kind; "
                "leave it out\n"
            ),
        ),
        ("nothing_of_the_kind", "there is no such predicate; known: observation_is_fresh, "),
        (
            "preference_lists_keep_quorm",
            "there is no such predicate; did you mean `preference_lists_keep_quorum`?\n",
        ),
        ("lease_is_held", "this one cannot be switched off\n"),
    ],
)
def test_only_predicates_of_riak_can_be_disabled(
    console: Console, capsys: pytest.CaptureFixture[str], flag: str, message: str
) -> None:
    said = _refused(console, capsys, RIAK, "plan", "--disable-predicate", flag)
    assert said.startswith(f"--disable-predicate {flag}: {message}")
    assert "every_shard_keeps_started_copies" not in said
    assert said.count("\n") == 1
