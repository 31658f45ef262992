"""The predicates of Elasticsearch as rows: what each alone refuses, unknown readings, how each is passed."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from orchestrator.config.disabling import disabled_predicate
from orchestrator.elasticsearch.rules.predicates import (
    PREDICATES,
    no_other_maintenance,
    no_running_snapshot,
)
from orchestrator.elasticsearch.rules.recovery import baseline_of, not_to_return
from orchestrator.elasticsearch.rules.settings import MINIMUM_MASTERS
from orchestrator.engine.memory import Failing
from orchestrator.engine.predicates import (
    SUBJECTS,
    Question,
    aggregated,
    disabling,
    hold_in_words,
    holds,
)
from orchestrator.engine.progress import ShardTaken
from orchestrator.model.action import ProbeSettings
from orchestrator.model.allocation import DISABLING
from orchestrator.model.cluster import DATA_ROLES, CopyState, Health, NodeName, Role, ShardCopy, ShardId
from orchestrator.model.event import ActionFailed
from orchestrator.model.observation import (
    Disk,
    HostView,
    LeaseView,
    RunningSnapshot,
    ServiceState,
    SettingsView,
)
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import (
    ConfigurationManagement,
    DisabledPredicate,
    Kind,
    ZeroReplicas,
)
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
    ALLOCATION,
    ES1,
    ES2,
    ES4,
    ES5,
    Change,
    changing,
    findings,
    holding,
    hosting,
    knowing,
    question,
    seeing,
    view_of,
    viewing,
    wanting,
    ways,
    with_copy,
    with_node,
)

UNREAD: Final = Unknown(reason="timed out")
PUPPET: Final = ("puppet (process 812)",)
FULL: Final = Disk(used_share=0.95, over_low=True, over_high=True)


def _shards_of_es2(asked: Question) -> set[object]:
    return {copy.shard for copy in view_of(asked).copies if copy.node == ES2}


def _changed(asked: Question, chosen: Callable[[ShardCopy], bool], **fields: object) -> Question:
    return seeing(asked, cluster=with_copy(view_of(asked), chosen, **fields))


def _elsewhere(asked: Question, *, primary: bool = False) -> Callable[[ShardCopy], bool]:
    """Chooses a copy of a shard that the candidate has no part in."""
    away = _shards_of_es2(asked)
    return lambda copy: copy.primary is primary and copy.shard not in away


def _nodes(asked: Question, change: Callable[..., dict[str, object]]) -> Question:
    """The same question with fields of nodes replaced, by node."""
    nodes = tuple(replace(node, **change(node)) for node in view_of(asked).nodes)
    return viewing(asked, nodes=nodes)


def _indices(asked: Question, **fields: object) -> Question:
    indices = tuple(replace(index, **fields) for index in view_of(asked).indices)
    return viewing(asked, indices=indices)


def _as_before(asked: Question) -> Question:
    """It was so when the run began."""
    return knowing(asked, baseline=baseline_of(view_of(asked), {}))


def _red_before(asked: Question) -> Question:
    """Both copies of a shard elsewhere are gone, and were when the run began."""
    away = _shards_of_es2(asked)
    shard = next(copy.shard for copy in view_of(asked).copies if copy.shard not in away)
    gone = {"state": CopyState.UNASSIGNED, "node": None, "unassigned_reason": "NODE_LEFT"}
    copies = (copy._replace(**gone) if copy.shard == shard else copy for copy in view_of(asked).copies)
    return _as_before(viewing(asked, copies=tuple(copies)))


def _yellow_elsewhere(asked: Question, reason: str = "ALLOCATION_FAILED") -> Question:
    gone = {"state": CopyState.UNASSIGNED, "node": None, "unassigned_reason": reason}
    return _changed(asked, _elsewhere(asked), **gone)


def _beside_es2(asked: Question, **fields: object) -> Question:
    """The copy of a shard of which the candidate has another one is so."""
    shards = _shards_of_es2(asked)
    return _changed(asked, lambda copy: copy.shard in shards and copy.node != ES2, **fields)


def _bare(*_: Question) -> Question:
    world = cluster(6)
    world.add_index("bare", replicas=0, places=["es2"])
    return question(world)


def _kept_off_es2(replicas: int = 2, **index: object) -> Question:
    """A copy of an index is on es2, where it may not be, and the nodes that may have it have one each."""
    world = cluster(6)
    pair = world.add_index("pair", replicas=replicas, places=["es2", "es1", "es3"][: replicas + 1])
    pair.rules = {"exclude._name": "es2", "include._name": "es1,es2,es3" if replicas > 1 else "es1"}
    for name, value in index.items():
        setattr(pair, name, value)
    return question(world)


def _only_es2_has(role: Role) -> Change:
    return lambda asked: _nodes(asked, lambda n: {"roles": n.roles | {role}} if n.name == ES2 else {})


def _upgrading(asked: Question, *, to: str = "9.1.0", **shown: object) -> Question:
    """The same question before an upgrade from 8.19.0: nothing bars it but what the cluster shows here."""
    asked = _nodes(asked, lambda _: {"version": "8.19.0"})
    finding = replace(FIT, **shown)
    ready = dict.fromkeys((node.name for node in view_of(asked).nodes), READY)
    return wanting(seeing(asked, upgrade=finding, readiness=ready), upgrade=wanted(to))


def _showing(**shown: object) -> Change:
    return lambda asked: _upgrading(asked, **shown)


def _host_says(**fields: object) -> Change:
    """The host of es5 says this before an upgrade."""
    other = replace(READY, **fields)
    return lambda asked: seeing(
        _upgrading(asked), readiness={**_upgrading(asked).observation.readiness, ES5: other}
    )


def _newer_es5(asked: Question) -> Question:
    """es5 is newer than the target, and has no copies."""
    asked = _nodes(_upgrading(asked), lambda node: {"version": "9.3.0"} if node.name == ES5 else {})
    there = {copy.shard for copy in view_of(asked).copies if copy.node == ES5}
    return viewing(asked, copies=tuple(copy for copy in view_of(asked).copies if copy.shard not in there))


def _from_7(asked: Question) -> Question:
    """To 8, with a setting that 8 does not know in the files of es5."""
    asked = _upgrading(asked, to="8.19.0", settings={ES5: ("cluster.name", "node.master")})
    return _nodes(asked, lambda _: {"version": "7.17.28"})


def _old_snapshot(asked: Question) -> Question:
    asked = _upgrading(asked, snapshot_ended=asked.observation.at - 7200.0, snapshot="repo/nightly")
    return wanting(asked, upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))


DEPRECATED: Final = (Deprecation(subject="index logs", message="x"),)
ONLY_IT: Final[dict[str, tuple[Change, str]]] = {
    # what makes it the only one that refuses; the parts of the reading without which it refuses too
    "observation_is_fresh": (
        lambda asked: knowing(asked, acted_at=asked.observation.at + 1.0),
        "cluster settings health activity disks",
    ),
    "cluster_is_the_one_named": (lambda asked: wanting(asked, cluster="another"), "cluster"),
    "lease_is_held": (
        lambda asked: seeing(asked, lease=LeaseView(held=False, holder="eve@elsewhere", refreshed=0.0)),
        "lease",
    ),
    "settings_are_writable": (lambda asked: knowing(asked, probed=False), ""),
    "no_other_maintenance": (
        lambda asked: changing(asked, "settings", persistent={ALLOCATION: "none"}),
        "cluster settings",
    ),
    "expected_nodes_present": (lambda asked: wanting(asked, expect_nodes=7), "cluster"),
    "cluster_not_red": (_red_before, "cluster health"),
    "no_worse_than_baseline": (_yellow_elsewhere, "cluster"),
    "every_shard_keeps_started_copies": (
        lambda asked: _beside_es2(asked, allocation_id="stale"),  # not in the in-sync set
        "cluster",
    ),
    "no_recovery_on_candidates": (
        lambda asked: _beside_es2(asked, state=CopyState.RELOCATING, relocating_to=NodeName("es6")),
        "cluster",
    ),
    "copies_can_return": (lambda _: _kept_off_es2(), "cluster settings"),
    "zero_replica_indices": (_bare, "cluster"),
    "master_quorum_survives": (
        lambda asked: viewing(asked, voters=frozenset({"id-es2", "id-es3", "gone-1", "gone-2"})),
        "cluster",
    ),
    "every_role_keeps_a_member": (_only_es2_has(Role.ML), "cluster"),
    "capacity_remains": (lambda asked: wanting(asked, min_capacity=0.9), "cluster"),
    "one_zone_at_a_time": (lambda _: question(wave=("es1", "es5"), max_unavailable=2), "cluster"),
    "budget_not_exceeded": (lambda _: question(wave=("es1", "es4")), "cluster"),
    "version_order": (
        lambda asked: _nodes(asked, lambda node: {"version": "9.0.0"} if node.name == ES2 else {}),
        "cluster",
    ),
    "upgrade_path_is_supported": (_showing(to="10.0.0"), "cluster"),
    "no_node_is_newer": (_newer_es5, "cluster"),
    "indices_open_in_target": (_showing(created={"logs": "8", "oldest": "7.17.28"}), "cluster upgrade"),
    "no_critical_deprecations": (_showing(deprecations=DEPRECATED), "cluster upgrade"),
    "snapshot_is_recent": (_old_snapshot, "cluster upgrade"),
    "settings_known_to_target": (_from_7, "cluster upgrade"),
    "hosts_can_install": (_host_says(failed=("apt-cache: no such package",)), "cluster readiness"),
    "keystores_need_no_password": (_host_says(keystore_password=True), "cluster"),
    "disk_space_for_install": (_host_says(free_bytes=100 << 20), "cluster"),
    "disk_below_watermark": (
        lambda asked: seeing(asked, disks={**asked.observation.disks, ES2: FULL}),
        "cluster disks",
    ),
    "no_running_snapshot": (
        lambda asked: changing(asked, "activity", snapshots=(RunningSnapshot(name="repo/nightly"),)),
        "activity",
    ),
    "no_force_merge_or_reindex_on_candidates": (
        lambda asked: changing(asked, "activity", merges=frozenset({ES2})),
        "activity",
    ),
    "pending_tasks_drained": (lambda asked: changing(asked, "health", oldest_task=60.0), "health"),
    "selected_hosts_ready": (
        lambda asked: seeing(asked, hosts={**asked.observation.hosts, ES5: UNREAD}),
        "",
    ),
    "no_management_run_on_candidates": (lambda asked: hosting(asked, ES2, at_work=PUPPET), ""),
    "gates_open": (lambda asked: wanting(asked, gates=(QUEUE,)), ""),
}
UPGRADES: Final = frozenset(list(ONLY_IT)[18:27])
"""Those of an upgrade: a restart is held by none of them."""


def _only(name: str) -> Question:
    return ONLY_IT[name][0](question())


def test_a_healthy_cluster_is_refused_by_nobody() -> None:
    assert holding(question()) == []
    assert holding(_upgrading(question())) == []


def test_the_table_names_every_rule() -> None:
    assert sorted(ONLY_IT) == sorted(rule.name for rule in PREDICATES)
    assert {"upgrade_path_is_supported", "disk_space_for_install"} < UPGRADES


@pytest.mark.proves("each-predicate")
def test_one_change_and_only_this_rule_refuses(subtests: pytest.Subtests) -> None:
    for name in ONLY_IT:
        with subtests.test(name=name):
            assert holding(_only(name)) == [name]


@pytest.mark.proves("unknown-holds")
def test_every_predicate_refuses_an_unknown_reading_it_needs(subtests: pytest.Subtests) -> None:
    asked = _upgrading(question())
    for part in ("cluster", "settings", "health", "activity", "disks", "lease", "upgrade", "readiness"):
        with subtests.test(part=part):
            names = {name for name, (_, needs) in ONLY_IT.items() if part in needs.split()}
            value = {**asked.observation.readiness, ES5: UNREAD} if part == "readiness" else UNREAD
            unknown = seeing(asked, **{part: value})
            assert set(holding(unknown)) == names
            assert all("timed out" in text for name in names for _, text in findings(unknown, name))
            assert UPGRADES.isdisjoint(holding(seeing(question(), **{part: value})))
    for changed, name in (
        (seeing(question(), hosts={}), "selected_hosts_ready"),
        (seeing(question(), disks={}), "disk_below_watermark"),
        (viewing(question(), voters=None), "master_quorum_survives"),
        (_upgrading(question(), deprecations=UNREAD), "no_critical_deprecations"),
    ):
        assert holding(changed) == [name]
    assert "observation_is_fresh" in holding(viewing(question(), master=None))


def test_rules_of_an_upgrade_are_asked_before_its_first_stop() -> None:
    """A run that continues is not held by them: half of its nodes are upgraded."""
    for name in UPGRADES:
        assert UPGRADES.isdisjoint(holding(replace(_only(name), first_stop=False))), name


# How a hold is passed ------------------------------------

DISABLED: Final = "--disable-predicate"
WAYS: Final[dict[str, str]] = {
    "every_role_keeps_a_member": f"{DISABLED} 'every_role_keeps_a_member=role ml'",
    "capacity_remains": "a lower `min_capacity` in the playbook",
    "one_zone_at_a_time": f"{DISABLED} one_zone_at_a_time=wave",
    "budget_not_exceeded": "a higher `max_unavailable` in the playbook",
    "version_order": (
        "an upgrade, so that es2 comes back with the newer version, or "
        f"{DISABLED} 'version_order=node es2' if hooks of the playbook upgrade it"
    ),
    "upgrade_path_is_supported": "another `--to`",
    "no_node_is_newer": "another `--to`",
}
"""Of `ONLY_IT`, those whose evidence a run with this policy may never see changed, and a way past each."""


def test_a_hold_that_may_stay_has_a_way_past_it_and_no_other(subtests: pytest.Subtests) -> None:
    two = frozenset({"id-es2", "id-es3"})
    unsupported = Unsupported(reason="no such API")
    for name, asked, way in [
        *((name, _only(name), WAYS.get(name)) for name in ONLY_IT),
        (
            "no_critical_deprecations",
            _upgrading(question(), deprecations=unsupported),
            f"{DISABLED} no_critical_deprecations=deprecations",
        ),
        ("no_critical_deprecations", _upgrading(question(), deprecations=Unknown(reason="403")), None),
        (
            "master_quorum_survives",
            viewing(question(), voters=two),
            "`accept: {master_outage: true}` in the playbook",
        ),
        (
            "master_quorum_survives",
            viewing(question(), voters=None),
            f"{DISABLED} 'master_quorum_survives=voting configuration'",
        ),
    ]:
        with subtests.test(name=name, way=way):
            assert ways(asked, name) == ((way,) if way else ())


def test_what_can_be_corrected_or_accepted_says_both(subtests: pytest.Subtests) -> None:
    """The run continues once it is corrected; where the rule is wrong here, another run passes it."""
    no_snapshot = wanting(_upgrading(question()), upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))
    for name, asked in (
        ("snapshot_is_recent", no_snapshot),
        ("settings_known_to_target", _from_7(question())),
        ("keystores_need_no_password", _only("keystores_need_no_password")),
        ("disk_space_for_install", _only("disk_space_for_install")),
        ("disk_space_for_install", _host_says(free_bytes=None)(question())),
    ):
        with subtests.test(name=name):
            ((subject, evidence),) = findings(asked, name)
            assert evidence.endswith(f"begin another run with {disabling(name, subject)}")


def test_the_way_can_be_typed_and_passes() -> None:
    """What a shell makes of it is what the flag takes; then nothing holds. A plan lists all ways."""
    asked = _only("every_role_keeps_a_member")
    (way,) = ways(asked, "every_role_keeps_a_member")
    flag, rule = shlex.split(way)
    names = predicate_names(Kind.ELASTICSEARCH)
    assert flag == DISABLED
    assert holds(PREDICATES, wanting(asked, disabled_predicates=(disabled_predicate(rule, names, ()),))) == ()
    rules = [rule for rule in PREDICATES if rule.name == "every_role_keeps_a_member"]
    held = [holds(rules, _only_es2_has(role)(question())) for role in (Role.ML, Role.TRANSFORM)]
    (hold,) = aggregated(one for found in held for one in found)
    assert hold.ways == tuple(
        f"{DISABLED} 'every_role_keeps_a_member=role {role}'" for role in ("ml", "transform")
    )
    assert hold_sentence(hold).endswith(f"; another run passes it with {', '.join(hold.ways)}")


@pytest.mark.proves("always-on")
def test_the_rules_on_which_all_rest_cannot_be_switched_off(subtests: pytest.Subtests) -> None:
    """All others may be disabled, wholly or for a subject."""
    fixed = [rule.name for rule in PREDICATES if not rule.may_be_disabled]
    of_every_run = ["observation_is_fresh", "cluster_is_the_one_named", "lease_is_held"]
    assert fixed == [*of_every_run, "upgrade_path_is_supported", "no_node_is_newer"]
    about_a_wave = {rule.name for rule in PREDICATES if rule.about_wave}
    assert about_a_wave.isdisjoint(fixed), "they are asked before a wave is chosen"
    for name in ONLY_IT:
        with subtests.test(name=name):
            asked = _only(name)
            found = [subject for subject, _ in findings(asked, name)]
            for of, held in ((None, name in fixed), (found[0], name in fixed), ("something else", True)):
                off = (DisabledPredicate(name=name, subject=of),)
                left = holds(PREDICATES, wanting(asked, disabled_predicates=off))
                assert {hold.predicate for hold in left} <= {name}
                assert (found[0] in [hold.subject for hold in left]) is held


def test_red_and_bare_indices_may_be_accepted_by_name() -> None:
    red, bare = _only("cluster_not_red"), _bare()
    found = findings(red, "cluster_not_red")
    index = found[0][0].removeprefix("index ")
    named = ", ".join(subject.removeprefix("index ") for subject, _ in found)
    assert f"`accept: {{red: [{named}]}}` in the playbook" in str(found[0][1]), "to be copied as it is"
    assert holding(wanting(red, accept_red=frozenset({index}))) == []
    accepted = wanting(bare, zero_replicas=ZeroReplicas.ACCEPT, zero_replicas_accepted=("ba*",))
    assert holding(accepted) == []
    (subject, evidence), *_ = findings(bare, "zero_replica_indices")
    assert subject == "index bare"
    assert evidence.startswith("is on es2 and has no replicas: ")
    assert "`zero_replica_indices: {accept: [bare]}`" in evidence, "the playbook takes this form"


# Case by case ------------------------------------

Case = tuple[str, object, Question, bool]
"""The rule, what is so, the question, and whether this rule alone holds it; else none does."""


def _of_hosts() -> Iterator[Case]:
    """Of every node of the run before its first stop; the right to reboot counts with a reboot alone."""
    asked, rule, managed = question(), "selected_hosts_ready", _only("no_management_run_on_candidates")
    for fields, reboot, held in (
        ({}, False, False),
        ({"may_control": False, "detail": "sudo"}, False, True),
        ({"may_control": None}, False, True),
        ({"may_reboot": True}, True, False),
        ({"may_reboot": False}, True, True),
        ({"may_reboot": None}, True, True),
        ({"may_reboot": None}, False, False),
    ):
        yield rule, (fields, reboot), hosting(wanting(asked, reboot=reboot), ES5, **fields), held
    elsewhere = replace(managed, wave=replace(managed.wave, nodes=(ES5,)))
    yield "no_management_run_on_candidates", "elsewhere", elsewhere, False
    ignored = wanting(managed, configuration_management=ConfigurationManagement.IGNORE)
    yield "no_management_run_on_candidates", "ignored", ignored, False
    disks = asked.observation.disks
    assert not isinstance(disks, Unknown)
    yield "disk_below_watermark", "another's", seeing(asked, disks={**disks, ES5: FULL}), False
    low = replace(FULL, over_high=False)
    yield "disk_below_watermark", "the low watermark", seeing(asked, disks={**disks, ES2: low}), True
    for name, held in ((ES2, True), (NodeName("co1"), False)):
        unread = changing(asked, "activity", unread=frozenset({name}))
        yield "no_force_merge_or_reindex_on_candidates", f"tasks of {name}", unread, held
    yield "observation_is_fresh", "health may be old", changing(asked, "health", settled=False), True
    red = changing(asked, "health", status=Health.RED)
    yield "cluster_not_red", "red with every primary started", red, True


def _of_copies() -> Iterator[Case]:
    """A copy that never was anywhere is nobody's loss; one that a node took away is."""
    rule = "no_worse_than_baseline"
    for reason, held in {
        "INDEX_CREATED": False,
        "REPLICA_ADDED": False,
        "NEW_INDEX_RESTORED": False,
        "INDEX_REOPENED": False,
        "NODE_LEFT": True,
        "ALLOCATION_FAILED": True,
        "REROUTE_CANCELLED": True,
    }.items():
        yield rule, reason, _yellow_elsewhere(question(), reason), held
    lost, added = _yellow_elsewhere(question()), _yellow_elsewhere(question(), "REPLICA_ADDED")
    gone = next(copy.shard for copy in view_of(lost).copies if copy.state is CopyState.UNASSIGNED)
    key, other = (gone.index_uuid, gone.number), (gone.index_uuid, gone.number + 1)
    overlap = wanting(lost, overlap_recovery=True)
    yield rule, "missing before", _as_before(lost), False
    yield rule, "missing before, with overlap", _as_before(overlap), False
    yield rule, "with overlap", overlap, True
    yield rule, "not waited for", knowing(lost, not_waited={key: 1}), False
    yield rule, "another was not waited for", knowing(lost, not_waited={other: 1}), True
    # Auto-expand takes the replica away with its node and adds a new one when it is back.
    for started, held in ((2, True), (1, False)):
        taken = {key: ShardTaken(started=started)}
        yield rule, f"a wave took a copy of {started}", knowing(added, taken=taken), held
    yield rule, "its index expands", _indices(added, auto_expand="0-1"), True
    yield rule, "its index does not expand", _indices(added, auto_expand=None), False
    arriving = _changed(question(), _elsewhere(question()), state=CopyState.INITIALIZING)
    yield "no_recovery_on_candidates", "elsewhere", arriving, False
    with_overlap = wanting(arriving, overlap_recovery=True)
    yield "no_recovery_on_candidates", "elsewhere, with overlap", with_overlap, False


