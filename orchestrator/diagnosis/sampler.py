"""Two readings of many hosts, some seconds apart: one round trip a reading, all hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from orchestrator.diagnosis.reading import HostReading, read_answers, reading_command, signs_of
from orchestrator.hosts.connection import CommandResult, Unreachable
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.readings import ask, longest, read_hosts
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import Signs
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.redact import Redactor
from orchestrator.tuning.facts import facts_script, read_facts

SHORTEST: Final[Seconds] = 1.0
LONGEST: Final[Seconds] = 600.0
"""Bounds of a sample: rates over less time are noise, and a longer wait is of no use."""


def sample(
    settings: Collection[HostSettings],
    connections: Connections,
    *,
    seconds: Seconds,
    wait: Callable[[Seconds], None],
    report: Callable[[str], None],
    redact: Redactor,
) -> Mapping[NodeName, Reading[Signs]]:
    """Read every host twice; a host that cannot be read is `Unknown` with the reason.

    Args:
        settings: the hosts.
        connections: used and left open.
        seconds: between the two readings.
        wait: waits for a number of seconds.
        report: called with a line at each step.
        redact: removes secrets from the hosts' output.
    """
    by_node = {one.node: one for one in settings}
    first = _read_all(by_node, connections, redact)
    there = {node: one for node, one in by_node.items() if not isinstance(first[node], Unknown)}
    report(f"read {len(there)} of {len(by_node)} hosts")
    if not there:
        return {node: one for node, one in first.items() if isinstance(one, Unknown)}
    wait(seconds)
    second = _read_all(there, connections, redact)
    report("read them again")
    disks = _disks(there, connections, redact)
    return {node: _signs(node, first[node], second.get(node), disks.get(node)) for node in by_node}


def _signs(
    node: NodeName,
    first: Reading[HostReading],
    second: Reading[HostReading] | None,
    data: Reading[frozenset[str]] | None,
) -> Reading[Signs]:
    if isinstance(first, Unknown):
        return first
    if second is None or isinstance(second, Unknown):
        said = "no second reading" if second is None else second.reason
        return Unknown(reason=f"read once, and not a second time: {said}")
    return signs_of(node, first, second, data)


def _disks(
    settings: Mapping[NodeName, HostSettings], connections: Connections, redact: Redactor
) -> Mapping[NodeName, Reading[frozenset[str]]]:
    """The disks behind the data paths, from the same facts as tuning; read only if the paths are known."""
    asked = {
        node: partial(_data_disks, one, connections, redact) for node, one in settings.items() if one.data
    }
    return read_hosts(asked, redact, timeout=longest(settings.values()))


def _data_disks(
    settings: HostSettings, connections: Connections, redact: Redactor
) -> Reading[frozenset[str]]:
    outcome = _answer(settings, connections, facts_script(settings, ()), redact)
    if isinstance(outcome, Unknown):
        return outcome
    facts = read_facts(outcome.stdout, settings, ())
    if isinstance(facts, Unknown):
        return facts
    if isinstance(facts.devices, Unknown):
        return facts.devices
    return frozenset(device.name for device in facts.devices if device.is_disk)


def _read_all(
    settings: Mapping[NodeName, HostSettings], connections: Connections, redact: Redactor
) -> Mapping[NodeName, Reading[HostReading]]:
    work = {node: partial(_read, one, connections, redact) for node, one in settings.items()}
    return read_hosts(work, redact, timeout=longest(settings.values()))


def _read(settings: HostSettings, connections: Connections, redact: Redactor) -> Reading[HostReading]:
    outcome = _answer(settings, connections, reading_command(settings.root), redact)
    if isinstance(outcome, Unknown):
        return outcome
    if outcome.truncated:
        return Unknown(reason=f"its answer was too long: {outcome.truncated} bytes of it were left out")
    return read_answers(redact(outcome.stdout))


def _answer(
    settings: HostSettings, connections: Connections, command: str, redact: Redactor
) -> Reading[CommandResult]:
    found = connections.to(settings)
    outcome = found if isinstance(found, Unreachable) else ask(found, settings, command)
    return outcome if isinstance(outcome, CommandResult) else Unknown(reason=redact(outcome.reason))
