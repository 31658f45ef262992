"""Checks everything that a run needs. Temporary changes are undone."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar, assert_never

from orchestrator.around.annotations import call as ask_grafana
from orchestrator.around.outbox import SEND_SECONDS
from orchestrator.around.silence import call as ask_alertmanager
from orchestrator.around.ways import require_usable
from orchestrator.around.web import NotSent
from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.config.around import Around
from orchestrator.config.cluster import (
    HostsFile,
    HostsFileSpec,
    of_cluster,
)
from orchestrator.config.cluster_parts import ClusterKeys
from orchestrator.config.elasticsearch import AcceptSpec, ClusterSpec, PlaybookSpec
from orchestrator.config.gates import gates_in, secrets_in
from orchestrator.config.playbook import around_in
from orchestrator.config.policy import require_kind, require_playbook
from orchestrator.config.riak import RiakClusterSpec, RiakPlaybookSpec
from orchestrator.elasticsearch.rules.predicates import is_waived
from orchestrator.elasticsearch.rules.returning import Away, returns
from orchestrator.engine.gates import judged
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, JournalError, UsageError
from orchestrator.hosts.check import Grade, check_hosts
from orchestrator.hosts.connections.pool import Connections
from orchestrator.kinds import kind_of
from orchestrator.model.action import Done, InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.gate import Gate
from orchestrator.model.host import Connect
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import ClusterView, Level, Look
from orchestrator.model.policy import (
    Kind,
    LeasePlace,
    Policy,
    numbers,
)
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.model.riak import RiakView, timer_key
from orchestrator.owners import who_reads
from orchestrator.ports import ClusterPort, ClusterReadings
from orchestrator.runs.dead_run import DeadRun, dead_run, lease_record
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.reach import host_settings
from orchestrator.runs.selection import require_cluster
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import provably_gone
from orchestrator.runtime.store import StateStore
from orchestrator.view.checks import Brief, Check, check_lines, verdict
from orchestrator.view.left_behind import LeftBehind
from orchestrator.view.text import counted, listed, wrapped

_T = TypeVar("_T")

_LOOK: Final = frozenset({Look.CLUSTER, Look.SETTINGS, Look.HEALTH, Look.ACTIVITY, Look.DISKS})


def check_cluster(cluster: str, *, playbook: str | None, reboot: bool, verbose: bool, output: Output) -> int:
    """Check each point and print the result. Returns the exit code."""
    context = context_of(output)
    named = context.hosts(cluster)
    if isinstance(named.spec, HostsFileSpec):
        flag = "--playbook" if playbook else "--reboot" if reboot else None
        if flag is not None:
            raise UsageError(f"{flag}: not for {named.path}: nothing restarts hosts without a cluster")
        return int(_check_only_hosts(named, named.spec.tune, context, brief=not verbose))
    file = of_cluster(named)
    book = context.files.playbook(playbook or file.spec.playbook)
    require_playbook(file, book)
    if book.spec.tune:
        require_kind(file, context.files.tuning_profile(book.spec.tune))
    files = f"{file.path} and its playbook{' and tuning profile' if book.spec.tune else ''} are sound"
    ports, around = context.ports(file), around_in(file, book)
    folder = book.path.resolve().parent
    try:
        ports.require_secrets(secrets_in(book.spec.gates, folder))
        require_usable(around, ports.run_context)
        gates = gates_in(book.spec.gates, folder)
        secrets = ports.secret_files((*secrets_in(book.spec.gates, folder), *around.references))
        hastens = isinstance(book.spec, RiakPlaybookSpec) and book.spec.hasten_handoff
        sound = Check(subject="config", point="files", good=True, message=files, news=True)
        accept = book.spec.accept if isinstance(book.spec, PlaybookSpec) else AcceptSpec()
        checks = _checks(
            ports, context, reboot=reboot, lease_place=book.spec.lease, hastens=hastens, accept=accept
        )
        every = chain((sound,), _secrets(secrets), checks, _gates(ports, gates), _surroundings(around, ports))
        with context.reading(f"cluster {file.spec.name} and its hosts"):
            return int(_report(every, context, before="a restart", brief=not verbose))
    finally:
        ports.close()


def _check_only_hosts(file: HostsFile, profile: str | None, context: Context, *, brief: bool) -> ExitCode:
    """Check what the tuning of hosts without a cluster needs."""
    file.check_files()
    for warning in file.overrides_without_node(file.named_nodes()):
        context.warn(warning)
    if profile:
        context.files.tuning_profile(profile)
    files = f"{file.path}{' and its tuning profile are' if profile else ' is'} sound"
    ports = context.ports(file)
    try:
        ports.require_secrets(())
        sound = Check(subject="config", point="files", good=True, message=files, news=True)
        hosts = {NodeName(name): address for name, address in file.named_nodes().items()}
        checks = _hosts(ports, hosts, reboot=False, lease_place=LeasePlace.STATE)
        every = chain((sound,), _secrets(ports.secret_files(())), _not_named(file, hosts), checks)
        with context.reading(counted(len(hosts), "host")):
            return _report(every, context, before="tuning", brief=brief)
    finally:
        ports.close()


def _not_named(file: HostsFile, hosts: Iterable[NodeName]) -> Iterator[Check]:
    """What the file does not name, so that a part of a profile is not for these hosts."""
    for node in hosts:
        settings = file.host(node)
        for point, there, what in (
            ("service", settings.service.unit, "the limits of a service"),
            ("data", settings.data, "disks"),
        ):
            if not there:
                said = f"not named (`hosts.{point}`), so {what} are not tuned"
                yield Check(subject=node, point=point, good=None, message=said, of_host=True)


def _report(every: Iterable[Check], context: Context, *, before: str, brief: bool) -> ExitCode:
    """Print the checks as they are made, and the result."""
    made: list[Check] = []
    checks = _noting(made, every)
    if context.output.for_people:
        for line in check_lines(checks, brief=Brief() if brief else None, width=context.columns):
            context.say(line)
        context.say(*wrapped(verdict(made, before=before), context.columns))
    else:
        for check in checks:
            _say(check, context)
    bad = sum(check.good is False for check in made)
    return context.end(ExitCode.HELD if bad else ExitCode.DONE, bad=bad)


def _secrets(files: Sequence[Path]) -> Iterator[Check]:
    for path in (path for path in files if path.is_file()):  # what is missing is reported where it is read
        wrong = who_reads(path)
        message = wrong or f"no other account can read {path}"
        yield Check(subject="config", point="secret", good=wrong is None, message=message)


def _checks(
    ports: FilePorts,
    context: Context,
    *,
    reboot: bool,
    lease_place: LeasePlace,
    hastens: bool,
    accept: AcceptSpec,
) -> Iterator[Check]:
    """The cluster and its hosts. If the cluster cannot be read, the hosts are those that the file names."""
    read = ports.cluster.observe(_LOOK)
    view = _view(read, ports)
    if isinstance(view, str):
        yield Check(subject="cluster", point="identity", good=False, message=view)
        yield from _endpoints(ports)
        yield from _hosts_of_the_file(ports, reboot=reboot, lease_place=lease_place)
        return
    leader = f"{kind_of(of_cluster(ports.file).spec.kind).words.leader} {view.master or 'none'}"
    what = f"{view.distribution} {view.version}, {len(view.nodes)} nodes, {leader}"
    yield Check(subject="cluster", point="identity", good=view.master is not None, message=what, news=True)
    record, left = _leased(ports, context, view, lease_place)
    yield from expected_checks(of_cluster(ports.file).spec, view, record, dead=left is not None)
    yield from _endpoints(ports)
    if through := ports.only_through([node.name] for node in view.nodes):
        context.warn(f"blind in every wave with {listed(sorted(through.nodes))}: {through}")
    yield from _parts(read, view)
    if view.riak is None:
        if left is None:  # else a restart restores what it left first
            yield from health_checks(view, accept.red)
        yield from copies_checks(read, view, accept.not_returning)
    addresses = {node.name: node.address for node in view.nodes}
    for warning in ports.file.overrides_without_node(ports.members(view)):
        context.warn(warning)
    yield from _hosts(ports, addresses, reboot=reboot, lease_place=lease_place)
    if hastens:
        yield from pace_checks(ports.cluster)
    yield from lease_checks(ports, lease_place, None if left is None else left.words(context.clock.now()))


def _leased(
    ports: FilePorts, context: Context, view: ClusterView, place: LeasePlace
) -> tuple[LeaseRecord | None, DeadRun | None]:
    """The record of the lease, and what a dead run left here, as far as the usual state shows it."""

    def recorded(read: Callable[[StateStore], _T], otherwise: _T) -> _T:
        with suppress(JournalError), context.state(None, DatabaseUse.READ) as store:
            return read(store)
        return otherwise

    record = lease_record(ports, place, view.uuid, recorded)
    left = dead_run(record, recorded, provably_gone)
    return record if isinstance(record, LeaseRecord) else None, left


def _view(read: ClusterReadings, ports: FilePorts) -> ClusterView | str:
    """The cluster that the file names, or why it is not there."""
    try:
        return require_cluster(read.cluster, ports.file.spec.name, str(ports.file.path))
    except UsageError as error:
        return str(error)


def health_checks(view: ClusterView, accepted: Collection[str]) -> Iterator[Check]:
    """Say which indices are red, so that a restart would be held, and how many copies are missing already."""
    missing = view.not_started
    for name in sorted({copy.shard.index for copy in missing if copy.primary} - {*accepted}):
        why = "red: a primary is not started, and a restart is held until it is (predicate cluster_not_red)"
        yield Check(subject=f"index {name}", point="primaries", good=False, message=why)
    if missing:
        what = "is not started: a restart does" if len(missing) == 1 else "are not started: a restart does"
        said = f"{counted(len(missing), 'copy', 'copies')} {what} not wait for what is missing before it"
        yield Check(subject="cluster", point="copies", good=None, message=said)


def copies_checks(read: ClusterReadings, view: ClusterView, accepted: Sequence[str]) -> Iterator[Check]:
    """Check that the cluster would allocate every started copy again after the restart of its node.

    One of an index that ILM shrinks now is no fault: a run waits for the end of that.
    """
    if isinstance(read.settings, Unknown):
        return  # reported beside this
    policy = Policy(kind=Kind.ELASTICSEARCH, cluster=view.name, accept_not_returning=tuple(accepted))
    here = returns(policy, view, read.settings, read.disks)
    found: dict[str, Away] = {}
    for away in (away for name in view.members for away in here.away(view, name)):
        if not is_waived(policy, away.index):
            found.setdefault(away.index.name, away)
    for name, away in found.items():
        good = None if away.index.shrinks else False
        yield Check(subject=f"index {name}", point="copies", good=good, message=_why_away(away))
    if not found:
        yield Check(subject="cluster", point="copies", good=True, message="each would come back to a node")


def _why_away(away: Away) -> str:
    back = f"come back to {away.copy.node} after its restart"
    if isinstance(away.said, Unknown):
        why = f"whether {away.copy.shard} would {back} is not known: {away.said.reason}"
    else:
        why = f"{away.copy.shard} would not {back}: {away.said}"
    then = "a run waits until ILM has shrunk the index" if away.index.shrinks else "correct that"
    return f"{why}; {then}, or accept it in the playbook (`accept.not_returning`)"


def expected_checks(
    spec: ClusterKeys, view: ClusterView, record: LeaseRecord | None = None, *, dead: bool = False
) -> Iterator[Check]:
    """Compare the cluster with what its file expects. Its name is a part of the identity.

    A node that a run has stopped counts as present: the run starts it, or a restart if the run is `dead`.
    """
    down = [one.node for one in record.in_hand if one.node not in view.members] if record else []
    there, wanted = len(view.members) + len(down), spec.expect.nodes
    if wanted is not None:
        message = f"{counted(there, 'node')}, at least {wanted} expected"
        if record is not None and down:
            starts = "a restart first starts" if dead else f"run {record.run} is at work on"
            message += f"; {starts} {listed(down)}"
        if there < wanted:
            message += (
                ": a run would wait and then be held; start those that are missing, or correct `expect.nodes`"
            )
        good = there >= wanted
        yield Check(subject="cluster", point="expect", good=good, message=message, news=bool(down))
    lowest = spec.version if isinstance(spec, ClusterSpec) else None
    if lowest is not None:
        older = sorted(node.name for node in view.nodes if numbers(node.version) < numbers(lowest))
        message = f"{listed(older)} below `version: {lowest}`" if older else f"no node is below {lowest}"
        yield Check(subject="cluster", point="version", good=not older, message=message)


def _endpoints(ports: FilePorts) -> Iterator[Check]:
    for url, wrong in ports.cluster.endpoints().items():
        yield Check(
            subject="cluster", point="endpoint", good=wrong is None, message=wrong or f"{url} answers"
        )


def _parts(read: ClusterReadings, view: ClusterView) -> Iterator[Check]:
    parts = {"settings": read.settings, "health": read.health, "activity": read.activity, "disks": read.disks}
    for point, part in parts.items():
        if part is NOT_READ:
            continue  # this kind of cluster has no such part
        yield _readable("cluster", point, part)
    if view.riak is not None:
        yield from ring_checks(view.riak)


def _hosts_of_the_file(ports: FilePorts, *, reboot: bool, lease_place: LeasePlace) -> Iterator[Check]:
    """The hosts whose addresses the file has; of the others, that they are not checked."""
    named = {NodeName(name): address for name, address in ports.file.named_nodes().items()}
    placed = {
        node: address
        for node, address in named.items()
        if address or host_settings(ports.file, {node: ""}, ports.resolver)[node].connect is Connect.LOCAL
    }
    yield from _hosts(ports, placed, reboot=reboot, lease_place=lease_place)
    missing = [node for node in named if node not in placed] if named else ["hosts"]
    for subject in missing:
        listed_in = "nodes" if "nodes" in type(ports.file.spec.hosts).model_fields else "overrides"
        key = f"hosts.{listed_in}"
        message = f"not checked: the cluster did not give its address, and the file has none (`{key}`)"
        yield Check(subject=subject, point="address", good=None, message=message)


def _hosts(
    ports: FilePorts, addresses: Mapping[NodeName, str], *, reboot: bool, lease_place: LeasePlace
) -> Iterator[Check]:
    settings = host_settings(ports.file, addresses, ports.resolver)
    spec, in_cluster = ports.file.spec, lease_place is LeasePlace.CLUSTER
    folder = spec.riak.lease_directory if isinstance(spec, RiakClusterSpec) and in_cluster else None
    connections = Connections()
    try:
        for node, found in check_hosts(
            settings.values(), connections, reboot=reboot, redact=ports.redact, lease_directory=folder
        ).items():
            for one in found:
                yield Check(
                    subject=node,
                    point=one.point.value,
                    good=None if one.grade is Grade.NOT_CHECKED else one.grade is Grade.GOOD,
                    message=one.message,
                    of_host=True,
                )
    finally:
        connections.close()


def _noting(made: list[Check], checks: Iterable[Check]) -> Iterator[Check]:
    """The checks; each is kept, for the result."""
    for check in checks:
        made.append(check)
        yield check


def ring_checks(riak: RiakView) -> Iterator[Check]:
    """Check what the predicates need of Riak, and each node's `/stats`: without them a run holds at once."""
    parts: Mapping[str, Reading[object]] = {
        "status": riak.cluster,
        "ringready": riak.ring_ready,
        "ring": riak.ring,
        "n_val": riak.n_vals,
        "transfers": riak.transfers,
    }
    for point, part in parts.items():
        yield _readable("ring", point, part)
    for node, signs in riak.signs.items():
        yield _readable(node, "/stats", signs.stats)
    for node, why in riak.unidentified.items():
        yield Check(subject=node, point="process", good=False, message=why)


