"""How a defect is planted in the program, and how it is seen whether a run catches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from types import FunctionType
from typing import Any, Final

from orchestrator.engine import node, run
from orchestrator.engine.kinds import kind
from orchestrator.engine.node import Move
from orchestrator.engine.sight import Sight
from orchestrator.model.phase import NodePhase, Phase
from tests.simulation.lived import BrokenError
from tests.simulation.wide import live

MOST_SEEDS: Final = 1500
"""After so many seeds a defect counts as one that nothing catches."""


class NotPlantedError(AssertionError):
    """What is said to be planted changes nothing: it would be caught by what is wrong anyway, or never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Something of the program, replaced by what is made of it."""

    owner: Any
    name: str
    by: Callable[[Any], Any]

    @property
    def where(self) -> str:
        """The place in the program."""
        return f"{getattr(self.owner, '__name__', self.owner)}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """What is planted.

    Attributes:
        says: what the program does wrong then.
        swaps: how it is planted.
        seed: where it was caught last: tried first.
        first: the first of the seeds that are tried after it.
        scenario: a run that shows it, where chance makes none; a lapse is told as text.
    """

    name: str
    says: str
    swaps: tuple[Swap, ...]
    seed: int = 0
    first: int = 0
    scenario: Callable[[], str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """How a defect was caught."""

    rule: str
    where: str
    said: str


@dataclass(slots=True, kw_only=True)
class Planted:
    """What stands in the program instead.

    Attributes:
        watched: functions of ours, of which it can be seen whether the program calls them; `called`, those
            that it did.
    """

    watched: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)

    def watch(self, where: str, before: Any, after: Any) -> Any:
        """`after`, told of when it is called: a function, or the functions of a table or a record.

        Raises:
            NotPlantedError: it is what was there before.
        """
        if after is before or (not isinstance(after, FunctionType) and after == before):
            raise NotPlantedError(f"{where} stays as it is")
        match after:
            case FunctionType():
                return self._telling(where, after)
            case Mapping():
                return {key: self._entry(where, before.get(key), value) for key, value in after.items()}
            case _ if is_dataclass(after) and not isinstance(after, type):
                names = [one.name for one in fields(after)]
                entries = {
                    name: self._entry(f"{where}.{name}", getattr(before, name), getattr(after, name))
                    for name in names
                }
                return replace(after, **entries)
            case _:
                return after

    def _entry(self, where: str, before: Any, after: Any) -> Any:
        ours = isinstance(after, FunctionType) and after is not before
        return self._telling(where, after) if ours else after

    def _telling(self, where: str, after: Callable[..., Any]) -> Callable[..., Any]:
        self.watched.add(where)

        @wraps(after)
        def told(*args: Any, **named: Any) -> Any:
            self.called.add(where)
            return after(*args, **named)

        return told


@contextmanager
def planted(defect: Defect) -> Iterator[Planted]:
    """The program with the defect, for as long as the context lasts."""
    originals = [(swap.owner, swap.name, swap.owner.__dict__[swap.name]) for swap in defect.swaps]
    stands = Planted()
    try:
        for swap in defect.swaps:
            before = getattr(swap.owner, swap.name)
            setattr(swap.owner, swap.name, stands.watch(swap.where, before, swap.by(before)))
        yield stands
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def catch(defect: Defect, *, most: int = MOST_SEEDS) -> Caught | None:
    """The first seed whose run breaks a property; None when none of so many does.

    Raises:
        NotPlantedError: the program never called what was planted.
    """
    with planted(defect) as stands:
        caught = _caught(defect, most)
    if stands.watched and not stands.called:
        raise NotPlantedError(f"{defect.name}: the program never calls {', '.join(sorted(stands.watched))}")
    return caught


def _caught(defect: Defect, most: int) -> Caught | None:
    if defect.scenario is not None:
        lapse = defect.scenario()
        return Caught(rule="scenario", where=defect.scenario.__name__, said=lapse) if lapse else None
    for seed in (defect.seed, *range(defect.first, defect.first + most)):
        try:
            live(seed, ordinary=False)
        except BrokenError as broken:
            return Caught(rule=broken.rule, where=f"seed {seed}", said=str(broken))
    return None


def always(answer: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_args, **_named: answer


def stepping(phase: Phase, by: Callable[[Any], Any]) -> Swap:
    """What the program does in a phase, in the table by which it decides."""
    return Swap(owner=run, name="STEPS", by=lambda steps: {**steps, phase: by(steps[phase])})


def moving(move: Move, by: Callable[[Any], Any]) -> Swap:
    """What a node does on a move of the table."""
    return Swap(owner=node, name="_DO", by=lambda does: {**does, move: by(does[move])})


def in_the_table(phase: NodePhase, sight: Sight, *, restart: Move, bring_up: Move) -> Swap:
    """Another row in the table of a node's moves."""

    def other(table: Any) -> Any:
        return {**table, phase: {**table[phase], sight: (restart, bring_up)}}

    return Swap(owner=node, name="TABLE", by=other)


def without(*names: str) -> Swap:
    """The catalogue less these predicates."""

    def less(elasticsearch: Any) -> Any:
        rules = tuple(rule for rule in elasticsearch.predicates if rule.name not in names)
        return replace(elasticsearch, predicates=rules)

    return Swap(owner=kind, name="ELASTICSEARCH", by=less)


def of_kind(**changes: Callable[[Any], Any]) -> Swap:
    """The kind of cluster with some of its functions replaced."""

    def other(elasticsearch: Any) -> Any:
        return replace(elasticsearch, **{n: by(getattr(elasticsearch, n)) for n, by in changes.items()})

    return Swap(owner=kind, name="ELASTICSEARCH", by=other)
