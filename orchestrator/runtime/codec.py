"""Encode and decode events, verbs and lease records as JSON.

The JSON has the same form as in every view (`model/encoding.py`).

Decoding uses pydantic, built from the model's own dataclasses: a missing or wrong field is an error, and an
unknown field (from a later version) is ignored. The state database and each lease record have a schema
version, which shows whether an older program can read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import IntEnum
from functools import cache
from typing import Annotated, Any, Final, cast, get_args, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from orchestrator.errors import JournalError
from orchestrator.model import action as verbs
from orchestrator.model.action import Action
from orchestrator.model.encoding import EVENT_CLASSES, encode_event, fields_of
from orchestrator.model.event import SCHEMA_VERSION, Event, Record
from orchestrator.model.gate import Gate
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Observation
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant
from orchestrator.model.tuning import Change
from orchestrator.untrusted import UntrustedValue

_VERBS: Final[Mapping[str, type[Action]]] = {
    "probe_settings": verbs.ProbeSettings,
    **{purpose.value: verbs.WriteSettings for purpose in verbs.Purpose},
    "flush": verbs.Flush,
    "retry_failed": verbs.RetryFailed,
    "force_handoff": verbs.ForceHandoff,
    "set_replicas": verbs.SetReplicas,
    "force_merge": verbs.ForceMerge,
    "refresh": verbs.RefreshIndex,
    "set_index_settings": verbs.SetIndexSettings,
    "exclude_from_voting": verbs.ExcludeFromVoting,
    "clear_voting_exclusions": verbs.ClearVotingExclusions,
    "stop": verbs.StopNode,
    "start": verbs.StartNode,
    "reboot": verbs.RebootHost,
    **{f"hook_{moment.value}": verbs.RunHook for moment in verbs.Moment},
    "tune": verbs.TuneHost,
    "install": verbs.RunInstall,
}
"""Public name to class: the inverse of `action_name`. A test compares it with the union."""

_CHANGE: Final[TypeAdapter[Any]] = TypeAdapter(Annotated[Change, Field(discriminator="change")])
_EVENTS: Final[Mapping[str, type[Event]]] = {
    str(next(f.default for f in fields(cls) if f.name == "event")): cls for cls in get_args(Event)
}

_OF_JSON: Final = (str, int, bool)
_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode_event(data: Mapping[str, object]) -> Event:
    """Decode a written event.

    Raises:
        JournalError: this version does not have such an event, or a field is missing or wrong.
    """
    name = data.get("event")
    cls = _EVENTS.get(name) if isinstance(name, str) else None
    if cls is None:
        raise JournalError(
            f"the journal holds an event {name!r} that this version does not know; "
            "use the version of orchestrate that wrote it, or a later one"
        )
    return cast("Event", _read(cls, data, f"event {name}"))


def decode_action(data: object) -> Action:
    """Decode a written verb.

    Raises:
        JournalError: this version does not have such a verb, or a field is missing or wrong.
    """
    name = data.get("verb") if isinstance(data, Mapping) else None
    cls = _VERBS.get(name) if isinstance(name, str) else None
    if cls is None or not isinstance(data, Mapping):
        raise JournalError(f"the journal holds a verb {name!r} that this version does not know")
    return cast("Action", _read(cls, data, f"verb {name}"))


def decode_change(data: object) -> Change:
    """Decode a change of a host's tuning; `change` is its kind.

    Raises:
        JournalError: this version does not have such a change, or a field is missing or wrong.
    """
    return cast("Change", _checked(_CHANGE, data, "the journal is damaged: ", "change"))


def encode_lease(record: LeaseRecord) -> dict[str, object]:
    """Encode a lease record, with the schema version that its reader must support."""
    return {"schema": SCHEMA_VERSION, **fields_of(record)}


def decode_lease(data: Mapping[str, object]) -> LeaseRecord:
    """Decode the output of `encode_lease`.

    Raises:
        JournalError: a later version wrote it, or it is not a lease record.
    """
    check_schema(data.get("schema"), where="the lease in the cluster")
    return cast("LeaseRecord", _read(LeaseRecord, data, "lease record"))


def decode_policy(data: Mapping[str, object]) -> Policy:
    """Decode the fields of a policy.

    Raises:
        JournalError: a field is missing or wrong.
    """
    return cast("Policy", _read(Policy, data, "policy", holder="the saved plan"))


def decode_observation(data: Mapping[str, object], *, holder: str) -> Observation:
    """Decode the fields of a complete observation.

    Raises:
        JournalError: a field is missing or wrong; `holder` names the object around it.
    """
    return cast("Observation", _read(Observation, data, "observation", holder=holder))


def check_schema(found: object, *, where: str) -> None:
    """Refuse data from a later version.

    Raises:
        JournalError: `found` is a later version, or not a version; the message says what to do.
    """
    if not isinstance(found, int):
        raise JournalError(f"{where} has no schema version: it is damaged, or not one of orchestrate's")
    if found > SCHEMA_VERSION:
        raise JournalError(
            f"{where} was written by a later version of orchestrate (schema {found}, this one reads up to "
            f"{SCHEMA_VERSION}): use that version here too; nothing was changed"
        )


def to_text(data: Mapping[str, object]) -> str:
    """One line of ASCII JSON, the same for the same data.

    Raises:
        JournalError: a number is not finite; JSON cannot represent it.
    """
    try:
        return _JSON.encode(data)
    except ValueError as error:
        raise JournalError(f"this cannot be written as JSON: {error}") from error


def begins_with(event: str) -> str:
    """The start of the text of every event with this name, for queries."""
    return to_text({"event": event}).removesuffix("}") + ","


def from_text(text: str) -> Mapping[str, object]:
    """Parse the JSON object in a text.

    Raises:
        JournalError: the text is not a JSON object.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise JournalError(f"the journal holds a line that is no JSON ({error}): it is damaged") from error
    if not isinstance(data, dict):
        raise JournalError("the journal holds a line that is no JSON object: it is damaged")
    return data


