"""Compare numbers and values of answers with a gate's limits. Pure; every result has its evidence."""

from __future__ import annotations

import json
import math
from typing import Final

from orchestrator.model.gate import (
    EqualTo,
    GateView,
    Scalar,
    Within,
)
from orchestrator.model.reading import Reading, Unknown

_SHOWN: Final = 120
"""Characters of a value that evidence shows."""


def number(value: object) -> float | None:
    """A finite JSON number; None for everything else, including `true`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def within(value: float, limits: Within, what: str) -> GateView:
    """Whether a number is within the limits."""
    if limits.minimum is not None and value < limits.minimum:
        return GateView(open=False, evidence=f"{what} is {shown(value)}, below {shown(limits.minimum)}")
    if limits.maximum is not None and value > limits.maximum:
        return GateView(open=False, evidence=f"{what} is {shown(value)}, above {shown(limits.maximum)}")
    wanted = [
        text
        for text, limit in (("at least", limits.minimum), ("at most", limits.maximum))
        if limit is not None
    ]
    bounds = [shown(limit) for limit in (limits.minimum, limits.maximum) if limit is not None]
    bounds_in_words = " and ".join(f"{word} {bound}" for word, bound in zip(wanted, bounds, strict=True))
    return GateView(open=True, evidence=f"{what} is {shown(value)}, {bounds_in_words} wanted")


def equal(value: object, wanted: EqualTo, what: str) -> Reading[GateView]:
    """Whether a value is the wanted one; a text or a truth value never equals a number."""
    if isinstance(value, dict | list):
        return Unknown(reason=f"{what} is no single value")
    same = type(value) is type(wanted.value) or (
        number(value) is not None and number(wanted.value) is not None
    )
    is_open = same and value == wanted.value
    more = "" if is_open else f", not {quoted(wanted.value)}"
    return GateView(open=is_open, evidence=f"{what} is {quoted(value)}{more}")


def quoted(value: object | Scalar) -> str:
    """A value as JSON, of limited length."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def shown(value: float) -> str:
    """A number for people: thousands separated, only significant digits."""
    if value == int(value) and abs(value) < 1e15:  # noqa: PLR2004  (above it a float cannot hold single units)
        return f"{int(value):,}"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6g}"  # noqa: PLR2004  (as above, for fractions)