def _of_maintenance() -> Iterator[Case]:
    """An exclusion that is about no member is a leftover: its node is empty and away.

    Elasticsearch 5 shows the default as `ALL` (seen on 5.6.16), and takes every value in any case.
    """
    asked, rule = question(), "no_other_maintenance"
    for level in ("files", "persistent"):
        for value, held in (("ALL", False), ("All", False), ("NONE", True), ("PRIMARIES", True)):
            changed = changing(asked, "settings", **{level: {ALLOCATION: value}})
            yield rule, (level, value), changed, held
    node = next(n for n in view_of(asked).nodes if n.name == ES5)
    for key, value, held in (
        ("_name", "es5", True),
        ("_name", "es9,es5", True),
        ("_name", "es9", False),
        ("_name", "es5*", True),
        ("_id", node.node_id, True),
        ("_id", "left-long-ago", False),
        ("_ip", node.address, True),
        ("_ip", "10.255.0.1", False),
        ("zone", "b", True),
        ("zone", "z", False),
    ):
        yield rule, (key, value), _excluding(asked, key, value), held
    voting = viewing(asked, voting_exclusions=("es1",))
    yield rule, "voting", voting, True
    yield rule, "voting, by this run", knowing(voting, excluded=frozenset({"es1"})), False
    yield rule, "shutdown", viewing(asked, shutdowns=("id-es1",)), True
    bare = {"zero_replicas": ZeroReplicas.ACCEPT, "zero_replicas_accepted": ("*",)}
    for own, replicas, held in (
        (None, 1, False),
        ("ALL", 1, False),
        ("none", 1, True),
        ("primaries", 1, True),
        ("new_primaries", 1, True),
        ("primaries", 0, True),
    ):
        asked = wanting(_indices(question(), allocation_enable=own, replicas=replicas), **bare)
        yield "copies_can_return", ("an index with", own, replicas), asked, held


