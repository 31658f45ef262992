"""The rules as tables: what each alone refuses, what an unknown reading does, what may be switched off."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.config.disabling import disabled_predicate
from orchestrator.engine.admit import whole_sentence
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.elasticsearch.recovery import baseline_of
from orchestrator.engine.kinds.predicates import SUBJECTS, Question, aggregated, disabling, holds
from orchestrator.engine.progress import ShardTaken
from orchestrator.engine.state import Failing
from orchestrator.model.action import ProbeSettings
from orchestrator.model.cluster import DATA_ROLES, CopyState, Health, NodeName, Role, ShardCopy
from orchestrator.model.event import ActionFailed
from orchestrator.model.observation import Disk, HostView, LeaseView, ServiceState
from orchestrator.model.policy import ConfigurationManagement, DisabledPredicate, Kind, ZeroReplicas
from orchestrator.model.reading import Unknown, Unsupported
from orchestrator.model.upgrade import Deprecation
from orchestrator.runs.selection import predicate_names
from orchestrator.simulation import allocation, deciders
from orchestrator.simulation.facts import FIT, READY
from orchestrator.view.phrases import hold_sentence
from tests.simulation.gated import QUEUE
from tests.simulation.play import cluster
from tests.simulation.upgrading import wanted
from tests.unit.engine.asking import (
    ES2,
    activity_of,
    cluster_of,
    findings,
    health_of,
    holding,
    knowing,
    question,
    seeing,
    settings_of,
    viewing,
    wanting,
    ways,
)

ALLOCATION = "cluster.routing.allocation.enable"


def test_a_healthy_cluster_is_refused_by_nobody() -> None:
    assert holding(question()) == []


def _old(asked: Question) -> Question:
    return knowing(asked, acted_at=asked.observation.at + 1.0)


def _others_lease(asked: Question) -> Question:
    return seeing(asked, lease=LeaseView(held=False, holder="eve@elsewhere", refreshed=0.0))


def _allocation_off(asked: Question) -> Question:
    return seeing(asked, settings=replace(settings_of(asked), persistent={ALLOCATION: "none"}))


def _copies(asked: Question) -> tuple[ShardCopy, ...]:
    return cluster_of(asked.observation.cluster).copies


def _changed(asked: Question, chosen: Callable[[ShardCopy], bool], **fields: object) -> Question:
    """One copy, the first that is chosen, is another."""
    copies = list(_copies(asked))
    place = next(n for n, copy in enumerate(copies) if chosen(copy))
    copies[place] = copies[place]._replace(**fields)
    return viewing(asked, copies=tuple(copies))


def _shards_of_es2(asked: Question) -> set[object]:
    return {copy.shard for copy in _copies(asked) if copy.node == ES2}


def _red_before(asked: Question) -> Question:
    """Both copies of a shard elsewhere are gone, and were when the run began."""
    away = _shards_of_es2(asked)
    shard = next(copy.shard for copy in _copies(asked) if copy.shard not in away)
    copies = tuple(
        copy._replace(state=CopyState.UNASSIGNED, node=None, unassigned_reason="NODE_LEFT")
        if copy.shard == shard
        else copy
        for copy in _copies(asked)
    )
    asked = viewing(asked, copies=copies)
    return knowing(asked, baseline=baseline_of(cluster_of(asked.observation.cluster), {}))


def _yellow_elsewhere(asked: Question, *, reason: str = "ALLOCATION_FAILED") -> Question:
    away = _shards_of_es2(asked)
    return _changed(
        asked,
        lambda copy: not copy.primary and copy.shard not in away,
        state=CopyState.UNASSIGNED,
        node=None,
        unassigned_reason=reason,
    )


def _stale_copy(asked: Question) -> Question:
    """A started copy whose id is not in the in-sync set; the candidate has the other one."""
    shards = _shards_of_es2(asked)
    return _changed(asked, lambda copy: copy.shard in shards and copy.node != ES2, allocation_id="stale")


def _moving(asked: Question) -> Question:
    shards = _shards_of_es2(asked)
    return _changed(
        asked,
        lambda copy: copy.shard in shards and copy.node != ES2,
        state=CopyState.RELOCATING,
        relocating_to=NodeName("es6"),
    )


def _bare(_: Question) -> Question:
    world = cluster(6)
    world.add_index("bare", replicas=0, places=["es2"])
    return question(world)


def _few_voters(asked: Question) -> Question:
    return viewing(asked, voters=frozenset({"id-es2", "id-es3", "gone-1", "gone-2"}))


def _only_one_with(role: Role) -> Callable[[Question], Question]:
    def change(asked: Question) -> Question:
        nodes = cluster_of(asked.observation.cluster).nodes
        return viewing(
            asked, nodes=tuple(replace(n, roles=n.roles | {role}) if n.name == ES2 else n for n in nodes)
        )

    return change


def _older(asked: Question) -> Question:
    nodes = cluster_of(asked.observation.cluster).nodes
    return viewing(asked, nodes=tuple(replace(n, version="9.0.0") if n.name == ES2 else n for n in nodes))


def _full_disk(asked: Question) -> Question:
    disks = asked.observation.disks
    assert not isinstance(disks, Unknown)
    full = Disk(used_share=0.95, over_low=True, over_high=True)
    return seeing(asked, disks={**disks, ES2: full})


def _silent_host(asked: Question) -> Question:
    silent = Unknown(reason="ssh: timed out")
    return seeing(asked, hosts={**asked.observation.hosts, NodeName("es5"): silent})


def _managed_host(asked: Question) -> Question:
    host = asked.observation.host(ES2)
    assert not isinstance(host, Unknown)
    managed = replace(host, at_work=("puppet (process 812)",))
    return seeing(asked, hosts={**asked.observation.hosts, ES2: managed})


def test_a_management_run_elsewhere_or_ignored_holds_nothing() -> None:
    asked = _managed_host(question())
    assert holding(replace(asked, wave=replace(asked.wave, nodes=(NodeName("es5"),)))) == []
    assert holding(wanting(asked, configuration_management=ConfigurationManagement.IGNORE)) == []
    ((subject, evidence),) = findings(asked, "no_management_run_on_candidates")
    assert (subject, "puppet (process 812)" in evidence) == ("host of es2", True)


def _upgrading(asked: Question, *, to: str = "9.1.0", **shown: object) -> Question:
    """The same question before an upgrade from 8.19.0: nothing bars it but what the cluster shows here."""
    nodes = tuple(replace(node, version="8.19.0") for node in cluster_of(asked.observation.cluster).nodes)
    finding = replace(FIT, **shown)
    ready = dict.fromkeys((node.name for node in nodes), READY)
    asked = seeing(viewing(asked, nodes=nodes), upgrade=finding, readiness=ready)
    return wanting(asked, upgrade=wanted(to))


def _showing(**shown: object) -> Callable[[Question], Question]:
    """The cluster shows this before an upgrade."""
    return lambda asked: _upgrading(asked, **shown)


def _host_says(**fields: object) -> Callable[[Question], Question]:
    """The host of es5 says this before an upgrade."""

    def change(asked: Question) -> Question:
        asked = _upgrading(asked)
        other = replace(READY, **fields)
        return seeing(asked, readiness={**asked.observation.readiness, NodeName("es5"): other})

    return change


def _newer_es5(asked: Question) -> Question:
    """es5 is newer than the target, and has no copies."""
    asked = _upgrading(asked)
    view = cluster_of(asked.observation.cluster)
    nodes = tuple(replace(n, version="9.3.0" if n.name == "es5" else n.version) for n in view.nodes)
    there = {copy.shard for copy in view.copies if copy.node == "es5"}
    return viewing(asked, nodes=nodes, copies=tuple(copy for copy in view.copies if copy.shard not in there))


def _from_7(asked: Question) -> Question:
    """To 8, with a setting that 8 does not know in the files of es5."""
    asked = _upgrading(asked, to="8.19.0", settings={NodeName("es5"): ("cluster.name", "node.master")})
    nodes = cluster_of(asked.observation.cluster).nodes
    return viewing(asked, nodes=tuple(replace(node, version="7.17.28") for node in nodes))


def _without_a_snapshot(asked: Question) -> Question:
    asked = _upgrading(asked, snapshot_ended=asked.observation.at - 7200.0, snapshot="repo/nightly")
    return wanting(asked, upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))


ONLY_IT: dict[str, Callable[[Question], Question]] = {
    "observation_is_fresh": _old,
    "cluster_is_the_one_named": lambda asked: wanting(asked, cluster="another"),
    "lease_is_held": _others_lease,
    "settings_are_writable": lambda asked: knowing(asked, probed=False),
    "no_other_maintenance": _allocation_off,
    "expected_nodes_present": lambda asked: wanting(asked, expect_nodes=7),
    "cluster_not_red": _red_before,
    "no_worse_than_baseline": _yellow_elsewhere,
    "every_shard_keeps_started_copies": _stale_copy,
    "no_recovery_on_candidates": _moving,
    "zero_replica_indices": _bare,
    "master_quorum_survives": _few_voters,
    "every_role_keeps_a_member": _only_one_with(Role.ML),
    "capacity_remains": lambda asked: wanting(asked, min_capacity=0.9),
    "one_zone_at_a_time": lambda _: question(wave=("es1", "es5"), max_unavailable=2),
    "budget_not_exceeded": lambda _: question(wave=("es1", "es4")),
    "version_order": _older,
    "upgrade_path_is_supported": lambda asked: _upgrading(asked, to="10.0.0"),
    "no_node_is_newer": _newer_es5,
    "indices_open_in_target": _showing(created={"logs": "8", "oldest": "7.17.28"}),
    "no_critical_deprecations": _showing(deprecations=(Deprecation(subject="index logs", message="x"),)),
    "snapshot_is_recent": _without_a_snapshot,
    "settings_known_to_target": _from_7,
    "hosts_can_install": _host_says(failed=("apt-cache: no such package",)),
    "keystores_need_no_password": _host_says(keystore_password=True),
    "disk_space_for_install": _host_says(free_bytes=100 << 20),
    "disk_below_watermark": _full_disk,
    "no_running_snapshot": lambda asked: seeing(
        asked, activity=replace(activity_of(asked), snapshots=("repo/nightly",))
    ),
    "no_force_merge_or_reindex_on_candidates": lambda asked: seeing(
        asked, activity=replace(activity_of(asked), merges=frozenset({ES2}))
    ),
    "pending_tasks_drained": lambda asked: seeing(asked, health=replace(health_of(asked), oldest_task=60.0)),
    "selected_hosts_ready": _silent_host,
    "no_management_run_on_candidates": _managed_host,
    "gates_open": lambda asked: wanting(asked, gates=(QUEUE,)),
}


def test_the_table_names_every_rule() -> None:
    assert sorted(ONLY_IT) == sorted(rule.name for rule in PREDICATES)


@pytest.mark.proves("each-predicate")
def test_one_change_and_only_this_rule_refuses(subtests: pytest.Subtests) -> None:
    for name, change in ONLY_IT.items():
        with subtests.test(name=name):
            assert holding(change(question())) == [name]


DISABLED = "--disable-predicate"
WAYS: dict[str, tuple[str, ...]] = {
    "every_role_keeps_a_member": (f"{DISABLED} 'every_role_keeps_a_member=role ml'",),
    "capacity_remains": ("a lower `min_capacity` in the playbook",),
    "one_zone_at_a_time": (f"{DISABLED} one_zone_at_a_time=wave",),
    "budget_not_exceeded": ("a higher `max_unavailable` in the playbook",),
    "version_order": (
        (
            "an upgrade, so that es2 comes back with the newer version, or "
            f"{DISABLED} 'version_order=node es2' if hooks of the playbook upgrade it"
        ),
    ),
    "upgrade_path_is_supported": ("another `--to`",),
    "no_node_is_newer": ("another `--to`",),
}
"""The rules of `ONLY_IT` whose evidence a run with this policy may never see changed, and a way past each."""


def test_a_hold_that_may_stay_has_a_way_past_it_and_no_other(subtests: pytest.Subtests) -> None:
    for name, change in ONLY_IT.items():
        with subtests.test(name=name):
            assert ways(change(question()), name) == WAYS.get(name, ())


_TWO = frozenset({"id-es2", "id-es3"})
STAYS: list[tuple[str, Question, tuple[str, ...]]] = [
    (
        "no_critical_deprecations",
        _upgrading(question(), deprecations=Unsupported(reason="no such API")),
        (f"{DISABLED} no_critical_deprecations=deprecations",),
    ),
    ("no_critical_deprecations", _upgrading(question(), deprecations=Unknown(reason="403")), ()),
    (
        "master_quorum_survives",
        viewing(question(), voters=_TWO),
        ("`accept: {master_outage: true}` in the playbook",),
    ),
    (
        "master_quorum_survives",
        viewing(question(), voters=None),
        (f"{DISABLED} 'master_quorum_survives=voting configuration'",),
    ),
]


def test_what_cannot_change_in_a_run_has_a_way(subtests: pytest.Subtests) -> None:
    for name, asked, way in STAYS:
        with subtests.test(name=name, way=way):
            assert ways(asked, name) == way


def test_what_can_be_corrected_or_accepted_says_both(subtests: pytest.Subtests) -> None:
    """The run continues once it is corrected; where the rule is wrong here, another run passes it."""
    no_snapshot = wanting(_upgrading(question()), upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))
    for name, asked in (
        ("snapshot_is_recent", no_snapshot),
        ("settings_known_to_target", _from_7(question())),
        ("keystores_need_no_password", _host_says(keystore_password=True)(question())),
        ("disk_space_for_install", _host_says(free_bytes=100 << 20)(question())),
        ("disk_space_for_install", _host_says(free_bytes=None)(question())),
    ):
        with subtests.test(name=name):
            ((subject, evidence),) = findings(asked, name)
            assert evidence.endswith(f"begin another run with {disabling(name, subject)}")


def test_the_way_can_be_typed_and_passes() -> None:
    """What a shell makes of it is what the flag takes; then nothing holds."""
    asked = _only_one_with(Role.ML)(question())
    (way,) = ways(asked, "every_role_keeps_a_member")
    flag, rule = shlex.split(way)
    names = predicate_names(Kind.ELASTICSEARCH)
    assert flag == DISABLED
    assert holds(PREDICATES, wanting(asked, disabled_predicates=(disabled_predicate(rule, names, ()),))) == ()


def test_holds_of_several_waves_keep_their_ways() -> None:
    """A plan shows one hold for each rule."""
    rules = [rule for rule in PREDICATES if rule.name == "every_role_keeps_a_member"]
    held = [holds(rules, _only_one_with(role)(question())) for role in (Role.ML, Role.TRANSFORM)]
    (hold,) = aggregated(one for found in held for one in found)
    assert hold.ways == tuple(
        f"{DISABLED} 'every_role_keeps_a_member=role {role}'" for role in ("ml", "transform")
    )
    assert hold_sentence(hold).endswith(f"; another run passes it with {', '.join(hold.ways)}")


UPGRADES = {
    "upgrade_path_is_supported",
    "no_node_is_newer",
    "indices_open_in_target",
    "no_critical_deprecations",
    "snapshot_is_recent",
    "settings_known_to_target",
    "hosts_can_install",
    "keystores_need_no_password",
    "disk_space_for_install",
}
"""The rules of an upgrade: a restart asks none of them."""

OF_THE_CLUSTER = {
    "indices_open_in_target",
    "no_critical_deprecations",
    "snapshot_is_recent",
    "settings_known_to_target",
}
"""Those that the cluster answers, and no host."""


UNKNOWN = {
    "cluster": {
        rule.name
        for rule in PREDICATES
        if rule.name
        not in {
            "lease_is_held",
            "settings_are_writable",
            "no_running_snapshot",
            "no_force_merge_or_reindex_on_candidates",
            "pending_tasks_drained",
            "selected_hosts_ready",
            "no_management_run_on_candidates",
            "gates_open",
            *UPGRADES,
        }
    },
    "settings": {"observation_is_fresh", "no_other_maintenance"},
    "health": {"observation_is_fresh", "cluster_not_red", "pending_tasks_drained"},
    "activity": {
        "observation_is_fresh",
        "no_running_snapshot",
        "no_force_merge_or_reindex_on_candidates",
    },
    "disks": {"observation_is_fresh", "disk_below_watermark"},
    "lease": {"lease_is_held"},
}


@pytest.mark.proves("unknown-holds")
def test_every_predicate_refuses_an_unknown_reading_it_needs(subtests: pytest.Subtests) -> None:
    for part, names in UNKNOWN.items():
        with subtests.test(part=part):
            unknown = seeing(question(), **{part: Unknown(reason="timed out")})
            assert set(holding(unknown)) == names
            evidence = [text for name in names for _, text in findings(unknown, name)]
            assert evidence
            assert all("timed out" in text for text in evidence)


def test_rules_of_an_upgrade_refuse_an_unknown_reading(subtests: pytest.Subtests) -> None:
    unread = Unknown(reason="timed out")
    host = {**_upgrading(question()).observation.readiness, NodeName("es5"): unread}
    for what, parts, names in (
        ("cluster", {"cluster": unread}, UPGRADES),
        ("what it shows", {"upgrade": unread}, OF_THE_CLUSTER),
        ("a host", {"readiness": host}, {"hosts_can_install"}),
    ):
        with subtests.test(what=what):
            asked = seeing(_upgrading(question()), **parts)
            assert set(holding(asked)) & UPGRADES == names
            assert all("timed out" in text for name in names for _, text in findings(asked, name))
    listed = _upgrading(question(), deprecations=unread)
    assert holding(listed) == ["no_critical_deprecations"]


def test_rules_of_an_upgrade_are_asked_before_its_first_stop() -> None:
    """A run that continues is not held by them: half of its nodes are upgraded."""
    for name in UPGRADES:
        asked = replace(ONLY_IT[name](question()), first_stop=False)
        assert set(holding(asked)) & UPGRADES == set(), name


def test_a_host_or_disk_that_was_not_read_is_refused() -> None:
    asked = question()
    assert holding(seeing(asked, hosts={})) == ["selected_hosts_ready"]
    assert holding(seeing(asked, disks={})) == ["disk_below_watermark"]
    assert holding(viewing(asked, voters=None)) == ["master_quorum_survives"]
    assert "observation_is_fresh" in holding(viewing(asked, master=None))


def test_only_a_candidate_with_unknown_tasks_is_refused() -> None:
    asked = question()
    name, rule = asked.wave.nodes[0], "no_force_merge_or_reindex_on_candidates"
    here = replace(activity_of(asked), unread=frozenset({name}))
    assert holding(seeing(asked, activity=here)) == [rule]
    elsewhere = replace(activity_of(asked), unread=frozenset({NodeName("co1")}))
    assert holding(seeing(asked, activity=elsewhere)) == []


def test_health_that_may_be_old_is_not_fresh() -> None:
    asked = question()
    assert holding(seeing(asked, health=replace(health_of(asked), settled=False))) == ["observation_is_fresh"]


def test_health_red_with_every_primary_started_is_believed() -> None:
    asked = question()
    assert holding(seeing(asked, health=replace(health_of(asked), status=Health.RED))) == ["cluster_not_red"]


@pytest.mark.parametrize(
    ("view", "refused"),
    [
        (HostView(service=ServiceState.RUNNING, detail="active", may_control=True), False),
        (HostView(service=ServiceState.RUNNING, detail="sudo", may_control=False), True),
        (HostView(service=ServiceState.RUNNING, detail="active", may_control=None), True),
        (HostView(service=ServiceState.STOPPED, detail="inactive", may_control=True), True),
    ],
)
def test_a_host_is_ready_with_a_service_that_may_be_controlled(view: HostView, *, refused: bool) -> None:
    asked = question()
    hosts = {**asked.observation.hosts, NodeName("es5"): view}
    assert bool(findings(seeing(asked, hosts=hosts), "selected_hosts_ready")) is refused


def test_a_host_that_may_not_be_rebooted_holds_only_a_reboot() -> None:
    asked = question()
    for may, held in ((True, False), (False, True), (None, True)):
        host = asked.observation.hosts[NodeName("es5")]
        assert isinstance(host, HostView)
        view = replace(host, may_reboot=may)
        seen = seeing(asked, hosts={**asked.observation.hosts, NodeName("es5"): view})
        assert bool(findings(wanting(seen, reboot=True), "selected_hosts_ready")) is held, may
        assert findings(seen, "selected_hosts_ready") == [], may


def test_a_predicate_may_be_disabled_wholly_or_for_a_subject(subtests: pytest.Subtests) -> None:
    for rule in [rule for rule in PREDICATES if rule.may_be_disabled]:
        with subtests.test(rule.name):
            name = next(p.name for p in PREDICATES if p is rule)
            asked = ONLY_IT[name](question())
            subject = findings(asked, name)[0][0]
            assert [hold.predicate for hold in holds(PREDICATES, asked)] == [name] * len(
                findings(asked, name)
            )
            for off in (DisabledPredicate(name=name), DisabledPredicate(name=name, subject=subject)):
                left = [
                    hold.subject for hold in holds(PREDICATES, wanting(asked, disabled_predicates=(off,)))
                ]
                assert subject not in left
            other = DisabledPredicate(name=name, subject="something else")
            assert subject in [
                hold.subject for hold in holds(PREDICATES, wanting(asked, disabled_predicates=(other,)))
            ]


@pytest.mark.parametrize(
    "rule", [rule for rule in PREDICATES if not rule.may_be_disabled], ids=lambda r: r.name
)
@pytest.mark.proves("always-on")
def test_the_rules_on_which_all_rest_cannot_be_switched_off(rule: object) -> None:
    name = next(p.name for p in PREDICATES if p is rule)
    asked = wanting(ONLY_IT[name](question()), disabled_predicates=(DisabledPredicate(name=name),))
    assert [hold.predicate for hold in holds(PREDICATES, asked)] == [name]


def test_the_rules_that_cannot_be_disabled_are_these() -> None:
    fixed = [rule.name for rule in PREDICATES if not rule.may_be_disabled]
    of_every_run = ["observation_is_fresh", "cluster_is_the_one_named", "lease_is_held"]
    assert fixed == [*of_every_run, "upgrade_path_is_supported", "no_node_is_newer"]
    about_a_wave = [rule.name for rule in PREDICATES if rule.about_wave]
    assert not set(fixed) & set(about_a_wave), "they are asked before a wave is chosen"


def test_red_and_bare_indices_may_be_accepted_by_name() -> None:
    red = _red_before(question())
    index = findings(red, "cluster_not_red")[0][0].removeprefix("index ")
    assert holding(wanting(red, accept_red=frozenset({index}))) == []
    bare = _bare(question())
    accepted = wanting(bare, zero_replicas=ZeroReplicas.ACCEPT, zero_replicas_accepted=("ba*",))
    assert holding(accepted) == []


def test_an_index_without_replicas_is_named_with_node_and_remedy() -> None:
    (subject, evidence), *_ = findings(_bare(question()), "zero_replica_indices")
    assert subject == "index bare"
    assert evidence.startswith("is on es2 and has no replicas: ")
    assert "`zero_replica_indices: {accept: [bare]}`" in evidence, "the playbook takes this form"


def test_what_was_missing_before_the_run_does_not_hold_it() -> None:
    asked = _yellow_elsewhere(question())
    baseline = baseline_of(cluster_of(asked.observation.cluster), {})
    assert holding(knowing(asked, baseline=baseline)) == []


def test_a_node_that_left_between_plan_and_baseline_holds() -> None:
    """The baseline has neither the node nor its copies, and the run has it in its list."""
    asked = _yellow_elsewhere(question())
    view = cluster_of(asked.observation.cluster)
    asked = viewing(asked, nodes=tuple(node for node in view.nodes if node.name != "es5"))
    asked = knowing(asked, baseline=baseline_of(cluster_of(asked.observation.cluster), {}))
    assert [subject for subject, _ in findings(asked, "expected_nodes_present")] == ["node es5"]


def test_a_copy_on_its_way_to_the_candidate_holds() -> None:
    world = cluster(6)
    shard = next(s for _, s in deciders.shards_of(world) if all(copy.node != ES2 for copy in s.copies))
    allocation.relocate(world, shard.primary, ES2, 100.0)
    assert holding(question(world)) == ["no_recovery_on_candidates"]


def _recovering_elsewhere(asked: Question) -> Question:
    """A copy of a shard that the candidate has no part in is on its way."""
    away = _shards_of_es2(asked)
    return _changed(
        asked, lambda copy: not copy.primary and copy.shard not in away, state=CopyState.INITIALIZING
    )


def test_a_recovery_without_the_candidate_does_not_hold_it() -> None:
    asked = _recovering_elsewhere(question())
    assert holding(asked) == []
    assert holding(wanting(asked, overlap_recovery=True)) == []


def test_unassigned_copies_that_are_new_are_no_loss() -> None:
    """A copy that never was anywhere is nobody's loss; one that a node took away is."""
    lost = {
        "INDEX_CREATED": False,
        "REPLICA_ADDED": False,
        "NEW_INDEX_RESTORED": False,
        "INDEX_REOPENED": False,
        "NODE_LEFT": True,
        "ALLOCATION_FAILED": True,
        "REROUTE_CANCELLED": True,
    }
    for reason, holds_it in lost.items():
        asked = _yellow_elsewhere(question(), reason=reason)
        assert holding(asked) == (["no_worse_than_baseline"] if holds_it else []), reason


