# ruff: noqa: E501  (the table of flags is read by its rows: a flag and its message in one line each)
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.cluster import ClusterFile, check_cluster
from orchestrator.config.disabling import PredicateNames
from orchestrator.config.playbook import check_playbook
from orchestrator.config.policy import Overrides, build_policy, profile_wanted
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.model.cluster import Zone
from orchestrator.model.due import Due, DueFor
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

HEAD = "kind: elasticsearch\nname: prod\nendpoints: ['http://localhost:9200']\n"
PREDICATES = PredicateNames(
    known=("observation_is_fresh", "cluster_not_red", "disk_below_watermark"),
    always_on=("observation_is_fresh",),
)


def _policy(
    flags: Overrides | None = None,
    *,
    cluster: str = "",
    playbook: str = "",
    nodes: int = 30,
    now: float = 1e9,
    tuning: TuningProfile | None = None,
) -> Policy:
    return build_policy(
        _cluster(cluster),
        check_playbook(parse("kind: elasticsearch\n" + playbook, "b.yml"), path=Path("b.yml"), name="b"),
        flags or Overrides(),
        predicates=PREDICATES,
        nodes=nodes,
        now=now,
        tuning=tuning,
    )


def _cluster(text: str = "") -> ClusterFile:
    return check_cluster(parse(HEAD + text, "prod.yml"), path=Path("prod.yml"), home=Path("/home/op"))


@pytest.mark.parametrize("name", ["only", "exclude", "disable_predicate"])
def test_a_text_where_several_belong_is_refused(name: str) -> None:
    """From Python: `"es*"` would be taken for three patterns, one of which means every node."""
    with pytest.raises(UsageError, match=name + r" is a tuple of texts: write " + name + r'=\("es\*",\)'):
        Overrides(**{name: "es*"})  # type: ignore[arg-type]  # as a caller without a type checker may


def test_an_empty_playbook_means_the_defaults_of_the_model() -> None:
    assert _policy() == Policy(kind=Kind.ELASTICSEARCH, cluster="prod", playbook="b", overlap_recovery=True)


@pytest.mark.parametrize(
    ("said", "restart", "upgrade"), [("", True, False), ("true", True, True), ("false", False, False)]
)
def test_an_upgrade_waits_for_each_wave_unless_told(said: str, *, restart: bool, upgrade: bool) -> None:
    install = 'upgrade: {install: [{run: "apt-get install -y -q elasticsearch={version}"}]}\n'
    playbook = install + (f"overlap_recovery: {said}\n" if said else "")
    assert _policy(playbook=playbook).overlap_recovery is restart
    assert _policy(Overrides(to="9.2.0"), playbook=playbook).overlap_recovery is upgrade


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


def test_disabled_management_is_a_pair_of_hooks() -> None:
    own = "hooks: {before_stop: [{run: depool}], after_recovery: [{run: pool}]}"
    policy = _policy(playbook=f"configuration_management: disable\nmanagement_units: [a.timer]\n{own}")
    assert policy.configuration_management is ConfigurationManagement.DISABLE
    first, disable = policy.hooks.before_stop
    enable, last = policy.hooks.after_recovery
    assert (first.run, last.run) == ("depool", "pool")
    assert "for unit in a.timer; do" in disable.run
    assert "agent --enable" in enable.run
    assert (
        "chef-client.timer" in _policy(playbook="configuration_management: disable").hooks.before_stop[0].run
    )
    for name in ("--now", "chef-client", "a.timer; reboot"):
        with pytest.raises(ConfigError, match=r"management_units\[0\]: is not the whole name of a unit"):
            _policy(playbook=f"configuration_management: disable\nmanagement_units: ['{name}']")


def test_a_zone_has_no_bound_of_its_own_unless_one_is_given(subtests: pytest.Subtests) -> None:
    for flags, playbook, nodes, budget in [
        ({}, "", 30, 1),
        ({"strategy": "node"}, "strategy: zone\n", 30, 1),
        ({"strategy": "zone"}, "", 30, None),
        ({}, "strategy: zone\n", 30, None),
        ({}, "strategy: zone\nmax_unavailable: 3\n", 30, 3),
        ({}, "strategy: zone\nmax_unavailable: 10%\n", 19, 1),
        ({"max_unavailable": "20%"}, "strategy: zone\nmax_unavailable: 3\n", 30, 6),
        ({"max_unavailable": "1%"}, "strategy: zone\n", 30, 1),
        ({"strategy": "zone", "max_unavailable": "2"}, "", 30, 2),
        # Nodes of one machine go together on a reboot: it is one machine then, whatever its nodes.
        ({"reboot": True}, "", 30, None),
        ({"reboot": True, "max_unavailable": "1"}, "", 30, 1),
        ({"reboot": True}, "max_unavailable: 2\n", 30, 2),
    ]:
        with subtests.test(flags=flags, playbook=playbook, nodes=nodes, budget=budget):
            assert _policy(Overrides(**flags), playbook=playbook, nodes=nodes).max_unavailable == budget


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
    assert (policy.reboot, policy.pause_after, policy.reason, policy.timeout) == (
        True,
        1,
        "patch day",
        43_200.0,
    )
    assert policy.begin_anyway
    assert not _policy(Overrides()).begin_anyway
    assert policy.disabled_predicates == (
        DisabledPredicate(name="cluster_not_red"),
        DisabledPredicate(name="disk_below_watermark", subject="node es1"),
    )


