"""A lab's folders, ports and node settings: every part of a lab cluster except its processes."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import ports
from tests.lab.distributions import Distribution, Product
from tests.lab.errors import LabError

LOOPBACK = "127.0.0.1"
UNPRIVILEGED_USER = "nobody"
REPOSITORY = "snapshots"
"""The folder for snapshot repositories (type `fs`), beside those of the nodes: all nodes write to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabNode:
    """A node of a planned lab. Without `roles` it has all; with none of them it only coordinates."""

    name: str
    zone: str
    roles: tuple[str, ...] | None = None


THREE_ZONES: tuple[LabNode, ...] = (
    LabNode(name="es1", zone="a"),
    LabNode(name="es2", zone="b"),
    LabNode(name="es3", zone="c"),
)
"""The smallest cluster that keeps a master and a copy of everything while one node is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The operating-system user that nodes run as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The two ports of a node on the loopback address."""

    http: int
    transport: int


def account() -> Account:
    """The user that nodes run as: the present user, or `nobody` for root (the servers refuse root)."""
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid())
    entry = pwd.getpwnam(UNPRIVILEGED_USER)
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def require_reachable(folder: Path, who: Account) -> None:
    """Check that another user can enter a folder."""
    if os.geteuid() != 0 or who.uid == 0:
        return
    for step in (folder, *folder.parents):
        if not step.stat().st_mode & 0o001:
            raise LabError(
                f"nodes run as user id {who.uid}, which cannot enter {step}: choose another folder, such as "
                f"one under /var/tmp, or chmod o+x {step}"
            )


def share_home(home: Path, target: Path, who: Account) -> Path:
    """Make an unpacked server readable for the nodes' user.

    The cache is in a home folder, and root's is closed to others. Hard links cost milliseconds and no space,
    and their files still belong to root; on another file system the files are copied instead.
    """
    if os.geteuid() != 0 or who.uid == 0:
        return home
    try:
        shutil.copytree(home, target, copy_function=os.link)
    except (shutil.Error, OSError):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(home, target)
    return target


def free_ports(count: int) -> tuple[Ports, ...]:
    """Ports on the loopback address without a listener, for so many nodes."""
    try:
        picked = ports.free_ports(2 * count)
    except LookupError as none:
        raise LabError(f"{none}: end other tests and labs") from none
    pairs = zip(picked[::2], picked[1::2], strict=True)
    return tuple(Ports(http=http, transport=transport) for http, transport in pairs)


def node_settings(
    distribution: Distribution,
    *,
    cluster: str,
    node: LabNode,
    nodes: Sequence[LabNode],
    ports: Mapping[str, Ports],
    folder: Path,
) -> dict[str, str]:
    """A node's settings by their dotted names, lists joined by commas."""
    masters = [each.name for each in nodes if each.roles is None or "master" in each.roles]
    opensearch = distribution.product is Product.OPENSEARCH
    seeds = ",".join(f"{LOOPBACK}:{ports[each.name].transport}" for each in nodes)
    settings = {
        "cluster.name": cluster,
        "node.name": node.name,
        ("node.zone" if distribution.before(5) else "node.attr.zone"): node.zone,
        "cluster.routing.allocation.awareness.attributes": "zone",
        # A laptop's disk is often fuller than a server's may be; the lab needs little space.
        "cluster.routing.allocation.disk.threshold_enabled": "false",
        "path.data": str(folder / "data"),
        "path.logs": str(folder / "logs"),
        "path.repo": str(folder.parent / REPOSITORY),
        "network.host": LOOPBACK,
        "http.port": str(ports[node.name].http),
        ("transport.tcp.port" if distribution.before(7, 1) else "transport.port"): str(
            ports[node.name].transport
        ),
    }
    if distribution.before(7):
        settings["discovery.zen.ping.unicast.hosts"] = seeds
        settings["discovery.zen.minimum_master_nodes"] = str(len(masters) // 2 + 1)
    else:
        manager = "cluster_manager" if opensearch and distribution.major > 1 else "master"
        settings["discovery.seed_hosts"] = seeds
        settings[f"cluster.initial_{manager}_nodes"] = ",".join(masters)
    if distribution.before(2):
        settings["discovery.zen.ping.multicast.enabled"] = "false"
    if distribution.before(5):
        settings["path.plugins"] = str(folder / "plugins")  # by default in the archive, which all nodes share
    if node.roles is not None and distribution.before(7, 9):
        settings |= {f"node.{role}": str(role in node.roles).lower() for role in ("master", "data")}
    elif node.roles is not None:
        own = {"master": "cluster_manager"} if opensearch else {}
        settings["node.roles"] = ",".join(own.get(role, role) for role in node.roles)
    if not (opensearch or distribution.before(7, 6)):  # the older archives have none of these modules
        settings |= {"xpack.ml.enabled": "false", "xpack.security.enabled": "false"}
    return settings


def settings_text(settings: Mapping[str, str]) -> str:
    """The configuration file: JSON strings are YAML strings.

    An empty value is an empty list: OpenSearch takes `node.roles: ""` for the default, which is all roles.
    """
    return "".join(f"{key}: {json.dumps(value or [])}\n" for key, value in settings.items())


def give_away(folder: Path, who: Account) -> None:
    """Make a node's user the owner of its folder, if it is another user."""
    if os.geteuid() != 0 or who.uid == 0:
        return
    for step, _, files in os.walk(folder):
        for path in (Path(step), *(Path(step) / name for name in files)):
            os.chown(path, who.uid, who.gid)
