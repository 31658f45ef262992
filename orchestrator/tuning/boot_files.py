"""The texts of the boot script, its units, and a node's part. Pure.

`/etc/orchestrate-tuning/boot.sh` sets the values that the parts beside it name, one part for each node of the
host, so several clusters can share a host. systemd runs it after tuned and sysctl and before the nodes'
services, and again when tuned starts, stops or changes its profile. Elsewhere an init script runs it. It is
bounded at 30 seconds, and a failure does not delay a node.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files as package_files
from typing import Final

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
