"""Cluster file, playbook and flags as one policy, of either kind of cluster."""

from __future__ import annotations

import json
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
from orchestrator.model.cluster import Zone
from orchestrator.model.due import Due, DueFor
from orchestrator.model.merging import LoaderSettings, MergePolicy
from orchestrator.model.policy import (
    ConfigurationManagement,
    Deadlines,
    DisabledPredicate,
    Hook,
    Hooks,
    Kind,
    LeasePlace,
    Policy,
    RecoveryLimits,
    Selection,
    Strategy,
    Together,
    ZeroReplicas,
)
from orchestrator.model.tuning import TuningProfile
from tests.fakes.cases import cases

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
    nodes: int = 30,
    now: float = 1e9,
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


def _refused(flags: Overrides, **files: str) -> str:
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
    assert _policy(Overrides(merge=MergeFlags(patterns=("posts-*",)))).merge == MergePolicy(
        patterns=("posts-*",)
    )


def test_every_key_of_a_playbook_reaches_the_policy() -> None:
    policy = _policy(
        cluster="zone_attribute: rack\nexpect: {nodes: 30}\nhosts: {together: never}\n",
        playbook="""strategy: node
max_unavailable: 10%
min_started_copies: 2
min_capacity: 75%
overlap_recovery: true
master_step_down: true
accept: {red: [old], master_outage: true}
lease: state
allocation_while_down: none
zero_replica_indices: {accept: [logs-*]}
recovery_limits:
  node_initial_primaries_recoveries: 8
  node_concurrent_recoveries:
  max_bytes_per_sec: 1gb
  concurrent_streams: 1
flush: false
rebalance_while_running:
settle: {consecutive: 5}
deadlines: {stop: 1m, start: 2m, rejoin: 3m, recover: 4h, withheld: 5m, hold: 6m, gate: 7m, reboot: 8m}
on_failure: stand_down
hooks:
  before_stop: [{run: "depool {node}"}]
  while_stopped: [{run: a, local: true}, {run: b, timeout: 5s}]
  after_recovery: [{run: "pool {node}"}]
""",
    )
    assert policy == Policy(
        kind=Kind.ELASTICSEARCH,
        cluster="prod",
        playbook="b",
        strategy=Strategy.NODE,
        max_unavailable=3,
        min_started_copies=2,
        min_capacity=0.75,
        overlap_recovery=True,
        master_step_down=True,
        accept_red=frozenset({"old"}),
        accept_master_outage=True,
        lease=LeasePlace.STATE,
        allocation_while_down="none",
        zero_replicas=ZeroReplicas.ACCEPT,
        zero_replicas_accepted=("logs-*",),
        recovery_limits=RecoveryLimits(
            node_initial_primaries_recoveries=8,
            node_concurrent_recoveries=None,
            max_bytes_per_sec=2**30,
            concurrent_streams=1,
        ),
        flush=False,
        rebalance_while_running=None,
        settle_consecutive=5,
        deadlines=Deadlines(
            stop=60, start=120, rejoin=180, recover=14_400, withheld=300, hold=360, gate=420, reboot=480
        ),
        hooks=Hooks(
            before_stop=(Hook(run="depool {node}"),),
            while_stopped=(Hook(run="a", local=True), Hook(run="b", timeout=5)),
            after_recovery=(Hook(run="pool {node}"),),
        ),
        zone_attribute="rack",
        expect_nodes=30,
        together=Together.NEVER,
    )


