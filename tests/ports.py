"""Ports on loopback for servers of tests, which are told theirs before they listen, or stop and start again.

A port that nobody listens on is not yet one's own: another process of tests, asked at the same moment or
while a node is down, would find it free too. So a process claims a block of ports before it gives any out,
by a name of the kernel's that ends with the process, however that ends.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections import deque
from typing import Final

_PORTS: Final = range(10_000, 30_000)
"""Below what the kernel gives to connections (32768 and up): a port that was free when one looked is else
soon the near end of somebody's connection, on a machine on which many talk."""
_BLOCK: Final = 500
"""Ports. Forty processes find a block each."""
_mine: Final[deque[int]] = deque()
"""Of a claimed block, those that nobody was given. A child of this process claims a block of its own."""
os.register_at_fork(after_in_child=_mine.clear)


def free_ports(count: int) -> list[int]:
    """So many that nobody listens on, and that nobody else is given while this process lives.

    Raises:
        LookupError: other processes have claimed the rest.
    """
    found: list[int] = []
    while len(found) < count:
        if not _mine:
            _claim()
        port = _mine.popleft()
        if _is_free(port):
            found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _claim() -> None:
    """Have one more block."""
    starts = list(_PORTS[::_BLOCK])
    for start in random.SystemRandom().sample(starts, len(starts)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ports-of-tests-{start}")
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        claim.detach()  # it stays open until the process ends
        _mine.extend(range(start, start + _BLOCK))
        return
    raise LookupError(f"every block of {_BLOCK} ports in {_PORTS} is claimed")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