def _readable(subject: str, point: str, part: Reading[object]) -> Check:
    if isinstance(part, Unknown):
        return Check(subject=subject, point=point, good=False, message=part.reason)
    return Check(subject=subject, point=point, good=True, message="readable")


def pace_checks(cluster: ClusterPort) -> Iterator[Check]:
    """Check whether handoff can be hastened. If not, a run takes its usual time and reports it at its end."""
    read = cluster.observe({Look.CLUSTER, Look.SETTINGS, Look.RECOVERIES, Look.PACE})
    riak = None if isinstance(read.cluster, Unknown) else read.cluster.riak
    if riak is None or not riak.unstarted:
        said = "handoff is not hastened: Riak's version is not 3.2, or the ring cannot be read"
        yield Check(subject="ring", point="hasten_handoff", good=False, message=said)
        return
    settings = read.settings
    for node, count in riak.unstarted.items():
        timer = None if isinstance(settings, Unknown) else settings.at(Level.TRANSIENT, timer_key(node))
        wrong = count.reason if isinstance(count, Unknown) else ""
        if not wrong and timer is None:
            wrong = "its vnode_management_timer cannot be read"
        said = f"{wrong}; see ORCHESTRATE_RIAK_HASTEN in sudoers-riak, or set `hasten_handoff: false`"
        yield Check(
            subject=node, point="hasten_handoff", good=not wrong, message=said if wrong else "readable"
        )


