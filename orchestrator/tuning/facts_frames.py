"""Puts the numbered pieces of an answer to `facts_script` together again. Pure.

A piece counts only if the piece with the next number follows it and no bytes were left out of it. So a file
that was cut off, in the middle or at the end of the answer, is never taken for a short one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from orchestrator.hosts.connection import LEFT_OUT
from orchestrator.model.host import FileText
from orchestrator.model.reading import Reading, Unknown
from orchestrator.tuning.facts_script import FILE_BYTES, SECOND_STAGE

CUT_OFF: Final = "the host's answer was cut off here"
_FIRST: Final = re.compile(r"^(@facts-\S+) 1 ", re.MULTILINE)
_KILLED: Final = frozenset({124, 137})
"""Exit codes of `timeout`, and of a command ended by SIGKILL."""
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOutput:
    """The output of a command, both streams."""

    exit: int
    text: str

    @property
    def killed(self) -> bool:
        """Whether it was ended from outside."""
        return self.exit in _KILLED

    @property
    def why(self) -> str:
        """Its last line of output, for people."""
        if self.killed:
            return "no answer in time"
        words = [line.strip() for line in self.text.splitlines() if line.strip()]
        return words[-1][:_REASON_CHARACTERS] if words else f"exit {self.exit}"


@dataclass(slots=True)
class FramedAnswer:
    """The parts of an answer that arrived, by name."""

    own: dict[str, FileText] = field(default_factory=dict)  # the files that are read on every host
    files: dict[str, FileText] = field(default_factory=dict)  # the requested files
    # of commands; a missing one was not run, or the answer ended before it
    outputs: dict[str, Reading[FactsOutput]] = field(default_factory=dict)
    notes: dict[str, Reading[tuple[str, ...]]] = field(default_factory=dict)  # lines of shell builtins
    # every piece that arrived whole, after everything before it: only these prove that something is absent
    titles: set[str] = field(default_factory=set)

    def output(self, name: str) -> Reading[FactsOutput]:
        """The output of a command; `Unknown` if the answer ended before it."""
        return self.outputs.get(name, Unknown(reason=CUT_OFF))

    def lines(self, name: str) -> Reading[tuple[str, ...]]:
        """Lines of a note; `Unknown` if the answer ended before it."""
        return self.notes.get(name, Unknown(reason=CUT_OFF))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    title: str
    body: str
    whole: bool


def read_answer(output: str) -> FramedAnswer:
    """Put an answer together; greetings before it and any text after it are ignored."""
    pieces = _pieces(output)
    answer = FramedAnswer()
    into: dict[str, FileText] = answer.own
    complete = True
    for number, piece in enumerate(pieces):
        complete = complete and piece.whole
        following = pieces[number + 1 : number + 3]
        kind, _, name = piece.title.partition(" ")
        if complete:
            answer.titles.add(piece.title)
        match kind:
            case "files":
                into = answer.own if name == "end" else answer.files
            case "file" if piece.whole:
                into[piece.body] = _text(piece.body, following)
            case "bad" if piece.whole:
                into[piece.body] = Unknown(reason=f"{piece.body}: {name}")
            case "out":
                answer.outputs[name] = _output(piece, following)
            case "note":
                lines = tuple(line for line in piece.body.split("\n") if line)
                answer.notes[name] = lines if piece.whole else Unknown(reason=CUT_OFF)
            case _:
                pass
    return answer


def _pieces(output: str) -> list[_Piece]:
    first = _FIRST.search(output)
    if first is None:
        return []
    mark = re.escape(first[1])
    heads = list(re.finditer(rf"(?:^|\n){mark} (\d+) ([^\n]*)\n", output[first.start() :]))
    text = output[first.start() :]
    made = []
    for head, after in zip_longest(heads, heads[1:]):
        body = text[head.end() : after.start() if after else len(text)]
        # The line ends around a hole may belong to a title and to the next head.
        left_out = LEFT_OUT.search(f"\n{body}\n")
        whole = after is not None and _follows(head, after) and not left_out
        made.append(_Piece(title=head[2], body=body, whole=whole))
    return made


def _follows(head: re.Match[str], after: re.Match[str]) -> bool:
    number = int(head[1])
    if head[2] == "stage":
        return int(after[1]) == SECOND_STAGE + 1
    # An output that is too long also removes the piece that marks its end, and no more.
    too_long = head[2].startswith("out ") and after[2] == "over" and int(after[1]) == number + 2
    return int(after[1]) == number + 1 or too_long


def _text(path: str, following: list[_Piece]) -> FileText:
    """The text of the piece after a path, if the piece with the result of its reading follows."""
    code = _exit_after(following[:1], following[1:])
    if code is None or following[0].title != "text":
        return Unknown(reason=f"{path}: {CUT_OFF}")
    text = following[0].body
    if code != 0:
        return Unknown(reason=f"{path}: {FactsOutput(exit=code, text=text).why}")
    if len(text.encode(errors="replace")) > FILE_BYTES:
        return Unknown(reason=f"{path}: longer than {FILE_BYTES} bytes")
    return text


def _output(piece: _Piece, following: list[_Piece]) -> Reading[FactsOutput]:
    code = _exit_after([piece], following[:1])
    if code is None:
        return Unknown(reason=f"{piece.title.partition(' ')[2]}: too long, or {CUT_OFF}")
    return FactsOutput(exit=code, text=piece.body)


def _exit_after(pieces: list[_Piece], following: list[_Piece]) -> int | None:
    whole = len(pieces) == 1 and len(following) == 1 and pieces[0].whole and following[0].whole
    if not whole or following[0].title != "exit" or re.fullmatch("[0-9]{1,3}", following[0].body) is None:
        return None
    return int(following[0].body)
