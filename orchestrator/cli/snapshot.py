"""A snapshot: what a rehearsal needs of a real cluster, in a file that can be rehearsed anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.cli.files import read_json, write_whole
from orchestrator.errors import ConfigError, JournalError
from orchestrator.model.event import SCHEMA_VERSION, RunStarted
from orchestrator.model.observation import Observation
from orchestrator.runtime.codec import (
    check_schema,
    decode_event,
    decode_observation,
    encode_event,
    encode_observation,
)


def save(path: Path, started: RunStarted, seen: Observation) -> None:
    """Write it: how the run would begin, and all that was read for it.

    Raises:
        ConfigError: the file cannot be written.
    """
    content = {
        "event": "snapshot",
        "schema": SCHEMA_VERSION,
        "started": encode_event(started),
        "seen": encode_observation(seen),
    }
    write_whole(path, content, "snapshot")


def load(path: Path) -> tuple[RunStarted, Observation]:
    """Read one.

    Raises:
        ConfigError: it cannot be read, or is no snapshot that this version can rehearse.
    """
    content = read_json(path, "snapshot")
    if not isinstance(content, Mapping) or content.get("event") != "snapshot":
        raise ConfigError("is no snapshot; make one with `orchestrate rehearse --save`", file=str(path))
    try:
        check_schema(content.get("schema"), where="it")
        started = decode_event(_part(content, "started"))
        seen = decode_observation(_part(content, "seen"), holder="the snapshot")
    except JournalError as error:
        # Events are read as those of a journal are, and here is none.
        raise ConfigError(str(error).replace("the journal", "the snapshot"), file=str(path)) from error
    if not isinstance(started, RunStarted):
        raise ConfigError("is no snapshot: its run begins with another event", file=str(path))
    return started, seen


def _part(content: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = content.get(name)
    if not isinstance(part, Mapping):
        raise JournalError(f"the snapshot is damaged: {name}: is missing")
    return part