def lease_checks(ports: FilePorts, place: LeasePlace, left: LeftBehind | None = None) -> Iterator[Check]:
    """Check whether the lease can be taken at its place in the playbook. A lease held by a run is no fault.

    In Elasticsearch a test record is written and removed, unless there is a lease. (On Riak the check of each
    host creates and removes a file.)
    """
    if left is not None:
        said = left.sentence("a restart")
        yield Check(subject="cluster", point="lease", good=True, message=said, news=True)
        return
    if place is not LeasePlace.CLUSTER:
        return
    record = ports.lease.read()
    if isinstance(record, Unknown):
        yield Check(subject="cluster", point="lease", good=False, message=record.reason)
    elif record is None:
        match tried := ports.lease.try_out():
            case None:
                said, good = "readable, no run holds it", True
            case Done():
                said, good = "no run holds it; a test record was written and removed", True
            case InDoubt(reason=reason):
                said, good = f"whether a run can take it is not known: {reason}", False
            case Refused(reason=reason):
                said, good = f"no run can take it: {reason}", False
            case _:
                assert_never(tried)
        yield Check(subject="cluster", point="lease", good=good, message=said)
    else:
        held = f"readable, held by run {record.run} of {record.owner}"
        yield Check(subject="cluster", point="lease", good=True, message=held, news=True)


