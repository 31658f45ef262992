"""Where lines are written. The run outranks its audience: a closed pipe or a lost terminal never stops it."""

from __future__ import annotations

from typing import TextIO


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
        """Write one line; what the stream's encoding lacks is escaped."""
        if self.lost is not None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        safe = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            self._stream.write(safe + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed under us
            self.lost = f"{type(error).__name__}: {error}"
