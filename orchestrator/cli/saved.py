"""`plan.json`: the contract's object, and beside it what `apply` needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, StrictStr

from orchestrator.cli.files import read_json, write_whole
from orchestrator.cli.fresh import SavedPlan
from orchestrator.config.faults import validate
from orchestrator.config.spec import Spec
from orchestrator.config.yaml import Document
from orchestrator.errors import ConfigError, JournalError
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.runtime.codec import decode_policy, encode_policy
from orchestrator.view.plan import plan_object


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
    write_whole(path, content, "plan")


def load(path: Path) -> SavedPlan:
    """Read one.

    Raises:
        ConfigError: it cannot be read, or is no plan that this version can apply.
    """
    content = read_json(path, "saved plan")
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
