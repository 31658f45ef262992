"""The output of a rehearsal in addition to the run's: mishaps as they happen, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import Instant, Seconds
from orchestrator.ports import Reporter
from orchestrator.view.units import counted, duration, listed

News = Callable[[], Sequence[tuple[Instant, str]]]
"""The mishaps since the last call: time and text."""


class Narrator:
    """A `Reporter` that adds the mishaps of a rehearsal to the output of another reporter.

    Args:
        run: reports the run.
        news: the mishaps since the last call.
        tell: writes one mishap.
        end: called before the end of the run is reported.
    """

    def __init__(
        self,
        run: Reporter,
        news: News,
        tell: Callable[[Instant, str], None],
        end: Callable[[], None],
    ) -> None:
        self._run, self._news, self._tell, self._end = run, news, tell, end

    def _catch_up(self) -> None:
        for at, words in self._news():
            self._tell(at, words)

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        self._catch_up()
        self._run.events(records)

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made."""
        self._catch_up()
        self._run.waiting(state, decision)

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        self._catch_up()
        self._end()
        self._run.finished(state, outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The result of a rehearsal.

    Attributes:
        seed: the same seed on the same cluster gives the same rehearsal.
        mishaps: all mishaps, in order.
        kills: how often the program was killed and resumed.
        simulated: seconds of simulated time; `took`: seconds of real time.
        not_as_found: settings that differ from before the run.
        down: nodes that do not run.
        against_rules: actions of the run against the program's rules, of which some are disabled.
    """

    seed: int
    mishaps: tuple[str, ...]
    kills: int
    simulated: Seconds
    took: Seconds
    not_as_found: tuple[str, ...]
    down: tuple[str, ...]
    against_rules: tuple[str, ...] = ()


def rehearsed_object(end: Rehearsed) -> dict[str, object]:
    """The result as a line of `--output json`."""
    return {
        "event": "rehearsed",
        "seed": end.seed,
        "mishaps": list(end.mishaps),
        "kills": end.kills,
        "simulated_seconds": round(end.simulated, 3),
        "seconds": round(end.took, 3),
        "settings_not_as_found": list(end.not_as_found),
        "nodes_down": list(end.down),
        "against_rules": list(end.against_rules),
    }


def rehearsed_lines(end: Rehearsed) -> list[str]:
    """The result for people."""
    times = counted(len(end.mishaps), "thing")
    killed = f", and the program was killed {counted(end.kills, 'time')}" if end.kills else ""
    wrong = f"{times} went wrong{killed}" if end.mishaps or end.kills else "nothing went wrong"
    took = f"{duration(end.simulated)} of a simulated cluster in {duration(end.took)}"
    against = "  against the rules, of which some are switched off (--disable-predicate):"
    return [
        f"rehearsed, seed {end.seed}: {took}; {wrong}",
        f"  settings: {'as found' if not end.not_as_found else 'NOT as found'}",
        *(f"    {each}" for each in end.not_as_found),
        f"  nodes down: {listed(end.down) if end.down else 'none'}",
        *([against] if end.against_rules else ()),
        *(f"    {each}" for each in end.against_rules),
    ]
