"""Limits of the node's own service: open files, and memory that it may lock. They count at its next start.

The running process has limits of its own until then (`/proc/PID/limits`): both are shown where they differ.

- **systemd** reads them from the unit, its template, all drop-ins and its own defaults: `systemctl show` has
  the result. A drop-in of this program is the last one, then a daemon-reload. PAM's files are ignored.
- **init scripts** (RHEL 6) get them from PAM if they change the user with `su` or `runuser`: a file in
  `/etc/security/limits.d` for the user with the service's name. The file has no effect on a script that
  calls `ulimit` itself: Elasticsearch's takes MAX_OPEN_FILES and MAX_LOCKED_MEMORY from `/etc/sysconfig`.

A limit higher than wanted is as good, and is not changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.model.host import HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import FileChange, Reload, TuningProfile, TuningSetting
from orchestrator.tuning.tunables.numbers import is_number
from orchestrator.tuning.tunables.own_files import header, own_file
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable

_FOLDER: Final = "/etc/systemd/system/{unit}.service.d"
_LIMITS: Final = "/etc/security/limits.conf"
_ENDLESS: Final = frozenset({"infinity", "unlimited", "-1"})
_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_FIELDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """A limit as it is; `unsure` says why it is not known."""

    value: str | None = None
    unsure: str = ""

    def holds(self, least: float) -> bool:
        """Whether it is set, and high enough."""
        return self.value is not None and _amount(self.value) >= least


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimit(Tunable):
    """One limit."""

    name: str
    option: str  # of a systemd unit
    item: str  # of limits.conf(5)
    kernel: str  # its name in `/proc/PID/limits`
    step: int = 1  # bytes in one unit of `item`: PAM counts locked memory in KiB
    endless: bool = False  # whether a profile may want `unlimited`

    @property
    def reads(self) -> FactReads:
        """Our drop-in, and PAM's files; the unit's limits are read on every host."""
        return FactReads(files=(f"{_FOLDER}/*.conf", _LIMITS, "/etc/security/limits.d/*.conf"))

    def valid(self, setting: TuningSetting) -> str | None:
        """A number, or `unlimited` where that makes sense."""
        wanted = setting.wanted
        if isinstance(wanted, str) and (is_number(wanted) and int(wanted) > 0):
            return None
        if self.endless and wanted in {"unlimited", "infinity"}:
            return None
        return "must be a whole number" + (" of bytes, or unlimited" if self.endless else "")

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The limit of the running process, and the one that the service will have at its next start."""
        if not facts.unit or facts.init is InitSystem.OTHER:
            yield Absent(why="`hosts.service` names no service of systemd, and no init script")
            return
        found, least, endless = self._found(facts), _amount(str(setting.wanted)), setting.wanted in _ENDLESS
        right = None if found.unsure else found.holds(least)
        process = facts.process_limits
        now = None if isinstance(process, Unknown) else process.get(self.kernel)
        unread = f"limits of the running process: {process.reason}" if isinstance(process, Unknown) else ""
        late = now is not None and _amount(now) < least
        file = self._file(facts, setting, least) if right is False else None
        details = (
            f"the running process has {now} until its service restarts" if late else "",
            unread,
            found.unsure or self._detail(facts, right=right is True),
        )
        yield Part(
            wanted="unlimited" if endless else f"at least {setting.wanted}",
            found=_shown(now, found.value),
            at_boot="not set" if found.value is None else found.value,
            running=right and not late,
            detail="; ".join(filter(None, details)),
            after_restart=right is True and late,
            changes=() if file is None or file.found == file.wanted else (file,),
        )

    def _file(self, facts: HostFacts, setting: TuningSetting, least: float) -> FileChange | None:
        """A drop-in of this program, or a file for PAM, where the last line counts."""
        unit, wanted, endless = facts.unit, str(setting.wanted), setting.wanted in _ENDLESS
        if facts.init is InitSystem.SYSTEMD:
            text = f"{header(self.name)}[Service]\n{self.option}={'infinity' if endless else wanted}\n"
            return own_file(facts, self._drop_in(unit), text, Reload.SYSTEMD)
        amount = "unlimited" if endless else str(math.ceil(int(wanted) / self.step))
        text = f"{header(self.name)}{unit} - {self.item} {amount}\n"
        for rank in ("90", "zz"):  # the second where a file of others comes after the first
            path = f"/etc/security/limits.d/{rank}-orchestrate-{self.name}.conf"
            if self._found(replace(facts, files={**facts.files, path: text})).holds(least):
                return own_file(facts, path, text)
        return None

    def _drop_in(self, unit: str) -> str:
        return f"{_FOLDER.replace('{unit}', unit)}/zz-orchestrate-{self.name}.conf"

    def _found(self, facts: HostFacts) -> _Limit:
        if facts.init is InitSystem.SYSTEMD:
            value = facts.limits.get(f"{self.option}Soft", facts.limits.get(self.option))
            shown = f"systemd shows no limits of {facts.unit}.service" if value is None else ""
            return _Limit(value=_named(value), unsure=shown)
        found = _Limit()
        folder = facts.matching("/etc/security/limits.d/", ".conf")
        # In the order in which PAM reads them. A pattern whose files were not read comes last.
        for path in (_LIMITS, *sorted(folder, key=lambda one: ("*" in one, one))):
            text = facts.text(path)
            if isinstance(text, Unknown):
                found = _Limit(value=found.value, unsure=f"{path} could not be read: {text.reason}")
                continue
            value = self._of_pam(text or "", facts.unit)
            if value is not None:
                found = _Limit(value=value)
        return found

    def _of_pam(self, text: str, unit: str) -> str | None:
        found: str | None = None
        for line in text.splitlines():
            fields = line.partition("#")[0].split()
            # Lines for all (`*`) are skipped: a line for the user takes precedence over them, at any place.
            if len(fields) != _FIELDS or fields[0] != unit or fields[2] != self.item:
                continue
            if fields[1] in {"-", "soft"}:
                number = fields[3]
                found = str(int(number) * self.step) if is_number(number) else number
        return found

    def _detail(self, facts: HostFacts, *, right: bool) -> str:
        if facts.init is not InitSystem.SYSV:
            ours = self._drop_in(facts.unit)
            written = isinstance(facts.text(ours), str)
            return f"{ours} is there: a file after it sets another limit" if written and not right else ""
        unit = facts.unit
        return (
            f"for the user {unit}, where its init script goes through PAM (su, runuser); a `ulimit` in"
            f" the script or in /etc/sysconfig/{unit} comes after it"
        )


def _shown(now: str | None, later: str | None) -> str:
    """The limit of the running process, and that of its next start where it is another one."""
    if now is None:
        return "not set" if later is None else f"{later}, from the next start on"
    if later is not None and _amount(now) == _amount(later):
        return now
    return f"{now}, from the next start on {'not set' if later is None else later}"


def _named(value: str | None) -> str | None:
    """Versions of systemd before 231 show no limit as a number of 64 bits."""
    return "infinity" if value == "18446744073709551615" else value


def _amount(value: str) -> float:
    """A limit as a number; a text that is not a number counts as zero."""
    if value in _ENDLESS:
        return math.inf
    match = re.fullmatch(r"([0-9]{1,20})([KMGT]?)", value)
    return int(match[1]) * _UNITS[match[2]] if match else 0


OPEN_FILES: Final = ServiceLimit(
    name="limits.nofile", option="LimitNOFILE", item="nofile", kernel="Max open files"
)
LOCKED_MEMORY: Final = ServiceLimit(
    name="limits.memlock",
    option="LimitMEMLOCK",
    item="memlock",
    kernel="Max locked memory",
    step=1024,
    endless=True,
)