def test_every_key_of_a_riak_playbook_reaches_the_policy() -> None:
    policy = _policy(
        kind="riak",
        nodes=5,
        playbook="""strategy: zone
max_unavailable: 40%
lease: state
transfer_limit:
settle: {consecutive: 5}
deadlines: {stop: 1m, start: 2m, rejoin: 3m, recover: 4h, hold: 6m, gate: 7m, reboot: 8m}
on_failure: stand_down
hooks:
  before_stop: [{run: "depool {node}"}]
""",
    )
    assert policy == Policy(
        kind=Kind.RIAK,
        cluster="prod",
        playbook="b",
        strategy=Strategy.ZONE,
        max_unavailable=2,
        lease=LeasePlace.STATE,
        recovery_limits=RIAK.recovery_limits,
        flush=False,
        rebalance_while_running=None,
        transfer_limit=None,
        settle_consecutive=5,
        deadlines=Deadlines(stop=60, start=120, rejoin=180, recover=14_400, hold=360, gate=420, reboot=480),
        hooks=Hooks(before_stop=(Hook(run="depool {node}"),)),
        zone_attribute="location",
    )
    assert _policy(kind="riak", playbook="transfer_limit: 4\n").transfer_limit == 4


def test_every_flag_wins_over_the_playbook() -> None:
    flags = Overrides(
        strategy="node",
        max_unavailable="20%",
        only=("es*",),
        exclude=("es7",),
        zone="a",
        started_before="1d",
        due=("reboot-required", "config", "version:9.1.0", "config"),
        tune=False,
        reboot=True,
        pause_after=1,
        begin_anyway=True,
        disable_predicate=("cluster_not_red", "disk_below_watermark=node es1"),
        reason="patch day",
        timeout="12h",
    )
    playbook = "max_unavailable: 1\nconfig_files: [/etc/a]\n"
    policy = _policy(flags, playbook=playbook, nodes=19, now=100_000.0)
    assert policy.max_unavailable == 3
    assert policy.selection == Selection(
        only=("es*",),
        exclude=("es7",),
        zone=Zone("a"),
        started_before=13_600.0,
        due=(
            Due(reason=DueFor.REBOOT),
            Due(reason=DueFor.CONFIG, files=("/etc/a",)),
            Due(reason=DueFor.VERSION, version="9.1.0"),
        ),
    )
    assert (policy.reboot, policy.pause_after) == (True, 1)
    assert (policy.reason, policy.timeout) == ("patch day", 43_200.0)
    assert (policy.begin_anyway, _policy().begin_anyway) == (True, False)
    assert policy.disabled_predicates == (
        DisabledPredicate(name="cluster_not_red"),
        DisabledPredicate(name="disk_below_watermark", subject="node es1"),
    )


def test_force_merge_of_a_playbook_and_the_flags() -> None:
    whole = """force_merge:
  max_segments: 3
  at_once: 4
  per_node: 2
  deadline: 2h
  put_right: {number_of_replicas: 2, refresh_interval: 30s, translog_durability: request}
"""
    assert _policy(playbook=whole).merge is None, "nothing is merged without the flags"
    flags = Overrides(merge=MergeFlags(patterns=("a",)))
    assert _policy(flags, playbook=whole).merge == MergePolicy(
        patterns=("a",),
        max_segments=3,
        at_once=4,
        per_node=2,
        deadline=7200,
        put_right=LoaderSettings(number_of_replicas=2, refresh_interval="30s", translog_durability="request"),
    )
    more = Overrides(merge=MergeFlags(patterns=("a,b", "b", " c"), max_segments=1, allow_writes=True))
    merge = _policy(more, playbook=whole).merge
    assert merge is not None
    assert (merge.patterns, merge.max_segments, merge.allow_writes) == (("a", "b", "c"), 1, True)
    merge = _policy(flags, playbook="force_merge: {put_right: {refresh_interval: ''}}\n").merge
    assert merge is not None
    assert merge.put_right == LoaderSettings(refresh_interval=""), "it can be taken away"


@pytest.mark.parametrize(
    ("said", "restart", "upgrade"), [("", True, False), ("true", True, True), ("false", False, False)]
)
def test_an_upgrade_waits_for_each_wave_unless_told(said: str, *, restart: bool, upgrade: bool) -> None:
    install = 'upgrade: {install: [{run: "apt-get install -y -q elasticsearch={version}"}]}\n'
    playbook = install + (f"overlap_recovery: {said}\n" if said else "")
    assert _policy(playbook=playbook).overlap_recovery is restart
    assert _policy(Overrides(to="9.2.0"), playbook=playbook).overlap_recovery is upgrade


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


