"""Everything that surrounds one attempt at a run, as one value. Only `before_stop` and `end` wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, Final

from orchestrator.around.annotations import MOST_IN_A_WHILE, Annotations
from orchestrator.around.metrics import Figures, Textfile
from orchestrator.around.outbox import SEND_SECONDS, Outbox, Send
from orchestrator.around.silence import Silences
from orchestrator.around.story import Message, MessageStory, PublicEvent, last_attempt, sent_already
from orchestrator.around.ways import RunContext, runs, sends
from orchestrator.config.around import Around, AroundHook, MessageTarget, On

END_SECONDS: Final = 15.0
"""What is under way when the run has ended is waited for so long in all, or as long as a hook may take."""
_LAST_WRITE_SECONDS: Final = 1.0
"""The metrics are written after that, with what was not delivered: so long is left for them at least."""
_STILL_TRUE: Final = (On.STARTED, On.FAILED)
"""Messages of a killed attempt that `resume` sends if their fate is not in the journal."""


class Beside:
    """What surrounds one attempt.

    Args:
        around: from the files of the run.
        context: what messages need of the program.
        past: the public events of earlier attempts.
        last_success: when a run of the cluster was last done; None if that is not known.
        now: the run's clock, in seconds since the epoch; `clock`: monotonic.
    """

    def __init__(
        self,
        around: Around,
        context: RunContext,
        past: Sequence[PublicEvent],
        *,
        now: Callable[[], float],
        last_success: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now, self._clock, self._news = now, clock, SimpleQueue[Mapping[str, object]]()
        ways: list[tuple[MessageTarget | AroundHook, float, Send]] = [
            (one, SEND_SECONDS, sends(one, context)) for one in around.targets
        ]
        ways += [(one, one.timeout, runs(one, context)) for one in around.hooks]
        self._end_seconds = max([END_SECONDS, *(hook.timeout + 1 for hook in around.hooks)])
        self._each: list[tuple[MessageStory | Annotations, Outbox]] = []
        known = sent_already(past)
        for one, seconds, send in ways:
            story = MessageStory(one.on, one.after)
            outbox = Outbox(one.name, send, self._news.put, seconds=seconds, clock=clock)
            self._each.append((story, outbox))
            for message in _unsent(story, one.name, past, known):
                outbox.put(message)

        if around.grafana is not None:
            regions = Annotations(around.grafana, context, past)
            outbox = Outbox(
                around.grafana.name, regions.send, self._news.put, most=MOST_IN_A_WHILE, clock=clock
            )
            self._each.append((regions, outbox))

        self._silences: Silences | None = None
        if around.alertmanager is not None:
            self._silences = Silences(
                around.alertmanager, context, self._news.put, past, now=now, clock=clock
            )

        self._metrics: Textfile | None = None
        if around.textfile is not None:
            figures = Figures(context.cluster, last_success)
            record = self._news.put
            self._metrics = Textfile(around.textfile, figures, context, record, past, now=now, clock=clock)

    def seen(self, batch: Sequence[PublicEvent]) -> None:
        """These events were committed together."""
        if self._metrics is not None:
            self._metrics.see(batch)
        if self._silences is not None:
            self._silences.see(batch)
        for story, outbox in self._each:
            _put(outbox, story.of(batch))

    def before_stop(self) -> None:
        """A wave is about to be stopped: wait a little for its silence."""
        if self._silences is not None:
            self._silences.wait()

    def waiting(self, now: float, waiting: Mapping[str, Any]) -> None:
        """What the run waits for now; holds may have lasted long enough to be reported."""
        if self._metrics is not None:
            self._metrics.wait_for(waiting)
        for story, outbox in self._each:
            _put(outbox, story.due(now))

    def news(self) -> list[Mapping[str, object]]:
        """Events for the journal, since the last call."""
        found: list[Mapping[str, object]] = []
        while True:
            try:
                found.append(self._news.get_nowait())
            except Empty:
                return found

    def end(self, text: str) -> None:
        """The run has ended, with this summary: finish what can be finished within one deadline."""
        until = self._clock() + self._end_seconds
        for story, outbox in self._each:
            _put(outbox, story.end(text))
        workers = [*([self._silences] if self._silences else []), *(outbox for _, outbox in self._each)]
        for worker in workers:
            worker.close(until)
        for worker in workers:
            worker.join()
        if self._metrics is not None:
            for line in self.news():  # they are events when the journal has them: for a file too late
                self._metrics.see([PublicEvent(at=self._now(), line={"sequence": 0, **line}, text="")])
                self._news.put(line)
            self._metrics.close(max(until, self._clock() + _LAST_WRITE_SECONDS))
            self._metrics.join()


def _put(outbox: Outbox, messages: Sequence[Message]) -> None:
    for message in messages:
        outbox.put(message)


def _unsent(
    story: MessageStory, name: str, past: Sequence[PublicEvent], known: set[tuple[str, str, int]]
) -> list[Message]:
    """What an attempt that was killed has perhaps not sent. What else it had to say is over."""
    last = {int(seen.line["sequence"]) for seen in last_attempt(past)}

    def fresh(message: Message) -> bool:
        known_by = (name, str(message.on), message.of)
        return message.on in _STILL_TRUE and message.of in last and known_by not in known

    batches = (list(batch) for _, batch in groupby(past, key=attrgetter("at")))
    return [*filter(fresh, chain.from_iterable(map(story.of, batches)))]