def _of_copies_missing_before() -> Iterator[Case]:
    """As many copies may stay away as the run found missing: these, or others of their shards."""
    kept, rule = _kept_off_es2(), "copies_can_return"
    away = {"state": CopyState.UNASSIGNED, "node": None, "unassigned_reason": "INDEX_CREATED"}
    shard = ShardId(index="pair", index_uuid="pair-uuid", number=0)
    lacking = view_of(_changed(kept, lambda copy: copy.shard == shard and not copy.primary, **away))
    yield rule, "none was missing", kept, True
    before = knowing(kept, baseline=baseline_of(lacking, {}))
    yield rule, "one was missing", before, False
    one = ShardCopy(shard=shard, primary=False, **away)
    still = seeing(before, cluster=replace(view_of(kept), copies=(*view_of(kept).copies, one)))
    yield rule, "one was missing, and still is", still, True


def _of_names() -> Iterator[Case]:
    """Before Elasticsearch 5 a node without `node.name` is known by its address, and took another name."""
    asked = question()
    named = _nodes(asked, lambda node: {"own_name": "Thor" if node.name == ES2 else ""})
    for at, name in ((asked, "es7"), (asked, "es2"), (named, "es2"), (named, "Thor")):
        kept = _indices(at, filters=json.dumps({"require": {"_name": name}}))
        told = "es2" if at is asked else "Thor"
        yield "copies_can_return", f"indices kept on {name}", kept, name != told
    yield "no_other_maintenance", "emptied by its own name", _excluding(named, "_name", "Th*"), True


