"""Where bad input is tried: a real cluster that must come out as it went in, and places to be wrong about."""

from __future__ import annotations

import getpass
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from orchestrator.lab.nodes import LabCluster
from tests.cli.console import Console
from tests.integration.sshd import Sshd, make_key

DISRUPTIVE = {"setting_changed", "wave_started", "replicas_added", "voting_excluded"}
"""Events that stand for a change of the cluster."""


@contextmanager
def serving(body: bytes, headers: Mapping[str, str]) -> Iterator[str]:
    """A server of another kind on loopback: whatever is asked, this is its answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Nothing: the test prints what is worth reading."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(slots=True, kw_only=True)
class Stage:
    """What a case may use.

    Attributes:
        document: a cluster file that is right, as data.
        before: a command that is to start the program (`unshare …`).
        cleanup: closed when the case is over.
    """

    console: Console
    lab: LabCluster
    cleanup: ExitStack
    document: dict[str, Any] = field(init=False)
    before: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.document = self.lab.cluster_document()

    @property
    def folder(self) -> Path:
        return self.console.folder

    def file(self, **changes: Any) -> str:
        """Write the cluster file, with these keys changed; its path."""
        path = self.folder / "prod.yml"
        path.write_text(json.dumps(self.document | changes, indent=1) + "\n")
        return str(path)

    def text(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def serve(self, body: bytes, **headers: str) -> str:
        return self.cleanup.enter_context(
            serving(body, {name.replace("_", "-"): value for name, value in headers.items()})
        )

    def sshd(self, **environment: str) -> Sshd:
        """A real sshd; its own key is written to no known hosts file yet."""
        server = Sshd(
            folder=self.folder / "sshd", client_key=make_key(self.folder / "id"), environment=environment
        ).start()
        self.cleanup.callback(server.stop)
        return server

    def hosts_over(self, server: Sshd, *, known: str, sudo: bool = False) -> dict[str, Any]:
        """The `hosts` of a cluster file whose nodes are reached by this sshd."""
        return {
            **self.document["hosts"],
            "connect": "ssh",
            "user": getpass.getuser(),
            "port": server.port,
            "identity": str(server.client_key),
            "known_hosts": self.text("known_hosts", known),
            "sudo": sudo,
        }

    def picture(self) -> dict[str, Any]:
        """Everything of the cluster that a run could have changed."""
        ask = self.lab.client.ask
        return {
            "settings": ask("GET", "/_cluster/settings?flat_settings=true"),
            "nodes": {
                node["name"]: node["ephemeral_id"]
                for node in ask("GET", "/_cluster/state/nodes?filter_path=nodes.*")["nodes"].values()
            },
            "templates": ask("GET", "/_template?filter_path=*.order"),
            "leases": ask("GET", "/_component_template/orchestrate-*", accept=(404,)),
            "replicas": ask("GET", "/_all/_settings?flat_settings=true"),
            "processes": self.lab.pids(),
        }

    def changes(self) -> list[str]:
        """Events of the state file that stand for a change of the cluster."""
        if not self.console.state.exists():
            return []
        with sqlite3.connect(f"file:{self.console.state}?mode=ro", uri=True) as state:
            rows = state.execute("select event from events").fetchall()
        return [kind for (text,) in rows if (kind := json.loads(text)["event"]) in DISRUPTIVE]


Act = Callable[[Stage], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bad input.

    Attributes:
        what: in the contract's words, and which of several.
        act: prepares it; the command line that meets it.
        code: the exit code.
        says: parts of the message, in their order; `{folder}` is the stage's folder.
    """

    what: str
    act: Act
    code: int
    says: tuple[str, ...]
