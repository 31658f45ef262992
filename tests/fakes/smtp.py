"""A mail server on loopback that keeps what it gets, or answers as a test says."""

from __future__ import annotations

import email
import socket
import ssl
import threading
from dataclasses import dataclass, field
from email.message import Message
from types import TracebackType
from typing import Self


@dataclass
class MailServer:
    """Use as a context manager."""

    tls: ssl.SSLContext | None = None  # for STARTTLS; with `at_once`, from the first byte
    at_once: bool = False
    # other answers, by the first word of the command or all of it, in capitals; empty hangs until the server
    # is closed
    says: dict[str, bytes] = field(default_factory=dict)
    mails: list[Message] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._released = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not end what waits in it
        self._listener.close()

    def _accept(self) -> None:
        while not self._released.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None and self.at_once:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                connection.sendall(b"220 here\r\n")
                self._talk(connection, encrypted=self.at_once)
        except OSError:
            return  # the client has had enough

    def _talk(self, connection: socket.socket, *, encrypted: bool) -> None:
        stream = connection.makefile("rb")
        while line := stream.readline():
            word = line.split()[0].decode(errors="replace").upper() if line.split() else ""
            self.heard.append(line.decode(errors="replace").strip())
            whole = line.decode(errors="replace").strip().upper()
            if whole in self.says:
                word = whole
            if word in self.says:
                if not self.says[word]:
                    self._released.wait(30)
                connection.sendall(self.says[word])
            elif word == "EHLO":
                offered = "250-STARTTLS\r\n" if self.tls and not encrypted else ""
                connection.sendall(f"250-here\r\n{offered}250 AUTH PLAIN\r\n".encode())
            elif word == "STARTTLS" and self.tls is not None:
                connection.sendall(b"220 go\r\n")
                with self.tls.wrap_socket(connection, server_side=True) as secure:
                    self._talk(secure, encrypted=True)
                return
            elif word == "AUTH":
                connection.sendall(b"235 welcome\r\n")
            elif word == "DATA":
                connection.sendall(b"354 go on\r\n")
                lines = []
                while (part := stream.readline()) not in (b".\r\n", b""):
                    lines.append(part)
                self.mails.append(email.message_from_bytes(b"".join(lines)))
                connection.sendall(b"250 taken\r\n")
            else:
                connection.sendall(b"221 bye\r\n" if word == "QUIT" else b"250 good\r\n")
