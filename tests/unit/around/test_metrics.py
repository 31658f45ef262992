"""Metrics of a run: a fold of its events, and a file that is whole at any moment."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.around import metrics
from orchestrator.around.metrics import NODE_PHASES, OUTCOMES, Figures, Textfile, text_of
from orchestrator.around.story import PublicEvent
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.redact import Redactor
from orchestrator.whole_file import write_whole
from tests.fakes.around import run_context

NODES: Final = ["es1", "es2", "es3"]


def seen(at: float, event: str, **fields: Any) -> PublicEvent:
    line = {"ts": "then", "run": "r1", "sequence": int(at), "event": event, **fields}
    return PublicEvent(at=1000.0 + at, line=line, text=event)


def node(at: float, name: str, to: str) -> PublicEvent:
    return seen(at, "phase_entered", node=name, to=to)


RUN: Final = seen(0, "run_started", nodes=NODES, planned=[["es1"], ["es2"], ["es3"]])
WAVE: Final = seen(10, "wave_started", wave={"number": 2, "nodes": ["es1"]})
HOLD: Final = seen(20, "hold", predicate="p", subject="s")
CLOSED: Final = seen(30, "gate_closed", gate="queue")
OPENED: Final = seen(50, "gate_opened", gate="queue")
FREE: Final = seen(60, "holds_cleared", but_gates=False)
BUT_GATES: Final = seen(40, "holds_cleared", but_gates=True)


def samples(text: str) -> dict[str, float]:
    """Name and labels, without the cluster and the prefix, to value."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            short = re.sub(r'cluster="prod",?', "", name).replace("{}", "").removeprefix("orchestrate_")
            found[short] = float(value)
    return found


def test_secrets_leave_the_form_of_the_text() -> None:
    """Whatever looks like one, and two alerts that look the same then."""
    redact = Redactor(["orchestrate", "running", "gauge"])
    made = Figures("prod gauge", None)
    alerts = ["token=abcdef", "token=ghijkl", "-----BEGIN PRIVATE KEY-----", "password="]
    for one in (RUN, seen(30, "gate_closed", gate="g", subjects=alerts)):
        made.see(one)
    lines = text_of((made,), 1000.0, redact).splitlines()
    form = re.compile(
        r"# HELP orchestrate_\w+ .*|# TYPE orchestrate_\w+ gauge|orchestrate_\w+\{(\w+=\"[^\"]*\",?)+\} \S+"
    )
    assert [line for line in lines if not form.fullmatch(line)] == []
    assert [line.partition("{")[2] for line in lines if line.startswith("orchestrate_run_alerts{")] == [
        'cluster="prod [redacted]",alert="[redacted]"} 1',
        'cluster="prod [redacted]",alert="password="} 1',
        'cluster="prod [redacted]",alert="token=[redacted]"} 2',
    ]
    assert 'orchestrate_run_outcome{cluster="prod [redacted]",outcome="running"} 1' in lines


def figures(*events: PublicEvent, now: float = 100.0, last: float | None = None) -> dict[str, float]:
    made = Figures("prod", last)
    for one in events:
        made.see(one)
    return samples(text_of((made,), 1000.0 + now, str))


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([RUN], {'run_outcome{outcome="running"}': 1, 'run_nodes{phase="pending"}': 3, "run_seconds": 100}),
        ([RUN], {"run_start_timestamp_seconds": 1000, "run_waves_planned": 3, 'run_info{run="r1"}': 1}),
        ([RUN], {"updated_timestamp_seconds": 1100, "run_wave": 0, "run_holds": 0, "run_held_seconds": 0}),
        ([RUN, WAVE, node(11, "es1", "stopping")],
         {"run_wave": 2, 'run_nodes{phase="stopping"}': 1, 'run_nodes{phase="pending"}': 2}),
        ([RUN, seen(5, "node_recovered", node="es1", bytes_reused=5, bytes_copied=None),
          seen(6, "node_recovered", node="es2", bytes_reused=2**53, bytes_copied=7)],
         {'run_bytes{how="reused"}': 2**53 + 5, 'run_bytes{how="copied"}': 7}),
        ([RUN, HOLD], {"run_holds": 1, "run_held_seconds": 80}),
        ([RUN, HOLD, FREE], {"run_holds": 0, "run_held_seconds": 40}),
        ([RUN, HOLD, CLOSED, BUT_GATES], {"run_holds": 1, "run_held_seconds": 80}),
        ([RUN, HOLD, CLOSED, BUT_GATES, OPENED], {"run_holds": 0, "run_held_seconds": 30}),
        ([RUN, HOLD, seen(45, "phase_entered", node=None, to="withheld")], {"run_held_seconds": 25}),
        ([RUN, HOLD, seen(50, "cluster_sampled"), seen(90, "run_resumed")], {"run_held_seconds": 30}),
        ([RUN, seen(30, "gate_closed", gate="alerts", subjects=['Disk{host="a"}', 'Disk{host="b"}']),
          seen(31, "gate_closed", gate="alerts", subjects=['Disk{host="a"}', "Lag"])],
         {'run_alerts{alert="Disk"}': 2, 'run_alerts{alert="Lag"}': 1, "run_holds": 1}),
        ([RUN, seen(30, "not_notified", target="pager", on="held"),
          seen(31, "not_notified", target="pager", on="done")], {'run_undelivered{target="pager"}': 2}),
        ([RUN, seen(90, "run_finished", outcome="done", seconds=89.5)],
         {'run_outcome{outcome="done"}': 1, 'run_outcome{outcome="running"}': 0, "run_seconds": 89.5,
          "last_success_timestamp_seconds": 1090, "updated_timestamp_seconds": 1090}),
        ([RUN, seen(90, "run_finished", outcome="paused", seconds=1.0), seen(95, "run_resumed")],
         {'run_outcome{outcome="running"}': 1, "run_seconds": 5, "run_start_timestamp_seconds": 1000}),
    ],
)  # fmt: skip
def test_the_figures_of_a_run(events: list[PublicEvent], wanted: Mapping[str, float]) -> None:
    found = figures(*events)
    assert {key: found[key] for key in wanted} == pytest.approx(dict(wanted))