def _excluding(asked: Question, key: str, value: str) -> Question:
    excluded = {f"cluster.routing.allocation.exclude.{key}": value}
    return changing(asked, "settings", persistent=excluded)


def test_a_rule_holds_case_by_case(subtests: pytest.Subtests) -> None:
    for cases in (_of_hosts, _of_copies, _of_copies_missing_before, _of_maintenance, _of_names):
        for rule, what, asked, held in cases():
            with subtests.test(rule, what=what):
                assert holding(asked) == ([rule] if held else [])


def test_cluster_not_red_by_a_primary_that_is_restored(subtests: pytest.Subtests) -> None:
    asked = question()
    away = _shards_of_es2(asked)
    shard = next(copy.shard for copy in view_of(asked).copies if copy.shard not in away)
    for state, reason, is_red in (
        (CopyState.INITIALIZING, "NEW_INDEX_RESTORED", False),
        (CopyState.UNASSIGNED, "NEW_INDEX_RESTORED", True),  # it stands still
        (CopyState.INITIALIZING, "NODE_LEFT", True),
    ):
        with subtests.test(state=state, reason=reason):
            gone = {"state": CopyState.UNASSIGNED, "node": None, "unassigned_reason": reason}
            restored = {**gone, "state": state, "node": ES4 if state is CopyState.INITIALIZING else None}
            seen = _changed(asked, lambda copy: copy.shard == shard and copy.primary, **restored)
            both = _changed(seen, lambda copy: copy.shard == shard and not copy.primary, **gone)
            assert ("cluster_not_red" in holding(both)) is is_red


