"""Gates in simulated runs: two of them, and what closes them in runs left to chance."""

from __future__ import annotations

from typing import Final

from orchestrator.model.gate import CommandGate, HttpAccess, RabbitQueueGate

QUEUE: Final = RabbitQueueGate(
    name="rabbitmq_queue ingest", at=HttpAccess(url="http://mq:15672"), queue="ingest", max_messages=100
)
SCRIPT: Final = CommandGate(name="command ok-to-continue.sh", run="./ok-to-continue.sh", folder="/etc/x")
