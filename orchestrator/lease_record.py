"""Encode and decode the lease record as JSON: the same in every kind of cluster."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading, Unknown

_CODEC: Final = TypeAdapter(LeaseRecord)


def encode(record: LeaseRecord) -> Any:
    """The record as JSON."""
    return _CODEC.dump_python(record, mode="json")


def decode(value: Any) -> Reading[LeaseRecord]:
    """Decode a record; `Unknown`, with the reason, if it is invalid or from a later version."""
    try:
        return _CODEC.validate_json(json.dumps(value), extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the record"
        return Unknown(reason=f"{where}: {first['msg']}")
