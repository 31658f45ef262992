"""The host port with tuning: reads hosts against a profile, and makes the changes of one tunable on one host.

Results of `perform`: `Done`: every change is made and read back. `Refused`: certainly nothing was altered.
`InDoubt`: a part was made, or it does not read as written, or its end is unknown; a new reading is needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, assert_never

from orchestrator.hosts import sudo
from orchestrator.hosts.connection import CommandResult, HostConnection, HostError, Lost, Unreachable
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.outcomes import redacted, said
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.readings import ask, defect, read_hosts, unread
from orchestrator.model.action import ActionResult, Done, HostAction, InDoubt, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import HostFacts
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.model.tuning import HostTuning, TunableState, TuningProfile, TuningSetting, Verdict
from orchestrator.redact import Redactor, beginning_of
from orchestrator.tuning import boot
from orchestrator.tuning.boot import BootPlace, part_name
from orchestrator.tuning.facts import ANSWER_BYTES, facts_script, read_facts
from orchestrator.tuning.registry import TUNABLES
from orchestrator.tuning.tunable import FactReads, Tunable, unchanged
from orchestrator.tuning.tuning_script import TURN_SECONDS, describe_changes, read_outcome, tuning_script

TUNE_SECONDS: Final = 180.0
"""For the changes of one tunable: systemd gives a service 90 s to stop; tuned needs some for a profile."""

Way: TypeAlias = Callable[[NodeName], tuple[HostSettings, HostConnection]]
"""Finds a node's settings and connection; raises `HostError`."""


