"""A small real service for `manager: command`: a shell script that starts and stops a sleeping process."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model.host import Manager
from orchestrator.model.host_settings import ServiceSettings
from tests.lab import nodectl

_SCRIPT = """#!/bin/sh
pid={folder}/$2.pid
case $1 in
start) [ ! -f {folder}/broken ] || {{ echo "disk full, password=hunter22"; exit 7; }}
       echo begun >>{folder}/$2.starts; sleep $(cat {folder}/start_seconds)
       setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >$pid; echo $! >>{folder}/$2.processes
       echo "started $2"; [ ! -f {folder}/stays ] || wait ;;
stop)  echo begun >>{folder}/$2.stops; n=0
       while [ $n -lt "$(cat {folder}/stop_seconds)" ]; do sleep 1; n=$((n + 1)); done
       kill $(cat $pid) && rm $pid; echo ended >>{folder}/$2.stops ;;
status) [ -f $pid ] && kill -0 $(cat $pid) 2>/dev/null ;;
esac
"""


@dataclass(kw_only=True)
class ScriptService:
    """Its folder holds the pid files; `end` kills what still runs."""

    folder: Path

    def install(self, *, start_takes: float = 0) -> ScriptService:
        self.folder.mkdir(parents=True, exist_ok=True)
        script = self.folder / "service"
        script.write_text(_SCRIPT.format(folder=self.folder))
        script.chmod(0o755)
        self.stop_takes(0)
        self.start_takes(start_takes)
        return self

    def start_takes(self, seconds: float) -> None:
        """So long, the service is down, and a second start would not notice the first."""
        (self.folder / "start_seconds").write_text(str(seconds))

    def stays(self) -> None:
        """Let its start command go on for as long as the process does."""
        (self.folder / "stays").touch()

    def starts(self, node: str) -> int:
        """How often the start command was run."""
        file = self.folder / f"{node}.starts"
        return len(file.read_text().split()) if file.exists() else 0

    def processes(self, node: str) -> list[int]:
        """Every process that was started and lives."""
        file = self.folder / f"{node}.processes"
        pids = [int(pid) for pid in file.read_text().split()] if file.exists() else []
        return [pid for pid in pids if nodectl.start_time(pid) is not None]

    def stop_takes(self, seconds: int) -> None:
        """So long a stop takes, also one that is under way: 0 ends it."""
        (self.folder / "stop_seconds").write_text(str(seconds))

    def breaks(self) -> None:
        (self.folder / "broken").touch()

    def settings(self) -> ServiceSettings:
        script = self.folder / "service"
        return ServiceSettings(
            manager=Manager.COMMAND,
            stop=f"{script} stop {{node}}",
            start=f"{script} start {{node}}",
            status=f"{script} status {{node}}",
        )

    def stops(self, node: str) -> list[str]:
        file = self.folder / f"{node}.stops"
        return file.read_text().split() if file.exists() else []

    def pid(self, node: str) -> int | None:
        file = self.folder / f"{node}.pid"
        return int(file.read_text()) if file.exists() else None

    def forget(self, node: str) -> None:
        """Let its status say that it is down."""
        pid = self.pid(node)
        (self.folder / f"{node}.pid").unlink()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        for file in self.folder.glob("*.processes"):
            for pid in self.processes(file.stem):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