def test_a_copy_on_its_way_to_the_candidate_holds(subtests: pytest.Subtests) -> None:
    world = cluster(6)
    shard = next(s for _, s in deciders.shards_of(world) if all(copy.node != ES2 for copy in s.copies))
    allocation.relocate(world, shard.primary, ES2, 100.0)
    assert holding(question(world)) == ["no_recovery_on_candidates"]
    asked = wanting(question(), overlap_recovery=True)
    shards = _shards_of_es2(asked)
    for state, here in itertools.product((CopyState.INITIALIZING, CopyState.RELOCATING), (True, False)):
        with subtests.test("with overlap", state=state, here=here):
            moving = _changed(
                asked,
                lambda copy, here=here: (
                    copy.shard in shards and not copy.primary and (copy.node == ES2) is here
                ),
                state=state,
                relocating_to=NodeName("es6") if state is CopyState.RELOCATING else None,
            )
            assert "no_recovery_on_candidates" in holding(moving)


def test_no_other_maintenance_by_flags_of_versions_before_1(subtests: pytest.Subtests) -> None:
    """There they disable allocation; on 1.x they still do."""
    asked, rule = question(), "no_other_maintenance"
    settings = asked.observation.settings
    assert not isinstance(settings, Unknown)
    for key in sorted(DISABLING - {ALLOCATION}):
        for value, held in (("true", True), ("1", True), ("false", False), ("off", False)):
            for parts in ({"transient": {key: value}}, {"files": {**settings.files, key: value}}):
                with subtests.test(key=key, value=value, parts=list(parts)):
                    found = findings(changing(asked, "settings", **parts), rule)
                    assert (key in [subject for subject, _ in found]) is held


