"""What surrounds an attempt: it gets the public events of the run, and the journal gets what became of it.

It is beside the run: an error of it is a warning, and the run goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from orchestrator.around.beside import Beside
from orchestrator.around.story import READ, PublicEvent
from orchestrator.around.ways import RunContext, require_usable
from orchestrator.config.around import Around
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError, OrchestratorError
from orchestrator.model.encoding import public_record
from orchestrator.model.event import Event, NotNotified, Record
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind, Policy
from orchestrator.runs.connection import Connection
from orchestrator.runtime.codec import decode_event
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import RunEntry
from orchestrator.view.feed import Feed
from orchestrator.view.progress import wait_of
from orchestrator.view.reporters import waiting_object
from orchestrator.view.summary import headline, summary, summary_lines
from orchestrator.view.text import counted


def surrounded(connection: Connection, policy: Policy, run: str, past: Sequence[Record]) -> Surrounded | None:
    """What surrounds an attempt, from the files as they are now; None if nothing does.

    Args:
        connection: its cluster.
        policy: of the run.
        run: its id.
        past: records of earlier attempts.
    """
    try:
        found = connection.ports.around(policy.playbook)
    except OrchestratorError as error:
        connection.process.warn(f"no messages are sent: {error}")
        return None
    if found is None:
        return None
    around, context = found
    context = replace(context, cluster=connection.ports.name, run=run)
    return Surrounded(connection, around, context, kind=policy.kind, past=past)


def last_success(runs: Iterable[RunEntry]) -> float | None:
    """When one of them was last done, in seconds since the epoch; None if none was."""
    return max((run.ended for run in runs if run.outcome is Outcome.DONE and run.ended), default=None)


def _last_success(connection: Connection) -> float | None:
    """The same of the cluster of a run, by its state."""
    try:
        with connection.state(DatabaseUse.READ) as store:
            return last_success(store.runs(cluster=connection.ports.name))
    except JournalError:
        return None


def require_surroundings(connection: Connection, playbook: str) -> None:
    """See that what surrounds a run can be used, before it begins.

    Raises:
        OrchestratorError: a secret is missing, or this installation cannot send a message.
    """
    found = connection.ports.around(playbook)
    if found is not None:
        require_usable(*found)


class Surrounded:
    """A `Reporter` and `Surroundings`.

    Args:
        connection: its cluster.
        around: from its files.
        context: what messages need of the program.
        kind: kind of cluster, which has its own words.
        past: records of earlier attempts.
    """

    def __init__(
        self,
        connection: Connection,
        around: Around,
        context: RunContext,
        *,
        kind: Kind,
        past: Sequence[Record],
    ) -> None:
        self._clock, self._warn = connection.process.clock, connection.process.warn
        self._feed = Feed(kind, past)
        self._lost: list[NotNotified] = []
        self._beside: Beside | None = None

        def begin() -> None:
            last = _last_success(connection) if around.textfile else None
            now, seen = self._clock.now, self._seen(past)
            self._beside = Beside(around, context, seen, now=now, last_success=last)

        self._safely(begin)

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        self._feed.add(records)
        self._with(lambda beside: beside.seen(self._seen(records)))

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made."""
        now = self._clock.now()
        wait = wait_of(state, decision, now)
        said = waiting_object(state, wait, now) if wait is not None else {}
        self._with(lambda beside: beside.waiting(now, said))

    def finished(self, _state: RunState, _outcome: Outcome) -> None:
        """The run has ended. What was not delivered is named once more."""
        if self._lost:
            last = {lost.target: lost.why for lost in self._lost}
            names = "; ".join(f"{target}: {why}" for target, why in last.items())
            self._warn(f"{counted(len(self._lost), 'message')} not delivered to {names}")

    def news(self) -> Sequence[Event]:
        """Events about messages, for the journal."""
        found: list[Event] = []
        self._with(lambda beside: found.extend(decode_event(line) for line in beside.news()))
        self._lost += [event for event in found if isinstance(event, NotNotified)]
        return found

    def before_stop(self) -> None:
        """Wait a little for the silence of the wave."""
        self._with(lambda beside: beside.before_stop())

    def ended(self, state: RunState) -> None:
        """Send the message of the end, and wait for what is under way, within one deadline."""
        said = ""
        if state.outcome is not None:
            end = summary(state, state.outcome, self._feed.events, self._clock.now())
            # Templates name the cluster themselves, as the first line does.
            said = "\n".join([headline(end), *summary_lines(end)[1:]])
        self._with(lambda beside: beside.end(said))

    def _seen(self, records: Sequence[Record]) -> list[PublicEvent]:
        """The public events that are read: encoding all would delay the resume of a long run by a second."""
        return [
            PublicEvent(at=record.at, line=public_record(record), text=self._feed.sentence(record.event))
            for record in records
            if record.event.event in READ
        ]

    def _with(self, work: Callable[[Beside], None]) -> None:
        beside = self._beside
        if beside is not None:
            self._safely(lambda: work(beside))

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as defect:  # noqa: BLE001  (what surrounds a run must not end it)
            self._beside = None
            self._warn(f"messages about the run end here: a defect of the program: {defect!r}")
