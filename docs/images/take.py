"""Take the picture of the README: a real run in a terminal of 100 by 30 characters.

    .venv/bin/python docs/images/take.py

Runs the demo in tmux, waits for the moment in which the second of three nodes is down, and writes what the
terminal shows at that moment, with its colours, to `restart.svg`. It needs tmux and what the
demo needs.
"""  # noqa: INP001  (a script beside the pictures, no package)

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

HERE: Final = Path(__file__).parent
COLUMNS, ROWS = 100, 30
COMMAND: Final = ("orchestrate", "demo", "--version", "opensearch-2.19.0")
MOMENT: Final = re.compile(r"1 of 3 nodes.*(starting for|Recovery).*Withheld", re.DOTALL)
"""One node is back, the next is down or on its way, and allocation is withheld."""
LIMIT_SECONDS: Final = 900.0


def main() -> int:
    """Run the demo and keep the screen of that moment; the demo continues to its end."""
    session = "orchestrate-picture"
    program = Path(sys.executable).parent / COMMAND[0]
    line = shlex.join([str(program), *COMMAND[1:]])
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    _tmux("new-session", "-d", "-s", session, *size, f"NO_COLOR= COLORTERM=truecolor {line}; sleep 5")
    seen: str | None = None
    began = time.monotonic()
    while time.monotonic() - began < LIMIT_SECONDS:
        screen = _tmux("capture-pane", "-p", "-e", "-t", session, check=False)
        if screen is None:
            break  # the demo has ended, and its terminal with it
        if seen is None and MOMENT.search(re.sub(r"\x1b\[[0-9;]*m", "", screen)):
            seen = screen
        time.sleep(0.3)  # a terminal does not report changes
    if seen is None:
        sys.stderr.write("the moment was not seen\n")
        return 1
    (HERE / "restart.svg").write_text(drawing(seen))
    return 0


def drawing(screen: str) -> str:
    """A screen, as tmux captured it, as an SVG; empty lines at its end are left out."""
    lines = screen.rstrip().splitlines()
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    drawn = console.export_svg(title=shlex.join(COMMAND))
    return re.sub(r',\s*url\("https://[^"]*"\) format\("[^"]*"\)', "", drawn)  # no font of another host


def _tmux(*arguments: str, check: bool = True) -> str | None:
    done = subprocess.run(  # noqa: S603  (our own arguments)
        ["tmux", *arguments],  # noqa: S607  (whichever tmux the machine has)
        capture_output=True,
        text=True,
        check=check,
    )
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
