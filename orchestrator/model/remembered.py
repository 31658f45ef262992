"""Results that are remembered, of values that are large and never change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import is_
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def for_the_same_objects(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which is not computed again while it is called with the very same objects.

    They are compared by identity: to compare a whole cluster by value, or to hash it, would take longer than
    most functions of it. So none of them may change in place. They are kept alive until the next call.

    For functions of all nodes, hosts or copies that a decision asks several times: without it a plan of a
    thousand nodes takes at least a fifth longer (`tests/benchmarks/plan_size.py`).
    """
    last: tuple[tuple[object, ...], T] | None = None

    @wraps(function)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal last
        known, given = last, (*args, *kwargs.values())
        if known is not None and len(known[0]) == len(given) and all(map(is_, known[0], given)):
            return known[1]
        result = function(*args, **kwargs)
        last = (given, result)
        return result

    return remembered
