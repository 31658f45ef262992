"""`--reboot` where several nodes share one machine: a reboot would take down more than the wave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.fold import NodeProgress, RecoveringWave, resumed
from orchestrator.engine.kinds.kind import ELASTICSEARCH
from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.situation import Situation
from orchestrator.model.action import RebootHost
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import RunResumed
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Together, Wave
from orchestrator.model.reading import Reading, Unknown
from tests.unit.engine.asking import (
    ES2,
    cluster_of,
    findings,
    holding,
    knowing,
    question,
    seeing,
    viewing,
    wanting,
)

ES5 = NodeName("es5")
PAIR = (ES2, ES5)


def _hosts(asked: Question, **at: tuple[str, str]) -> Question:
    """These nodes are on these machines, in these boots."""
    hosts = dict(asked.observation.hosts)
    for name, (machine, boot) in at.items():
        host = hosts[NodeName(name)]
        assert isinstance(host, HostView)
        hosts[NodeName(name)] = replace(host, machine_id=machine, boot_id=boot)
    return seeing(asked, hosts=hosts)


def test_a_node_of_the_machine_that_is_not_in_the_wave_holds_a_reboot() -> None:
    asked = _hosts(wanting(question(), reboot=True), es2=("m", "b"), es5=("m", "b"))
    assert findings(asked, "selected_hosts_ready") == [
        (
            "host of es2",
            (
                "es5 on the same machine would go down with it: they are not in its wave: select all of "
                "them, or restart them without `--reboot`"
            ),
        )
    ]


def test_nodes_of_one_machine_go_together_on_a_reboot() -> None:
    asked = _hosts(question(wave=("es2", "es5"), reboot=True), es2=("m", "b"), es5=("m", "b"))
    assert findings(asked, "selected_hosts_ready") == []


def test_nodes_of_another_machine_will_have_their_turn_together() -> None:
    """Before the first stop all hosts are asked, also those of nodes that are in a later wave."""
    asked = _hosts(wanting(question(), reboot=True), es3=("m", "b"), es6=("m", "b"))
    assert findings(asked, "selected_hosts_ready") == []


def test_one_that_was_restarted_already_holds_a_reboot_of_its_machine() -> None:
    asked = _hosts(
        wanting(question(), reboot=True), es2=("m", "b"), es5=("m", "b"), es3=("n", "b"), es6=("n", "b")
    )
    for done, held in ((ES5, ["host of es2"]), (NodeName("es6"), ["host of es2", "host of es3"])):
        nodes = {**asked.state.nodes, done: replace(asked.state.nodes[done], phase=NodePhase.RECOVERED)}
        told = findings(knowing(asked, nodes=nodes), "selected_hosts_ready")
        assert [subject for subject, _ in told] == held


def test_never_together_holds_every_reboot_of_a_shared_machine() -> None:
    asked = question(wave=("es2", "es5"), reboot=True, together=Together.NEVER)
    told = findings(_hosts(asked, es2=("m", "b"), es5=("m", "b")), "selected_hosts_ready")
    assert [subject for subject, _ in told] == ["host of es2", "host of es5"]
    assert all("set `hosts.together: reboot`" in evidence for _, evidence in told)


def test_a_host_that_is_silent_now_is_on_the_machine_that_it_was_on() -> None:
    """With another address as well, nothing but what was read when the run began tells of it."""
    asked = wanting(question(), reboot=True)
    seen = {name: host for name, host in asked.observation.hosts.items() if name != ES5}
    began = asked.state.baseline
    assert began is not None
    known = replace(began, machines=dict.fromkeys((ES2, ES5), "m"), boots=dict.fromkeys((ES2, ES5), "b"))
    told = dict(findings(knowing(seeing(asked, hosts=seen), baseline=known), "selected_hosts_ready"))
    assert told["host of es2"].startswith("es5 on the same machine would go down with it")
    assert "host of es2" not in dict(findings(seeing(asked, hosts=seen), "selected_hosts_ready"))


def test_without_a_reboot_each_restarts_for_itself() -> None:
    assert holding(_hosts(question(), es2=("m", "b"), es5=("m", "b"))) == []


@pytest.mark.parametrize("other", [("m", "other"), ("other", "b")], ids=["clones", "containers"])
def test_clones_and_containers_are_machines_of_their_own(other: tuple[str, str]) -> None:
    """Clones of one image share the machine id, containers of one machine the boot id."""
    asked = _hosts(wanting(question(), reboot=True), es2=("m", "b"), es5=other)
    assert findings(asked, "selected_hosts_ready") == []


def test_a_member_whose_host_was_not_read_is_told_by_its_address() -> None:
    asked = wanting(question(), reboot=True)
    nodes = cluster_of(asked.observation.cluster).nodes
    at = next(node.address for node in nodes if node.name == ES2)
    moved = tuple(replace(node, address=at) if node.name == ES5 else node for node in nodes)
    hosts = {name: host for name, host in asked.observation.hosts.items() if name != ES5}
    told = dict(findings(viewing(seeing(asked, hosts=hosts), nodes=moved), "selected_hosts_ready"))
    assert told["host of es2"].startswith("es5 on the same machine")


GONE = HostView(service=ServiceState.STOPPED, detail="dead", boot_id="b")
RUNS = HostView(service=ServiceState.RUNNING, detail="running", boot_id="b")
SILENT = Unknown(reason="timed out")
DOWN = NodeProgress(name=ES2, phase=NodePhase.TUNED, before=Incarnation(ephemeral_id="old"), boot_before="b")
TOLD = replace(DOWN, phase=NodePhase.STARTING, rebooted=True)


def _situation(
    es2: NodeProgress, es5: NodeProgress, *hosts: Reading[HostView], member: bool = False
) -> Situation:
    """The wave of es2 and es5, which share a machine; es2 is a `member` again, in another life."""
    asked = question(reboot=True)
    view = cluster_of(asked.observation.cluster)
    present = tuple(node for node in view.nodes if member and node.name == ES2)
    nodes = {**asked.state.nodes, ES2: es2, ES5: replace(es5, name=ES5)}
    return Situation(
        state=replace(asked.state, wave=Wave(number=1, nodes=PAIR, machines=(PAIR,)), nodes=nodes),
        policy=asked.policy,
        kind=ELASTICSEARCH,
        seen=replace(
            asked.observation,
            hosts=dict(zip(PAIR, hosts, strict=True)),
            cluster=replace(view, nodes=present),
        ),
        now=asked.observation.at,
    )


@pytest.mark.parametrize(
    ("situation", "to_reboot"),
    [
        (_situation(DOWN, DOWN, GONE, GONE), True),
        (_situation(DOWN, DOWN, SILENT, GONE), True),
        # Up again by itself: as its manager says, or as the master does though its host is silent.
        (_situation(DOWN, DOWN, RUNS, GONE), False),
        (_situation(DOWN, DOWN, SILENT, GONE, member=True), False),
        (_situation(replace(DOWN, phase=NodePhase.PENDING), DOWN, SILENT, GONE), False),
        (_situation(replace(DOWN, phase=NodePhase.STARTING), DOWN, GONE, GONE), False),
        # Under way: the first to be back does not end the time that the other has.
        (_situation(TOLD, TOLD, replace(RUNS, boot_id="c"), SILENT), True),
        # In doubt, and taken as not done: again if all are down, not beside one that is up.
        (_situation(*[replace(TOLD, reboot_doubt_since=0.0)] * 2, GONE, GONE), True),
        (_situation(*[replace(TOLD, reboot_doubt_since=0.0)] * 2, RUNS, GONE), False),
    ],
)
def test_a_machine_is_rebooted_while_none_of_its_nodes_is_up(
    situation: Situation, *, to_reboot: bool
) -> None:
    assert [situation.to_reboot(node) for node in situation.state.wave_nodes] == [to_reboot] * 2


def test_a_reboot_under_way_when_the_program_was_killed_is_in_doubt_for_every_node_it_is_for() -> None:
    state = replace(
        _situation(TOLD, TOLD, SILENT, SILENT).state,
        in_flight=(RebootHost(node=ES2, also=(ES5,)),),
        phase=Phase.DOWN,
    )
    after = resumed(state, RunResumed(operator="ann", host="bastion"), 7.0)
    assert [node.reboot_doubt_since for node in after.wave_nodes] == [7.0, 7.0]


def test_what_a_resumed_run_has_in_hand_keeps_its_machines() -> None:
    """With overlap a wave that recovers and the one in hand become one."""
    es3, es6 = (NodeName(name) for name in ("es3", "es6"))
    state = _situation(TOLD, TOLD, SILENT, SILENT).state
    nodes = {name: replace(state.nodes[name], phase=NodePhase.REJOINED) for name in (es3, es6)}
    before = Wave(number=1, nodes=(es3, es6), machines=((es3, es6),))
    state = replace(
        state,
        nodes={**state.nodes, **nodes},
        recovering=(RecoveringWave(wave=before, since=0.0),),
        phase=Phase.DOWN,
    )
    wave = resumed(state, RunResumed(operator="ann", host="bastion"), 7.0).wave
    assert wave is not None
    assert set(wave.nodes) == {ES2, ES5, es3, es6}
    assert wave.machines == ((es3, es6), PAIR)
