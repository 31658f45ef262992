"""What sets a node's values at the next boot: the texts, whether the host has them, and the changes. Pure.

`/etc/orchestrate-tuning/boot.sh` sets the values that the parts beside it name, one part for each node of the
host, so several clusters can share a host. systemd runs it after tuned and sysctl and before the nodes'
services, and again when tuned starts, stops or changes its profile. Elsewhere an init script runs it. It is
bounded at 30 seconds, and a failure does not delay a node. No file of another program is read for it: the
script runs after them all.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files as package_files
from typing import Final

from orchestrator.model.host import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BOOT,
    Change,
    FileChange,
    Reload,
    ServiceChange,
    ServiceMode,
    TunableState,
    TuningProfile,
    Verdict,
)
from orchestrator.tuning.kernel import KernelParameter, QueueTunable
from orchestrator.tuning.registry import TUNABLES
from orchestrator.tuning.values import SAME_MEANING

FOLDER: Final = "/etc/orchestrate-tuning"
SCRIPT: Final = f"{FOLDER}/boot.sh"
PARTS: Final = f"{FOLDER}/*.part"
NAME: Final = "orchestrate-tuning"
PATH_NAME: Final = f"{NAME}.path"
UNIT: Final = f"/etc/systemd/system/{NAME}.service"
PATH_UNIT: Final = f"/etc/systemd/system/{PATH_NAME}"
INIT: Final = f"/etc/init.d/{NAME}"
OURS: Final = "# Written by orchestrate"
HEADER: Final = f"{OURS}; `orchestrate tune revert` removes it.\n"

_TITLE: Final = f"""\
#!/bin/sh
{HEADER}#
# Sets the kernel's values for the database nodes of this host: at boot, and after each start, stop and change
# of profile of tuned. It may be run by hand, as root, at any time. Values that are already right are not
# written. The values are in the files *.part beside this script. Exit code 1: a value could not be set.
#
# shellcheck disable=SC2317,SC2329  # lines of the parts name these functions
"""
SERVICE_UNIT: Final = f"""\
{HEADER}[Unit]
Description=Kernel values for database nodes
After=tuned.service systemd-sysctl.service systemd-tmpfiles-setup.service local-fs.target
PartOf=tuned.service

[Service]
Type=oneshot
ExecStart=/bin/sh {SCRIPT}
TimeoutStartSec=30
StartLimitInterval=0

[Install]
WantedBy=multi-user.target tuned.service
"""
"""Without RemainAfterExit: an active unit would not be started again by a start of tuned."""
PATH_UNIT_TEXT: Final = f"""\
{HEADER}# `tuned-adm profile` restarts nothing. At its stop, tuned writes the values that it found at its
# start, and then removes its pid file. Both run the script again.
[Unit]
Description=Changes of tuned's profile and stops of tuned, for {NAME}.service

[Path]
PathChanged=/etc/tuned/active_profile
PathChanged=/run/tuned/tuned.pid

[Install]
WantedBy=multi-user.target
"""
INIT_TEXT: Final = f"""\
#!/bin/sh
{HEADER}# chkconfig: 2345 79 21
# description: kernel values for database nodes
### BEGIN INIT INFO
# Provides: {NAME}
# Required-Start: $local_fs
# Required-Stop:
# Should-Start: procps sysctl tuned ktune
# X-Start-Before: elasticsearch opensearch riak cassandra
# Default-Start: 2 3 4 5
# Default-Stop:
# Short-Description: kernel values for database nodes
### END INIT INFO
case ${{1-}} in
    start|restart|force-reload)
        # At most 30 seconds; the services after it start in any case.
        /bin/sh {SCRIPT} &
        work=$!
        (sleep 30; kill -KILL "$work") >/dev/null 2>&1 &
        watch=$!
        wait "$work"; code=$?
        kill "$watch" 2>/dev/null
        exit "$code" ;;
    stop) ;;
    status) exit 3 ;;
    *) echo "usage: $0 start" >&2; exit 2 ;;
