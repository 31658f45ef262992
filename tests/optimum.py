"""The least number of safe sets, by a solver: what the search of `--strategy shard-safe` is measured against.

It shares no code with the search. OR-tools CP-SAT is asked whether one set is enough, then two, and so on.
Each question has a limit of deterministic time, one worker and a fixed seed: the answer is repeatable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest

from orchestrator.engine.largest_safe import Bound, Unit

cp_model = pytest.importorskip("ortools.sat.python.cp_model", reason="`make test-long` installs the solver")

EFFORT: Final = 4.0
"""Deterministic time for each question: about as many seconds on one core."""

_Row = tuple[tuple[tuple[int, int], ...], int]
"""What each unit takes of one bound, by the unit's number, and how much all of a set may take."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The answer of the solver."""

    sets: int  # no plan has fewer
    proven: bool  # a plan with so many exists. If not, the solver gave up, and `sets` is only a bound.

    def __str__(self) -> str:
        return f"{self.sets}" if self.proven else f">={self.sets}"


def optimum(
    units: Sequence[Unit], bounds: Iterable[Bound], *, most: int | None = None, effort: float = EFFORT
) -> Optimum:
    """The fewest safe sets that hold every unit.

    Args:
        units: what goes down as a whole.
        bounds: what each set must leave. A unit that takes too much alone bars no other.
        most: so many nodes may be in one set.
        effort: deterministic time for each number of sets.
    """
    if not units:
        return Optimum(0, proven=True)
    limits = list(bounds)
    if most is not None:
        limits.append(Bound(name="size", counts={name: 1 for unit in units for name in unit}, most=most))
    rows = sorted({row for one in limits if (row := _row(units, one))})
    ordered = _order(len(units), rows)
    for sets in count(1):
        status = _ask(ordered, rows, sets, effort)
        if status != cp_model.INFEASIBLE:
            return Optimum(sets, proven=status in {cp_model.OPTIMAL, cp_model.FEASIBLE})
    raise AssertionError  # one set for each unit is always safe


def total(parts: Iterable[Optimum]) -> Optimum:
    """For zones, one after the other."""
    each = list(parts)
    return Optimum(sum(one.sets for one in each), proven=all(one.proven for one in each))


def _row(units: Sequence[Unit], bound: Bound) -> _Row | None:
    taken = [sum(bound.counts.get(name, 0) for name in unit) for unit in units]
    most = max(bound.most, *taken)
    if sum(taken) <= most:
        return None
    return tuple((number, each) for number, each in enumerate(taken) if each), most


def _apart(row: _Row) -> bool:
    """Whether no two of these units may be in one set."""
    least, second = sorted(each for _, each in row[0])[:2]
    return least + second > row[1]


def _order(units: int, rows: Iterable[_Row]) -> list[int]:
    """First units of which each two exclude each other, then those that exclude most."""
    others: list[set[int]] = [set() for _ in range(units)]
    for row in filter(_apart, rows):
        together = {number for number, _ in row[0]}
        for number in together:
            others[number] |= together - {number}
    by_degree = sorted(range(units), key=lambda number: (-len(others[number]), number))
    largest: list[int] = []
    for start in by_degree:
        clique = [start]
        for number in by_degree:
            if others[number].issuperset(clique):
                clique.append(number)
        largest = max(largest, clique, key=len)
    return [*largest, *(number for number in by_degree if number not in largest)]


def _ask(ordered: Sequence[int], rows: Iterable[_Row], sets: int, effort: float) -> Any:
    """Whether so many sets are enough. Sets are alike: the first unit is in the first set, and so on."""
    model = cp_model.CpModel()
    within = {
        (number, one): model.new_bool_var(f"{number} in {one}")
        for place, number in enumerate(ordered)
        for one in range(min(place + 1, sets))
    }
    for number in ordered:
        model.add_exactly_one(within[number, one] for one in range(sets) if (number, one) in within)
    for row in rows:
        for one in range(sets):
            terms = [(within[number, one], each) for number, each in row[0] if (number, one) in within]
            if _apart(row):
                model.add_at_most_one(variable for variable, _ in terms)
            else:
                model.add(sum(variable * each for variable, each in terms) <= row[1])
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = effort
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 2  # that 20 nodes do not fit into 9 pairs is seen at once
    return solver.solve(model)
