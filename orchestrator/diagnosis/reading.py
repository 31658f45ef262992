"""A reading of a host: the script that any user may run, its answers, and the signs in two of them. Pure.

A diagnosis takes two readings with the same script, without changes and without sudo. The output of a command
is bounded, so every part is bounded too: a host with 256 CPUs or 500 processes must not push the other parts
out. A part that failed is unknown by itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from orchestrator.diagnosis import counters
from orchestrator.diagnosis.counters import CpuTimes, DiskCounters, read_numad_log
from orchestrator.hosts import script
from orchestrator.hosts.script import Section, read_sections
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import DiskUse, ErlangUse, FreeZone, Numad, Signs, ThreadUse
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.tuning.values import parse

UPTIME: Final = "uptime"
BOOT: Final = "boot-id"
NOW: Final = "now"
STAT: Final = "stat"
VMSTAT: Final = "vmstat"
BUDDY: Final = "buddyinfo"
LOAD: Final = "loadavg"
MEMORY: Final = "meminfo"
VALUES: Final = "values"
NUMA: Final = "numa"
DISKS: Final = "disks"
NUMAD: Final = "numad.log"
PROCESSES: Final = "processes"
ERLANG: Final = "erlang"
"""Names of the parts, and of the files in a recorded folder."""

ABSENT: Final = "(absent)"
"""Marks a file that does not exist, as opposed to a file that cannot be read."""

HUGE_PAGES: Final = (
    "/sys/kernel/mm/redhat_transparent_hugepage/",
    "/sys/kernel/mm/transparent_hugepage/",
)
"""RHEL 6 has the first, and may have both; there the first is in force."""
ZONE_RECLAIM: Final = "/proc/sys/vm/zone_reclaim_mode"
MIN_FREE: Final = "/proc/sys/vm/min_free_kbytes"
_VALUE_FILES: Final = (
    *(folder + name for folder in HUGE_PAGES for name in ("enabled", "defrag")),
    ZONE_RECLAIM,
    MIN_FREE,
)
_LOG_LINES: Final = 200
"""Lines of numad's log: two lines a move, and a move every few seconds at the worst."""
_DISK_BYTES: Final = 12000
_THREAD_BYTES: Final = 20000
_COMMANDS: Final = r"beam(\.smp)?|numad|khugepaged|kcompactd[0-9]+"

_DISK_LOOP: Final = """\
for d in {root}/sys/block/*; do
  [ -r "$d/stat" ] || continue
  set -- $(cat "$d/stat")
  [ "${{1:-0}}${{5:-0}}" = 00 ] && continue
  r=$(cat "$d/queue/rotational" 2>/dev/null); s=$(cat "$d/queue/scheduler" 2>/dev/null)
  echo "${{d##*/}}|$r|$s|$*"
done | head -c {bytes}"""
"""Disks without any activity since the boot are left out: a host may have dozens of idle loop devices."""

_THREAD_SCRIPT: Final = r"""
if [ ! -r {root}/proc/1/stat ]; then echo "processes of others are hidden (hidepid)"; false
else for p in $(grep -lsE '^[0-9]+ \(beam(\.smp)?\)' {root}/proc/[0-9]*/stat | cut -d/ -f{field}); do
  echo "vm $p"
  grep -sE '^[0-9]+ \(|^voluntary_ctxt' {root}/proc/$p/task/[0-9]*/stat {root}/proc/$p/task/[0-9]*/status |
  awk '
    {{ n = split($1, path, "/"); thread = path[n - 1] }}
    /\/stat:/ {{ close_at = index($0, ") "); open_at = index($0, " (")
      name[thread] = substr($0, open_at + 2, close_at - open_at - 2)
      split(substr($0, close_at + 2), field, " "); ticks[thread] = field[12] + field[13] }}
    /voluntary_ctxt/ {{ sleeps[thread] = $NF }}
    END {{ for (thread in ticks) if (name[thread] ~ /^([0-9]+_scheduler|erts_sched_[0-9]+|beam(\.smp)?)$/)
      print "thread", thread, ticks[thread], sleeps[thread] + 0, name[thread] }}'
done | head -c {bytes}; fi"""
"""Ticks and voluntary switches of each scheduler thread: `N_scheduler` up to OTP 24, `erts_sched_N` since.
Before OTP 18 every thread has the program's name."""


def reading_command(root: str = "") -> str:
    """The command line of one reading.

    Args:
        root: a folder used in place of `/` on that host.
    """
    return script.untranslated(script.sections(_parts(root)))