def test_a_copy_that_a_wave_took_down_is_a_loss_even_if_new() -> None:
    """Auto-expand takes the replica away with the node and adds a new one when it is back."""
    asked = _yellow_elsewhere(question(), reason="REPLICA_ADDED")
    gone = next(copy.shard for copy in _copies(asked) if copy.state is CopyState.UNASSIGNED)
    for started, holds_it in ((2, True), (1, False)):
        taken = {(gone.index_uuid, gone.number): ShardTaken(started=started, filters="")}
        assert holding(knowing(asked, taken=taken)) == (["no_worse_than_baseline"] if holds_it else [])


def test_an_unassigned_auto_expanded_replica_is_a_loss() -> None:
    """It went with a node that left for a moment while allocation was off."""
    asked = _yellow_elsewhere(question(), reason="REPLICA_ADDED")
    indices = cluster_of(asked.observation.cluster).indices
    for expands, held in ((None, []), ("0-1", ["no_worse_than_baseline"])):
        expanding = tuple(replace(index, auto_expand=expands) for index in indices)
        assert holding(viewing(asked, indices=expanding)) == held


def test_what_was_not_waited_for_does_not_hold_the_next_wave() -> None:
    asked = _yellow_elsewhere(question())
    gone = next(copy.shard for copy in _copies(asked) if copy.state is CopyState.UNASSIGNED)
    assert holding(knowing(asked, not_waited={(gone.index_uuid, gone.number): 1})) == []
    assert holding(knowing(asked, not_waited={(gone.index_uuid, gone.number + 1): 1})) != []