def test_indices_that_may_lose_copies_are_accepted_by_name(subtests: pytest.Subtests) -> None:
    """By name or glob. One that ILM shrinks is waited for; a copy whose loss bars another node goes last.

    A copy that may return is waited for, whether or not its index is accepted.
    """
    kept, alone, rule = _kept_off_es2(), _kept_off_es2(replicas=1), "copies_can_return"
    load = "cluster.routing.allocation.load_awareness.provisioned_capacity"
    doubt = changing(question(), "settings", persistent={load: "6"})
    lasting = next(each.lasting for each in PREDICATES if each.name == rule)
    assert lasting is not None
    for what, asked, held, lasts, foreseen in (
        ("not accepted", kept, True, True, True),
        ("another", wanting(kept, accept_not_returning=("x",)), True, True, True),
        ("accepted", wanting(kept, accept_not_returning=("pai?",)), False, False, True),
        ("in an ILM shrink", _kept_off_es2(shrinks=True), True, False, True),
        ("before es1", wanting(alone, accept_not_returning=("pair",)), True, False, True),
        ("in doubt", doubt, True, True, False),
        ("in doubt, and accepted", wanting(doubt, accept_not_returning=("*",)), False, False, False),
    ):
        with subtests.test(what):
            assert (not_to_return(asked) is not None) is foreseen
            assert any(hold.others_first for hold in holds(PREDICATES, asked)) is (what == "before es1")
            assert (holding(asked) == [rule], bool(list(lasting(asked)))) == (held, lasts)


