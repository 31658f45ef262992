"""Servers of the tests' own on loopback, and an Alertmanager among them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from tests.ports import free_port
from tests.tools import needs

WAIT_SECONDS: Final = 60.0


@dataclass(kw_only=True)
class Server:
    """A server of our own on a free port of loopback; `stop` ends it by its id.

    Attributes:
        folder: its own.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the API, without its path."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End it at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
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

    def start(self) -> Alertmanager:
        """Start it, and wait until it answers."""
        program = needs("prometheus-alertmanager")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "alertmanager.yml"
        content = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}
        config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        self.begin(
            program,
            f"--config.file={config}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
            until=lambda: self._names() == [],
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

    def live(self) -> list[dict[str, Any]]:
        """The silences that are not over."""
        return [one for one in self.silences() if one["status"]["state"] != "expired"]

    def await_alerts(self, *names: str) -> None:
        """Return when these alerts fire, and no others."""
        self.wait(lambda: self._names() == sorted(names))

    def _names(self) -> list[str] | None:
        alerts = self.ask("GET", "/api/v2/alerts")
        return None if alerts is None else sorted(alert["labels"]["alertname"] for alert in alerts)


def _from_now(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
