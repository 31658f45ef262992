"""Processes that tests start, kill, race and send signals to, forked from one that has loaded the program."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHILDREN = Path(__file__).with_name("children.py")


class Child:
    """A process that does one of the functions of `children.py`; the names are those of `Popen`."""

    def __init__(self, server: socket.socket, *arguments: str) -> None:
        pipes = [os.pipe() for _ in range(4)]
        (read, self._in), (self._out, write), (self._err, errors), (self._ended, ended) = pipes
        job = (read, write, errors, ended)
        socket.send_fds(server, [json.dumps(arguments).encode()], job)
        for number in job:
            os.close(number)
        self.stdin, self.stdout = os.fdopen(self._in, "w"), os.fdopen(self._out)
        self.stderr, self._status = os.fdopen(self._err), os.fdopen(self._ended)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Its exit status.

        Raises:
            TimeoutExpired: it still runs.
        """
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired("child", timeout)
            self.returncode = int(self._status.readline())
        return self.returncode

    def _has_ended(self, timeout: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._status, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def communicate(self, text: str = "", timeout: float = 30.0) -> tuple[str, str]:
        """Send the last input, await the end, and give the output and the errors."""
        self.stdin.write(text)
        self.stdin.close()
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def end(self) -> None:
        """End it if it runs, and close all."""
        if self.returncode is None and not self._has_ended(0):
            os.kill(self.pid, signal.SIGKILL)
        self.wait(30)
        for file in (self.stdin, self.stdout, self.stderr, self._status):
            if not file.closed:
                file.close()


@pytest.fixture(scope="session")
def children() -> Iterator[socket.socket]:
    """A process that has loaded everything, and forks for each job."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        server = subprocess.Popen(  # noqa: S603  (this interpreter, our own script)
            [sys.executable, str(CHILDREN), str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        yield ours
        ours.close()
        server.wait(30)


@pytest.fixture
def start(children: socket.socket) -> Iterator[Callable[..., Child]]:
    begun: list[Child] = []

    def begin(*arguments: str) -> Child:
        begun.append(Child(children, *arguments))
        return begun[-1]

    yield begin
    for child in begun:
        child.end()
