"""Limits of the node's own service: open files, and memory that it may lock. They count at its next start.

- **systemd** reads them from the unit: a drop-in of this program, and a daemon-reload. It ignores PAM's
  files.
- **init scripts** (RHEL 6) get them from PAM if they change the user with `su` or `runuser`: a file in
  `/etc/security/limits.d` for the user with the service's name. The file has no effect on a script that
  calls `ulimit` itself: Elasticsearch's takes MAX_OPEN_FILES and MAX_LOCKED_MEMORY from `/etc/sysconfig`.

A limit higher than wanted is as good, and is not changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.hosts.tunables.persisting import first_that_holds, header, in_order, own_file
from orchestrator.hosts.tunables.standing import AtBoot, Part, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change, Reload, TunableState, TuningProfile, TuningSetting

_ROOTS: Final = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_LIMITS: Final = "/etc/security/limits.conf"
_ENDLESS: Final = frozenset({"infinity", "unlimited", "-1"})
_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_FIELDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimit:
    """One limit.

    Attributes:
        option: of a systemd unit.
        item: of limits.conf(5).
        step: bytes in one unit of `item`: PAM counts locked memory in KiB.
        endless: whether a profile may want `unlimited`.
    """

    name: str
    option: str
    item: str
    step: int = 1
    endless: bool = False

    @property
    def reads(self) -> Reads:
        """The unit with its drop-ins, and PAM's files."""
        units = (f"{root}/systemd/system/{{unit}}.service" for root in _ROOTS)
        drop_ins = (f"{root}/systemd/system/{{unit}}.service.d/*.conf" for root in _ROOTS)
        return Reads(files=(*units, *drop_ins, _LIMITS, "/etc/security/limits.d/*.conf"))

    def valid(self, setting: TuningSetting) -> str | None:
        """A number, or `unlimited` where that makes sense."""
        wanted = setting.wanted
        if isinstance(wanted, str) and (is_number(wanted) and int(wanted) > 0):
            return None
        if self.endless and wanted in {"unlimited", "infinity"}:
            return None
        return "must be a whole number" + (" of bytes, or unlimited" if self.endless else "")

    def supported(self, facts: HostFacts) -> str | None:
        """It is the limit of a service."""
        if not facts.unit or facts.init is InitSystem.OTHER:
            return "the node has no service of systemd, and no init script"
        return None

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """The limit that the service will have at its next start."""
        found = self._found(facts)
        right = (
            None if found.unsure else found.value is not None and _least(found.value, self._wanted(setting))
        )
        part = Part(
            wanted="unlimited" if setting.wanted in _ENDLESS else f"at least {setting.wanted}",
            found="not set" if found.value is None else f"{found.value}, from the next start on",
            at_boot=found,
            running=right,
            lasts=right,
            detail=found.unsure or self._detail(facts),
        )
        return judged(self, facts, setting, profile, (part,))

    def apply(
        self,
        facts: HostFacts,
        setting: TuningSetting,
        profile: TuningProfile,  # noqa: ARG002  (every tunable has this shape)
    ) -> tuple[Change, ...]:
        """A drop-in of this program, or a file for PAM; no change if the limit is high enough."""
        if self.supported(facts) is not None or self._found(facts).unsure:
            return ()

        def holds(later: HostFacts) -> bool:
            found = self._found(later)
            return found.value is not None and _least(found.value, self._wanted(setting))

        unit, wanted = _unit(facts), str(setting.wanted)
        if facts.init is InitSystem.SYSV:
            amount = "unlimited" if wanted in _ENDLESS else str(math.ceil(int(wanted) / self.step))
            text = f"{header(self.name)}{unit} - {self.item} {amount}\n"
            paths = [f"/etc/security/limits.d/{rank}-orchestrate-{self.name}.conf" for rank in ("90", "zz")]
            return first_that_holds(facts, (own_file(facts, path, text) for path in paths), holds)
        amount = "infinity" if wanted in _ENDLESS else wanted
        text = f"{header(self.name)}[Service]\n{self.option}={amount}\n"
        folder = f"/etc/systemd/system/{unit}.service.d"
        paths = [f"{folder}/{rank}-orchestrate-{self.name}.conf" for rank in ("90", "zz")]
        return first_that_holds(facts, (own_file(facts, path, text, Reload.SYSTEMD) for path in paths), holds)

    def persist(
        self,
        facts: HostFacts,  # noqa: ARG002  (every tunable has this shape)
        setting: TuningSetting,  # noqa: ARG002  (as above)
        profile: TuningProfile,  # noqa: ARG002  (as above)
    ) -> tuple[Change, ...]:
        """Nothing more: a limit is in a file, and so persists from the start."""
        return ()

    def _wanted(self, setting: TuningSetting) -> float:
        return _amount(str(setting.wanted))

    def _found(self, facts: HostFacts) -> AtBoot:
        found = AtBoot()
        for path, text in self._files(facts):
            if isinstance(text, Unknown):
                found = AtBoot(
                    value=found.value, by=found.by, unsure=f"{path} could not be read: {text.reason}"
                )
                continue
            value = self._of_pam(text, facts) if facts.init is InitSystem.SYSV else self._of_unit(text)
            if value is not None:
                found = AtBoot(value=value, by=path)
        return found

    def _files(self, facts: HostFacts) -> Iterator[tuple[str, str | Unknown]]:
        if facts.init is InitSystem.SYSV:
            text = facts.text(_LIMITS)
            if text is not None:
                yield _LIMITS, text
            yield from in_order(facts, "security/limits.d", ".conf")
            return
        unit = f"systemd/system/{_unit(facts)}.service"
        for root in _ROOTS:
            text = facts.text(f"{root}/{unit}")
            if text is not None:
                yield f"{root}/{unit}", text
                break
        yield from in_order(facts, f"{unit}.d", ".conf")

    def _of_unit(self, text: str) -> str | None:
        section, found = "", None
        for raw in text.splitlines():
            line = raw.strip()
            if line.startswith("["):
                section = line
            key, equals, value = line.partition("=")
            if section == "[Service]" and equals and key.strip() == self.option and value.strip():
                found = value.strip().partition(":")[0]  # soft:hard; the soft one counts
        return found

    def _of_pam(self, text: str, facts: HostFacts) -> str | None:
        found: str | None = None
        for line in text.splitlines():
            fields = line.partition("#")[0].split()
            # Lines for all (`*`) are skipped: a line for the user takes precedence over them, at any place.
            if len(fields) != _FIELDS or fields[0] != _unit(facts) or fields[2] != self.item:
                continue
            if fields[1] in {"-", "soft"}:
                number = fields[3]
                found = str(int(number) * self.step) if is_number(number) else number
        return found

    def _detail(self, facts: HostFacts) -> str:
        if facts.init is not InitSystem.SYSV:
            return ""
        unit = _unit(facts)
        return (
            f"for the user {unit}, where its init script goes through PAM (su, runuser); a `ulimit` in"
            f" the script or in /etc/sysconfig/{unit} comes after it"
        )


def _unit(facts: HostFacts) -> str:
    return facts.unit.removesuffix(".service")


def _least(value: str, wanted: float) -> bool:
    return _amount(value) >= wanted


def _amount(value: str) -> float:
    """A limit as a number; a text that is not a number counts as zero."""
    if value in _ENDLESS:
        return math.inf
    match = re.fullmatch(r"([0-9]{1,20})([KMGT]?)", value)
    return int(match[1]) * _UNITS[match[2]] if match else 0


OPEN_FILES: Final = ServiceLimit(name="limits.nofile", option="LimitNOFILE", item="nofile")
LOCKED_MEMORY: Final = ServiceLimit(
    name="limits.memlock", option="LimitMEMLOCK", item="memlock", step=1024, endless=True
)
