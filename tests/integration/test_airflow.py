"""Tasks in a real Airflow, with scheduler and triggerer: over a stand-in of the program, and real nodes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.airflow.attempt import Attempt, Condition
from tests.integration.airflows import Airflow
from tests.integration.killing import QUICKEST, assert_put_back, assert_restarted_once, prepare

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.part(name="airflow"), pytest.mark.airflow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests/fakes/stand_in_orchestrate.py"
PROGRAM = (sys.executable, "-m", "orchestrator")
SECONDS = 120.0
STORIES = {
    "done": {},
    "held": {"retries": 1, "retry_delay": 1},
    "leased": {"retries": 1, "retry_delay": 1},
    "failed": {"retries": 3, "retry_delay": 1},
    "not-restored": {"retries": 3, "retry_delay": 1},
    "triggerer-killed": {},
    "worker-killed": {"retries": 1, "retry_delay": 1, "deferrable": False},
    "marked-failed": {},
    "marked-failed-in-worker": {"deferrable": False},
    "cleared": {},
    "too-long": {"execution_timeout": 5},
    "starter-killed": {"retries": 1, "retry_delay": 1},
}


class StandIn:
    """The stand-in of one DAG: what it is to do, and what it has done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def do(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def said(self, name: str) -> list[Any]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def starts(self) -> list[Any]:
        return self.said("starts")

    @property
    def runs(self) -> bool:
        return bool(self.starts) and Path(f"/proc/{self.starts[-1]['pid']}").exists()


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StandIn]:
    base = tmp_path_factory.mktemp("stand-ins")
    return {name: StandIn(base / name) for name in STORIES}


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, stand_ins: dict[str, StandIn]) -> Iterator[Airflow]:
    folder = tmp_path_factory.mktemp("airflow")
    common = {"cluster": "prod", "index": "posts-*", "poll_interval": 0.3, "folder": str(folder / "runs")}
    dags = {
        name: (
            "PostBulkIndexOperator",
            {
                **common,
                # Not as `environment`: that is the run's alone, and `stop` comes from the triggerer too.
                "program": [
                    "/usr/bin/env",
                    f"STAND_IN={stand_ins[name].folder}",
                    sys.executable,
                    str(STAND_IN),
                ],
                **arguments,
            },
        )
        for name, arguments in STORIES.items()
    }
    with Airflow(folder, dags, {}) as running:
        yield running
    for stand_in in stand_ins.values():
        if stand_in.runs:
            os.kill(stand_in.starts[-1]["pid"], signal.SIGKILL)


def _await(what: Callable[[], object], story: Callable[[], str]) -> None:
    until = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < until, f"it did not come about\n{story()}"
        time.sleep(0.1)


def test_a_deferred_task_hands_on_the_summary(airflow: Airflow, stand_ins: dict[str, StandIn]) -> None:
    stand_in = stand_ins["done"]
    task = airflow.trigger("done")
    task.await_state("deferred")
    assert stand_in.runs
    stand_in.do("summary", json.dumps({"message": "12 indices merged, 3 nodes restarted"}))
    stand_in.do("go")
    task.await_state("success")
    found = task.returned()
    assert (found["run"], found["exit_code"]) == ("20270101-0000-abcd", 0)
    assert found["message"] == "12 indices merged, 3 nodes restarted"
    words = stand_in.starts[0]["words"]
    assert words[:3] == ["post-bulk-index", "--index=posts-*", "--cluster=prod"]
    assert any(word.startswith("--reason=airflow: done.settle manual__") for word in words), words


@pytest.mark.parametrize(("name", "code"), [("held", 3), ("leased", 6)])
def test_what_passes_with_time_is_tried_again(
    airflow: Airflow, stand_ins: dict[str, StandIn], name: str, code: int
) -> None:
    stand_in = stand_ins[name]
    hold = {"predicate": "indices_not_written", "subject": "index posts-1", "evidence": "12 documents"}
    stand_in.do("exit-code", str(code))
    stand_in.do("summary", json.dumps({"holds": [hold]}))
    task = airflow.trigger(name)
    task.await_state("deferred")
    stand_in.do("go")
    _await(lambda: len(stand_in.starts) == 2 or task.state == "up_for_retry", task.story)
    stand_in.do("exit-code", "0")
    task.await_state("success")
    assert len(stand_in.starts) == 2, task.story()
    held = "held by indices_not_written (index posts-1): 12 documents"
    _await(lambda: held in task.story(), task.story)


@pytest.mark.parametrize(("name", "code"), [("failed", 4), ("not-restored", 8)])
def test_what_needs_a_person_is_not_retried(
    airflow: Airflow, stand_ins: dict[str, StandIn], name: str, code: int
) -> None:
    stand_in = stand_ins[name]
    stand_in.do("exit-code", str(code))
    stand_in.do("summary", json.dumps({"left": ["setting x"], "message": "es2 did not start"}))
    task = airflow.trigger(name)
    task.await_state("deferred")
    # Airflow fails and retries a task of itself whose deferral it hears of only when it runs again.
    time.sleep(5)
    stand_in.do("go")
    task.await_state("failed")
    assert len(stand_in.starts) == 1, "a retry would have gone on where a person is needed"
    repair = {
        4: "orchestrate resume 20270101-0000-abcd --retry-failed",
        8: "orchestrate restore 20270101-0000-abcd",
    }
    _await(lambda: repair[code] in task.story(), task.story)  # a log is written after the state
    assert "es2 did not start" in task.story()


