"""Upgrades: what holds one, case by case, refused install steps, and when a node is upgraded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine import upgrade, work
from orchestrator.engine.memory import Failing
from orchestrator.engine.predicates import Question
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import NodeStep, Situation
from orchestrator.model.action import RunInstall
from orchestrator.model.event import ActionFailed
from orchestrator.model.observation import HostView
from orchestrator.model.phase import VERSION, Installing, NodePhase, Owed, Work
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import Deprecation, InstallStep, InstallView, Upgrade
from orchestrator.model.work_event import Upgraded
from orchestrator.simulation.facts import FIT, READY
from tests.simulation.play import cluster
from tests.simulation.upgrading import wanted
from tests.states import state_with
from tests.unit.engine.asking import ES1, ES2, ES3, findings, question, seeing, view_of, viewing, wanting
from tests.unit.engine.cells import NEW, OLD, node_in, now, situation

ES, OS = "elasticsearch", "opensearch"


def asking(*versions: str, to: str, distribution: str = ES, **shown: object) -> Question:
    """Before an upgrade; the nodes run these versions, the first ones one each and the others the last."""
    asked = question(cluster(3), wave=("es1",))
    nodes = view_of(asked).nodes
    nodes = tuple(replace(node, version=versions[min(n, len(versions) - 1)]) for n, node in enumerate(nodes))
    finding = replace(FIT, **shown)
    ready = dict.fromkeys((node.name for node in nodes), READY)
    asked = viewing(asked, nodes=nodes, distribution=distribution)
    return wanting(seeing(asked, upgrade=finding, readiness=ready), upgrade=wanted(to))


def said(asked: Question, rule: str) -> str:
    return "; ".join(f"{subject}: {evidence}" for subject, evidence in findings(asked, rule))


def test_upgrade_path_is_supported(subtests: pytest.Subtests) -> None:
    for distribution, version, to, says in [
        (ES, "5.6.16", "6.8.23", ""),
        (ES, "6.8.0", "7.17.28", ""),
        (ES, "7.17.0", "8.19.0", ""),
        (ES, "8.18.0", "9.0.0", ""),
        (ES, "8.19.3", "9.1.4", ""),
        (ES, "2.3.0", "2.4.6", ""),
        (ES, "9.1.0", "9.1.4", ""),
        (ES, "9.0.0", "9.1.0", ""),
        (OS, "1.3.20", "2.19.1", ""),
        (OS, "2.19.0", "3.1.0", ""),
        (ES, "5.5.3", "6.8.23", "upgrade to 5.6 first"),
        (ES, "6.7.2", "7.17.28", "upgrade to 6.8 first"),
        (ES, "7.16.3", "8.19.0", "upgrade to 7.17 first"),
        (ES, "8.17.9", "9.0.0", "upgrade to 8.18 first"),
        (ES, "8.17.9", "9.1.0", "upgrade to 8.19 first"),
        (ES, "8.18.4", "9.0.4", ""),
        (ES, "8.18.4", "9.1.0", "upgrade to 8.19 first"),
        (ES, "8.19.0", "9.0.4", "from 8.19 it goes to 9.1 and later"),
        (ES, "8.19.0", "9.2.1", ""),
        (ES, "7.17.28", "9.1.0", "upgrade to the last 8.x first: no major version"),
        (ES, "2.4.6", "5.6.16", "with the whole cluster down"),
        (ES, "0.90.13", "1.7.6", "with the whole cluster down"),
        (ES, "9.1.0", "10.0.0", "no way from 9.x to another"),
        ("another", "1.0.0", "2.0.0", "no way from 1.x to another"),
        (ES, "snapshot", "9.1.0", "its version is not understood"),
        (OS, "1.2.4", "2.19.1", "upgrade to 1.3 first"),
        (OS, "2.18.0", "3.1.0", "upgrade to 2.19 first"),
        (OS, "1.3.20", "3.1.0", "upgrade to the last 2.x first"),
    ]:
        with subtests.test(distribution=distribution, version=version, to=to):
            asked = asking(version, to=to, distribution=distribution)
            found = findings(asked, "upgrade_path_is_supported")
            assert [subject for subject, _ in found] == ([f"version {version}"] if says else [])
            assert says in said(asked, "upgrade_path_is_supported")
    mixed = findings(asking("8.19.0", "8.17.0", to="9.1.0"), "upgrade_path_is_supported")
    assert [subject for subject, _ in mixed] == ["version 8.17.0"], "every version is asked"


def test_no_node_is_newer() -> None:
    asked = asking("9.2.0", "9.1.0", to="9.1.0")
    assert findings(asked, "upgrade_path_is_supported") == []
    assert said(asked, "no_node_is_newer") == "nodes: es1 with 9.2.0: newer than 9.1.0"
    assert findings(asking("9.1.0", to="9.1.0"), "no_node_is_newer") == []


def test_indices_open_in_target(subtests: pytest.Subtests) -> None:
    """Those of the major before; Elasticsearch 9 alone opens old ones that are read-only."""
    for distribution, version, to, created, read_only, opens in [
        (ES, "8.19.0", "9.1.0", "8", False, True),
        (ES, "8.19.0", "9.1.0", "7.17.28", False, False),
        (ES, "7.17.28", "8.19.0", "7.0.0", False, True),
        (ES, "7.17.28", "8.19.0", "6.8.23", False, False),
        (ES, "9.0.0", "9.1.0", "7.17.28", False, True),
        (ES, "8.19.0", "9.1.0", "unknown", False, False),
        (OS, "1.3.20", "2.19.1", "1.0.0", False, True),
        (OS, "1.3.20", "2.19.1", "7.10.2", False, True),
        (OS, "1.3.20", "2.19.1", "6.8.23", False, False),
        (OS, "2.19.0", "3.1.0", "2.0.0", False, True),
        (OS, "2.19.0", "3.1.0", "1.3.20", False, False),
        (OS, "2.19.0", "3.1.0", "7.10.2", False, False),
        (ES, "8.19.0", "9.1.0", "7.17.28", True, True),
        (ES, "8.19.0", "9.1.0", "6.8.23", True, False),
        (ES, "7.17.28", "8.19.0", "6.8.23", True, False),
        (OS, "2.19.0", "3.1.0", "1.3.20", True, False),
    ]:
        with subtests.test(version=version, to=to, created=created, read_only=read_only):
            shown = {"created": {"logs": created}, "read_only": frozenset({"logs"} if read_only else ())}
            asked = asking(version, to=to, distribution=distribution, **shown)
            assert (findings(asked, "indices_open_in_target") == []) is opens
            assert opens or f"logs: created by {created}" in said(asked, "indices_open_in_target")


def test_one_old_node_makes_it_a_change_of_the_major() -> None:
    old = (Deprecation(subject="index logs", message="old"),)
    asked = asking("9.1.0", "8.19.0", to="9.1.0", created={"logs": "7.17.28"}, deprecations=old)
    assert findings(asked, "indices_open_in_target")
    assert findings(asked, "no_critical_deprecations") == [("index logs", "old")]
    assert findings(asking("9.0.0", to="9.1.0", deprecations=old), "no_critical_deprecations") == []


def test_settings_known_to_target(subtests: pytest.Subtests) -> None:
    for version, to, setting, refused in [
        ("7.17.28", "8.19.0", "node.master", True),
        ("7.17.28", "8.19.0", "node.master.x", False),
        ("7.17.28", "8.19.0", "discovery.zen.minimum_master_nodes", True),
        ("7.17.28", "8.19.0", "discovery.zenith", False),
        ("7.17.28", "8.19.0", "discovery.seed_hosts", False),
        ("7.16.0", "7.17.28", "node.master", False),
        ("8.18.0", "9.1.0", "node.master", False),
        ("6.8.23", "7.17.28", "http.enabled", True),
        ("5.6.16", "6.8.23", "script.inline", True),
        ("snapshot", "8.19.0", "node.master", True),
    ]:
        with subtests.test(version=version, to=to, setting=setting):
            asked = asking(version, to=to, settings={ES1: ("cluster.name", setting)})
            found = findings(asked, "settings_known_to_target")
            assert [subject for subject, _ in found] == ([setting] if refused else [])
            assert not refused or "files of es1" in said(asked, "settings_known_to_target")


def test_snapshot_is_recent(subtests: pytest.Subtests) -> None:
    asked = wanting(asking("9.0.0", to="9.1.0"), upgrade=wanted("9.1.0", snapshot_younger_than=3600.0))
    at = asked.observation.at
    unread = Unknown(reason="repository s3: timed out")
    for ended, says in [
        (at - 3600.0, ""),
        (at - 3601.0, "the youngest, repo/nightly, is 1 h old (1 h allowed)"),
        (None, "there is no finished snapshot"),
        (unread, "timed out"),
    ]:
        with subtests.test(ended=ended):
            seen = seeing(asked, upgrade=replace(FIT, snapshot_ended=ended, snapshot="repo/nightly"))
            assert says in said(seen, "snapshot_is_recent")
            assert bool(findings(seen, "snapshot_is_recent")) is bool(says)
    none_needed = wanting(seeing(asked, upgrade=replace(FIT, snapshot_ended=unread)), upgrade=wanted("9.1.0"))
    assert findings(none_needed, "snapshot_is_recent") == []


def test_disk_space_for_install_and_hosts_can_install(subtests: pytest.Subtests) -> None:
    asked = asking("9.0.0", to="9.1.0")
    ready = asked.observation.readiness
    for free, says in [
        (2 << 30, ""),
        ((2 << 30) - 1, "2.0 GiB are free"),
        (0, "0.0 GiB"),
        (None, "not read"),
    ]:
        with subtests.test(free=free):
            seen = seeing(asked, readiness={**ready, ES1: replace(READY, free_bytes=free)})
            assert says in said(seen, "disk_space_for_install")
            found = findings(seen, "disk_space_for_install")
            assert [subject for subject, _ in found] == (["host of es1"] if says else [])
    without = seeing(asked, readiness={name: one for name, one in ready.items() if name != ES1})
    assert findings(without, "hosts_can_install") == [("host of es1", "not asked yet")]


# Install steps ------------------------------------

FIRST, SECOND = InstallStep(run="install {version}"), InstallStep(run="plugins {version}")
WANTED: Final = Upgrade(
    target="9.2.0", install=(FIRST, SECOND), installed="is it {version}", plugins=("icu",)
)
STEPS: Final = frozenset(Owed(work=Work.INSTALL, number=number) for number in (0, 1))
TICKET: Final = "run-1/es2/0/1"
SENT: Final = Installing(number=0, ticket=TICKET, since=now() - 60.0)
LOADED: Final = frozenset({"icu", "more"})


def at(
    node: NodeProgress,
    *failing: Failing,
    acted: float = 0.0,
    shown: InstallView | Unknown | None = None,
    member: str = "absent",
) -> Situation:
    """es2 is down and this is read of its host."""
    found = situation(node, "gone", member)
    policy = replace(found.policy, upgrade=WANTED)
    state = state_with(found.state, policy=policy, failing=failing, acted_at=acted)
    host = found.seen.host(ES2)
    assert isinstance(host, HostView)
    read = shown if isinstance(shown, Unknown) else replace(host, install=shown)
    return replace(found, state=state, policy=policy, seen=replace(found.seen, hosts={ES2: read}))


def down(*, owed: frozenset[Owed] = STEPS, **fields: object) -> NodeProgress:
    return node_in(NodePhase.STOPPED, **{"owed": owed | {VERSION}, **fields})


def decided(node: NodeProgress, *failing: Failing, **read: Any) -> NodeStep:
    return work.owed_work(at(node, *failing, **read), node)


def action(number: int = 0, tries: int = 1) -> RunInstall:
    return RunInstall(
        node=ES2,
        number=number,
        step=WANTED.install[number],
        ticket=f"run-1/es2/{number}/{tries}",
        target="9.2.0",
        plugins=("icu",),
        installed=None if number else WANTED.installed,
    )


def failed(tries: int, *, ago: float, passes: bool = True, in_doubt: bool = False) -> Failing:
    why = ActionFailed(action=action(tries=tries), reason=f"no {tries}", in_doubt=in_doubt, passes=passes)
    return Failing(last=why, since=now() - ago)


UNREAD: Final = Unknown(reason="timed out")
REJOIN: Final = at(down()).policy.deadlines.rejoin
FLIP: Final = "install step 1 on es2: no 2"


def test_an_install_step_that_stays_refused_ends_the_run(subtests: pytest.Subtests) -> None:
    """For good, at once; else by its first refusal in a row: each try has a ticket of its own."""
    node = down(installs=2)
    for failing, flip, overdue in [
        ((failed(1, ago=REJOIN + 1), failed(2, ago=1.0)), FLIP, True),
        ((failed(1, ago=REJOIN - 1), failed(2, ago=1.0)), None, False),
        ((failed(2, ago=10.0, passes=False),), FLIP, False),
        ((failed(1, ago=20.0), failed(2, ago=10.0, passes=False)), FLIP, False),
    ]:
        with subtests.test(failing=failing):
            found = decided(node, *failing)
            assert (found.flip, found.overdue, found.actions == ()) == (flip, overdue, flip is not None)


def back(
    version: str,
    plugins: frozenset[str] | None = LOADED,
    phase: NodePhase = NodePhase.REJOINED,
    **fields: Any,
) -> Situation:
    """es2 is back in the life that is accounted for."""
    node = node_in(phase, **{"owed": frozenset({VERSION}), "life": NEW, "installs": 2, **fields})
    found = at(node, member="new")
    view = view_of(found)
    nodes = tuple(
        replace(one, version=version, plugins=plugins) if one.name == ES2 else one for one in view.nodes
    )
    return replace(found, seen=replace(found.seen, cluster=replace(view, nodes=nodes)))


def test_a_node_is_upgraded_with_its_version_and_plugins(subtests: pytest.Subtests) -> None:
    """Else it has missed its upgrade; plugins that were not read say nothing."""
    owes: dict[str, Any] = {"owed": frozenset({VERSION, *STEPS})}
    stale = back("9.1.0")
    stale = replace(stale, state=state_with(stale.state, acted_at=stale.seen.at + 1))
    for what, found, upgraded, missed in [
        ("all of it", back("9.2.0"), True, None),
        ("another version", back("9.1.0"), False, ("9.1.0", ())),
        ("without its plugin", back("9.2.0", frozenset()), False, ("9.2.0", ("icu",))),
        ("plugins unread", back("9.2.0", None), False, None),
        ("another version, plugins unread", back("9.1.0", None), False, None),
        ("in its life before", back("9.2.0", life=OLD), False, None),
        ("owes a step", back("9.2.0", **owes), False, None),
        ("owes a step, another version", back("9.1.0", **owes), False, None),
        ("a step under way", back("9.2.0", install=SENT), False, None),
        ("a step under way, another version", back("9.1.0", install=SENT), False, None),
        ("not up", back("9.2.0", phase=NodePhase.STOPPED), False, None),
        ("an old reading", stale, False, None),
    ]:
        with subtests.test(what):
            assert upgrade.news(found) == ((Upgraded(node=ES2, version="9.2.0"),) if upgraded else ())
            told = upgrade.missed(found)
            assert (told and (told.version, told.lacks)) == missed


def test_one_step_a_machine_also_of_a_host_not_read() -> None:
    """What the beginning showed counts where a host does not answer now."""
    found = at(down())
    baseline, host = found.state.baseline, found.seen.host(ES2)
    assert baseline is not None
    assert isinstance(host, HostView)
    state = state_with(found.state, baseline=replace(baseline, machines={ES2: "m", ES3: "m"}))
    hosts = {ES2: replace(host, machine_id="m"), ES3: UNREAD}
    found = replace(found, state=state, seen=replace(found.seen, hosts=hosts))
    steps = (action(), replace(action(), node=ES3))
    assert work.one_a_machine(found, steps) == steps[:1]
    running = NodeProgress(name=ES3, phase=NodePhase.STOPPED, since=0.0, install=SENT, installs=1)
    beside = replace(found, state=state_with(state, nodes={**state.nodes, ES3: running}))
    assert work.owed_work(beside, beside.state.nodes[ES2]) == NodeStep()


def test_nodes_that_run_it_with_its_plugins_are_left_out() -> None:
    old, right, bare, vague = (replace(one, plugins=LOADED) for one in view_of(back("9.1.0")).nodes[:4])
    right = replace(right, version="9.2.0")
    bare = replace(bare, version="9.2.0", plugins=frozenset())
    vague = replace(vague, version="9.2.0", plugins=None)
    policy = at(down()).policy
    assert upgrade.to_upgrade(policy, (old, right, bare, vague)) == (old, bare), "unread: none is missing"
    assert upgrade.to_upgrade(replace(policy, upgrade=None), (right,)) == (right,)
    found = back("9.2.0")
    others = sorted(node.name for node in view_of(found).nodes if node.name != ES2)
    listed = ", ".join(f"{name} 9.1.0" for name in others)
    assert upgrade.mixed(found) == f"the cluster is left with mixed versions: {listed}"
