"""Tasks in a real Airflow, with scheduler and triggerer: over a stand-in of the program, and real nodes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pytest

from orchestrator.airflow.attempt import Attempt, Condition
from tests.integration.killing import QUICKEST, assert_put_back, assert_restarted_once, prepare
from tests.lab.distributions import cache_folder
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements-airflow.lock"
DAGS = Path(__file__).with_name("airflow_dags.py")
TASK = "settle"
COMPONENTS = {
    "api-server": ("--host", "127.0.0.1", "--workers", "1"),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
UP_SECONDS = 600.0
STATE_SECONDS = 300.0
ENDED = {"success", "failed"}


def environment() -> Path:
    """The folder of Airflow's programs; made if it is not there yet, which takes minutes."""
    if given := os.environ.get("ORCHESTRATE_AIRFLOW"):
        return Path(given) / "bin"
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"airflow-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}-{sys.version_info.minor}"
    with (cache / "airflow.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "whole").exists():
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)  # noqa: S603  (this Python)
            install = ("-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(LOCK))
            subprocess.run([str(home / "bin/python"), *install], check=True, timeout=1800)  # noqa: S603  (as above)
            (home / "whole").touch()
    return home / "bin"


class Airflow:
    """One installation with its processes; to be entered.

    Args:
        folder: of its own: database, logs, DAGs.
        dags: by name, the operator's class and its arguments (durations in seconds).
        variables: of all its processes.
    """

    def __init__(
        self, folder: Path, dags: Mapping[str, tuple[str, Mapping[str, Any]]], variables: Mapping[str, str]
    ) -> None:
        self.folder, self.programs = folder, environment()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = free_port()
        (folder / "dags").mkdir(parents=True)
        (folder / "dags.json").write_text(json.dumps(dags))
        shutil.copy(DAGS, folder / "dags")
        url = f"http://127.0.0.1:{self._port}"
        settings = {
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "API__BASE_URL": url,
            "API__PORT": str(self._port),
            "CORE__DAGS_FOLDER": str(folder / "dags"),
            "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__FERNET_KEY": "",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": "2",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "2",
            "TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        self._environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "AIRFLOW_HOME": str(folder),
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": str(ROOT),
            "TEST_DAGS": str(folder / "dags.json"),
            **variables,
        }
        self._url, self._dags, self._token = url, tuple(dags), ""

    def __enter__(self) -> Self:
        try:
            migrate = [str(self.programs / "airflow"), "db", "migrate"]
            done = subprocess.run(  # noqa: S603  (Airflow)
                migrate,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=UP_SECONDS,
            )
            assert done.returncode == 0, done.stderr
            for name in COMPONENTS:
                self.begin(name)
            self._await("Airflow answers", self._answers, UP_SECONDS)
            self._token = self._ask("GET", "/auth/token")["access_token"]
            self._await("the DAGs are known", self._knows_dags, UP_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes.values():  # all at once first: each takes seconds to end
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for name in list(self._processes):
            self.end(name, signal.SIGTERM)

    def begin(self, component: str) -> None:
        """Start a component, in a process group of its own."""
        with (self.folder / f"{component}.log").open("ab") as log:
            self._processes[component] = subprocess.Popen(  # noqa: S603  (Airflow)
                [str(self.programs / "airflow"), component, *COMPONENTS[component]],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a component and all that it has started, as far as it is of its group."""
        process = self._processes.pop(component)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):  # it is ended for good, below
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def trigger(self, dag: str) -> Task:
        """Begin a run of a DAG; its one task."""
        run = self._ask("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"]
        return Task(self, dag, run)

    def loads(self, file: Path) -> list[str]:
        """The DAGs that Airflow itself finds in a file."""
        code = (
            "import importlib.util, sys; from airflow.sdk import DAG\n"
            "spec = importlib.util.spec_from_file_location('dag', sys.argv[1])\n"
            "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
            "print(*(one.dag_id for one in vars(module).values() if isinstance(one, DAG)))"
        )
        done = subprocess.run(  # noqa: S603  (Airflow's Python)
            [str(self.programs / "python"), "-c", code, str(file)],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1].split()

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/api/v2/version")
        except OSError:
            return False
        return True

    def _knows_dags(self) -> bool:
        known = {dag["dag_id"] for dag in self._ask("GET", "/api/v2/dags?limit=100")["dags"]}
        errors = self._ask("GET", "/api/v2/importErrors")["import_errors"]
        assert not errors, errors
        return known >= set(self._dags)

    def _await(self, what: str, seen: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not seen():
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            assert not dead, f"{dead} ended: {(self.folder / f'{dead[0]}.log').read_text()[-3000:]}"
            assert time.monotonic() < until, f"not within {seconds} s: {what}"
            time.sleep(0.3)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(  # noqa: S310  (our own server)
            self._url + path, method=method, data=None if body is None else json.dumps(body).encode()
        )
        request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  (as above)
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error


class Task:
    """The one task of a DAG's run."""

    def __init__(self, airflow: Airflow, dag: str, run: str) -> None:
        self._airflow, self._dag, self._run = airflow, dag, run
        self._path = f"/api/v2/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{TASK}"

    @property
    def instance(self) -> dict[str, Any]:
        found = self._airflow._ask("GET", self._path)
        assert isinstance(found, dict)
        return found

    @property
    def state(self) -> str:
        return str(self.instance["state"])

    def await_state(self, *states: str, seconds: float = STATE_SECONDS) -> str:
        """Wait until it is in one of these states; which."""
        until = time.monotonic() + seconds
        while (state := self.state) not in states:
            assert time.monotonic() < until, f"{self._dag}: {state}, not {states}\n{self.story()}"
            assert state not in ENDED or state in states, f"{self._dag} ended: {state}\n{self.story()}"
            time.sleep(0.3)
        return state

    def set_state(self, state: str) -> None:
        """As a person who marks it failed or succeeded."""
        self._airflow._ask("PATCH", self._path, {"new_state": state})

    def clear(self) -> None:
        """As a person who clears it, so that it runs once more."""
        body = {"dry_run": False, "task_ids": [TASK], "dag_run_id": self._run, "only_failed": False}
        path = f"/api/v2/dags/{self._dag}/clearTaskInstances"
        self._airflow._ask("POST", path, {**body, "only_running": False})

    def returned(self) -> dict[str, Any]:
        """What it has handed on to the tasks after it."""
        path = f"{self._path}/xcomEntries/return_value?deserialize=true"
        value = self._airflow._ask("GET", path)["value"]
        assert isinstance(value, dict)
        return value

    def story(self) -> str:
        """Its logs, of all tries."""
        logs = sorted((self._airflow.folder / "logs").rglob(f"*{self._dag}*/**/attempt=*"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-6000:]}" for log in logs if log.is_file())


pytestmark = [pytest.mark.part(name="airflow"), pytest.mark.airflow, pytest.mark.timeout(3600)]

STAND_IN = ROOT / "tests/fakes/stand_in_orchestrate.py"
PROGRAM = (sys.executable, "-m", "orchestrator")
SECONDS = 120.0
STATE = "postgresql+psycopg://ann:hunter2%2Fhunter2@db/state"
STORIES = {
    "done": {"state": STATE},
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
    assert stand_in.starts[0]["state"] == STATE
    _await(
        lambda: "Started, in " in task.story() and "psycopg://ann:***@db/state" in task.story(), task.story
    )
    shown = json.dumps([words, task.instance]) + task.story()
    assert ("hunter2" in shown, "rendered_fields" in task.instance) == (False, True), shown
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
