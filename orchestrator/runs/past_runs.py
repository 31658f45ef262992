"""Runs as the state records them: which one is meant, may its commands run, and its cluster as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final

from orchestrator.config.lookup import is_path
from orchestrator.config.policy import Overrides
from orchestrator.daemons import Daemons
from orchestrator.elasticsearch.credentials import AGAIN_SECONDS
from orchestrator.engine.estimate import PastTimes, times_of
from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError, OrchestratorError, UsageError
from orchestrator.kinds import kind_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import GateClosed, Record, RunStarted
from orchestrator.model.gate import alert_name
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.owners import verdict_on
from orchestrator.ports import ClusterReadings
from orchestrator.runs.comparison import differences, leaves
from orchestrator.runs.connection import ClusterPorts, Connection
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import provably_alive, provably_gone
from orchestrator.runtime.lease import ClusterHolder
from orchestrator.runtime.store import FINISHED, OWING, RunEntry, StateMissing, StateStore
from orchestrator.untrusted import visible


class Wanted(Enum):
    """The purpose of looking for a run; its value is the word for it in messages."""

    RESUME = "unfinished run"
    RESTORE = "unfinished run to restore"
    REQUEST = "run under way"
    SHOW = "run"


_WRITING: Final = frozenset({Wanted.RESUME, Wanted.RESTORE})
"""Requests that write the values from before the run."""
_PAST_RUNS: Final = 10
"""Older runs are ignored: data and machines have changed since."""


class RunPassed(UsageError):  # noqa: N818  (names what is so)
    """Another run has finished since this one, or may have: its changes are not restored without its name.

    Attributes:
        entry: the run with pending changes.
    """

    def __init__(self, entry: RunEntry, later: RunEntry, wanted: Wanted, store: StateStore) -> None:
        known = later.ordinal > entry.ordinal
        order = "a later run" if known else "another run, which may be later,"
        write, look = store.command(wanted.name.lower(), entry.run), store.command("status", later.run)
        super().__init__(
            f"run {entry.run} has changes that are not restored, but {order} is finished. Name the run:",
            *_lines((entry, later)),
            f"  `{write}` writes the values from before that run",
            f"  `{look}` shows the other run; if the cluster is in order, do nothing",
        )
        self.entry = entry


def find_run(
    store: StateStore, wanted: Wanted, *, run: str | None = None, cluster: str | None = None
) -> RunEntry:
    """The wanted run.

    Args:
        store: the state database.
        wanted: the purpose.
        run: as typed: an id, the beginning of one, or its last part.
        cluster: only runs of the cluster of this name.

    Raises:
        RunPassed: another run may have finished since, so that its values may be out of date.
        UsageError: none, or more than one: the message lists them.
    """
    entries = store.runs()
    if run is not None:
        return _named(entries, run, cluster, store)
    found = candidates(entries, wanted, cluster)
    if not found:
        raise _none(store, wanted, cluster, entries)
    if len(found) > 1:
        raise UsageError(
            "more than one cluster has one; name the run, or the cluster with --cluster:", *_lines(found)
        )
    if wanted in _WRITING and is_open(found[0]) and (later := _passed(found[0], entries)) is not None:
        raise RunPassed(found[0], later, wanted, store)
    return found[0]


def candidates(entries: Sequence[RunEntry], wanted: Wanted, cluster: str | None) -> list[RunEntry]:
    """The runs that a request without a name can mean: at most one of each cluster, or of this one alone."""
    names = dict.fromkeys(entry.cluster for entry in entries if cluster in (None, entry.cluster))
    by_cluster = ([entry for entry in entries if entry.cluster == name] for name in names)
    found = [one for some in by_cluster if (one := _of_cluster(some, wanted)) is not None]
    if wanted is Wanted.SHOW:
        # The one to show is the one on which something is to be done; else the latest.
        return [entry for entry in found if entry.unfinished] or found[:1]
    return found


def state_in_words(entry: RunEntry) -> str:
    """The state of a run, for people."""
    if entry.unwritten:
        return "its last events could not be written"
    return entry.outcome.value if entry.outcome else "under way or killed"


def is_alive(entry: RunEntry) -> bool | None:
    """Whether the process of a run that has not ended lives; None if that is not known."""
    return False if provably_gone(entry.process) else (provably_alive(entry.process) or None)


def leave_request(
    store: StateStore,
    entry: RunEntry,
    request: Request,
    *,
    by: str,
    at: Instant,
    gone: Callable[[str], bool] = provably_gone,
) -> None:
    """Leave a request for a run under way.

    Raises:
        UsageError: it is not under way, or its process is gone: the request would never be read.
    """
    if entry.outcome is not None:
        raise UsageError(
            f"run {entry.run} is not under way: it has ended ({entry.outcome.value}) "
            f"{_when(entry.ended or entry.started)}"
        )
    if gone(entry.process):
        raise UsageError(
            f"run {entry.run} is not under way: its process is gone; "
            f"`{store.command('resume', entry.run)}` or `{store.command('restore', entry.run)}`"
        )
    store.leave_request(entry.run, request, by=by, at=at)


def histories(
    store: StateStore, *, cluster: str | None = None, limit: int = 100
) -> tuple[tuple[RunEntry, tuple[Record, ...]], ...]:
    """The latest runs and their journals, the oldest first.

    If a run died and another run restored its changes, only the entry has its outcome: its journal has none.
    """
    entries = reversed(store.runs(cluster=cluster, limit=limit))
    return tuple((entry, store.replay(entry.run)) for entry in entries)


def _named(entries: Sequence[RunEntry], run: str, cluster: str | None, store: StateStore) -> RunEntry:
    exact = [entry for entry in entries if entry.run == run]
    found = exact or [e for e in entries if e.run.startswith(run) or e.run.endswith(f"-{run}")]
    if not found:
        one = "; name one" if "," in run else ""
        known = f"`{store.command('history')}` lists them{one}"
        raise UsageError(f"there is no run {run} in {store.where}; {known}")
    if len(found) > 1:
        raise UsageError(f"{run} can be more than one run:", *_lines(found))
    if cluster is not None and found[0].cluster != cluster:
        raise UsageError(f"run {found[0].run} is one of cluster {found[0].cluster}, not of {cluster}")
    return found[0]


def is_open(entry: RunEntry) -> bool:
    """Whether the run may have pending changes that no other run took over."""
    return entry.outcome in OWING and entry.heir is None


def _passed(entry: RunEntry, entries: Sequence[RunEntry]) -> RunEntry | None:
    """A finished run of the cluster that began after this one, or may have; the latest.

    The order of two runs is that of their leases. Two runs of an earlier version have none.
    """
    own = (one for one in entries if one.cluster == entry.cluster and one.outcome in FINISHED)
    return next((one for one in own if one.ordinal >= entry.ordinal), None)


def _of_cluster(entries: Sequence[RunEntry], wanted: Wanted) -> RunEntry | None:
    """The wanted run of one cluster. The entries are sorted: the one that took its lease last is first.

    A run with pending changes is preferred to a run without, until a run that took them over names it. If
    the latest run was restored, it has no pending changes, but can be resumed: not all of its nodes are
    restarted.
    """
    pending = [entry for entry in entries if is_open(entry)]
    sure = [entry for entry in pending if _passed(entry, entries) is None]
    if wanted is Wanted.SHOW:
        return next((entry for entry in pending if entry.outcome is None), entries[0])
    if wanted is Wanted.REQUEST:
        done = max((entry.ordinal for entry in entries if entry.outcome in FINISHED), default=0)
        return next((e for e in pending if e.outcome is None and e.ordinal >= done), None)
    if wanted is Wanted.RESUME and entries[0].outcome is Outcome.RESTORED:
        return entries[0]
    since = next((n for n, entry in enumerate(entries) if entry.outcome in FINISHED), len(entries))
    ended = [entry for entry in entries[:since] if entry.outcome not in OWING]
    after = (*ended, *pending) if wanted is Wanted.RESUME else (*pending, *ended)
    return next(iter((*sure, *after)), None)


def _none(store: StateStore, wanted: Wanted, cluster: str | None, entries: Sequence[RunEntry]) -> UsageError:
    of = f" of cluster {cluster}" if cluster else ""
    text = f"there is no {wanted.value}{of} in {store.where}"
    own = [entry for entry in entries if cluster in (None, entry.cluster)]
    passed = next((entry for entry in own if entry.unfinished), None)
    if passed is None and own and wanted is not Wanted.SHOW:
        text += f": the latest, {own[0].run} on {own[0].cluster}, has ended ({state_in_words(own[0])})"
    if wanted is Wanted.RESUME and passed is not None:
        how = passed.outcome.value if passed.outcome else "killed"
        text += (
            f": a later one is done; {passed.run} ({how}, begun {_when(passed.started)}) has nodes left: "
            f"continue it with `{store.command('resume', passed.run)}`"
        )
    if wanted is Wanted.REQUEST and passed is not None and passed.outcome is not None:
        text += (
            f"; run {passed.run} has ended ({passed.outcome.value}): continue it with "
            f"`{store.command('resume', passed.run)}`"
        )
    if wanted is not Wanted.REQUEST:
        restore = store.command("restore", "--cluster", cluster or "NAME")
        text += (
            f"; restore the changes of a run on another machine with `{restore}`; of a Riak cluster, with "
            "that run's own state file (--state)"
        )
    return UsageError(text)


def nothing_to_restore(store: StateStore) -> str:
    """The message where the state has no run to restore."""
    other = store.command("restore", "--cluster", "NAME")
    what = f"{store.where} has no run with unrestored changes"
    return f"nothing to restore: {what}. For a run of another machine: `{other}`"


def _lines(entries: Sequence[RunEntry]) -> list[str]:
    return [
        f"  {e.run}  {e.cluster}  {state_in_words(e)}  begun {_when(e.started)} by {e.operator} on {e.host}"
        for e in entries
    ]


def _when(at: Instant) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def past_times(open_state: Callable[[DatabaseUse], StateStore], cluster: str) -> PastTimes:
    """What past runs of a cluster took, as far as it can be read: no plan and no run needs a prediction."""
    times = PastTimes()
    with suppress(StateMissing), open_state(DatabaseUse.READ) as store:
        for entry in reversed(store.runs(cluster=cluster, limit=_PAST_RUNS)):
            with suppress(JournalError):  # a damaged journal of an old run is reported where it is shown
                times = times.then(times_of(store.replay(entry.run)))
    return times


def is_missing(open_state: Callable[[DatabaseUse], StateStore]) -> bool:
    """Whether there is no state database yet, in the place that was named or in the usual one.

    Raises:
        JournalError: there is one, and it cannot be read.
    """
    with suppress(StateMissing), open_state(DatabaseUse.READ) as store:
        return store.in_memory
    return True


ACCEPT: Final = "--accept-recorded-commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A run as the state records it."""

    entry: RunEntry
    records: tuple[Record, ...]
    state: RunState  # what its journal leads to
    shared: bool = False  # whether others can write the state that it is from

    @property
    def started(self) -> RunStarted:
        """How it began."""
        return self.state.begun

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

    def require_same(self, ports: ClusterPorts, read: Reading[ClusterView]) -> None:
        """Refuse a cluster other than the run's own. A cluster that cannot be read may be the same.

        Args:
            ports: of the cluster as its file is now.
            read: what answers at its endpoints.

        Raises:
            UsageError: the file names another cluster, or another one answers at its endpoints.
        """
        name, uuid = self.started.cluster, self.started.cluster_uuid
        began = f"run {self.entry.run} began on cluster {name!r}"
        if ports.name != name:
            raise UsageError(f"{ports.source}: `name` is {ports.name!r}, and {began}; correct `name`")
        if isinstance(read, Unknown) or read.master is None:
            return
        if read.name != name:
            raise UsageError(f"{ports.source}: {read.name!r} answers at its endpoints, and {began}")
        if uuid and read.uuid != uuid:
            raise UsageError(
                f"{ports.source}: a cluster of that name and of uuid {read.uuid} answers at its endpoints, "
                f"and {began} of uuid {uuid}; correct `endpoints`"
            )

    def require_free(self, store: StateStore) -> None:
        """Refuse, before a question, a cluster that a run of this state and this machine has, as itself.

        Raises:
            LeaseError: its process certainly runs.
        """
        found = store.lease(self.started.cluster_uuid).read()
        if isinstance(found, LeaseRecord):
            holder = ClusterHolder.of(self.started.cluster, found, state=store.state)
            if holder.here:
                raise holder.refusal()

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
    if not any(isinstance(record.event, RunStarted) for record in records):
        raise JournalError(f"run {entry.run} was killed before it began: there is nothing to resume")
    return PastRun(entry=entry, records=records, state=replay(entry.run, records), shared=store.shared)


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


