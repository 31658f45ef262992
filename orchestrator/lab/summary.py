"""The table at the end of a demonstration, as data; the view draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.lab.load import Verification
from orchestrator.lab.settings import SettingChange
from orchestrator.lab.tally import Latencies, LoadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """The results of a demonstration.

    Attributes:
        server: name and version of the server.
        node_seconds: seconds from stop to recovered, by node.
        total_seconds: of the whole restart.
        load: the load's counts.
        verification: the check of the acknowledged documents.
        settings_left: cluster settings that were not restored.
    """

    server: str
    node_seconds: Mapping[str, float]
    total_seconds: float
    load: LoadResult
    verification: Verification
    settings_left: Sequence[SettingChange]

    @property
    def good(self) -> bool:
        """Whether no document was lost and every setting was restored."""
        return self.verification.whole and not self.settings_left

    def rows(self) -> tuple[tuple[str, str], ...]:
        """The rows of the table: label and value."""
        searching, indexing = self.load.searching, self.load.indexing
        left = ", ".join(
            f"{change.level} {change.name}: {change.before} -> {change.after}"
            for change in self.settings_left
        )
        return (
            ("server", self.server),
            *(
                (f"{node}, stop to recovered", f"{seconds:.1f} s")
                for node, seconds in self.node_seconds.items()
            ),
            ("all nodes", f"{self.total_seconds:.1f} s"),
            ("documents acknowledged", str(self.verification.acknowledged)),
            ("of these missing", str(len(self.verification.missing))),
            ("of these there twice", str(len(self.verification.duplicated))),
            ("index requests sent / failed and sent again", f"{indexing.sent} / {indexing.failed}"),
            ("index latency, median / 99 % / longest", _milliseconds(indexing.latencies)),
            (
                "searches sent / failed / given up",
                f"{searching.sent} / {searching.failed} / {searching.abandoned}",
            ),
            ("searches answered without some shard", _partial(searching.partial)),
            ("search latency, median / 99 % / longest", _milliseconds(searching.latencies)),
            ("settings not as before", left or "none"),
        )


def _partial(count: int) -> str:
    """The number, and whether it is good: a search may meet a shard while its copy is being replaced."""
    return f"{count} (sent again; a few are usual)" if count else "0 (good)"


def _milliseconds(latencies: Latencies) -> str:
    each = (latencies.median, latencies.p99, latencies.longest)
    return " / ".join(f"{seconds * 1000:.0f}" for seconds in each) + " ms"
