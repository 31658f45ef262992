"""A real RabbitMQ on loopback: folders, cookie, ports and Erlang's port mapper of its own, no init system."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import urllib3

from tests.ports import free_port
from tests.tools import needs

SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Debian's own script; the one in `/usr/sbin` insists on the system's folders and user."""

USER: Final = "guest:guest"
"""What a new server makes, for loopback only."""

BOOT_SECONDS: Final = 120.0
PATIENCE_SECONDS: Final = 30.0
"""A statistic is half a second old; on a loaded machine it is older, and what takes too long is a 500."""


@dataclass(kw_only=True)
class Rabbit:
    """One server; `stop` ends it and its port mapper, by their ids.

    Attributes:
        folder: its own: data, logs, cookie.
        port: of the management plugin's API, the same after another `start`.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    _mapper: subprocess.Popen[bytes] | None = None
    _server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the API, without its path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Rabbit:
        """Start it unless it runs, and wait until it answers."""
        if self._server is not None:
            return self
        mapper, server = needs("epmd"), needs(SERVER)
        environment = self._prepare()
        try:
            with (self.folder / "out.log").open("ab") as log:
                self._mapper = subprocess.Popen(  # noqa: S603  (in the foreground, so that its id is known)
                    [mapper, "-address", "127.0.0.1", "-port", environment["ERL_EPMD_PORT"]],
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
                self._server = subprocess.Popen(  # noqa: S603  (a server of our own)
                    [server], env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
                )
            self._await()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it at once: a script, the Erlang machine that it started, and what that one started."""
        server, self._server = self._server, None
        mapper, self._mapper = self._mapper, None
        if server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # its helpers end when their pipe does
            server.wait()
        if mapper is not None:
            mapper.kill()
            mapper.wait()

    def declare(self, queue: str) -> None:
        """Make a queue, or find it made."""
        self._ask("PUT", f"/api/queues/%2F/{quote(queue, safe='')}", {"durable": True})

    def publish(self, queue: str, messages: int) -> None:
        """Put messages in, and return when the statistics show as many more."""
        wanted = (self.count(queue) or 0) + messages
        message = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
        for _ in range(messages):
            assert self._ask("POST", "/api/exchanges/%2F/amq.default/publish", message)["routed"]
        self._await_count(queue, wanted)

    def drain(self, queue: str) -> None:
        """Take all messages out, and return when the statistics show none."""
        self._ask("DELETE", f"/api/queues/%2F/{quote(queue, safe='')}/contents")
        self._await_count(queue, 0)

    def count(self, queue: str) -> int | None:
        """How many messages the statistics show; None of a queue that they do not know yet."""
        found = self._ask("GET", f"/api/queues/%2F/{quote(queue, safe='')}").get("messages")
        return None if found is None else int(found)

    def _await_count(self, queue: str, wanted: int) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while (found := self.count(queue)) != wanted:
            assert time.monotonic() < limit, f"{queue} shows {found} messages, not {wanted}"
            time.sleep(0.1)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the API; one of 500 is asked for again, for a while."""
        limit = time.monotonic() + PATIENCE_SECONDS
        headers = {"Content-Type": "application/json", **urllib3.make_headers(basic_auth=USER)}
        while True:
            answer = urllib3.request(
                method,
                self.url + path,
                body=json.dumps(body) if body is not None else None,
                headers=headers,
                timeout=PATIENCE_SECONDS,
            )
            if answer.status < 300:
                return json.loads(answer.data or b"{}")
            told = f"{method} {path}: {answer.status} {answer.data[:200]!r}"
            assert answer.status >= 500, told
            assert time.monotonic() < limit, told
            time.sleep(0.5)

    def _prepare(self) -> dict[str, str]:
        """Folders and files; the environment that names them."""
        for name in ("mnesia", "log", "gen", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "plugins").write_text("[rabbitmq_management].\n", encoding="utf-8")
        lines = (
            f"listeners.tcp.default = 127.0.0.1:{free_port()}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.port}",
            "collect_statistics_interval = 500",
        )
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "RABBITMQ_NODENAME": f"gates{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "gen"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _await(self) -> None:
        limit = time.monotonic() + BOOT_SECONDS
        while True:
            assert self._server is not None
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                headers = urllib3.make_headers(basic_auth=USER)
                found = urllib3.request(
                    "GET", f"{self.url}/api/overview", headers=headers, retries=False, timeout=5.0
                )
                if found.status == 200:
                    return
            log = self.folder / "out.log"
            assert self._server.poll() is None, log.read_text(encoding="utf-8", errors="replace")
            assert time.monotonic() < limit, log.read_text(encoding="utf-8", errors="replace")
            time.sleep(0.2)