def test_max_unavailable_of_nodes_zones_and_reboots(subtests: pytest.Subtests) -> None:
    for flags, playbook, nodes, budget in [
        ({}, "", 30, 1),
        ({"strategy": "node"}, "strategy: zone\n", 30, 1),
        # A zone has no bound of its own unless one is given.
        ({"strategy": "zone"}, "", 30, None),
        ({}, "strategy: zone\n", 30, None),
        ({}, "strategy: zone\nmax_unavailable: 3\n", 30, 3),
        ({}, "strategy: zone\nmax_unavailable: 10%\n", 19, 1),
        ({"max_unavailable": "20%"}, "strategy: zone\nmax_unavailable: 3\n", 30, 6),
        ({"max_unavailable": "1%"}, "strategy: zone\n", 30, 1),
        ({"strategy": "zone", "max_unavailable": "2"}, "", 30, 2),
        ({"strategy": "shard-safe"}, "", 30, None),
        ({"strategy": "shard-safe", "max_unavailable": "3"}, "", 30, 3),
        # Nodes of one machine go together on a reboot: it is one machine then, whatever its nodes.
        ({"reboot": True}, "", 30, None),
        ({"reboot": True, "max_unavailable": "1"}, "", 30, 1),
        ({"reboot": True}, "max_unavailable: 2\n", 30, 2),
    ]:
        for kind in ("elasticsearch", "riak"):
            with subtests.test(kind=kind, flags=flags, playbook=playbook, nodes=nodes, budget=budget):
                policy = _policy(Overrides(**flags), kind=kind, playbook=playbook, nodes=nodes)
                assert policy.max_unavailable == budget
    assert _policy(Overrides(strategy="shard-safe")).strategy is Strategy.SHARD_SAFE


@pytest.mark.parametrize(
    ("reboot", "playbook", "seconds"),
    [(False, "", 1800), (True, "", 3600), (True, "deadlines: {withheld: 30m}\n", 1800)],
)
def test_allocation_may_be_off_longer_for_a_reboot(*, reboot: bool, playbook: str, seconds: float) -> None:
    assert _policy(Overrides(reboot=reboot), playbook=playbook).deadlines.withheld == seconds


@pytest.mark.parametrize("wanted", [ZeroReplicas.REFUSE, ZeroReplicas.ADD_REPLICA])
def test_policies_for_indices_without_replicas(wanted: ZeroReplicas) -> None:
    policy = _policy(playbook=f"zero_replica_indices: {wanted.value}\n")
    assert (policy.zero_replicas, policy.zero_replicas_accepted) == (wanted, ())


def test_wrong_flags_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for text, (message,) in cases("config/refused/flags.txt"):
        given = {key: _taken(value) for key, value in json.loads(text).items()}
        merge = MergeFlags(**given.pop("merge")) if "merge" in given else None
        with subtests.test(text):
            assert _refused(Overrides(**given, merge=merge)) == message


def _taken(value: Any) -> Any:
    """As the command line gives it."""
    if isinstance(value, dict):
        return {key: _taken(each) for key, each in value.items()}
    return tuple(value) if isinstance(value, list) else value


def test_a_merge_of_riak_is_refused_by_name() -> None:
    assert _refused(Overrides(merge=MergeFlags(patterns=("posts-*",))), kind="riak") == (
        "prod is riak, which has no segments to merge: post-bulk-index and force-merge are for "
        "elasticsearch; `orchestrate restart` restarts its nodes"
    )


def test_a_playbook_of_another_kind_is_refused() -> None:
    for kind, other in (("riak", "elasticsearch"), ("elasticsearch", "riak")):
        with pytest.raises(UsageError) as caught:
            build_policy(
                _cluster(kind=kind),
                _playbook("", other),
                Overrides(),
                predicates=PREDICATES,
                nodes=5,
                now=1e9,
            )
        assert str(caught.value) == (
            f"the playbook b is for {other} (`kind`), and prod is {kind}: name another one in "
            "/etc/o/prod.yml (`playbook`) or with --playbook"
        )


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
