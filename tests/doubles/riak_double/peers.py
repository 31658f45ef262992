"""How nodes, and the `riak` command, ask a node: lines of JSON each way, on a port of the double's own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Report
    from .settings import Own

SECONDS = 5.0
"""A peer that takes longer cannot be contacted. An answer takes milliseconds, but not on a machine with ten
times the work that it can do; Riak itself waits for up to 30 s."""


def ask(address: tuple[str, int], what: str, body: Any = None, *, seconds: float = SECONDS) -> Any:
    """The answer of a node, or None if there is none that answers.

    Args:
        address: host and port.
        what: such as `report`.
        body: anything that JSON knows.
        seconds: to wait for each part of it.
    """
    try:
        link = Link(address, seconds)
    except OSError:
        return None
    try:
        link.send(what, body)
        return link.hear()
    except (OSError, ValueError):  # it ended while it answered
        return None
    finally:
        link.close()


class Link:
    """A connection to a node.

    Raises:
        OSError: nobody is there.
    """

    def __init__(self, address: tuple[str, int], seconds: float) -> None:
        self._socket = socket.create_connection(address, timeout=seconds)
        self._answers = self._socket.makefile("rb")

    def send(self, what: str, body: Any = None) -> None:
        """Ask.

        Raises:
            OSError: the other side is gone.
        """
        self._socket.sendall(json.dumps([what, body]).encode() + b"\n")

    def hear(self) -> Any:
        """The answer.

        Raises:
            OSError: the other side is gone, or silent for too long (TimeoutError).
            ValueError: it ended in the middle of its answer, or before it.
        """
        return json.loads(self._answers.readline())

    def close(self) -> None:
        """Let go of it."""
        self._answers.close()
        self._socket.close()


class Peers:
    """The other nodes. Connections are kept: nodes ask each other many times a second."""

    def __init__(self, own: Own) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._idle: dict[str, list[Link]] = {}

    def reports(self, names: Iterable[str]) -> dict[str, Report]:
        """Of those that answer, all asked at once."""
        from .report import from_json  # noqa: PLC0415  (a command that asks one node needs no reports)

        found: dict[str, Any] = {}
        asked: list[tuple[str, Link]] = []
        anew: list[str] = []
        for name in sorted(names):
            link = self._take(name)
            try:
                if link is not None:
                    link.send("report")
            except OSError:
                link = None
            if link is None:
                anew.append(name)
            else:
                asked.append((name, link))
        for name, link in asked:
            try:
                found[name] = link.hear()
            except TimeoutError:
                link.close()
            except (OSError, ValueError):  # it ended since; another life of it may be there
                link.close()
                anew.append(name)
            else:
                self._give(name, link)
        threads = [threading.Thread(target=self._meet, args=(name, found), daemon=True) for name in anew]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Where a name's address is wrong, another node answers: it is not the one that was asked for.
        return {name: from_json(found[name]) for name in sorted(found) if found[name]["name"] == name}

    def _meet(self, name: str, found: dict[str, Any]) -> None:
        try:
            link = Link(self._own.address(name), SECONDS)
        except OSError:
            return
        try:
            link.send("report")
            found[name] = link.hear()
        except (OSError, ValueError):
            link.close()
        else:
            self._give(name, link)

    def _take(self, name: str) -> Link | None:
        with self._lock:
            links = self._idle.get(name)
            return links.pop() if links else None

    def _give(self, name: str, link: Link) -> None:
        with self._lock:
            self._idle.setdefault(name, []).append(link)
