"""Nodes that share a machine: who does, and what holds a reboot of more than the wave."""

from __future__ import annotations

from typing import Final

import pytest

from orchestrator.engine.predicates import Question
from orchestrator.engine.waves import Machines
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Together
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
    ways,
    with_node,
)

RULE: Final = "selected_hosts_ready"

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
