"""An HTTP server on a real loopback socket that answers as a test says, bytes and timing included."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

ELASTIC = {"X-Elastic-Product": "Elasticsearch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that came in."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection, for answers that are no proper HTTP."""

    def __init__(self, connection: socket.socket, released: threading.Event) -> None:
        self.connection = connection
        self._released = released

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def hang(self) -> None:
        """Say nothing until the server is closed."""
        self._released.wait(30)

    def trickle(self, data: bytes, *, every: float) -> None:
        """Send a byte every so many seconds until the server is closed or the other side has had enough."""
        for byte in data:
            if self._released.wait(every):
                return
            self.send(bytes([byte]))


Answerer = Callable[[Asked, Wire], None]


def reply(
    body: Any, *, status: int = 200, headers: dict[str, str] | None = None, kind: str = "application/json"
) -> Answerer:
    """A proper answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} So", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (ELASTIC if headers is None else headers).items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


def raw(data: bytes) -> Answerer:
    """These bytes; the connection stays open."""
    return lambda _asked, wire: wire.send(data)


def large(megabytes: int) -> Answerer:
    """An answer of so many MiB, as far as the client takes it."""
    size = megabytes * 1024 * 1024

    def answer(_asked: Asked, wire: Wire) -> None:
        wire.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + bytes(size))

    return answer


def hang(_asked: Asked, wire: Wire) -> None:
    wire.hang()


@dataclass
class ScriptedServer:
    """Answers by path; `asked` holds what came in. Use as a context manager."""

    # by path (its last word may be `-*`), or by `METHOD path`; the last is kept, earlier ones are used up
    answers: dict[str, list[Answerer]] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None  # serve TLS by it
    asked: list[Asked] = field(default_factory=list)
    at: int = 0  # the port; any free one by default

    def __enter__(self) -> Self:
        self._released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", self.at))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._open: list[socket.socket] = []
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more connections and end those there are."""
        self._released.set()
        for each in (self._listener, *self._open):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it is not connected any more
            finally:
                each.close()
        for thread in self._threads:
            thread.join(5)

    def ended(self, within: float) -> bool:
        """Whether the clients have ended every connection so far, or do within so many seconds."""
        until = time.monotonic() + within
        for thread in self._threads[1:]:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads[1:])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def on(self, path: str, *answers: Answerer) -> None:
        """Answer requests for a path so, one after the other; the last one from then on."""
        self.answers[path] = list(answers)

    def paths(self) -> list[str]:
        return [each.path for each in self.asked]

    def _accept(self) -> None:
        while not self._released.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                connection = _shaken(connection, self.tls)
                self._open.append(connection)
            with connection, connection.makefile("rb") as incoming:
                if incoming.peek(1)[:1] == b"\x16":  # a TLS greeting: what every HTTP server makes of it
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
                while (asked := _read(incoming)) is not None:
                    self.asked.append(asked)
                    paths = f"{asked.method} {asked.path}", asked.path, f"{asked.path.rpartition('-')[0]}-*"
                    answers = next(filter(None, map(self.answers.get, paths)), [])
                    if not answers:
                        answers = [reply({"error": f"nothing scripted for {asked.path}"}, status=400)]
                    answer = answers.pop(0) if len(answers) > 1 else answers[0]
                    answer(asked, Wire(connection, self._released))
        except OSError:
            return  # the client has had enough, which is what some tests are about


def _shaken(connection: socket.socket, tls: ssl.SSLContext) -> socket.socket:
    """TLS over the connection; a client that is refused gets the alert, even if its request is on the way.

    A connection that is closed with bytes unread is reset, and the client may lose what was sent to it.
    """
    with connection.dup() as below:
        secure = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        try:
            secure.do_handshake()
        except ssl.SSLError:
            secure.close()
            below.settimeout(5.0)
            below.shutdown(socket.SHUT_WR)
            while below.recv(65536):
                pass
            raise
        return secure


def cut(data: bytes) -> Answerer:
    """These bytes, then the end of the connection."""

    def answer(_asked: Asked, wire: Wire) -> None:
        wire.send(data)
        raise OSError("cut as scripted")

    return answer


def _read(incoming: Any) -> Asked | None:
    first = incoming.readline().decode("latin-1").split()
    if len(first) < 2:
        return None
    headers: dict[str, str] = {}
    while (line := incoming.readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = incoming.read(int(headers.get("content-length", 0)))
    return Asked(method=first[0], target=first[1], headers=headers, body=body)


def node(name: str, *, version: str = "9.1.0", address: str | None = None, build: str | None = "zip") -> Any:
    """What a node answers the probe with."""
    own: dict[str, Any] = {"name": name, "version": version}
    if build is not None:
        own["build_type"] = build
    if address is not None:
        own["http"] = {"publish_address": address}
    return {"cluster_name": "c", "nodes": {f"id-{name}": own}}
