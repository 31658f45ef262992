"""Ports that processes of tests are given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
COUNT = 400
PROCESSES = 8
GIVE = f"from tests.ports import free_ports; print(*free_ports({COUNT}), flush=True); input()"


def test_no_two_processes_are_given_the_same_port() -> None:
    own = free_ports(COUNT)
    processes = [
        subprocess.Popen(  # noqa: S603  (this interpreter)
            [sys.executable, "-c", GIVE],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    given = [process.stdout.readline().split() if process.stdout else [] for process in processes]
    for process in processes:
        process.communicate("\n")
    every = own + [int(port) for ports in given for port in ports]
    assert len(every) == len(set(every)) == COUNT * (PROCESSES + 1)


def test_no_port_is_given_twice_nor_by_a_child() -> None:
    """A node that is down keeps its port, however many others are given out meanwhile."""
    given = free_ports(COUNT) + free_ports(COUNT)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writes, b" ".join(b"%d" % port for port in free_ports(COUNT // 4)))
        os._exit(0)
    os.waitpid(child, 0)
    given += [int(port) for port in os.read(reads, 1 << 16).split()] + free_ports(COUNT // 4)
    os.close(reads)
    os.close(writes)
    assert len(given) == len(set(given)) == COUNT * 5 // 2