esac
"""


def part_name(cluster: str, node: str) -> str:
    """A file name for the part of a cluster's node, `CLUSTER+NODE`; two nodes never have the same."""
    plain = [re.sub(r"[^A-Za-z0-9_.@-]", "_", one) for one in (cluster, node)]
    name = "+".join(plain).lstrip(".")
    if plain == [cluster, node] and name[0] != "+" and not cluster.startswith("."):
        return name
    return f"{name}-{hashlib.sha256(f'{cluster}/{node}'.encode()).hexdigest()[:8]}"


def part_path(name: str) -> str:
    """The file of a part."""
    return f"{FOLDER}/{name}.part"


def script_text(root: str) -> str:
    """The boot script; `root` is a folder used in place of `/`."""
    files = ("value.sh", "kernel.sh", "find.sh", "disks.sh", "main.sh")
    first = f"{_TITLE}{shell_text('head.sh')}root={shlex.quote(root)}\n{_tables()}\n"
    return first + "\n".join(map(shell_text, files))


def _tables() -> str:
    """What the script needs of the tunables, as lists of `KEY=VALUE`."""
    tables = {"same": [f"{word}={other}" for word, other in SAME_MEANING.items()], "roles": [], "groups": []}
    for one in TUNABLES.values():
        if isinstance(one, QueueTunable):
            tables["roles"] += [f"{one.file}={role}" for role in one.roles]
        elif isinstance(one, KernelParameter):
            tables["groups"] += [f"{one.name}={group}" for group in one.groups]
    return "".join(f"{name}={shlex.quote(' '.join(('', *pairs, '')))}\n" for name, pairs in tables.items())


def part_text(unit: str, lines: Sequence[str], mounts: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """The part of a node.

    Args:
        unit: the node's own service, without `.service`; empty if it has none.
        lines: of its tunables. Those of disks come after the data paths, which a dead disk can make slow.
        mounts: the mount point of each data path.
        kinds: `ssd` or `rotational` by data path, where the profile says so.
    """
    disks = [line for line in lines if line.startswith("disks ")]
    paths = [shlex.join(filter(None, ("data", path, at, kinds.get(path, "")))) for path, at in mounts.items()]
    service = [f"unit={shlex.quote(f'{unit}.service')}"] if unit else []
    others = [line for line in lines if line not in disks]
    return HEADER + "".join(f"{line}\n" for line in (*service, *others, *(paths if disks else ()), *disks))


def order_text(unit: str, mounts: Mapping[str, str]) -> str:
    """A drop-in of the unit: after the node's file systems, before its service; none of them is required."""
    points = sorted({point for point in mounts.values() if re.fullmatch(r"/[\w/.:-]*", point)})
    after = f"After={' '.join(f'{_escaped(point)}.mount' for point in points)}\n" if points else ""
    return f"{HEADER}[Unit]\n{after}Before={unit}.service\n"


def _escaped(point: str) -> str:
    """The name of a mount unit, see systemd-escape(1): of dots, only one at the beginning is escaped."""
    plain = re.sub(
        r"[^A-Za-z0-9:_./]|^\.",
        lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()),
        point.strip("/"),
    )
    return plain.replace("/", "-") or "-"


def shell_text(name: str) -> str:
    """A file of shell functions."""
    return package_files(__package__).joinpath("shell", name).read_text(encoding="utf-8")


# Whether a host has them ------------------------------------


