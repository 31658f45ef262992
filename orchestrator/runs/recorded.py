"""Runs as the state records them, and whether the commands in their journals may run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.config.lookup import is_path
from orchestrator.config.policy import Overrides
from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError, OrchestratorError, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import GateClosed, Record, RunStarted
from orchestrator.model.gate import alert_name
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Policy
from orchestrator.owners import verdict_on
from orchestrator.runs.comparison import differences, leaves
from orchestrator.runs.connection import Connection
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.untrusted import visible

ACCEPT: Final = "--accept-recorded-commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A run as the state records it.

    Attributes:
        started: how it began.
        state: what its journal leads to.
        shared: whether others can write the state that it is from.
    """

    entry: RunEntry
    started: RunStarted
    records: tuple[Record, ...]
    state: RunState
    shared: bool = False

    @property
    def cluster_file(self) -> str:
        """The cluster file that it began with: it says which commands run, and by which account.

        Raises:
            UsageError: others can write the state, and this file too: they may have named one of their own.
        """
        file = self.started.cluster_file
        if self.shared and file and verdict_on(Path(file)).shared:
            raise UsageError(
                f"other accounts can write the state of run {self.entry.run} and its cluster file {file}:"
                " name the cluster file with --cluster"
            )
        return file

    @property
    def failed(self) -> tuple[NodeName, ...]:
        """Its nodes that failed."""
        return tuple(node.name for node in self.state.nodes_in(NodePhase.FAILED))

    def require_nodes(self, skipped: Sequence[str]) -> tuple[NodeName, ...]:
        """Names of nodes to skip.

        Raises:
            UsageError: one is no node of the run.
        """
        unknown = [name for name in skipped if name not in self.state.nodes]
        if unknown:
            raise UsageError(f"--skip {unknown[0]}: run {self.entry.run} has {', '.join(self.state.nodes)}")
        return tuple(NodeName(name) for name in skipped)

    def require_alerts(self, accepted: Sequence[str]) -> tuple[str, ...]:
        """Alerts to accept: by name, or with their labels as the gates have shown them.

        Raises:
            UsageError: one has closed no gate of the run. Where more were counted than named, any may have.
        """
        closings = [record.event for record in self.records if isinstance(record.event, GateClosed)]
        shown = dict.fromkeys(alert for event in closings for alert in event.subjects)
        unknown = set(accepted) - {name for alert in shown for name in (alert, alert_name(alert))}
        if unknown and all(event.count == len(event.subjects) for event in closings):
            have = f"; these have: {', '.join(shown)}" if shown else ""
            what = f"--accept-alert {visible(min(unknown))}"
            raise UsageError(f"{what}: no such alert has closed a gate of run {self.entry.run}{have}")
        return tuple(accepted)


def past_run_of(store: StateStore, entry: RunEntry) -> PastRun:
    """Read a run from the state.

    Raises:
        JournalError: its journal cannot be read, or it never began.
    """
    records = store.replay(entry.run)
    started = next((record.event for record in records if isinstance(record.event, RunStarted)), None)
    if started is None:
        raise JournalError(f"run {entry.run} was killed before it began: there is nothing to resume")
    return PastRun(
        entry=entry,
        started=started,
        records=records,
        state=replay(entry.run, records),
        shared=store.shared,
    )


Parts = Callable[[Policy], Mapping[str, object]]
"""The parts of a policy from which an attempt takes what runs on hosts or on this machine."""


def to_resume(policy: Policy) -> Mapping[str, object]:
    """What a resumed run can run: hooks, gates with their secrets, the tuning profile, install commands."""
    return {"hooks": policy.hooks, "gates": policy.gates, "tune": policy.tune, "upgrade": policy.upgrade}


def to_restore(policy: Policy) -> Mapping[str, object]:
    """What a restore can run: the hooks that put nodes into service."""
    return {"hooks": {"after_recovery": policy.hooks.after_recovery}}


def require_agreed(connection: Connection, store: StateStore, past: PastRun, parts: Parts) -> None:
    """See that what a journal would run is in the playbook on disk, or that a person agrees to it.

    Where only this account can write the state, its journal is this account's own.

    Raises:
        UsageError: others can write the state, what would run differs, and no person agreed.
    """
    if not store.shared:
        return
    recorded = past.state.begun.policy
    found = _today(connection, recorded)
    today = found if isinstance(found, Policy) else None
    now = leaves(parts(today)) if today else {}
    lines = differences(leaves(parts(recorded)), now, was="recorded")
    if not lines:
        return
    book = f"playbook {today.playbook}" if today else f"its playbook, which cannot be used ({found})"
    which = f"what run {past.entry.run} would run differs from {book}:"
    said = (f"other accounts can write {store.where}, and {which}", *(f"  {line}" for line in lines))
    if not connection.process.agrees(said):
        raise UsageError(
            *said,
            f"Nothing was changed. Read these lines. If they may run as recorded, add {ACCEPT} (--yes is not"
            " enough)",
        )


def _today(connection: Connection, recorded: Policy) -> Policy | OrchestratorError:
    """The policy of the same run by the files of today: by the playbook of the same name, if there is one."""
    target = recorded.upgrade.target if recorded.upgrade else None
    overrides = Overrides(to=target, tune=recorded.tune is not None)
    found: list[Policy | OrchestratorError] = []
    for name in (None, *([] if is_path(recorded.playbook) else [recorded.playbook])):
        try:
            policy = connection.ports.policy(name, overrides).build(None)
        except OrchestratorError as error:
            found.append(error)
            continue
        if policy.playbook == recorded.playbook:
            return policy
        found.append(policy)
    return found[0]
