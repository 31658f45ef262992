"""The interface of every tunable. Pure: facts in, changes out; `hosts/tuner.py` reads and acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The facts that a tunable needs beyond those of every host.

    Attributes:
        files: absolute paths and globs (`*`, `?`, `[…]`). `{unit}` is replaced by the node's own service,
            without `.service`; without such a service, the paths with `{unit}` are left out. A path that ends
            in `/` checks for a folder: the text of an existing folder is empty.
        services: names of services to check, without `.service`.
        queue: files in `/sys/block/NAME/queue` of every device behind the data.
    """

    files: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()


class Tunable(Protocol):
    """One setting of a host that can be made right."""

    @property
    def name(self) -> str:
        """Its name in profiles, tables and the journal."""
        ...

    @property
    def reads(self) -> Reads:
        """The facts to read for it."""
        ...

    def valid(self, setting: TuningSetting) -> str | None:
        """The fault in a profile's value; None if it is valid. Called when the profile is loaded."""
        ...

    def supported(self, facts: HostFacts) -> str | None:
        """Why the host has no such setting; None if it has."""
        ...

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """Its state now, with the changes that would make it right."""
        ...

    def apply(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """The changes that make it right; empty if it is."""
        ...

    def line(self, setting: TuningSetting) -> str:
        """Its line of the boot script; empty for what a file or service of its own sets at boot."""
        ...
