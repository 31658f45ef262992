"""The shipped alert rules and the dashboard, in a real Prometheus that scrapes a textfile and `serve`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.around.metrics import Figures, Textfile
from orchestrator.around.story import PublicEvent
from orchestrator.config.lookup import shipped
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.runs import DEAD_PROCESS, entry, events_of
from tests.cli.serving import serving
from tests.fakes.around import run_context
from tests.integration.alerting import Exporter, Prometheus
from tests.tools import needs

pytestmark = pytest.mark.part(name="around")

FOLDER: Final = shipped("configs") / "observability"
DASHBOARD: Final = json.loads((FOLDER / "dashboard.json").read_text())
UNIT_TESTS: Final = Path(__file__).parents[1] / "data/observability/rules.yml"
DAYS: Final = 86400.0


def _promtool(*words: str, given: str = "") -> tuple[int, str, str]:
    argv = [needs("promtool"), *words]
    said = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)  # noqa: S603  (Debian's)
    return said.returncode, said.stdout, said.stderr


@pytest.mark.parametrize("words", [("check", "rules", FOLDER / "alerts.yml"), ("test", "rules", UNIT_TESTS)])
def test_promtool_accepts_the_rules(words: tuple[str, str, Path]) -> None:
    code, out, err = _promtool(*map(str, words))
    assert (code, "SUCCESS" in out) == (0, True), out + err


def test_promtool_accepts_the_metrics_of_a_run(tmp_path: Path) -> None:
    assert _promtool("check", "metrics", given=_textfile(tmp_path)) == (0, "", "")


def _textfile(folder: Path) -> str:
    """What a run has written that is held by a gate, and has lost a message."""
    now = time.time()

    def seen(ago: float, event: str, **fields: Any) -> PublicEvent:
        line = {"ts": "", "run": "r1", "sequence": 1, "event": event, **fields}
        return PublicEvent(at=now - ago, line=line, text=event)

    past = [
        seen(900, "run_started", nodes=["es1", "es2"], planned=[["es1"], ["es2"]]),
        seen(800, "wave_started", wave={"number": 1, "nodes": ["es1"]}),
        seen(700, "node_recovered", node="es1", bytes_reused=5, bytes_copied=7),
        seen(600, "gate_closed", gate="alerts", subjects=['Disk{host="a"}']),
        seen(500, "not_notified", target="pager", on="held", of=4, why="refused"),
    ]
    path = folder / "orchestrate.prom"
    figures = Figures("prod", now - 41 * DAYS)
    file = Textfile(path, figures, run_context(), print, past, now=time.time)
    file.wait_for({"phase": "gated", "seconds": 3.0, "holds": [{"predicate": "gates_open"}]})
    file.see([seen(0, "holds_cleared", but_gates=True)])
    file.close(time.monotonic() + 60)
    file.join()
    return path.read_text()


@pytest.fixture
def scraping(tmp_path: Path) -> Iterator[Prometheus]:
    """One that scrapes the textfile of `prod`, and `serve` with a run of `lab` whose process is gone."""
    console = Console(home=tmp_path, folder=tmp_path)
    with closing(open_store(f"sqlite:///{console.state}", {}, access=DatabaseUse.WRITE)) as store:
        store.create_run(entry("r2", DEAD_PROCESS)).append(events_of("lab")[:9], time.time() - 600)
    exporter = Exporter(_textfile(tmp_path))
    with serving(console) as served:
        address = served.at.removeprefix("http://").rstrip("/")
        server = Prometheus(
            folder=tmp_path / "prometheus",
            scraped={"node": exporter.address, "serve": address},
            rules=FOLDER / "alerts.yml",
        )
        try:
            yield server.start()
        finally:
            server.stop()
            exporter.close()


def _alerts(server: Prometheus) -> set[tuple[str, str]]:
    """The rule and the cluster of each alert that fires, or will when it has lasted."""
    answer = server.ask("GET", "/api/v1/alerts")
    return {(one["labels"]["alertname"], one["labels"]["cluster"]) for one in answer["data"]["alerts"]}


def test_rules_and_dashboard_work_on_real_metrics(scraping: Prometheus, subtests: pytest.Subtests) -> None:
    wanted = {
        *(("ClusterNotRestarted", "prod"), ("RestartHeld", "prod"), ("RestartMessagesLost", "prod")),
        ("RestartDied", "lab"),
    }
    scraping.wait(lambda: _alerts(scraping) == wanted)
    (group,) = scraping.ask("GET", "/api/v1/rules")["data"]["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    chosen = {"cluster": "prod", "instance": scraping.scraped["node"]}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            with subtests.test(panel["title"]):
                assert scraping.query(_filled(target["expr"], chosen)), target["expr"]
    for one in DASHBOARD["templating"]["list"][1:]:
        metric, _, label = one["query"]["query"].removeprefix("label_values(").rstrip(")").rpartition(", ")
        values = {found["metric"][label] for found in scraping.query(_filled(metric, chosen))}
        assert chosen[one["name"]] in values


def _filled(query: str, chosen: Mapping[str, str]) -> str:
    for name, value in chosen.items():
        query = query.replace(f"${name}", value)
    return query
