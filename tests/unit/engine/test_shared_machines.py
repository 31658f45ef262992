"""`--reboot` where several nodes share one machine: a reboot would take down more than the wave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.kind import ELASTICSEARCH
from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.node import turn
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RecoveringWave, RunState
from orchestrator.model.action import RebootHost, action_name, action_target
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ActionSent, PhaseEntered, Record, RunResumed
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Hook, Hooks, Together, Wave
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.turn import REBOOT, RESTART, Doubt, Owed, Verb, Work
from tests.states import state_with
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
    ways,
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


def test_a_node_of_the_machine_outside_the_wave_holds_a_reboot() -> None:
    asked = _hosts(wanting(question(), reboot=True), es2=("m", "b"), es5=("m", "b"))
    assert findings(asked, "selected_hosts_ready") == [
        ("host of es2", "es5 on the same machine would go down with it")
    ]
    assert ways(asked, "selected_hosts_ready") == (
        "all of them selected, so that they go together, or no `--reboot`",
    )


def test_nodes_of_one_machine_go_together_on_a_reboot() -> None:
    asked = _hosts(question(wave=("es2", "es5"), reboot=True), es2=("m", "b"), es5=("m", "b"))
    assert findings(asked, "selected_hosts_ready") == []


def test_nodes_of_another_machine_will_have_their_turn_together() -> None:
    """Before the first stop all hosts are asked, also those of nodes that are in a later wave."""
    asked = _hosts(wanting(question(), reboot=True), es3=("m", "b"), es6=("m", "b"))
    assert findings(asked, "selected_hosts_ready") == []


def test_a_node_restarted_already_holds_a_reboot_of_its_machine() -> None:
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
    (way,) = ways(_hosts(asked, es2=("m", "b"), es5=("m", "b")), "selected_hosts_ready")
    assert way.startswith("`hosts.together: reboot` in the cluster file")


def test_an_unreachable_host_is_on_the_machine_that_it_was_on() -> None:
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
ON_ITS_WAY = replace(GONE, service=ServiceState.STOPPING)
RUNS = HostView(service=ServiceState.RUNNING, detail="running", boot_id="b")
SILENT = Unknown(reason="timed out")
OWED = frozenset({RESTART, REBOOT})
DOWN = NodeProgress(
    name=ES2, phase=NodePhase.STOPPED, life=Incarnation(ephemeral_id="old"), boot="b", owed=OWED
)
HOOK = frozenset({*OWED, Owed(work=Work.HOOK)})


def _told(now: float, ago: float, *, accepted: bool = True) -> NodeProgress:
    """Its host was told to reboot so long ago."""
    doubt = Doubt(verb=Verb.REBOOT, since=now - ago, accepted=accepted)
    return replace(DOWN, since=now, doubt=doubt, reboots=1)


def _situation(
    es2: NodeProgress, es5: NodeProgress, *hosts: Reading[HostView], member: bool = False
) -> Situation:
    """The wave of es2 and es5, which share a machine; es2 is a `member` again, in another life."""
    hooks = Hooks(while_stopped=(Hook(run="tune {node}"),))
    asked = question(reboot=True, hooks=hooks)
    view = cluster_of(asked.observation.cluster)
    present = tuple(node for node in view.nodes if member and node.name == ES2)
    now = asked.observation.at
    pair = (replace(es2, since=es2.since or now), replace(es5, name=ES5, since=es5.since or now))
    return Situation(
        state=replace(
            asked.state,
            phase=Phase.DOWN,
            wave=Wave(number=1, nodes=PAIR, machines=(PAIR,)),
            nodes=asked.state.nodes.changed(*pair),
        ),
        policy=asked.policy,
        kind=ELASTICSEARCH,
        seen=replace(
            asked.observation,
            hosts=dict(zip(PAIR, hosts, strict=True)),
            cluster=replace(view, nodes=present),
        ),
        now=now,
    )


REBOOTED = ["reboot es2", ""]
STARTED = [">starting start es2", ">starting start es5"]
NOW = question().observation.at
MACHINES: tuple[tuple[str, Situation, list[str]], ...] = (
    ("both are down", _situation(DOWN, DOWN, GONE, GONE), REBOOTED),
    ("one host does not answer", _situation(DOWN, DOWN, SILENT, GONE), ["", ""]),
    (
        "one is still on its way down",
        _situation(DOWN, replace(DOWN, phase=NodePhase.STOPPING), GONE, ON_ITS_WAY),
        ["", ""],
    ),
    (
        "one still needs a hook, which comes first",
        _situation(DOWN, replace(DOWN, owed=HOOK), GONE, GONE),
        ["", "hook_while_stopped es5"],
    ),
    ("one came up by itself", _situation(DOWN, DOWN, RUNS, GONE), [">starting", STARTED[1]]),
    (
        "one is back, by the master's list alone",
        _situation(DOWN, DOWN, SILENT, GONE, member=True),
        [">starting", STARTED[1]],
    ),
    (
        "one was never stopped",
        _situation(replace(DOWN, phase=NodePhase.PENDING), DOWN, SILENT, GONE),
        ["", STARTED[1]],
    ),
    (
        "one is being started",
        _situation(replace(DOWN, phase=NodePhase.STARTING), DOWN, GONE, GONE),
        ["start es2", STARTED[1]],
    ),
    (
        "the reboot is under way",
        _situation(_told(NOW, 60.0), _told(NOW, 60.0), SILENT, GONE),
        ["", ""],
    ),
    (
        "one is back in the other boot, the other not yet",
        _situation(_told(NOW, 60.0), _told(NOW, 60.0), replace(RUNS, boot_id="c"), SILENT),
        [">starting", ""],
    ),
    (
        "the connection was lost, and both are down half a minute later",
        _situation(*[_told(NOW, 31.0, accepted=False)] * 2, GONE, GONE),
        REBOOTED,
    ),
    (
        "the connection was lost, and one came up",
        _situation(*[_told(NOW, 31.0, accepted=False)] * 2, RUNS, GONE),
        [">starting", STARTED[1]],
    ),
)


def _did(situation: Situation, node: NodeProgress) -> str:
    told = turn(situation, node)
    steps = [f">{event.to}" for event in told.events if isinstance(event, PhaseEntered)]
    return " ".join([*steps, *(f"{action_name(one)} {action_target(one)}" for one in told.actions)])


def test_a_machine_is_rebooted_once_with_all_of_its_nodes_down() -> None:
    wrong = []
    for what, situation, wanted in MACHINES:
        did = [_did(situation, node) for node in situation.state.wave_nodes]
        wrong += [] if did == wanted else [f"{what}: {did}, not {wanted}"]
    assert wrong == []


def test_the_reboot_is_for_all_nodes_of_the_machine() -> None:
    situation = _situation(DOWN, DOWN, GONE, GONE)
    (reboot,) = turn(situation, situation.state.nodes[ES2]).actions
    assert reboot == RebootHost(node=ES2, also=(ES5,))


def test_without_the_lease_a_machine_is_started_and_not_rebooted() -> None:
    situation = _situation(DOWN, DOWN, GONE, GONE)
    situation = replace(situation, state=state_with(situation.state, lease_lost="to eve"))
    assert [_did(situation, node) for node in situation.state.wave_nodes] == STARTED


def _resumed(state: RunState) -> RunState:
    resumed = RunResumed(operator="ann", host="bastion")
    return evolve(state, Record(run=state.run, sequence=99, at=NOW + 7.0, event=resumed))


def test_after_a_kill_a_reboot_is_in_doubt_for_all_of_its_nodes() -> None:
    state = _situation(DOWN, DOWN, SILENT, SILENT).state
    sent = ActionSent(action=RebootHost(node=ES2, also=(ES5,)))
    state = evolve(state, Record(run=state.run, sequence=98, at=NOW, event=sent))
    doubt = Doubt(verb=Verb.REBOOT, since=NOW + 7.0)
    assert [node.doubt for node in _resumed(state).wave_nodes] == [doubt, doubt]


def test_what_a_resumed_run_restarts_keeps_its_machines() -> None:
    """With overlap a wave that recovers and the current one become one."""
    es3, es6 = (NodeName(name) for name in ("es3", "es6"))
    state = _situation(DOWN, DOWN, SILENT, SILENT).state
    nodes = (replace(state.nodes[name], phase=NodePhase.REJOINED) for name in (es3, es6))
    before = Wave(number=1, nodes=(es3, es6), machines=((es3, es6),))
    state = replace(
        state, nodes=state.nodes.changed(*nodes), recovering=(RecoveringWave(wave=before, since=0.0),)
    )
    wave = _resumed(state).wave
    assert wave is not None
    assert set(wave.nodes) == {ES2, ES5, es3, es6}
    assert wave.machines == ((es3, es6), PAIR)
