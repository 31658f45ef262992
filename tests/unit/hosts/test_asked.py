"""Stops and starts in the foreground: none is lost, and none counts as begun that was not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.hosts.connection import CommandResult, Ended, Job, Unreachable
from orchestrator.hosts.outcomes import AskedJobs
from orchestrator.hosts.services import ServiceVerb
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds

ES1 = NodeName("es1")


class Running:
    """A job that has not ended."""

    def __init__(self, end: Ended | None = None) -> None:
        self.end = end

    def poll(self) -> Ended | None:
        return self.end

    def wait(self, _: Seconds) -> Ended | None:
        return self.end

    def output(self) -> str:
        return ""

    def close(self) -> None:
        return None


def jobs() -> AskedJobs:
    return AskedJobs(lambda: None, lambda *_: None)


def test_a_start_whose_sending_raised_does_not_count_as_begun() -> None:
    asked, sent = jobs(), Running()

    def broken(_: Callable[[], None]) -> Job | Unreachable:
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError):
        asked.launch(ES1, ServiceVerb.START, broken)
    assert asked.launch(ES1, ServiceVerb.START, lambda _: sent) is sent


def test_a_start_behind_a_stop_that_has_just_ended_is_sent() -> None:
    asked, started = jobs(), Running()
    sent: list[str] = []

    def start(_: Callable[[], None]) -> Job | Unreachable:
        sent.append("start")
        return started

    def quick_stop(ended: Callable[[], None]) -> Job | Unreachable:
        ended()  # before the caller has the job
        assert asked.launch(ES1, ServiceVerb.START, start) is started
        return Running(CommandResult(exit=0, stdout=""))

    asked.launch(ES1, ServiceVerb.STOP, quick_stop)
    assert sent == ["start"]
