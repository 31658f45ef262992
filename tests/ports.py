"""Ports on loopback for servers of tests, which are told theirs before they listen."""

from __future__ import annotations

import random
import socket

_PORTS = range(10_000, 19_000)
"""Below what the kernel gives to connections (32768 and up), and below the lab's: a port that was free when
one looked is else soon the near end of somebody's connection, on a machine on which many talk."""


def free_ports(count: int) -> list[int]:
    """So many that nobody listens on; from a random one on: two at once should not pick the same."""
    start = random.SystemRandom().randrange(len(_PORTS))
    found: list[int] = []
    for offset in range(len(_PORTS)):
        port = _PORTS[(start + offset) % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise LookupError(f"no {count} free ports in {_PORTS}")


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
