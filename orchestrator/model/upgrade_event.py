"""Events of an upgrade: the end of an install step, a node on the target, and a node that missed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.upgrade import InstallState


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallEnded:
    """A reading of the host shows how an install step ended.

    Attributes:
        number: of the step.
        said: the last lines that it printed, free of secrets.
    """

    node: NodeName
    number: int
    ticket: str
    state: InstallState
    said: str = ""
    event: Literal["install_ended"] = "install_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """A node runs the target, in a process that began after its last install step.

    Attributes:
        by_others: no install step of this run has run for it.
    """

    node: NodeName
    version: str
    by_others: bool = False
    event: Literal["upgraded"] = "upgraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeMissed:
    """A node came back without the target, though every install step ended well. All steps are owed again.

    Attributes:
        version: that it runs.
        lacks: plugins that it was to load and did not.
    """

    node: NodeName
    version: str
    wanted: str
    lacks: tuple[str, ...] = ()
    event: Literal["upgrade_missed"] = "upgrade_missed"


UpgradeEvent: TypeAlias = InstallEnded | Upgraded | UpgradeMissed