def test_every_role_keeps_a_member(subtests: pytest.Subtests) -> None:
    """A voting-only node is no master that stays; a node with `data` serves every tier.

    The first nodes of an upgrade from below 7.10 have the roles of tiers, and the others only `data`.
    """
    asked = question()
    voter = frozenset({Role.MASTER, Role.VOTING_ONLY, *view_of(asked).nodes[0].roles} - {Role.COORDINATING})
    master = voter - {Role.VOTING_ONLY}
    tiers = frozenset({*DATA_ROLES, Role.MASTER})
    plain, hot = frozenset({Role.DATA, Role.MASTER}), frozenset({Role.DATA_HOT, Role.MASTER})
    for es2, es3, held in ((master, voter, True), (master, master, False), (voter, master, False)):
        with subtests.test("masters", es2=es2, es3=es3):
            of = {"es2": es2, "es3": es3}
            found = holding(
                _nodes(asked, lambda n, of=of: {"roles": of.get(n.name, n.roles - {Role.MASTER})})
            )
            assert ("every_role_keeps_a_member" in found) is held
    both = {"every_role_keeps_a_member", "capacity_remains"}
    for wave, others, refused in ((tiers, plain, set()), (plain, tiers, set()), (tiers, hot, both)):
        with subtests.test("tiers", wave=wave, others=others):
            of = {"es2": wave}
            found = holding(_nodes(asked, lambda n, of=of, rest=others: {"roles": of.get(n.name, rest)}))
            assert set(found) & both == refused


def test_version_order_where_a_newer_node_takes_a_primary_over() -> None:
    """The wave's node stays old, and no copy of that shard can return to it."""
    asked = question()
    view = view_of(asked)
    shard = next(copy.shard for copy in view.on((ES2,)) if copy.primary)
    others = {copy.node for copy in view.shards[shard]} - {ES2}
    assert others
    alone = viewing(asked, copies=tuple(copy for copy in view.copies if copy.shard == shard))
    for newer, held in ((others, True), ({node.name for node in view.nodes} - others - {ES2}, False)):
        found = holding(_nodes(alone, lambda n, newer=newer: {"version": "9.1.9"} if n.name in newer else {}))
        assert ("version_order" in found) is held, (newer, found)


def test_master_quorum_survives_by_minimum_master_nodes(subtests: pytest.Subtests) -> None:
    """Before 7 that setting decides; the cluster's value is over the one of the files."""
    counted = viewing(question(), voting_by_count=True)
    for files, persistent, said in (
        ("4", None, None),
        ("3", None, None),
        ("2", None, "below a majority of 5"),  # two masters are possible
        ("1", None, "below a majority of 5"),
        ("5", None, "elect a master"),  # four of five would be left
        ("1", "3", None),
    ):
        with subtests.test(files=files, persistent=persistent):
            set_ = {MINIMUM_MASTERS: persistent} if persistent else {}
            asked = changing(counted, "settings", files={MINIMUM_MASTERS: files}, persistent=set_)
            found = [evidence for _, evidence in findings(asked, "master_quorum_survives")]
            assert len(found) == (said is not None)
            assert all(str(said) in evidence for evidence in found)


# Holds in words ------------------------------------


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
    assert hold_in_words(hold) == hold_sentence(hold) == said
    one = replace(hold, subjects=hold.subjects[:1], reasons=hold.reasons[:1], count=1)
    other = replace(one, subject="host of es9", evidence="gone", subjects=("host of es9",), reasons=("gone",))
    (both,) = aggregated((one, other))
    assert (both.subjects, both.reasons) == (("host of es2", "host of es9"), (one.evidence, "gone"))


def test_archived_settings_are_told_with_what_to_do() -> None:
    """Whatever else is known: without the way out, an operator has only a name."""
    archived = {f"archived.key{number}": "1" for number in range(6)}
    asked = changing(knowing(question(), probed=False), "settings", persistent=archived)
    ((subject, told),) = findings(asked, "settings_are_writable")
    assert subject == "cluster settings"
    for part in ("archived.key0, archived.key1", "and 1 more", '"persistent": {"archived.*": null}'):
        assert part in told
    failed = ActionFailed(action=ProbeSettings(), reason="403: not allowed", in_doubt=False)
    again = knowing(asked, failing=(Failing(last=failed, since=0.0),))
    assert findings(again, "settings_are_writable") == [(subject, f"403: not allowed; {told}")]


def test_a_snapshot_is_named_with_its_age_share_and_nodes(subtests: pytest.Subtests) -> None:
    """One that is aborted may stay so for days: what ends it is a restart."""
    asked = question()
    day, cure = asked.observation.at - 100 * 3600, "a restart of that node ends it"
    many = tuple(NodeName(f"es{number}") for number in range(1, 9))
    for snapshot, words in [
        (
            RunningSnapshot(name="r/s", aborted=True, since=day, nodes=(ES2,)),
            ["aborted", "es2", "began 4d 4h ago", cure],
        ),
        (RunningSnapshot(name="r/s", aborted=True), ["aborted", "its nodes"]),
        (RunningSnapshot(name="r/s", since=day + 99 * 3600), ["is running; it began 1h 0m ago"]),
        (RunningSnapshot(name="r/s", nodes=(ES2,), done=0.996), ["on es2, 99% of its shards are done"]),
        (RunningSnapshot(name="r/s", aborted=True, nodes=many), ["es5 and 3 more", "its nodes"]),
    ]:
        with subtests.test(snapshot=snapshot):
            found = dict(no_running_snapshot(changing(asked, "activity", snapshots=(snapshot,))))
            assert all(word in str(found["snapshot r/s"]) for word in words), found
            assert (cure in str(found["snapshot r/s"])) == (cure in words)


