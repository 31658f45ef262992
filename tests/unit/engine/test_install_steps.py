"""An install step of a node, decision by decision: when it is sent, with which ticket, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine import upgrade
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import RETRY_SECONDS, Situation
from orchestrator.engine.state import Failing
from orchestrator.engine.upgrade import Install
from orchestrator.model.action import RunInstall
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.event import ActionFailed
from orchestrator.model.observation import HostView
from orchestrator.model.phase import NodePhase
from orchestrator.model.reading import Unknown
from orchestrator.model.turn import VERSION, Installing, Owed, Work
from orchestrator.model.upgrade import InstallState, InstallStep, InstallView, Upgrade
from orchestrator.model.upgrade_event import Upgraded
from tests.states import state_with
from tests.unit.engine.asking import ES2, cluster_of
from tests.unit.engine.cells import NEW, OLD, node_in, now, situation

FIRST, SECOND = InstallStep(run="install {version}"), InstallStep(run="plugins {version}")
WANTED = Upgrade(target="9.2.0", install=(FIRST, SECOND), installed="is it {version}", plugins=("icu",))
STEPS = frozenset(Owed(work=Work.INSTALL, number=number) for number in (0, 1))
TICKET = "run-1/es2/0/1"
SENT = Installing(number=0, ticket=TICKET, since=now() - 60.0)


def asked(
    node: NodeProgress,
    *failing: Failing,
    acted: float = 0.0,
    recorded: InstallView | None = None,
    unread: bool = False,
    member: str = "absent",
) -> Situation:
    """es2 is down and this is read of its host."""
    found = situation(node, "gone", member)
    policy = replace(found.policy, upgrade=WANTED)
    state = state_with(found.state, policy=policy, failing=failing, acted_at=acted)
    host = found.seen.host(ES2)
    assert isinstance(host, HostView)
    shown = Unknown(reason="timed out") if unread else replace(host, install=recorded)
    return replace(found, state=state, policy=policy, seen=replace(found.seen, hosts={ES2: shown}))


def down(*, owed: frozenset[Owed] = STEPS, **fields: object) -> NodeProgress:
    return node_in(NodePhase.STOPPED, **{"owed": owed | {VERSION}, **fields})


def decided(node: NodeProgress, *failing: Failing, acted: float = 0.0, **read: object) -> Install:
    return upgrade.install(asked(node, *failing, acted=acted, **read), node)


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
    why = ActionFailed(
        action=action(tries=tries), reason=f"no {tries}", in_doubt=in_doubt, unsent=False, passes=passes
    )
    return Failing(last=why, since=now() - ago)


def recorded(state: InstallState, ticket: str = TICKET) -> InstallView:
    return InstallView(ticket=ticket, state=state, said="it says")


def test_the_first_step_asks_what_is_installed_and_others_do_not() -> None:
    """A step that is done in part would count as all of them."""
    assert decided(down()).actions == (action(),)
    second = down(owed=frozenset({Owed(work=Work.INSTALL, number=1)}), installs=1)
    assert decided(second).actions == (action(1, tries=2),)


def test_one_that_is_not_seen_is_sent_again_with_its_ticket() -> None:
    """Its host begins a ticket once: a new one could run beside the end of the first."""
    assert decided(down(install=SENT, installs=1)).actions == (action(tries=1),)
    assert decided(down(installs=1)).actions == (action(tries=2),)


def test_nothing_is_sent_to_a_host_that_was_not_read() -> None:
    for node in (down(), down(install=SENT, installs=1)):
        assert decided(node, unread=True) == Install()


def test_a_refusal_that_passes_is_tried_again_a_while_later() -> None:
    node = down(installs=1)
    once = failed(1, ago=RETRY_SECONDS)
    assert decided(node, once, acted=now() - RETRY_SECONDS + 1) == Install()
    assert decided(node, once, acted=now() - RETRY_SECONDS).actions == (action(tries=2),)


def test_one_that_is_refused_for_too_long_ends_the_run() -> None:
    """Each try has a ticket of its own: the first refusal in a row counts."""
    node = down(installs=2)
    limit = asked(node).policy.deadlines.rejoin
    tries = failed(1, ago=limit + 1), failed(2, ago=1.0)
    found = decided(node, *tries)
    assert (found.actions, found.flip, found.overdue) == ((), "install step 1 on es2: no 2", True)
    assert decided(node, failed(1, ago=limit - 1), failed(2, ago=1.0)).actions


def test_a_refusal_for_good_ends_the_run_at_once() -> None:
    """Also after one that passes: the lock was held, and then sudo refuses."""
    for before in ((), (failed(1, ago=20.0),)):
        found = decided(down(installs=2), *before, failed(2, ago=10.0, passes=False))
        assert (found.actions, found.flip, found.overdue) == ((), "install step 1 on es2: no 2", False)
    doubt = failed(1, ago=10.0, passes=False, in_doubt=True)
    assert decided(down(install=SENT, installs=1), doubt).actions == (action(tries=1),)


@pytest.mark.parametrize(
    ("state", "flips"),
    [
        (InstallState.DONE, False),
        (InstallState.FOUND, False),
        (InstallState.FAILED, True),
        (InstallState.LOST, True),
    ],
)
def test_the_end_of_its_own_ticket_ends_a_step(state: InstallState, *, flips: bool) -> None:
    node = down(install=SENT, installs=1)
    found = decided(node, recorded=recorded(state))
    assert [(event.state, event.ticket) for event in found.events] == [(state, TICKET)]
    assert (found.flip is not None) is flips
    assert decided(node, recorded=recorded(state, "run-0/es2/0/1")).events == ()
    assert decided(node, recorded=recorded(InstallState.RUNNING)) == Install()


def test_before_a_start_a_step_without_a_record_is_lost() -> None:
    node = down(install=SENT, installs=1)
    host = asked(node).seen.host(ES2)
    assert isinstance(host, HostView)
    ended = upgrade.given_up(host, node)
    assert ended is not None
    assert ended.state is InstallState.LOST
    assert upgrade.given_up(replace(host, install=recorded(InstallState.RUNNING)), node) is None
    assert upgrade.given_up(host, down()) is None


def test_a_step_bars_a_start_while_it_may_run() -> None:
    sent = down(install=SENT, installs=1)
    assert upgrade.barring_start(asked(sent, unread=True), sent) is not None
    assert upgrade.barring_start(asked(down(), unread=True), down()) is None
    assert upgrade.barring_start(asked(sent), sent) is None
    others = recorded(InstallState.RUNNING, "run-0/es2/0/1")
    assert upgrade.barring_start(asked(down(), recorded=others), down()) is not None


# The version ------------------------------------


def back(
    version: str,
    plugins: frozenset[str] | None,
    phase: NodePhase = NodePhase.REJOINED,
    **fields: object,
) -> Situation:
    """es2 is back in the life that is accounted for."""
    node = node_in(phase, **{"owed": frozenset({VERSION}), "life": NEW, "installs": 2, **fields})
    found = asked(node, member="new")
    view = cluster_of(found.seen.cluster)
    nodes = tuple(
        replace(one, version=version, plugins=plugins) if one.name == ES2 else one for one in view.nodes
    )
    return replace(found, seen=replace(found.seen, cluster=replace(view, nodes=nodes)))


LOADED = frozenset({"icu", "more"})


def test_a_node_is_upgraded_with_its_version_and_plugins() -> None:
    assert upgrade.news(back("9.2.0", LOADED)) == (Upgraded(node=ES2, version="9.2.0"),)
    for version, plugins in (("9.1.0", LOADED), ("9.2.0", frozenset[str]()), ("9.2.0", None)):
        assert upgrade.news(back(version, plugins)) == ()
    for fields in (
        {"life": OLD},
        {"owed": frozenset({VERSION, *STEPS})},
        {"install": SENT},
    ):
        assert upgrade.news(back("9.2.0", LOADED, **fields)) == (), fields
    assert upgrade.news(back("9.2.0", LOADED, NodePhase.STOPPED)) == ()


def test_a_node_without_them_has_missed_its_upgrade() -> None:
    for version, plugins, lacks in (("9.1.0", LOADED, ()), ("9.2.0", frozenset[str](), ("icu",))):
        missed = upgrade.missed(back(version, plugins))
        assert missed is not None
        assert (missed.node, missed.version, missed.lacks) == (ES2, version, lacks)
    assert upgrade.missed(back("9.2.0", LOADED)) is None
    assert upgrade.missed(back("9.1.0", None)) is None, "plugins that were not read say nothing"
    stale = back("9.1.0", LOADED)
    stale = replace(stale, state=state_with(stale.state, acted_at=stale.seen.at + 1))
    assert upgrade.missed(stale) is None
    for fields in ({"owed": frozenset({VERSION, *STEPS})}, {"install": SENT}):
        assert upgrade.missed(back("9.1.0", LOADED, **fields)) is None, fields


def _members() -> tuple[Node, ...]:
    view = cluster_of(back("9.1.0", LOADED).seen.cluster)
    old = tuple(replace(node, version="9.1.0", plugins=LOADED) for node in view.nodes[:4])
    right, bare, vague = (replace(one, version="9.2.0", plugins=LOADED) for one in old[1:])
    return old[0], right, replace(bare, plugins=frozenset()), replace(vague, plugins=None)


def test_nodes_that_run_it_with_its_plugins_are_left_out() -> None:
    old, right, bare, vague = _members()
    policy = asked(down()).policy
    chosen = upgrade.to_upgrade(policy, (old, right, bare, vague))
    assert chosen == (old, bare), "of plugins that were not read nothing is missing as far as is known"
    assert upgrade.to_upgrade(replace(policy, upgrade=None), (right,)) == (right,)


def test_the_end_says_which_nodes_run_another_version() -> None:
    found = back("9.2.0", LOADED)
    old = sorted(node.name for node in cluster_of(found.seen.cluster).nodes if node.name != ES2)
    listed = ", ".join(f"{name} 9.1.0" for name in old)
    assert upgrade.mixed(found) == f"the cluster is left with mixed versions: {listed}"


# Machines ------------------------------------


def test_one_step_a_machine_also_of_a_host_not_read() -> None:
    """What the beginning showed counts where a host does not answer now."""
    es3 = NodeName("es3")
    found = asked(down())
    baseline = found.state.baseline
    assert baseline is not None
    state = state_with(found.state, baseline=replace(baseline, machines={ES2: "m", es3: "m"}))
    host = found.seen.host(ES2)
    assert isinstance(host, HostView)
    hosts = {ES2: replace(host, machine_id="m"), es3: Unknown(reason="timed out")}
    found = replace(found, state=state, seen=replace(found.seen, hosts=hosts))
    steps = (action(), replace(action(), node=es3))
    assert upgrade.one_a_machine(found, steps) == steps[:1]
    running = NodeProgress(name=es3, phase=NodePhase.STOPPED, since=0.0, install=SENT, installs=1)
    beside = replace(found, state=state_with(state, nodes={**state.nodes, es3: running}))
    assert upgrade.install(beside, beside.state.nodes[ES2]) == Install()