def test_primaries_that_are_being_restored_are_not_red() -> None:
    """A restore makes an index red for as long as it runs, and no longer."""
    asked = question()
    away = _shards_of_es2(asked)
    shard = next(copy.shard for copy in _copies(asked) if copy.shard not in away)

    def restored(state: CopyState, reason: str) -> Question:
        primary = _changed(
            asked,
            lambda copy: copy.shard == shard and copy.primary,
            state=state,
            node=NodeName("es4") if state is CopyState.INITIALIZING else None,
            unassigned_reason=reason,
        )
        return _changed(
            primary,
            lambda copy: copy.shard == shard and not copy.primary,
            state=CopyState.UNASSIGNED,
            node=None,
            unassigned_reason=reason,
        )

    assert "cluster_not_red" not in holding(restored(CopyState.INITIALIZING, "NEW_INDEX_RESTORED"))
    assert "cluster_not_red" in holding(restored(CopyState.UNASSIGNED, "NEW_INDEX_RESTORED")), (
        "it stands still"
    )
    assert "cluster_not_red" in holding(restored(CopyState.INITIALIZING, "NODE_LEFT"))


def test_the_default_of_allocation_may_be_in_capitals() -> None:
    """Elasticsearch 5 shows it as `ALL` (seen on 5.6.16), and takes every value in any case."""
    asked, enable = question(), "cluster.routing.allocation.enable"
    for value, holds_it in (("ALL", False), ("All", False), ("NONE", True), ("PRIMARIES", True)):
        default = replace(settings_of(asked), files={enable: value})
        written = replace(settings_of(asked), persistent={enable: value})
        held = ["no_other_maintenance"] if holds_it else []
        assert holding(seeing(asked, settings=default)) == held, value
        assert holding(seeing(asked, settings=written)) == held, value


