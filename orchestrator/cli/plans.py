"""`orchestrate plan` and `apply`: the dry run as a command of its own, and a saved plan that is run later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.asking import confirm, require_terminal, show_plan
from orchestrator.cli.fresh import SavedPlan, prepare, prepare_saved
from orchestrator.cli.surroundings import surroundings
from orchestrator.config.policy import Overrides
from orchestrator.errors import ConfigError, JournalError
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.runtime.codec import decode_policy, encode_policy
from orchestrator.view.plan import plan_object


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan)
    app.command("apply")(apply)


@opt.takes_selection
def plan(
    *,
    cluster: opt.Cluster,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `apply`.")] = None,
    playbook: opt.Playbook = None,
    overrides: Overrides,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show what `restart` would do, step by step. Changes nothing. Exits 3 if something would hold it."""
    around = surroundings(output)
    file = around.cluster(cluster)
    with prepare(file, around, playbook=playbook, overrides=overrides, state_url=state) as fresh:
        made = fresh.plan()
        if out is not None:
            _save(out, made, fresh.started.policy, file.path)
        return int(show_plan(made, around))


def apply(
    saved: Annotated[Path, typer.Argument(metavar="PLAN.JSON", help="A plan saved by `plan --out`.")],
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Run a saved plan, if it still fits the cluster. Exits 7 if not."""
    around = surroundings(output)
    if not yes:
        require_terminal(around)
    loaded = _load(saved)
    file = around.cluster(loaded.cluster_file)
    with prepare_saved(file, around, saved=loaded, state_url=state) as (fresh, made):
        if not yes:
            confirm(made, around)
        return int(fresh.run(made))


def _save(path: Path, made: Plan, policy: Policy, cluster: Path) -> None:
    """Write `plan.json`: the contract's object, and beside it what `apply` needs.

    Raises:
        ConfigError: the file cannot be written.
    """
    content = {
        **plan_object(made),
        "policy": encode_policy(policy),
        "cluster_file": str(cluster.resolve()),
    }
    try:
        path.write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"the plan cannot be saved: {error.strerror}", file=str(path)) from error


def _load(path: Path) -> SavedPlan:
    try:
        content: Any = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except ValueError as error:
        raise ConfigError(f"is no saved plan: {error}", file=str(path)) from error
    if not isinstance(content, Mapping) or content.get("event") != "plan":
        raise ConfigError("is no saved plan; make one with `orchestrate plan --out`", file=str(path))
    try:
        return SavedPlan(
            policy=decode_policy(content["policy"]),
            fingerprint=str(content["fingerprint"]),
            nodes=tuple(str(name) for wave in content["waves"] for name in wave["nodes"]),
            cluster_file=str(content["cluster_file"]),
        )
    except (KeyError, TypeError, JournalError) as error:
        raise ConfigError(f"is no plan that this version can apply: {error}", file=str(path)) from error
