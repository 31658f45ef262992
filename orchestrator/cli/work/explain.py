"""Explanations of names, messages and pages, for `explain`."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from pathlib import Path
from typing import Final

import typer

from orchestrator.cli.help_format import filled
from orchestrator.cli.work.page import page_lines
from orchestrator.config.lookup import shipped
from orchestrator.errors import ExitCode, UsageError
from orchestrator.next_command import next_command
from orchestrator.untrusted import visible

FILE: Final = Path(__file__).parents[1] / "explained.jsonl"
"""All explanations, grouped by kind. `make docs` writes it."""
_WIDEST: Final = 100
"""Maximum line width of a text, even on a wider terminal."""
_NEAREST: Final = 5
"""Entries that are shown if none has all words."""
_STEPS: Final = frozenset({"phase of a run", "phase of a node", "step of a run"})
"""Kinds of entries about what a run does."""
_MANY: Final = 2
"""Keys below different keys may have one name. More are not all explained for it."""
_FEW: Final = 3
"""More words than these are a message, and are together on a page by chance."""
_SMALL: Final = frozenset(
    re.findall(
        r"\w+",
        "a all an and are as at be by for from has if in is it its no not of on or that the to was with",
    )
)
"""Words that say nothing of a subject."""
_ENDINGS: Final = ("ing", "ed", "es", "s", "e")
_SHORTEST: Final = 3
"""Letters of a word without its ending. One that is not longer is looked for as a whole."""
_IRREGULAR: Final[Mapping[str, str]] = {
    "stood": "stand",
    "held": "hold",
    "begun": "begin",
    "began": "begin",
    "ran": "run",
    "lost": "lose",
    "indices": "index",
}
"""Forms of a verb or noun that no ending shows."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The explanation of one name."""

    names: tuple[str, ...]  # all names that find it, the one to show first
    kind: str  # the kind in plain words, such as `predicate`
    text: tuple[str, ...] = ()  # paragraphs
    facts: tuple[tuple[str, str], ...] = ()  # facts with their labels
    messages: tuple[str, ...] = ()  # what the program says of it; `…` is known only at work
    page: str = ""  # of a page or a file that is in the package: its path
    may_be_disabled: bool = False  # whether it is a predicate for `--disable-predicate`

    @cached_property
    def in_names(self) -> frozenset[str]:
        """The words of its names, each without its ending."""
        return _words(" ".join(self.names))

    @cached_property
    def everywhere(self) -> frozenset[str]:
        """All its words."""
        facts = (fact for _, fact in self.facts)
        return self.in_names | _words(" ".join((*self.text, *facts, *self.messages)))

    @property
    def meaning(self) -> str:
        """Its first sentence."""
        text = next(iter(self.text), "") or next((f"{name}: {fact}" for name, fact in self.facts if fact), "")
        return re.split(r"(?<=[.:!?])\s+(?=[A-Z`])", text.partition("\n\n")[0])[0].replace("**", "")


def all_entries() -> tuple[Entry, ...]:
    """Everything that can be explained, grouped by kind."""
    return tuple(Entry(**json.loads(line)) for line in FILE.read_text("utf-8").splitlines())


def show(asked: str | None) -> int:
    """Print the explanation of a name, or all names that have words in them; without a name, list all.

    Raises:
        UsageError: nothing has these words.
    """
    entries = all_entries()
    if asked is None:
        show_long(_overview(entries))
        return ExitCode.DONE
    # What a run does comes first: its steps are what a reader of a screen looks for.
    exact = sorted(_exact(asked, entries), key=lambda entry: entry.kind not in _STEPS)
    exact = [one for one in exact if one.page and one.names[0] == asked] or exact  # a file to be copied
    # A page, and many keys of one name, have much to read: they are listed beside another entry of the name.
    many = [one for one in exact if one.kind.startswith("key") and one.names[0] != asked]
    listed = [one for one in exact if one.page] + (many if len(many) > _MANY else [])
    explained = [entry for entry in exact if entry not in listed] or exact
    rest = [entry for entry in entries if entry not in explained]
    if not explained:
        found = list(_found(asked, rest)) if _words(asked) else []  # every text has no word
        if not found:
            raise UsageError(_unknown(asked, entries))
        if len(found) == len(found[0].entries) == 1 and _has(_words(asked), found[0].entries[0].everywhere):
            explained, found = [*found[0].entries], []
    elif explained[0].page or asked.isdigit():
        found = []
    else:
        first = explained[0]  # several steps share the word that screens have for them
        shared = first.kind in _STEPS and asked in first.names
        found = list(_named("Also with", asked if shared else first.names[0], rest))
    parts = ["\n".join(_page(entry)) for entry in explained]
    parts += ["\n".join(each.lines()) for each in found]
    parts += [f"`{next_command('explain', 'NAME')}` explains one."] if found else []
    show_long("\n\n".join(part.rstrip() for part in parts) + "\n")
    return ExitCode.DONE


