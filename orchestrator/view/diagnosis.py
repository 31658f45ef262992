"""`orchestrate diagnose`: a table, a paragraph per finding, and failed reads; or JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.model.diagnosis import Diagnosis, Finding, Number, Syndrome
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, listed, table

_WHOLE: Final = 100.0
"""From this value on, decimals are not shown."""


def diagnosis_lines(found: Diagnosis) -> list[str]:
    """The text for people."""
    lines: list[str] = []
    if found.findings:
        head = ("SYNDROME", "NODE", "ON", "CONFIDENCE", "TUNABLE", "EVIDENCE")
        lines += table(head, [_row(finding) for finding in found.findings])
        for finding in found.findings:
            lines += ["", *_paragraph(finding)]
        lines.append("")
    lines += [
        f"NOT READ: {node}: {one_line(why.reason)}; nothing is known of its host"
        for node, why in found.unread.items()
    ]
    lines += [
        f"not looked for on {one.node}: {one.syndrome.value}: {one_line(one.reason)}"
        for one in found.unexamined
    ]
    if found.unrecorded:
        missing = {one.syndrome.value for one in found.unrecorded}
        lines.append(f"not in the records, so not looked for everywhere: {', '.join(sorted(missing))}")
    return [*lines, _conclusion(found)]


def diagnosis_objects(found: Diagnosis) -> list[dict[str, object]]:
    """The output for `--output json`, one object per line, without the summary."""
    lines = [finding_object(finding) for finding in found.findings]
    lines += [{"event": "unread", "node": node, "reason": why.reason} for node, why in found.unread.items()]
    for event, blind in (("unexamined", found.unexamined), ("unrecorded", found.unrecorded)):
        lines += [
            {"event": event, "node": one.node, "syndrome": one.syndrome.value, "reason": one.reason}
            for one in blind
        ]
    return lines


def finding_object(finding: Finding) -> dict[str, object]:
    """One finding."""
    return {
        "event": "finding",
        "syndrome": finding.syndrome.value,
        "node": finding.nodes[0],
        "nodes": list(finding.nodes),
        "subject": finding.subject or None,
        "confidence": finding.confidence.value,
        "why": finding.why,
        "evidence": [
            {"name": one.name, "value": round(one.value, 4), "unit": one.unit, "usual": one.usual}
            for one in finding.numbers
        ],
        "advice": finding.advice,
        "tunable": finding.tunable,
    }


def _row(finding: Finding) -> Sequence[str]:
    return (
        finding.syndrome.value,
        listed(finding.nodes, limit=4),
        finding.subject or "host",
        finding.confidence.value,
        finding.tunable or "-",
        "; ".join(_measured(number) for number in finding.numbers[:2]),
    )


def _paragraph(finding: Finding) -> list[str]:
    on = f" ({finding.subject})" if finding.subject else ""
    lines = [
        f"{finding.syndrome.value} on {listed(finding.nodes)}{on}: {finding.confidence.value}; {finding.why}"
    ]
    for number in finding.numbers:
        usual = f"  (usual: {number.usual})" if number.usual else ""
        lines.append(f"  {_measured(number)}{usual}")
    lines.append(f"  do: {finding.advice}")
    lines.append(f"  tunable: {finding.tunable or 'none does it'}")
    return lines


def _measured(number: Number) -> str:
    value = f"{number.value:,.0f}" if number.value >= _WHOLE or number.value == int(number.value) else ""
    return f"{number.name}: {value or f'{number.value:.3g}'} {number.unit}".rstrip()


def _conclusion(found: Diagnosis) -> str:
    hosts = f"{counted(len(found.examined), 'host')} read ({listed(found.examined)})"
    if found.findings:
        return f"{counted(len(found.findings), 'finding')}; {hosts}"
    if not found.examined:
        return "no host was read"
    looked = len(Syndrome)
    if found.complete and not found.unrecorded:
        return f"nothing found: none of the {looked} known syndromes; {hosts}"
    return f"nothing found in what could be looked at; {hosts}"