def test_an_exclusion_holds_only_while_it_is_about_a_member() -> None:
    """An exclusion of a node that has left is a leftover: that node is empty and away."""
    excluded = "cluster.routing.allocation.exclude."
    asked = question()
    node = next(n for n in cluster_of(asked.observation.cluster).nodes if n.name == "es5")
    for key, value, holds_it in (
        ("_name", "es5", True),
        ("_name", "es9,es5", True),
        ("_name", "es9", False),
        ("_name", "es*", True),
        ("_id", node.node_id, True),
        ("_id", "left-long-ago", False),
        ("_ip", node.address, True),
        ("_ip", "10.255.0.1", False),
        ("zone", "b", True),
        ("zone", "z", False),
    ):
        found = seeing(asked, settings=replace(settings_of(asked), persistent={excluded + key: value}))
        assert holding(found) == (["no_other_maintenance"] if holds_it else []), (key, value)


def test_a_voting_only_node_is_no_master_that_stays() -> None:
    asked = question()
    nodes = cluster_of(asked.observation.cluster).nodes

    def with_roles(of: dict[str, frozenset[Role]]) -> Question:
        return viewing(
            asked, nodes=tuple(replace(n, roles=of.get(n.name, n.roles - {Role.MASTER})) for n in nodes)
        )

    voter = frozenset({Role.MASTER, Role.VOTING_ONLY, *nodes[0].roles} - {Role.COORDINATING})
    master = voter - {Role.VOTING_ONLY}
    assert "every_role_keeps_a_member" in holding(with_roles({"es2": master, "es3": voter}))
    assert "every_role_keeps_a_member" not in holding(with_roles({"es2": master, "es3": master}))
    assert "every_role_keeps_a_member" not in holding(with_roles({"es2": voter, "es3": master}))


