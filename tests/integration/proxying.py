"""A small proxy before nodes, which passes every request on; tests look at the requests, or stop some."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import urllib3


class Passing:
    """Passes each request on to the first of these nodes that answers. Use as a context manager.

    Args:
        endpoints: of the nodes.

    Attributes:
        url: where it listens.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._pool = urllib3.PoolManager(retries=False)
        self._endpoints = endpoints
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                proxy.answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any  # noqa: N815  (the library's names)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._pool.clear()

    def refused(self, method: str, path: str, body: bytes) -> tuple[int, Any] | None:
        """The status and body to answer instead of passing the request on; None passes it on."""
        del method, path, body
        return None

    def cut_off(self, method: str, path: str, body: bytes) -> bool:
        """Whether the answer of the node is cut off."""
        del method, path, body
        return False

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        """Refuse, or pass on to the first node that answers."""
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        refusal = self.refused(asked.command, asked.path, body)
        if refusal is not None:
            status, said = refusal
            _send(asked, status, {"content-type": "application/json"}, json.dumps(said).encode())
            return
        passed = {
            key: value
            for key, value in asked.headers.items()
            if key.lower() not in ("host", "content-length", "connection")
        }
        for endpoint in self._endpoints:
            try:
                response = self._pool.request(
                    asked.command, endpoint + asked.path, body=body or None, headers=passed, timeout=60.0
                )
            except urllib3.exceptions.HTTPError:
                continue
            kept = {k: v for k, v in response.headers.items() if k.lower().startswith(("content-type", "x-"))}
            if self.cut_off(asked.command, asked.path, body):
                asked.close_connection = True
                return
            _send(asked, response.status, kept, response.data)
            return
        _send(asked, 502, {}, b"no node answers")


def _send(asked: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], body: bytes) -> None:
    asked.send_response(status)
    for key, value in headers.items():
        asked.send_header(key, value)
    asked.send_header("Content-Length", str(len(body)))
    asked.end_headers()
    if asked.command != "HEAD":
        asked.wfile.write(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request that a node received."""

    method: str
    path: str
    body: Any = field(default=None)


class Recording(Passing):
    """Keeps every request.

    Args:
        endpoints: of the nodes.
        received: takes the requests, in their order.
    """

    def __init__(self, endpoints: Sequence[str], received: list[Received]) -> None:
        super().__init__(endpoints)
        self._received = received

    def refused(self, method: str, path: str, body: bytes) -> tuple[int, Any] | None:
        """Note the request; none is refused."""
        self._received.append(Received(method=method, path=path, body=json.loads(body) if body else None))
        return None
