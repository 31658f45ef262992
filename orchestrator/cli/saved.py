"""`plan.json`: the contract's object, and beside it what `apply` needs."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, StrictStr

from orchestrator.cli.fresh import SavedPlan
from orchestrator.config.faults import validate
from orchestrator.config.lookup import trouble_with
from orchestrator.config.spec import Spec
from orchestrator.config.yaml import Document
from orchestrator.errors import ConfigError, JournalError
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.runtime.codec import decode_policy, encode_policy
from orchestrator.view.plan import plan_object

MAX_BYTES: Final = 64 * 1024 * 1024
"""A plan of a thousand nodes has about 5 MiB."""


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


def save(path: Path, made: Plan, policy: Policy, cluster: Path) -> None:
    """Write it whole or not at all, for its owner alone: it holds hooks as they were written.

    Raises:
        ConfigError: the file cannot be written.
    """
    content = {
        **plan_object(made),
        "policy": encode_policy(policy),
        "cluster_file": str(cluster.resolve()),
    }
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise ConfigError("the plan cannot be saved: what is there is no file", file=str(path))
        number, beside = tempfile.mkstemp(prefix=".plan-", dir=target.parent)
        try:
            with os.fdopen(number, "w") as stream:
                stream.write(json.dumps(content, indent=1) + "\n")
            Path(beside).replace(target)
        except BaseException:
            Path(beside).unlink()
            raise
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the plan cannot be saved: {why}", file=str(path)) from error


def load(path: Path) -> SavedPlan:
    """Read one.

    Raises:
        ConfigError: it cannot be read, or is no plan that this version can apply.
    """
    content = _content(path)
    if not isinstance(content, Mapping) or content.get("event") != "plan":
        raise ConfigError("is no saved plan; make one with `orchestrate plan --out`", file=str(path))
    spec = validate(_PlanSpec, Document(file=str(path), content=dict(content), lines={}))
    try:
        policy = decode_policy(spec.policy)
    except JournalError as error:
        raise ConfigError(str(error), file=str(path)) from error
    return SavedPlan(
        policy=policy,
        fingerprint=spec.fingerprint,
        nodes=tuple(name for wave in spec.waves for name in wave.nodes),
        cluster_file=spec.cluster_file,
    )


def _content(path: Path) -> object:
    trouble = trouble_with(path)
    if trouble is not None:
        raise ConfigError(trouble, file=str(path))
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(text) > MAX_BYTES:
        raise ConfigError(f"is no saved plan: it is larger than {MAX_BYTES >> 20} MiB", file=str(path))
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigError("is no saved plan: it is nested too deeply", file=str(path)) from None
    except ValueError as error:
        raise ConfigError(f"is no saved plan: {error}", file=str(path)) from error