FILES: Final = (SCRIPT, PARTS, UNIT, PATH_UNIT, INIT, f"{UNIT}.d/*.conf")
"""What is read of every host."""
SERVICES: Final = (NAME, PATH_NAME)
SET_BY_US: Final = "set by orchestrate's unit, enabled"
NOT_SET: Final = "not set by orchestrate"
_OFF: Final = ServiceMode(running=False, enabled=False)
_ENABLED: Final = ServiceMode(running=False, enabled=True)
_SHARED: Final = (SCRIPT, UNIT, PATH_UNIT, INIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootPlace:
    """Where a node's values for the next boot are."""

    part: str  # name of the node's part
    root: str = ""  # a folder used in place of `/`


def lines_at_boot(facts: HostFacts, place: BootPlace) -> tuple[str, ...]:
    """The lines of the node's part that the next boot runs; none if the script does not run."""
    part, script = facts.text(part_path(place.part)), facts.text(SCRIPT)
    service = facts.services.get(NAME)
    runs = isinstance(service, ServiceFacts) and service.enabled and isinstance(script, str)
    return tuple(part.splitlines()) if runs and isinstance(part, str) else ()


def _words(line: str) -> list[str]:
    """The words of a part's line; empty if a person has edited it to something that is none."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def lines_of_part(facts: HostFacts, place: BootPlace) -> list[str]:
    """The lines of the node's part as it is on the host, without comments."""
    text = facts.text(part_path(place.part))
    lines = text.splitlines() if isinstance(text, str) else []
    return [line for line in lines if line and not line.startswith("#")]


def later_part(facts: HostFacts, place: BootPlace, line: str) -> str:
    """The part of another node that runs after this one and sets another value; empty without one.

    The script runs the parts in the order of their names, and the last value stays. Lines of `at_least`
    agree, and lines of `disks` are left out: two nodes may have different disks.
    """
    words = shlex.split(line)
    if words[0] not in {"parameter", "huge_pages"}:
        return ""
    ours = part_path(place.part)
    for path in reversed(other_parts(facts, {ours})):
        text = facts.text(path)
        lines = text.splitlines() if isinstance(text, str) and path > ours else []
        if any(one.split()[:2] == words[:2] and one != line for one in lines):
            return path
    return ""


def data_moved(facts: HostFacts, place: BootPlace) -> str:
    """Why a data path is not the data now: it was on another file system when the part was written."""
    if isinstance(facts.mounts, Unknown):
        return ""
    data = [words for line in lines_of_part(facts, place) if (words := _words(line))[:1] == ["data"]]
    recorded = {words[1]: words[2] for words in data if words[2:]}
    for path, point in facts.mounts.items():
        if recorded.get(path, point) != point:
            return (
                f"{path} is on the file system of {point}; it was on that of {recorded[path]} when it was"
                " tuned. Is it mounted? If it has moved for good, revert its tuning and apply it again"
            )
    return ""


def state(
    facts: HostFacts, profile: TuningProfile, place: BootPlace, lines: Sequence[str]
) -> TunableState | None:
    """The state of the next boot, with the changes that make it right; None if there is none.

    Args:
        facts: of the host.
        profile: the wanted settings.
        place: of the node's part.
        lines: of the tunables that the host has.
    """
    wanted = wanted_part(facts, profile, place, lines)
    path = part_path(place.part)
    if not wanted and facts.text(path) is None:
        return None
    disks = _disks_unknown(facts, place, lines) if wanted else ""
    files, modes = _files(facts, place, wanted, disks), _modes(facts)
    why, changes = _unreadable(facts, (path, *files), modes), tuple[Change, ...]()
    if not why:
        why = disks
        changes = tuple(_install(facts, files, modes) if wanted else _remove(facts, place))
    aim = SET_BY_US if wanted else NOT_SET
    others = [line for line in lines_of_part(facts, place) if line not in wanted.get(path, "").splitlines()]
    details = (
        why,
        f"replaces in {path}: {', '.join(others)}" if wanted and others else "",
        _differing(facts, files, modes, path, named=bool(others)) if wanted and changes else "",
        "" if wanted or not changes else f"removes {path}: the profile does not persist",
    )
    return TunableState(
        tunable=BOOT,
        wanted=aim,
        running="",
        at_boot=aim if not changes and not why else NOT_SET if wanted else SET_BY_US,
        verdict=Verdict.DRIFT if changes else Verdict.UNKNOWN if why else Verdict.OK,
        detail="; ".join(filter(None, details)),
        changes=changes,
        on_failure=profile.on_failure(BOOT),
    )


def _disks_unknown(facts: HostFacts, place: BootPlace, lines: Sequence[str]) -> str:
    """Why the lines of the disks cannot be made right; the other lines can."""
    if not any(line.startswith("disks ") for line in lines):
        return ""
    if isinstance(facts.mounts, Unknown):
        return f"where the data is mounted: {facts.mounts.reason}"
    return data_moved(facts, place)


def wanted_part(
    facts: HostFacts, profile: TuningProfile, place: BootPlace, lines: Sequence[str]
) -> Mapping[str, str]:
    """The text of the node's part, by its path; empty if nothing has to last.

    If the disks are unknown, the part keeps its lines of them.
    """
    if not profile.persist or not lines:
        return {}
    kept = list[str]()
    mounts = {} if isinstance(facts.mounts, Unknown) else facts.mounts
    if _disks_unknown(facts, place, lines):
        mounts, lines = {}, [line for line in lines if not line.startswith("disks ")]
        kept = [line for line in lines_of_part(facts, place) if line.startswith(("data ", "disks "))]
    text = part_text(facts.unit, lines, mounts, _kinds(facts, profile))
    return {part_path(place.part): text + "".join(f"{line}\n" for line in kept)}


def _files(
    facts: HostFacts, place: BootPlace, part: Mapping[str, str], disks: str
) -> Mapping[str, tuple[str, Reload]]:
    """Texts of all files of the next boot, the part included, by path; `disks`: why they are unknown."""
    mounts = {} if isinstance(facts.mounts, Unknown) else facts.mounts
    files = {path: (text, Reload.NONE) for path, text in part.items()}
    files[SCRIPT] = (script_text(place.root), Reload.NONE)
    if facts.init is not InitSystem.SYSTEMD:
        return {**files, INIT: (INIT_TEXT, Reload.INIT)}
    files[UNIT] = (SERVICE_UNIT, Reload.SYSTEMD)
    files[PATH_UNIT] = (PATH_UNIT_TEXT, Reload.SYSTEMD)
    if facts.unit and not (disks and facts.text(_order_path(place))):
        files[_order_path(place)] = (order_text(facts.unit, mounts), Reload.SYSTEMD)
    return files


def _differing(
    facts: HostFacts,
    files: Mapping[str, tuple[str, Reload]],
    modes: Mapping[str, ServiceMode],
    part: str,
    *,
    named: bool,
) -> str:
    """What of an installed boot script is not as this version writes it; empty before the first time.

    Args:
        facts: of the host.
        files: wanted texts, by path.
        modes: wanted modes of the units.
        part: path of the node's part.
        named: whether the part is named already.
    """
    if facts.text(part) is None:
        return ""
    edited = [path for path, (text, _) in files.items() if facts.text(path) not in {text, None}]
    edited = [path for path in edited if not (named and path == part)]
    missing = [path for path in files if facts.text(path) is None]
    off = [name for name, mode in modes.items() if not _has(facts, name, mode)]
    said = {"missing": missing, "edited, or of another version": edited, "off": off}
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in said.items() if names)