def test_time_stands_still_for_a_run_that_is_gone() -> None:
    made = Figures("prod", None)
    for one in (RUN, HOLD):
        made.see(one)
    made.gone = True
    found = samples(text_of((made,), 9999.0, str))
    wanted = {"updated_timestamp_seconds": 1020, "run_seconds": 20, "run_held_seconds": 0}
    assert wanted.items() <= found.items()


def test_the_last_success_stays_while_others_fail() -> None:
    failed = seen(90, "run_finished", outcome="failed", seconds=1.0)
    assert "last_success_timestamp_seconds" not in figures(RUN, failed)
    assert figures(RUN, failed, last=77.0)["last_success_timestamp_seconds"] == 77


def test_what_is_waited_for_is_of_few_names() -> None:
    made = Figures("prod", None)
    made.see(RUN)
    made.wait_for(
        {"phase": "gated", "seconds": 3.0, "holds": [{"predicate": "p"}, {"predicate": "p"}]}, 1000.0
    )
    assert samples(text_of((made,), 1007.0, str))['run_waiting_seconds{phase="gated",predicate="p"}'] == 10
    made.wait_for({"phase": "down", "seconds": 3.0, "holds": []}, 1000.0)
    assert samples(text_of((made,), 1000.0, str))['run_waiting_seconds{phase="down",predicate=""}'] == 3
    made.wait_for({}, 1000.0)
    assert "run_waiting_seconds{" not in text_of((made,), 1000.0, str)


def test_the_names_are_those_of_the_program() -> None:
    assert set(OUTCOMES) == {"running", *(outcome.value for outcome in Outcome)}
    assert set(NODE_PHASES) == {phase.value for phase in NodePhase}


def test_a_name_of_a_cluster_cannot_break_the_format() -> None:
    made = Figures('a"} 1\nx{b="\\', None)
    assert r'{cluster="a\"} 1\nx{b=\"\\",run=""}' in text_of((made,), 0.0, str)


def test_each_metric_of_several_clusters_is_in_one_place() -> None:
    text = text_of((Figures("a", 1.0), Figures("b", None)), 0.0, str)
    assert text.count("# TYPE orchestrate_run_info gauge") == 1
    (place,) = [part for part in text.split("# HELP ") if part.startswith("orchestrate_run_info ")]
    assert [line for line in place.splitlines() if line.startswith("orchestrate")] == [
        "orchestrate_run_info The last run of the cluster.",
        'orchestrate_run_info{cluster="a",run=""} 1',
        'orchestrate_run_info{cluster="b",run=""} 1',
    ]


def test_the_file_is_replaced_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "o.prom"
    path.write_text("old")
    with path.open() as reader:
        write_whole(path, "new", mode=0o644)
        assert reader.read() == "old", "who reads the old one has all of it"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["o.prom"]  # noqa: PTH208  (hidden files too)


class Written:
    """A textfile with what it recorded."""

    def __init__(self, path: Path) -> None:
        self.recorded: list[Mapping[str, Any]] = []
        figures = Figures("prod", None)
        self.file = Textfile(path, figures, run_context(), self.recorded.append, [], now=lambda: 1100.0)

    def end(self) -> None:
        self.file.close(time.monotonic() + 60)
        self.file.join()


def test_the_end_is_written(tmp_path: Path) -> None:
    written = Written(tmp_path / "o.prom")
    written.file.see([RUN])
    written.file.see([seen(90, "run_finished", outcome="done", seconds=90.0)])
    written.end()
    assert samples((tmp_path / "o.prom").read_text())['run_outcome{outcome="done"}'] == 1
    assert stat.S_IMODE((tmp_path / "o.prom").stat().st_mode) == 0o644, "node_exporter has another account"
    assert written.recorded == []


def test_a_folder_that_is_gone_is_recorded_once(tmp_path: Path) -> None:
    written = Written(tmp_path / "gone" / "o.prom")
    written.file.see([RUN])
    written.file.see([WAVE])
    written.end()
    (lost,) = written.recorded
    assert (lost["event"], lost["target"], lost["on"]) == ("not_notified", "textfile", "metrics")
    assert "No such file" in lost["why"]


def test_a_defect_of_one_write_does_not_end_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it printed amid the run."""
    failed: list[str] = []

    def writing(path: Path, text: str, *, mode: int) -> None:
        if not failed:
            failed.append(text)
            written.file.see([WAVE])
            raise ValueError("embedded null byte")
        write_whole(path, text, mode=mode)

    monkeypatch.setattr(metrics, "write_whole", writing)
    written = Written(tmp_path / "o.prom")
    written.file.see([RUN])
    written.end()
    assert [lost["why"].rpartition(": ")[2] for lost in written.recorded] == ["ValueError"]
    assert samples((tmp_path / "o.prom").read_text())["run_wave"] == 2
