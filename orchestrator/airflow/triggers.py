"""The trigger that waits in Airflow's triggerer for a run to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from orchestrator.airflow.attempt import Attempt, Condition


class RunTrigger(BaseTrigger):
    """Fires once the start in a folder has ended, or cannot be seen from this machine.

    It stores only the folder, so a restarted triggerer continues to watch the same process. If a person kills
    the task (marks it failed, or clears it), the run stands down. The end of a triggerer does not stop it.

    Args:
        folder: the start's folder.
        poll_interval: seconds between two reads.
    """

    def __init__(self, folder: str, poll_interval: float) -> None:
        super().__init__()
        self.folder = folder
        self.poll_interval = poll_interval
        self._attempt = Attempt(Path(folder))
        self._stopping: asyncio.Future[str] | None = None  # kept, or it could be collected before it is done

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments to create it again."""
        arguments = {"folder": self.folder, "poll_interval": self.poll_interval}
        return (f"{type(self).__module__}.{type(self).__qualname__}", arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Show the run's lines in the task's log as they come, until it has ended."""
        offset = 0
        while True:
            condition = await asyncio.to_thread(self._attempt.condition)  # read before the last lines
            lines, offset = await asyncio.to_thread(self._attempt.new_lines, offset)
            for line in lines:
                self.log.info("%s", line)
            if condition is not Condition.RUNNING:
                yield TriggerEvent({"folder": self.folder, "condition": condition.value})
                return
            await asyncio.sleep(self.poll_interval)  # a triggerer watches many runs; none has its own thread

    async def on_kill(self) -> None:
        """Make the run stand down, and wait for its end as long as Airflow allows.

        That is at most `[triggerer] on_kill_timeout`, and often a second: 3.3.2 was seen to cancel this call
        as well in its next round. The request does not depend on this call, so the run stands down anyway.
        """
        self._stopping = asyncio.ensure_future(asyncio.to_thread(self._attempt.ask_to_stop))
        said = await asyncio.shield(self._stopping)
        self.log.info("The task was killed: %s", said)
        while await asyncio.to_thread(self._attempt.condition) is Condition.RUNNING:  # noqa: ASYNC110  (as above)
            await asyncio.sleep(min(self.poll_interval, 1.0))  # as above
        self.log.info("The run has ended: %s", self._attempt.ending().summary)
