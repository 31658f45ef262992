r"""The lease's files on one host: the shell script that reads, creates and removes them, and its output.

One file for each number, `orchestrate-lease.NAME-HASH.NUMBER.json`, in a folder in which every account can
create files. A file appears under its name in one step: `ln` refuses a name that exists, `mv` replaces it.

Any user of the host can write to that folder. Therefore the script follows no symbolic link, opens no device
and no pipe, reads `MOST_BYTES` of at most `MOST_FILES` files, and removes line ends from them, so that no
content can look like a separate line of output. The content is checked here as untrusted input, since its
node names go into commands again.

The script needs only the rights of the account, and runs under dash and BusyBox.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from orchestrator.lease_record import decode, encode
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.model.riak import holder
from orchestrator.riak.admin import AdminCommand
from orchestrator.riak.output import CommandOutput, RiakUnreadable, shown
from orchestrator.riak.terms import node_name

MOST_BYTES: Final = 64 * 1024
"""Of a file: a record of 500 nodes with raised limits is smaller, and Linux passes arguments of 128 KiB."""
MOST_FILES: Final = 16
"""A cluster has one or two files; this program never creates more."""
COMMAND_SECONDS: Final[Seconds] = 8.0
"""Less than the interval of heartbeats (15 s), so that a hanging host costs at most one of them."""
_LONGEST_TEXT: Final = 1000
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")

_SCRIPT: Final = r"""
verb=$1 folder=$2 prefix=$3
cd "$folder" 2>/dev/null || { echo "failed $folder cannot be entered"; exit 0; }
here=$(pwd -P)
[ "$here" != / ] || here=''

inode() { ls -di "$1" 2>/dev/null | { read -r its _; echo "$its"; }; }
there() { [ -e "$1" ] || [ -h "$1" ]; }

one() {
    owner=$(ls -ld "$1" 2>/dev/null | { read -r _ _ whose _; echo "${whose:-?}"; })
    if [ -h "$1" ] || [ ! -f "$1" ]; then
        ! there "$1" || echo "strange $2 $owner"
        return
    fi
    (
        exec 3<"$1" || exit 1
        # The file that was opened, and not one that a link led to after the look above.
        case $(readlink /proc/self/fd/3) in "$here/$1"|"$here/$1 (deleted)") ;; *) exit 1 ;; esac
        text=$(head -c "$most" <&3 | tr -d '\000\n\r')
        printf 'file %s %s %s\n' "$2" "$owner" "$text"
    ) 2>/dev/null || ! there "$1" || echo "strange $2 $owner"
}

