"""Becomes the program that it is told to start, having written down first which process that is.

`python -m orchestrator.airflow.launch PROCESS_FILE LOCK_FD PROGRAM ARGUMENT…` returns at once and leaves the
program behind, in a session of its own and nobody's child. A process keeps its id and its start time when it
becomes another program, so what is written here is true of the program before it begins: there is no moment
in which it runs and nobody could find it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator.runtime.identity import current_process, host_name


def launch(process_file: Path, lock: int, program: list[str]) -> None:
    """Leave a process behind that writes who it is, lets go of the starter's lock, and becomes the program.

    Args:
        process_file: where it is written, in one step.
        lock: the inherited descriptor that keeps a second starter waiting; closed as the program begins.
        program: it and its arguments.

    Raises:
        OSError: in the process left behind: the file cannot be written, or there is no such program.
    """
    if os.fork():
        return
    os.setsid()
    written = process_file.with_name(process_file.name + ".new")
    written.write_text(f"{current_process()}\n{host_name()}\n", encoding="utf-8")
    written.rename(process_file)
    os.set_inheritable(lock, False)
    os.execvp(program[0], program)  # noqa: S606  (the program that the DAG names; no shell)


if __name__ == "__main__":
    try:
        launch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    except OSError as error:
        sys.exit(f"{sys.argv[3]} cannot be started: {error.strerror or error}")