def _parts(root: str = "") -> Sequence[tuple[str, str]]:
    """Name and shell line of each part; the name is also that of the file in a recorded folder."""
    at = shlex.quote(root) if root else ""
    depth = len([part for part in root.split("/") if part])
    log = f"{at}/var/log/numad.log"
    values = " ".join(f"{at}{path}" for path in _VALUE_FILES)
    return (
        (UPTIME, f"cat {at}/proc/uptime"),
        (BOOT, f"cat {at}/proc/sys/kernel/random/boot_id"),
        (NOW, "date '+%Y-%m-%dT%H:%M:%S'"),
        (STAT, f"grep -E '^(cpu |ctxt)' {at}/proc/stat; echo cpus $(grep -c '^cpu[0-9]' {at}/proc/stat)"),
        (VMSTAT, f"cat {at}/proc/vmstat"),
        (BUDDY, f"head -c 8000 {at}/proc/buddyinfo"),
        (LOAD, f"cat {at}/proc/loadavg"),
        (MEMORY, f'head -n 3 {at}/proc/meminfo; echo "PageSize: $(getconf PAGESIZE)"'),
        (
            VALUES,
            f'for f in {values}; do if [ -e "$f" ]; then v=$(cat "$f" 2>&1); else v="{ABSENT}"; fi;'
            """ echo "${f#ROOT}: $v"; done""".replace("ROOT", at),
        ),
        (NUMA, f"ls -d {at}/sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l"),
        (DISKS, _DISK_LOOP.format(root=at, bytes=_DISK_BYTES)),
        (NUMAD, f"if [ -e {log} ]; then tail -n {_LOG_LINES} {log}; else echo '{ABSENT}'; fi"),
        (
            PROCESSES,
            f"getconf CLK_TCK; grep -hsoE '^[0-9]+ \\(({_COMMANDS})\\)' {at}/proc/[0-9]*/stat; true",
        ),
        (ERLANG, _THREAD_SCRIPT.format(root=at, field=depth + 3, bytes=_THREAD_BYTES)),
    )