class TunableHosts(Hosts):
    """`HostPort` over the machines of a cluster's nodes: `Hosts`, and the tuning of them.

    A `TuneHost` is made and read back before `perform` returns.

    Args:
        settings: as of `Hosts`, and so are `redact`, `connections` and `now`.
    """

    def __init__(
        self,
        settings: Mapping[NodeName, HostSettings],
        *,
        redact: Redactor | None = None,
        connections: Connections | None = None,
        now: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        super().__init__(settings, redact=redact, connections=connections, now=now)
        self._tuner = Tuner(self._connection, self._redact, learn=self._passwords.learn)

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        """Read each node's host against a profile, in parallel, one round trip a host; without sudo."""
        return self._tuner.read(nodes, profile, self._bound(nodes))

    def facts(self, reads: Mapping[NodeName, FactReads]) -> Mapping[NodeName, Reading[HostFacts]]:
        """Read the requested facts of each node's host, in parallel, one round trip a host; without sudo."""
        return self._tuner.facts(reads, self._bound(reads))

    def perform(self, action: HostAction) -> ActionResult:
        """Perform an action; see the docstrings of this module and of `hosts.port` for the results."""
        if isinstance(action, TuneHost):
            return self._performed(partial(self._tuner.perform, action))
        return super().perform(action)

    def describe(self, action: HostAction) -> str:
        """The exact command line, of tuning one per change; free of secrets."""
        if isinstance(action, TuneHost):
            return self._described(action.node, partial(describe_changes, changes=action.changes))
        return super().describe(action)


class Tuner:
    """Tuning over the connections of a host port. Thread-safe.

    Args:
        way: finds settings and connection of a node.
        redact: removes secrets from the hosts' output.
        tunables: by name.
        learn: `Passwords.learn`.
    """

    def __init__(
        self,
        way: Way,
        redact: Redactor,
        tunables: Mapping[str, Tunable] = TUNABLES,
        *,
        learn: Callable[..., None] = lambda *_args, **_named: None,
    ) -> None:
        self._way, self._redact, self._tunables = way, redact, tunables
        self._learn = learn
        self._lock = threading.Lock()
        self._turns: dict[tuple[object, ...], threading.Lock] = {}

    def read(
        self, nodes: Collection[NodeName], profile: TuningProfile, bound: Seconds
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        """Read every node's host, in parallel, one round trip each; a host later than `bound` is unknown."""
        work = {node: partial(self._read, node, profile) for node in nodes}
        return read_hosts(work, self._redact, timeout=bound)

    def facts(
        self, reads: Mapping[NodeName, FactReads], bound: Seconds
    ) -> Mapping[NodeName, Reading[HostFacts]]:
        """Read the requested facts and the general facts of every node's host; the limit is as in `read`."""
        work = {node: partial(self._facts, node, (asked,)) for node, asked in reads.items()}
        return read_hosts(work, self._redact, timeout=bound)

    def perform(self, action: TuneHost) -> ActionResult:
        """Make the changes of one tunable. On one machine, one action runs after another."""
        try:
            settings, connection = self._way(action.node)
        except HostError as error:
            return Refused(reason=self._redact(f"{action.tunable}: {error}"), passes=error.fault.passes)
        line, stdin = tuning_script(settings, action.changes), sudo.stdin(settings)
        limit = max(settings.limits.command, TUNE_SECONDS) + TURN_SECONDS
        with self._turn(settings):
            outcome = connection.run(line, timeout=limit, stdin=stdin)
        match outcome:
            case Unreachable(reason=reason, passes=passes):
                return Refused(reason=self._redact(f"{action.tunable}: {reason}"), passes=passes)
            case Lost(reason=reason):
                return InDoubt(reason=self._redact(f"{action.tunable}: {reason}"))
            case CommandResult():
                result = read_outcome(settings, action, outcome)
                self._learn(settings, stdin, said(outcome), taken=isinstance(result, Done))
                return redacted(result, self._redact)
            case _:
                assert_never(outcome)

    def _turn(self, settings: HostSettings) -> threading.Lock:
        """The lock of a machine: two nodes there share the kernel and the files."""
        machine = (settings.connect, settings.address, settings.port, settings.root)
        with self._lock:
            return self._turns.setdefault(machine, threading.Lock())

    def _read(self, node: NodeName, profile: TuningProfile) -> Reading[HostTuning]:
        facts = self._facts(node, reads(profile, self._tunables))
        if isinstance(facts, Unknown):
            return facts
        settings, _ = self._way(node)
        place = BootPlace(part=part_name(settings.cluster, node), root=settings.root)
        return compare(facts, profile, place, tunables=self._tunables, redact=self._redact)

    def _facts(self, node: NodeName, reads: tuple[FactReads, ...]) -> Reading[HostFacts]:
        settings, connection = self._way(node)
        outcome = ask(connection, settings, facts_script(settings, reads), keep=ANSWER_BYTES)
        if not isinstance(outcome, CommandResult):
            return unread(node, outcome, self._redact)
        facts = read_facts(outcome.stdout, settings, reads)
        if isinstance(facts, Unknown):
            said = f" ({beginning_of(outcome.stderr.strip(), 300)})" if outcome.stderr.strip() else ""
            return Unknown(reason=self._redact(f"host of {node}: {facts.reason}{said}"))
        return facts


# The comparison of a host with a profile, pure ------------------------------------


BOOT_READS: Final = FactReads(files=boot.FILES, services=boot.SERVICES)
"""What is read of the next boot."""


def in_order(
    profile: TuningProfile, tunables: Mapping[str, Tunable] = TUNABLES
) -> list[tuple[Tunable | None, TuningSetting]]:
    """The settings with their tunables in the order of the changes; settings without one come last."""
    places = {name: place for place, name in enumerate(tunables)}
    settings = sorted(profile.settings, key=lambda one: places.get(one.tunable, len(places)))
    return [(tunables.get(setting.tunable), setting) for setting in settings]


def reads(profile: TuningProfile, tunables: Mapping[str, Tunable] = TUNABLES) -> tuple[FactReads, ...]:
    """Everything to read for a profile."""
    return (BOOT_READS, *(one.reads for one, _ in in_order(profile, tunables) if one is not None))


def compare(
    facts: HostFacts,
    profile: TuningProfile,
    place: BootPlace,
    *,
    tunables: Mapping[str, Tunable] = TUNABLES,
    redact: Callable[[str], str] = str,
) -> HostTuning:
    """The state of a host against a profile: the next boot, then each tunable in order.

    Args:
        facts: of the host.
        profile: the wanted settings.
        place: of the node's part of the boot script.
        tunables: by name.
        redact: removes secrets from texts for people; changes stay exact, as they are sent.
    """
    moved = boot.data_moved(facts, place)
    if moved:
        facts = replace(facts, devices=Unknown(reason=moved))
    kept, written = boot.lines_at_boot(facts, place), boot.lines_of_part(facts, place)
    states: list[TunableState] = []
    lines: list[str] = []
    for tunable, setting in in_order(profile, tunables):
        if tunable is None:
            why = f"there is no tunable named {setting.tunable}"
            states.append(unchanged(setting, Verdict.UNKNOWN, why))
            continue
        state, line = _check(tunable, facts, setting, profile, redact), tunable.line(setting)
        # A value that cannot be read now is neither added to the part nor taken out of it, on or off.
        known = state.verdict in {Verdict.OK, Verdict.DRIFT} or line in written
        if line and known and state.verdict is not Verdict.NOT_APPLICABLE:
            lines.append(line)
        if line and state.verdict is not Verdict.NOT_APPLICABLE:
            of_boot = boot.SET_BY_US if line in kept else boot.NOT_SET
            if line in kept and (other := boot.later_part(facts, place, line)):
                of_boot = f"{other} sets another value after it"
                state = replace(state, overridden=True)
            state = replace(state, at_boot="; ".join(filter(None, (of_boot, state.at_boot))))
        states.append(state)
    of_boot_itself = boot.state(facts, profile, place, lines)
    part = boot.wanted_part(facts, profile, place, lines)
    return HostTuning(states=(*([of_boot_itself] if of_boot_itself else []), *states), part=part)


def _check(
    tunable: Tunable,
    facts: HostFacts,
    setting: TuningSetting,
    profile: TuningProfile,
    redact: Callable[[str], str],
) -> TunableState:
    """The state of one tunable; a defect in one tunable does not affect the others."""
    try:
        state = tunable.check(facts, setting, profile)
    except Exception as error:  # noqa: BLE001  (see `defect`)
        state = unchanged(setting, Verdict.UNKNOWN, defect(error))
    return replace(
        state, running=redact(state.running), at_boot=redact(state.at_boot), detail=redact(state.detail)
    )
