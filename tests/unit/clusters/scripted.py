"""A client of a scripted server: whom it asks, its clock, and its limits."""

from __future__ import annotations

import time

from tests.fakes.scripted_http import ScriptedServer, node, reply

PROBE, MEMBERS = "/_nodes/_local/http", "/_nodes/http"
STATE = "/_cluster/state/master_node,nodes,metadata,routing_table,version"
SETTINGS = "/_cluster/settings"
HEALTH = "/_cluster/health"
ACKNOWLEDGED = reply({"acknowledged": True})


class RealClock:
    """Real time; waits are not waited out, so that retries cost a test nothing."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        time.sleep(min(seconds, 0.01))


def be(server: ScriptedServer, name: str = "es1", version: str = "9.1.0") -> ScriptedServer:
    """Let the server be a cluster of this node."""
    for path in (PROBE, MEMBERS):
        server.on(path, reply(node(name, version=version)))
    return server


def sent(server: ScriptedServer, *methods: str) -> list[str]:
    """The targets of the requests by these methods."""
    return [each.target for each in server.asked if each.method in methods]