SHORTEST: Final = 0.5
"""Seconds; rates over less time are noise (counters tick a hundred times a second)."""
_THREAD: Final = re.compile(r"^thread (\d{1,20}) (\d{1,20}) (\d{1,20}) (\S.*)$")
_NAMED: Final = re.compile(r"^(?:\d+_scheduler|erts_sched_\d+)$")
_NUMBER: Final = re.compile(r"^[0-9]{1,20}(?:\.[0-9]{1,20})?$")
_KIB: Final = 1024
_USUAL_HERTZ: Final = 100
"""USER_HZ of Linux on every architecture of servers (time(7))."""
_USUAL_PAGE: Final = 4096
_AT_WORK: Final = 0.05
"""Share of a CPU; the VM's threads for files and signals use less."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErlangThread:
    """A scheduler thread at one moment: ticks of CPU time, and voluntary switches, since its start."""

    name: str
    ticks: int
    sleeps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """One reading of a host, parsed."""

    uptime: Reading[Seconds]  # seconds since the boot
    boot_id: str
    stat: Reading[CpuTimes]
    vmstat: Reading[Mapping[str, int]]
    zones: Reading[tuple[FreeZone, ...]]
    load: Reading[float]
    memory: Reading[int]
    page: int
    values: Mapping[str, Reading[str]]
    numa_nodes: Reading[int]
    disks: Reading[Mapping[str, DiskCounters]]
    numad: Reading[Numad]
    hertz: int  # ticks of CPU time a second
    erlang: Reading[Mapping[tuple[int, int], ErlangThread]]  # scheduler threads by process and thread id


def read_answers(output: str) -> HostReading:
    """Parse what `reading_command` printed on a host."""
    answers = read_sections(output)
    stat, vmstat = _text(answers, STAT), _text(answers, VMSTAT)
    buddy, disks = _text(answers, BUDDY), _text(answers, DISKS)
    processes = _text(answers, PROCESSES)
    return HostReading(
        uptime=_first_number(answers, UPTIME),
        boot_id=_or_empty(_text(answers, BOOT)),
        stat=stat if isinstance(stat, Unknown) else counters.read_stat(stat),
        vmstat=vmstat if isinstance(vmstat, Unknown) else counters.read_plain(vmstat),
        zones=buddy if isinstance(buddy, Unknown) else counters.read_buddyinfo(buddy),
        load=_first_number(answers, LOAD),
        memory=_memory(_text(answers, MEMORY)),
        page=_page(_text(answers, MEMORY)),
        values=_values(_text(answers, VALUES)),
        numa_nodes=_numa(_text(answers, NUMA)),
        disks=disks if isinstance(disks, Unknown) else counters.read_disks(disks),
        numad=_numad(answers, processes),
        hertz=_hertz(processes),
        erlang=_erlang(_text(answers, ERLANG)),
    )


def signs_of(
    node: NodeName,
    first: HostReading,
    second: HostReading,
    data: Reading[frozenset[str]] | None = None,
) -> Reading[Signs]:
    """The signs in two readings of one host.

    Args:
        node: the node on the host.
        first: the earlier reading.
        second: the later reading.
        data: names of the disks behind the data paths; None = unknown.
    """
    seconds = _between(first, second)
    if isinstance(seconds, Unknown):
        return seconds
    stats = _both(first.stat, second.stat)
    vmstats = _both(first.vmstat, second.vmstat)
    disks = _both(first.disks, second.disks)
    used = disks if isinstance(disks, Unknown) else counters.disk_uses(*disks, seconds)
    used = data if isinstance(data, Unknown) else used
    huge, defrag = _huge_pages(second.values)
    return Signs(
        node=node,
        machine=second.boot_id,
        seconds=seconds,
        cpus=_cpus(second.stat),
        numa_nodes=second.numa_nodes,
        memory=second.memory,
        page=second.page,
        load=second.load,
        cpu=stats if isinstance(stats, Unknown) else counters.cpu_use(*stats),
        switches=stats if isinstance(stats, Unknown) else counters.switches(*stats, seconds),
        reclaim=vmstats if isinstance(vmstats, Unknown) else counters.reclaim(*vmstats, seconds),
        compaction=vmstats if isinstance(vmstats, Unknown) else counters.compaction(*vmstats, seconds),
        zones=second.zones,
        numad=second.numad,
        disks=used if isinstance(used, Unknown) else tuple(_placed(disk, data) for disk in used),
        erlang=_erlang_use(first, second, seconds),
        huge_pages=huge,
        huge_pages_defrag=defrag,
        zone_reclaim_mode=_whole(second.values, ZONE_RECLAIM, 1),
        min_free=_whole(second.values, MIN_FREE, _KIB),
    )


def _between(first: HostReading, second: HostReading) -> Reading[Seconds]:
    """Seconds between two readings by the host's own clock since its boot."""
    if isinstance(first.uptime, Unknown):
        return first.uptime
    if isinstance(second.uptime, Unknown):
        return second.uptime
    if first.boot_id != second.boot_id or second.uptime < first.uptime:
        return Unknown(reason="the host was booted between the two readings: sample it again")
    seconds = second.uptime - first.uptime
    if seconds < SHORTEST:
        return Unknown(reason=f"only {seconds:.2f} s lie between the two readings")
    return seconds


def _both(first: Reading[T], second: Reading[T]) -> Reading[tuple[T, T]]:
    """Both readings, or why one of them is missing."""
    if isinstance(first, Unknown):
        return first
    return second if isinstance(second, Unknown) else (first, second)


def _text(answers: Mapping[str, Section], name: str) -> Reading[str]:
    answer = answers.get(name)
    if answer is None:
        return Unknown(reason=f"the host's answer was cut off before `{name}`")
    if answer.exit != 0:
        said = answer.text.strip().splitlines()
        return Unknown(reason=f"`{name}` cannot be read: {said[-1] if said else f'exit {answer.exit}'}")
    return answer.text


def _or_empty(text: Reading[str]) -> str:
    return "" if isinstance(text, Unknown) else text.strip()


def _first_number(answers: Mapping[str, Section], name: str) -> Reading[float]:
    text = _text(answers, name)
    if isinstance(text, Unknown):
        return text
    words = text.split()
    if words and _NUMBER.match(words[0]):
        return float(words[0])
    return Unknown(reason=f"`{name}` holds no number")


def _memory(text: Reading[str]) -> Reading[int]:
    if isinstance(text, Unknown):
        return text
    found = re.search(r"^MemTotal:\s+(\d{1,20}) kB$", text, re.MULTILINE)
    return int(found[1]) * _KIB if found else Unknown(reason="/proc/meminfo does not show the memory")


def _page(text: Reading[str]) -> int:
    found = re.search(r"^PageSize: (\d{1,20})$", _or_empty(text), re.MULTILINE)
    return int(found[1]) if found else _USUAL_PAGE


def _numa(text: Reading[str]) -> Reading[int]:
    """The number of NUMA nodes. A kernel without NUMA has no such folder: that is one node."""
    if isinstance(text, Unknown):
        return text
    found = counters.whole(text.strip())
    return Unknown(reason="the NUMA nodes cannot be counted") if found is None else max(1, found)


