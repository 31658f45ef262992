"""How nodes, and the `riak` command, ask a node: HTTP and JSON on a port of the double's own."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .report import Report, from_json
from .settings import Own

SECONDS = 2.0
"""A peer that takes longer cannot be contacted. On one machine an answer takes milliseconds."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Nodes are asked directly, whatever the environment says of proxies."""


def ask(address: tuple[str, int], path: str, body: Any = None, *, seconds: float = SECONDS) -> Any:
    """The answer of a node, or None if there is none that answers.

    Args:
        address: host and port.
        path: such as `/report`.
        body: sent as JSON; None asks without.
        seconds: to wait.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}/double{path}", data=data)
    try:
        with DIRECT.open(request, timeout=seconds) as answer:
            return json.loads(answer.read())
    except (urllib.error.URLError, OSError, ValueError):
        return None


def reports(own: Own, names: Iterable[str]) -> dict[str, Report]:
    """Of those that answer, all asked at once."""
    wanted = sorted(names)
    if not wanted:
        return {}
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        answers = pool.map(lambda name: ask(own.address(name), "/report"), wanted)
        found = {name: from_json(answer) for name, answer in zip(wanted, answers, strict=True) if answer}
    # Where a name's address is wrong, another node answers: it is not the one that was asked for.
    return {name: report for name, report in found.items() if report.name == name}
