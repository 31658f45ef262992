"""What can be made to go wrong on a node: lines `NAME = VALUE` in its file `faults`, read at every use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .pairs import read_pairs

MEANINGS: Mapping[str, str] = {
    "start": "`loops`: `riak start` starts the node and never returns; `loops-down`: nor starts it",
    "vnodes": "`none`: no vnode runs, though ping and HTTP answer",
    "wait-for-service": "`never`: it says `is not up` for ever",
    "stop": "`hangs`: `riak stop` never returns, and the node runs on",
    "handoff": "`stalls`: what waits goes on waiting",
    "writes": "`on`: a load writes, so that fallbacks appear on this node when a peer goes down",
}
"""All there are. `writes` is none, but a thing of the same kind: it may be changed while the node runs."""


class FaultError(Exception):
    """The file names something that the double does not know."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong now."""

    values: Mapping[str, str]

    def get(self, name: str) -> str:
        """The value, empty without.

        Raises:
            KeyError: there is no such fault at all.
        """
        return self.values.get(name, "") if MEANINGS[name] else ""


def read_faults(folder: Path) -> Faults:
    """What the node's file says.

    Raises:
        FaultError: it names what there is not.
    """
    values = read_pairs(folder / "faults")
    _check(values, folder / "faults")
    return Faults(values)


def _check(values: Mapping[str, str], place: Path) -> None:
    unknown = sorted(set(values) - set(MEANINGS))
    if unknown:
        raise FaultError(f"{place} names {', '.join(unknown)}; there are {', '.join(MEANINGS)}")


def write_faults(folder: Path, values: Mapping[str, str]) -> None:
    """Set these and no others; a reader finds the old file or the new one.

    Raises:
        FaultError: there is no such fault; the file is as it was.
    """
    _check(values, folder / "faults")
    new = folder / "faults.new"
    new.write_text("".join(f"{name} = {value}\n" for name, value in values.items()), encoding="utf-8")
    new.replace(folder / "faults")
