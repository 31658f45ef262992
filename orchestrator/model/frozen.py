"""Values that never change, and are many or large: changed copies, and results that are remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import is_
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace
else:
    Value = TypeVar("Value")

    def replace(value: Value, /, **changes: Any) -> Value:
        """Return the same value with these fields changed: for many fields, and changes at every event.

        `dataclasses.replace` builds the new value through its constructor, field by field. For a state of
        fifty fields that is most of the cost of a replay. Here all fields are copied at once and then the
        changed ones are set, so the value's class must not be slotted. The type checker sees
        `dataclasses.replace`.

        Raises:
            TypeError: it has no such field.
        """
        fields = value.__dict__
        if not changes.keys() <= fields.keys():
            raise TypeError(f"{type(value).__name__} has no field {min(changes.keys() - fields.keys())}")
        new = object.__new__(type(value))
        new.__dict__.update(fields)
        new.__dict__.update(changes)
        return new


P = ParamSpec("P")
T = TypeVar("T")


def for_the_same_objects(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which is not computed again while it is called with the very same objects.

    They are compared by identity: to compare a whole cluster by value, or to hash it, would take longer than
    most functions of it. So none of them may change in place. They are kept alive until the next call.
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


__all__ = ["for_the_same_objects", "replace"]
