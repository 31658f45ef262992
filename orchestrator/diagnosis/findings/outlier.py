"""One host far off its peers: a quorum waits for its slowest member, and so does every search.

Robust: a single bad host does not change the median or the median of the distances from it (MAD).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from orchestrator.model.diagnosis import Confidence, Finding, Number, Signs, Syndrome
from orchestrator.model.reading import Reading, Unknown

FEWEST: Final = 3
"""Machines; with only two, there is no majority to compare with."""
ENOUGH: Final = 5
"""Machines needed to trust the median."""
DEVIATIONS: Final = 5.0
"""Standard deviations (by MAD) from the median: among a hundred healthy hosts, none in years."""
_MAD_TO_SIGMA: Final = 1.4826
"""Of a normal distribution."""
TIMES: Final = 2.0
"""And at least this many times the median: a smaller difference does not slow a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value by which hosts are compared."""

    name: str
    unit: str
    floor: float  # a smaller distance from the median has no visible effect
    of: Callable[[Signs], Reading[float]]


def _system(signs: Signs) -> Reading[float]:
    return signs.cpu if isinstance(signs.cpu, Unknown) else 100 * signs.cpu.system


def _switches(signs: Signs) -> Reading[float]:
    return _per_cpu(signs.switches, signs)


def _load(signs: Signs) -> Reading[float]:
    return _per_cpu(signs.load, signs)


def _per_cpu(value: Reading[float], signs: Signs) -> Reading[float]:
    if isinstance(value, Unknown):
        return value
    return signs.cpus if isinstance(signs.cpus, Unknown) else value / signs.cpus


def _recovery(signs: Signs) -> Reading[float]:
    return signs.recovery


MEASURES: Final = (
    Measure(name="system share of the CPUs", unit="%", floor=10.0, of=_system),
    Measure(name="context switches a CPU", unit="/s", floor=2000.0, of=_switches),
    Measure(name="load a CPU", unit="", floor=1.0, of=_load),
    Measure(name="last stop to recovered", unit="s", floor=60.0, of=_recovery),
)


def find(fleet: Sequence[Signs]) -> tuple[Finding, ...]:
    """One finding per machine that is far above the others in a measure; never for one below them.

    Args:
        fleet: all hosts that were read; nodes on one machine count once.
    """
    machines: dict[str, Signs] = {}
    for signs in fleet:
        machines.setdefault(signs.machine or signs.node, signs)
    if len(machines) < FEWEST:
        return ()
    off: dict[str, list[Number]] = {}
    for measure in MEASURES:
        values = {
            machine: value
            for machine, signs in machines.items()
            if not isinstance(value := measure.of(signs), Unknown)
        }
        for machine, number in _off(measure, values).items():
            off.setdefault(machine, []).append(number)
    return tuple(_finding(machines[machine], numbers, len(machines)) for machine, numbers in off.items())


def _off(measure: Measure, values: dict[str, float]) -> dict[str, Number]:
    """The machines far above the median of one measure."""
    if len(values) < FEWEST:
        return {}
    middle = median(values.values())
    spread = _MAD_TO_SIGMA * median(abs(value - middle) for value in values.values())
    return {
        machine: Number(
            name=measure.name,
            value=value,
            unit=measure.unit,
            usual=f"{middle:.3g} in the middle of {len(values)}",
        )
        for machine, value in values.items()
        if value - middle >= max(measure.floor, DEVIATIONS * spread) and value >= TIMES * middle
    }


def _finding(signs: Signs, numbers: list[Number], machines: int) -> Finding:
    if machines < ENOUGH:
        confidence, why = Confidence.LOW, f"{machines} machines are too few to show what is usual"
    elif len(numbers) > 1:
        confidence, why = Confidence.CERTAIN, f"off in {len(numbers)} ways that are measured apart"
    else:
        confidence, why = Confidence.LIKELY, "off in one way; it may have other work to do than its peers"
    return Finding(
        syndrome=Syndrome.OUTLIER,
        nodes=(signs.node,),
        confidence=confidence,
        why=why,
        numbers=tuple(numbers),
        advice="Compare it with a peer: hardware, other processes, shards, and `orchestrate tune check`. A"
        " finding of another kind on the same host is likely the cause.",
        tunable=None,
    )
