"""`orchestrate serve` as a process, and what a viewer gets from it."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.cli.console import SCRIPT, Console


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server said."""

    code: int
    text: str
    headers: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server, at an address that ends with a slash."""

    at: str
    process: subprocess.Popen[str]

    def get(self, path: str = "", *, method: str = "GET", **headers: str) -> Answer:
        request = urllib.request.Request(self.at + path, method=method)  # noqa: S310  (our own server)
        for name, value in headers.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=60.0) as answer:  # noqa: S310  (as above)
                return Answer(code=answer.status, text=answer.read().decode(), headers=dict(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(code=error.code, text=error.read().decode(), headers=dict(error.headers))

    def events(self, path: str) -> Iterator[str]:
        """The data of each event but signs of life."""
        with urllib.request.urlopen(self.at + path, timeout=60.0) as answer:  # noqa: S310  (as above)
            for line in answer:
                if line.startswith(b"data: ") and line != b"data: {}\n":
                    yield line.decode().removeprefix("data: ").strip()


@contextmanager
def serving(console: Console, *words: str, port: int = 0, before: tuple[str, ...] = ()) -> Iterator[Served]:
    """The program serves the state of a console, at this port, else at one of the system's choice.

    Args:
        console: whose state.
        words: further options.
        port: to listen on.
        before: a command that starts it.
    """
    process = subprocess.Popen(  # noqa: S603  (the program under test)
        [*before, str(SCRIPT), "serve", "--listen", f"127.0.0.1:{port}", *words],
        cwd=console.folder,
        env=console.variables(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert " at http://127.0.0.1:" in said, said + process.stderr.read()
        yield Served(at=said.split(" at ")[1].split()[0], process=process)
    finally:
        process.kill()
        process.communicate()
