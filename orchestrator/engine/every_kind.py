"""Predicates for every kind of cluster: the run's own lease, the members, the hosts, the budget.

A missing reading is a hold: unknown is never healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import wraps
from typing import Final

from orchestrator.engine.gates import gates_open
from orchestrator.engine.largest_safe import Bound
from orchestrator.engine.predicates import ByPolicy, Evidence, Finding, Predicate, Question
from orchestrator.engine.waves import Machines, machines_of
from orchestrator.formats import listed
from orchestrator.model.action import ProbeSettings
from orchestrator.model.archived import what_to_do
from orchestrator.model.cluster import DATA_ROLES, Incarnation, Node, NodeName
from orchestrator.model.observation import ClusterView, HostView, ServiceState
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import ConfigurationManagement, Policy, Strategy
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.model.remembered import for_the_same_objects

_OUT_OF_REACH_SECONDS: Final[Seconds] = 60.0
"""A host that has not answered for this long before the first stop needs a person."""

_THIRD: Final = 3

SHOWN: Final = 5
"""How many names one piece of evidence lists: more would hide the message."""

_PARTS: Final = {
    "cluster": "cluster state",
    "settings": "cluster settings",
    "health": "health",
    "activity": "activity",
    "disks": "disks",
}
"""Parts of an observation, with their names in messages."""

_GONE: Final = (
    "was in the cluster when the run began and is not now: start it, and the run continues by itself; if it "
    "is gone for good, end this run with `{stop}` and begin another"
)

_TOO_FEW: Final = (
    "start those that are missing, or correct `expect.nodes` in the cluster file and begin another run"
)

_GOING: Final = (ServiceState.STOPPING, ServiceState.STOPPED, ServiceState.FAILED)
"""States of a service whose node the master may still list, but only for a short time."""

Check = Callable[[Question, ClusterView], Iterator[Finding]]


def some(names: list[str]) -> str:
    """A few names and how many more there are."""
    return listed(names, SHOWN)


def on_cluster(of_cluster: Check) -> Callable[[Question], Iterator[Finding]]:
    """A predicate that needs the cluster state; its docstring is the check's."""

    @wraps(of_cluster)
    def check(question: Question) -> Iterator[Finding]:
        view = question.observation.cluster
        if isinstance(view, Unknown):
            yield "cluster state", view
        else:
            yield from of_cluster(question, view)

    return check


def fresh(*parts: str) -> Callable[[Question], Iterator[Finding]]:
    """The predicate that these parts were read, after the last action of the run."""

    def observation_is_fresh(question: Question) -> Iterator[Finding]:
        """The reading is complete, and was taken after the last action of the run."""
        seen, state = question.observation, question.state
        for part in parts:
            read = getattr(seen, part)
            if isinstance(read, Unknown):
                yield _PARTS[part], read
        if not isinstance(seen.cluster, Unknown) and seen.cluster.master is None:
            yield "master", "the cluster has no elected master"
        if seen.at < state.process.acted_at:
            early = state.process.acted_at - seen.at
            yield "reading", f"taken {early:.1f} s before the last action of this run"
        if not isinstance(seen.health, Unknown) and not seen.health.settled:
            yield "health", "the master's task queue was not empty in time, so the reading may be old"

    return observation_is_fresh


def cluster_is_the_one_named(question: Question, view: ClusterView) -> Iterator[Finding]:
    """The cluster has the same name and uuid as at the start of the run."""
    if view.name != question.policy.cluster:
        yield f"cluster {view.name}", f"the cluster file names {question.policy.cluster}"
    if question.state.begun.cluster_uuid and view.uuid != question.state.begun.cluster_uuid:
        yield f"cluster {view.uuid}", f"the run began on {question.state.begun.cluster_uuid}"


def lease_is_held(question: Question) -> Iterator[Finding]:
    """The run holds the lease. A lost or unreadable lease holds the next stop; a removed one ends the run."""
    lease = question.observation.lease
    if isinstance(lease, Unknown):
        yield "lease", lease
    elif not lease.held:
        yield "lease", lease.holder
    elif question.state.process.lease_lost is not None:
        yield "lease", question.state.process.lease_lost


_NOT_ACCEPTED_YET: Final = "the cluster has not accepted a settings update yet"


