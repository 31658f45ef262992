"""A frozen value with some fields changed, for values of many fields that change at every event.

`dataclasses.replace` builds the new value through its constructor, field by field: for a state of fifty
fields that is most of what a replay costs. Here the fields are copied at once and the changed ones put over
them, so the value's class must not be slotted. To the type checker it is `dataclasses.replace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace
else:
    Value = TypeVar("Value")

    def replace(value: Value, /, **changes: Any) -> Value:
        """The same value but for these fields.

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


__all__ = ["replace"]
