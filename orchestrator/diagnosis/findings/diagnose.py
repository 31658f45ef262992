"""Looks for all syndromes on all hosts, and reports the findings and the missing data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.diagnosis.findings import (
    busy_wait,
    compaction,
    fragmentation,
    numad,
    outlier,
    reclaim,
    scheduler,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import Confidence, Diagnosis, Finding, Signs, Syndrome, Unexamined
from orchestrator.model.reading import NOT_READ, Reading, Unknown

ON_ONE_HOST: Final[Mapping[Syndrome, Callable[[Signs], Reading[tuple[Finding, ...]]]]] = {
    Syndrome.NUMAD_MOVES: numad.find,
    Syndrome.DIRECT_RECLAIM: reclaim.find,
    Syndrome.THP_COMPACTION: compaction.find,
    Syndrome.FRAGMENTATION: fragmentation.find,
    Syndrome.IO_SCHEDULER: scheduler.find,
    Syndrome.BUSY_WAIT: busy_wait.find,
}
_SUREST_FIRST: Final = (Confidence.CERTAIN, Confidence.LIKELY, Confidence.LOW)


def diagnose(hosts: Mapping[NodeName, Reading[Signs]]) -> Diagnosis:
    """Look for every known syndrome on every host.

    Args:
        hosts: the signs of each node's host; a host that could not be read is reported.
    """
    fleet = [signs for signs in hosts.values() if not isinstance(signs, Unknown)]
    findings: list[Finding] = []
    blind: list[Unexamined] = []
    for signs in fleet:
        for syndrome, find in ON_ONE_HOST.items():
            found = find(signs)
            if isinstance(found, Unknown):
                blind.append(Unexamined(node=signs.node, syndrome=syndrome, reason=found.reason))
            else:
                findings += found
    findings += outlier.find(fleet)
    order = list(Syndrome)
    return Diagnosis(
        findings=tuple(
            sorted(
                _together(findings, {signs.node: signs.machine for signs in fleet}),
                key=lambda one: (_SUREST_FIRST.index(one.confidence), order.index(one.syndrome), one.nodes),
            )
        ),
        examined=tuple(signs.node for signs in fleet),
        unread={node: signs for node, signs in hosts.items() if isinstance(signs, Unknown)},
        unexamined=tuple(one for one in blind if one.reason != NOT_READ.reason),
        unrecorded=tuple(one for one in blind if one.reason == NOT_READ.reason),
    )


def _together(findings: Sequence[Finding], machines: Mapping[NodeName, str]) -> Sequence[Finding]:
    """Merge findings of the same thing on one machine into one finding, with all nodes on that machine.

    The readings of two nodes on a machine are some milliseconds apart: the numbers are those of the first.
    """
    merged: dict[tuple[Syndrome, str, str], Finding] = {}
    for finding in findings:
        node = finding.nodes[0]
        key = (finding.syndrome, machines.get(node) or f"host of {node}", finding.subject)
        known = merged.get(key)
        merged[key] = finding if known is None else replace(known, nodes=(*known.nodes, *finding.nodes))
    return list(merged.values())
