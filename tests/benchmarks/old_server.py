"""Elasticsearch 2.4.6 as lab nodes, for figures beside those of today: it is no version that is restarted.

Its nodes are controlled by the lab's own `nodectl`. What differs is the archive's place, the command line,
and the names of settings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.lab import leftovers
from tests.lab.bulk import Dialect
from tests.lab.distributions import Distribution, Product, Progress, cache_folder, install
from tests.lab.java import find_java
from tests.lab.launch import QUICK_START
from tests.lab.layout import LOOPBACK, LabNode
from tests.lab.nodes import LabCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class OldDistribution(Distribution):
    """An archive of the time before the reduced ones for tests."""

    @property
    def coordinate(self) -> str:
        return f"org.elasticsearch.distribution.zip:elasticsearch:{self.version}:zip"


OLD: Final = OldDistribution(product=Product.ELASTICSEARCH, version="2.4.6", java_minimum=17, java_maximum=17)
"""Java 8 is its own; 17 is the newest that it was seen to start on."""

DIALECT: Final = Dialect(
    mapping={
        "doc": {
            "_all": {"enabled": False},  # what the text is also indexed into by default; gone from 6 on
            "properties": {
                "text": {"type": "string"},
                "topic": {"type": "string", "index": "not_analyzed"},
                "number": {"type": "long"},
                "score": {"type": "double"},
            },
        }
    },
    bulk="doc/_bulk",
    # There is no way to take a setting away: these are its defaults.
    unset={"index.merge.policy.segments_per_tier": "10", "index.merge.policy.floor_segment": "2mb"},
)


class OldCluster(LabCluster):
    """A lab cluster of 2.4.6. Start it with `boot`; it is used and closed as any other."""

    @classmethod
    def boot(cls, *, nodes: Sequence[LabNode], name: str, heap_mb: int, progress: Progress) -> Self:
        """Fetch what is needed, start all nodes and wait until they are one cluster.

        Raises:
            LabError: the machine lacks something, or a node did not come up; nothing is left running.
        """
        cache = cache_folder()
        java = find_java(OLD)
        home = install(OLD, cache=cache, progress=progress)
        directory = Path(tempfile.mkdtemp(prefix="orchestrator-lab-")).resolve()
        directory.chmod(0o755)
        leftovers.register(cache, directory)
        try:
            cluster = cls(
                distribution=OLD,
                nodes=nodes,
                name=name,
                directory=directory,
                cache=cache,
                heap_mb=heap_mb,
                settings={},
                security=None,
            )
            cluster._prepare(home, java)
            cluster.start_nodes()
            cluster.wait_ready()
        except BaseException:
            leftovers.remove(directory)
            leftovers.unregister(cache, directory)
            raise
        return cluster

    def _settings(self, node: LabNode, folder: Path) -> dict[str, str]:
        seeds = ",".join(f"{LOOPBACK}:{self.ports[each.name].transport}" for each in self.nodes)
        ports = self.ports[node.name]
        return {
            "cluster.name": self.name,
            "node.name": node.name,
            "node.zone": node.zone,
            "cluster.routing.allocation.awareness.attributes": "zone",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "path.data": str(folder / "data"),
            "path.logs": str(folder / "logs"),
            "path.plugins": str(folder / "plugins"),  # by default in the archive, which is not its own
            "network.host": LOOPBACK,
            "http.port": str(ports.http),
            "transport.tcp.port": str(ports.transport),
            "discovery.zen.ping.unicast.hosts": seeds,
            # After five minutes without a write it would mark the copies as equal by itself (a synced flush).
            "indices.memory.shard_inactive_time": "12h",
            "discovery.zen.minimum_master_nodes": str(len(self.nodes) // 2 + 1),
        }

    def _command(self, folder: Path) -> tuple[str, ...]:
        """As the start script would, without the collector's flags, which Java has dropped since."""
        return (
            str(self._java / "bin" / "java"),
            *QUICK_START,
            f"-Xms{self._heap_mb}m",
            f"-Xmx{self._heap_mb}m",
            "-Xss1m",
            "-Djava.awt.headless=true",
            "-Dfile.encoding=UTF-8",
            "-Djna.nosys=true",
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Des.path.home={self._home}",
            f"-Des.path.conf={folder / 'config'}",
            "-cp",
            f"{self._home}/lib/*",
            "org.elasticsearch.bootstrap.Elasticsearch",
            "start",
        )
