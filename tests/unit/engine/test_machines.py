"""Who shares a machine, as far as can be told."""

from __future__ import annotations

import pytest

from orchestrator.engine.machines import Machines
from orchestrator.model.cluster import NodeName

M, BOOT, LATER = "machine", "boot", "boot-2"


def _named(of: dict[str, tuple[str, str]]) -> dict[NodeName, tuple[str, str]]:
    return {NodeName(name): read for name, read in of.items()}


def _machines(
    *,
    began: dict[str, tuple[str, str]] | None = None,
    now: dict[str, tuple[str, str]] | None = None,
    addresses: str = "",
) -> Machines:
    """`addresses` as `es1@10.0.0.1 es2@10.0.0.1`."""
    at = (entry.split("@") for entry in addresses.split())
    return Machines(
        began=_named(began or {}),
        now=_named(now or {}),
        addresses={NodeName(name): address for name, address in at},
    )


SAME, CLONE, CONTAINER = (M, BOOT), (M, LATER), ("other", BOOT)


def test_who_shares(subtests: pytest.Subtests) -> None:
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
        with subtests.test(machines=machines, shared=shared):
            es1, es2 = NodeName("es1"), NodeName("es2")
            assert machines.shared(es1, es2) is shared
            assert machines.shared(es2, es1) is shared
            assert machines.others(es1) == ([es2] if shared else [])
            assert machines.among([es2, es1]) == (((es2, es1),) if shared else ())


def test_who_shares_with_one_of_a_machine_is_of_it() -> None:
    """es3 was never read and has the address of es2; es1 and es2 were."""
    machines = _machines(
        now={"es1": SAME, "es2": SAME, "es4": CLONE}, addresses="es1@a es2@b es3@b es4@c es5@d es6@d"
    )
    names = [NodeName(f"es{number}") for number in (6, 1, 4, 3, 5, 2)]
    assert machines.among(names) == (("es6", "es5"), ("es1", "es2", "es3"))
    assert machines.others(NodeName("es1")) == ["es2"]