def test_who_is_emptied_by_filters_of_the_cluster(subtests: pytest.Subtests) -> None:
    """By every name of a node that the server compares, in any spelling, and by what leaves a node out."""
    six, usual = "2001:db8::2", {"attributes": {"box": "hot"}, "host": "db1.example"}
    for filters, member, drained in [
        ({"exclude._host": "db2.example"}, {"host": "db2.example"}, True),
        ({"exclude._host": "db9.example"}, {"host": "db2.example"}, False),
        ({"exclude._host": "db9.example"}, {"host": ""}, True),  # it was not read: it may be that one
        ({"exclude._ip": "2001:db8:0:0:0:0:0:2"}, {"address": six}, True),
        ({"exclude._publish_ip": "2001:0DB8::0002"}, {"address": six}, True),
        ({"exclude._ip": "2001:db8::3"}, {"address": six}, False),
        ({"exclude._tier": "data_warm"}, {"roles": frozenset({Role.DATA_WARM})}, True),
        ({"require.box": "hot"}, {"attributes": {"box": "warm"}}, True),
        ({"require.box": "hot"}, {}, False),
        ({"include._name": "es1,es3,es4,es5"}, {}, True),
        ({"include._name": "es1,es3,es4,es5", "include.box": "hot"}, {}, False),
        ({"include._name": "es*"}, {}, False),
        ({"require._ip": "10.0.0.9"}, {"roles": frozenset({Role.MASTER})}, True),
        ({"require.box": "hot,warm"}, {}, True),  # a node has one value, and would need both
        ({"require._tier": "data_hot"}, {}, False),
        ({"include._host": "db1.example"}, {"host": ""}, True),  # as above
    ]:
        with subtests.test(filters=filters, member=member):
            asked = question()
            view = asked.observation.cluster
            assert not isinstance(view, Unknown)
            nodes = tuple(
                replace(node, **{**usual, **(member if node.name == ES2 else {})}) for node in view.nodes
            )
            settings = SettingsView(
                persistent={f"cluster.routing.allocation.{key}": value for key, value in filters.items()},
                transient={},
                files={},
            )
            found = dict(
                no_other_maintenance(seeing(asked, settings=settings), view.changed({}, nodes=nodes))
            )
            assert bool(found) == drained, found


def test_a_tier_of_the_cluster_is_no_attribute(subtests: pytest.Subtests) -> None:
    """`cluster.routing.allocation.*._tier` is read once, for drains and for copies that come back."""
    about = {"copies_can_return", "no_other_maintenance"}
    for key, tier, held in [
        ("require", "data_hot", False),
        ("include", "data_warm,data_hot", False),
        ("exclude", "data_warm", False),
        ("require", "data_warm", True),
        ("exclude", "data_hot", True),
    ]:
        with subtests.test(key=key, tier=tier):
            asked = _nodes(question(), lambda _: {"roles": frozenset({Role.DATA_HOT, Role.MASTER})})
            filters = {f"cluster.routing.allocation.{key}._tier": tier}
            assert about.intersection(holding(changing(asked, "settings", persistent=filters))) == (
                about if held else set()
            )


def test_a_copy_of_another_tier_would_not_come_back(subtests: pytest.Subtests) -> None:
    """Of two nodes, each with a copy, the last: if the index is accepted by name, no rule holds it."""
    hot, warm, about = Role.DATA_HOT, Role.DATA_WARM, {"copies_can_return", "no_other_maintenance"}
    for own, other, filters, held in [
        (hot, warm, {"include": {"_tier_preference": "data_warm,data_hot"}}, True),
        (hot, hot, {"include": {"_tier_preference": "data_warm,data_hot"}}, False),
        (hot, warm, {"require": {"_tier": "data_warm"}}, True),
        (hot, warm, {"require": {"_tier": "data_warm,data_hot"}}, True),
        (Role.DATA, warm, {"require": {"_tier": "data_warm"}}, False),
        (hot, warm, {"exclude": {"_tier": "data_hot"}}, True),
        (hot, warm, {"include": {"_tier": "data_cold, data_hot"}}, False),
        (hot, warm, {"include": {"box": ""}}, False),
    ]:
        with subtests.test(filters=filters, own=own, other=other):
            asked = _indices(question(cluster(2)), filters=json.dumps(filters))
            roles = {ES1: frozenset({other}), ES2: frozenset({own})}
            asked = _nodes(asked, lambda node, roles=roles: {"roles": roles[node.name]})
            asked = replace(asked, state=with_node(asked.state, ES1, phase=NodePhase.RECOVERED))
            assert about.intersection(holding(asked)) == ({"copies_can_return"} if held else set())
            assert about.isdisjoint(holding(wanting(asked, accept_not_returning=("*",))))
