"""Every fact that tuning needs of a host, in one round trip: the script, and the parsing of its answer. Pure.

The script (`shell/facts.sh`) answers with a row of numbered *pieces*. Each piece follows a line that begins
with the mark of the answer (`script.MAKE_MARK`). A piece counts only if the piece with the next number
follows it and no bytes were left out of it. So a file that was cut off, in the middle or at the end of the
answer, is never taken for a short one.

The order keeps the reading safe: cheap parts come first. The data paths come last, each for a few seconds at
most, since a path on a dead NFS server never answers. The disks behind them are found by the shell functions
of the boot script. Reads need no rights and never go through sudo.

Every part is either the host's answer or `Unknown` with a reason. A thing counts as absent only if the host
was seen not to have it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final

from orchestrator.hosts import script
from orchestrator.hosts.connection import LEFT_OUT
from orchestrator.model.host import (
    LEAF,
    MULTIPATH,
    PATH,
    TOP,
    BlockDevice,
    FileText,
    HostFacts,
    InitSystem,
    Manager,
    ServiceFacts,
)
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.tuning.boot import shell_text
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

_WILD: Final = re.compile(r"(\[[\w!^.-]+\]|[*?])")
_UNIT: Final = "{unit}"


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
    quoted = [shlex.quote(name) for name in asked_services(settings, reads)]
    units = [shlex.quote(unit_name(name)) for name in asked_services(settings, reads)]
    unit = unit_of(settings)
    cheap = (
        "system",
        "h files",
        *(
            f"asked {number} {'d' if path.endswith('/') else 'f'} {_word(path)}"
            for number, path in enumerate(asked_files(settings, reads))
        ),
        "h 'files end'",
        *((f"links {' '.join(quoted)}", f"units {' '.join(units)}") if quoted else ()),
        *((f"scripts {' '.join(quoted)}", "h 'services end'") if quoted else ()),
        f"limits {shlex.quote(unit)} {shlex.quote(unit_name(unit))}" if reads and unit else "",
        "tuned" if any(read.tuned for read in reads) else "",
        "h stage",
    )
    data = (
        shlex.join(["data_path", str(number), path, *asked_queue(reads)])
        for number, path in enumerate(settings.data_paths)
    )
    # Where a folder replaces the host's `/`, programs of the real machine must not answer for it.
    path = "" if settings.root else "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin"
    lines = (
        path,
        script.MAKE_MARK,
        f"root={shlex.quote(settings.root.rstrip('/'))}",
        f"file_bytes={FILE_BYTES} tool_seconds={TOOL_SECONDS} data_seconds={DATA_SECONDS}",
        shell_text("find.sh"),
        shell_text("facts.sh"),
        "exec </dev/null",
        # The data paths are read after `head`: it prints in blocks and would hold back the first stage.
        *("{", *cheap, f"}} | head -c {ANSWER_BYTES - FILE_BYTES}"),
        *(f"n={SECOND_STAGE}", *data, "h end", "echo"),
    )
    return script.untranslated("\n".join(lines))


def _word(pattern: str) -> str:
    """A pattern as one word of the shell, in which only its wild cards are special."""
    parts = _WILD.split(pattern)
    written = (part if number % 2 else shlex.quote(part) for number, part in enumerate(parts) if part)
    return '"$root"' + "".join(written)


CUT_OFF: Final = "the host's answer was cut off here"
_FIRST: Final = re.compile(rf"^({script.MARK_PREFIX}\S+) 1 ", re.MULTILINE)
_KILLED: Final = frozenset({124, 137})
"""Exit codes of `timeout`, and of a command ended by SIGKILL."""
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOutput:
    """The output of a command, both streams."""

    exit: int
    text: str

    @property
    def killed(self) -> bool:
        """Whether it was ended from outside."""
        return self.exit in _KILLED

    @property
    def why(self) -> str:
        """Its last line of output, for people."""
        if self.killed:
            return "no answer in time"
        words = [line.strip() for line in self.text.splitlines() if line.strip()]
        return words[-1][:_REASON_CHARACTERS] if words else f"exit {self.exit}"


@dataclass(slots=True)
class FramedAnswer:
    """The parts of an answer that arrived, by name."""

    own: dict[str, FileText] = field(default_factory=dict)  # the files that are read on every host
    files: dict[str, FileText] = field(default_factory=dict)  # the requested files
    # of commands; a missing one was not run, or the answer ended before it
    outputs: dict[str, Reading[FactsOutput]] = field(default_factory=dict)
    notes: dict[str, Reading[tuple[str, ...]]] = field(default_factory=dict)  # lines of shell builtins
    # every piece that arrived whole, after everything before it: only these prove that something is absent
    titles: set[str] = field(default_factory=set)

    def output(self, name: str) -> Reading[FactsOutput]:
        """The output of a command; `Unknown` if the answer ended before it."""
        return self.outputs.get(name, Unknown(reason=CUT_OFF))

    def lines(self, name: str) -> Reading[tuple[str, ...]]:
        """Lines of a note; `Unknown` if the answer ended before it."""
        return self.notes.get(name, Unknown(reason=CUT_OFF))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    title: str
    body: str
    whole: bool


def read_answer(output: str) -> FramedAnswer:
    """Put an answer together; greetings before it and any text after it are ignored."""
    pieces = _pieces(output)
    answer = FramedAnswer()
    into: dict[str, FileText] = answer.own
    complete = True
    for number, piece in enumerate(pieces):
        complete = complete and piece.whole
        following = pieces[number + 1 : number + 3]
        kind, _, name = piece.title.partition(" ")
        if complete:
            answer.titles.add(piece.title)
        match kind:
            case "files":
                into = answer.own if name == "end" else answer.files
            case "file" if piece.whole:
                into[piece.body] = _text(piece.body, following)
            case "bad" if piece.whole:
                into[piece.body] = Unknown(reason=f"{piece.body}: {name}")
            case "out":
                answer.outputs[name] = _output(piece, following)
            case "note":
                lines = tuple(line for line in piece.body.split("\n") if line)
                answer.notes[name] = lines if piece.whole else Unknown(reason=CUT_OFF)
            case _:
                pass
    return answer


def _pieces(output: str) -> list[_Piece]:
    first = _FIRST.search(output)
    if first is None:
        return []
    mark = re.escape(first[1])
    heads = list(re.finditer(rf"(?:^|\n){mark} (\d+) ([^\n]*)\n", output[first.start() :]))
    text = output[first.start() :]
    made = []
    for head, after in zip_longest(heads, heads[1:]):
        body = text[head.end() : after.start() if after else len(text)]
        # The line ends around a hole may belong to a title and to the next head.
        left_out = LEFT_OUT.search(f"\n{body}\n")
        whole = after is not None and _follows(head, after) and not left_out
        made.append(_Piece(title=head[2], body=body, whole=whole))
    return made


def _follows(head: re.Match[str], after: re.Match[str]) -> bool:
    number = int(head[1])
    if head[2] == "stage":
        return int(after[1]) == SECOND_STAGE + 1
    # An output that is too long also removes the piece that marks its end, and no more.
    too_long = head[2].startswith("out ") and after[2] == "over" and int(after[1]) == number + 2
    return int(after[1]) == number + 1 or too_long


def _text(path: str, following: list[_Piece]) -> FileText:
    """The text of the piece after a path, if the piece with the result of its reading follows."""
    code = _exit_after(following[:1], following[1:])
    if code is None or following[0].title != "text":
        return Unknown(reason=f"{path}: {CUT_OFF}")
    text = following[0].body
    if code != 0:
        return Unknown(reason=f"{path}: {FactsOutput(exit=code, text=text).why}")
    if len(text.encode(errors="replace")) > FILE_BYTES:
        return Unknown(reason=f"{path}: longer than {FILE_BYTES} bytes")
    return text


def _output(piece: _Piece, following: list[_Piece]) -> Reading[FactsOutput]:
    code = _exit_after([piece], following[:1])
    if code is None:
        return Unknown(reason=f"{piece.title.partition(' ')[2]}: too long, or {CUT_OFF}")
    return FactsOutput(exit=code, text=piece.body)


def _exit_after(pieces: list[_Piece], following: list[_Piece]) -> int | None:
    whole = len(pieces) == 1 and len(following) == 1 and pieces[0].whole and following[0].whole
    if not whole or following[0].title != "exit" or re.fullmatch("[0-9]{1,3}", following[0].body) is None:
        return None
    return int(following[0].body)


_LSB_RUNNING: Final = 0
_LSB_STOPPED: Final = frozenset({1, 2, 3})
"""Exit codes of `status`, Linux Standard Base 5.0, "Init Script Actions". With 1 and 2, a file was left."""
_ALIVE: Final = frozenset({"active", "reloading", "refreshing", "activating", "deactivating"})
_STARTS: Final = frozenset({"enabled", "alias", "linked"})
_NATIVE: Final = _STARTS | {
    "disabled",
    "static",
    "indirect",
    "enabled-runtime",
    "linked-runtime",
    "transient",
}
_ON: Final = "on"
_ROLES: Final = frozenset({TOP, LEAF, PATH, MULTIPATH})
_OFF: Final = "off"
_FIRST_WORDS: Final = 200


def read_facts(output: str, settings: HostSettings, reads: Sequence[FactReads]) -> Reading[HostFacts]:
    """The facts of a host; `Unknown` if even its general facts are missing.

    Args:
        output: of `facts_script`; all of it, or as much as arrived.
        settings: of the host, as given to `facts_script`.
        reads: the same as given to `facts_script`.
    """
    answer = read_answer(output)
    if not (answer.titles or answer.outputs or answer.notes):
        words = " ".join(output.split())[:_FIRST_WORDS]
        return Unknown(reason=f"the host sent no facts: {words or 'no output'}")
    init = _init(answer)
    if isinstance(init, Unknown):
        return init
    services = asked_services(settings, reads)
    devices, mounts = _devices(answer, settings)
    return HostFacts(
        init=init,
        cpus=_number(answer, "processors", r"^([0-9]{1,6})$"),
        memory=_number(answer, "memory", r"^MemTotal: +([0-9]+) kB$") * 1024,
        files=_files(answer, settings, reads),
        services={name: _service(answer, init, name, services) for name in services},
        tuned=_tuned(answer) if any(read.tuned for read in reads) else NOT_READ,
        devices=devices,
        mounts=mounts,
        limits=_limits(answer),
        process_limits=_process_limits(answer),
        data_paths=settings.data_paths,
        unit=unit_of(settings),
    )


def _init(answer: FramedAnswer) -> Reading[InitSystem]:
    there = answer.lines("markers")
    if isinstance(there, Unknown) or "files" not in answer.titles:  # the part after the general facts
        return Unknown(reason=f"general facts: {CUT_OFF}")
    if "/run/systemd/system" in there:  # sd_booted(3)
        return InitSystem.SYSTEMD
    scripts = "/etc/init.d" in there or "/etc/rc.d/init.d" in there
    return InitSystem.SYSV if scripts and "/run/openrc" not in there else InitSystem.OTHER


def _number(answer: FramedAnswer, name: str, pattern: str) -> int:
    """A number in the output of a command; 0 where it is not known."""
    said = answer.output(name)
    found = None if isinstance(said, Unknown) else re.search(pattern, said.text, re.MULTILINE)
    return int(found[1]) if found else 0


def _files(
    answer: FramedAnswer, settings: HostSettings, reads: Sequence[FactReads]
) -> Mapping[str, FileText]:
    """The files that were read. A pattern that the answer did not reach is a key itself, with `Unknown`."""
    asked = [(f"asked {number}", path) for number, path in enumerate(asked_files(settings, reads))]
    for number, _ in enumerate(settings.data_paths):
        asked += [(f"asked disks {number}", f"/sys/block/*/queue/{name}") for name in asked_queue(reads)]
    unread = {
        path: Unknown(reason=f"{path}: {CUT_OFF}") for title, path in asked if title not in answer.titles
    }
    return {**unread, **answer.files}


def _service(
    answer: FramedAnswer, init: InitSystem, name: str, asked: Sequence[str]
) -> Reading[ServiceFacts]:
    links = answer.lines("links")
    if isinstance(links, Unknown):
        return Unknown(reason=f"service {name}: {links.reason}")
    match init:
        case InitSystem.SYSTEMD:
            return _of_systemd(answer, name, asked, linked=_starts(answer, links, name))
        case InitSystem.SYSV:
            return _of_script(answer, name, linked=_starts(answer, links, name))
        case InitSystem.OTHER:
            return Unknown(reason=f"service {name}: the host runs neither systemd nor init scripts")


def _of_systemd(
    answer: FramedAnswer, name: str, asked: Sequence[str], *, linked: bool
) -> Reading[ServiceFacts]:
    said = answer.output("systemctl")
    if isinstance(said, Unknown) or said.killed:
        why = said.reason if isinstance(said, Unknown) else said.why
        return Unknown(reason=f"systemctl show {unit_name(name)}: {why}")
    blocks = [
        dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        for block in re.split(r"\n{2,}", said.text.strip())
    ]
    unit = unit_name(name)
    named = [block for block in blocks if unit in (block.get("Id"), *block.get("Names", "").split())]
    # An alias is shown under the name of its target, in the position of the alias.
    in_order = [blocks[asked.index(name)]] if len(blocks) == len(asked) else []
    found = next(iter(named or in_order), {})
    active, load, state = (found.get(key) for key in ("ActiveState", "LoadState", "UnitFileState"))
    if not active or not load or load in ("error", "bad-setting"):
        return Unknown(reason=f"systemctl show {unit}: {load or said.why}")
    masked = load == "masked" or (state or "").startswith("masked")
    return ServiceFacts(
        present=load != "not-found",
        running=active in _ALIVE,
        # An init script under systemd has no unit file of its own: its links say when it starts.
        enabled=not masked and (state in _STARTS or (linked and state not in _NATIVE)),
        masked=masked,
    )


def _of_script(answer: FramedAnswer, name: str, *, linked: bool) -> Reading[ServiceFacts]:
    said = answer.outputs.get(f"service {name}")
    if said is None:
        if "services end" in answer.titles:
            return ServiceFacts(present=False)
        return Unknown(reason=f"service {name}: {CUT_OFF}")
    if isinstance(said, Unknown):
        return said
    if said.exit not in {_LSB_RUNNING, *_LSB_STOPPED}:
        return Unknown(reason=f"service {name} status exits {said.exit}: {said.why}")
    return ServiceFacts(present=True, running=said.exit == _LSB_RUNNING, enabled=linked)


def _starts(answer: FramedAnswer, links: Sequence[str], name: str) -> bool:
    """Whether a link starts it in the default run level; in any run level if inittab has no default."""
    table = answer.own.get("/etc/inittab")
    level = (
        re.search(r"^[^#:\s]*:([2-5]):initdefault:", table, re.MULTILINE) if isinstance(table, str) else None
    )
    wanted = level[1] if level else "2-5"
    starts = re.compile(rf"/rc[{wanted}]\.d/S\d\d{re.escape(name)}$")
    return any(starts.search(link) for link in links)


def _tuned(answer: FramedAnswer) -> Reading[str | None]:
    if "stage" not in answer.titles:  # the part after tuned
        return Unknown(reason=f"tuned: {CUT_OFF}")
    said = answer.outputs.get("tuned")
    if said is None:
        old = answer.own.get("/etc/tune-profiles/active-profile")
        return _profile(old) if isinstance(old, str) else old
    if isinstance(said, Unknown):
        return said
    return _of_tuned_adm(said)


def _of_tuned_adm(said: FactsOutput) -> Reading[str | None]:
    """Parses the output of `tuned-adm active`.

    A daemon that does not run has set nothing. RHEL 6 has two daemons; ktune sets most values.
    """
    if said.killed:
        return Unknown(reason=f"tuned-adm active: {said.why}")
    states = re.findall(r"^Service (?:tuned|ktune): \w+, (\w+)", said.text, re.MULTILINE)
    stopped = bool(states) and all(state == "stopped" for state in states)
    if stopped or re.search(r"not running, preset profile|No current active profile", said.text):
        return None
    active = re.search(r"^Current active profile: *(.*)$", said.text, re.MULTILINE)
    return _profile(active[1]) if active else Unknown(reason=f"tuned-adm active: {said.why}")


def _profile(text: str) -> str | None:
    name = text.strip()
    return None if name in ("", _OFF) else name


def _limits(answer: FramedAnswer) -> Mapping[str, str]:
    said = answer.output("limits")
    if isinstance(said, Unknown) or said.killed:
        return {}
    shown = dict(line.partition("=")[::2] for line in said.text.splitlines() if "=" in line)
    return shown if shown.pop("LoadState", "") == "loaded" else {}


def _process_limits(answer: FramedAnswer) -> Reading[Mapping[str, str]]:
    said = answer.outputs.get("process")
    if said is None or isinstance(said, Unknown):
        return said or {}
    if said.exit != 0:
        return Unknown(reason=said.why)
    return dict(re.findall(r"^(Max [a-z ]*[a-z]) {2,}(\w+)", said.text, re.MULTILINE))


def _devices(
    answer: FramedAnswer, settings: HostSettings
) -> tuple[Reading[tuple[BlockDevice, ...]], Reading[Mapping[str, str]]]:
    """The devices behind the data paths, and where these are mounted."""
    if not settings.data:
        none = Unknown(reason="no data paths are named: set `hosts.data` in the cluster file")
        return none, none
    devices: dict[str, BlockDevice] = {}
    mounts: dict[str, str] = {}
    unread: list[str] = []
    for number, path in enumerate(settings.data_paths):
        lines = _behind(answer, number, settings)
        if isinstance(lines, Unknown):
            unread.append(f"{path}: {lines.reason}")
            continue
        for word, _, rest in (line.partition(" ") for line in lines):
            if word == _ON:
                mounts[path] = rest
            elif word in _ROLES:
                name, _, turns = rest.partition(" ")
                devices[name] = _joined(
                    devices.get(name, BlockDevice(name=name, roles=())), word, turns, path
                )
            else:
                unread.append(f"{path}: {rest}")
    why = Unknown(reason="; ".join(unread))
    return (
        why if unread else tuple(device for _, device in sorted(devices.items())),
        mounts if len(mounts) == len(settings.data_paths) else why,
    )


def _joined(device: BlockDevice, role: str, turns: str, path: str) -> BlockDevice:
    return replace(
        device,
        roles=tuple(dict.fromkeys((*device.roles, role))),
        rotational={"0": False, "1": True}.get(turns),
        data_paths=tuple(dict.fromkeys((*device.data_paths, path))),
    )


def _behind(answer: FramedAnswer, number: int, settings: HostSettings) -> Reading[tuple[str, ...]]:
    """The lines about a data path, see `tuning/shell/find.sh`."""
    said = answer.output(f"data {number}")
    if isinstance(said, Unknown):
        return said
    match said.exit:
        case 0 if f"asked disks {number}" not in answer.titles:
            return Unknown(reason=CUT_OFF)
        case 0:
            return answer.lines(f"disks {number}")
        case 3:
            who = settings.user or "the user"
            return Unknown(reason=f"there is no such path, or {who} may not see it")
        case 4:
            return Unknown(reason=f"leads out of {settings.root}")
        case _ if said.killed:
            return Unknown(reason="no answer in time: is it on a server or disk that is gone?")
        case _:
            return Unknown(reason=f"cannot be resolved: {said.why}")
