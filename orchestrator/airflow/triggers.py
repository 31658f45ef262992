"""The trigger that waits in Airflow's triggerer for a run to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from orchestrator.airflow.attempt import Attempt, Condition


class RunTrigger(BaseTrigger):
    """Fires once the start in a folder is gone, or cannot be seen from here.

    It holds nothing but the folder, so a triggerer that was restarted goes on watching the same process. A
    person who kills the task (marks it failed, or clears it) makes the run stand down; a triggerer that ends
    does not.

    Args:
        folder: of the start.
        poll_interval: seconds between two looks.
    """

    def __init__(self, folder: str, poll_interval: float) -> None:
        super().__init__()
        self.folder = folder
        self.poll_interval = poll_interval
        self._attempt = Attempt(Path(folder))
        self._stopping: asyncio.Future[str] | None = None  # kept, or it could be collected before it is done

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where the class is, and what makes it again."""
        arguments = {"folder": self.folder, "poll_interval": self.poll_interval}
        return (f"{type(self).__module__}.{type(self).__qualname__}", arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Show the run's lines in the task's log as they come, until it has ended."""
        offset = 0
        while True:
            condition = await asyncio.to_thread(self._attempt.condition)  # before its last lines are read
            lines, offset = await asyncio.to_thread(self._attempt.new_lines, offset)
            for line in lines:
                self.log.info("%s", line)
            if condition is not Condition.RUNNING:
                yield TriggerEvent({"folder": self.folder, "condition": condition.value})
                return
            await asyncio.sleep(self.poll_interval)  # a triggerer watches many: none has a thread of its own

    async def on_kill(self) -> None:
        """Have the run stand down, and wait for its end for as long as Airflow lets us.

        That is `[triggerer] on_kill_timeout` at most, and often a second: 3.3.2 was seen to cancel this as
        well in its next round. So the request does not hang on it, and the run stands down all the same.
        """
        self._stopping = asyncio.ensure_future(asyncio.to_thread(self._attempt.ask_to_stop))
        said = await asyncio.shield(self._stopping)
        self.log.info("The task was killed: %s", said)
        while await asyncio.to_thread(self._attempt.condition) is Condition.RUNNING:  # noqa: ASYNC110  (as above)
            await asyncio.sleep(min(self.poll_interval, 1.0))  # as above
        self.log.info("The run has ended: %s", self._attempt.ending().summary)
