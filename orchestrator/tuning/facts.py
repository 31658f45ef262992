"""Parses the answer to `facts_script` into facts. Pure.

Every part is either the host's answer or `Unknown` with a reason. A thing counts as absent only if the host
was seen not to have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.hosts.settings import HostSettings
from orchestrator.model.host import (
    LEAF,
    MULTIPATH,
    PATH,
    TOP,
    BlockDevice,
    FileText,
    HostFacts,
    InitSystem,
    ServiceFacts,
)
from orchestrator.model.reading import Reading, Unknown
from orchestrator.tuning.facts_frames import CUT_OFF, FactsOutput, FramedAnswer, read_answer
from orchestrator.tuning.facts_script import asked_files, asked_queue, asked_services, unit_name, unit_of
from orchestrator.tuning.tunable import FactReads

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
        tuned=_tuned(answer),
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
