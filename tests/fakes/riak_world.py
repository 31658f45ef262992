"""Nodes of the double without processes: one clock, peers that see each other at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.doubles.riak_double.commands import Effect, answer
from tests.doubles.riak_double.faults import Faults
from tests.doubles.riak_double.machine import Machine
from tests.doubles.riak_double.report import Report, View
from tests.doubles.riak_double.ring import Ring, formed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP_SECONDS = 0.5
START_EPOCH = 1_795_224_000.0


@dataclass(slots=True, kw_only=True)
class World:
    """Machines by name; those that are stopped keep their hints."""

    names: Sequence[str]
    size: int = 16
    now: float = START_EPOCH
    faults: dict[str, Faults] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    stopped: dict[str, set[int]] = field(default_factory=dict)
    ring: Ring = field(init=False)

    def __post_init__(self) -> None:
        self.ring = formed(self.names, self.size)
        for name in self.names:
            self.machines[name] = Machine(name=name, ring=self.ring, born=self.now, limit=2)
            self.faults[name] = Faults({})

    def stop(self, name: str) -> None:
        self.stopped[name] = self.machines.pop(name).hints

    def start(self, name: str) -> None:
        hints = self.stopped.pop(name)
        self.machines[name] = Machine(name=name, ring=self.ring, born=self.now, limit=2, hints=hints)

    def set(self, name: str, **values: str) -> None:
        self.faults[name] = Faults({key.replace("_", "-"): value for key, value in values.items()})

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_SECONDS
            for name, machine in self.machines.items():
                machine.tick(self.now, self._seen_from(name), self.faults[name])

    def clean(self, *, within: float) -> float:
        """Run until nothing waits and nothing is missing; the seconds that it took."""
        start = self.now
        while not all(
            machine.vnodes == set(machine.ring.owned(name)) for name, machine in self.machines.items()
        ):
            assert self.now - start < within, {name: sorted(m.due) for name, m in self.machines.items()}
            self.run(STEP_SECONDS)
        return self.now - start

    def _seen_from(self, name: str) -> Mapping[str, Report]:
        return {other: machine.report(self.now) for other, machine in self.machines.items() if other != name}

    def view(self, name: str) -> View:
        me = self.machines[name].report(self.now)
        others = {
            other: report for other, report in self._seen_from(name).items() if other in me.ring.members
        }
        return View(me=me, others=others, now=self.now, age=self.now - self.machines[name].born)

    def ask(self, name: str, command: str) -> str:
        """What 3.2 prints; effects are done."""
        answered = answer(command.split(), self.view(name))
        for effect in answered.effects:
            self._do(effect)
        return answered.said.whole

    def _do(self, effect: Effect) -> None:
        match effect.verb:
            case "limit":
                self.machines[effect.node].limit = effect.value
            case "timer":
                self.machines[effect.node].timer = effect.value
            case "force":
                self.machines[effect.node].hand_off_now(self.now)
            case verb:
                raise AssertionError(verb)