@pytest.mark.parametrize(
    ("reboot", "playbook", "seconds"),
    [(False, "", 1800), (True, "", 3600), (True, "deadlines: {withheld: 30m}\n", 1800)],
)
def test_allocation_may_be_off_longer_for_a_reboot(*, reboot: bool, playbook: str, seconds: float) -> None:
    assert _policy(Overrides(reboot=reboot), playbook=playbook).deadlines.withheld == seconds


@pytest.mark.parametrize(
    ("written", "wanted"), [("refuse", ZeroReplicas.REFUSE), ("add_replica", ZeroReplicas.ADD_REPLICA)]
)
def test_policies_for_indices_without_replicas(written: str, wanted: ZeroReplicas) -> None:
    policy = _policy(playbook=f"zero_replica_indices: {written}\n")
    assert (policy.zero_replicas, policy.zero_replicas_accepted) == (wanted, ())


def test_wrong_flags_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for flags, message in [
        ({"strategy": "nod"}, "--strategy nod: unknown; did you mean `node`?"),
        (
            {"max_unavailable": "0"},
            "--max-unavailable 0: must be a whole number of at least 1, or a percentage such as 10%",
        ),
        (
            {"max_unavailable": "x"},
            "--max-unavailable x: must be a whole number of at least 1, or a percentage such as 10%",
        ),
        ({"only": ("",)}, "--only: the name of a node, or a glob, is needed"),
        ({"exclude": (" ",)}, "--exclude: the name of a node, or a glob, is needed"),
        ({"zone": ""}, "--zone: the name of a zone is needed"),
        ({"exclude": ("*",)}, "--exclude '*': leaves no node to restart"),
        ({"only": ("es1", "es2"), "exclude": ("es2",)}, "--only es2 and --exclude es2 contradict each other"),
        ({"only": ("es1",), "exclude": ("es*",)}, "--only es1 and --exclude es* contradict each other"),
        ({"only": ("es*",), "exclude": ("es*",)}, "--only es* and --exclude es* contradict each other"),
        (
            {"started_before": "2026-11-01"},
            "--started-before 2026-11-01: must be a time with its offset, such as 2026-11-01T00:00Z, or an age, such as 30d",
        ),
        ({"pause_after": 0}, "--pause-after 0: must be at least 1"),
        ({"timeout": "10"}, "--timeout 10: must be a duration with its unit, such as 90s, 10m, 8h or 30d"),
        ({"reason": "x" * 1001}, "--reason: must have at most 1000 characters"),
        (
            {"disable_predicate": ("cluster_not_rde",)},
            "--disable-predicate cluster_not_rde: there is no such predicate; did you mean `cluster_not_red`?",
        ),
        (
            {"disable_predicate": ("observation_is_fresh",)},
            "--disable-predicate observation_is_fresh: this one cannot be switched off",
        ),
        (
            {"disable_predicate": ("cluster_not_red=",)},
            "--disable-predicate cluster_not_red=: name the subject after the `=`, or leave the `=` out",
        ),
    ]:
        with subtests.test(flags=flags, message=message):
            with pytest.raises(UsageError) as caught:
                _policy(Overrides(**flags))
            assert str(caught.value) == message
            assert caught.value.exit_code is ExitCode.USAGE


def test_sets_of_nodes_have_no_budget_but_the_usual_one() -> None:
    wanted = _policy(Overrides(strategy="shard-safe"))
    assert (wanted.strategy, wanted.max_unavailable) == (Strategy.SHARD_SAFE, None)
    assert _policy(Overrides(strategy="shard-safe", max_unavailable="3")).max_unavailable == 3


def test_the_profile_is_the_playbooks_or_that_of_the_kind(subtests: pytest.Subtests) -> None:
    for book, flag, wanted in [
        ("", None, None),
        ("", True, "elasticsearch"),
        ("tune: mine", None, "mine"),
        ("tune: mine", True, "mine"),
        ("tune: mine", False, None),
    ]:
        with subtests.test(book=book, flag=flag, wanted=wanted):
            playbook = check_playbook(
                parse(f"kind: elasticsearch\n{book}\n", "book.yml"), path=Path("book.yml"), name="book"
            )
            assert profile_wanted(_cluster(), playbook, Overrides(tune=flag)) == wanted


def test_a_profile_for_another_store_is_refused() -> None:
    tuning = TuningProfile(name="ring", applies_to="riak", settings=())
    with pytest.raises(
        UsageError, match=r"the tuning profile ring is for riak \(`applies_to`\), and prod is elasticsearch"
    ):
        _policy(Overrides(), tuning=tuning)
    ours = TuningProfile(name="es", applies_to="elasticsearch", settings=())
    assert _policy(Overrides(), tuning=ours).tune == ours


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        ("hosts: {connect: local}\n", "hosts"),
        ("hosts: {overrides: {es7: {connect: local}}}\n", "overrides of es7"),
    ],
)
def test_a_reboot_of_the_machine_that_runs_this_is_refused(cluster: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        _policy(Overrides(reboot=True), cluster=cluster)
    assert str(caught.value) == (
        f"--reboot: refused with `connect: local` ({where} in prod.yml): "
        "it would reboot the machine that this program runs on"
    )
    assert _policy(Overrides(), cluster=cluster).reboot is False
