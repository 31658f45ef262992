"""The metrics of a run, in a file for node_exporter's textfile collector. It is written whole or not at all.

`Figures` is a fold of the run's public events, without I/O. A killed program leaves a file that says
`running` and is not written any more: `orchestrate_updated_timestamp_seconds` shows that. Alert rules and a
dashboard for these metrics are in `configs/observability`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator import names
from orchestrator.around.story import PublicEvent, not_notified
from orchestrator.around.ways import RunContext
from orchestrator.around.worker import Worker
from orchestrator.holds import Holds
from orchestrator.untrusted import one_line
from orchestrator.whole_file import write_whole

BEAT_SECONDS: Final = 15.0
"""The file is written at least so often; Prometheus reads it about as often."""
_PAUSE_SECONDS: Final = 1.0
"""And at most so often."""

OUTCOMES: Final = ("running", *names.OUTCOMES)
NODE_PHASES: Final = (
    *("pending", "stopping", "stopped", "starting", "rejoined", "recovered", "failed", "skipped"),
)
_FOREIGN: Final = ("cluster", "run", "alert", "target")
"""Labels whose values are not words of this program."""

Sample = tuple[Mapping[str, str], float]
_Metric = tuple[str, str, list[Sample]]
"""Name, meaning and samples."""


class Figures:
    """What a run has done so far: a fold.

    Args:
        cluster: its name, a label of every sample.
        last_success: when a run of the cluster was last done; None if that is not known.

    Attributes:
        gone: its process has ended without an end of the run: time stands still since its last event.
    """

    def __init__(self, cluster: str, last_success: float | None) -> None:
        self._cluster, self._last_success = cluster, last_success
        self.gone, self._at = False, 0.0
        self._run, self._outcome = "", "running"
        self._started = self._attempt = 0.0
        self._seconds: float | None = None
        self._nodes: dict[str, str] = {}
        self._wave = self._waves = 0
        self._bytes = Counter(copied=0, reused=0)
        self._holds = Holds[None]()
        self._alerts: set[str] = set()
        self._undelivered = Counter[str]()
        self._waiting: Mapping[str, Any] = {}
        self._waiting_at = 0.0

    def see(self, seen: PublicEvent) -> None:
        """One more event."""
        line, at = seen.line, seen.at
        self._at = at
        self._holds.see(line, at, None)
        match seen.event:
            case "run_started":
                self._run, self._started, self._attempt = str(line["run"]), at, at
                self._nodes = dict.fromkeys(line["nodes"], "pending")
                self._waves = len(line["planned"])
            case "run_resumed" | "restore_begun":
                self._outcome, self._attempt, self._seconds = "running", at, None
            case "wave_started":
                self._wave = int(line["wave"]["number"])
            case "phase_entered" if line.get("node") is not None:
                self._nodes[str(line["node"])] = str(line["to"])
            case "node_recovered":
                for kind in ("reused", "copied"):
                    self._bytes[kind] += int(line.get(f"bytes_{kind}") or 0)
            case "gate_closed":
                self._alerts.update(line.get("subjects") or ())
            case "not_notified":
                self._undelivered[str(line["target"])] += 1
            case "run_finished":
                self._outcome, self._seconds, self._waiting = str(line["outcome"]), float(line["seconds"]), {}
                if self._outcome == "done":
                    self._last_success = at
            case _:
                pass

    def wait_for(self, waiting: Mapping[str, Any], now: float) -> None:
        """What the run waits for now, as in the event `waiting`; empty for nothing."""
        self._waiting, self._waiting_at = waiting, now

    def families(self, now: float) -> Iterator[_Metric]:
        """All of it."""
        if self.gone or self._seconds is not None:
            now = self._at
        seconds = now - self._attempt if self._seconds is None else self._seconds
        outcomes = {one: one == self._outcome for one in OUTCOMES}
        nodes = Counter(self._nodes.values())
        phases = {one: nodes[one] for one in NODE_PHASES}
        alerts = Counter(alert.partition("{")[0] for alert in self._alerts)
        lost = self._undelivered
        found = (
            ("run_info", "The last run of the cluster.", _by("run", {self._run: 1})),
            ("run_outcome", "1 for the outcome of the last run, or for running.", _by("outcome", outcomes)),
            ("run_nodes", "Nodes of the last run by phase.", _by("phase", phases)),
            ("run_start_timestamp_seconds", "When the last run began.", _one(self._started)),
            ("run_seconds", "Duration of the last attempt at it.", _one(seconds)),
            ("run_wave", "Number of its latest wave.", _one(self._wave)),
            ("run_waves_planned", "Waves of its plan; 0 without a plan.", _one(self._waves)),
            ("run_bytes", "Bytes of the copies that recovered, by how.", _by("how", self._bytes)),
            ("run_holds", "Predicates and gates that hold it now.", _one(len(self._holds.open))),
            ("run_held_seconds", "How long it was held in all.", _one(self._holds.seconds(now))),
            ("run_waiting_seconds", "How long it has waited, by phase and predicate.", self._waits(now)),
            ("run_alerts", "Alerts that closed a gate of it, by name.", _by("alert", alerts)),
            ("run_undelivered", "Messages, silences, files not delivered, by target.", _by("target", lost)),
            ("updated_timestamp_seconds", "When the last run last gave a sign of life.", _one(now)),
            ("last_success_timestamp_seconds", "When a run was last done.", _one(self._last_success)),
        )
        for name, meaning, samples in found:
            own: list[Sample] = [({"cluster": self._cluster, **labels}, value) for labels, value in samples]
            yield f"orchestrate_{name}", meaning, own

    def _waits(self, now: float) -> list[Sample]:
        if not self._waiting:
            return []
        seconds = float(self._waiting["seconds"]) + now - self._waiting_at
        predicates = {str(hold["predicate"]) for hold in self._waiting["holds"]} or {""}
        phase = str(self._waiting["phase"])
        return [({"phase": phase, "predicate": one}, seconds) for one in sorted(predicates)]


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [({}, value)]


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [({label: name}, value) for name, value in sorted(values.items())]


def text_of(figures: Iterable[Figures], now: float, redact: Callable[[str], str]) -> str:
    """The metrics of several clusters for Prometheus, whose format has each metric in one place.

    Secrets are removed from values of labels: in the text itself a word of the format may look like one.
    """
    meanings: dict[str, str] = {}
    samples: dict[str, list[Sample]] = {}
    for one in figures:
        for name, meaning, own in one.families(now):
            meanings[name] = meaning
            samples.setdefault(name, []).extend(own)
    return "".join(
        f"# HELP {name} {meaning}\n# TYPE {name} gauge\n{''.join(_lines(name, samples[name], redact))}"
        for name, meaning in meanings.items()
    )


def _lines(name: str, samples: Iterable[Sample], redact: Callable[[str], str]) -> Iterator[str]:
    found: dict[str, float] = {}
    for labels, value in samples:
        shown = {key: redact(text) if key in _FOREIGN else text for key, text in labels.items()}
        # Two alerts may have the same name now, and no sample may be there twice.
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in shown.items())
        found[pairs] = found.get(pairs, 0.0) + value
    for pairs, value in found.items():
        yield f"{name}{{{pairs}}} {value:.17g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Textfile(Worker):
    """Writes the metrics of a run from a thread, which may hang with the file system.

    Args:
        path: of the file.
        figures: of the run.
        context: redaction.
        record: takes events for the journal.
        past: public events of earlier attempts.
        now: the run's clock; `clock`: monotonic.
    """

    def __init__(
        self,
        path: Path,
        figures: Figures,
        context: RunContext,
        record: Callable[[Mapping[str, object]], None],
        past: Sequence[PublicEvent],
        *,
        now: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("metrics", clock)
        self._path, self._figures, self._context, self._record = path, figures, context, record
        self._now, self._last = now, 0
        self._dirty = self._failed = False
        for seen in past:
            figures.see(seen)

    def see(self, batch: Sequence[PublicEvent]) -> None:
        """These events were committed together."""
        with self._changed:
            for seen in batch:
                self._figures.see(seen)
                self._last = max(self._last, int(seen.line["sequence"]))
            self._dirty = True
            self._changed.notify()
        self._begin()

    def wait_for(self, waiting: Mapping[str, Any]) -> None:
        """What the run waits for now; the next beat writes it."""
        with self._changed:
            self._figures.wait_for(waiting, self._now())

    def _work(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._dirty or self._until is not None, timeout=BEAT_SECONDS)
                closing, self._dirty = self._until is not None, False
                text = text_of((self._figures,), self._now(), self._context.redact)
            self._write(text)
            with self._changed:
                self._changed.wait_for(lambda: self._until is not None, timeout=_PAUSE_SECONDS)

    def _late(self) -> None:
        self._fault("it was not written before the end of the run")

    def _write(self, text: str) -> None:
        try:
            # For all accounts: node_exporter has one of its own.
            write_whole(self._path, text, mode=0o644)
        except OSError as error:
            self._fault(error.strerror or type(error).__name__)
        except Exception as defect:  # noqa: BLE001  (the next one may be written; the type alone holds no secret)
            self._fault(f"a defect of the program: {type(defect).__name__}")
        else:
            self._failed = False

    def _fault(self, why: str) -> None:
        """Record a failure, once until the file can be written again."""
        if not self._failed:
            self._failed = True
            about = {"target": "textfile", "on": "metrics", "of": self._last}
            self._record({**not_notified(one_line(f"{self._path}: {why}")), **about})