def _gates(ports: FilePorts, gates: Sequence[Gate]) -> Iterator[Check]:
    """Read each gate. A closed gate is no fault: a run waits for it."""
    read, by_name = ports.gates(gates).observe(), {gate.name: gate for gate in gates}
    for name in read:
        view = judged(by_name[name], read[name], RunState(run=""))
        if isinstance(view, Unknown):
            yield Check(subject="gate", point=name, good=False, message=f"cannot be read: {view.reason}")
        else:
            how = "open" if view.open else "closed"
            said = f"{how}: {view.evidence}"
            yield Check(subject="gate", point=name, good=True, message=said, news=True)


def _metrics(path: Path) -> Check:
    """Whether a run could write its metrics: the file is replaced, so its folder counts."""
    folder = path.parent
    if not folder.is_dir():
        why = f"there is no folder {folder}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"this account may not write the folder {folder}"
    elif path.is_dir():
        why = f"{path} is a folder"
    else:
        return Check(subject="metrics", point="textfile", good=True, message=f"{path} can be written")
    return Check(
        subject="metrics", point="textfile", good=False, message=f"{why}; a run would not write metrics"
    )


def _surroundings(around: Around, ports: FilePorts) -> Iterator[Check]:
    """Ask the servers in which a run silences alerts and makes annotations; look where it writes metrics."""
    if around.textfile is not None:
        yield _metrics(around.textfile)
    context, at, grafana = ports.run_context, around.alertmanager, around.grafana

    def check(subject: str, point: str, name: str, ask: Callable[[], object], lost: str) -> Check:
        try:
            ask()
        except (NotSent, ValueError) as error:
            why = ports.redact(str(error) if isinstance(error, NotSent) else "it does not answer with JSON")
            return Check(
                subject=subject, point=point, good=False, message=f"{name}: {why}; a run would not {lost}"
            )
        return Check(subject=subject, point=point, good=True, message=f"{name} answers")

    if at is not None:
        ask = partial(ask_alertmanager, at, context, "GET", "silences")
        yield check("silence", "alertmanager", at.name, ask, "silence alerts")
    if grafana is not None:

        def listed() -> None:
            ask_grafana(grafana, context.secret(grafana.token), "GET", "?limit=1", seconds=SEND_SECONDS)

        yield check("annotations", "grafana", grafana.name, listed, "make annotations")


def _say(check: Check, context: Context) -> None:
    context.say_json(
        {
            "event": "check",
            "subject": check.subject,
            "point": check.point,
            "good": check.good,
            "message": check.message,
        }
    )
