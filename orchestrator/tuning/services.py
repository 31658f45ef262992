"""Tunables of services: those that work against a store, and what counts at the node's next start. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.model.host import FileText, HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    Reload,
    ServiceChange,
    ServiceMode,
    TuningProfile,
    TuningSetting,
    ValueChange,
)
from orchestrator.tuning.blocks import block_in, with_block
from orchestrator.tuning.kernel import number_at, path_of
from orchestrator.tuning.tunable import Absent, FactReads, Part, Tunable, header, own_file
from orchestrator.tuning.values import is_number

_OFF: Final = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOff(Tunable):
    """Services that work against a store: stopped, and kept from starting.

    numad moves pages between NUMA nodes while the store works. Stopping it does not undo the moves that
    it made; a process that starts afterwards is not moved. tuned, and ktune on RHEL 6, write their
    profile's values at each start: the values of this program are set after them, so they can stay on.
    Stopping them restores the values that they once found, so they come before all other tunables.
    """

    name: str
    allowed: tuple[str, ...] = (_OFF,)

    @property
    def reads(self) -> FactReads:
        """Its state."""
        return FactReads(services=(self.name,))

    def parts(self, facts: HostFacts, _: TuningSetting, profile: TuningProfile) -> Iterator[Part | Absent]:
        """Whether it runs, and whether it may start. systemd masks it: another service may want it."""
        found = facts.services.get(self.name, Unknown(reason="it was not read"))
        if isinstance(found, Unknown):
            why = f"the state of {self.name} could not be read: {found.reason}"
            yield Part(wanted=_OFF, found="", running=None, detail=why)
        elif not found.present:
            yield Absent(why=f"{self.name} is not installed")
        else:
            systemd = facts.init is InitSystem.SYSTEMD
            was = ServiceMode(running=found.running, enabled=found.enabled, masked=found.masked)
            stopped = ServiceMode(running=False, enabled=found.enabled, masked=found.masked)
            off = ServiceMode(running=False, enabled=False, masked=systemd)
            may_start = not (found.masked if systemd else not found.enabled)
            changes = []
            if found.running:
                changes.append(ServiceChange(service=self.name, found=was, wanted=stopped))
            if profile.persist and may_start:
                changes.append(ServiceChange(service=self.name, found=stopped, wanted=off))
            lasts = f", {'masked' if systemd else 'disabled'}" if profile.persist else ""
            unmasked = systemd and profile.persist and may_start and not found.enabled
            yield Part(
                wanted=f"{_OFF} (stopped{lasts})",
                found="running" if found.running else "stopped",
                at_boot="masked" if found.masked else "enabled" if found.enabled else "disabled",
                running=not changes,
                detail="it is disabled, not masked: another unit can start it" if unmasked else "",
                changes=tuple(changes),
            )


_PAGES: Final = "vm.nr_hugepages"
_FOLDERS: Final = ("/etc/elasticsearch/jvm.options.d/", "/etc/opensearch/jvm.options.d/")
_FILE: Final = "orchestrate-huge-pages.options"
_OPTION: Final = "-XX:+UseLargePages"
_MEMORY: Final = "/proc/meminfo"
_MOST_SHARE: Final = 0.75
"""Maximum share of the memory to reserve: the rest of the system needs some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmHugePages(Tunable):
    """Huge pages for a JVM's heap, reserved by the kernel.

    Opt-in, since other programs cannot use that memory. The pages are reserved before the JVM's option is
    written. A kernel with fragmented memory gives fewer pages than requested: the value is read back, and
    then the option is not written. `limits.memlock` must let the JVM lock the pages.
    """

    name: str = "jvm.huge_pages"

    @property
    def reads(self) -> FactReads:
        """The kernel's pages, and the folder for the JVM's options."""
        options = (f"{folder}*.options" for folder in _FOLDERS)
        path = path_of(_PAGES)
        return FactReads(files=(path, _MEMORY, *_FOLDERS, *options))

    def valid(self, setting: TuningSetting) -> str | None:
        """A number of pages."""
        wanted = setting.wanted
        good = isinstance(wanted, str) and is_number(wanted) and int(wanted) > 0
        return (
            None
            if good
            else "must be a number of huge pages (2 MiB each on x86), the heap's size and a little"
        )

    def line(self, setting: TuningSetting) -> str:
        """The pages; the option is in a file."""
        return shlex.join(["at_least", _PAGES, str(setting.wanted)])

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The pages first: without them the option does no more than print a warning."""
        path, wanted, folder, unread = path_of(_PAGES), str(setting.wanted), _folder(facts), _unread(facts)
        if folder is None and not unread:  # Elasticsearch has it from 7.7 on
            yield Absent(why=f"there is no {' or '.join(_FOLDERS)}: the JVM's options cannot be added to")
            return
        if facts.text(path) is None:
            yield Absent(why=f"this kernel has no {_PAGES}")
            return
        found, trouble, options = number_at(facts, path), _trouble(facts, setting), _options_file(facts)
        possible = folder is not None and found is not None and not trouble
        enough = found is not None and int(found) >= int(wanted)
        pages, option = list[Change](), list[Change]()
        if possible and not enough:
            pages.append(ValueChange(path=path, found=found or "", wanted=wanted))
        if possible and options is None:
            file = own_file(facts, f"{folder}{_FILE}", f"{header(self.name)}{_OPTION}\n")
            option += [] if file is None else [file]
        yield Part(
            of="kernel",
            wanted=f"at least {wanted} pages",
            found=f"{found} pages" if found else "",
            running=None if found is None or trouble else enough,
            detail=trouble,
            changes=tuple(pages),
        )
        yield Part(
            of="JVM",
            wanted=_OPTION,
            found=f"{_OPTION}, from the next start on" if options else "not set",
            at_boot=f"{_OPTION} by {options}" if options else "not set",
            running=options is not None or (None if unread else False),
            changes=tuple(option),
        )


def _folder(facts: HostFacts) -> str | None:
    return next((folder for folder in _FOLDERS if isinstance(facts.text(folder), str)), None)


def _unread(facts: HostFacts) -> bool:
    """Whether it is unknown if there is such a folder."""
    return any(isinstance(facts.text(folder), Unknown) for folder in _FOLDERS)


def _options_file(facts: HostFacts) -> str | None:
    """The file with the JVM option to use them."""
    for folder in _FOLDERS:
        for path in facts.matching(folder, ".options"):
            text = facts.text(path)
            if isinstance(text, str) and any(line.strip() == _OPTION for line in text.splitlines()):
                return path
    return None


def _trouble(facts: HostFacts, setting: TuningSetting) -> str:
    """Why this many pages cannot be reserved."""
    if _folder(facts) is None:
        return "the folder for options of the JVM could not be read"
    text = facts.text(_MEMORY)
    size = re.search(r"^Hugepagesize:\s+(\d+) kB", text, re.MULTILINE) if isinstance(text, str) else None
    if size is None or not facts.memory:
        return "the size of a huge page, or of the memory, could not be read"
    needed = int(str(setting.wanted)) * int(size[1]) * 1024
    if needed > facts.memory * _MOST_SHARE:
        return f"{setting.wanted} pages of {size[1]} kB are more than {_MOST_SHARE:.0%} of this host's memory"
    return ""


_DROP_INS: Final = "/etc/systemd/system/{unit}.service.d"
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
    """Limits of the node's own service: open files, and memory that it may lock.

    They count at its next start. The running process has limits of its own until then
    (`/proc/PID/limits`): both are shown where they differ.

    - **systemd** reads them from the unit, its template, all drop-ins and its own defaults: `systemctl
      show` has the result. A drop-in of this program is the last one, then a daemon-reload. PAM's files
      are ignored.
    - **init scripts** (RHEL 6) get them from PAM if they change the user with `su` or `runuser`: a file
      in `/etc/security/limits.d` for the user with the service's name. The file has no effect on a script
      that calls `ulimit` itself: Elasticsearch's takes MAX_OPEN_FILES and MAX_LOCKED_MEMORY from
      `/etc/sysconfig`.

    A limit higher than wanted is as good, and is not changed.
    """

    name: str
    option: str  # of a systemd unit
    item: str  # of limits.conf(5)
    kernel: str  # its name in `/proc/PID/limits`
    step: int = 1  # bytes in one unit of `item`: PAM counts locked memory in KiB
    endless: bool = False  # whether a profile may want `unlimited`

    @property
    def reads(self) -> FactReads:
        """Our drop-in, and PAM's files; the unit's limits are read on every host."""
        return FactReads(files=(f"{_DROP_INS}/*.conf", _LIMITS, "/etc/security/limits.d/*.conf"))

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
        return f"{_DROP_INS.replace('{unit}', unit)}/zz-orchestrate-{self.name}.conf"

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


_CONF: Final = "/etc/riak/riak.conf"
_ARGS: Final = "/etc/riak/vm.args"
_APP: Final = "/etc/riak/app.config"
_ADVANCED: Final = "/etc/riak/advanced.config"
_TOTAL: Final = "erlang.schedulers.total"
_ONLINE: Final = "erlang.schedulers.online"
_AUTO: Final = "auto"
_ONE_LESS_FOR: Final = 6
_MOST: Final = 1024
"""The maximum number of schedulers of an Erlang machine (`erl`, flag `+S`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFile:
    """The number that a file sets."""

    value: str | None = None  # total and online; None if no file sets it
    by: str = ""  # the file
    unsure: str = ""  # why it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ErlangSchedulers(Tunable):
    """Riak's Erlang schedulers: one less for every six logical CPUs, since idle ones wait busily.

    Riak 2 and 3 read `riak.conf`; its last line for a key counts. Riak 1.4 reads `vm.args`, and so does a
    later Riak that still finds both old files beside it. `+S` in `advanced.config` takes precedence over
    `riak.conf`; it is an Erlang term that a person wrote, and is never changed. Either file counts at a
    stop and start, not at a `riak restart` alone.
    """

    name: str = "erlang.schedulers"

    @property
    def reads(self) -> FactReads:
        """Riak's files."""
        return FactReads(files=(_CONF, _ARGS, _APP, _ADVANCED))

    def valid(self, setting: TuningSetting) -> str | None:
        """The formula, or a number."""
        wanted = setting.wanted
        if wanted == _AUTO or (isinstance(wanted, str) and is_number(wanted) and 0 < int(wanted) <= _MOST):
            return None
        return f"must be {_AUTO} (one less for every six logical CPUs) or a whole number up to {_MOST}"

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The number that Riak will have at its next start, and this program's lines in its file."""
        file, number = _file_that_counts(facts), _schedulers_wanted(facts, setting)
        if file is None:
            yield Absent(why="there is no Riak in /etc/riak")
            return
        text, wanted = facts.text(file), "" if number is None else f"{number}:{number}"
        found = _schedulers_found(facts, file, text)
        right = None if found.unsure or number is None else found.value == wanted
        lines = f"{_TOTAL} = {number}\n{_ONLINE} = {number}" if file == _CONF else f"+S {wanted}"
        changes = tuple[BlockChange, ...]()
        if right is False and isinstance(text, str) and "\0" not in text:
            change = BlockChange(path=file, name=self.name, found=block_in(text, self.name), wanted=lines)
            # A later line of the file, or another file, may still take precedence.
            later = _schedulers_found(facts, file, with_block(text, self.name, lines))
            changes = (change,) if later.value == wanted else ()
        overridden = f"{_ADVANCED} overrides it with +S: change it there" if found.by == _ADVANCED else ""
        yield Part(
            wanted=wanted,
            found="not set" if found.value is None else f"{found.value}, from the next start on",
            at_boot="not set" if found.value is None else f"{found.value} by {found.by}",
            running=right,
            detail=found.unsure or ("the number of CPUs is not known" if number is None else overridden),
            changes=changes,
        )


def schedulers(cpus: int) -> int:
    """One less for every six logical CPUs: 12 → 10, 16 → 14, 24 → 20 (Basho's tuning guide for R16)."""
    return cpus - cpus // _ONE_LESS_FOR


def _schedulers_wanted(facts: HostFacts, setting: TuningSetting) -> int | None:
    if setting.wanted != _AUTO:
        return int(str(setting.wanted))
    return schedulers(facts.cpus) if facts.cpus > 0 else None


def _file_that_counts(facts: HostFacts) -> str | None:
    """The file that counts: both old files together take precedence over the new one."""
    if facts.text(_ARGS) is not None and (facts.text(_APP) is not None or facts.text(_CONF) is None):
        return _ARGS
    return _CONF if facts.text(_CONF) is not None else None


def _schedulers_found(facts: HostFacts, file: str, text: FileText) -> _InFile:
    if not isinstance(text, str):
        return _InFile(unsure=f"{file} could not be read")
    if file == _ARGS:
        return _in_file(re.findall(r"^\s*\+S\s+(\d+)(?::(\d+))?", text, re.MULTILINE), file)
    advanced = facts.text(_ADVANCED)
    if isinstance(advanced, Unknown):
        return _InFile(unsure=f"{_ADVANCED} could not be read: {advanced.reason}")
    bare = re.sub(r"%.*", "", advanced or "")
    winning = re.findall(r'"\+S"\s*,\s*"(\d+)(?::(\d+))?"', bare)
    if winning:
        return _in_file(winning, _ADVANCED)
    total, online = (_last_value(text, key) for key in (_TOTAL, _ONLINE))
    if total is None and online is None:
        return _InFile()
    return _InFile(value=f"{total or '?'}:{online or '?'}", by=file)


def _in_file(pairs: list[tuple[str, str]], file: str) -> _InFile:
    if not pairs:
        return _InFile()
    total, online = pairs[-1]
    return _InFile(value=f"{total}:{online or total}", by=file)


def _last_value(text: str, key: str) -> str | None:
    found = re.findall(rf"^\s*{re.escape(key)}\s*=\s*(\S+)", text, re.MULTILINE)
    return found[-1] if found else None
