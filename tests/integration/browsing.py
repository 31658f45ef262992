"""A real browser without a window, driven over WebDriver: Debian's Chromium and its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.ports import free_port
from tests.tools import needs

LIMIT_SECONDS: Final = 120.0
_OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")


class Browser:
    """One window.

    Args:
        driver: where its driver listens.
        profile: folder of the browser's own files.
        options: further ones of the browser.
    """

    def __init__(self, driver: str, profile: Path, *options: str) -> None:
        self._at = f"{driver}/session"
        words = [*_OPTIONS, f"--user-data-dir={profile}", *options]
        chrome = {"binary": needs("chromium"), "args": words}
        asked = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"performance": "ALL"}}
        session = self._post("", capabilities={"alwaysMatch": asked})
        self._at = f"{self._at}/{session['sessionId']}"
        self._process = int(session["capabilities"]["goog:processID"])

    def open(self, address: str) -> None:
        """Go to a page."""
        self._post("/url", url=address)

    def run(self, script: str) -> Any:
        """What the body of a function returns in the page."""
        return self._post("/execute/sync", script=script, args=[])

    def run_async(self, script: str, *args: object) -> Any:
        """What the body of a function gives to its last argument."""
        return self._post("/execute/async", script=script, args=args)

    def requests(self) -> list[str]:
        """The addresses that it has asked for since the last call, those of its own pages apart."""
        logged = self._post("/se/log", type="performance")
        messages = [json.loads(one["message"])["message"] for one in logged]
        sent = [
            one["params"]["request"]["url"]
            for one in messages
            if one["method"] == "Network.requestWillBeSent"
        ]
        return [address for address in sent if not address.startswith(("chrome", "data:"))]

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """It and all processes of it stand still."""
        mine = [self._process]
        for process in mine:
            for task in Path(f"/proc/{process}/task").iterdir():
                mine += map(int, (task / "children").read_text().split())
        for process in mine:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in mine:
                os.kill(process, signal.SIGCONT)

    def command(self, name: str, **params: object) -> Any:
        """A command of the browser's own protocol."""
        return self._post("/goog/cdp/execute", cmd=name, params=params)

    @property
    def title(self) -> str:
        """Of the page, as it is now."""
        return str(self.run("return document.title"))

    @property
    def note(self) -> str:
        """What a live page says is wrong; empty if nothing is."""
        return str(
            self.run("const it = document.getElementById('live'); return it.hidden ? '' : it.textContent")
        )

    def wait(self, until: Callable[[], bool]) -> None:
        """Until that is so."""
        limit = time.monotonic() + LIMIT_SECONDS
        while not until():
            assert time.monotonic() < limit, "the page does not come so far"
            time.sleep(0.1)

    def close(self) -> None:
        """End it."""
        self._ask("DELETE", "", None)

    def _post(self, path: str, **body: object) -> Any:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._at + path, data, method=method)  # noqa: S310  (our own driver)
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:  # noqa: S310  (as above)
            return json.load(answer)["value"]


@contextmanager
def browser(folder: Path, *options: str) -> Iterator[Browser]:
    """A browser with a new profile in this folder, and with these options."""
    port = free_port()
    driver = subprocess.Popen(  # noqa: S603  (Debian's own)
        [needs("chromedriver"), f"--port={port}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None
        assert any("started successfully" in line for line in driver.stdout)
        found = Browser(f"http://127.0.0.1:{port}", folder, *options)
        try:
            yield found
        finally:
            found.close()
    finally:
        driver.kill()
        driver.communicate()
