"""The shell script that reads, in one round trip, every fact that tuning needs of a host. Pure.

Its answer is a row of numbered *pieces*. Each piece follows a line that begins with a mark made up on the
host for this one answer, so no file can contain it. A piece is whole if the next number follows it.
`facts_frames` puts the pieces together.

The order keeps the reading safe: cheap parts come first. The data paths come last, each for a few seconds at
most, since a path on a dead NFS server never answers. The disks behind them are found by the shell functions
of the boot script. Reads need no rights and never go through sudo.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from orchestrator.hosts import script
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.host import Manager
from orchestrator.tuning.boot_files import shell_text
from orchestrator.tuning.tunable import FactReads

FILE_BYTES: Final = 64 * 1024
"""Limit of one file; no kernel value and no settings file is longer."""
ANSWER_BYTES: Final = 1024 * 1024
"""Limit of the whole answer: the connection must keep this many bytes."""
TOOL_SECONDS: Final = 10
DATA_SECONDS: Final = 5
"""A data path without an answer for so long is on a dead disk or server; the next path gets one second."""
SECOND_STAGE: Final = 500_000
"""Number of the first piece about data paths: they are printed beyond the limit of the first stage."""

SYSTEM_FILES: Final = ("/etc/inittab", "/etc/tune-profiles/active-profile")
MARKERS: Final = ("/run/systemd/system", "/run/openrc", "/etc/init.d", "/etc/rc.d/init.d")
"""Paths whose existence is itself a fact."""
LIMITS: Final = ("LoadState", "LimitNOFILE", "LimitMEMLOCK", "LimitNOFILESoft", "LimitMEMLOCKSoft")
"""Limits of the node's unit: systemd has read templates, drop-ins and its own defaults for them."""
UNIT_PROPERTIES: Final = ("Id", "Names", "LoadState", "ActiveState", "UnitFileState")

_WILD: Final = re.compile(r"(\[[\w!^.-]+\]|[*?])")
_UNIT: Final = "{unit}"

_FUNCTIONS: Final = f"""
M=@facts-{script.NONCE}
n=0
h() {{ n=$((n+1)); printf '\\n%s %s %s\\n' "$M" "$n" "$1"; }}
piece() {{ h "$1"; printf '%s' "$2"; }}
out() {{
  h "out $2"; l=$1; shift 2; n=$((n+1))
  {{ "$@" 2>&1; r=$?; printf '\\n%s %s exit\\n%s' "$M" "$n" "$r"; }} | head -c "$l"
  h over
}}
there() {{
  piece file "${{1#"$R"}}"; h text
  [ -z "$2" ] || head -c "$2" "$1" 2>&1; r=$?
  piece exit "$r"
}}
bad() {{ piece "bad $2" "${{1#"$R"}}"; }}
missing() {{
  a=$1
  while [ "$a" != "$R" ] && [ -n "$a" ] && ! [ -e "$a" ]; do a=${{a%/*}}; done
  [ -d "$a" ] || return 0
  [ -x "$a" ] || {{ bad "$1" "its folder may not be searched"; return 0; }}
  case $1 in *[*?[]*) [ -r "$a" ] || bad "$1" "its folder may not be listed" ;; esac
}}
f() {{
  if [ -f "$1" ]; then there "$1" {FILE_BYTES + 1}
  elif [ -d "$1" ]; then bad "$1" "a folder, not a file"
  elif [ -e "$1" ] && [ "$1" -ef /dev/null ]; then there "$1" ""
  elif [ -e "$1" ]; then bad "$1" "no regular file"
  elif [ -L "$1" ]; then bad "$1" "a link to nothing"
  else missing "$1"; fi
}}
d() {{ if [ -d "$1" ]; then there "$1" ""; else missing "${{1%/}}"; fi; }}
"""
_FIND: Final = shell_text("find.sh")


def unit_of(settings: HostSettings) -> str:
    """The node's own service, without `.service`; empty where it is a container, a command or not named."""
    if settings.service.manager not in (Manager.SYSTEMD, Manager.SYSV) or not settings.service.is_named:
        return ""
    return settings.unit.removesuffix(".service")


def unit_name(service: str) -> str:
    """The name of a service's unit; a name with another unit's ending is kept."""
    return service if service.endswith((".path", ".timer", ".socket")) else f"{service}.service"


def asked_files(settings: HostSettings, reads: Sequence[FactReads]) -> tuple[str, ...]:
    """Every path and glob once, in order."""
    unit = unit_of(settings)
    paths = (path for read in reads for path in read.files if unit or _UNIT not in path)
    return tuple(dict.fromkeys(path.replace(_UNIT, unit) for path in paths))


def asked_queue(reads: Sequence[FactReads]) -> tuple[str, ...]:
    """Every file of a device's queue once, in order."""
    return tuple(dict.fromkeys(name for read in reads for name in read.queue))


def asked_services(settings: HostSettings, reads: Sequence[FactReads]) -> tuple[str, ...]:
    """Every service once, in order."""
    unit = unit_of(settings)
    names = (name for read in reads for name in read.services if unit or _UNIT not in name)
    return tuple(dict.fromkeys(name.replace(_UNIT, unit) for name in names))


