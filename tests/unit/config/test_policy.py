"""Cluster file, playbook and flags as one policy, of either kind of cluster."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.cluster import ClusterFile, check_cluster
from orchestrator.config.disabling import PredicateNames
from orchestrator.config.merging import MergeFlags
from orchestrator.config.playbook import Playbook, check_playbook
from orchestrator.config.policy import Overrides, build_policy, profile_wanted
from orchestrator.config.yaml import parse
from orchestrator.errors import ExitCode, UsageError
from orchestrator.model.policy import (
    ConfigurationManagement,
    Kind,
    Policy,
    RecoveryLimits,
)
from orchestrator.model.tuning import TuningProfile
from tests.fakes.cases import cases
from tests.fakes.plain import plain

PREDICATES = PredicateNames(
    known=("observation_is_fresh", "cluster_not_red", "disk_below_watermark"),
    always_on=("observation_is_fresh",),
)
RIAK = Policy(
    kind=Kind.RIAK,
    cluster="prod",
    playbook="b",
    recovery_limits=RecoveryLimits(
        node_initial_primaries_recoveries=None,
        node_concurrent_recoveries=None,
        max_bytes_per_sec=None,
        concurrent_streams=None,
    ),
    flush=False,
    rebalance_while_running=None,
    transfer_limit=8,
    zone_attribute="location",
)


def _cluster(text: str = "", kind: str = "elasticsearch") -> ClusterFile:
    head = f"kind: {kind}\nname: prod\nendpoints: ['http://localhost:9200']\n"
    return check_cluster(parse(head + text, "prod.yml"), path=Path("/etc/o/prod.yml"), home=Path("/home/op"))


def _playbook(text: str, kind: str = "elasticsearch") -> Playbook:
    return check_playbook(parse(f"kind: {kind}\n{text}\n", "b.yml"), path=Path("b.yml"), name="b")


def _policy(
    flags: Overrides | None = None,
    *,
    kind: str = "elasticsearch",
    cluster: str = "",
    playbook: str = "",
    nodes: int | None = 30,
    now: float = 100_000.0,
    tuning: TuningProfile | None = None,
) -> Policy:
    return build_policy(
        _cluster(cluster, kind),
        _playbook(playbook, kind),
        flags or Overrides(),
        predicates=PREDICATES,
        nodes=nodes,
        now=now,
        tuning=tuning,
    )


def _refused(flags: Overrides, **files: Any) -> str:
    with pytest.raises(UsageError) as caught:
        _policy(flags, **files)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


@pytest.mark.parametrize("name", ["only", "exclude", "disable_predicate"])
def test_a_text_where_several_belong_is_refused(name: str) -> None:
    """From Python: `"es*"` would be taken for three patterns, one of which means every node."""
    with pytest.raises(UsageError, match=name + r" is a tuple of texts: write " + name + r'=\("es\*",\)'):
        Overrides(**{name: "es*"})


def test_an_empty_playbook_means_the_defaults_of_the_model() -> None:
    assert _policy() == Policy(kind=Kind.ELASTICSEARCH, cluster="prod", playbook="b", overlap_recovery=True)
    assert _policy(kind="riak") == RIAK, "the transfer limit is all that is changed"


def test_what_a_playbook_and_flags_make_of_the_policy(subtests: pytest.Subtests) -> None:
    """What differs from that of an empty playbook. A case: kind, nodes and flags; cluster file; playbook."""
    for text, (expected,) in cases("config/read/policy.txt"):
        head, cluster, playbook = text.split("---\n")
        given = json.loads(head)
        kind, nodes = given.pop("kind", "elasticsearch"), given.pop("nodes", 30)
        with subtests.test(text):
            found = _policy(_flags(given), kind=kind, cluster=cluster, playbook=playbook, nodes=nodes)
            usual = _policy(kind=kind)
            names = (
                each.name for each in fields(Policy) if getattr(found, each.name) != getattr(usual, each.name)
            )
            changed = [f"{name}={plain(getattr(found, name))}" for name in names]
            assert "; ".join(changed) == expected


def test_disabled_management_is_a_pair_of_hooks() -> None:
    own = "hooks: {before_stop: [{run: depool}], after_recovery: [{run: pool}]}"
    policy = _policy(playbook=f"configuration_management: disable\nmanagement_units: [a.timer]\n{own}")
    assert policy.configuration_management is ConfigurationManagement.DISABLE
    first, disable = policy.hooks.before_stop
    enable, last = policy.hooks.after_recovery
    assert (first.run, last.run) == ("depool", "pool")
    assert "for unit in a.timer; do" in disable.run
    assert "agent --enable" in enable.run
    usual = _policy(playbook="configuration_management: disable").hooks.before_stop[0]
    assert "chef-client.timer" in usual.run


def test_wrong_flags_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for text, (message,) in cases("config/refused/flags.txt"):
        with subtests.test(text):
            assert _refused(_flags(json.loads(text))) == message


def _flags(given: dict[str, Any]) -> Overrides:
    taken = {key: _taken(value) for key, value in given.items()}
    return Overrides(**{**taken, "merge": MergeFlags(**taken["merge"]) if "merge" in taken else None})


def _taken(value: Any) -> Any:
    """As the command line gives it."""
    if isinstance(value, dict):
        return {key: _taken(each) for key, each in value.items()}
    return tuple(value) if isinstance(value, list) else value


def test_a_merge_of_riak_is_refused_by_name() -> None:
    """From Python too: the commands ask before there is a policy."""
    with pytest.raises(UsageError, match="prod is riak, which has no segments to merge"):
        _policy(Overrides(merge=MergeFlags(patterns=("posts-*",))), kind="riak")


def test_a_number_larger_than_the_cluster_is_refused(subtests: pytest.Subtests) -> None:
    """It would bound nothing. Before the cluster is read its size is not known, and is never taken as 1."""
    for flags, nodes, files, said in [
        ({"max_unavailable": "31"}, 30, {}, "--max-unavailable 31: the cluster has 30 nodes"),
        ({"max_unavailable": "2"}, 1, {}, "--max-unavailable 2: the cluster has 1 node"),
        ({"pause_after": 6}, 5, {"kind": "riak"}, "--pause-after 6: the cluster has 5 nodes"),
        ({"max_unavailable": "6"}, 5, {"kind": "riak"}, "--max-unavailable 6: the cluster has 5 nodes"),
        ({"max_unavailable": "30"}, 30, {}, ""),
        ({"max_unavailable": "100%"}, 3, {}, ""),
        ({"max_unavailable": "50", "pause_after": 50}, None, {}, ""),
        ({"max_unavailable": "3"}, 2, {"cluster": "expect: {nodes: 3}\n"}, ""),
        ({}, 3, {"playbook": "max_unavailable: 4"}, "b.yml: max_unavailable 4: the cluster has 3 nodes"),
        ({}, 1, {"playbook": "max_unavailable: 2"}, "b.yml: max_unavailable 2: the cluster has 1 node"),
        (
            {},
            5,
            {"playbook": "max_unavailable: 6", "kind": "riak"},
            "b.yml: max_unavailable 6: the cluster has 5 nodes",
        ),
        ({"max_unavailable": "2"}, 3, {"playbook": "max_unavailable: 4"}, ""),
        ({}, None, {"playbook": "max_unavailable: 4"}, ""),
        ({}, 3, {"playbook": "max_unavailable: 3"}, ""),
        ({}, 3, {"playbook": "max_unavailable: 100%"}, ""),
    ]:
        with subtests.test(flags=flags, nodes=nodes):
            if said:
                assert _refused(Overrides(**flags), nodes=nodes, **files) == said
            else:
                _policy(Overrides(**flags), nodes=nodes, **files)


def test_a_playbook_of_another_kind_is_refused() -> None:
    for kind, other in (("riak", "elasticsearch"), ("elasticsearch", "riak")):
        file, book, said = (
            _cluster(kind=kind),
            _playbook("", other),
            rf"is for {other} .*, and prod is {kind}",
        )
        with pytest.raises(UsageError, match=said):
            build_policy(file, book, Overrides(), predicates=PREDICATES, nodes=5, now=1e9)


def test_the_profile_is_the_playbooks_or_that_of_the_kind(subtests: pytest.Subtests) -> None:
    for book, flag, wanted in [
        ("", None, None),
        ("", True, "elasticsearch"),
        ("tune: mine", None, "mine"),
        ("tune: mine", True, "mine"),
        ("tune: mine", False, None),
    ]:
        with subtests.test(book=book, flag=flag, wanted=wanted):
            assert profile_wanted(_cluster(), _playbook(book), Overrides(tune=flag)) == wanted


def test_a_profile_for_another_store_is_refused() -> None:
    tuning = TuningProfile(name="ring", applies_to="riak", settings=())
    said = r"the tuning profile ring is for riak \(`applies_to`\), and prod is elasticsearch"
    with pytest.raises(UsageError, match=said):
        _policy(tuning=tuning)
    ours = TuningProfile(name="es", applies_to="elasticsearch", settings=())
    assert _policy(tuning=ours).tune == ours


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        ("hosts: {connect: local}\n", "hosts"),
        ("hosts: {overrides: {es7: {connect: local}}}\n", "overrides of es7"),
    ],
)
def test_a_reboot_of_the_machine_that_runs_this_is_refused(cluster: str, where: str) -> None:
    assert _refused(Overrides(reboot=True), cluster=cluster) == (
        f"--reboot: refused with `connect: local` ({where} in /etc/o/prod.yml): "
        "it would reboot the machine that this program runs on"
    )
    assert _policy(cluster=cluster).reboot is False
