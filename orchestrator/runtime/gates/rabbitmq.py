"""A queue of RabbitMQ: its number of messages, from the management plugin's API.

`messages` is the sum of ready and unacknowledged messages. The plugin updates it every five seconds by
default, so it may be that old.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from orchestrator.model.gate import GateView, RabbitQueueGate
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.gates.http import Get, json_of
from orchestrator.runtime.gates.values import number, shown

_COUNTED_NO_MORE: Final = frozenset({"crashed", "down", "minority", "stopped", "terminated"})
"""States of a queue in which its numbers are outdated."""

_COLUMNS: Final = "name,vhost,state,messages"
"""The fields that are read, of about a hundred."""


def ask(gate: RabbitQueueGate, get: Get) -> Reading[GateView]:
    """Read the queue."""
    path = f"/api/queues/{quote(gate.vhost, safe='')}/{quote(gate.queue, safe='')}"
    body = get(path, {"columns": _COLUMNS})
    if isinstance(body, Unknown):
        if ": 404 " in body.reason:
            return Unknown(reason=f"{body.reason}: no queue {gate.queue} in virtual host {gate.vhost}")
        return body
    return judge(gate, body)


def judge(gate: RabbitQueueGate, body: bytes) -> Reading[GateView]:
    """The state of the gate from an answer of the API."""
    answer = json_of(body)
    if isinstance(answer, Unknown):
        return answer
    if not isinstance(answer, dict):
        return Unknown(reason="the answer is not a queue")
    state = answer.get("state")
    if state in _COUNTED_NO_MORE:
        return Unknown(reason=f"queue {gate.queue} is {state}: its numbers are those of before")
    found = number(answer.get("messages"))
    if found is None or found < 0:
        return Unknown(reason=f"the answer does not show how many messages queue {gate.queue} holds")
    is_open = found <= gate.max_messages
    limit = f"at most {shown(gate.max_messages)} allowed"
    return GateView(open=is_open, evidence=f"{shown(found)} messages, {limit}")