def test_a_killed_triggerer_continues_to_watch_the_same_run(
    airflow: Airflow, stand_ins: dict[str, StandIn]
) -> None:
    stand_in = stand_ins["triggerer-killed"]
    task = airflow.trigger("triggerer-killed")
    task.await_state("deferred")
    airflow.end("triggerer", signal.SIGKILL)
    assert stand_in.runs, "the run ended with the triggerer"
    airflow.begin("triggerer")
    stand_in.do("go")
    task.await_state("success")
    assert len(stand_in.starts) == 1
    assert stand_in.said("stops") == []


def test_a_retry_after_a_killed_worker_waits_for_the_run(
    airflow: Airflow, stand_ins: dict[str, StandIn]
) -> None:
    stand_in = stand_ins["worker-killed"]
    task = airflow.trigger("worker-killed")
    _await(lambda: stand_in.starts, task.story)
    os.kill(task.instance["pid"], signal.SIGKILL)
    task.await_state("up_for_retry")
    assert stand_in.runs, "the run ended with the worker"
    task.await_state("running")
    _await(lambda: "An earlier try has started it" in task.story(), task.story)
    stand_in.do("go")
    task.await_state("success")
    assert len(stand_in.starts) == 1, "a second one was started beside the first"


@pytest.mark.parametrize("name", ["marked-failed", "marked-failed-in-worker"])
def test_a_task_marked_failed_stands_its_run_down(
    airflow: Airflow, stand_ins: dict[str, StandIn], name: str
) -> None:
    stand_in = stand_ins[name]
    task = airflow.trigger(name)
    task.await_state("deferred" if name == "marked-failed" else "running")
    _await(lambda: "run_started" in task.story(), task.story)  # whoever waits for it has seen it begin
    task.set_state("failed")
    _await(lambda: not stand_in.runs, task.story)
    assert len(stand_in.said("stops")) == 1, task.story()
    assert not (stand_in.folder / "signals").exists()
    time.sleep(5)
    assert len(stand_in.starts) == 1, "it was started once more after it was killed"
    assert task.state == "failed"


def test_a_cleared_task_waits_for_the_stand_down_and_restarts(
    airflow: Airflow, stand_ins: dict[str, StandIn]
) -> None:
    stand_in = stand_ins["cleared"]
    stand_in.do("stand-down-seconds", "15")
    task = airflow.trigger("cleared")
    task.await_state("deferred")
    _await(lambda: "run_started" in task.story(), task.story)  # as above
    task.clear()
    _await(lambda: stand_in.said("stops"), task.story)
    _await(lambda: "An earlier try has started it" in task.story() or not stand_in.runs, task.story)
    assert len(stand_in.starts) == 1, "a second one beside the one that stands down"
    _await(lambda: not stand_in.runs or len(stand_in.starts) > 1, task.story)
    stand_in.do("go")
    task.await_state("success")
    assert len(stand_in.starts) == 2
    assert len(stand_in.said("stops")) == 1


def test_a_task_over_its_time_has_its_run_stand_down(airflow: Airflow, stand_ins: dict[str, StandIn]) -> None:
    stand_in = stand_ins["too-long"]
    task = airflow.trigger("too-long")
    task.await_state("failed")
    _await(lambda: not stand_in.runs, task.story)
    assert len(stand_in.said("stops")) == 1, task.story()


def test_the_dags_of_the_docs_are_ones_to_airflow(airflow: Airflow, tmp_path: Path) -> None:
    for page in (ROOT / "docs/how-to").glob("*.md"):
        for name, text in re.findall(r"(?ms)^```python\n# dags/(\S+)\n(.*?)^```", page.read_text()):
            (tmp_path / name).write_text(text)
    files = sorted(tmp_path.iterdir())
    assert len(files) >= 2
    for file in files:
        assert airflow.loads(file) == [file.stem]


@pytest.mark.real
def test_a_killed_restart_is_restored_and_finishes_once_cleared(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    file = tmp_path / "lab.yml"
    book = tmp_path / "book.yml"
    book.write_text(json.dumps({"kind": "elasticsearch", "settle": {"consecutive": 2}}))
    file.write_text(json.dumps({**lab.cluster_document(), "playbook": str(book)}))
    arguments = {
        "cluster": str(file),
        "state": f"sqlite:///{tmp_path}/state.db",
        "started_before": "{{ dag_run.run_after.isoformat() }}",
        "program": PROGRAM,
        "poll_interval": 0.5,
        "folder": str(tmp_path / "runs"),
    }
    before = prepare(lab)
    with Airflow(tmp_path / "airflow", {"night": ("RestartOperator", arguments)}, {}) as airflow:
        task = airflow.trigger("night")
        task.await_state("deferred")
        (output,) = _outputs(tmp_path, task.story)
        _await(lambda: '"to": "starting"' in output.read_text(), task.story)
        task.set_state("failed")
        _await(lambda: Attempt(output.parent).condition() is Condition.GONE, task.story)
        summary = json.loads(output.read_text().splitlines()[-1])
        assert summary["exit_code"] == 5, output.read_text()[-3000:]
        assert_put_back(lab, before, task.story())
        task.clear()
        task.await_state("success", seconds=600)
        assert task.returned()["exit_code"] == 0
        assert_restarted_once(lab, before, task.story())


def _outputs(folder: Path, story: Callable[[], str]) -> list[Path]:
    found: list[Path] = []

    def look() -> bool:
        found[:] = folder.glob("runs/*/*/output.jsonl")
        return bool(found)

    _await(look, story)
    return found
