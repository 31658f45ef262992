"""Hosts whose values are a dictionary: what `tune` needs of the host port, without a machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from orchestrator.model.action import ActionResult, Done, HostAction, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import HostFacts, InitSystem
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import (
    HostTuning,
    TunableState,
    TuningProfile,
    TuningSetting,
    ValueChange,
    Verdict,
)
from orchestrator.tuning.tunable import FactReads

PROC = "/proc/sys/"


def path_of(tunable: str) -> str:
    """`vm.swappiness` is where the kernel has it."""
    return PROC + tunable.replace(".", "/")


@dataclass
class ValuedHosts:
    """A `TuningPort`; each tunable is one value under `/proc/sys`."""

    values: dict[str, dict[str, str]]  # by machine and path; nodes of one machine share them
    machines: Mapping[NodeName, str] = field(default_factory=dict)  # by node; each its own if not named
    away: set[NodeName] = field(default_factory=set)  # nodes that cannot be reached
    unreadable: set[str] = field(default_factory=set)  # tunables that no host tells
    refused: set[str] = field(default_factory=set)  # tunables that no host lets us change
    performed: list[TuneHost] = field(default_factory=list)  # what came in, in order
    before: Callable[[TuneHost], None] = lambda _action: None  # called before a change is made
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _values(self, node: NodeName) -> dict[str, str]:
        return self.values[self.machines.get(node, node)]

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        return {node: self._tuning(node, profile) for node in nodes}

    def _tuning(self, node: NodeName, profile: TuningProfile) -> Reading[HostTuning]:
        if node in self.away:
            return Unknown(reason=f"host of {node}: no route")
        return HostTuning(states=tuple(self._state(node, setting) for setting in profile.settings))

    def _state(self, node: NodeName, setting: TuningSetting) -> TunableState:
        assert isinstance(setting.wanted, str)
        path = path_of(setting.tunable)
        running = self._values(node).get(path, "")
        verdict, detail, changes = Verdict.OK, "", tuple[ValueChange, ...]()
        if setting.tunable in self.unreadable:
            verdict, detail = Verdict.UNKNOWN, "may not be read"
        elif not running:
            verdict, detail = Verdict.NOT_APPLICABLE, "this kernel has none"
        elif running != setting.wanted:
            verdict = Verdict.DRIFT
            changes = (ValueChange(path=path, found=running, wanted=setting.wanted),)
        return TunableState(
            tunable=setting.tunable,
            wanted=setting.wanted,
            running=running,
            at_boot=running,
            verdict=verdict,
            detail=detail,
            changes=changes,
        )

    def facts(self, reads: Mapping[NodeName, FactReads]) -> Mapping[NodeName, Reading[HostFacts]]:
        return {
            node: Unknown(reason=f"host of {node}: no route")
            if node in self.away
            else facts_of({path: text for path, text in self._values(node).items() if path in asked.files})
            for node, asked in reads.items()
        }

    def perform(self, action: HostAction) -> ActionResult:
        assert isinstance(action, TuneHost)
        self.before(action)
        with self._lock:
            self.performed.append(action)
        if action.tunable in self.refused:
            return Refused(reason="sudo says no")
        for change in action.changes:
            assert isinstance(change, ValueChange)
            self._values(action.node)[change.path] = change.wanted
        return Done(output="made")


def facts_of(files: Mapping[str, str]) -> HostFacts:
    """The facts of a machine with these files."""
    return HostFacts(
        init=InitSystem.SYSTEMD,
        cpus=2,
        memory=2**34,
        files=files,
    )
