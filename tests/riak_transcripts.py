"""What a real three-node Riak 3.2.1 said, in every state of a rolling restart: `recordings()`.

The files in `data/riak/` are kept as they were recorded: a heading
`=== [STATE] NODE$ bin/COMMAND rc=CODE SECONDSs`, then what it printed, each line behind a `|`.
The time line has `t+SECONDS` before each reading, and no exit code for those that were read over and
over: those lines are copies of lines of the other file, which has 0 for each of them. Bytes that are no
UTF-8 (`admin vnode-status` prints binaries) are replaced, as the runner of commands does it. An exit code of
124 is the recorder's own time limit, not Riak's. In the recorded `/stats` the list `disk`
is shortened to two file systems.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.riak.output import CommandOutput

FOLDER = Path(__file__).parent / "data" / "riak"
COMMANDS = FOLDER / "riak-3.2.1-commands.txt"
TIMELINE = FOLDER / "riak-3.2.1-hinted-handoff-timeline.txt"
MORE = FOLDER / "riak-3.2.1-more-states.txt"
"""Of five nodes: two of them join, one is down. In the form of `COMMANDS`."""
FILES = (COMMANDS, TIMELINE, MORE)
WRAPPER = FOLDER / "riak-3.2.1-packaged-wrapper.txt"
"""Of the packaged `/usr/sbin/riak`, called as root: it exits 0 for everything."""
STATS = FOLDER / "riak-3.2.1-stats.json"
CUT_OFF = 124
"""What `timeout` exits with: the recorder ended the command, which would have gone on."""

_HEADING = re.compile(
    r"=== \[(?P<state>[^\]]+)\] (?P<node>\w+)\$ bin/(?P<command>.*?)\s*"
    r"(?:rc=(?P<code>\d+)  (?P<seconds>\d*\.\d+)s)?"
)
_WRAPPED = re.compile(r"=== \[(?P<state>[^\]]+)\] (?P<command>riak .*?)\s+rc=(?P<code>\d+)")
_REMARK = re.compile(r"\s+\(the words around .*\)$")
_MOMENT = re.compile(r"t\+(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One command and what it did."""

    file: str  # the file's name
    line: int  # of the heading, from 1
    state: str  # the recorder's word for what the cluster was in, such as `dev2down`
    node: str  # where it was asked, such as `dev1`
    command: str  # as typed, with `riak` first
    exit: int | None  # the exit code, None where the recorder's own limit ended it
    seconds: float | None  # how long it took, None where it was not written down
    moment: int | None  # seconds since the node was started again, on the time line only
    text: str  # standard output and error, with their line ends

    @property
    def output(self) -> CommandOutput:
        """As the program would get it."""
        return CommandOutput(exit=self.exit, stdout=self.text)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} [{self.state}] {self.node} {self.command}"

    @property
    def name(self) -> str:
        """For a test's name: `joining1-531-ring-status`."""
        return f"{self.state}-{self.line}-{self.command.replace('riak ', '').replace(' ', '-')[:40]}"


def recordings(file: Path = COMMANDS) -> list[Recording]:
    """Every command in the order of the recording.

    Raises:
        ValueError: a line is none of those that the module's text tells of.
    """
    found: list[Recording] = []
    heading: tuple[int, re.Match[str], int | None] | None = None
    lines: list[str] = []
    moment: int | None = None

    def close() -> None:
        if heading is not None:
            found.append(_recording(file.name, *heading, lines))

    text = file.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        if line.startswith("|"):
            lines.append(line[1:])
        elif match := _HEADING.fullmatch(line):
            close()
            heading, lines = (number, match, moment), []
        elif match := _MOMENT.fullmatch(line):
            moment = int(match[1])
        elif not line.startswith("total "):
            raise ValueError(f"{file.name}:{number} is neither a heading nor output: {line!r}")
    close()
    return found


def wrapper_recordings() -> list[Recording]:
    """What the packaged command said; beside it the file has notes of the recorder, which are left out."""
    found: list[Recording] = []
    for number, line in enumerate(WRAPPER.read_text(encoding="utf-8").splitlines(), start=1):
        if match := _WRAPPED.fullmatch(line):
            heading = Recording(
                file=WRAPPER.name,
                line=number,
                state=match["state"],
                node="dev2",
                command=match["command"],
                exit=int(match["code"]),
                seconds=None,
                moment=None,
                text="",
            )
            found.append(heading)
        elif line.startswith("|"):
            said = f"{found[-1].text}{_REMARK.sub('', line[1:])}\n"
            found[-1] = replace(found[-1], text=said)
    return found


def recorded() -> list[Recording]:
    """All of them, in their order."""
    return [*(each for file in FILES for each in recordings(file)), *wrapper_recordings()]


def _recording(file: str, line: int, match: re.Match[str], moment: int | None, lines: list[str]) -> Recording:
    code, seconds = int(match["code"] or 0), match["seconds"]
    return Recording(
        file=file,
        line=line,
        state=match["state"],
        node=match["node"],
        command=match["command"],
        exit=None if code == CUT_OFF else code,
        seconds=None if seconds is None else float(seconds),
        moment=moment,
        text="".join(f"{each}\n" for each in lines),
    )
