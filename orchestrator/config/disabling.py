"""The predicates and gates that `--disable-predicate` names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.config.faults import near
from orchestrator.errors import UsageError
from orchestrator.holds import GATES_OPEN
from orchestrator.model.gate import Gate
from orchestrator.model.policy import DisabledPredicate, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateNames:
    """The predicates that `--disable-predicate` accepts."""

    known: Sequence[str]  # names in their order
    always_on: Collection[str]  # those among them that nobody can switch off
    # predicates of other kinds of cluster, each with its kind
    elsewhere: Mapping[str, Kind] = field(default_factory=dict)


def disabled_predicate(rule: str, predicates: PredicateNames, gates: Sequence[Gate]) -> DisabledPredicate:
    """Read a value of `--disable-predicate`.

    Raises:
        UsageError: there is no such predicate or gate, or the predicate cannot be disabled.
    """
    name, equals, subject = rule.partition("=")
    if (kind := predicates.elsewhere.get(name)) is not None:
        raise UsageError(
            f"--disable-predicate {name}: this is a predicate of {kind.value} clusters, and this cluster is "
            "of another kind; leave it out"
        )
    if name not in predicates.known:
        raise UsageError(
            f"--disable-predicate {name}: there is no such predicate; {near(name, predicates.known)}"
        )
    if name in predicates.always_on:
        raise UsageError(f"--disable-predicate {name}: this one cannot be switched off")
    if equals and not subject:
        raise UsageError(f"--disable-predicate {rule}: name the subject after the `=`, or leave the `=` out")
    known = [gate.name for gate in gates]
    if name == GATES_OPEN and subject and subject not in known:
        raise UsageError(f"--disable-predicate {rule}: no gate is called so; {near(subject, known)}")
    return DisabledPredicate(name=name, subject=subject or None)
