"""Makes a failing run as short as it can be: fewer mishaps, fewer trips, fewer kills, the same broken rule.

By delta debugging: parts are left out, in halves first and one by one in the end, as long as the run goes on
to break the same rule. What is left is printed as a test that can be pasted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from tests.simulation.chance import Chance
from tests.simulation.lived import BrokenError
from tests.simulation.wide import Life

MOST_TRIES: Final = 120
"""Runs that are lived for one seed, at most."""

T = TypeVar("T")
Breaks = Callable[[Chance], str | None]


def rule_broken(drawn: Chance) -> str | None:
    """The rule that this run breaks; None when it breaks none."""
    try:
        Life(drawn).live()
    except BrokenError as broken:
        return broken.rule
    except Exception as defect:  # noqa: BLE001  (a defect of the program is as good a reason)
        return type(defect).__name__
    return None


def shrunk(drawn: Chance, *, breaks: Breaks = rule_broken, most: int = MOST_TRIES) -> Chance:
    """The shortest run found that breaks the same rule as this one.

    Raises:
        ValueError: this run breaks no rule.
    """
    rule = breaks(drawn)
    if rule is None:
        raise ValueError(f"seed {drawn.seed} breaks no rule")
    tries = 0

    def still(candidate: Chance) -> bool:
        nonlocal tries
        tries += 1
        return tries <= most and breaks(candidate) == rule

    for _ in range(2):  # leaving out one kind of part may make another one superfluous
        before = drawn
        drawn = _less(drawn, drawn.plan, lambda of, plan: replace(of, plan=plan), still)
        drawn = _less(drawn, drawn.trips, lambda of, trips: replace(of, trips=trips), still)
        drawn = _less(drawn, drawn.crashes, lambda of, crashes: replace(of, crashes=crashes), still)
        if drawn == before:
            break
    calm = replace(drawn, jitter=0.0)
    return calm if drawn.jitter and still(calm) else drawn


def _less(
    drawn: Chance,
    parts: tuple[T, ...],
    having: Callable[[Chance, tuple[T, ...]], Chance],
    still: Callable[[Chance], bool],
) -> Chance:
    """The run with as few of these parts as will do."""
    size = len(parts)
    while size:
        place = 0
        while place < len(parts):
            rest = parts[:place] + parts[place + size :]
            candidate = having(drawn, rest)
            if still(candidate):
                parts, drawn = rest, candidate
            else:
                place += size
        size //= 2
    return drawn


def scene(drawn: Chance) -> str:
    """The run as a test that can be pasted into a module of scenes."""
    changed = [
        f"        {name}={source(getattr(drawn, name))}," for name in ("plan", "trips", "crashes", "jitter")
    ]
    return "\n".join(
        [
            f"def test_seed_{drawn.seed}() -> None:",
            "    drawn = replace(",
            f"        chance({drawn.seed}),",
            *changed,
            "    )",
            "    Life(drawn).live()",
        ]
    )


def source(value: object) -> str:
    """A value as Python would have it written."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        given = [
            f"{one.name}={source(getattr(value, one.name))}"
            for one in fields(value)
            if getattr(value, one.name) != one.default
        ]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(set(map(repr, value))) == 1 and len(value) > 1:
            return f"({source(value[0])},) * {len(value)}"
        return "(" + "".join(f"{source(each)}, " for each in value).removesuffix(" ") + ")"
    return repr(value)
