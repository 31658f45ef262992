"""Nodes that share a machine: who does, what holds a reboot of more than the wave, one reboot for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.machines import Machines
from orchestrator.engine.node import turn
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import Situation
from orchestrator.model.action import RebootHost, action_name, action_target
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import PhaseEntered
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Hook, Hooks, Together, Wave
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.turn import REBOOT, RESTART, Doubt, Owed, Verb, Work
from tests.states import state_with
from tests.unit.engine.asking import (
    ES1,
    ES2,
    ES5,
    ES6,
    findings,
    holding,
    hosting,
    knowing,
    question,
    seeing,
    situation_of,
    view_of,
    viewing,
    ways,
    with_node,
)

RULE: Final = "selected_hosts_ready"
PAIR: Final = (ES2, ES5)
BOTH: Final = Wave(number=1, nodes=PAIR, machines=(PAIR,))

# Who shares a machine ------------------------------------

SAME, CLONE, CONTAINER = ("m", "boot"), ("m", "boot-2"), ("other", "boot")
Read = tuple[str, str]


def _machines(
    *, began: dict[str, Read] | None = None, now: dict[str, Read] | None = None, addresses: str = ""
) -> Machines:
    """`addresses` as `es1@10.0.0.1 es2@10.0.0.1`."""
    at = (entry.split("@") for entry in addresses.split())
    return Machines(
        began={NodeName(name): read for name, read in (began or {}).items()},
        now={NodeName(name): read for name, read in (now or {}).items()},
        addresses={NodeName(name): address for name, address in at},
    )


def test_machines_shared(subtests: pytest.Subtests) -> None:
    """Clones of one image share the machine id, containers of one machine the boot id."""
    for machines, shared in [
        (_machines(now={"es1": SAME, "es2": SAME}), True),
        (_machines(now={"es1": SAME, "es2": CLONE}), False),
        (_machines(now={"es1": SAME, "es2": CONTAINER}), False),
        (_machines(began={"es1": SAME, "es2": SAME}), True),
        # One that is silent now, or was read before the reboot of the other, is where it was.
        (_machines(began={"es1": SAME, "es2": SAME}, now={"es1": CLONE, "es2": SAME}), True),
        (_machines(began={"es1": SAME, "es2": SAME}, now={"es1": CLONE}), True),
        (_machines(began={"es1": SAME, "es2": CLONE}, now={"es1": SAME, "es2": SAME}), False),
        (_machines(began={"es1": SAME}, now={"es1": SAME, "es2": SAME}), True),
        (_machines(addresses="es1@a es2@a"), True),
        (_machines(addresses="es1@a es2@b"), False),
        (_machines(addresses="es2@a"), False),
        # The address counts where a host was never read.
        (_machines(now={"es1": SAME}, addresses="es1@a es2@a"), True),
        (_machines(now={"es1": SAME, "es2": CLONE}, addresses="es1@a es2@a"), False),
        (_machines(now={"es1": SAME, "es2": SAME}, addresses="es1@a es2@b"), True),
        (_machines(), False),
    ]:
        with subtests.test(machines=machines):
            assert machines.shared(ES1, ES2) is machines.shared(ES2, ES1) is shared
            assert machines.others(ES1) == ([ES2] if shared else [])
            assert machines.among([ES2, ES1]) == (((ES2, ES1),) if shared else ())
    # es3 was never read and has the address of es2; es1 and es2 were.
    three = _machines(
        now={"es1": SAME, "es2": SAME, "es4": CLONE}, addresses="es1@a es2@b es3@b es4@c es5@d es6@d"
    )
    names = [NodeName(f"es{number}") for number in (6, 1, 4, 3, 5, 2)]
    assert three.among(names) == (("es6", "es5"), ("es1", "es2", "es3"))
    assert three.others(ES1) == [ES2]


# What holds a reboot ------------------------------------


def _hosts(asked: Question, **at: str) -> Question:
    """These nodes are on these machines, in one boot."""
    for name, machine in at.items():
        asked = hosting(asked, NodeName(name), machine_id=machine, boot_id="b")
    return asked


def _rebooting(*wave: str, **changes: object) -> Question:
    return question(wave=wave or ("es2",), reboot=True, **changes)


def _held(asked: Question) -> list[str]:
    return [subject for subject, _ in findings(asked, RULE)]


def test_selected_hosts_ready_for_a_reboot_of_the_whole_machine(subtests: pytest.Subtests) -> None:
    """Before the first stop all hosts are asked, also those of nodes that are in a later wave."""
    pair = {"es2": "m", "es5": "m"}
    two = _hosts(_rebooting(), **pair, es3="n", es6="n")
    done = [
        knowing(two, nodes=with_node(two.state, one, phase=NodePhase.RECOVERED).nodes) for one in (ES5, ES6)
    ]
    apart = hosting(_hosts(_rebooting(), **pair), ES5, boot_id="other")
    for what, asked, held in [
        ("a node outside the wave", _hosts(_rebooting(), **pair), ["host of es2"]),
        ("both in the wave", _hosts(_rebooting("es2", "es5"), **pair), []),
        ("another machine, later", _hosts(_rebooting(), es3="m", es6="m"), []),
        ("another boot", apart, []),
        ("another machine id", _hosts(_rebooting(), es2="m", es5="n"), []),
        ("one was restarted already", done[0], ["host of es2"]),
        ("one of another machine too", done[1], ["host of es2", "host of es3"]),
        ("never together", _hosts(_rebooting("es2", "es5", together=Together.NEVER), **pair),
         ["host of es2", "host of es5"]),
    ]:  # fmt: skip
        with subtests.test(what):
            assert _held(asked) == held
    assert holding(_hosts(question(), **pair)) == [], "without a reboot each restarts for itself"
    alone = _hosts(_rebooting(), **pair)
    assert findings(alone, RULE)[0][1] == "es5 on the same machine would go down with it"
    assert ways(alone, RULE) == ("all of them selected, so that they go together, or no `--reboot`",)
    (way,) = ways(_hosts(_rebooting("es2", "es5", together=Together.NEVER), **pair), RULE)
    assert way.startswith("`hosts.together: reboot` in the cluster file")


def test_machine_of_an_unread_host_by_its_beginning_or_address() -> None:
    asked = _rebooting()
    seen = {name: host for name, host in asked.observation.hosts.items() if name != ES5}
    asked, began = seeing(asked, hosts=seen), asked.state.baseline
    assert began is not None
    known = replace(began, machines=dict.fromkeys(PAIR, "m"), boots=dict.fromkeys(PAIR, "b"))
    nodes = view_of(asked).nodes
    at = view_of(asked).members[ES2].address
    moved = tuple(replace(node, address=at) if node.name == ES5 else node for node in nodes)
    for found in (knowing(asked, baseline=known), viewing(asked, nodes=moved)):
        said = dict(findings(found, RULE))
        assert said["host of es2"].startswith("es5 on the same machine would go down with it")
    assert "host of es2" not in dict(findings(asked, RULE))


# One reboot of a machine ------------------------------------

GONE: Final = HostView(service=ServiceState.STOPPED, detail="dead", boot_id="b")
ON_ITS_WAY: Final = replace(GONE, service=ServiceState.STOPPING)
RUNS: Final = HostView(service=ServiceState.RUNNING, detail="running", boot_id="b")
SILENT: Final = Unknown(reason="timed out")
OWED: Final = frozenset({RESTART, REBOOT})
DOWN: Final = NodeProgress(
    name=ES2, phase=NodePhase.STOPPED, life=Incarnation(ephemeral_id="old"), boot="b", owed=OWED
)
NOW: Final = question().observation.at
REBOOTED: Final = ["reboot es2", ""]
STARTED: Final = [">starting start es2", ">starting start es5"]


def _in(phase: NodePhase) -> NodeProgress:
    return replace(DOWN, phase=phase)


def _told(ago: float, *, accepted: bool = True) -> NodeProgress:
    """Its host was told to reboot so long ago."""
    doubt = Doubt(verb=Verb.REBOOT, since=NOW - ago, accepted=accepted)
    return replace(DOWN, since=NOW, doubt=doubt, reboots=1)


def _situation(
    es2: NodeProgress, es5: NodeProgress, *hosts: Reading[HostView], member: bool = False
) -> Situation:
    """The wave of es2 and es5, which share a machine; es2 is a `member` again, in another life."""
    asked = question(reboot=True, hooks=Hooks(while_stopped=(Hook(run="tune {node}"),)))
    present = tuple(node for node in view_of(asked).nodes if member and node.name == ES2)
    pair = (replace(es2, since=es2.since or NOW), replace(es5, name=ES5, since=es5.since or NOW))
    seen = seeing(viewing(asked, nodes=present), hosts=dict(zip(PAIR, hosts, strict=True)))
    return situation_of(seen, Phase.DOWN, wave=BOTH, nodes=asked.state.nodes.changed(*pair))


def _did(situation: Situation) -> list[str]:
    """What each node of the wave enters and sends."""
    did = []
    for node in situation.state.wave_nodes:
        told = turn(situation, node)
        steps = [f">{event.to}" for event in told.events if isinstance(event, PhaseEntered)]
        did.append(" ".join([*steps, *(f"{action_name(one)} {action_target(one)}" for one in told.actions)]))
    return did


def test_a_machine_is_rebooted_once_with_all_of_its_nodes_down(subtests: pytest.Subtests) -> None:
    hook = replace(DOWN, owed=frozenset({*OWED, Owed(work=Work.HOOK)}))
    under_way, lost = [_told(60.0)] * 2, [_told(31.0, accepted=False)] * 2
    other_boot = replace(RUNS, boot_id="c")
    for what, situation, wanted in [
        ("both are down", _situation(DOWN, DOWN, GONE, GONE), REBOOTED),
        ("one host does not answer", _situation(DOWN, DOWN, SILENT, GONE), ["", ""]),
        ("one goes down", _situation(DOWN, _in(NodePhase.STOPPING), GONE, ON_ITS_WAY), ["", ""]),
        ("one needs a hook first", _situation(DOWN, hook, GONE, GONE), ["", "hook_while_stopped es5"]),
        ("one came up by itself", _situation(DOWN, DOWN, RUNS, GONE), [">starting", STARTED[1]]),
        (
            "the master lists one",
            _situation(DOWN, DOWN, SILENT, GONE, member=True),
            [">starting", STARTED[1]],
        ),
        ("one never stopped", _situation(_in(NodePhase.PENDING), DOWN, SILENT, GONE), ["", STARTED[1]]),
        ("one starts", _situation(_in(NodePhase.STARTING), DOWN, GONE, GONE), ["start es2", STARTED[1]]),
        ("the reboot is under way", _situation(*under_way, SILENT, GONE), ["", ""]),
        ("one is back in the other boot", _situation(*under_way, other_boot, SILENT), [">starting", ""]),
        ("lost, and both are down half a minute later", _situation(*lost, GONE, GONE), REBOOTED),
        ("lost, and one came up", _situation(*lost, RUNS, GONE), [">starting", STARTED[1]]),
    ]:
        with subtests.test(what):
            assert _did(situation) == wanted
    situation = _situation(DOWN, DOWN, GONE, GONE)
    (reboot,) = turn(situation, situation.state.nodes[ES2]).actions
    assert reboot == RebootHost(node=ES2, also=(ES5,))
    assert _did(replace(situation, state=state_with(situation.state, lease_lost="to eve"))) == STARTED
