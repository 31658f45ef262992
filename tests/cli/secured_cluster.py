"""The cluster of `small_cluster` behind TLS and a password, in zones, with an HTTP server for each node."""

from __future__ import annotations

import copy
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from tests.cli.small_cluster import _STATE, NODES, SmallCluster
from tests.fakes.certificates import Certificates
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, node, reply

USER, PASSWORD = "ops", "ops-password"
AWARENESS = "cluster.routing.allocation.awareness.attributes"
REFUSED = reply(
    {"error": {"type": "security_exception", "reason": "missing authentication credentials"}}, status=401
)


class SecuredCluster(SmallCluster):
    """Each node answers at a port of its own, to one user alone.

    Args:
        own: certificates by node, where they differ from that of the first one.
    """

    def __init__(self, certificates: Certificates, own: Mapping[str, Certificates] | None = None) -> None:
        super().__init__()
        self._certificates, self._own = certificates, own or {}
        self.tls = certificates.context()
        self.places: dict[str, str] = {}
        self.settings["persistent"][AWARENESS] = "zone"
        state = copy.deepcopy(self._state())
        for number, each in enumerate(state["nodes"].values()):
            each["attributes"] = {"zone": "ab"[number % 2], "ml.machine_memory": "1"}
        for path in (_STATE, f"{_STATE},customs"):
            self.on(path, reply(state))
        for path, answers in list(self.answers.items()):
            self.on(path, *map(guarded, answers))

    def __enter__(self) -> Self:
        super().__enter__()
        self._others = ExitStack()
        for name in NODES[1:]:
            server = ScriptedServer(tls=self._own.get(name, self._certificates).context())
            self._others.enter_context(server)
            server.on("/_nodes/_local/http", guarded(reply(node(name, version=self.versions[name]))))
            server.on("/_nodes/http", guarded(self._members))
            self.places[name] = f"127.0.0.1:{server.port}"
        return self

    def close(self) -> None:
        self._others.close()
        super().close()

    def _http(self) -> dict[str, Any]:
        nodes = super()._http()
        for each in nodes.values():
            if each["name"] in self.places:
                each["http"] = {"publish_address": self.places[each["name"]]}
        return nodes


def guarded(answer: Answerer) -> Answerer:
    """The same answer, for the one user alone."""
    expected = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"

    def answered(asked: Asked, wire: Wire) -> None:
        (answer if asked.headers.get("authorization") == expected else REFUSED)(asked, wire)

    return answered
