"""A stand-in for `orchestrate`: the command line, JSON lines and exit codes of the contract, and no cluster.

What it does stands in the folder `$STAND_IN`: each start is a line of `starts`; a run lasts until the file
`go` is there; it ends with the exit code in `exit-code` (0 without one) and the JSON object in `summary`.
`stop RUN` leaves the file `stop`, which a run heeds as it heeds SIGTERM: it stands down, takes the file away
and ends with 5.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

RUN = "20270101-0000-abcd"
OUTCOMES = {0: "done", 3: "held", 4: "failed", 5: "interrupted", 6: "refused", 8: "not_restored", 9: "paused"}
FOLDER = Path(os.environ["STAND_IN"])


def say(event: str, run: str | None, **payload: Any) -> None:
    line = {"ts": "2027-01-01T00:00:00Z", "run": run, "event": event, **payload}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def read(name: str, default: str) -> str:
    path = FOLDER / name
    return path.read_text() if path.exists() else default


def note(name: str, text: str) -> None:
    with (FOLDER / name).open("a") as stream:
        stream.write(text + "\n")


def run() -> int:
    told: list[str] = []

    def heard(number: int, _frame: FrameType | None) -> None:
        told.append(signal.Signals(number).name)
        note("signals", told[-1])

    signal.signal(signal.SIGTERM, heard)
    state = os.environ.get("ORCHESTRATE_STATE", "")
    begun = {"pid": os.getpid(), "words": sys.argv[1:], "group": os.getpgrp(), "state": state}
    note("starts", json.dumps(begun))
    if not (FOLDER / "no-run-yet").exists():
        say("run_started", RUN, cluster="prod")
    until = time.monotonic() + 120
    while not (FOLDER / "go").exists() and time.monotonic() < until:
        if told or (FOLDER / "stop").exists():
            time.sleep(float(read("stand-down-seconds", "0.2")))
            (FOLDER / "stop").unlink(missing_ok=True)  # it was for this run, and not for the next one
            say("summary", RUN, outcome="interrupted", exit_code=5, holds=[], left=[], message="stood down")
            return 5
        time.sleep(0.02)
    code = int(read("exit-code", "0"))
    rest = {"holds": [], "left": [], "message": "", **json.loads(read("summary", "{}"))}
    say("summary", RUN, outcome=OUTCOMES.get(code, "refused"), exit_code=code, **rest)
    return code


def stop() -> int:
    note("stops", json.dumps({"words": sys.argv[1:], "state": os.environ.get("ORCHESTRATE_STATE", "")}))
    if (FOLDER / "stop-fails").exists():
        sys.stderr.write("orchestrate: the state cannot be read\n")
        return 2
    (FOLDER / "stop").touch()
    say("summary", RUN, outcome="done", exit_code=0)
    return 0


if __name__ == "__main__":
    sys.exit(stop() if sys.argv[1] == "stop" else run())
