"""Replace some fields of a frozen value; for values with many fields that change at every event.

`dataclasses.replace` builds the new value through its constructor, field by field. For a state of fifty
fields that is most of the cost of a replay. Here all fields are copied at once and then the changed ones are
set, so the value's class must not be slotted. The type checker sees `dataclasses.replace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace
else:
    Value = TypeVar("Value")

    def replace(value: Value, /, **changes: Any) -> Value:
        """Return the same value with these fields changed.

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