def test_a_primary_that_a_newer_node_takes_over() -> None:
    """The wave's node stays old, and no copy of that shard can return to it."""
    asked = question()
    view = cluster_of(asked.observation.cluster)
    shard = next(copy.shard for copy in view.on((ES2,)) if copy.primary)
    others = {copy.node for copy in view.shards[shard]} - {ES2}
    assert others
    for newer, holds_it in ((others, True), ({node.name for node in view.nodes} - others - {ES2}, False)):
        copies = tuple(copy for copy in view.copies if copy.shard == shard)
        nodes = tuple(replace(node, version="9.1.9") if node.name in newer else node for node in view.nodes)
        found = holding(viewing(asked, nodes=nodes, copies=copies))
        assert ("version_order" in found) is holds_it, (newer, found)


def test_a_data_node_serves_every_tier() -> None:
    """The first nodes of an upgrade from below 7.10 have the roles of tiers, and the others only `data`."""
    asked = question()
    tiers = frozenset({*DATA_ROLES, Role.MASTER})

    def with_roles(wave: frozenset[Role], others: frozenset[Role]) -> set[str]:
        names, members = asked.wave.nodes, cluster_of(asked.observation.cluster).nodes
        nodes = tuple(replace(node, roles=wave if node.name in names else others) for node in members)
        found = set(holding(viewing(asked, nodes=nodes)))
        return found & {"every_role_keeps_a_member", "capacity_remains"}

    plain, hot = frozenset({Role.DATA, Role.MASTER}), frozenset({Role.DATA_HOT, Role.MASTER})
    assert with_roles(tiers, plain) == set()
    assert with_roles(plain, tiers) == set()
    assert with_roles(tiers, hot) == {"every_role_keeps_a_member", "capacity_remains"}


