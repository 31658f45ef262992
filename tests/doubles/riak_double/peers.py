"""How nodes, and the `riak` command, ask a node: a line of JSON each way, on a port of the double's own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable
from typing import Any

from .report import Report, from_json
from .settings import Own

SECONDS = 2.0
"""A peer that takes longer cannot be contacted. On one machine an answer takes milliseconds."""


def ask(address: tuple[str, int], what: str, body: Any = None, *, seconds: float = SECONDS) -> Any:
    """The answer of a node, or None if there is none that answers.

    Args:
        address: host and port.
        what: such as `report`.
        body: anything that JSON knows.
        seconds: to wait for each part of it.
    """
    try:
        with socket.create_connection(address, timeout=seconds) as connection:
            connection.sendall(json.dumps([what, body]).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline())
    except (OSError, ValueError):  # nobody there, or it ended while it answered
        return None


def reports(own: Own, names: Iterable[str]) -> dict[str, Report]:
    """Of those that answer, all asked at once."""
    wanted = sorted(names)
    found: dict[str, Report] = {}

    def hear(name: str) -> None:
        if answer := ask(own.address(name), "report"):
            found[name] = from_json(answer)

    threads = [threading.Thread(target=hear, args=(name,), daemon=True) for name in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Where a name's address is wrong, another node answers: it is not the one that was asked for.
    return {name: report for name, report in sorted(found.items()) if report.name == name}
