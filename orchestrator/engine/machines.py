"""Which nodes share a machine, as far as can be told. Pure.

Of hosts that were read, machine and boot are compared: clones of one image share a machine id, containers of
one machine the boot id, only nodes of one machine both. What was read when the run began counts to its end:
a host that does not answer now, or has another boot by now, is still on the machine that it was on. Nodes of
which one host was never read are told by their address alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Observation
from orchestrator.model.reading import Unknown

_Boot = tuple[str, str]
"""Machine id and boot id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What tells the machines of nodes apart.

    Attributes:
        began: as it was when the run began; `now`, as it was just read.
        addresses: of the members.
    """

    began: Mapping[NodeName, _Boot]
    now: Mapping[NodeName, _Boot]
    addresses: Mapping[NodeName, str]

    def shared(self, one: NodeName, other: NodeName) -> bool:
        """Whether these two are on one machine."""
        for read in (self.began, self.now):
            if one in read and other in read:
                return read[one] == read[other]
        return one in self.addresses and self.addresses[one] == self.addresses.get(other)

    def others(self, name: NodeName) -> list[NodeName]:
        """The other nodes on a node's machine, by name."""
        known = {*self.began, *self.now, *self.addresses} - {name}
        return sorted(other for other in known if self.shared(name, other))

    def among(self, names: Iterable[NodeName]) -> tuple[tuple[NodeName, ...], ...]:
        """Those of these nodes that share a machine, machine by machine, in the order given."""
        left, found = list(names), []
        while left:
            machine = [left.pop(0)]
            for name in machine:  # it grows meanwhile: whoever shares with one of them is of them
                machine += [other for other in left if self.shared(name, other)]
                left = [other for other in left if other not in machine]
            if len(machine) > 1:
                found.append(tuple(machine))
        return tuple(found)


def machines_of(state: RunState, seen: Observation) -> Machines:
    """What is known of machines by the journal and this reading."""
    began = state.baseline
    hosts = {name: host for name, host in seen.hosts.items() if not isinstance(host, Unknown)}
    return Machines(
        began={
            name: (began.machines[name], began.boots[name]) for name in began.machines if name in began.boots
        }
        if began
        else {},
        now={
            name: (host.machine_id, host.boot_id)
            for name, host in hosts.items()
            if host.machine_id and host.boot_id
        },
        addresses={}
        if isinstance(seen.cluster, Unknown)
        else {node.name: node.address for node in seen.cluster.nodes},
    )
