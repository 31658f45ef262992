"""Restarts real nodes on this machine in waves, under load, and verifies that no document was lost."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import prepared_run
from orchestrator.config.policy import Overrides
from orchestrator.errors import ExitCode
from orchestrator.lab.distributions import DEMONSTRATED, find_distribution
from orchestrator.lab.load import Load, LoadProfile
from orchestrator.lab.nodes import LabCluster
from orchestrator.lab.seed import seed
from orchestrator.lab.settings import SettingsPicture, changes, read_settings
from orchestrator.lab.summary import DemoSummary
from orchestrator.model.event import NodeRecovered
from orchestrator.runs.attempt import exit_code
from orchestrator.runtime.database import Access
from orchestrator.view.text import table

_WARM_DOCUMENTS = 200
"""Documents acknowledged before the restart begins, to verify that the load runs."""

_FOUND = {
    "persistent": {"cluster.routing.allocation.enable": "all", "indices.recovery.max_bytes_per_sec": "60mb"},
    "transient": {"cluster.routing.allocation.node_concurrent_recoveries": "3"},
}
"""Settings of "the operator", to verify that they are restored at each level."""


def show_restart(version: str, *, output: Output) -> int:
    """Restart a new cluster of that version, and show the result. Returns the exit code.

    Raises:
        LabError: the demo does not have this version.
    """
    server = find_distribution(version, among=DEMONSTRATED).name
    context = context_of(output)

    def progress(line: str) -> None:
        context.note(f"demo: {line}")

    with (
        TemporaryDirectory(prefix="orchestrate-demo-") as folder,
        LabCluster.start(version=server, name="demo", progress=progress) as lab,
    ):
        progress("seeding data")
        bulk = lab.distribution.bulk
        seed(lab.client, bulk=bulk)
        lab.client.ask("PUT", "/_cluster/settings", _FOUND)
        before = read_settings(lab.client)
        progress("starting an indexing and a searching client")
        with Load(lab.access, LoadProfile(bulk=bulk)) as load:
            load.wait_acknowledged(_WARM_DOCUMENTS)
            file = lab.write_cluster_file(Path(folder) / "demo.yml")
            code, nodes, seconds = _restart(file, Path(folder), context)
            load.stop()
            verification = load.verify()
        after = read_settings(lab.client)
        summary = DemoSummary(
            server=lab.distribution.name,
            node_seconds=nodes,
            total_seconds=seconds,
            load=load.result(),
            verification=verification,
            settings_left=changes(before, after),
        )
        _show(summary, before, after, context)
    if code is not ExitCode.DONE:
        progress(
            "its cluster and state are gone with it: nothing can be resumed or restored, "
            "though the lines above say how"
        )
        return int(code)
    if summary.good:
        return int(ExitCode.DONE)
    return int(context.end(ExitCode.DEFECT, message="the run is done, but the check of its result failed"))


def _restart(file: Path, folder: Path, context: Context) -> tuple[ExitCode, dict[str, float], float]:
    """Restart it like `orchestrate restart --yes`. Returns the seconds by node and in total."""
    began, url = context.clock.now(), f"sqlite:///{folder}/state.db"
    cluster = context.cluster(str(file))
    with prepared_run(context, cluster, playbook=None, overrides=Overrides(), state=url) as prepared:
        state = prepared.run(None)
    with context.state(url, Access.READ) as store:
        events = [record.event for record in store.replay(state.run)]
    nodes = {str(event.node): event.seconds for event in events if isinstance(event, NodeRecovered)}
    return exit_code(state), nodes, context.clock.now() - began


def _show(summary: DemoSummary, before: SettingsPicture, after: SettingsPicture, context: Context) -> None:
    lines = ["", *table(("WHAT", "SEEN"), summary.rows()), ""]
    rows = [
        (
            level,
            key,
            str(getattr(before, level).get(key, "absent")),
            str(getattr(after, level).get(key, "absent")),
        )
        for level in ("persistent", "transient")
        for key in sorted({*getattr(before, level), *getattr(after, level)})
    ]
    lines += table(("LEVEL", "SETTING", "BEFORE", "AFTER"), rows)
    write = context.say if context.output.for_people else context.note
    write("\n".join(lines))
