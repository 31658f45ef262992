"""Servers of the tests' own on loopback: an Alertmanager, a Prometheus, and what it scrapes."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3

from tests.ports import free_port
from tests.tools import needs

WAIT_SECONDS: Final = 60.0


@dataclass(kw_only=True)
class Server:
    """A server of our own on a free port of loopback, as a context manager; `stop` ends it by its id."""

    folder: Path  # its own
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Of the API, without its path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        raise NotImplementedError

    def stop(self, *, gently: bool = False) -> None:
        """End it at once; or gently, so that it keeps what it has in memory."""
        process, self._process = self._process, None
        if process is not None:
            (process.terminate if gently else process.kill)()
            process.wait()

    def begin(self, *argv: str, until: Callable[[], bool]) -> None:
        """Start this command line, and return when that is so."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, cwd=self.folder, stdout=log, stderr=log)  # noqa: S603  (our own)
        try:
            self.wait(until)
        except BaseException:
            self.stop()
            raise

    def wait(self, until: Callable[[], bool]) -> None:
        """Return when that is so."""
        limit = time.monotonic() + WAIT_SECONDS
        while not until():
            log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            assert self._process is not None, log
            assert self._process.poll() is None, log
            assert time.monotonic() < limit, log
            time.sleep(0.1)

    def ask(self, method: str, path: str, body: object = None, **fields: str) -> Any:
        """The answer of the API; None while there is none."""
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            answer = urllib3.request(
                method,
                f"{self.url}{path}?{urlencode(fields)}",
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"},
                retries=False,
                timeout=5.0,
            )
            if answer.status == 200:
                return json.loads(answer.data or b"{}")
        return None


@dataclass(kw_only=True)
class Alertmanager(Server):
    """One Alertmanager without peers."""

    pages: str = ""  # URL of a webhook that gets each alert that fires and is not silenced, as a pager would

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        program = needs("prometheus-alertmanager")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "alertmanager.yml"
        at_once = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
        route = {"receiver": "pager", "group_by": ["..."], **at_once}  # each alert by itself
        hook = [{"url": self.pages, "send_resolved": False}] if self.pages else []
        content = {"route": route, "receivers": [{"name": "pager", "webhook_configs": hook}]}
        config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        self.begin(
            program,
            f"--config.file={config}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
            until=lambda: self._names() is not None,
        )
        return self

    def fire(self, **labels: str) -> None:
        """Let an alert of the cluster fire for an hour."""
        alert = {"labels": {"cluster": "lab", **labels}, "endsAt": _from_now(3600.0)}
        assert self.ask("POST", "/api/v2/alerts", [alert]) is not None

    def silence(self, alertname: str) -> None:
        """Silence the alerts of that name for an hour."""
        matcher = {"name": "alertname", "value": alertname, "isRegex": False, "isEqual": True}
        times = {"startsAt": _from_now(-1.0), "endsAt": _from_now(3600.0)}
        silence = {"matchers": [matcher], **times, "createdBy": "x", "comment": "x"}
        assert self.ask("POST", "/api/v2/silences", silence) is not None

    def silences(self) -> list[dict[str, Any]]:
        """All silences, with those that have expired."""
        found: list[dict[str, Any]] = self.ask("GET", "/api/v2/silences")
        return found

    def end(self, silence: str) -> None:
        """End a silence at once, as a person does."""
        assert self.ask("DELETE", f"/api/v2/silence/{silence}") is not None

    def live(self) -> list[dict[str, Any]]:
        """The silences that are not over."""
        return [one for one in self.silences() if one["status"]["state"] != "expired"]

    def await_alerts(self, *names: str) -> None:
        """Return when these alerts fire, and no others."""
        self.wait(lambda: self._names() == sorted(names))

    def _names(self) -> list[str] | None:
        alerts = self.ask("GET", "/api/v2/alerts")
        return None if alerts is None else sorted(alert["labels"]["alertname"] for alert in alerts)


class Exporter:
    """Serves a text in Prometheus's format; the text may be changed, and `more` is made for each answer."""

    def __init__(self, text: str, more: Callable[[], str] = str) -> None:
        self.text = text
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = (exporter.text + more()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name of the base)
                """The test's output is not the place."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End its thread and close its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(kw_only=True)
class Prometheus(Server):
    """One Prometheus that scrapes and evaluates its rules twice a second."""

    scraped: Mapping[str, str]  # host and port of each target, by the name of its job
    rules: Path | None = None  # a file of rules; None without one
    alerts: Alertmanager | None = None  # where it sends its alerts; None for nowhere

    def start(self) -> Self:
        """Start it, and wait until it has scraped all targets."""
        program = needs("prometheus")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        every = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "500ms")
        jobs = [{"job_name": job, **_static(address)} for job, address in self.scraped.items()]
        content: dict[str, Any] = {"global": every, "scrape_configs": jobs}
        if self.alerts is not None:
            content["alerting"] = {"alertmanagers": [_static(self.alerts.url.removeprefix("http://"))]}
        if self.rules is not None:
            content["rule_files"] = [str(self.rules)]
        config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        self.begin(
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            until=lambda: len(self.query("up == 1")) == len(self.scraped),
        )
        return self

    def query(self, text: str) -> list[dict[str, Any]]:
        """What an instant query finds; nothing while there is no answer."""
        answer = self.ask("GET", "/api/v1/query", query=text)
        found: list[dict[str, Any]] = answer["data"]["result"] if answer else []
        return found


def _static(address: str) -> dict[str, Any]:
    return {"static_configs": [{"targets": [address]}]}


def _from_now(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def moment(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def ends(one: Mapping[str, Any]) -> float:
    """When a silence ends."""
    return moment(one["endsAt"])


def begins(one: Mapping[str, Any]) -> float:
    """When a silence begins."""
    return moment(one["startsAt"])


def key_of(one: Mapping[str, Any]) -> tuple[str, str]:
    """Comment and values of the matchers: there is one of each at a time."""
    return one["comment"], " ".join(sorted(matcher["value"] for matcher in one["matchers"]))


def assert_none_is_there_twice(silences: Iterable[Mapping[str, Any]]) -> None:
    """By Alertmanager's own record, no two of a wave and a set of matchers were there at once."""
    by_key = defaultdict(list)
    for one in silences:
        by_key[key_of(one)].append((begins(one), ends(one)))
    for key, spans in by_key.items():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert end <= start, (key, spans)


_VALUE: Final = re.compile(r'orchestrate_(\w+)\{cluster="[^"]*"(?:,\w+="([^"]*)")?\} (\S+)')


def values_of(metrics: str) -> dict[str, float]:
    """The metrics of one cluster by name, such as `run_seconds` and `run_nodes{recovered}`."""
    return {
        f"{name}{{{label}}}" if label else name: float(value)
        for name, label, value in _VALUE.findall(metrics)
    }
