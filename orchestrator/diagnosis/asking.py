"""The script of one reading: counters and states that any user may read. No changes, no sudo. Pure.

A diagnosis takes two readings with the same script. The output of a command is bounded, so every part is
bounded too: a host with 256 CPUs or 500 processes must not push the other parts out.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from orchestrator.hosts import script

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

_THREADS: Final = r"""
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
    return script.untranslated(script.sections(parts(root)))


def parts(root: str = "") -> Sequence[tuple[str, str]]:
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
        (ERLANG, _THREADS.format(root=at, field=depth + 3, bytes=_THREAD_BYTES)),
    )