list() {
    boot='' machine='' host='' found=0
    { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
    { read -r machine </etc/machine-id; } 2>/dev/null
    { read -r host </proc/sys/kernel/hostname; } 2>/dev/null
    echo "place $boot/$machine/$host/$(inode .)"
    for name in "$prefix".*.json; do
        number=${name#"$prefix".} number=${number%.json}
        case $number in ''|0*|*[!0-9]*|??????????*) continue ;; esac
        there "$name" || continue
        found=$((found + 1))
        if [ "$found" -gt "$files" ]; then echo many; break; fi
        one "$name" "$number"
    done
    echo end
}

put() {
    number=$1 text=$2 name=$prefix.$1.json temporary=''
    trap '[ -z "$temporary" ] || rm -f "$temporary"' EXIT
    trap 'exit 1' HUP INT TERM
    why=$(mktemp "./.$prefix.XXXXXX" 2>&1) && temporary=$why
    if [ -z "$temporary" ]; then echo "failed $why"; return; fi
    if ! why=$( { printf '%s\n' "$text" >"$temporary" && chmod 644 "$temporary"; } 2>&1) ||
        [ "$(($(wc -c <"$temporary")))" -ne "$((${#text} + 1))" ]
    then echo "failed it could not be written ${why:-in full}"; return; fi
    made=$(inode "$temporary")
    # A folder, or a link to one, would take the file in.
    if there "$name" && { [ "$verb" = create ] || [ -h "$name" ] || [ ! -f "$name" ]; }; then
        echo taken; return
    fi
    if [ "$verb" = create ]
    then why=$(ln "$temporary" "$name" 2>&1)
    else why=$(mv -f "$temporary" "$name" 2>&1)
    fi
    if [ -n "$made" ] && [ ! -h "$name" ] && [ "$(inode "$name")" = "$made" ]
    then echo made
    elif there "$name" && [ "$verb" = create ]
    then echo taken
    else echo "failed ${why:-it is not there}"
    fi
}

discard() {
    left=''
    for number in "$@"; do
        rm -f "$prefix.$number.json" 2>/dev/null
        ! there "$prefix.$number.json" || left="$left $number"
    done
    echo "left$left"
}

withdraw() {
    # Another run may have made a file of the same name meanwhile: only one with our own content is removed.
    name=$prefix.$1.json
    if [ -f "$name" ] && [ ! -h "$name" ] && [ "$(head -c "$((${#2} + 2))" "$name" 2>/dev/null)" = "$2" ]
    then
        rm -f "$name"
    fi
}

case $verb in
    list) most=$4 files=$5; list ;;
    create|replace) put "$4" "$5" ;;
    withdraw) withdraw "$4" "$5" ;;
    remove) shift 3; discard "$@" ;;
esac
"""


class LeaseMark(Enum):
    """The state of a lease in its file."""

    HELD = "held"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A file of this program."""

    owner: str  # the account that wrote it, by its name on the host
    record: LeaseRecord  # the lease record in it
    mark: LeaseMark  # whether the lease was released since

    @property
    def key(self) -> tuple[int, str, str]:
        """The lease and its process: the same on every host."""
        return self.record.epoch, self.record.run, self.record.process


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A file with such a name that holds no record."""

    owner: str  # the account that owns it
    why: str  # the problem with it


LeaseFile: TypeAlias = KeptFile | Damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The lease files of one host."""

    place: str  # identifies a folder. Nodes that answer with the same place share a machine and its files.
    files: Mapping[int, LeaseFile]  # by number


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The place of a cluster's files, and the commands on them."""

    path: str  # absolute, the same on every host
    cluster: str  # the name in the cluster file

    @property
    def prefix(self) -> str:
        """The prefix of the file names. It differs for each cluster name, with any characters in it."""
        digest = hashlib.sha256(self.cluster.encode()).hexdigest()[:8]
        return f"orchestrate-lease.{_UNSAFE.sub('_', self.cluster)[:60]}-{digest}"

    def file(self, number: int) -> str:
        """The path of one file."""
        return f"{self.path.rstrip('/')}/{self.prefix}.{number}.json"

    def list(self) -> AdminCommand:
        """The command that reads every file; see `parse_listing`."""
        return self._command("list", str(MOST_BYTES + 1), str(MOST_FILES))

    def create(self, number: int, text: str) -> AdminCommand:
        """The command that creates a file unless it exists; see `parse_put`."""
        return self._command("create", str(number), text)

    def replace(self, number: int, text: str) -> AdminCommand:
        """The command that creates or replaces a file; see `parse_put`."""
        return self._command("replace", str(number), text)

    def withdraw(self, number: int, text: str) -> AdminCommand:
        """The command that removes a file only if it has this content; its output is ignored."""
        return self._command("withdraw", str(number), text)

    def remove(self, numbers: Collection[int]) -> AdminCommand:
        """The command that removes files; see `parse_left`."""
        return self._command("remove", *map(str, sorted(numbers)))

    def _command(self, verb: str, *words: str) -> AdminCommand:
        argv = ("/bin/sh", "-c", _SCRIPT, "orchestrate-lease", verb, self.path, self.prefix, *words)
        return AdminCommand(argv=argv, timeout=COMMAND_SECONDS, as_root=False)


def text_of(record: LeaseRecord, mark: LeaseMark) -> str:
    """The content of a file: one line of JSON in ASCII, without a single quote.

    Each shell on the way to the host quotes it once more, and a single quote grows fivefold each time.
    """
    content = {"lease": mark.value, "record": encode(record)}
    return json.dumps(content, separators=(",", ":")).replace("'", "\\u0027")


def fault_of(text: str) -> str | None:
    """Why a content could not be read again; None if it could."""
    found = _file(text, "")
    return found.why if isinstance(found, Damaged) else None


def parse_listing(output: CommandOutput) -> Listing:
    """The files of a host; unreadable if the answer is incomplete."""
    lines = _answer(output, "place ", "failed ")
    if len(lines) == 1 and lines[0].startswith("failed "):
        raise RiakUnreadable(lines[0].removeprefix("failed "))
    if output.exit != 0 or len(lines) < 2 or lines[-1] != "end":  # noqa: PLR2004  (its first and its last)
        raise RiakUnreadable(f"the files of the lease were not listed to their end ({_said(output)})")
    files: dict[int, LeaseFile] = {}
    for line in lines[1:-1]:
        if line == "many":
            raise RiakUnreadable(f"it has more than {MOST_FILES} files of this cluster's lease: remove them")
        kind, number, owner, text = (*line.split(" ", 3), "", "", "")[:4]
        if kind not in ("file", "strange") or not _NUMBER.fullmatch(number):
            raise RiakUnreadable(f"its list of the lease's files has a line of another kind: {shown(line)}")
        by = owner if owner.isprintable() and len(owner) <= _LONGEST_TEXT else "?"
        if kind == "strange":
            files[int(number)] = Damaged(owner=by, why="it is no regular file that this account can read")
        else:
            files[int(number)] = _file(text, by)
    return Listing(place=lines[0].removeprefix("place "), files=files)


def parse_put(output: CommandOutput) -> str | None:
    """Why the file was not created; None if it was. `taken`: the file already exists."""
    said = " ".join(" ".join(_answer(output, "made", "taken", "failed ")).split())
    if output.exit != 0 or not said:
        return f"its answer did not come ({_said(output)})"
    return None if said == "made" else said.removeprefix("failed ")


def parse_left(output: CommandOutput) -> frozenset[int]:
    """The files that could not be removed."""
    words = " ".join(_answer(output, "left")).split()
    if output.exit != 0 or not words or not all(map(_NUMBER.fullmatch, words[1:])):
        raise RiakUnreadable(f"whether files of the lease were removed is not known ({_said(output)})")
    return frozenset(map(int, words[1:]))


def _answer(output: CommandOutput, *first: str) -> Sequence[str]:
    """The lines from the first one with this start: a login shell may print a greeting before.

    Only line feeds separate them: a file may hold other line separators.
    """
    lines = output.stdout.removesuffix("\n").split("\n")
    begin = next((at for at, line in enumerate(lines) if line.startswith(first)), len(lines))
    return lines[begin:]


def _said(output: CommandOutput) -> str:
    return shown(" ".join((output.stderr.strip() or output.stdout.strip() or "nothing").split()))


def _file(text: str, owner: str) -> LeaseFile:
    """Parse the content of a file."""
    if len(text.encode()) > MOST_BYTES:
        return Damaged(owner=owner, why=f"it is larger than {MOST_BYTES} bytes")
    try:
        content = json.loads(text)
        _require_plain(content)
        if not isinstance(content, dict) or set(content) != {"lease", "record"}:
            return Damaged(owner=owner, why="it is not what this program writes")
        mark = LeaseMark(content["lease"])
        record = decode(content["record"])
        if isinstance(record, Unknown):
            return Damaged(owner=owner, why=record.reason)
        _require_names(record)
    except RecursionError:
        return Damaged(owner=owner, why="it is nested too deep")
    except (ValueError, RiakUnreadable) as error:
        return Damaged(owner=owner, why=" ".join(str(error)[:_LONGEST_TEXT].split()))
    return KeptFile(owner=owner, record=record, mark=mark)


def _require_plain(value: Any) -> None:
    """Check that every text is safe to show.

    Raises:
        RiakUnreadable: a text is too long, or has control characters.
    """
    if isinstance(value, str) and (len(value) > _LONGEST_TEXT or not value.isprintable()):
        raise RiakUnreadable("it has a text that is too long, or that cannot be printed")
    if isinstance(value, dict):
        for key, each in value.items():
            _require_plain(key)
            _require_plain(each)
    elif isinstance(value, list):
        for each in value:
            _require_plain(each)


def _require_names(record: LeaseRecord) -> None:
    """Check that names and numbers have the form that this program writes: commands are built from them.

    Raises:
        RiakUnreadable: one of them has another form.
    """
    if record.epoch < 1 or record.heartbeat < 0:
        raise RiakUnreadable("its epoch or its heartbeat is no count")
    for name in (*(each.node for each in record.in_hand), *record.out_of_service, *record.restarted):
        node_name(name)
    for debt in record.debts:
        node_name(holder(debt.key))
        if not (_is_limit(debt.found) and _is_limit(debt.wanted)):
            raise RiakUnreadable("a limit is no number")
    if record.replicas or record.excluded:
        raise RiakUnreadable("it lists what no Riak cluster has")


def _is_limit(value: str | Sequence[str] | None) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isdecimal())