LIMIT: Final[Seconds] = 3.0
"""A cluster that takes longer is left out. Secrets are resolved within it too."""


def _why_not(past: PastRun, at: Instant) -> str:
    """Why nothing is sent to the cluster of this run, in words; empty if it is read."""
    refused = past.state.process.refused
    if refused is not None and at - past.records[-1].at < AGAIN_SECONDS:
        # The run has sent its secret a moment ago: one more refusal may lock the account.
        return f"{refused.refusal.sentence} a moment ago"
    return kind_of(past.started.policy.kind).words.unread


def read_now(past: PastRun, reach: Callable[[], ClusterPorts], at: Instant) -> Reading[ClusterReadings]:
    """Read members, indices and settings of the cluster of a run.

    Args:
        past: the run.
        reach: makes the ports of its cluster. It is called in another thread, which is left to itself after
            the limit.
        at: now.

    Returns:
        `cluster` and `settings`; `Unknown` if it may not be read, does not answer within `LIMIT`, is another
        cluster, or has a wrong cluster file or secret; or after a defect of the program.
    """
    why_not = _why_not(past, at)
    if why_not:
        return Unknown(reason=why_not)
    reading = Daemons(1, "cluster now").submit(_read, past, reach)
    try:
        return reading.result(LIMIT)
    except TimeoutError:
        return Unknown(reason=f"it has not answered within {LIMIT:.0f}s")
    except OrchestratorError as error:
        return Unknown(reason=str(error))
    except Exception as defect:  # noqa: BLE001  (the journal is shown all the same)
        return Unknown(reason=f"a defect of the program: {type(defect).__name__}")


def _read(past: PastRun, reach: Callable[[], ClusterPorts]) -> Reading[ClusterReadings]:
    with closing(reach()) as ports:
        readings = ports.cluster.observe({Look.CLUSTER, Look.SETTINGS})
        past.require_same(ports, readings.cluster)
        if isinstance(readings.cluster, Unknown) and isinstance(readings.settings, Unknown):
            return readings.cluster
        return readings