def test_the_disks_of_other_nodes_do_not_hold_a_candidate() -> None:
    asked = question()
    disks = asked.observation.disks
    assert not isinstance(disks, Unknown)
    full = Disk(used_share=0.95, over_low=True, over_high=True)
    low = replace(full, over_high=False)
    assert holding(seeing(asked, disks={**disks, NodeName("es5"): full})) == []
    assert holding(seeing(asked, disks={**disks, ES2: low})) == ["disk_below_watermark"]


def test_one_hold_a_predicate_counts_and_names_the_first_few() -> None:
    world = cluster(6)
    for number in range(7):
        world.add_index(f"bare-{number}", replicas=0, places=["es2"])
    (hold,) = holds(PREDICATES, question(world))
    assert (hold.predicate, hold.count, len(hold.subjects)) == ("zero_replica_indices", 7, SUBJECTS)
    assert hold.subject == hold.subjects[0] == "index bare-0"
    again = replace(hold, subject="index bare-9", subjects=("index bare-9", *hold.subjects[:1]), count=2)
    (both,) = aggregated((hold, again))
    assert (both.count, both.subject, len(both.subjects)) == (8, "index bare-0", SUBJECTS)


def test_a_hold_names_the_reason_of_each_host() -> None:
    asked = question(cluster(9))
    told = HostView(service=ServiceState.RUNNING, detail="no sudo", may_control=False)
    faults = {f"es{n}": told if n < 4 else replace(told, detail=f"reason {n}") for n in range(2, 9)}
    hosts = {**asked.observation.hosts, **{NodeName(name): view for name, view in faults.items()}}
    (hold,) = holds(PREDICATES, seeing(asked, hosts=hosts))
    may_not = "the account may not stop and start the service"
    assert (hold.predicate, hold.count, len(hold.reasons)) == ("selected_hosts_ready", 7, SUBJECTS)
    said = (
        f"selected_hosts_ready: host of es2, host of es3: {may_not}: no sudo; "
        f"host of es4: {may_not}: reason 4; host of es5: {may_not}: reason 5; "
        f"host of es6: {may_not}: reason 6; and 2 more"
    )
    assert whole_sentence(hold) == hold_sentence(hold) == said
    one = replace(hold, subjects=hold.subjects[:1], reasons=hold.reasons[:1], count=1)
    other = replace(one, subject="host of es9", evidence="gone", subjects=("host of es9",), reasons=("gone",))
    (both,) = aggregated((one, other))
    assert (both.subjects, both.reasons) == (("host of es2", "host of es9"), (one.evidence, "gone"))


