"""Writes its own process identity to a file, then replaces itself with the program to start.

`python -m orchestrator.airflow.launch PROCESS_FILE LOCK_FD PROGRAM ARGUMENT…` returns at once and leaves the
program running in its own session, detached from its parent. A process keeps its id and start time when it
executes another program. So the file identifies the program before it begins, and the program never runs
without being identifiable.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator.runtime.identity import current_process, host_name


def launch(process_file: Path, lock: int, program: list[str]) -> None:
    """Start a process that writes its identity, releases the starter's lock and executes the program.

    Args:
        process_file: the identity file, written in one step.
        lock: inherited descriptor that makes a second starter wait; closed when the program begins.
        program: the program and its arguments.

    Raises:
        OSError: in the new process: the file cannot be written, or the program does not exist.
    """
    if os.fork():
        return
    os.setsid()
    written = process_file.with_name(process_file.name + ".new")
    output = os.fstat(sys.stdout.fileno()).st_ino
    written.write_text(f"{current_process()}\n{host_name()}\n{output}\n", encoding="utf-8")
    written.rename(process_file)
    os.set_inheritable(lock, False)
    os.execvp(program[0], program)  # noqa: S606  (the program that the DAG names; no shell)


if __name__ == "__main__":
    try:
        launch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    except OSError as error:
        sys.exit(f"{sys.argv[3]} cannot be started: {error.strerror or error}")
