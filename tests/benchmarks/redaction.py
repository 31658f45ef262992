"""What it costs to take the secrets out of the output of a hook, by its size.

    python -m tests.benchmarks.redaction

Each text is of one kind of character runs on which a pattern with two ways to match would try them all. The
last column is the time for a text of four times the size, in times of the one before: four is linear.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from orchestrator.redact import Redactor

SIZES: Final = (16 << 10, 64 << 10, 256 << 10, 1 << 20)
TEXTS: Final = {
    "dots": ".",
    "dashes": "-",
    "letters": "a",
    "a.a.": "a.",
    "blanks": " ",
    "token": "token",
    "token, blanks": "token    ",
    'password="': 'password="',
    "--token-": "--token-",
    "://a:": "://a:",
    "authorization": "authorization : ",
    "BEGIN": "-----BEGIN A",
    "half of a key": "-----BEGIN PRIVATE KEY-----",
    "half of a secret": "s3cretPass",
    "a log": "2026-11-28T02:11:08Z INFO es1 [o.e.n.Node] started, took=12ms path=/var/lib/x\n",
}


def seconds(redact: Redactor, text: str) -> float:
    """CPU seconds for one text, the least of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        redact(text)
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    """Print a row a kind of text."""
    redact = Redactor(["s3cretPass!", "orch:s3cretPass!"])
    say = sys.stdout.write
    say(f"{'text':18}{''.join(f'{size >> 10:>7} KiB' for size in SIZES)}   the last by the one before\n")
    for name, piece in TEXTS.items():
        row = [seconds(redact, (piece * (size // len(piece) + 1))[:size]) for size in SIZES]
        times = "".join(f"{one * 1000:8.1f} ms" for one in row)
        say(f"{name:18}{times}{row[-1] / max(row[-2], 1e-6):8.1f}\n")


if __name__ == "__main__":
    main()
