"""Values of the model as JSON-ready data: one form in the journal, in lease records and in every view.

Fields have their names in the model, without the trailing underscore of names that are Python keywords. Of an
enum it is the value; sets are sorted. An event has its name in `event`, a verb its public name in `verb`: two
verbs can have the same fields (a stop and a start) and must never be confused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from typing import Any, Final, cast, get_args

from orchestrator.formats import stamp
from orchestrator.model.action import Action, action_name
from orchestrator.model.event import Event, Record

_ACTIONS: Final = frozenset(get_args(Action))
EVENT_CLASSES: Final[frozenset[type[Event]]] = frozenset(get_args(Event))


def public_record(record: Record) -> dict[str, object]:
    """A record as in `--output json`: its time, its run and its place in the journal, then the event."""
    about = {"ts": stamp(record.at), "run": record.run, "sequence": record.sequence}
    return {**about, **encode_event(record.event)}


def encode_event(event: Event) -> dict[str, object]:
    """Encode an event for the journal and the views: JSON-ready, with `event` first."""
    return {"event": event.event, **fields_of(event)}


def encode_action(action: Action) -> dict[str, object]:
    """Encode a verb, with its public name as `verb`."""
    return {"verb": action_name(action), **fields_of(action)}


def fields_of(value: object, *, without: Collection[str] = ()) -> dict[str, object]:
    """The fields of a dataclass, less these; of an event without `event`, which its caller adds."""
    named = _shown(cast("Any", type(value)))
    return {shown: _plain(getattr(value, name)) for name, shown in named if name not in without}


@cache
def _shown(cls: type[Any]) -> tuple[tuple[str, str], ...]:
    """Name and JSON name of each field."""
    names = [f.name for f in fields(cls)]
    return tuple((n, n.rstrip("_")) for n in names if not (cls in EVENT_CLASSES and n == "event"))


def _plain(value: object) -> object:
    """Any value of the model, as JSON-ready data."""
    return _encoder(cast("Any", type(value)))(value)


@cache
def _encoder(cls: type[Any]) -> Callable[[Any], object]:
    """The function that converts values of a class to JSON-ready data."""
    if issubclass(cls, IntEnum):
        return lambda value: value.name.lower()
    if issubclass(cls, Enum):
        return lambda value: value.value
    if issubclass(cls, str):
        return _clean
    if issubclass(cls, Mapping):
        return lambda value: {_clean(str(key)): _plain(item) for key, item in value.items()}
    if issubclass(cls, frozenset | set):
        return lambda value: sorted((_plain(item) for item in value), key=str)
    if issubclass(cls, Collection):
        return lambda value: [_plain(item) for item in value]
    if cls in _ACTIONS:
        return encode_action
    if cls in EVENT_CLASSES:
        return encode_event
    if is_dataclass(cls):
        return fields_of
    return lambda value: value


def _clean(text: str) -> str:
    """Replace lone surrogates (bytes of a command's output that are not UTF-8), which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
