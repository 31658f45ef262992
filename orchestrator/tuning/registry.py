"""All tunables, in the order in which they are made.

The order settles conflicts. tuned and ktune come first, since stopping them restores the values that they
once found. numad comes before huge pages (its own option `-H` changes khugepaged's pace). A disk's scheduler
comes before the depth of its queue, which the kernel resets with the scheduler. Tunables that count only at
the node's next start come last. The script of the next boot comes before them all: from then on a boot is
right, at whatever change this program ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.hosts.readings import defect
from orchestrator.model.host import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, TunableState, TuningProfile, TuningSetting, Verdict
from orchestrator.tuning import boot
from orchestrator.tuning.kernel import KERNEL
from orchestrator.tuning.services import AT_NEXT_START, SERVICES
from orchestrator.tuning.tunable import FactReads, Tunable, unchanged

TUNABLES: Final[Mapping[str, Tunable]] = {one.name: one for one in (*SERVICES, *KERNEL, *AT_NEXT_START)}
"""By name, in order."""

RULES: Final[Mapping[str, Callable[[TuningSetting], str | None]]] = {
    name: tunable.valid for name, tunable in TUNABLES.items()
}
"""The valid values of each, in order, for the loader of profiles."""

BOOT_READS: Final = FactReads(files=boot.FILES, services=boot.SERVICES)
"""What is read of the next boot."""


def in_order(
    profile: TuningProfile, tunables: Mapping[str, Tunable] = TUNABLES
) -> list[tuple[Tunable | None, TuningSetting]]:
    """The settings with their tunables in the order of the changes; settings without one come last."""
    places = {name: place for place, name in enumerate(tunables)}
    settings = sorted(profile.settings, key=lambda one: places.get(one.tunable, len(places)))
    return [(tunables.get(setting.tunable), setting) for setting in settings]


def reads(profile: TuningProfile, tunables: Mapping[str, Tunable] = TUNABLES) -> tuple[FactReads, ...]:
    """Everything to read for a profile."""
    return (BOOT_READS, *(one.reads for one, _ in in_order(profile, tunables) if one is not None))


def compare(
    facts: HostFacts,
    profile: TuningProfile,
    place: boot.BootPlace,
    *,
    tunables: Mapping[str, Tunable] = TUNABLES,
    redact: Callable[[str], str] = str,
) -> HostTuning:
    """The state of a host against a profile: the next boot, then each tunable in order.

    Args:
        facts: of the host.
        profile: the wanted settings.
        place: of the node's part of the boot script.
        tunables: by name.
        redact: removes secrets from texts for people; changes stay exact, as they are sent.
    """
    moved = boot.data_moved(facts, place)
    if moved:
        facts = replace(facts, devices=Unknown(reason=moved))
    kept, written = boot.lines_at_boot(facts, place), boot.lines_of_part(facts, place)
    states: list[TunableState] = []
    lines: list[str] = []
    for tunable, setting in in_order(profile, tunables):
        if tunable is None:
            why = f"there is no tunable named {setting.tunable}"
            states.append(unchanged(setting, Verdict.UNKNOWN, why))
            continue
        state, line = _check(tunable, facts, setting, profile, redact), tunable.line(setting)
        # A value that cannot be read now is neither added to the part nor taken out of it, on or off.
        known = state.verdict in {Verdict.OK, Verdict.DRIFT} or line in written
        if line and known and state.verdict is not Verdict.NOT_APPLICABLE:
            lines.append(line)
        if line and state.verdict is not Verdict.NOT_APPLICABLE:
            of_boot = boot.SET_BY_US if line in kept else boot.NOT_SET
            if line in kept and (other := boot.later_part(facts, place, line)):
                of_boot = f"{other} sets another value after it"
                state = replace(state, overridden=True)
            state = replace(state, at_boot="; ".join(filter(None, (of_boot, state.at_boot))))
        states.append(state)
    of_boot_itself = boot.state(facts, profile, place, lines)
    part = boot.wanted_part(facts, profile, place, lines)
    return HostTuning(states=(*([of_boot_itself] if of_boot_itself else []), *states), part=part)


def _check(
    tunable: Tunable,
    facts: HostFacts,
    setting: TuningSetting,
    profile: TuningProfile,
    redact: Callable[[str], str],
) -> TunableState:
    """The state of one tunable; a defect in one tunable does not affect the others."""
    try:
        state = tunable.check(facts, setting, profile)
    except Exception as error:  # noqa: BLE001  (see `defect`)
        state = unchanged(setting, Verdict.UNKNOWN, defect(error))
    return replace(
        state, running=redact(state.running), at_boot=redact(state.at_boot), detail=redact(state.detail)
    )
