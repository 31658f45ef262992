"""The recordings of a real Riak 3.2.1 as the program would get them: commands that ended, or did not."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.stores.riak.output import CommandOutput
from tests.riak_transcripts import (
    COMMANDS,
    CUT_OFF,
    MORE,
    TIMELINE,
    Recording,
    recordings,
    wrapper_recordings,
)

FILES = (COMMANDS, TIMELINE, MORE)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One command.

    `exit` is None where the recorder's own limit ended it. The timeline gives no exit codes for its polls:
    its lines are copies of lines of the other file, which has 0 for each of them. Bytes that are no UTF-8
    are replaced, as the runner of commands does it.
    """

    file: str
    line: int
    state: str
    node: str
    command: str
    exit: int | None
    text: str

    @property
    def output(self) -> CommandOutput:
        return CommandOutput(exit=self.exit, stdout=self.text)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} [{self.state}] {self.node} {self.command}"


def recorded() -> list[Recorded]:
    """All of them, in their order."""
    found = [each for file in FILES for each in recordings(file)]
    return [_as_seen(each) for each in (*found, *wrapper_recordings())]


def _as_seen(recording: Recording) -> Recorded:
    return Recorded(
        file=recording.file,
        line=recording.line,
        state=recording.state,
        node=recording.node,
        command=recording.command,
        exit=None if recording.code == CUT_OFF else recording.code or 0,
        text=recording.output.encode(errors="surrogateescape").decode(errors="replace"),
    )
