"""The checks of `validate` and of `tune check` for people: what is right in brief, what is not in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

from rich.cells import cell_len

from orchestrator.engine.predicates import by_same_reason
from orchestrator.view.text import counted, listed, wrapped

_MOST: Final = 4
"""Lines in brief of one result at one point, for subjects that each have their own message."""
_BELOW: Final = " " * 5
_LONGEST: Final = 40
"""Columns that mark, subject and point may take in front of a message that is wrapped beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    subject: str
    point: str
    good: bool | None  # None when it could not be checked, because another check failed, or passes with time
    message: str
    of_host: bool = False  # whether its subject is a host
    news: bool = False  # whether its message is shown in brief although it is good


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """The words of a list of checks in brief."""

    good: str = "ready"  # what a host is on which nothing is wrong
    each: str = "--verbose shows each"  # how all of a few are seen


def check_lines(checks: Iterable[Check], *, brief: Brief | None, width: int | None) -> Iterator[str]:
    """The lines of checks, those of hosts after the last of them; in brief what is good is one line."""
    for of_host, some in groupby(checks, key=attrgetter("of_host")):
        found = list(some)
        if brief is not None:
            yield from (_hosts_in_brief if of_host else _others_in_brief)(found, brief, width)
        else:
            yield from _lines(together(found) if of_host else found, width)


def together(checks: Iterable[Check]) -> Iterator[Check]:
    """Those with the same result at the same point as one check, which has their subjects."""
    points: dict[tuple[str, bool | None], list[Check]] = {}
    for check in checks:
        points.setdefault((check.point, check.good), []).append(check)
    for (point, good), some in points.items():
        for message, subjects in by_same_reason((one.subject, one.message) for one in some).items():
            of_host = some[0].of_host
            yield Check(subject=listed(subjects), point=point, good=good, message=message, of_host=of_host)


def _others_in_brief(checks: Sequence[Check], brief: Brief, width: int | None) -> Iterator[str]:
    """What is good by its subject, then the rest. What each of several subjects has is named once."""
    points: dict[str, list[str]] = {}
    for check in checks:
        if check.good and not check.news:
            points.setdefault(check.subject, []).append(check.point)
    subjects: dict[tuple[str, ...], list[str]] = {}
    for subject, found in points.items():
        subjects.setdefault(tuple(dict.fromkeys(found)), []).append(subject)
    yield from _lines((check for check in checks if check.good and check.news), width)
    for names, some in subjects.items():
        yield from _line("ok  ", f"{listed(some, 3):<12} {', '.join(names)}", width)
    yield from _named((check for check in checks if not check.good), brief, width)


def _hosts_in_brief(checks: Sequence[Check], brief: Brief, width: int | None) -> Iterator[str]:
    """How many hosts are ready, then what is not. What could not be checked for that reason is left out."""
    bad = {check.subject for check in checks if check.good is False}
    ready = {check.subject for check in checks if check.good} - bad
    if ready:
        good = dict.fromkeys(check.point for check in checks if check.good and check.subject in ready)
        yield from _line("ok  ", f"{counted(len(ready), 'host')} {brief.good}: {', '.join(good)}", width)
    named = (one for one in checks if one.good is False or (one.good is None and one.subject not in bad))
    yield from _named(named, brief, width)


def _named(checks: Iterable[Check], brief: Brief, width: int | None) -> Iterator[str]:
    """Checks that are not good, as few lines as they have messages, and of many at one point the first."""
    for _, same in groupby(together(checks), key=lambda one: (one.point, one.good)):
        found = list(same)
        shown = found if len(found) <= _MOST else found[: _MOST - 1]
        yield from _lines(shown, width)
        if rest := found[len(shown) :]:
            more = f"{len(rest)} more like these ({brief.each})"
            yield from _lines(
                [Check(subject="…", point=rest[0].point, good=rest[0].good, message=more)], width
            )


_MARKS: Final = {True: "ok  ", False: "BAD ", None: "-   "}


def _lines(checks: Iterable[Check], width: int | None) -> Iterator[str]:
    for check in checks:
        yield from _line(_MARKS[check.good], f"{check.subject:<12} {check.point:<12} ", width, check.message)


def _line(mark: str, text: str, width: int | None, message: str = "") -> Sequence[str]:
    """A check; where mark, subject and point leave no room beside them, the message follows as words do."""
    begins = cell_len(text) + cell_len(message.partition(" ")[0]) + len(_BELOW)
    if not message or (width is not None and (begins > width or cell_len(text) > _LONGEST)):
        return wrapped(f"{text}{message}", width, first=f"{mark} ", then=_BELOW)
    return wrapped(message, width, first=f"{mark} {text}", then=_BELOW)


def verdict(checks: Sequence[Check], *, before: str) -> str:
    """The result, as the last line."""
    bad = sum(check.good is False for check in checks)
    if bad:
        what = "this" if bad == 1 else "them"
        return f"NOT READY: {bad} of {counted(len(checks), 'check')} failed; correct {what} before {before}."
    noted = sum(check.good is None for check in checks)
    marked = f", {noted} noted with -" if noted else ""
    return f"Ready for {before}: all {len(checks) - noted} checks passed{marked}."
