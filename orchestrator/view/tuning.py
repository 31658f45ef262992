"""Hosts compared with a tuning profile, and the changes to them, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from orchestrator.engine.predicates import by_same_reason
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import fields_of
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    HostTuning,
    ServiceChange,
    ServiceMode,
    TunableState,
    TunedChange,
    ValueChange,
    Verdict,
)
from orchestrator.untrusted import one_line
from orchestrator.view.checks import Check
from orchestrator.view.text import listed

Row = tuple[str, ...]

Found = Mapping[NodeName, Reading[HostTuning]]

STATE_HEAD: Final[Row] = ("host", "tunable", "wanted", "running", "at next boot", "verdict")

CHANGE_HEAD: Final[Row] = ("host", "tunable", "change")

_VERDICTS: Final = {
    Verdict.OK: "ok",
    Verdict.DRIFT: "DRIFT",
    Verdict.NOT_APPLICABLE: "not applicable",
    Verdict.UNKNOWN: "UNKNOWN",
}

_NOT_REACHED: Final = "NOT REACHED"

_NOTHING: Final = "-"


def state_rows(found: Found) -> list[Row]:
    """A row per host and tunable, in the profile's order; one row for a host that could not be read.

    Hosts on which everything is the same are named together.
    """
    rows: dict[NodeName, list[Row]] = {}
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            rows[node] = [(*[_NOTHING] * 4, _said(_NOT_REACHED, tuning.reason))]
        else:
            rows[node] = [_state_row(state) for state in tuning.states]
    return by_host(rows)


def _state_row(state: TunableState) -> Row:
    cells = [state.wanted, state.running, state.at_boot]
    verdict = _said(_VERDICTS[state.verdict], state.detail)
    return (state.tunable, *[cell or _NOTHING for cell in cells], verdict)


def state_checks(found: Found) -> Iterator[Check]:
    """A check per host and tunable; one for a host that could not be read."""
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            yield _check(node, "NOT REACHED", good=False, message=one_line(tuning.reason))
        else:
            yield from (_state_check(node, state) for state in tuning.states)


def _state_check(node: NodeName, state: TunableState) -> Check:
    detail = one_line(state.detail)
    match state.verdict:
        case Verdict.OK:
            good = False if state.overridden else None if detail else True
            return _check(node, state.tunable, good=good, message=detail)
        case Verdict.DRIFT:
            at_boot = state.at_boot if state.at_boot != state.running else ""
            shown = (("running", state.running), ("at next boot", at_boot), ("wanted", state.wanted))
            words = ", ".join(f"{what} {one_line(value)}" for what, value in shown if value)
            return _check(node, state.tunable, good=False, message=_said(words, detail))
        case Verdict.UNKNOWN:
            return _check(node, state.tunable, good=False, message=_said("UNKNOWN", detail))
        case Verdict.NOT_APPLICABLE:
            return _check(node, state.tunable, good=None, message=_said("not applicable", detail))
        case _:
            assert_never(state.verdict)


def _check(node: NodeName, point: str, *, good: bool | None, message: str) -> Check:
    return Check(subject=node, point=point, good=good, message=message, of_host=True)


def by_host(rows: Mapping[NodeName, Sequence[Row]]) -> list[Row]:
    """The rows of hosts with the names of the hosts before them; hosts with the same rows together."""
    same = by_same_reason((node, "\n".join("\t".join(row) for row in own)) for node, own in rows.items())
    return [(listed(nodes), *row) for nodes in same.values() for row in rows[nodes[0]]]


def by_reason_lines(reasons: Iterable[tuple[NodeName, str]]) -> list[str]:
    """`es1, es2: no route`: a line for each reason, with the names of all hosts that have it."""
    return [f"{listed(nodes)}: {one_line(reason)}" for reason, nodes in by_same_reason(reasons).items()]


def _said(verdict: str, detail: str) -> str:
    return f"{verdict}: {one_line(detail)}" if detail else verdict


def change_rows(found: Found) -> list[Row]:
    """A row for each change to make, in order; hosts with the same changes are named together."""
    rows = {
        node: [(state.tunable, change_words(change)) for state in tuning.drifted for change in state.changes]
        for node, tuning in sorted(found.items())
        if isinstance(tuning, HostTuning)
    }
    return by_host(rows)


def change_words(change: Change) -> str:
    """A change on one line."""
    match change:
        case ValueChange(path=path, found=old, wanted=new):
            return f"{path}: {one_line(old)} → {one_line(new)}"
        case FileChange(path=path, found=old, wanted=new):
            return f"{'remove' if new is None else 'write' if old is None else 'rewrite'} {path}"
        case BlockChange(path=path, name=name, found=old, wanted=new):
            verb = "take away" if new is None else "add" if old is None else "replace"
            return f"{verb} the lines of orchestrate {name} in {path}"
        case ServiceChange(service=service, found=was, wanted=mode):
            return f"service {service}: {_mode(was)} → {_mode(mode)}"
        case TunedChange(found=before, wanted=after):
            return f"tuned profile: {before or 'none'} → {after or 'none'}"
        case _:
            assert_never(change)


def _mode(mode: ServiceMode) -> str:
    boot = "masked" if mode.masked else "enabled" if mode.enabled else "disabled"
    return f"{'running' if mode.running else 'stopped'} and {boot}"


_OF_PLANS: Final = frozenset({"on_failure", "overridden", "restart_needed"})
"""Fields of a tunable that its line does not have: they decide what a run does about it."""


def state_objects(found: Found) -> list[dict[str, object]]:
    """Every host and tunable; a host that could not be read has a separate line, with the reason."""
    lines: list[dict[str, object]] = []
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            lines.append({"event": "host_unreachable", "node": node, "detail": tuning.reason})
        else:
            about = {"event": "tunable", "node": node}
            lines += [{**about, **fields_of(state, without=_OF_PLANS)} for state in tuning.states]
    return lines
