"""A cluster of three nodes without data, as far as a command without a run asks it: one HTTP server."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

from orchestrator.elasticsearch.lease import PREFIX, TRIAL
from tests.fakes.scripted_http import Asked, ScriptedServer, Wire, reply

NODES = ("es1", "es2", "es3")
_DEFAULTS = {
    "cluster.routing.allocation.enable": "all",
    "cluster.routing.rebalance.enable": "all",
    "cluster.routing.allocation.disk.threshold_enabled": "true",
    "cluster.routing.allocation.disk.watermark.low": "85%",
    "cluster.routing.allocation.disk.watermark.high": "90%",
}
LEASES = f"/_component_template/{PREFIX}"
LEGACY_LEASES = f"/_template/{PREFIX}"
_STATE = "/_cluster/state/master_node,nodes,metadata,routing_table,version"


class SmallCluster(ScriptedServer):
    """Its nodes have these `names`; a `version` below 4 is OpenSearch's. It keeps lease records and settings.

    Attributes:
        templates: component templates by name.
        legacy: legacy templates by name.
        started: what every node tells of its start, in milliseconds; None = nodes do not tell of themselves.
        plugins: what every node has loaded.
        zones: of the nodes, by name.
        addresses: that nodes publish instead of the server's own, by name.
        silent: so many more times the last node does not answer when it is asked about itself.
    """

    def __init__(self, names: tuple[str, ...] = NODES, *, version: str = "8.19.0") -> None:
        super().__init__()
        self.started: int | None = 1
        self.plugins: tuple[str, ...] = ()
        self.silent = 0
        self.versions = dict.fromkeys(names, version)
        self.nodes = {f"{number:022d}": name for number, name in enumerate(names)}
        self.templates: dict[str, Any] = {}
        self.legacy: dict[str, Any] = {}
        self.lives: dict[str, int] = {}
        self.zones: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        health = {"status": "green", "timed_out": False, "number_of_nodes": len(names), "active_shards": 0}
        health |= dict.fromkeys(("initializing_shards", "relocating_shards", "unassigned_shards"), 0)
        health |= {"number_of_pending_tasks": 0, "task_max_waiting_in_queue_millis": 0}
        disk = {"path": "/", "total_in_bytes": 10**12, "available_in_bytes": 9 * 10**11}
        self.settings: dict[str, dict[str, Any]] = {"persistent": {}, "transient": {}}
        disks = {
            node: {"name": name, "roles": ["data"], "fs": {"data": [disk]}}
            for node, name in self.nodes.items()
        }
        self.on("/_nodes/_local/http", self._probe)
        self.on("/_nodes/http", self._members)
        self.on(f"/_nodes/{','.join(self.nodes)}/jvm,http,settings,plugins", self._lives)
        for node in self.nodes:
            self.on(f"/_nodes/{node}/jvm,http,settings,plugins", self._lives)
        for path in (_STATE, f"{_STATE},customs"):
            self.on(path, self._members_and_data)
        self.on("/_cluster/settings", self._settings)
        self.on("/_cluster/health", reply(health))
        self.on("/_tasks", reply({"nodes": {}}))
        self.on("/_recovery", reply({}))
        self.on(
            "/_nodes/stats/fs", reply({"_nodes": {"successful": len(names), "failed": 0}, "nodes": disks})
        )
        self._fit_for_an_upgrade()
        for form in (LEASES, LEGACY_LEASES):
            for name in ("*", 1, 2, 3):
                self.on(f"{form}{name}", self._leases)
        self.on(f"/_component_template/{TRIAL}*", self._leases)

    def _fit_for_an_upgrade(self) -> None:
        """It has no index, no repository, no deprecated setting."""
        nodes = {node: {"name": name, "settings": {"node.name": name}} for node, name in self.nodes.items()}
        self.on("/_cluster/state/metadata", self._members_and_data)
        self.on("/_nodes/settings", reply({"nodes": nodes}))
        self.on(
            "/_migration/deprecations",
            reply({"cluster_settings": [], "node_settings": [], "index_settings": {}}),
        )
        self.on("/_snapshot", reply({}))

    def reborn(self, *names: str) -> None:
        """These nodes have been restarted by somebody."""
        for name in names:
            self.lives[name] = self.lives.get(name, 1) + 1

    def upgrade(self, name: str, version: str) -> None:
        """This node has been restarted with another version."""
        self.versions[name] = version
        self.reborn(name)

    def without_a_master(self) -> None:
        """Its nodes answer for themselves, and no request that needs the master is done."""
        down = reply({"error": {"type": "master_not_discovered_exception"}, "status": 503}, status=503)
        for path in (_STATE, f"{_STATE},customs", "/_cluster/settings", "/_cluster/health"):
            self.on(path, down)
        self.on(f"{LEASES}*", down)

    def document(self, **keys: Any) -> dict[str, Any]:
        """A cluster file that is right, with these keys, as data."""
        service = {"manager": "command", "stop": "true", "start": "true", "status": "true"}
        return {
            "kind": "elasticsearch",
            "name": "lab",
            "endpoints": [self.url],
            "hosts": {"connect": "local", "sudo": False, "service": service, **keys.pop("hosts", {})},
            **keys,
        }

    def write_file(self, folder: Path, **keys: Any) -> str:
        """Write a cluster file that is right, with these keys; its path."""
        path = folder / "lab.yml"
        path.write_text(json.dumps(self.document(**keys)))
        return str(path)

    @property
    def _roles_in_state(self) -> bool:
        return min(int(version.partition(".")[0]) for version in self.versions.values()) >= 8

    def _there(self) -> dict[str, str]:
        """The members of this moment: names by id."""
        return self.nodes

    def _life(self, name: str) -> int:
        return self.lives.get(name, 1)

    def _roles(self, name: str) -> list[str]:
        del name
        return ["master", "data"]

    def _attributes(self, name: str) -> dict[str, str]:
        return {"zone": self.zones[name]} if name in self.zones else {}

    def _http(self) -> dict[str, Any]:
        return {
            node: {
                "name": name,
                "version": self.versions[name],
                "build_type": "tar",
                "roles": self._roles(name),
                "jvm": {"start_time_in_millis": self.started},
                "plugins": [{"name": plugin} for plugin in self.plugins],
                "http": {"publish_address": self.addresses.get(name, f"127.0.0.1:{self.port}")},
            }
            for node, name in self._there().items()
        }

    def _state(self) -> dict[str, Any]:
        def facts(name: str) -> dict[str, Any]:
            return {"roles": self._roles(name), "version": self.versions[name]}

        there = self._there()
        nodes = {
            node: {
                "name": name,
                "ephemeral_id": f"life-{self._life(name)}-{node}",
                "transport_address": f"127.0.0.1:{9300 + number}",
                "attributes": self._attributes(name),
                **(facts(name) if self._roles_in_state else {}),
            }
            for number, (node, name) in enumerate(self.nodes.items())
            if node in there
        }
        votes = [node for node, name in self.nodes.items() if "master" in self._roles(name)]
        voters = {"last_committed_config": votes, "voting_config_exclusions": []}
        return {
            "cluster_name": "lab",
            "cluster_uuid": "uuid",
            "version": 7,
            "master_node": next(iter(nodes)),
            "nodes": nodes,
            "metadata": {
                "cluster_uuid": "uuid",
                "cluster_coordination": voters,
                "indices": {},
                "templates": self.legacy,
                "component_template": {"component_template": self.templates},
            },
            "routing_table": {"indices": {}},
        }

    def _members_and_data(self, asked: Asked, wire: Wire) -> None:
        reply(self._state())(asked, wire)

    def _probe(self, asked: Asked, wire: Wire) -> None:
        node, told = next(iter(self._http().items()))
        said = {} if told["version"].startswith(("1.", "2.", "3.")) else None  # OpenSearch names no product
        reply({"cluster_name": "lab", "nodes": {node: told}}, headers=said)(asked, wire)

    def _members(self, asked: Asked, wire: Wire) -> None:
        reply({"nodes": self._http()})(asked, wire)

    def _lives(self, asked: Asked, wire: Wire) -> None:
        told = self._http()
        if self.silent:
            self.silent -= 1
            told.popitem()
        reply({"nodes": told})(asked, wire)

    def _settings(self, asked: Asked, wire: Wire) -> None:
        if asked.method != "PUT":
            return reply({**self.settings, "defaults": _DEFAULTS})(asked, wire)
        for level in self.settings:
            both = self.settings[level] | asked.json.get(level, {})
            self.settings[level] = {key: value for key, value in both.items() if value is not None}
        return reply({"acknowledged": True, **self.settings})(asked, wire)

    def _leases(self, asked: Asked, wire: Wire) -> None:
        name = asked.path.rsplit("/", 1)[1]
        component = not asked.path.startswith(LEGACY_LEASES)
        kept = self.templates if component else self.legacy
        found = {each: kept[each] for each in fnmatch.filter(kept, name)}
        match asked.method:
            case "PUT":
                kept[name] = asked.json
            case "DELETE":
                for each in found:
                    del kept[each]
            case _ if component:
                listed = [{"name": each, "component_template": body} for each, body in found.items()]
                return reply({"component_templates": listed}, status=200 if found else 404)(asked, wire)
            case _:
                return reply(found, status=200 if found else 404)(asked, wire)
        return reply({"acknowledged": True})(asked, wire)
