"""Where lines are written. The run outranks its audience: a closed pipe or a lost terminal never stops it."""

from __future__ import annotations

from typing import TextIO

from orchestrator.view.units import visible


def shown(text: str, stream: TextIO) -> str:
    """A text as it may go to a stream: newlines are ours, all else that is foreign in it is made visible.

    What the stream's encoding lacks is escaped as well.
    """
    lines = "\n".join(visible(line) for line in text.split("\n"))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return lines.encode(encoding, "backslashreplace").decode(encoding)


class Outlet:
    """Writes whole lines to a text stream and flushes each.

    A node may be down when the reader goes away (`| head`, a lost SSH session). That must not become an
    exception in the run's loop, so the outlet falls silent, and `lost` says why; the journal has everything.

    Attributes:
        lost: why nothing is written any more; None while all is well.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: str | None = None

    def line(self, text: str) -> None:
        """Write one line; a newline inside it is made visible too."""
        if self.lost is not None:
            return
        try:
            self._stream.write(shown(visible(text), self._stream) + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed under us
            self.lost = f"{type(error).__name__}: {error}"
