"""The settings of tuned's active profile, with everything that it includes.

Profiles are read as tuned reads them: `/etc` before `/usr/lib`, included ones first, sections of one name
merged (tuned's loader and merger). Only sections that may conflict with a tunable are read: the types `vm`,
`sysctl`, `sysfs` and `disk`. RHEL 6 (tuned 0.2 with ktune) has no such profiles: see `tuned.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.hosts.tunables.standing import AtBoot
from orchestrator.model.host_facts import HostFacts, InitSystem
from orchestrator.model.reading import Reading, Unknown

OURS: Final = "orchestrate"
"""The name of the profile that the tunable `tuned` writes."""

FOLDERS: Final = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
"""The folders of profiles, the one with the most weight first; `profiles` came with tuned 2.23."""
FILES: Final = tuple(f"{folder}/*/tuned.conf" for folder in FOLDERS)
_MAIN: Final = "main"
_OF_UNITS: Final = frozenset({"type", "devices", "enabled", "replace", "priority", "drop"})
_HUGE_PAGES: Final = ("transparent_hugepages", "transparent_hugepage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a profile, merged.

    Attributes:
        devices: patterns of its devices; a pattern with `!` excludes.
    """

    name: str
    type: str
    devices: str = "*"
    options: Mapping[str, str] = field(default_factory=dict)

    def covers(self, device: str) -> bool:
        """Whether it applies to a device."""
        patterns = self.devices.replace(",", " ").split()
        wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
        unwanted = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
        return any(fnmatchcase(device, one) for one in wanted or ["*"]) and not any(
            fnmatchcase(device, one) for one in unwanted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The merged settings of an active profile.

    Attributes:
        name: its name in tuned.
    """

    name: str
    sections: tuple[Section, ...]

    def of_type(self, kind: str) -> tuple[Section, ...]:
        """Sections for one plugin."""
        return tuple(section for section in self.sections if section.type == kind)

    def huge_pages(self) -> str | None:
        """Its value for transparent huge pages."""
        return self._last("vm", *_HUGE_PAGES)

    def huge_pages_defrag(self) -> str | None:
        """Its value for their defragmentation (tuned 2.21 and later)."""
        return self._last("vm", "transparent_hugepage.defrag")

    def sysctl(self, key: str) -> str | None:
        """Its value for a kernel parameter."""
        return self._last("sysctl", key, key.replace(".", "/"))

    def sysfs(self, path: str) -> str | None:
        """The value that it writes to a path."""
        found = None
        for section in self.of_type("sysfs"):
            for pattern, value in section.options.items():
                found = value if fnmatchcase(path, pattern) else found
        return found

    def disk(self, device: str, option: str) -> str | None:
        """Its value for a disk: `elevator`, `readahead`."""
        found = None
        for section in self.of_type("disk"):
            if section.covers(device):
                found = section.options.get(option, found)
        return found

    def _last(self, kind: str, *names: str) -> str | None:
        found = None
        for section in self.of_type(kind):
            for name in names:
                found = section.options.get(name, found)
        return found


def active(facts: HostFacts) -> Reading[Profile | None]:
    """The active profile; None if there is none, or if the host has no tuned of this kind."""
    if facts.init is not InitSystem.SYSTEMD:
        return None
    if facts.tuned is None or isinstance(facts.tuned, Unknown):
        return facts.tuned
    return merged(facts, facts.tuned)


def merged(facts: HostFacts, names: str) -> Reading[Profile]:
    """Profiles, named as in tuned (`a b`, `a,b`), with everything that they include."""
    sections: dict[str, Section] = {}
    trouble = _load(facts, _names(names), sections, [])
    if trouble is not None:
        return Unknown(reason=trouble)
    return Profile(name=names, sections=tuple(sections.values()))


def included(facts: HostFacts) -> str | None:
    """The profile that this program's own profile includes; None if there is none."""
    text = _text(facts, OURS)
    return _main(text, "include") if isinstance(text, str) else None


def at_boot(facts: HostFacts, value: Callable[[Profile], str | None]) -> AtBoot | None:
    """The value that the active profile sets at boot; None if it sets none.

    A profile that cannot be read may set any value: the result is unsure, never nothing.
    """
    profile = active(facts)
    if profile is None:
        return None
    if isinstance(profile, Unknown):
        return AtBoot(unsure=f"tuned's profile is not known: {profile.reason}")
    found = value(profile)
    if found is None:
        return None
    return AtBoot(value=found, by=f"tuned's profile {profile.name}")


def _load(facts: HostFacts, names: list[str], into: dict[str, Section], done: list[str]) -> str | None:
    """Merge profiles and the profiles that they include; returns the fault, or None."""
    for given in names:
        name = given.removeprefix("-")  # `-name`: only if it exists
        if name in done:
            continue
        done.append(name)
        text = _text(facts, name)
        if isinstance(text, Unknown):
            return f"{name}: {text.reason}"
        if text is None:
            if given.startswith("-"):
                continue
            return f"there is no profile {name} in {', '.join(FOLDERS)}"
        trouble = _load(facts, _names(_main(text, "include") or ""), into, done)
        if trouble is not None:
            return trouble
        _merge(text, into)
    return None


def _names(text: str) -> list[str]:
    return [name for name in re.split(r"[,;\s]+", text) if name]


def _text(facts: HostFacts, name: str) -> str | Unknown | None:
    found = (facts.text(f"{folder}/{name}/tuned.conf") for folder in FOLDERS)
    return next((text for text in found if text is not None), None)


def _main(text: str, option: str) -> str | None:
    return _parsed(text).get(_MAIN, {}).get(option)


def _merge(text: str, into: dict[str, Section]) -> None:
    for name, options in _parsed(text).items():
        if name in {_MAIN, "variables"}:
            continue
        old = into.get(name)
        kept = {} if old is None or options.get("replace", "").lower() in {"true", "1"} else dict(old.options)
        for dropped in _names(options.get("drop", "")):
            kept.pop(dropped, None)
        enabled = options.get("enabled", "1").lower() in {"true", "1"}
        own = {key: value for key, value in options.items() if key not in _OF_UNITS}
        into[name] = Section(
            name=name,
            type=options.get("type", name) if enabled else "",
            devices=options.get("devices", "*"),
            options={**kept, **own},
        )


def _parsed(text: str) -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            current = sections.setdefault(line[1:-1].strip(), {})
        elif "=" in line:
            key, _, value = line.partition("=")
            current[key.strip()] = value.strip()
    return sections
