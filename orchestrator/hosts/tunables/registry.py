"""All tunables, in the order in which they are made.

The order settles conflicts. tuned comes first, since switching its profile restores the values that it once
found. numad comes before huge pages (its own option `-H` changes khugepaged's pace). A disk's scheduler comes
before the depth of its queue, which the kernel resets with the scheduler. Tunables that count only at the
node's next start come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from orchestrator.hosts.tunables.erlang import ERLANG_SCHEDULERS
from orchestrator.hosts.tunables.huge_pages import DEFRAG, ENABLED, KHUGEPAGED_DEFRAG
from orchestrator.hosts.tunables.io_scheduler import IO_SCHEDULER
from orchestrator.hosts.tunables.jvm import JVM_HUGE_PAGES
from orchestrator.hosts.tunables.kernel_parameters import PARAMETERS
from orchestrator.hosts.tunables.limits import LOCKED_MEMORY, OPEN_FILES
from orchestrator.hosts.tunables.numad import NUMAD
from orchestrator.hosts.tunables.queues import READ_AHEAD, REQUESTS
from orchestrator.hosts.tunables.tunable import Reads, Tunable
from orchestrator.hosts.tunables.tuned import TUNED
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import HostTuning, TuningProfile, TuningSetting

_IN_ORDER: Final[tuple[Tunable, ...]] = (
    TUNED,
    NUMAD,
    ENABLED,
    DEFRAG,
    KHUGEPAGED_DEFRAG,
    IO_SCHEDULER,
    REQUESTS,
    READ_AHEAD,
    *PARAMETERS,
    JVM_HUGE_PAGES,
    OPEN_FILES,
    LOCKED_MEMORY,
    ERLANG_SCHEDULERS,
)

TUNABLES: Final[Mapping[str, Tunable]] = {tunable.name: tunable for tunable in _IN_ORDER}
"""By name, in order."""

RULES: Final[Mapping[str, Callable[[TuningSetting], str | None]]] = {
    name: tunable.valid for name, tunable in TUNABLES.items()
}
"""The valid values of each, in order, for the loader of profiles."""


def wanted(profile: TuningProfile) -> Iterator[tuple[Tunable, TuningSetting]]:
    """The profile's settings with their tunables, in the order in which they are made.

    Raises:
        KeyError: the profile names an unknown tunable; the loader of profiles refuses such a profile.
    """
    unknown = {setting.tunable for setting in profile.settings} - TUNABLES.keys()
    if unknown:
        raise KeyError(f"no such tunable: {', '.join(sorted(unknown))}")
    for name, tunable in TUNABLES.items():
        for setting in profile.settings:
            if setting.tunable == name:
                yield tunable, setting


def reads(profile: TuningProfile) -> Reads:
    """Everything to read for the profile's tunables, each thing once."""
    asked = [tunable.reads for tunable, _ in wanted(profile)]
    return Reads(
        files=tuple(dict.fromkeys(path for one in asked for path in one.files)),
        services=tuple(dict.fromkeys(name for one in asked for name in one.services)),
    )


def standing(facts: HostFacts, profile: TuningProfile) -> HostTuning:
    """The state of a host against a profile, tunable by tunable in the order in which they are made."""
    return HostTuning(
        states=tuple(tunable.check(facts, setting, profile) for tunable, setting in wanted(profile))
    )