def facts_script(settings: HostSettings, reads: Sequence[FactReads]) -> str:
    """The command line that reads a host: at most `ANSWER_BYTES` of standard output, read by `read_facts`.

    If the answer is cut off, by its limits or with the connection, the part that arrived can still be read.
    """
    cheap = "\n".join(
        (
            _system(),
            _files(asked_files(settings, reads)),
            _services(asked_services(settings, reads)),
            _limits(unit_of(settings)) if reads else "",
            (
                "command -v tuned-adm >/dev/null &&"
                f" out {FILE_BYTES} tuned limited {TOOL_SECONDS} tuned-adm active"
            ),
            "h stage",
        )
    )
    # Where a folder replaces the host's `/`, programs of the real machine must not answer for it.
    path = "" if settings.root else "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n"
    return script.untranslated(
        f"{path}R={shlex.quote(settings.root.rstrip('/'))}; root=$R\n{_FUNCTIONS}\n{_FIND}\nexec </dev/null\n"
        # The data paths are read after `head`: it prints in blocks and would hold back the first stage.
        f"{{\n{cheap}\n}} | head -c {ANSWER_BYTES - FILE_BYTES}\n"
        f"n={SECOND_STAGE}\n{_data_paths(settings.data_paths, asked_queue(reads))}\nh end\necho"
    )


def _system() -> str:
    files = "\n".join(f'f "$R"{path}' for path in SYSTEM_FILES)
    return "\n".join(
        (
            f'h \'note markers\'; for m in {" ".join(MARKERS)}; do [ -e "$R$m" ] && echo "$m"; done',
            files,
            f'out {FILE_BYTES} memory grep "^MemTotal:" "$R/proc/meminfo"',
            f'out {FILE_BYTES} processors grep -c "^processor" "$R/proc/cpuinfo"',
        )
    )


def _files(patterns: Sequence[str]) -> str:
    """Lines that print every file that a pattern matches, and a piece for each finished pattern."""
    lines = [
        f'for p in {_word(path)}; do {"d" if path.endswith("/") else "f"} "$p"; done; h "asked {number}"'
        for number, path in enumerate(patterns)
    ]
    return "\n".join(["h files", *lines, "h 'files end'"])


def _word(pattern: str) -> str:
    """A pattern as one word of the shell, in which only its wild cards are special."""
    parts = _WILD.split(pattern)
    written = (part if number % 2 else shlex.quote(part) for number, part in enumerate(parts) if part)
    return '"$R"' + "".join(written)


def _services(names: Sequence[str]) -> str:
    if not names:
        return ""
    properties = " ".join(f"-p {name}" for name in UNIT_PROPERTIES)
    units = " ".join(shlex.quote(unit_name(name)) for name in names)
    lines = ["h 'note links'"]
    lines += [
        f'for m in "$R"/etc/rc[2345].d/S[0-9][0-9]{name} "$R"/etc/init.d/rc[2345].d/S[0-9][0-9]{name}; do'
        ' if [ -e "$m" ] || [ -L "$m" ]; then printf \'%s\\n\' "${m#"$R"}"; fi; done'
        for name in map(shlex.quote, names)
    ]
    lines += [
        'if [ -d "$R/run/systemd/system" ]; then',
        f"out {FILE_BYTES} systemctl limited {TOOL_SECONDS} systemctl show {properties} -- {units}",
        "else",
    ]
    for name in names:
        quoted, script_of = shlex.quote(name), shlex.quote(f"/etc/init.d/{name}")
        title = shlex.quote(f"service {name}")
        lines.append(
            f'if [ -e "$R"{script_of} ]; then if command -v service >/dev/null;'
            f" then out {FILE_BYTES} {title} limited {TOOL_SECONDS} service {quoted} status;"
            f' else out {FILE_BYTES} {title} limited {TOOL_SECONDS} "$R"{script_of} status; fi; fi'
        )
    return "\n".join([*lines, "fi", "h 'services end'"])


def _limits(unit: str) -> str:
    if not unit:
        return ""
    properties = " ".join(f"-p {name}" for name in LIMITS)
    of_unit, limited = f"-- {shlex.quote(unit_name(unit))}", f"limited {TOOL_SECONDS}"
    status = f"service {shlex.quote(unit)} status"
    return f"""if [ -d "$R/run/systemd/system" ]; then
out {FILE_BYTES} limits {limited} systemctl show {properties} {of_unit}
p=$({limited} systemctl show -p MainPID {of_unit} 2>/dev/null | head -c {FILE_BYTES}); p=${{p#MainPID=}}
else
p=$({limited} {status} 2>/dev/null | head -c {FILE_BYTES} | sed -n 's/.*(pid *\\([0-9]*\\)).*/\\1/p')
fi
case $p in ''|0|*[!0-9]*) ;;
*) [ ! -d "$R/proc/$p" ] || out {FILE_BYTES} process cat "$R/proc/$p/limits" ;; esac"""


def _data_paths(paths: Sequence[str], queue: Sequence[str]) -> str:
    """Lines that find the devices behind each data path, and print the files of their queues."""
    each = "\n".join(f'    f "$R/sys/block/$name/queue/{name}"' for name in queue) or "    :"
    lines = []
    for number, path in enumerate(paths):
        lines.append(
            f"""resolve {shlex.quote(path)} "${{slow:-{DATA_SECONDS}}}"; r=$?; [ $r -le 4 ] || slow=1
piece 'out data {number}' "$real"; piece exit "$r"
found=
[ $r -ne 0 ] || found=$(behind "$real")
piece 'note disks {number}' "$found"
h files
while read -r role name rest; do case $role in top|leaf|path|multipath)
{each}
esac; done <<END
$found
END
h 'asked disks {number}'"""
        )
    return "\n".join(lines)
