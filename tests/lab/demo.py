"""Restarts real nodes on this machine in waves, under load, and checks that no document was lost.

`make demo`, or `make demo VERSION=8.19.0` (also as `opensearch-2.19.0`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from orchestrator.errors import ExitCode
from orchestrator.model.event import NodeRecovered
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from orchestrator.view.text import table
from tests.lab.distributions import DEMONSTRATED, Distribution, find_distribution
from tests.lab.errors import LabError, LabNodeError
from tests.lab.load import Load, LoadProfile, LoadResult, Verification
from tests.lab.nodes import LabCluster
from tests.lab.reset import read_settings
from tests.lab.seed import seed

_WARM_DOCUMENTS = 200
"""Documents acknowledged before the restart begins, to verify that the load runs."""

_FOUND = {
    "persistent": {"cluster.routing.allocation.enable": "all", "indices.recovery.max_bytes_per_sec": "60mb"},
    "transient": {"cluster.routing.allocation.node_concurrent_recoveries": "3"},
}
"""Settings of "the operator", to verify that they are restored at each level."""


def summary(load: LoadResult, found: Verification, changed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The rows of the table about the load and the settings: label and value."""
    searching, indexing = load.searching, load.indexing
    # A search may meet a shard while its copy is being replaced.
    partial = f"{searching.partial} (sent again; a few are usual)" if searching.partial else "0 (good)"
    return (
        ("documents acknowledged", str(found.acknowledged)),
        ("of these missing", str(len(found.missing))),
        ("of these there twice", str(len(found.duplicated))),
        ("index requests sent / failed and sent again", f"{indexing.sent} / {indexing.failed}"),
        (
            "searches sent / failed / given up",
            f"{searching.sent} / {searching.failed} / {searching.abandoned}",
        ),
        ("searches answered without some shard", partial),
        ("settings not as before", ", ".join(changed) or "none"),
    )


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
            kept = keep_report(Path(folder))
            result = load.stop()
            verification = load.verify()
        after = read_settings(lab.client)
        keys = sorted({*before, *after})
        changed = [
            f"{level} {key}: {before.get((level, key))} → {after.get((level, key))}"
            for level, key in keys
            if before.get((level, key)) != after.get((level, key))
        ]
        rows = [
            ("server", server.name),
            *((f"{node}, stop to recovered", f"{each:.1f} s") for node, each in nodes.items()),
            ("all nodes", f"{seconds:.1f} s"),
            *summary(result, verification, changed),
        ]
        settings = [
            (level, key, *(str(each.get((level, key), "not set")) for each in (before, after)))
            for level, key in keys
        ]
        tables = (table(("WHAT", "SEEN"), rows), table(("LEVEL", "SETTING", "BEFORE", "AFTER"), settings))
        sys.stdout.write("".join("\n".join(["", *lines, ""]) for lines in tables))
        if kept is not None:
            _progress(f"the report of the run stays when its state is removed: {kept}")
    if code != ExitCode.DONE:
        _progress("the cluster and its state are removed: the commands that are named above do not work")
        return code
    if changed or not verification.whole:
        _progress("the run is done, but the check of its result failed")
        return int(ExitCode.DEFECT)
    return int(ExitCode.DONE)


def keep_report(folder: Path) -> Path | None:
    """Copy the page of the run out of the folder of its state. Returns the copy; None if there is no page."""
    for page in (folder / "reports").glob("*.html"):
        with NamedTemporaryFile(prefix="orchestrate-demo-", suffix=".html", delete=False) as copy:
            copy.write(page.read_bytes())
        return Path(copy.name)
    return None


def _restart(file: Path) -> tuple[int, dict[str, float]]:
    """Restart it by the command. Returns the exit code, and the seconds by node."""
    url = f"sqlite:///{file.parent}/state.db"
    words = ("orchestrator", "restart", "--cluster", str(file), "--state", url, "--yes")
    heeded = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the command
    try:
        code = subprocess.run([sys.executable, "-m", *words], check=False).returncode  # noqa: S603  (our own)
    finally:
        signal.signal(signal.SIGINT, heeded)
    store = open_store(url, {}, access=DatabaseUse.READ)
    try:
        events = [record.event for run in store.runs() for record in store.replay(run.run)]
    finally:
        store.close()
    return code, {str(event.node): event.seconds for event in events if isinstance(event, NodeRecovered)}


def _progress(line: str) -> None:
    sys.stderr.write(f"demo: {line}\n")


def main(version: str = DEMONSTRATED[0].version) -> int:
    """Run the demo on this version; returns the exit code."""
    try:
        return show_restart(find_distribution(version, among=DEMONSTRATED))
    except LabError as error:
        _progress(str(error))
        return int(ExitCode.FAILED if isinstance(error, LabNodeError) else ExitCode.USAGE)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
