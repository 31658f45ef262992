"""A PostgreSQL server of the tests' own, and a proxy before it that cuts, holds or refuses connections."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.ports import free_port
from tests.tools import lacking, needs

PASSWORD: Final = "planted/p@ss:word 1"  # noqa: S105  (of a server that lives as long as a test)
USER: Final = "orchestrate"
START_SECONDS: Final = 60
_PROGRAMS: Final = Path("/usr/lib/postgresql")
"""Debian's folder of the server's programs, one below for each version."""


def _program(name: str) -> str:
    """The path of one of the server's programs. Without it the test is skipped, as by `needs`."""
    found = sorted(_PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if found:
        return str(found[-1])
    on_path = shutil.which(name)
    if on_path is None:
        lacking(f"{name} of PostgreSQL is not on this machine: apt-get install postgresql")
    return on_path


class PostgresServer:
    """One server on loopback, with passwords (SCRAM), in a temporary folder. Use as a context manager.

    It refuses to run as root, so root starts it as the account `nobody`. It ends with the process of the
    tests, however that ends.

    Attributes:
        port: where it listens.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self._names = (f"state{number}" for number in itertools.count(1))
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._account: tuple[str, ...] = (needs("setpriv"), "--pdeathsig=KILL")
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            ids = (f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
            self._account = (*self._account, *ids)

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(f"{PASSWORD}\n", encoding="utf-8")
        secret.chmod(0o644)
        words = [_program("initdb"), "--pgdata", self._data, "--username", USER, "--pwfile", secret]
        # Without a locale the encoding of its databases would be SQL_ASCII, as on small machines.
        words += ["--auth", "scram-sha-256", "--locale", "C", "--no-sync"]
        self._run(*words)

    def _run(self, *words: str | Path) -> None:
        done = subprocess.run(  # noqa: S603  (a program of the server)
            [*self._account, *words], cwd=self._folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "max_connections": "80",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  (the server)
                [*self._account, _program("postgres"), "-D", self._data, *words],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        limit = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < limit, self.log
            time.sleep(0.1)

    def stop(self) -> None:
        """End it at once, as `pg_ctl stop -m immediate` does: connections break, and nothing is tidied up."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT)  # https://www.postgresql.org/docs/current/server-shutdown.html
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """The id of its first process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            self.execute("SELECT 1")
            return True
        return False

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute a statement of a test; the rows of its answer."""
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
            client_encoding="utf8",
        ) as connection:
            cursor = connection.execute(sql.SQL(statement))
            return cursor.fetchall() if cursor.description else []

    def new_database(self, encoding: str = "UTF8") -> str:
        """The name of a new, empty database."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
        return name

    def url(self, database: str, *, port: int | None = None, options: str = "") -> str:
        """Of a database, as `ORCHESTRATE_STATE` takes it, with the password.

        Args:
            database: its name.
            port: of a proxy; None for the server's own.
            options: after the `?`.
        """
        place = f"127.0.0.1:{port or self.port}/{database}"
        return f"postgresql+psycopg://{USER}:{quote(PASSWORD, safe='')}@{place}{options and '?'}{options}"


class Cut(Enum):
    """What the proxy does with a commit."""

    BEFORE = "before"  # the connection breaks, and the server never has it
    AFTER = "after"  # the server commits, and the connection breaks before its answer
    LATE = "late"  # the connection breaks, and the server has it a second later
    DOWN = "down"  # as BEFORE, and no connection is taken any more
    HANG = "hang"  # nothing is passed on any more, in either direction; connections are taken, and are silent


_LATE_SECONDS: Final = 1.0


@dataclass(kw_only=True)
class PostgresProxy:
    """Passes connections on to a server, until a commit is reached. Use as a context manager.

    Attributes:
        commits: how many it has seen.
        cut: what to do with the commit of the number `at`, the first being 1.
        cuts: how many it has treated so.
    """

    to: int  # the server's port
    cut: Cut | None = None
    at: int = 0
    commits: int = 0
    cuts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: list[socket.socket] = field(default_factory=list)
    _state: Cut | None = None  # DOWN or HANG, once it is

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener)
        with self._lock:
            for each in self._open:
                _close(each)

    def set(self, state: Cut | None) -> None:
        """Let it be DOWN or HANG from now on, or None again: connections of before are closed."""
        with self._lock:
            self._state = state
            if state is not Cut.HANG:
                for each in self._open:
                    _close(each)
                self._open.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._state is Cut.DOWN:
                    _close(client)
                    continue
                self._open.append(client)
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        if self._state is Cut.HANG:
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.to))
        except OSError:  # the server is down
            _close(client)
            return
        with contextlib.suppress(OSError):
            self._open.append(server)
            silent = threading.Event()  # the server's answers are kept
            threading.Thread(target=self._answers, args=(server, client, silent), daemon=True).start()
            for message in _messages(client):
                cut = self._cut_at(message)
                if self._state is Cut.HANG:
                    return
                if cut is not None:
                    silent.set()
                    if cut is not Cut.AFTER:
                        _close(client)
                    if cut is Cut.LATE:
                        time.sleep(_LATE_SECONDS)
                    if cut in {Cut.AFTER, Cut.LATE}:
                        server.sendall(message)
                        time.sleep(0.3)  # the server has answered by then
                    _close(client)
                    _close(server)
                    return
                server.sendall(message)
            _close(server)

    def _answers(self, server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while said := server.recv(65536):
                if self._state is not Cut.HANG and not silent.is_set():
                    client.sendall(said)
        if self._state is not Cut.HANG and not silent.is_set():
            _close(client)

    def _cut_at(self, message: bytes) -> Cut | None:
        """What to do with this message, if it is the commit that was chosen."""
        if not (message[:1] in {b"Q", b"P"} and b"COMMIT\0" in message):
            return None
        with self._lock:
            self.commits += 1
            if self.cut is None or self.commits != self.at:
                return None
            self.cuts += 1
        if self.cut in {Cut.DOWN, Cut.HANG}:
            self.set(self.cut)
        return self.cut


def _close(it: socket.socket) -> None:
    with contextlib.suppress(OSError):
        it.shutdown(socket.SHUT_RDWR)
    it.close()


def _messages(client: socket.socket) -> Iterator[bytes]:
    """The messages of a client, whole (https://www.postgresql.org/docs/current/protocol-message-formats.html)."""
    stream = client.makefile("rb")
    started = False
    while True:
        kind = stream.read(1) if started else b""
        length = stream.read(4)
        if len(length) < 4:
            return
        rest = stream.read(int.from_bytes(length) - 4)
        # The first message has no type. After a question for TLS or GSS another first one follows.
        started = started or rest[:4] == (3 << 16).to_bytes(4) or rest[:2] == b"\x00\x03"
        yield kind + length + rest


def wait_until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return when that is so."""
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.05)
