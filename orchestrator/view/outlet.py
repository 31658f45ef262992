"""Writes lines to a stream. A closed pipe or a lost terminal never stops the run."""

from __future__ import annotations

from typing import TextIO

from orchestrator.view.units import visible


def shown(text: str, stream: TextIO) -> str:
    """A text that is safe for a stream: newlines stay, other control characters are made visible.

    Characters that the stream's encoding lacks are escaped too.
    """
    lines = "\n".join(visible(line) for line in text.split("\n"))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return lines.encode(encoding, "backslashreplace").decode(encoding)


class Outlet:
    """Writes whole lines to a text stream and flushes each.

    A node may be down when the reader goes away (`| head`, a lost SSH session). That must not raise an
    exception in the run's loop, so the outlet stops writing, and `lost` says why; the journal has everything.

    Attributes:
        lost: why writing has stopped; None while it works.
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
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self.lost = f"{type(error).__name__}: {error}"
