"""What redaction costs by the length of a text: `python -m tests.benchmarks.redaction`.

CPU milliseconds for texts that are the worst for patterns: one long run of what a pattern reads. Beside the
smallest size, each further one has its ratio to the size before: a linear search has 4.0. Figures, no
assertions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from orchestrator.redact import Redactor
from orchestrator.view.text import table

SIZES: Final = tuple(size * 1024 for size in (16, 64, 256, 1024))
PIECES: Final = (
    "a",
    ".",
    "-",
    "a-",
    "-token",
    'password="',
    "://a:",
    "-----BEGIN A",
    "\\",
    "a log line, as usual\n",
)
KNOWN: Final = ("s3cret!Pass", "orch:s3cret!Pass", "another-s3cret")


def milliseconds(redact: Redactor, text: str) -> float:
    """The shortest of three."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        redact(text)
        spent.append(time.process_time() - began)
    return 1000 * min(spent)


def main(sizes: Sequence[str]) -> None:
    """Measure each text at each size, in bytes."""
    redact, wanted, rows = Redactor(KNOWN), [int(size) for size in sizes] or list(SIZES), []
    for piece in PIECES:
        cells, before = [repr(piece)], 0.0
        for size in wanted:
            spent = milliseconds(redact, (piece * size)[:size])
            cells.append(f"{spent:.1f}" + (f" ({spent / before:.1f})" if before else ""))
            before = spent
        rows.append(tuple(cells))
    head = ("text", *(f"{size >> 10} KiB: ms" for size in wanted))
    print(*table(head, rows, numbers=range(1, len(head))), sep="\n")  # noqa: T201  (a program's output)


if __name__ == "__main__":
    main(sys.argv[1:])
