"""Where a node's files are and what they say: the double's own, and Riak's.

`RIAK_DOUBLE_HOME` (default `/etc/riak-double`) holds `double.conf`, which is the double's own, and `faults`.
Riak's `riak.conf` is in `RIAK_DOUBLE_ETC` (default `/etc/riak`), read when a node starts and not again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .pairs import read_pairs

DISTRIBUTION_PORT = 8199
"""Where nodes ask each other; a real node's distribution has ports of its own."""
HTTP_PORT = 8098
RING_SIZE = 64
TRANSFER_LIMIT = 2
OPEN_FILES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What `double.conf` says."""

    home: Path  # the folder with it
    etc: Path  # the folder with Riak's files
    state: Path  # where pid, ring and log are kept
    pace: float  # real seconds for one recorded second: 0.1 makes everything ten times as fast
    port: int  # where peers and the command reach the node
    bind: str  # on which address
    members: tuple[str, ...]  # nodes of the ring; empty for a node that is alone
    # `HOST:PORT` by name, where it is not the name's own host and the usual port
    addresses: Mapping[str, str]
    parent: int  # a process without which the node ends, or 0
    locations: Mapping[str, str]  # of 3.x, by name; a cluster has none unless somebody has set them

    @property
    def here(self) -> tuple[str, int]:
        """Where the node on this host is asked from this host."""
        local = "127.0.0.1" if self.bind == "0.0.0.0" else self.bind  # noqa: S104
        return local, self.port

    def address(self, name: str) -> tuple[str, int]:
        """Where a node is asked."""
        host, _, port = self.addresses.get(name, name.partition("@")[2]).partition(":")
        return host, int(port or self.port)

    def note_pid(self, number: int) -> None:
        """Note the node's process; a reader finds the old number or this one, whoever is killed meanwhile."""
        new = self.state / f"pid.{os.getpid()}"  # the node and who started it may do so at once
        new.write_text(f"{number}\n", encoding="utf-8")
        new.replace(self.state / "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Riaks:
    """What Riak's files say."""

    name: str  # of the node
    http: tuple[str, int]  # host and port of HTTP
    ring_size: int  # of a new ring
    transfer_limit: int  # at the start
    schedulers: int  # Erlang's, total
    schedulers_online: int  # of these, in use


def processors() -> int:
    """How many the machine has, as Erlang sees it."""
    return os.cpu_count() or 1


def read_own(environment: Mapping[str, str] = os.environ) -> Own:
    """The double's own settings."""
    home = Path(environment.get("RIAK_DOUBLE_HOME", "/etc/riak-double"))
    found = read_pairs(home / "double.conf")
    return Own(
        home=home,
        etc=Path(environment.get("RIAK_DOUBLE_ETC", found.get("etc", "/etc/riak"))),
        state=Path(found.get("state", "/var/lib/riak-double")),
        pace=float(found.get("pace", "1")),
        port=int(found.get("port", str(DISTRIBUTION_PORT))),
        bind=found.get("bind", "0.0.0.0"),  # noqa: S104  (in a container, for its peers)
        members=tuple(name.strip() for name in found.get("members", "").split(",") if name.strip()),
        addresses=_by_name("address.", found),
        parent=int(found.get("parent", "0")),
        locations=_by_name("location.", found),
    )


def _by_name(prefix: str, found: Mapping[str, str]) -> Mapping[str, str]:
    """What is said of nodes, by their names."""
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def unset_name() -> str:
    """A node's name before its first start: nothing has been generated from riak.conf yet (seen)."""
    return f"riak@{socket.gethostname()}"


def read_riaks(own: Own) -> Riaks:
    """Riak's settings, as they are now."""
    conf = read_pairs(own.etc / "riak.conf")
    host, _, port = conf.get("listener.http.internal", f"127.0.0.1:{HTTP_PORT}").rpartition(":")
    total = int(conf.get("erlang.schedulers.total") or processors())
    return Riaks(
        name=conf.get("nodename") or unset_name(),
        http=(host, int(port)),
        ring_size=int(conf.get("ring_size", str(RING_SIZE))),
        transfer_limit=int(conf.get("transfer_limit", str(TRANSFER_LIMIT))),
        schedulers=total,
        schedulers_online=min(total, int(conf.get("erlang.schedulers.online") or total)),
    )
