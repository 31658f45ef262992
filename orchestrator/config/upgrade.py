"""The upgrade of a playbook: the commands that install a version, and what it needs before."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StrictBool

from orchestrator.config.spec import (
    VERSION_PLACEHOLDER,
    CommandLine,
    Duration,
    Spec,
    Unset,
    matching,
    no_placeholder_but,
)
from orchestrator.errors import UsageError
from orchestrator.model.upgrade import InstallStep, Upgrade

_RELEASE: Final = re.compile(r"\d{1,4}\.\d{1,6}\.\d{1,6}")
_MOST_STEPS: Final = 20
_EXAMPLE: Final = 'upgrade: {install: [{run: "apt-get install -y -q elasticsearch={version}"}]}'

_PLACEHOLDERS = no_placeholder_but(
    "{node}",
    VERSION_PLACEHOLDER,
    which="there are `{version}`, the wanted version, and `{node}`, the name of the node",
)
UpgradeCommandLine = Annotated[CommandLine, _PLACEHOLDERS]
"""A command line; `{version}` is replaced with the wanted version, and `{node}` with the name of the node."""


class VerifySpec(Spec):
    """A command that succeeds on a host that can install the version. It must change nothing there."""

    run: UpgradeCommandLine = Field(
        description="Command line; `{version}` is the wanted version, `{node}` the node's name."
    )


class InstallStepSpec(VerifySpec):
    """A command that installs a part of the version. It runs on the host while the node is down."""

    as_root: StrictBool = Field(
        default=True, description="As root, by the `sudo` of the cluster file; else as the account."
    )


def _with_steps(steps: tuple[InstallStepSpec, ...]) -> tuple[InstallStepSpec, ...]:
    if not steps:
        raise ValueError(f"must not be empty: it lists the commands that install a version: {_EXAMPLE}")
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"must have at most {_MOST_STEPS} items")
    if not any(VERSION_PLACEHOLDER in step.run for step in steps):
        raise ValueError(
            f"no command has `{VERSION_PLACEHOLDER}`, so none installs the wanted version: {_EXAMPLE}"
        )
    return steps


def _differ(plugins: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name, count in Counter(plugins).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"has `{twice}` twice")
    return plugins


PluginName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
        "must be the name of a plugin, as `GET /_cat/plugins` shows it, such as analysis-icu",
    ),
]


class UpgradeSpec(Spec):
    """How `orchestrate upgrade` installs a version. A restart does not use it."""

    install: Annotated[tuple[InstallStepSpec, ...], AfterValidator(_with_steps)] = Field(
        description="Commands that install the version, in order. At least one has `{version}`."
    )
    installed: Unset[UpgradeCommandLine] = Field(
        default=None,
        description="Command that succeeds if everything that `install` installs is on the host already,"
        " plugins included. Then no step runs.",
    )
    verify: tuple[VerifySpec, ...] = Field(
        default=(), description="Commands that must succeed on each host before the first node is stopped."
    )
    snapshot_younger_than: Unset[Duration] = Field(
        default=None,
        description="Maximum age of the youngest complete snapshot. Default: no snapshot is needed.",
    )
    plugins: Annotated[tuple[PluginName, ...], AfterValidator(_differ)] = Field(
        default=(), description="Plugins that each node must have loaded after the upgrade."
    )


def upgrade_to(target: str, spec: UpgradeSpec | None, playbook: str) -> Upgrade:
    """The upgrade of a run.

    Args:
        target: as given with `--to`.
        spec: the playbook's `upgrade`; None if it has none.
        playbook: the path of its file.

    Raises:
        UsageError: the target is no version, or the playbook has no commands that install one.
    """
    if _RELEASE.fullmatch(target) is None:
        raise UsageError(f"--to {target}: must be a version with three numbers, such as 9.1.0")
    if spec is None:
        raise UsageError(
            f"{playbook}: `upgrade.install` is missing: it lists the commands that install a version on a "
            "host. Write it into a playbook of your own, and name that with --playbook. An example: "
            f"{_EXAMPLE}"
        )
    return Upgrade(
        target=target,
        install=tuple(InstallStep(**dict(step)) for step in spec.install),
        installed=spec.installed,
        verify=tuple(one.run for one in spec.verify),
        snapshot_younger_than=spec.snapshot_younger_than,
        plugins=spec.plugins,
    )