def _cpus(stat: Reading[CpuTimes]) -> Reading[int]:
    if isinstance(stat, Unknown):
        return stat
    return stat.cpus or Unknown(reason="the CPUs cannot be counted")


def _values(text: Reading[str]) -> Mapping[str, Reading[str]]:
    """Lines `path: value`; a file that does not exist is left out."""
    if isinstance(text, Unknown):
        return {}
    found: dict[str, Reading[str]] = {}
    for line in text.splitlines():
        path, _, value = line.partition(": ")
        if "Permission denied" in value or "Input/output error" in value:
            found[path] = Unknown(reason=f"{path} cannot be read: {value}")
        elif value != ABSENT:
            found[path] = value
    return found


def _whole(values: Mapping[str, Reading[str]], path: str, unit: int) -> Reading[int]:
    value = values.get(path, Unknown(reason=f"{path} does not exist or was not read"))
    if isinstance(value, Unknown):
        return value
    number = counters.whole(value)
    return Unknown(reason=f"{path} holds no whole number") if number is None else number * unit


def _huge_pages(values: Mapping[str, Reading[str]]) -> tuple[Reading[str], Reading[str]]:
    """The current words of `enabled` and `defrag`; empty if the kernel has no transparent huge pages."""
    if not values:
        lost = Unknown(reason="the settings of transparent huge pages could not be read")
        return lost, lost
    for folder in HUGE_PAGES:
        if folder + "enabled" in values:
            enabled, defrag = values[folder + "enabled"], values.get(folder + "defrag", "")
            return _word(enabled), _word(defrag)
    return "", ""


def _word(value: Reading[str]) -> Reading[str]:
    return value if isinstance(value, Unknown) else parse(value).current or ""


def _numad(answers: Mapping[str, Section], processes: Reading[str]) -> Reading[Numad]:
    log = _text(answers, NUMAD)
    if isinstance(log, Unknown):
        return log
    now = _or_empty(_text(answers, NOW))
    running = None if isinstance(processes, Unknown) else "(numad)" in processes
    return Numad(moves=() if log == ABSENT else read_numad_log(log, now), running=running)


def _hertz(processes: Reading[str]) -> int:
    first = _or_empty(processes).partition("\n")[0].strip()
    return counters.whole(first) or _USUAL_HERTZ


def _erlang(text: Reading[str]) -> Reading[Mapping[tuple[int, int], ErlangThread]]:
    if isinstance(text, Unknown):
        return text
    found: dict[tuple[int, int], ErlangThread] = {}
    process = 0
    for line in text.splitlines():
        if line.startswith("vm ") and (number := counters.whole(line[3:])) is not None:
            process = number
        elif thread := _THREAD.match(line):
            found[process, int(thread[1])] = ErlangThread(
                name=thread[4], ticks=int(thread[2]), sleeps=int(thread[3])
            )
    return found


def _erlang_use(first: HostReading, second: HostReading, seconds: Seconds) -> Reading[tuple[ErlangUse, ...]]:
    """The activity of each VM's schedulers; threads that are new are not counted yet."""
    both = _both(first.erlang, second.erlang)
    if isinstance(both, Unknown):
        return both
    before, after = both
    threads: dict[int, list[ThreadUse]] = {}
    for key, now in after.items():
        then = before.get(key)
        if then is None:
            continue
        if now.ticks < then.ticks or now.sleeps < then.sleeps:
            return Unknown(reason=f"the counters of thread {key[1]} went back between the two readings")
        cpu = (now.ticks - then.ticks) / second.hertz / seconds
        use = ThreadUse(name=now.name, cpu=cpu, sleeps=(now.sleeps - then.sleeps) / seconds)
        threads.setdefault(key[0], []).append(use)
    return tuple(ErlangUse(pid=pid, schedulers=_schedulers(found)) for pid, found in sorted(threads.items()))


def _schedulers(threads: list[ThreadUse]) -> tuple[ThreadUse, ...]:
    """The threads with a scheduler's name; if the VM names none (before OTP 18), all that did work."""
    named = tuple(thread for thread in threads if _NAMED.match(thread.name))
    return named or tuple(thread for thread in threads if thread.cpu >= _AT_WORK)


def _placed(disk: DiskUse, data: Reading[frozenset[str]] | None) -> DiskUse:
    return (
        disk if data is None or isinstance(data, Unknown) else replace(disk, carries_data=disk.name in data)
    )
