"""The small cluster whose nodes leave it when their service stops, and whose runs are killed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.console import SCRIPT, Console
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import Answerer, Asked, Wire, reply

_LIVES = re.compile(r"/_nodes/([^/]+)/jvm,http,settings,plugins")
_BOOK = """kind: elasticsearch
hooks:
  while_stopped: [{run: "while [ ! -e '%s' ]; do sleep 0.2; done", local: true, timeout: 5m}]
"""


class _Answers(dict[str, list[Answerer]]):
    """Answers by path; nodes may be asked for in any combination."""

    def __init__(self, known: dict[str, list[Answerer]], cluster: LeavingCluster) -> None:
        super().__init__(known)
        self._cluster = cluster

    def get(self, key: str, default: Any = None) -> Any:
        if found := _LIVES.fullmatch(key):
            return [self._cluster.of(found[1].split(","))]
        return super().get(key) or default


class _Versions(dict[str, str]):
    """Versions by node: what was installed, else what was there."""

    def __init__(self, folder: Path, known: dict[str, str]) -> None:
        super().__init__(known)
        self._folder = folder

    def __getitem__(self, name: str) -> str:
        installed = self._folder / f"{name}.version"
        return installed.read_text() if installed.exists() else super().__getitem__(name)


class LeavingCluster(SmallCluster):
    """The server.

    Args:
        folder: of the services: `es2.down` is there while es2 is down, `es2.lives` grows with each start, and
            `es2.version` has the version that was installed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        super().__init__()
        self.versions = _Versions(folder, self.versions)
        self.answers = _Answers(self.answers, self)
        self.on("/_cluster/health", self._health)
        self.on("/_flush", reply({"_shards": {"total": 0, "successful": 0, "failed": 0}}))

    def of(self, wanted: list[str]) -> Answerer:
        """What these nodes report of themselves."""
        return reply({"nodes": {node: one for node, one in self._http().items() if node in wanted}})

    def document(self, **keys: Any) -> dict[str, Any]:
        there = self._folder
        services = {
            name: {
                "manager": "command",
                "stop": f"touch {there}/{name}.down",
                "start": f"sh -c 'rm -f {there}/{name}.down; printf x >> {there}/{name}.lives'",
                "status": f"test ! -e {there}/{name}.down",
            }
            for name in self.nodes.values()
        }
        overrides = {name: {"service": service} for name, service in services.items()}
        return super().document(hosts={"overrides": overrides}, **keys)

    def cluster_document(self) -> dict[str, Any]:
        """The content of its cluster file."""
        return self.document()

    @property
    def starts(self) -> dict[str, int]:
        """How often the service of each node was started."""
        return {name: self._life(name) - 1 for name in self.nodes.values()}

    @property
    def down(self) -> set[str]:
        """The nodes whose service is stopped."""
        return set(self.nodes.values()) - set(self._there().values())

    @contextmanager
    def run_at_work(self, console: Console, file: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """A restart as a process, while its first node is down; its id. It is killed at the end."""
        book = console.folder / "waiting.yml"
        book.write_text(_BOOK % (console.folder / "never"))
        words = ["restart", "--cluster", file, "--playbook", str(book), "--yes", "--output", "json"]
        with subprocess.Popen(  # noqa: S603  (the program under test)
            [str(SCRIPT), *words],
            cwd=console.folder,
            env=console.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                events = map(json.loads, process.stdout)
                yield next(str(one["run"]) for one in events if one.get("to") == "stopped"), process
            finally:
                process.kill()

    def _there(self) -> dict[str, str]:
        return {
            node: name for node, name in self.nodes.items() if not (self._folder / f"{name}.down").exists()
        }

    def _life(self, name: str) -> int:
        lives = self._folder / f"{name}.lives"
        return 1 + (len(lives.read_text()) if lives.exists() else 0)

    def _health(self, asked: Asked, wire: Wire) -> None:
        health: dict[str, Any] = {
            "status": "green",
            "timed_out": False,
            "number_of_nodes": len(self._there()),
        }
        counts = ("active", "initializing", "relocating", "unassigned")
        health |= dict.fromkeys((f"{what}_shards" for what in counts), 0)
        reply(health | {"number_of_pending_tasks": 0, "task_max_waiting_in_queue_millis": 0})(asked, wire)