def _order_path(place: BootPlace) -> str:
    return f"{UNIT}.d/{place.part}.conf"


def _modes(facts: HostFacts) -> Mapping[str, ServiceMode]:
    if facts.init is not InitSystem.SYSTEMD:
        return {NAME: _ENABLED}
    return {NAME: _ENABLED, PATH_NAME: ServiceMode(running=True, enabled=True)}


def _unreadable(facts: HostFacts, files: Collection[str], modes: Collection[str]) -> str:
    """Why the next boot cannot be made right, or is unknown; empty if it can."""
    if facts.init is InitSystem.OTHER:
        return "neither systemd nor init scripts start this host: nothing is written for its next boot"
    found = (*map(facts.exact, files), facts.text(PARTS), *(facts.services.get(name) for name in modes))
    return next((one.reason for one in found if isinstance(one, Unknown)), "")


def _install(
    facts: HostFacts, files: Mapping[str, tuple[str, Reload]], modes: Mapping[str, ServiceMode]
) -> Iterator[Change]:
    off = [(name, mode) for name, mode in modes.items() if not _has(facts, name, mode)]
    if not off and all(facts.text(path) == text for path, (text, _) in files.items()):
        return
    for path, (text, reload) in files.items():
        before = facts.exact(path)
        if isinstance(before, Unknown):
            raise TypeError(before.reason)  # `_unreadable` has looked
        if path in _SHARED and before is not None and OURS in before:
            # Of another cluster's node, or of another version: before this program there was no such file.
            yield FileChange(path=path, found=None, wanted=before, reload=reload)
        if before != text:
            yield FileChange(path=path, found=before, wanted=text, reload=reload)
    if facts.init is InitSystem.SYSTEMD:
        off = list(modes.items())
    elif facts.text(INIT) != INIT_TEXT:
        return  # `chkconfig --add` enables it; what a person switched off is enabled by `chkconfig on`
    for name, mode in off:
        yield ServiceChange(service=name, found=_OFF, wanted=mode)


