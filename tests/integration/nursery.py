"""An interpreter that has the program loaded and forks a process of it for each order.

Loading the program takes a second and more of a processor, and a chain of kills needs hundreds of processes.
Each is a process of its own all the same: with its own number, memory, files, environment and death.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

DOOMED = Path(__file__).with_name("doomed.py")
BESIDE = {"PYTHONPATH": str(DOOMED.parents[2])}
"""For a process to be of the program beside these tests: what is installed may be another one."""


class Nursery:
    """Runs `doomed.py` again and again; see its `serve`.

    Args:
        folder: for what the processes say.
    """

    def __init__(self, folder: Path) -> None:
        self._out = folder / "said"
        self._process = subprocess.Popen(  # noqa: S603  (the program under test)
            [sys.executable, str(DOOMED), "--serve"],
            env={**os.environ, **BESIDE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
    ) -> tuple[int, str]:
        """Run the program to its end or its death; its exit code (-9: killed) and what it said.

        Raises:
            TimeoutExpired: it took longer than so many seconds; it and this nursery are ended.
        """
        order = {"words": words, "environment": dict(environment), "folder": str(folder)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**order, "out": str(self._out)}) + "\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            if not ready.select(seconds):
                self.close()
                raise subprocess.TimeoutExpired(list(words), seconds, self._out.read_bytes())
        return int(self._process.stdout.readline()), self._out.read_text()

    def close(self) -> None:
        """End it and what it may have forked."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
