"""What real servers said of copies that return (`tests/data/returning`), as the program reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.elasticsearch.dialect import dialect_for
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.parse import parse_disks, parse_settings
from orchestrator.elasticsearch.parse_cluster import parse_cluster, parse_lives, process_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Disk, SettingsView
from orchestrator.model.reading import Reading, Unknown

_RECORDED: Final = Path(__file__).parent / "data" / "returning"
VERSIONS: Final = sorted(file.stem for file in _RECORDED.glob("*.json"))


def recorded(version: str) -> dict[str, Any]:
    """The file of a version, as it was written."""
    found: dict[str, Any] = json.loads((_RECORDED / f"{version}.json").read_text())
    return found


def recorded_cases(
    version: str,
) -> Iterator[tuple[str, dict[str, list[str]], ClusterView, SettingsView, Reading[Mapping[NodeName, Disk]]]]:
    """Each case: its name, the deciders that refuse by node, and what the program reads of the cluster."""
    common = recorded(version)
    product, _, number = common["version"].rpartition("-")
    distribution = product or "elasticsearch"
    dialect = dialect_for(distribution, number)
    state = dialect.spelled(calls.state(RequestLimits(), with_snapshots=False))
    by_id = parse_lives(dialect.spelled(calls.lives(["x"])).reshape(common["lives"]))
    for name, case in common["cases"].items():
        answer = dict(common["state"])
        answer["metadata"] = {**answer["metadata"], "indices": case["indices"]}
        answer["routing_table"] = case["routing_table"]
        lives = {process_of(each, node): by_id[each] for each, node in answer["nodes"].items()}
        view = reading(parse_cluster, state.reshape(answer), lives, distribution=distribution)
        settings = reading(
            parse_settings,
            {"persistent": case["persistent"], "transient": {}, "defaults": common["defaults"]},
        )
        assert not isinstance(view, Unknown)
        assert not isinstance(settings, Unknown)
        yield name, case["refuse"], view, settings, reading(parse_disks, common["disks"], settings)
