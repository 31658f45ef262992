"""What a node tells its peers of itself, and what one node knows of all when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A handoff that is running, as `transfers` shows it at its source."""

    partition: int  # its number
    source: str  # who sends
    target: str  # who gets it
    started: float  # in seconds since 1970
    age: float  # seconds since the start
    update_age: float | None  # seconds since the last progress; None before the first
    total: int  # objects to send
    sent: int  # objects sent
    rate: int = 425  # objects a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One running node about itself."""

    name: str  # of the node
    ring: Ring  # as it knows it
    vnodes: frozenset[int]  # numbers of the partitions whose vnodes run
    transfer_limit: int = 2  # as set now; it starts as configured, whatever it was set to before
    services: tuple[str, ...] = ()  # what its node watcher lists
    transfers: tuple[Transfer, ...] = ()  # those that it sends
    timer: int = 10_000  # `vnode_management_timer` in its memory, in milliseconds
    # numbers of the partitions of others whose vnodes it has never started
    unstarted: frozenset[int] = frozenset()

    @property
    def missing(self) -> int:
        """How many partitions of its own do not run."""
        return len(self.ring.owned(self.name) - self.vnodes)

    @property
    def waiting(self) -> int:
        """How many partitions of others it runs, which wait to be handed off."""
        return len(self.vnodes - self.ring.owned(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a node answers from."""

    me: Report  # its own report
    # the reports of the members that it can reach
    others: Mapping[str, Report] = field(default_factory=dict, hash=False)
    now: float = 0.0  # seconds since 1970
    pid: int = 0  # of the node's process
    schedulers: int = 2  # Erlang's `schedulers`, fixed when the process started
    schedulers_online: int = 2  # as above
    processors: int = 2  # of the machine
    age: float = 0.0  # seconds since the node started
    # of 3.x, by name; the ring keeps them, whether a node is up or not
    locations: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def ring(self) -> Ring:
        """As this node knows it."""
        return self.me.ring

    def report(self, name: str) -> Report | None:
        """Of a member, or None if it cannot be reached."""
        return self.me if name == self.me.name else self.others.get(name)

    @property
    def reports(self) -> tuple[Report, ...]:
        """Of all members that can be reached, in the order of their names."""
        return tuple(report for name in self.ring.members if (report := self.report(name)))

    @property
    def down(self) -> tuple[str, ...]:
        """Members that cannot be reached."""
        return tuple(name for name in self.ring.members if self.report(name) is None)


def to_json(report: Report) -> dict[str, Any]:
    """As it goes over the network."""
    found = _fields(report)
    return {
        **found,
        "ring": _fields(report.ring),
        "vnodes": sorted(report.vnodes),
        "unstarted": sorted(report.unstarted),
        "transfers": [_fields(each) for each in report.transfers],
    }


def _fields(value: Any) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies all that is below too: it was half of what a node cost."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def from_json(data: Mapping[str, Any]) -> Report:
    """What came over the network.

    Raises:
        KeyError, TypeError, ValueError: it is no report.
    """
    rest = {
        key: value for key, value in data.items() if key not in {"ring", "vnodes", "unstarted", "transfers"}
    }
    return Report(
        **{**rest, "services": tuple(rest["services"])},
        ring=Ring(
            claimant=data["ring"]["claimant"],
            members=tuple(data["ring"]["members"]),
            owners=tuple(data["ring"]["owners"]),
        ),
        vnodes=frozenset(data["vnodes"]),
        unstarted=frozenset(data["unstarted"]),
        transfers=tuple(Transfer(**each) for each in data["transfers"]),
    )
