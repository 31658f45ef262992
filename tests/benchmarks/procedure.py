"""The documented procedure as a bare loop, one node at a time: what the program is compared with.

No gates, no journal, no look at anything but the health: what a careful person types, typed without a pause.
Recovery limits are left as they are.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.lab.nodes import LabCluster

LONG_POLL_SECONDS = 600
GREEN = (
    "wait_for_status=green&wait_for_no_initializing_shards=true&wait_for_no_relocating_shards=true"
    "&wait_for_events=languid"
)


@dataclass(slots=True, kw_only=True)
class Wire:
    """One kept connection to one node, counted as the program counts its own."""

    endpoint: str
    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    _connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        place = urlsplit(self.endpoint)
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                place.hostname or "", place.port, timeout=LONG_POLL_SECONDS + 10
            )
        self._connection.request(method, path, body=data, headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        self.requests += 1
        self.bytes_sent += len(method) + len(path) + len(data or b"")
        self.bytes_received += len(text)
        if answer.status not in (200, 408):
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


Await = Callable[[Wire, str, Callable[[Any], bool]], None]
"""Waits until health, asked with these parameters, is as wanted."""


def by_long_poll(wire: Wire, wanted: str, _ready: Callable[[Any], bool]) -> None:
    """The cluster answers when it is so."""
    if wire.ask("GET", f"/_cluster/health?{wanted}&timeout={LONG_POLL_SECONDS}s")["timed_out"]:
        raise RuntimeError(f"not {wanted} within {LONG_POLL_SECONDS} s")


def by_polls(seconds: float) -> Await:
    """Health is asked for, again and again, so many seconds apart."""

    def poll(wire: Wire, _wanted: str, ready: Callable[[Any], bool]) -> None:
        while not ready(wire.ask("GET", "/_cluster/health")):
            time.sleep(seconds)

    return poll


def restart_all(lab: LabCluster, wait: Await, *, back: str | None = None) -> tuple[Wire, ...]:
    """Restart every node of the lab; the wires, which tell what was sent.

    Args:
        lab: the cluster.
        wait: how it is waited for.
        back: what allocation is put back to; None takes the setting away, which servers before 5 do not know.
    """
    count = len(lab.nodes)
    wires = {node.name: Wire(endpoint=lab.endpoint(node.name)) for node in lab.nodes}
    for node in lab.nodes:
        wire = next(wire for name, wire in wires.items() if name != node.name)
        _allocation(wire, "primaries")
        wire.ask("POST", "/_flush")
        _control(lab, "stop", node.name)
        _control(lab, "start", node.name)
        wait(wire, f"wait_for_nodes={count}", lambda seen: seen["number_of_nodes"] == count)
        _allocation(wire, back)
        wait(wire, GREEN, _is_green)
        for each in wires.values():
            each.close()  # the next node's wire would be one that has just gone down with its node
    return tuple(wires.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One restart of some nodes at once.

    Attributes:
        joined: seconds from the first start until all of them are members again.
        recovered: seconds from there, with allocation back, until the cluster is green.
    """

    nodes: tuple[str, ...]
    joined: float
    recovered: float


def boot(lab: LabCluster, names: Sequence[str]) -> Boot:
    """Restart these nodes at once, by long polls, and time it: the processor is theirs to share."""
    wire = next(Wire(endpoint=lab.endpoint(node.name)) for node in lab.nodes if node.name not in names)
    _allocation(wire, "primaries")
    wire.ask("POST", "/_flush")
    lab.stop_nodes(names)
    began = time.monotonic()
    lab.start_nodes(names)
    count = len(lab.nodes)
    by_long_poll(wire, f"wait_for_nodes={count}", lambda seen: seen["number_of_nodes"] == count)
    joined = time.monotonic()
    _allocation(wire, None)
    by_long_poll(wire, GREEN, _is_green)
    wire.close()
    return Boot(nodes=tuple(names), joined=joined - began, recovered=time.monotonic() - joined)


def _is_green(seen: Any) -> bool:
    moving = seen["initializing_shards"] + seen["relocating_shards"]
    return bool(seen["status"] == "green" and moving == 0)


def _allocation(wire: Wire, value: str | None) -> None:
    wire.ask("PUT", "/_cluster/settings", {"persistent": {"cluster.routing.allocation.enable": value}})


def _control(lab: LabCluster, verb: str, node: str) -> None:
    subprocess.run(lab.nodectl(verb, node), check=True, capture_output=True)  # noqa: S603  (the lab's own script)
