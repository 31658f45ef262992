"""Words of this program that messages and docs use, each explained once: for `explain` and the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TERMS: Final[Mapping[str, str]] = {
    "run": (
        "One restart of a cluster, with an id and a journal. It ends when every selected node is restarted, "
        "or earlier; `resume` continues an unfinished run. `history` lists past runs."
    ),
    "wave": (
        "The nodes that are restarted at the same time: one node with `--strategy node`, up to a whole zone "
        "with `--strategy zone`. A wave ends when its nodes and their copies have recovered."
    ),
    "candidate": "A node that may go into the next wave. All predicates are checked for it before its stop.",
    "predicate": (
        "A named safety condition that is checked before every stop. `orchestrate explain` lists all "
        "predicates; `--disable-predicate` disables one for a run, if that is allowed."
    ),
    "hold": (
        "A predicate that is not met, with its evidence. The run waits until the hold clears, at most "
        "`deadlines.hold`, or ends with exit code 3 if waiting cannot clear it."
    ),
    "stand down": (
        "To stop a run safely: start the nodes that are down, restore all settings, and end. The run can be "
        "resumed later."
    ),
}
"""Term to its meaning, in the order in which a reader meets them."""