def _remove(facts: HostFacts, place: BootPlace) -> Iterator[Change]:
    """Without a part that no longer has to last; with the last part, without all that they share.

    The part itself is removed last: while it is there, a removal that was killed is completed.
    """
    part = part_path(place.part)
    shared = () if other_parts(facts, {part}) else _SHARED
    for name in reversed(SERVICES if shared else ()):
        found = facts.services.get(name)
        if isinstance(found, ServiceFacts) and (found.enabled or (found.running and name == PATH_NAME)):
            mode = ServiceMode(running=found.running, enabled=found.enabled)
            yield ServiceChange(service=name, found=mode, wanted=_OFF)
    for path in (_order_path(place), *reversed(shared), part):
        text = facts.exact(path)
        if isinstance(text, str):
            reload = (
                Reload.INIT if path == INIT else Reload.NONE if path in {SCRIPT, part} else Reload.SYSTEMD
            )
            yield FileChange(path=path, found=text, wanted=None, reload=reload)


def _has(facts: HostFacts, name: str, mode: ServiceMode) -> bool:
    """Whether a service is enabled, and runs if it has to; our unit may also run just now."""
    found = facts.services.get(name)
    return isinstance(found, ServiceFacts) and found.enabled and (found.running or not mode.running)


def _kinds(facts: HostFacts, profile: TuningProfile) -> Mapping[str, str]:
    """The kind of the disks of each data path, where the profile says one kind for all of them."""
    if isinstance(facts.devices, Unknown):
        return {}
    kinds: dict[str, str] = {}
    for path in facts.data_paths:
        said = {
            profile.devices.get(one.name, "")
            for one in facts.devices
            if one.is_disk and path in one.data_paths
        }
        if len(said) == 1 and "" not in said:
            kinds[path] = said.pop()
    return kinds


def is_shared(change: Change) -> bool:
    """Whether a change is of what all parts of a host share: it stays while another part is there."""
    match change:
        case FileChange(path=path):
            return path in _SHARED
        case ServiceChange(service=service):
            return service in SERVICES
        case _:
            return False


def is_part(change: Change) -> bool:
    """Whether a change is of a node's part."""
    return isinstance(change, FileChange) and fnmatchcase(change.path, PARTS)


def is_of_boot(change: Change) -> bool:
    """Whether a change is of the next boot: of its script, its units, or a part."""
    drop_in = isinstance(change, FileChange) and change.path.startswith(f"{UNIT}.d/")
    return drop_in or is_shared(change) or is_part(change)


def other_parts(facts: HostFacts, ours: Collection[str]) -> tuple[str, ...]:
    """Parts on the host other than these."""
    return tuple(sorted(path for path in facts.files if fnmatchcase(path, PARTS) and path not in ours))
