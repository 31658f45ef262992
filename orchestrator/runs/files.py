"""Files that one command saves and another one reads: saved plans and snapshots of clusters."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, StrictStr

from orchestrator.config.faults import validate
from orchestrator.config.lookup import ABSENT, trouble_with
from orchestrator.config.spec import Spec, Unset
from orchestrator.config.which_file import FileKind, require_file, require_trusted
from orchestrator.config.yaml import MAX_BYTES as MAX_YAML_BYTES
from orchestrator.config.yaml import Document, parse
from orchestrator.errors import ConfigError, JournalError
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import encode_event, fields_of
from orchestrator.model.event import SCHEMA_VERSION, RunStarted
from orchestrator.model.observation import Observation
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.next_command import next_command
from orchestrator.runs.comparison import differences
from orchestrator.runtime.codec import (
    check_schema,
    decode_event,
    decode_observation,
    decode_policy,
)
from orchestrator.view.phrases import work_of
from orchestrator.whole_file import write_whole

MAX_BYTES: Final = 64 * 1024 * 1024
"""A plan of a thousand nodes has about 5 MiB, a snapshot of ten thousand shards about 6."""


_MOST_DIFFERENCES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """What `apply` takes from `plan.json`."""

    policy: Policy
    fingerprint: str  # of what the plan depends on
    nodes: tuple[NodeName, ...]  # in the order of the plan
    cluster_file: str  # the file that it was made with
    # how cluster and hosts were to be reached, by key; None in a plan of an earlier version
    access: Mapping[str, str] | None

    def access_differs(self, now: Mapping[str, str]) -> str | None:
        """What the cluster file says otherwise now about how hosts are reached; None if that is the same."""
        if self.access is None:
            return "it was saved by an earlier version, without how its hosts are reached"
        found = differences(self.access, now, was="saved")
        if not found:
            return None
        more = len(found) - _MOST_DIFFERENCES
        said = "; ".join([*found[:_MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])])
        return f"{self.cluster_file} has changed: {said}"

    def differs_from(self, now: Plan) -> str:
        """The differences to a plan with another fingerprint: the saved one holds no list of members."""
        nodes = tuple(name for wave in now.waves for name in wave.nodes)
        new = [name for name in nodes if name not in self.nodes]
        if new:
            return f"{', '.join(new)} joined the selection since the plan was saved"
        if not nodes:
            return f"none of its nodes ({', '.join(self.nodes)}) needs {work_of(self.policy)} any more"
        if nodes != self.nodes:
            return f"it takes {', '.join(self.nodes)} in this order, and now it would be {', '.join(nodes)}"
        return (
            "another cluster of that name, or its members, their ids, roles or attributes have changed since;"
            " or the file was edited"
        )


class _WaveSpec(Spec):
    model_config = ConfigDict(extra="ignore")
    nodes: tuple[StrictStr, ...]


class _PlanSpec(Spec):
    """What is read of it; the rest is for people and for other programs."""

    model_config = ConfigDict(extra="ignore")
    fingerprint: StrictStr
    waves: tuple[_WaveSpec, ...]
    policy: dict[str, Any]
    cluster_file: StrictStr
    access: Unset[dict[str, StrictStr]] = None


def save_plan(
    path: Path,
    shown: Mapping[str, object],
    policy: Policy,
    *,
    cluster_file: str,
    access: Mapping[str, str],
) -> None:
    """Save a plan for `apply`, for its owner alone: it holds hooks as they were written.

    Args:
        path: where to.
        shown: the plan as `--output json` shows it.
        policy: of the run.
        cluster_file: the path of the cluster file, resolved.
        access: how cluster and hosts are reached.

    Raises:
        ConfigError: the file cannot be written.
    """
    content = {**shown, "policy": fields_of(policy), "cluster_file": cluster_file, "access": dict(access)}
    _write_json(path, content, "plan")


def load_plan(path: Path) -> SavedPlan:
    """Read a saved plan.

    Raises:
        ConfigError: it cannot be read, or is no plan that this version can apply.
    """
    content = _read_json(path, FileKind.PLAN)
    if not isinstance(content, Mapping) or content.get("event") != "plan":
        raise ConfigError(
            f"is no saved plan; make one with `{next_command('plan', '--out')}`", file=str(path)
        )
    spec = validate(_PlanSpec, Document(file=str(path), content=dict(content), lines={}))
    try:
        policy = decode_policy(spec.policy)
    except JournalError as error:
        raise ConfigError(str(error), file=str(path)) from error
    return SavedPlan(
        policy=policy,
        fingerprint=spec.fingerprint,
        nodes=tuple(NodeName(name) for wave in spec.waves for name in wave.nodes),
        cluster_file=spec.cluster_file,
        access=spec.access,
    )


def save_snapshot(path: Path, started: RunStarted, seen: Observation) -> None:
    """Save how a run would begin and all that was read for it, to be rehearsed anywhere.

    Raises:
        ConfigError: the file cannot be written.
    """
    content = {
        "event": "snapshot",
        "schema": SCHEMA_VERSION,
        "started": encode_event(started),
        "seen": fields_of(seen),
    }
    _write_json(path, content, "snapshot")


def load_snapshot(path: Path) -> tuple[RunStarted, Observation]:
    """Read a snapshot.

    Raises:
        ConfigError: it cannot be read, or is no snapshot that this version can rehearse.
    """
    content = _read_json(path, FileKind.SNAPSHOT)
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


def require_place(path: Path, what: str) -> None:
    """See that a file can be saved there, before the work whose result it is to hold.

    Raises:
        ConfigError: its folder is not there or not writable, or there is something that is no file.
    """
    try:
        with suppress(FileNotFoundError):
            # `exists` and, from Python 3.13 on, `resolve` raise nothing for links that lead to each other.
            if not stat.S_ISREG(path.stat().st_mode):
                raise ConfigError(
                    f"the {what} cannot be saved: this path exists and is not a file", file=str(path)
                )
        tempfile.TemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise _unsaved(path, what, error) from error


def _unsaved(path: Path, what: str, error: Exception) -> ConfigError:
    why = getattr(error, "strerror", None) or error
    return ConfigError(f"the {what} cannot be saved: {why}", file=str(path))


def _write_json(path: Path, content: Mapping[str, object], what: str) -> None:
    """Write what is ready for JSON: it holds hooks as they were written."""
    write_own(path, json.dumps(content, indent=1) + "\n", what)


def write_own(path: Path, text: str, what: str) -> None:
    """Write a file whole or not at all, for its owner alone.

    Args:
        path: where to.
        text: all of it.
        what: its name in messages, such as `plan`.

    Raises:
        ConfigError: the file cannot be written.
    """
    require_place(path, what)
    require_trusted(path)  # a link of another account would have its target replaced
    try:
        write_whole(path.resolve(), text)
    except OSError as error:
        raise _unsaved(path, what, error) from error


def _read_json(path: Path, wanted: FileKind) -> object:
    """The content of such a file.

    Args:
        path: where.
        wanted: a saved plan or a snapshot.

    Raises:
        ConfigError: it cannot be read, is too large, is no JSON, or is a file of another kind.
    """
    what = wanted.value
    trouble = trouble_with(path)
    if trouble is not None:
        raise ConfigError(f"there is no such {what}" if trouble == ABSENT else trouble, file=str(path))
    if wanted is FileKind.PLAN:  # nothing of a snapshot runs
        require_trusted(path)
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(text) > MAX_BYTES:
        raise ConfigError(f"is no {what}: it is larger than {MAX_BYTES >> 20} MiB", file=str(path))
    try:
        content = json.loads(text)
    except RecursionError:
        raise ConfigError(f"is no {what}: it is nested too deeply", file=str(path)) from None
    except json.JSONDecodeError as error:
        _refuse_yaml(text, wanted, path)
        trouble = f"is no {what}: it is not JSON ({error.msg}, column {error.colno})"
        raise ConfigError(trouble, file=str(path), line=error.lineno) from error
    except ValueError as error:
        raise ConfigError(f"is no {what}: {error}", file=str(path)) from error
    if isinstance(content, Mapping):
        require_file(wanted, content, file=str(path))
    return content


def _refuse_yaml(text: bytes, wanted: FileKind, path: Path) -> None:
    """Name a cluster file, playbook or tuning profile that was given instead."""
    if len(text) > MAX_YAML_BYTES:
        return
    try:
        content = parse(text.decode(errors="replace"), str(path)).content
    except ConfigError:
        return  # no YAML either: that it is not JSON is what is said
    require_file(wanted, content, file=str(path))