@pytest.mark.parametrize("state", [CopyState.INITIALIZING, CopyState.RELOCATING])
def test_a_recovery_with_the_candidate_holds_it_with_overlap_too(state: CopyState) -> None:
    asked = wanting(question(), overlap_recovery=True)
    shards = _shards_of_es2(asked)
    for here in (True, False):
        moving = _changed(
            asked,
            lambda copy, here=here: copy.shard in shards and not copy.primary and (copy.node == ES2) is here,
            state=state,
            relocating_to=NodeName("es6") if state is CopyState.RELOCATING else None,
        )
        assert "no_recovery_on_candidates" in holding(moving)


def test_an_idle_copy_holds_with_overlap_unless_missing_before() -> None:
    asked = wanting(_yellow_elsewhere(question()), overlap_recovery=True)
    assert holding(asked) == ["no_worse_than_baseline"]
    baseline = baseline_of(cluster_of(asked.observation.cluster), {})
    assert holding(knowing(asked, baseline=baseline)) == []


def test_an_index_pinned_to_the_candidate_holds() -> None:
    asked = question()
    indices = cluster_of(asked.observation.cluster).indices
    for name in ("id-es2", "es2"):
        pinned = viewing(asked, indices=(replace(indices[0], pinned_to=name), *indices[1:]))
        assert holding(pinned) == ["every_shard_keeps_started_copies"]


