"""tuned, where its active profile would override this profile.

tuned starts late and writes its profile's values at every start. It comes after udev and tmpfiles, so it
overrides them for huge pages and disks (it applies `sysctl.d` again after its own parameters). Stopping
tuned, or switching its profile, restores the values that it once found. So the tuned profile is changed
before any other value is written: the new profile includes the found one, and differs only in the wanted
values. It also keeps the found profile's other choices for the same disks.

On RHEL 6 nothing is written. ktune (S27) comes before rc.local (S99), applies `/etc/sysctl.conf` after its
own parameters (SYSCTL_POST), and leaves non-default schedulers unchanged; persisted values there take
precedence. `service ktune restart` or `tuned-adm profile` by hand sets its values again: `tune check` then
shows drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables import huge_pages, tuned_profiles
from orchestrator.hosts.tunables.devices import Disk, QueueTunable
from orchestrator.hosts.tunables.huge_pages import HugePages
from orchestrator.hosts.tunables.io_scheduler import IO_SCHEDULER
from orchestrator.hosts.tunables.kernel_parameters import PARAMETERS, KernelParameter
from orchestrator.hosts.tunables.persisting import header, own_file
from orchestrator.hosts.tunables.queues import READ_AHEAD
from orchestrator.hosts.tunables.standing import AtBoot, Part, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.hosts.tunables.tuned_profiles import OURS, Profile
from orchestrator.model.host_facts import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change, TunableState, TunedChange, TuningProfile, TuningSetting

_OVERRIDE: Final = "override"
_KTUNE: Final = "/etc/sysconfig/ktune"
_SERVICE: Final = "tuned"
_NEW_LAYOUT: Final = "/usr/lib/tuned/profiles/"
_TOUCHED: Final[dict[str, HugePages | KernelParameter | QueueTunable]] = {
    tunable.name: tunable
    for tunable in (
        huge_pages.ENABLED,
        huge_pages.DEFRAG,
        huge_pages.KHUGEPAGED_DEFRAG,
        IO_SCHEDULER,
        READ_AHEAD,
        *PARAMETERS,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contradiction:
    """A value that tuned's profile sets differently.

    Attributes:
        kind: the plugin of tuned that sets it.
        options: its possible names in that plugin; the first one is written.
        disk: empty if the value does not belong to a disk.
    """

    kind: str
    options: tuple[str, ...]
    theirs: str
    ours: str
    disk: str = ""

    def __str__(self) -> str:
        of = f" of {self.disk}" if self.disk else ""
        return f"{self.options[0]}{of}: {self.theirs} instead of {self.ours}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The active profile of tuned."""

    name: str = "tuned"

    @property
    def reads(self) -> Reads:
        """All profiles, the service, and the files of every tunable that tuned may contradict."""
        others = dict.fromkeys(path for tunable in _TOUCHED.values() for path in tunable.reads.files)
        return Reads(files=(*tuned_profiles.FILES, _KTUNE, *others), services=(_SERVICE,))

    def valid(self, setting: TuningSetting) -> str | None:
        """It can only be wanted overridden."""
        return None if setting.wanted == _OVERRIDE else f"must be {_OVERRIDE}"

    def supported(self, facts: HostFacts) -> str | None:
        """There is nothing to do without an active profile."""
        if facts.tuned is None:
            return "no profile of tuned is active"
        service = facts.services.get(_SERVICE)
        idle = isinstance(service, ServiceFacts) and not service.running and not service.enabled
        if facts.init is InitSystem.SYSTEMD and idle:
            return "tuned neither runs nor starts at boot"
        return None

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """Whether the active profile contradicts this one."""
        return judged(self, facts, setting, profile, (self._part(facts, profile),))

    def apply(
        self,
        facts: HostFacts,  # noqa: ARG002  (every tunable has this shape)
        setting: TuningSetting,  # noqa: ARG002  (as above)
        profile: TuningProfile,  # noqa: ARG002  (as above)
    ) -> tuple[Change, ...]:
        """Nothing: the other tunables write the values themselves."""
        return ()

    def persist(
        self,
        facts: HostFacts,
        setting: TuningSetting,  # noqa: ARG002  (every tunable has this shape)
        profile: TuningProfile,
    ) -> tuple[Change, ...]:
        """A profile of this program that includes the found one, and the switch to it."""
        if not profile.persist or facts.init is not InitSystem.SYSTEMD or not isinstance(facts.tuned, str):
            return ()
        active = tuned_profiles.active(facts)
        if not isinstance(active, Profile) or not any(_contradictions(facts, profile, active)):
            return ()
        base = (
            tuned_profiles.merged(facts, tuned_profiles.included(facts) or "") if _is_ours(facts) else active
        )
        if isinstance(base, Unknown):
            return ()
        text = _text(base, tuple(_contradictions(facts, profile, base)))
        file = own_file(facts, _path(facts), text)
        if file is None or (file.found == text and facts.tuned == OURS):
            return ()
        switch = TunedChange(found=facts.tuned, wanted=OURS)
        return (file, switch) if file.found != text else (switch,)

    def _part(self, facts: HostFacts, profile: TuningProfile) -> Part:
        name = facts.tuned if isinstance(facts.tuned, str) else ""
        boot = AtBoot(value=name) if name else AtBoot()
        if facts.init is InitSystem.SYSV and name:
            return _of_ktune(facts, name)
        active = tuned_profiles.active(facts)
        if not isinstance(active, Profile):
            why = (
                active.reason if isinstance(active, Unknown) else "this host starts services in no known way"
            )
            return Part(
                wanted=_OVERRIDE, found=name, at_boot=boot, running=None, lasts=None, detail=f"tuned: {why}"
            )
        found = tuple(_contradictions(facts, profile, active))
        told = "; ".join(str(one) for one in found)
        return Part(
            wanted=OURS if found else name,
            found=name,
            at_boot=boot,
            running=True,
            lasts=not found,
            detail=f"its profile sets {told}" if found else "its profile contradicts nothing that is wanted",
        )


