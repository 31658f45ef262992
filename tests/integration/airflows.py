"""A real Airflow for tests: its API server, scheduler, DAG processor and triggerer, on loopback.

It lives in an environment of its own, made once from `requirements-airflow.lock` and kept in the lab's cache;
`ORCHESTRATE_AIRFLOW` names another one to try instead, by its folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tests.lab.distributions import cache_folder
from tests.ports import free_port

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