def test_filters_mean_the_name_that_a_node_took_itself() -> None:
    """Before Elasticsearch 5 a node without `node.name` is known by its address."""
    asked = question()
    view = cluster_of(asked.observation.cluster)
    nodes = tuple(replace(node, own_name="Thor" if node.name == ES2 else "") for node in view.nodes)
    named, (first, *others) = viewing(asked, nodes=nodes), view.indices
    pinned = viewing(named, indices=(replace(first, pinned_to="Thor"), *others))
    assert holding(pinned) == ["every_shard_keeps_started_copies"]
    emptied = {"cluster.routing.allocation.exclude._name": "Th*"}
    settings = replace(settings_of(named), persistent=emptied)
    assert holding(seeing(named, settings=settings)) == ["no_other_maintenance"]


def test_our_exclusions_and_settings_are_not_foreign() -> None:
    asked = question()
    assert holding(viewing(asked, voting_exclusions=("es1",))) == ["no_other_maintenance"]
    assert holding(knowing(viewing(asked, voting_exclusions=("es1",)), excluded=frozenset({"es1"}))) == []
    assert holding(viewing(asked, shutdowns=("id-es1",))) == ["no_other_maintenance"]


def test_an_index_whose_copies_would_not_come_back_holds(subtests: pytest.Subtests) -> None:
    for own, replicas, held in [
        (None, 1, []),
        ("all", 1, []),
        ("ALL", 1, []),
        ("none", 1, ["no_other_maintenance"]),
        ("primaries", 1, ["no_other_maintenance"]),
        ("new_primaries", 1, ["no_other_maintenance"]),
        ("primaries", 0, []),
    ]:
        with subtests.test(own=own, replicas=replicas, held=held):
            asked = question()
            indices = tuple(
                replace(index, allocation_enable=own, replicas=replicas)
                for index in cluster_of(asked.observation.cluster).indices
            )
            asked = wanting(
                viewing(asked, indices=indices),
                zero_replicas=ZeroReplicas.ACCEPT,
                zero_replicas_accepted=("*",),
            )
            assert holding(asked) == held


def test_an_index_outside_the_wave_may_allocate_as_it_likes() -> None:
    asked = question(wave=("es4",))
    view = cluster_of(asked.observation.cluster)
    elsewhere = {copy.shard.index_uuid for copy in view.copies} - {
        copy.shard.index_uuid for copy in view.copies if copy.node == "es4"
    }
    indices = tuple(
        replace(index, allocation_enable="none") if index.uuid in elsewhere else index
        for index in view.indices
    )
    assert elsewhere
    assert holding(viewing(asked, indices=indices)) == []


def test_archived_settings_are_told_with_what_to_do() -> None:
    """Whatever else is known: without the way out, an operator has only a name."""
    asked = knowing(question(), probed=False)
    archived = {f"archived.key{number}": "1" for number in range(6)}
    found = findings(
        seeing(asked, settings=replace(settings_of(asked), persistent=archived)), "settings_are_writable"
    )
    [(subject, told)] = found
    assert subject == "cluster settings"
    assert "archived.key0, archived.key1" in told
    assert "and 1 more" in told
    assert '"persistent": {"archived.*": null}' in told
    failed = ActionFailed(action=ProbeSettings(), reason="403: not allowed", in_doubt=False)
    state = replace(
        asked.state, in_phase=replace(asked.state.in_phase, failing=(Failing(last=failed, since=0.0),))
    )
    seen = seeing(replace(asked, state=state), settings=replace(settings_of(asked), persistent=archived))
    assert findings(seen, "settings_are_writable") == [(subject, f"403: not allowed; {told}")]
