"""A real Prometheus on loopback, and an exporter with one gauge in a thread of the test."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import urllib3

from tests.ports import free_port
from tests.tools import needs

GAUGE: Final = "lab_capacity"
WAIT_SECONDS: Final = 60.0


class Exporter:
    """Tells one gauge, `lab_capacity`, in Prometheus's text format."""

    def __init__(self, value: float) -> None:
        self.value = value
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f"# TYPE {GAUGE} gauge\n{GAUGE} {exporter.value}\n".encode()
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
class Prometheus:
    """One server that scrapes the exporter twice a second; `stop` ends it by its id.

    Attributes:
        folder: its own.
        exporter: what it scrapes.
    """

    folder: Path
    exporter: Exporter
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the API, without its path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Prometheus:
        """Start it, and wait until it shows the gauge."""
        program = needs("prometheus")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        content = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [
                {"job_name": "lab", "static_configs": [{"targets": [self.exporter.address]}]},
            ],
        }
        config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  (a server of our own)
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        try:
            self.await_gauge(self.exporter.value)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def set(self, value: float) -> None:
        """Let the exporter tell another value, and return when the server shows it."""
        self.exporter.value = value
        self.await_gauge(value)

    def await_gauge(self, value: float) -> None:
        """Return when the server shows this value."""
        limit = time.monotonic() + WAIT_SECONDS
        while self._shown() != value:
            log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            assert self._process is not None, log
            assert self._process.poll() is None, log
            assert time.monotonic() < limit, log
            time.sleep(0.1)

    def _shown(self) -> float | None:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            answer = urllib3.request(
                "GET", f"{self.url}/api/v1/query", fields={"query": GAUGE}, retries=False, timeout=5.0
            )
            if answer.status == 200:
                samples = json.loads(answer.data)["data"]["result"]
                return float(samples[0]["value"][1]) if samples else None
        return None