def _read(cls: type, data: Mapping[str, object], what: str, *, holder: str = "the journal") -> object:
    """Decode one dataclass from JSON data, each field by its own adapter."""
    read: dict[str, object] = {}
    for name, shown, needed, plain, adapter in _readers(cls):
        if type(data.get(shown)) is plain:
            read[name] = data[shown]
            continue
        if shown not in data:
            if needed:
                raise JournalError(f"{holder} is damaged: {what}, {shown}: is missing")
            continue
        read[name] = _checked(adapter, data[shown], f"{holder} is damaged: {what}, ", shown)
    try:
        return cls(**read)
    except UntrustedValue as error:
        raise JournalError(f"{holder} is damaged: {what}: {error}") from error


def _checked(adapter: TypeAdapter[Any], value: object, damage: str, name: str) -> object:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(str(part) for part in (name, *first["loc"]))
        raise JournalError(f"{damage}{at}: {first['msg']}") from error


@cache
def _readers(cls: type) -> tuple[tuple[str, str, bool, type | None, TypeAdapter[Any]], ...]:
    """The decoders of all fields except `event`, which has already selected the class.

    Returns:
        Name, JSON name, whether it is required, its type if it is a JSON type, and its adapter.
    """
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        (
            f.name,
            f.name.rstrip("_"),
            f.default is f.default_factory is MISSING,
            hints[f.name] if hints[f.name] in _OF_JSON else None,
            _adapter(hints[f.name]),
        )
        for f in fields(cls)
        if not (cls in EVENT_CLASSES and f.name == "event")
    )


def _adapter(hint: Any) -> TypeAdapter[Any]:
    if hint == Action:
        return TypeAdapter(Annotated[Any, BeforeValidator(decode_action)])
    if hint == Policy:
        return TypeAdapter(Annotated[Any, BeforeValidator(_policy)])
    if hint == tuple[Gate, ...]:
        return TypeAdapter(tuple[Annotated[Gate, Field(discriminator="gate")], ...])
    if hint == tuple[Change, ...]:
        return TypeAdapter(tuple[Annotated[Change, Field(discriminator="change")], ...])
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return TypeAdapter(Annotated[hint, BeforeValidator(_by_name(hint))])
    return TypeAdapter(hint)


def _policy(data: object) -> object:
    """Decode a policy within an event, field by field, since its gates have their own tags."""
    if not isinstance(data, Mapping):
        raise JournalError("the journal is damaged: policy: is no object")
    return _read(Policy, data, "policy")


def _by_name(enum: type[IntEnum]) -> Any:
    def read(value: object) -> object:
        return enum.__members__.get(str(value).upper(), value)

    return read


def row(record: Record) -> dict[str, object]:
    """Encode a record as a row of the table of events."""
    return {
        "run": record.run,
        "sequence": record.sequence,
        "at": record.at,
        "event": to_text(encode_event(record.event)),
    }


def record_of(run: str, sequence: int, at: Instant, event: str) -> Record:
    """Decode a record from a row of the table of events.

    Raises:
        JournalError: the row cannot be read; the run and the sequence are named.
    """
    try:
        return Record(run=run, sequence=sequence, at=at, event=decode_event(from_text(event)))
    except JournalError as error:
        raise JournalError(f"run {run}, event {sequence}: {error}") from error
