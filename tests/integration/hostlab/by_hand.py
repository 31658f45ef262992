"""A lab's command line: what it says, and how it ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from tests.lab.errors import LabError


def say(line: str) -> None:
    """Tell how far it is."""
    print(f"lab: {line}", flush=True)  # noqa: T201  (a command's output)


def until_ended(main: Callable[[list[str]], int]) -> NoReturn:
    """Do what the words of the command line say; Ctrl-C takes down what is up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a background job unless asked for
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except LabError as error:
        say(str(error))
        sys.exit(2)
