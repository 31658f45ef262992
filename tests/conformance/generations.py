"""The versions on which scenes are played, one of each generation, and what each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.elasticsearch.dialect import Dialect, dialect_for
from tests.lab.distributions import Distribution, find_distribution

USUAL: Final = "opensearch-2.19.0"
"""Played in `make test`: it starts quickest."""
VERSIONS: Final = (
    "0.90.13",
    "1.7.6",
    "2.4.6",
    "5.6.16",
    "6.8.23",
    "7.17.28",
    "8.19.0",
    "9.1.0",
    "opensearch-1.3.20",
    USUAL,
    "opensearch-3.3.0",
)


class Need(Enum):
    """What a scene uses that not every generation has."""

    ENABLE = "a value of `enable` that no flag has"
    VOTING_EXCLUSIONS = "voting exclusions"
    CLOSED_COPIES = "copies of closed indices"
    DELAY = "a delay before a copy is made anew"


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation: its server and its dialect."""

    server: Distribution
    dialect: Dialect

    def has(self, need: Need) -> bool:
        """Whether a scene with this need can be played. What no dialect has differs by version only."""
        return {
            Need.ENABLE: not self.dialect.allocation_flags,
            Need.VOTING_EXCLUSIONS: not self.dialect.voting_by_count,
            Need.CLOSED_COPIES: not self.server.before(7, 2),
            Need.DELAY: not self.server.before(1, 7),
        }[need]

    @property
    def durability(self) -> bool:
        """Whether an index has `index.translog.durability`."""
        return not self.server.before(2)

    @property
    def by_operations(self) -> bool:
        """Whether a copy on disk is found again although it missed writes: else only if its files match."""
        return not self.server.before(7, 6)

    @property
    def reroutes_late(self) -> bool:
        """Whether copies are allocated up to ten seconds after a node has joined (seen on 0.90)."""
        return self.server.before(2)

    @property
    def shuffles(self) -> bool:
        """Whether chance says which of two copies without a node gets the next free one.

        The server shuffles them before it allocates. From 5.0 a replica that was never anywhere is not
        looked for on disks, and so comes first.
        """
        return self.server.before(5)

    @property
    def document(self) -> str:
        """The path of a new document below its index: documents have a type before 7."""
        return "doc" if self.server.before(7) else "_doc"


def generation(version: str) -> Generation:
    """The generation of a version of the lab."""
    server = find_distribution(version)
    return Generation(server, dialect_for(server.product.value, server.version))
