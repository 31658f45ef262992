"""A Docker engine behind a socket of the test's own, which can be cut and hang; a service in a container."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.hosts.settings import ServiceSettings
from orchestrator.model.hosts import Manager
from tests.integration.hostlab import docker
from tests.integration.hostlab.images import BASE

REAL = "/var/run/docker.sock"
_SCRIPT = """
trap 'echo begun; sleep $(cat /stop_seconds); echo ended; exit 143' TERM
while :; do sleep 60 & wait $!; done
"""
Answer = Callable[[socket.socket], None]


@dataclass(kw_only=True)
class Engine:
    """Hands on what clients say to the real engine; `close` ends every connection.

    Attributes:
        path: of the socket.
        answer: what new clients get in place of the real engine; None = the real one.
    """

    path: Path
    answer: Answer | None = None
    _open: list[socket.socket] = field(default_factory=list)
    _listener: socket.socket | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What makes the docker command use it."""
        return {"DOCKER_HOST": f"unix://{self.path}"}

    def start(self) -> Engine:
        docker.require_engine()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def cut(self) -> None:
        """End every connection."""
        while self._open:
            _end(self._open.pop())

    def close(self) -> None:
        """Be gone."""
        if self._listener is not None:
            _end(self._listener)
            self._listener = None
            self.path.unlink()
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self.answer is not None:
                return self.answer(client)
            with socket.socket(socket.AF_UNIX) as real:
                real.connect(REAL)
                self._open.append(real)
                back = threading.Thread(target=_copy, args=(real, client), daemon=True)
                back.start()
                _copy(client, real)
                back.join()
        return None


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@dataclass(kw_only=True)
class ContainedService:
    """A container that ends as a JVM does when it is asked to; `end` removes it."""

    name: str = field(default_factory=lambda: f"orchestrate-test-{uuid.uuid4().hex[:12]}")

    def install(self) -> ContainedService:
        docker.run(("docker", "create", "--name", self.name, BASE, "/bin/sh", "-c", _SCRIPT))
        self.stop_takes(0)
        return self

    def stop_takes(self, seconds: float) -> None:
        """Let it work for so long when it is asked to end."""
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(f"{seconds}\n")
            file.flush()
            docker.run(("docker", "cp", file.name, f"{self.name}:/stop_seconds"))

    def settings(self) -> ServiceSettings:
        return ServiceSettings(
            manager=Manager.DOCKER, unit=self.name, grace=30.0, program=shutil.which("docker")
        )

    def stops(self, node: str) -> list[str]:
        """What it did when it was asked to end."""
        del node
        return docker.run(("docker", "logs", self.name)).stdout.split()

    def end(self) -> None:
        docker.run(("docker", "rm", "--force", self.name))