def _of_ktune(facts: HostFacts, name: str) -> Part:
    """RHEL 6: later scripts override ktune, if it applies `/etc/sysctl.conf` last as it usually does."""
    text = facts.text(_KTUNE)
    after = re.search(r'^\s*SYSCTL_POST="?([^"\s]*)', text, re.MULTILINE) if isinstance(text, str) else None
    handed_over = after is not None and after[1] == "/etc/sysctl.conf"
    usual = (
        "ktune comes before rc.local, and applies /etc/sysctl.conf after its own: nothing has to be written"
    )
    odd = f"{_KTUNE} does not name /etc/sysctl.conf as SYSCTL_POST: ktune's kernel parameters may win at boot"
    return Part(
        wanted=name,
        found=name,
        at_boot=AtBoot(value=name),
        running=True,
        lasts=True if handed_over else None,
        detail=usual if handed_over else odd,
    )


def _is_ours(facts: HostFacts) -> bool:
    return facts.tuned == OURS


def _path(facts: HostFacts) -> str:
    folder = "/etc/tuned/profiles" if facts.matching(_NEW_LAYOUT) else "/etc/tuned"
    return f"{folder}/{OURS}/tuned.conf"


def _contradictions(facts: HostFacts, profile: TuningProfile, theirs: Profile) -> Iterator[_Contradiction]:
    for setting in profile.settings:
        match _TOUCHED.get(setting.tunable):
            case HugePages() as pages:
                yield from _of_pages(facts, setting, pages, theirs)
            case KernelParameter() as parameter:
                value, target = theirs.sysctl(parameter.name), parameter.target(facts, setting)
                if value is not None and not parameter.good(value, target):
                    options = (parameter.name, parameter.name.replace(".", "/"))
                    yield _Contradiction(kind="sysctl", options=options, theirs=value, ours=str(target))
            case QueueTunable() as queue:
                for disk in queue.disks(facts, setting, profile):
                    if isinstance(disk, Disk):
                        yield from _of_disk(queue, disk, theirs)
            case None:
                pass


def _of_pages(
    facts: HostFacts, setting: TuningSetting, pages: HugePages, theirs: Profile
) -> Iterator[_Contradiction]:
    for path, target in pages.targets(facts, setting):
        value = pages.of_tuned(facts, theirs, path)
        if value is None or value == target:
            continue
        if theirs.sysfs(path) is not None:
            yield _Contradiction(kind="sysfs", options=(path,), theirs=value, ours=target)
        else:
            plural = ("transparent_hugepages", "transparent_hugepage")
            options = plural if pages is huge_pages.ENABLED else (pages.name,)
            yield _Contradiction(kind="vm", options=options, theirs=value, ours=target)


def _of_disk(queue: QueueTunable, disk: Disk, theirs: Profile) -> Iterator[_Contradiction]:
    target, value = disk.aim.target, queue.of_tuned(theirs, disk)
    if target is None or value is None or value == target:
        return
    if theirs.sysfs(disk.path) is not None:
        yield _Contradiction(kind="sysfs", options=(disk.path,), theirs=value, ours=target)
    else:
        name = disk.device.name
        yield _Contradiction(kind="disk", options=(queue.tuned_option,), theirs=value, ours=target, disk=name)


def _text(base: Profile, found: tuple[_Contradiction, ...]) -> str:
    lines = ["[main]", f"summary=What orchestrate wants otherwise than {base.name}"]
    lines.append(f"include={','.join(base.name.split())}")
    for section in base.sections:
        own = [one for one in found if one.kind == section.type and not one.disk]
        # A section without the option is not changed: one plugin may have several sections.
        options = {option: one.ours for one in own for option in one.options if option in section.options} | {
            one.options[0]: one.ours for one in own if one.kind == "sysfs"
        }
        if options:
            lines += _section(section.name, section.type, section.devices, options)
        if section.type == "disk":
            lines += _disks(section, tuple(one for one in found if one.disk and section.covers(one.disk)))
    return header("tuned") + "\n".join(lines) + "\n"


def _disks(section: tuned_profiles.Section, found: tuple[_Contradiction, ...]) -> list[str]:
    """The same disks, moved from the found section to a new one with its other choices."""
    names = sorted({one.disk for one in found})
    if not names:
        return []
    kept = [] if section.devices == "*" else [section.devices]
    lines = _section(section.name, "disk", ",".join([*kept, *(f"!{name}" for name in names)]), {})
    for name in names:
        wanted = {one.options[0]: one.ours for one in found if one.disk == name}
        lines += _section(f"{OURS}_{section.name}_{name}", "disk", name, {**section.options, **wanted})
    return lines


def _section(name: str, kind: str, devices: str, options: dict[str, str]) -> list[str]:
    # A merged section takes type and devices from the later profile: left out, they would be reset.
    return [
        "",
        f"[{name}]",
        *([f"type={kind}"] if kind != name else []),
        *([f"devices={devices}"] if devices != "*" else []),
        *(f"{option}={value}" for option, value in options.items()),
    ]


TUNED: Final = Tuned()
