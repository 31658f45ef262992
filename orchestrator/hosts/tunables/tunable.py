"""The shape that every tunable has. Pure: facts in, changes out; `hosts/tuner.py` reads and acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a tunable has to know beyond the facts of every host.

    Attributes:
        files: absolute paths and globs (`*`, `?`, `[…]`); `{device}` stands for the name of each device in
            /sys/block, `{unit}` for the node's own service, without `.service`, and those with it are left
            out where the node has none. A path that ends in `/` asks whether there is such a folder: its text
            is empty where there is.
        services: names whose state is asked, without `.service`.
    """

    files: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


class Tunable(Protocol):
    """One thing to set right on a host."""

    @property
    def name(self) -> str:
        """As profiles, tables and the journal call it."""
        ...

    @property
    def reads(self) -> Reads:
        """What to read for it."""
        ...

    def valid(self, setting: TuningSetting) -> str | None:
        """What is wrong with a profile's value; None when it is fine. Asked when the profile is loaded."""
        ...

    def supported(self, facts: HostFacts) -> str | None:
        """Why the host has no such thing; None when it has."""
        ...

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """How it stands, with the changes that would make it right: `apply`, then `persist`."""
        ...

    def apply(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """What makes the running system right; empty when it is."""
        ...

    def persist(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """What makes the next boot right; empty when it will be."""
        ...
