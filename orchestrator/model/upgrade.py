"""An upgrade: the wanted version, the commands that install it, and what is known of them on a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant, Reading, Seconds

ML_UPGRADE_MODE: Final = "ml.upgrade_mode"
"""The mode in which machine learning pauses its jobs for an upgrade (`POST _ml/set_upgrade_mode`).

It is read, changed and restored as a persistent setting of the cluster, `true` or `false`; absent where the
cluster has no machine learning.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallStep:
    """One command line that runs on a node's host while the node is down."""

    run: str  # `{version}` is replaced with the wanted version, and `{node}` with the node's name
    as_root: bool = True  # run it through the sudo of the cluster file; otherwise as the account itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What the turn of a node owes in an upgrade."""

    target: str  # the version that every node is to run, such as `9.1.0`
    # the steps, in order. Each runs once for a node; none is ever ended by this program.
    install: tuple[InstallStep, ...]
    # a command line that succeeds if all that the steps install is on the host's disk, plugins included. Then
    # no step runs. None = nothing is known of the disk.
    installed: str | None = None
    # command lines that succeed on a host that can install the target; asked before any change
    verify: tuple[str, ...] = ()
    # a finished snapshot that is younger has to exist; None = none is needed
    snapshot_younger_than: Seconds | None = None
    plugins: tuple[str, ...] = ()  # plugins that a node has to load with the target


class InstallState(Enum):
    """The state of an install step on a host. FOUND: all that the steps install was on its disk already."""

    RUNNING = "running"
    DONE = "done"
    FOUND = "found on disk"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallView:
    """The install step that was begun last for a node on its host, by whichever process."""

    ticket: str  # which step of which run, and its number of tries; see `RunInstall`
    state: InstallState  # `LOST`: its process is gone, and nothing says how it ended
    said: str = ""  # the last lines that it printed, and its exit code; bounded and free of secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """What the cluster itself says would not work in the next major version."""

    subject: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeView:
    """What a cluster shows of its fitness for an upgrade. Read before the first stop."""

    # the critical ones; `Unknown` where the version cannot list them
    deprecations: Reading[tuple[Deprecation, ...]]
    # when the youngest snapshot without a failed shard ended; None = there is none
    snapshot_ended: Reading[Instant | None]
    snapshot: str = ""  # its `repository/name`
    # by index, the version that created it (`7.17.28`; since 8.11 only the major is known: `8`). That of an
    # archive is the version that restored it.
    created: Mapping[str, str] = field(default_factory=dict)
    read_only: frozenset[str] = frozenset()  # indices that are closed to writes for good
    # by node, the names of the settings that its own files set
    settings: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReadiness:
    """Whether a host can install the target. Read before the first stop."""

    # what failed of the `verify` command lines: the line with its output, for people
    failed: tuple[str, ...] = ()
    # whether the node's keystore asks for a password at the start; None if not known
    keystore_password: bool | None = None
    # free space where packages are unpacked (`/`, `/usr`, `/var`): the least of them
    free_bytes: int | None = None
