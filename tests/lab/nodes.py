"""A lab cluster: real server processes on the loopback address, without containers.

Its nodes do not depend on the process that started them. The lab writes a `nodectl` into its folder that
starts and stops them. The cluster file for them names it (`manager: command`), so the tested program handles
them like any other service.
"""

from __future__ import annotations

import base64
import json
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.lab import leftovers, nodectl
from tests.lab.client import Access, LabClient
from tests.lab.distributions import Distribution, Progress, cache_folder, find_distribution, install
from tests.lab.errors import LabError, LabNodeError
from tests.lab.java import find_java
from tests.lab.launch import java_command, standard_input
from tests.lab.layout import (
    LOOPBACK,
    REPOSITORY,
    THREE_ZONES,
    LabNode,
    account,
    free_ports,
    give_away,
    node_settings,
    require_reachable,
    settings_text,
    share_home,
)
from tests.lab.security import SECURITY_FILES, Security, write_security

HEAP_MB = 384
"""Enough for a few hundred megabytes of data under load; three nodes fit beside a test run in 2 GiB."""
READY_SECONDS = 180.0


def _silent(_line: str) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """What a node runs: its server, where that is unpacked, and its Java."""

    distribution: Distribution
    home: Path
    java: Path


class LabCluster:
    """A running lab cluster, made by `start`. Use as a context manager, or call `close`.

    Attributes:
        directory: the lab's folder; removed by `close`.
        distribution: which server it was started with.
        ports: of each node, by its name.
    """

    def __init__(
        self,
        *,
        version: str,
        nodes: Sequence[LabNode],
        name: str,
        directory: Path,
        settings: Mapping[str, str],
        security: Security | None,
        heap_mb: int,
        progress: Progress,
    ) -> None:
        self.distribution = find_distribution(version)
        self.nodes = tuple(nodes)
        self.name = name
        self.directory = directory
        self._heap_mb = heap_mb
        self._extra = dict(settings)
        self._security = security
        self._progress = progress
        self._account = account()
        self._servers: dict[str, _Server] = {}
        self.ports = dict(zip((node.name for node in nodes), free_ports(len(self.nodes)), strict=True))
        scheme = "http" if security is None else "https"
        self.access = Access(
            endpoints=tuple(f"{scheme}://{LOOPBACK}:{ports.http}" for ports in self.ports.values()),
            user=None if security is None else security.users[0].name,
            password=None if security is None else security.users[0].password,
            ca=None if security is None else str(directory / "ca.crt"),
        )

    @classmethod
    def start(
        cls,
        *,
        version: str,
        nodes: Sequence[LabNode] = THREE_ZONES,
        name: str = "lab",
        directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
        heap_mb: int = HEAP_MB,
        progress: Progress = _silent,
    ) -> LabCluster:
        """Fetch the server, start all nodes at once and wait until they are one cluster.

        Args:
            version: such as `9.1.0`, or `opensearch-2.19.0`.
            directory: a folder that does not exist yet; by default one under the system's temporary folder.
            settings: further node settings by dotted names, over the lab's own.
            security: TLS and users; None for neither.
        """
        if platform.system() != "Linux":
            raise LabError("the lab finds its processes in /proc, which only Linux has: run it on Linux")
        find_java(find_distribution(version))  # before anything is written
        cache = cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        for swept in leftovers.sweep(cache):
            progress(f"swept away a lab that its owner left behind in {swept}")
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="orchestrator-lab-"))
        else:
            directory.mkdir(parents=True)
        directory = directory.resolve()
        directory.chmod(0o755)
        leftovers.register(cache, directory)
        try:
            cluster = cls(
                version=version,
                nodes=nodes,
                name=name,
                directory=directory,
                settings=settings or {},
                security=security,
                heap_mb=heap_mb,
                progress=progress,
            )
            cluster._prepare()
            progress(f"starting {len(cluster.nodes)} nodes of {cluster.distribution.name}")
            cluster.start_nodes()
            cluster.wait_ready()
        except BaseException:
            leftovers.remove(directory)
            leftovers.unregister(cache, directory)
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """URLs of the nodes, in the order of `nodes`."""
        return self.access.endpoints

    def endpoint(self, node: str) -> str:
        """The URL of one node."""
        return self.endpoints[list(self.ports).index(node)]

    @property
    def installed(self) -> frozenset[Distribution]:
        """The servers that its nodes run from their next start on; several in the middle of an upgrade."""
        return frozenset(server.distribution for server in self._servers.values())

    @property
    def client(self) -> LabClient:
        """A new client of the lab's own."""
        return LabClient(self.access)

    def _prepare(self) -> None:
        """Write all folders and files of the lab; no process is started."""
        require_reachable(self.directory, self._account)
        server = self._server(self.distribution)
        self._servers = dict.fromkeys((node.name for node in self.nodes), server)
        script = self.directory / "nodectl.py"
        shutil.copyfile(nodectl.__file__, script)
        command, asked = self.directory / "nodectl", self.directory / "nodestatus"
        # Isolated and without site: it starts in some 20 ms, independent of environment variables.
        command.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(script))} "$@"\n',
            encoding="utf-8",
        )
        shutil.copyfile(Path(nodectl.__file__).with_name("nodestatus.sh"), asked)
        for each in (command, asked):
            each.chmod(0o755)
        repository = self.directory / REPOSITORY
        repository.mkdir()
        give_away(repository, self._account)
        for node in self.nodes:
            folder = self.directory / node.name
            for inner in ("data", "logs", "tmp"):
                (folder / inner).mkdir(parents=True)
            shutil.copytree(server.home / "config", folder / "config")
        if self._security is not None:
            configs = [self.directory / node.name / "config" for node in self.nodes]
            write_security(self._security, ca=self.directory / "ca.crt", configs=configs)
        for node in self.nodes:
            self.configure(node.name, {})
            give_away(self.directory / node.name, self._account)

    def _server(self, distribution: Distribution) -> _Server:
        known = next((each for each in self._servers.values() if each.distribution == distribution), None)
        if known is not None:
            return known
        home = install(distribution, cache=cache_folder(), progress=self._progress)
        home = share_home(home, self.directory / distribution.name, self._account)
        return _Server(distribution=distribution, home=home, java=find_java(distribution).path)

    def upgrade(self, node: str, version: str) -> None:
        """Give a node another version of its server; it takes effect at the node's next start."""
        server = self._servers[node] = self._server(find_distribution(version))
        config, before = self.directory / node / "config", self.directory / node / "config.before"
        config.rename(before)
        shutil.copytree(server.home / "config", config)
        if self._security is not None:
            for name in SECURITY_FILES:
                if (before / name).exists():
                    shutil.copy2(before / name, config / name)
        shutil.rmtree(before)
        self.configure(node, {})
        give_away(self.directory / node, self._account)

    def configure(self, node: str, settings: Mapping[str, str]) -> bool:
        """Rewrite a node's configuration; it takes effect at the node's next start.

        With a setting that the server does not support, the node does not start. Returns whether the
        configuration changed.
        """
        wanted = next(each for each in self.nodes if each.name == node)
        folder = self.directory / node
        server = self._servers[node]
        every = node_settings(
            server.distribution,
            cluster=self.name,
            node=wanted,
            nodes=self.nodes,
            ports=self.ports,
            folder=folder,
        )
        every |= {} if self._security is None else self._security.settings(folder / "config")
        every |= {**self._extra, **settings}
        file = folder / "config" / f"{server.distribution.product.value}.yml"
        file.write_text(settings_text(every), encoding="utf-8")
        command = java_command(
            server.distribution, home=server.home, java=server.java, folder=folder, heap_mb=self._heap_mb
        )
        given = standard_input(server.distribution, home=server.home, folder=folder, settings=every)
        launch = {
            "command": list(command),
            "directory": str(server.home),  # 8.19 looks for its agent relative to the working directory
            "environment": {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LIBFFI_TMPDIR": str(folder / "tmp")},
            "stdin": base64.b64encode(given).decode("ascii"),
            "uid": self._account.uid,
            "gid": self._account.gid,
            "http_host": LOOPBACK,
            "http_port": self.ports[node].http,
        }
        written, text = folder / "launch.json", json.dumps(launch, indent=1)
        changed = not written.exists() or written.read_text(encoding="utf-8") != text
        written.write_text(text, encoding="utf-8")
        written.chmod(0o600)
        return changed

    def nodectl(self, verb: str, node: str) -> tuple[str, ...]:
        """The command line that starts, stops or checks a node."""
        return (str(self.directory / "nodectl"), verb, node)

    def start_nodes(self, names: Sequence[str] | None = None) -> None:
        """Start nodes, all at once, and wait for each to answer; running nodes are not changed."""
        self._each("start", names)

    def stop_nodes(self, names: Sequence[str] | None = None) -> None:
        """Stop nodes, all at once, and wait until their processes are gone."""
        self._each("stop", names)

    def _each(self, verb: str, names: Sequence[str] | None) -> None:
        wanted = [node.name for node in self.nodes] if names is None else names
        running = [
            subprocess.Popen(  # noqa: S603  (the lab's own script)
                self.nodectl(verb, name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for name in wanted
        ]
        said = [process.communicate()[0] for process in running]
        wrong = [text for process, text in zip(running, said, strict=True) if process.returncode != 0]
        if wrong:
            raise LabNodeError("\n".join(wrong))

    def pids(self) -> dict[str, int]:
        """Process ids of the nodes that run, by name."""
        found = {node.name: nodectl.running_pid(self.directory / node.name) for node in self.nodes}
        return {name: pid for name, pid in found.items() if pid is not None}

    def wait_ready(self, *, status: str = "yellow", seconds: float = READY_SECONDS) -> None:
        """Wait, by the cluster's own long poll, until all nodes are in it and it has this status."""
        path = (
            f"/_cluster/health?wait_for_nodes={len(self.nodes)}&wait_for_status={status}"
            f"&wait_for_events=languid&timeout={seconds:.0f}s"
        )
        client = self.client
        try:
            health = client.ask("GET", path, accept=(408,), seconds=seconds + 10)
        except LabError as error:
            raise LabNodeError(f"the lab cluster is not ready: {error}") from error
        finally:
            client.close()
        if health["timed_out"]:
            raise LabNodeError(
                f"the lab cluster is not {status} with {len(self.nodes)} nodes: {json.dumps(health)}"
            )

    def cluster_document(self) -> dict[str, Any]:
        """The content of a cluster file for this cluster, as data."""
        control = shlex.quote(str(self.directory / "nodectl"))
        verbs = {verb: f"{control} {verb} {{node}}" for verb in ("stop", "start")}
        verbs["status"] = f"{shlex.quote(str(self.directory / 'nodestatus'))} {{node}}"
        document: dict[str, Any] = {
            "kind": "elasticsearch",
            "name": self.name,
            "endpoints": list(self.endpoints),
            "zone_attribute": "zone",
            "expect": {"nodes": len(self.nodes)},
            "hosts": {"connect": "local", "sudo": False, "service": {"manager": "command", **verbs}},
        }
        if self._security is not None:
            secret = self.directory / "password"
            secret.write_text(f"{self.access.password}\n", encoding="utf-8")
            secret.chmod(0o600)
            document["auth"] = {"basic": {"username": self.access.user, "password": f"file:{secret}"}}
            document["tls"] = {"ca": self.access.ca, "verify": True}
        return document

    def write_cluster_file(self, path: Path) -> Path:
        """Write a cluster file for this cluster; returns the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.cluster_document(), indent=2)  # JSON is YAML
        path.write_text(f"{text}\n", encoding="utf-8")
        return path

    def close(self) -> None:
        """End every node and remove the lab's folder; a second call is harmless."""
        leftovers.remove(self.directory)
        leftovers.unregister(cache_folder(), self.directory)