def settings_are_writable(question: Question) -> Iterator[Finding]:
    """The cluster accepted a settings update that changes nothing."""
    if question.state.process.probed:
        return
    settings = question.observation.settings
    failure = question.state.failure_of(ProbeSettings())
    archived = () if isinstance(settings, Unknown) else settings.archived
    reason = failure.reason if failure else "" if archived else _NOT_ACCEPTED_YET
    # The failure may be another one than theirs; if it is theirs, it may say already what to do.
    advice = what_to_do(archived) if archived and "archived.*" not in reason else ""
    yield "cluster settings", "; ".join(filter(None, (reason, advice)))


def expected_nodes_present(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every member at the start is a member now, and there are at least `expect.nodes` members.

    So is every node of the run: one that left after the plan, before the first reading, is not in the
    baseline, which excuses its copies. Members without data and without a vote may come and go, unless they
    are to be stopped now. Nodes that the operator skips (`resume --skip`) may be absent.
    """
    present = view.members
    for name in sorted(_away(question, view) | (question.wave.nodes - present.keys())):
        yield f"node {name}", _GONE.format(stop=question.state.command("stop"))
    for name, detail in _going(question.observation.hosts):
        if name in present and name not in question.wave.nodes:
            why = f"its service is not running, so this node is about to leave the cluster: {detail}"
            yield f"node {name}", why
    for node in question.state.nodes_in(NodePhase.FAILED):
        yield f"node {node.name}", f"failed in this run: {node.failure}"
    expected = question.policy.expect_nodes
    if expected is not None and len(present) + len(question.state.done_without - present.keys()) < expected:
        yield "nodes", f"{len(present)} present, {expected} expected: {_TOO_FEW}"


@for_the_same_objects
def _going(hosts: Mapping[NodeName, Reading[HostView]]) -> tuple[tuple[NodeName, str], ...]:
    """The hosts on which the service is not running, with what they say of it."""
    runs = ServiceState.RUNNING  # nearly all of them
    here = hosts.items()
    off = [(n, h) for n, h in here if not isinstance(h, Unknown) and h.service is not runs]
    return tuple((name, host.detail) for name, host in off if host.service in _GOING)


def _away(question: Question, view: ClusterView) -> set[NodeName]:
    """Members of the baseline and nodes of the run that are absent, except those that can be spared."""
    baseline = question.state.baseline
    if baseline is None:
        return set()
    absent = set(not_listed(baseline.incarnations, question.state.nodes.names, view.members))
    return absent.difference(baseline.bystanders) - question.state.done_without if absent else absent


@for_the_same_objects
def not_listed(
    before: Mapping[NodeName, Incarnation], ours: Collection[NodeName], present: Mapping[NodeName, Node]
) -> frozenset[NodeName]:
    """Members of the baseline, and nodes of the run, that the master does not list."""
    return frozenset(before).union(ours).difference(present)


def one_zone_at_a_time(question: Question, view: ClusterView) -> Iterator[Finding]:
    """A wave stays within one awareness zone: allocation puts the copies of a shard into different zones.

    A node without a zone counts as a zone of its own.
    """
    attribute = question.policy.zone_attribute
    if attribute is None:
        return
    members = view.members
    present = [members[name] for name in question.wave.nodes if name in members]
    zones = {node.zone(attribute) or f"none ({node.name})" for node in present}
    if len(zones) > 1:
        yield "wave", ByPolicy(evidence=f"its nodes are in zones {', '.join(sorted(zones))}")


_MORE_AWAY: Final = "a higher `max_unavailable` in the playbook"


def budget_not_exceeded(question: Question, view: ClusterView) -> Iterator[Finding]:
    """The nodes of the wave, and those that are away already, are at most `max_unavailable`.

    Default: one machine with the strategy `node`, no limit with `zone`. With `shard-safe` the largest zone; a
    third of the nodes and of each tier if there are no zones.
    """
    allowed, wave = question.policy.max_unavailable, question.wave
    away: set[NodeName] = _away(question, view) | set(wave.nodes)
    if allowed is not None and len(away) > allowed:
        too_many = f"{len(away)} nodes would be away ({some(sorted(away))}), {allowed} allowed"
        by_itself = len(wave.nodes) > allowed
        yield "wave", ByPolicy(evidence=too_many, way=_MORE_AWAY) if by_itself else too_many
    one_machine = allowed is None and question.policy.strategy is Strategy.NODE
    if one_machine and not away <= set(wave.machine(wave.nodes[0])):
        yield "wave", f"{len(away)} nodes would be away ({some(sorted(away))}), one machine allowed"
    if allowed is None and question.policy.strategy is Strategy.SHARD_SAFE:
        for what, members, most in usual_budget(question.policy, view):
            gone = away.intersection(members)
            if len(gone) > max(most, len(wave.machine(wave.nodes[0]))):
                yield "wave", f"{len(gone)} of {what} would be away ({some(sorted(gone))}), {most} allowed"


def usual_budget(policy: Policy, view: ClusterView) -> Iterator[tuple[str, tuple[NodeName, ...], int]]:
    """Groups of nodes, with how many `shard-safe` may take down at once without `max_unavailable`.

    The largest zone, as `zone` would. Without zones a third of all nodes and of each tier, at least one. A
    tier that has all nodes, as on Riak, is not counted twice.
    """
    names = tuple(node.name for node in view.nodes)
    zones = Counter(zone for node in view.nodes if (zone := node.zone(policy.zone_attribute)) is not None)
    if zones:
        yield "the nodes", names, max(zones.values())
        return
    yield "the nodes", names, max(1, len(names) // _THIRD)
    for tier in sorted(DATA_ROLES, key=lambda role: role.value):
        members = tuple(node.name for node in view.nodes if tier in node.roles)
        if 0 < len(members) < len(names):
            yield f"tier {tier.value}", members, max(1, len(members) // _THIRD)


def budget_bounds(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    """What `budget_not_exceeded` leaves, as bounds for the search of the largest sets."""
    if policy.disables("budget_not_exceeded", "wave"):
        return
    if policy.max_unavailable is not None:
        everybody = {node.name: 1 for node in view.nodes}
        yield Bound(name="max_unavailable", counts=everybody, most=policy.max_unavailable)
        return
    for what, members, most in usual_budget(policy, view):
        name = f"{what}, by the default of max_unavailable"
        yield Bound(name=name, counts=dict.fromkeys(members, 1), most=most)


_AT_WORK: Final = (
    "the run waits for its end. If it never ends, begin another run with `configuration_management: ignore` "
    "in the playbook"
)


def no_management_run_on_candidates(question: Question) -> Iterator[Finding]:
    """No Puppet, Chef, Salt, Ansible, package manager or unattended upgrade is at work on the wave's hosts.

    With `configuration_management: ignore` they do not count; with `disable` too the run waits for their end.
    """
    if question.policy.configuration_management is ConfigurationManagement.IGNORE:
        return
    for name in question.wave.nodes:
        host = question.observation.host(name)
        if not isinstance(host, Unknown) and host.at_work:
            yield f"host of {name}", f"{some(list(host.at_work))} is at work there: {_AT_WORK}"


def selected_hosts_ready(question: Question) -> Iterator[Finding]:
    """Every selected host answers, the account has the rights that the run needs, and the service runs.

    The rights are to stop and start the service and, with `--reboot`, to reboot the host.

    All of them are checked before the first stop: a fault that is found only at node 17 would leave
    the cluster half restarted.
    """
    pending = (node.name for node in question.state.nodes_in(NodePhase.PENDING))
    checked = pending if question.first_stop else question.wave.nodes
    yield from ((f"host of {name}", why) for name, why in _not_ready(question, checked))


def hosts_that_no_time_readies(question: Question) -> Iterator[Finding]:
    """Of what `selected_hosts_ready` finds on this wave, all but hosts that were in reach a minute ago.

    A network that fails for seconds at the first reading need not cost the night. A key or an account that is
    refused is reported at once.
    """
    now = question.observation.at
    for name, why in _not_ready(question, question.wave.nodes):
        host = question.observation.host(name)
        since = host.since if isinstance(host, Unknown) and host.passes else None
        if since is None or now - since > _OUT_OF_REACH_SECONDS:
            yield f"host of {name}", why


def _not_ready(question: Question, names: Iterable[NodeName]) -> Iterator[tuple[NodeName, Evidence]]:
    """The hosts of these nodes that are not ready, each with its problem."""
    reboot = question.policy.reboot
    machines = machines_of(question.state, question.observation) if reboot else None
    for name in names:
        yield from ((name, why) for why in why_not_ready(question, name))
        if machines is not None and not isinstance(question.observation.host(name), Unknown):
            yield from ((name, why) for why in _taken_along(question, name, machines))


def why_not_ready(question: Question, name: NodeName) -> Iterator[Evidence]:
    """The problem of one host by itself."""
    host = question.observation.host(name)
    if question.unread_pass and name not in question.observation.hosts:
        return
    if isinstance(host, Unknown):
        yield host.reason.removeprefix(f"host of {name}: ")
        return
    faults = []
    if host.may_control is False or (question.first_stop and host.may_control is None):
        faults.append("the account may not stop and start the service")
    if question.policy.reboot and (
        host.may_reboot is False or (question.first_stop and host.may_reboot is None)
    ):
        faults.append("the account may not reboot the host")
    if host.service is not ServiceState.RUNNING:
        faults.append("the service does not run")
    if faults:
        yield f"{', and '.join(faults)}: {host.detail}"
    if question.policy.reboot and host.boot_id is None:
        unproven = "its boot id cannot be read, so a reboot could not be proven"
        yield ByPolicy(evidence=unproven, way="no `--reboot`")


def _taken_along(question: Question, name: NodeName, machines: Machines) -> Iterator[ByPolicy]:
    """The nodes that a reboot of a node's host would take down though they are not stopped with it."""
    if not question.policy.goes_by_machine:
        also: frozenset[NodeName] = frozenset()
        way = "`hosts.together: reboot` in the cluster file, so that they go together, or no `--reboot`"
    else:
        # Another wave may be asked about here, too: that of a node of which it is not yet the turn.
        in_wave = name in question.wave.nodes
        pending = {node.name for node in question.state.nodes_in(NodePhase.PENDING)}
        also = frozenset(question.wave.nodes if in_wave else pending)
        way = "all of them selected, so that they go together, or no `--reboot`"
    sharing: list[str] = [other for other in machines.others(name) if other not in also]
    if sharing:
        taken = f"{some(sharing)} on the same machine would go down with it"
        yield ByPolicy(evidence=taken, way=way)


# What each kind of cluster has in its list ------------------------------------

CLUSTER_IS_THE_ONE_NAMED: Final = Predicate(
    why="A wrong address in a cluster file would restart another cluster.",
    then="Correct the endpoints or the name in the cluster file.",
    check=on_cluster(cluster_is_the_one_named),
    may_be_disabled=False,
    passes_with_time=False,
)

LEASE_IS_HELD: Final = Predicate(
    why="Two runs on one cluster take two nodes down at once.",
    then="Wait for the other run, whose machine the hold names. Never delete the lease of a run that lives.",
    check=lease_is_held,
    may_be_disabled=False,
)

BUDGET_NOT_EXCEEDED: Final = Predicate(
    why="The operator has set how many nodes may be down at once.",
    then="Wait for the nodes that are away, or raise `max_unavailable` in the playbook.",
    check=on_cluster(budget_not_exceeded),
    about_wave=True,
    remedy="allow as many with `max_unavailable`",
)

SELECTED_HOSTS_READY: Final = Predicate(
    why="A host that cannot be reached or controlled must be found before a node is stopped.",
    then="Repair the host, the service or the right that the hold names; `validate` checks all hosts.",
    check=selected_hosts_ready,
    lasting=hosts_that_no_time_readies,
    about_wave=True,
    own_reasons=True,
    unread_in_recovery=True,
)

NO_MANAGEMENT_RUN_ON_CANDIDATES: Final = Predicate(
    why="It may start the service while its node is to be down, or replace packages under it.",
    then="Wait for its end, or end it on the host. Stop what starts it again for the time of the run.",
    check=no_management_run_on_candidates,
    about_wave=True,
    unread_in_recovery=True,
)

GATES_OPEN: Final = Predicate(
    why="Systems around the cluster, such as a queue, may not tolerate a stopped node now.",
    then="Correct what the gate watches, such as a full queue or an alert, or wait for it.",
    check=gates_open,
)
