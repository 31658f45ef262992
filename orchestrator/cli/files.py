"""JSON files that a command saves and another one takes: written whole or not at all, read with a limit."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.config.lookup import trouble_with
from orchestrator.errors import ConfigError

MAX_BYTES: Final = 64 * 1024 * 1024
"""A plan of a thousand nodes has about 5 MiB, a snapshot of ten thousand shards about 6."""


def write_whole(path: Path, content: Mapping[str, object], what: str) -> None:
    """Write it whole or not at all, for its owner alone: it holds hooks as they were written.

    Args:
        path: where to.
        content: what is ready for JSON.
        what: its name in messages, such as `plan`.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise ConfigError(f"the {what} cannot be saved: what is there is no file", file=str(path))
        number, beside = tempfile.mkstemp(prefix=f".{what}-", dir=target.parent)
        try:
            with os.fdopen(number, "w") as stream:
                stream.write(json.dumps(content, indent=1) + "\n")
            Path(beside).replace(target)
        except BaseException:
            Path(beside).unlink()
            raise
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the {what} cannot be saved: {why}", file=str(path)) from error


def read_json(path: Path, what: str) -> object:
    """What stands in such a file.

    Args:
        path: where.
        what: its name in messages, such as `saved plan`.

    Raises:
        ConfigError: it cannot be read, is too large, or is no JSON.
    """
    trouble = trouble_with(path)
    if trouble is not None:
        raise ConfigError(trouble, file=str(path))
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(text) > MAX_BYTES:
        raise ConfigError(f"is no {what}: it is larger than {MAX_BYTES >> 20} MiB", file=str(path))
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigError(f"is no {what}: it is nested too deeply", file=str(path)) from None
    except ValueError as error:
        raise ConfigError(f"is no {what}: {error}", file=str(path)) from error
