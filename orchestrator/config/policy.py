"""Join cluster file, playbook and flags into the policy of a run. Flags win over the playbook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

from orchestrator.config.cluster import ClusterFile
from orchestrator.config.disabling import PredicateNames, disabled_predicate
from orchestrator.config.faults import near
from orchestrator.config.gates import gates_in
from orchestrator.config.management import with_disabling
from orchestrator.config.merging import MergeFlags
from orchestrator.config.playbook import Playbook
from orchestrator.config.playbook_parts import LimitsSpec, PlaybookKeys
from orchestrator.config.quantities import parse_budget, parse_duration, parse_time_or_age
from orchestrator.config.selection import parse_due, require_consistent
from orchestrator.config.upgrade import upgrade_to
from orchestrator.errors import UsageError
from orchestrator.model.cluster import Zone
from orchestrator.model.host import Connect
from orchestrator.model.policy import (
    ConfigurationManagement,
    Deadlines,
    Hook,
    Hooks,
    Kind,
    Policy,
    Selection,
    Strategy,
    Together,
)
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.tuning import TuningProfile
from orchestrator.model.upgrade import Upgrade

WITHHELD_FOR_LONG: Final[Seconds] = 60 * 60.0
"""Default limit for disabled allocation with `--reboot` (a server's firmware alone takes ten minutes), and
for an upgrade."""

_OF_POLICY: Final = frozenset(each.name for each in fields(Policy))
"""Keys of a playbook with these names are taken over as they are, unless they are named in `build_policy`."""

MAX_REASON: Final = 1000
"""Characters of `--reason`: it is written to every journal and to the lease's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Selection and policy flags of `restart`, `plan` and similar commands, as typed."""

    strategy: str | None = None
    max_unavailable: str | None = None  # `N` or `N%`
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    zone: str | None = None
    started_before: str | None = None  # a time with its offset, or a duration
    due: tuple[str, ...] = ()  # `version:V`, `reboot-required` or `config`, each
    to: str | None = None  # the version of an upgrade; None for a restart
    tune: bool | None = None  # None without `--tune` and `--no-tune`
    reboot: bool = False
    pause_after: int | None = None
    begin_anyway: bool = False
    disable_predicate: tuple[str, ...] = ()  # `NAME` or `NAME=SUBJECT`, each
    reason: str | None = None
    timeout: str | None = None  # a duration
    merge: MergeFlags | None = None  # flags of the commands that merge; None for a restart alone

    def __post_init__(self) -> None:
        """Refuse a text in place of a tuple: each of its letters would be a separate pattern.

        Raises:
            UsageError: it is one.
        """
        for name in ("only", "exclude", "due", "disable_predicate"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise UsageError(f'{name} is a tuple of texts: write {name}=("{value}",)')


def build_policy(
    cluster: ClusterFile,
    playbook: Playbook,
    overrides: Overrides,
    *,
    predicates: PredicateNames,
    nodes: int | None,
    now: Instant,
    tuning: TuningProfile | None = None,
) -> Policy:
    """Join everything into the policy of a run.

    Args:
        cluster: the cluster file.
        playbook: the playbook.
        overrides: the flags.
        predicates: the predicates that can be disabled.
        nodes: number of nodes in the cluster, for a budget in percent; None before the cluster is read.
        now: start for a duration in `--started-before`.
        tuning: the profile that `profile_wanted` named.

    Raises:
        UsageError: a flag is wrong, or flags and files contradict each other; the flag or file is named.
    """
    spec = playbook.spec
    require_playbook(cluster, playbook)
    if tuning is not None:
        require_kind(cluster, tuning)
    _check_reboot(cluster, overrides)
    upgrade = _upgrade(cluster, playbook, overrides)
    strategy = _strategy(overrides.strategy) or spec.strategy
    budget = _flag("--max-unavailable", parse_budget, overrides.max_unavailable) or spec.max_unavailable
    _require_enough(playbook, overrides, nodes, cluster.spec.expect.nodes)
    together = cluster.spec.hosts.together
    gates = gates_in(spec.gates, playbook.path.resolve().parent)
    policy = replace(
        Policy(cluster=cluster.spec.name, **{key: value for key, value in spec if key in _OF_POLICY}),
        playbook=playbook.name,
        strategy=strategy,
        max_unavailable=budget.resolve(nodes or 1)
        if budget
        else _usual_budget(strategy, together, overrides),
        settle_consecutive=spec.settle.consecutive,
        deadlines=_deadlines(spec.deadlines, overrides),
        hooks=_hooks(spec),
        tune=tuning,
        upgrade=upgrade,
        gates=gates,
        expect_nodes=cluster.spec.expect.nodes,
        together=together,
        selection=_selection(overrides, spec, now),
        reboot=overrides.reboot,
        pause_after=_pause_after(overrides.pause_after),
        begin_anyway=overrides.begin_anyway,
        disabled_predicates=tuple(
            disabled_predicate(rule, predicates, gates) for rule in overrides.disable_predicate
        ),
        reason=_reason(overrides.reason),
        timeout=_flag("--timeout", parse_duration, overrides.timeout),
        zone_attribute=cluster.spec.zones_by(),
    )
    if overrides.merge is not None:
        require_segments(cluster)
    return spec.in_policy(policy, overrides.merge)


def profile_wanted(cluster: ClusterFile, playbook: Playbook, overrides: Overrides) -> str | None:
    """The tuning profile of a run: the playbook's, with `--tune` at least that of the kind; None without."""
    if overrides.tune is False:
        return None
    return playbook.spec.tune or (cluster.spec.kind.value if overrides.tune else None)


def require_playbook(cluster: ClusterFile, playbook: Playbook) -> None:
    """Refuse a playbook for another kind of cluster.

    Raises:
        UsageError: it was.
    """
    if playbook.spec.kind is not cluster.spec.kind:
        raise UsageError(
            f"the playbook {playbook.name} is for {playbook.spec.kind.value} (`kind`), and "
            f"{cluster.spec.name} is {cluster.spec.kind.value}: name another one in {cluster.path} "
            "(`playbook`) or with --playbook"
        )


def require_segments(cluster: ClusterFile) -> None:
    """Refuse to merge on a kind of cluster without force-merges.

    Raises:
        UsageError: it is one.
    """
    if not cluster.spec.MERGES:
        raise UsageError(
            f"{cluster.spec.name} is {cluster.spec.kind.value}, which has no segments to merge: "
            f"post-bulk-index and force-merge are for {Kind.ELASTICSEARCH.value}; `orchestrate restart` "
            "restarts its nodes"
        )


def require_kind(cluster: ClusterFile, tuning: TuningProfile) -> None:
    """Refuse a profile for another kind of store.

    Raises:
        UsageError: it was.
    """
    if tuning.applies_to != cluster.spec.kind.value:
        raise UsageError(
            f"the tuning profile {tuning.name} is for {tuning.applies_to} (`applies_to`), and "
            f"{cluster.spec.name} is {cluster.spec.kind.value}"
        )


def _usual_budget(strategy: Strategy, together: Together, overrides: Overrides) -> int | None:
    """Default maximum of nodes that may be down at once; None = a whole zone or machine."""
    whole_machine = overrides.reboot or overrides.to is not None
    by_machine = together is Together.ALWAYS or (together is Together.REBOOT and whole_machine)
    return 1 if strategy is Strategy.NODE and not by_machine else None


Parsed = TypeVar("Parsed")


def _flag(flag: str, parse: Callable[[str], Parsed], value: str | None) -> Parsed | None:
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        raise UsageError(f"{flag} {value}: {error}") from None


def _strategy(written: str | None) -> Strategy | None:
    if written is None:
        return None
    known = [strategy.value for strategy in Strategy]
    if written not in known:
        raise UsageError(f"--strategy {written}: unknown; {near(written, known)}")
    return Strategy(written)


def _check_reboot(cluster: ClusterFile, overrides: Overrides) -> None:
    if not overrides.reboot:
        return
    hosts = cluster.spec.hosts
    local = [
        f"overrides of {pattern}"
        for pattern, over in hosts.overrides.items()
        if over.connect is Connect.LOCAL
    ]
    if hosts.connect is Connect.LOCAL:
        local.insert(0, "hosts")
    if local:
        message = "it would reboot the machine that this program runs on"
        raise UsageError(
            f"--reboot: refused with `connect: local` ({', '.join(local)} in {cluster.path}): {message}"
        )


def _upgrade(cluster: ClusterFile, playbook: Playbook, overrides: Overrides) -> Upgrade | None:
    if overrides.to is None:
        return None
    if playbook.spec.NO_UPGRADE:
        raise UsageError(f"{cluster.spec.name} is {cluster.spec.kind.value}: {playbook.spec.NO_UPGRADE}")
    if overrides.begin_anyway:
        raise UsageError(
            "--begin-anyway: not for an upgrade, since skipped nodes would leave mixed versions: correct "
            "the cause of the hold, or leave nodes out with --exclude"
        )
    return upgrade_to(overrides.to, playbook.spec.installs(), str(playbook.path))


def _deadlines(spec: LimitsSpec, overrides: Overrides) -> Deadlines:
    longer = {"withheld": WITHHELD_FOR_LONG} if overrides.reboot or overrides.to is not None else {}
    return Deadlines(**(longer | {key: value for key, value in spec if value is not None}))


def _hooks(spec: PlaybookKeys) -> Hooks:
    moments = {each.name: getattr(spec.hooks, each.name) for each in fields(Hooks)}
    hooks = Hooks(**{moment: tuple(Hook(**dict(one)) for one in ours) for moment, ours in moments.items()})
    if spec.configuration_management is not ConfigurationManagement.DISABLE:
        return hooks
    return with_disabling(hooks, spec.management_units)


def _selection(overrides: Overrides, spec: PlaybookKeys, now: Instant) -> Selection:
    require_consistent(overrides.only, overrides.exclude, overrides.zone)
    before = _flag("--started-before", parse_time_or_age, overrides.started_before)
    if before is not None and before.resolve(now) > now:
        raise UsageError(
            f"--started-before {overrides.started_before}: this time is in the future, so the flag leaves "
            "out no node; name a time in the past, or leave the flag out"
        )
    return Selection(
        only=overrides.only,
        exclude=overrides.exclude,
        zone=Zone(overrides.zone) if overrides.zone is not None else None,
        started_before=before.resolve(now) if before is not None else None,
        due=parse_due(overrides.due, reboot=overrides.reboot, files=spec.config_files or spec.USUAL_FILES),
    )


def _require_enough(
    playbook: Playbook, overrides: Overrides, nodes: int | None, expected: int | None
) -> None:
    """Refuse a number of nodes that the cluster does not have: it would bound nothing."""
    if nodes is None:
        return
    most = max(nodes, expected or 0)
    flag = _flag("--max-unavailable", parse_budget, overrides.max_unavailable)
    usual = None if flag else playbook.spec.max_unavailable
    wanted = {
        "--max-unavailable": flag.count if flag else None,
        f"{playbook.path}: max_unavailable": usual.count if usual else None,
        "--pause-after": overrides.pause_after,
    }
    for name, number in wanted.items():
        if number is not None and number > most:
            raise UsageError(f"{name} {number}: the cluster has {most} {'node' if most == 1 else 'nodes'}")


def _pause_after(nodes: int | None) -> int | None:
    if nodes is not None and nodes < 1:
        raise UsageError(f"--pause-after {nodes}: must be at least 1")
    return nodes


def _reason(reason: str | None) -> str | None:
    if reason is not None and len(reason) > MAX_REASON:
        raise UsageError(f"--reason: must have at most {MAX_REASON} characters")
    return reason