def show_long(text: str) -> None:
    """Print a text; on a terminal that it does not fit, through a pager, so that its beginning is seen."""
    terminal = shutil.get_terminal_size()
    lines = sum(max(1, -(-len(line) // terminal.columns)) for line in text.splitlines())
    if lines < terminal.lines or not _paged(text):
        typer.echo(text, nl=False)


def _paged(text: str) -> bool:
    """Show a text in the operator's pager. False where there is none, or no person at a terminal."""
    if os.environ.get("TERM", "dumb") == "dumb" or "CI" in os.environ:
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    with suppress(OSError, ValueError):  # there is no such program, or a quote is open
        command = shlex.split(os.environ.get("PAGER") or next(filter(shutil.which, ("less", "more")), ""))
        if command:
            shown = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
            # As git does: `less` ends at once with a short text, and leaves the text on the screen.
            subprocess.run(command, input=shown, env=_of_pager(), check=False)  # noqa: S603
            return True
    return False


def _of_pager() -> dict[str, str]:
    """The variables of a pager: what finds it and how it draws, and nothing that may be a secret."""
    kept = {name: value for name, value in os.environ.items() if name in _PAGER_READS}
    return {"LESS": f"FRX -Ps{_PROMPT}"} | kept


_PROMPT: Final = r"?e(the end):(more below)., space shows the next page, q ends"
"""Of `less` below a page, whose own is a bare colon. Its forms are `?e…:….` for the end and before it."""
_PAGER_READS: Final = frozenset(
    {"PATH", "HOME", "TERM", "TERMINFO", "COLUMNS", "LINES", "LANG", "LC_ALL", "LC_CTYPE", "LESS", "MORE"}
)


def _exact(asked: str, entries: Sequence[Entry]) -> list[Entry]:
    """Entries of a name, of the names in a message, or of the only name with this part."""
    wanted = re.sub(r"^exit[ _-]?code[ =_-]", "", asked.casefold().strip())
    quoted = {word.strip(".") for word in re.findall(r"[\w.]+", wanted) if "_" in word}
    known = [(entry, {name.casefold() for name in entry.names}) for entry in entries]
    exact = [entry for entry, names in known if wanted in names]
    exact = exact or [entry for entry, names in known if quoted & names]
    parts = [entry for entry, names in known if any(wanted in name for name in names)]
    return exact or (parts if len(parts) == 1 else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Entries that have the words in the same place."""

    title: str
    entries: Sequence[Entry]
    said: Mapping[str, str] = field(default_factory=dict)  # by name what is shown in place of the meaning
    brief: bool = False  # names alone

    def lines(self) -> Iterator[str]:
        """What is printed of them."""
        yield f"{visible(self.title)}:"
        if self.brief:
            yield _wrapped(", ".join(dict.fromkeys(entry.names[0] for entry in self.entries)))
            return
        for entry in self.entries:
            kind, name = re.sub(r"^key of .*", "key", entry.kind), entry.names[0]
            yield _wrapped(f"{name} ({kind}): {self.said.get(name, entry.meaning)}", hanging=4)


def _named(title: str, wanted: str, entries: Iterable[Entry]) -> Iterator[_Found]:
    """Entries with the words in their name; then keys that have them from a key above."""
    words = _words(wanted)
    part = wanted.casefold()
    named = [one for one in entries if _has(words, one.in_names) or any(part in each for each in one.names)]
    below = [one for one in named if one.kind.startswith("key") and not _has(words, _words(one.names[-1]))]
    if len(named) > len(below):
        itself = [entry for entry in named if entry not in below]
        yield _Found(title=f"{title} `{wanted}` in the name", entries=itself)
    if below:
        yield _Found(title=f"Keys below `{wanted}`", entries=below, brief=True)


def _found(wanted: str, entries: Sequence[Entry]) -> Iterator[_Found]:
    """Entries with these words in the name, in a message or a text, else the nearest; then pages."""
    words = _words(wanted)
    found = list(_named("With", wanted, entries))
    left = [entry for entry in entries if not any(entry in each.entries for each in found)]
    said = {
        entry.names[0]: f'"{each}"' for entry in left for each in entry.messages if _has(words, _words(each))
    }
    if said:
        having = [entry for entry in left if entry.names[0] in said]
        found.append(_Found(title=f"With `{wanted}` in a message", entries=having, said=said))
        left = [entry for entry in left if entry not in having]
    texts = [entry for entry in left if _has(words, entry.everywhere)]
    if texts:
        found.append(_Found(title=f"With `{wanted}` in the text", entries=texts, brief=bool(found)))
    sections = {entry.names[0]: title for entry in entries for title in _sections(entry, words)}
    by_title = sorted(sections, key=lambda name: -len(_among(words, _words(sections[name]))))
    titled = any(_has(words, _words(title)) for title in sections.values())
    yield from found or ([] if titled else _nearest(words, entries))
    if titled or (sections and len(words) <= _FEW):
        page_of = {entry.names[0]: entry for entry in entries if entry.page}
        pages = [page_of[name] for name in by_title]
        yield _Found(title=f"With `{wanted}` on a page", entries=pages, said=sections)


def _sections(entry: Entry, words: frozenset[str]) -> Iterator[str]:
    """The first heading of a page under which all words are. Reference pages are made of the entries."""
    if not entry.page.endswith(".md") or entry.page.startswith("docs/reference/"):
        return
    text = _file(entry).read_text("utf-8")
    for section in re.split(r"(?:\A|\n\n)(?=#+ )", text):
        if _has(words, _words(section)):
            yield section.partition("\n")[0].strip("# `")
            return


def _nearest(words: frozenset[str], entries: Sequence[Entry]) -> Iterator[_Found]:
    """Entries with half of the words in one message or text. A word that few entries have counts more."""
    having = {word: sum(_has({word}, entry.everywhere) for entry in entries) for word in words}
    weight = {
        word: log(len(entries) / count) for word, count in having.items() if count and not word.isdigit()
    }
    best: dict[str, tuple[float, Entry, str]] = {}
    for entry in entries:
        for text in (*entry.messages, entry.meaning):
            there = _among(weight, _words(text))
            points = sum(weight[word] for word in there) if len(there) * 2 >= len(words) else 0.0
            if points > best.get(entry.names[0], (0.0,))[0]:
                shown = entry.meaning if text == entry.meaning else f'"{text}"'
                best[entry.names[0]] = (points, entry, shown)
    chosen = sorted(best.values(), key=lambda each: -each[0])[:_NEAREST]
    if chosen:
        yield _Found(
            title="Nothing has all these words; nearest",
            entries=[entry for _, entry, _ in chosen],
            said={entry.names[0]: shown for _, entry, shown in chosen},
        )


def _words(text: str) -> frozenset[str]:
    """The words of a text, each without its ending. A name has several: `no_running_snapshot`."""
    found = re.findall(r"[a-z0-9]+", text.casefold())
    return frozenset(_stem(word) for word in found if word not in _SMALL) or frozenset(map(_stem, found))


def _stem(word: str) -> str:
    word = _IRREGULAR.get(word, word)
    endings = (each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= _SHORTEST)
    short = word.removesuffix(next(endings, ""))
    return short[:-1] if len(short) > _SHORTEST and short[-1] == short[-2] else short


def _among(words: Collection[str], others: frozenset[str]) -> list[str]:
    """The words that are there, or begin one that is."""
    return [
        word
        for word in words
        if word in others or (len(word) > _SHORTEST and any(each.startswith(word) for each in others))
    ]


def _has(words: Collection[str], others: frozenset[str]) -> bool:
    """Whether all of them are."""
    return len(_among(words, others)) == len(words)


def _unknown(asked: str, entries: Sequence[Entry]) -> str:
    names = [name for each in entries for name in each.names]
    close = difflib.get_close_matches(asked.casefold(), names, n=1)
    nearest = f"did you mean `{close[0]}`? " if close else ""
    return f"explain {asked}: unknown name; {nearest}`{next_command('explain')}` lists all names"


def _page(entry: Entry) -> Iterator[str]:
    """The explanation of an entry; of a page of the docs, the page."""
    if entry.page:
        yield from page_lines(_file(entry), _width())
        return
    yield from (_title(f"{entry.names[0]} ({entry.kind})"), "")
    for text in entry.text:
        for part in text.split("\n\n"):
            yield from (_wrapped(part), "")
    facts = [(name, fact) for name, fact in entry.facts if fact]
    label = max((len(name) for name, _ in facts), default=0)
    yield from (_wrapped(fact, first=f"{name:<{label}}  ") for name, fact in facts)


def _file(entry: Entry) -> Path:
    folder, _, name = entry.page.partition("/")
    return shipped(folder) / name


def _overview(entries: tuple[Entry, ...]) -> str:
    """All names by kind, without keys below names that the operator chooses."""
    groups: dict[str, list[str]] = {}
    for entry in entries:
        if ".NAME." not in entry.names[0]:
            groups.setdefault(entry.kind.partition(",")[0], []).append(entry.names[0])
    return "".join(f"{_title(kind)}:\n{_wrapped(', '.join(names))}\n" for kind, names in groups.items())


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)


def _title(text: str) -> str:
    return _wrapped(text).strip()


def _wrapped(text: str, *, first: str = "", hanging: int = 0) -> str:
    """A paragraph after its label, as wide as the terminal. Names are never broken."""
    below = " " * (len(first) + 2 + hanging)
    return filled(text.replace("**", ""), _width(), first=f"  {first}", then=below)
