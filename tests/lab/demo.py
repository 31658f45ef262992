"""Restarts real nodes on this machine in waves, under load, and checks that no document was lost.

`make demo`, or `make demo VERSION=8.19.0` (also as `opensearch-2.19.0`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.errors import ExitCode
from orchestrator.model.event import NodeRecovered
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from orchestrator.view.text import table
from tests.lab.distributions import DEMONSTRATED, Distribution, find_distribution
from tests.lab.errors import LabError
from tests.lab.load import Load, LoadProfile, Verification
from tests.lab.nodes import LabCluster
from tests.lab.seed import seed
from tests.lab.settings import LEVELS, SettingChange, SettingsPicture, changes, read_settings
from tests.lab.tally import Latencies, LoadResult

_WARM_DOCUMENTS = 200
"""Documents acknowledged before the restart begins, to verify that the load runs."""

_FOUND = {
    "persistent": {"cluster.routing.allocation.enable": "all", "indices.recovery.max_bytes_per_sec": "60mb"},
    "transient": {"cluster.routing.allocation.node_concurrent_recoveries": "3"},
}
"""Settings of "the operator", to verify that they are restored at each level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """What the demo saw.

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
        left = [
            f"{change.level} {change.name}: {change.before} -> {change.after}"
            for change in self.settings_left
        ]
        # A search may meet a shard while its copy is being replaced.
        partial = f"{searching.partial} (sent again; a few are usual)" if searching.partial else "0 (good)"
        return (
            ("server", self.server),
            *((f"{node}, stop to recovered", f"{sec:.1f} s") for node, sec in self.node_seconds.items()),
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
            ("searches answered without some shard", partial),
            ("search latency, median / 99 % / longest", _milliseconds(searching.latencies)),
            ("settings not as before", ", ".join(left) or "none"),
        )


def _milliseconds(latencies: Latencies) -> str:
    each = (latencies.median, latencies.p99, latencies.longest)
    return " / ".join(f"{seconds * 1000:.0f}" for seconds in each) + " ms"


def show_restart(server: Distribution) -> int:
    """Restart a new cluster of this server, and show the result. Returns the exit code."""
    with (
        TemporaryDirectory(prefix="orchestrate-demo-") as folder,
        LabCluster.start(version=server.name, name="demo", progress=_progress) as lab,
    ):
        _progress("seeding data")
        seed(lab.client, bulk=server.bulk)
        lab.client.ask("PUT", "/_cluster/settings", _FOUND)
        before = read_settings(lab.client)
        _progress("starting an indexing and a searching client")
        with Load(lab.access, LoadProfile(bulk=server.bulk)) as load:
            load.wait_acknowledged(_WARM_DOCUMENTS)
            began = time.monotonic()
            code, nodes = _restart(lab.write_cluster_file(Path(folder) / "demo.yml"))
            seconds = time.monotonic() - began
            load.stop()
            verification = load.verify()
        after = read_settings(lab.client)
        summary = DemoSummary(
            server=server.name,
            node_seconds=nodes,
            total_seconds=seconds,
            load=load.result(),
            verification=verification,
            settings_left=changes(before, after),
        )
        _show(summary, before, after)
    if code != ExitCode.DONE:
        _progress("the cluster and its state are removed: the commands that are named above do not work")
        return code
    if not summary.good:
        _progress("the run is done, but the check of its result failed")
        return int(ExitCode.DEFECT)
    return int(ExitCode.DONE)


def _restart(file: Path) -> tuple[int, dict[str, float]]:
    """Restart it by the command. Returns the exit code, and the seconds by node."""
    url = f"sqlite:///{file.parent}/state.db"
    words = ("orchestrator", "restart", "--cluster", str(file), "--state", url, "--yes")
    heeded = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the command
    try:
        code = subprocess.run([sys.executable, "-m", *words], check=False).returncode  # noqa: S603  (our own)
    finally:
        signal.signal(signal.SIGINT, heeded)
    store = open_store(url, {}, access=Access.READ)
    try:
        events = [record.event for run in store.runs() for record in store.replay(run.run)]
    finally:
        store.close()
    return code, {str(event.node): event.seconds for event in events if isinstance(event, NodeRecovered)}


def _show(summary: DemoSummary, before: SettingsPicture, after: SettingsPicture) -> None:
    rows = [
        (
            level,
            key,
            str(getattr(before, level).get(key, "absent")),
            str(getattr(after, level).get(key, "absent")),
        )
        for level in LEVELS
        for key in sorted({*getattr(before, level), *getattr(after, level)})
    ]
    seen = table(("WHAT", "SEEN"), summary.rows())
    settings = table(("LEVEL", "SETTING", "BEFORE", "AFTER"), rows)
    sys.stdout.write("\n".join(["", *seen, "", *settings, ""]))


def _progress(line: str) -> None:
    sys.stderr.write(f"demo: {line}\n")


def main(version: str = DEMONSTRATED[0].version) -> int:
    """Run the demo on this version; returns the exit code."""
    try:
        return show_restart(find_distribution(version, among=DEMONSTRATED))
    except LabError as error:
        _progress(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
