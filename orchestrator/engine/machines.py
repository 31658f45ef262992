"""Which nodes share a machine: by the ids of machine and boot that their hosts report, else by address."""

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
    """The data that distinguishes the machines of nodes.

    Attributes:
        began: machine and boot ids when the run began; `now`, in the latest reading.
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
            for name in machine:  # it grows in the loop: sharing with one of them is sharing with all
                machine += [other for other in left if self.shared(name, other)]
                left = [other for other in left if other not in machine]
            if len(machine) > 1:
                found.append(tuple(machine))
        return tuple(found)


def machines_of(state: RunState, seen: Observation) -> Machines:
    """The data on machines in the journal and this reading."""
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
