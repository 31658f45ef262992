"""Every accepted generation of Elasticsearch and OpenSearch, on three real nodes of it.

`make test` restarts one node of each. `make test-all` does all of it: plan, both strategies, merge and
restart, a kill in the middle of a wave and its repair, under load.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from orchestrator.lab.nodes import LabCluster
from tests.integration.generations import (
    Story,
    assert_settings,
    everything,
    prepare,
    restarted_once,
    run,
    under_load,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

VERSIONS = ("2.4.6", "5.6.16", "6.8.23", "7.5.2", "7.17.28", "opensearch-1.3.20", "opensearch-3.1.0")
NEW = ("9.1.0", "8.19.0", "opensearch-2.19.0")
"""Other tests restart nodes of these in `make test` already."""


@contextmanager
def _lab(version: str) -> Iterator[LabCluster]:
    with LabCluster.start(version=version, heap_mb=256) as lab:
        yield lab


@pytest.mark.parametrize("version", VERSIONS)
def test_one_node_of_each_generation_is_restarted_under_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    story = Story(version)
    with _lab(version) as lab:
        before = prepare(lab)

        def one() -> None:
            run(lab, tmp_path, story, "restart", "--only", "es2")

        under_load(lab, lambda: restarted_once(lab, story, one, ("es2",)), story)
        assert_settings(lab, before, story)
    _print(capsys, story)


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", [*VERSIONS, *NEW])
def test_every_command_on_each_generation_under_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    story = Story(version)
    with _lab(version) as lab:
        everything(lab, tmp_path, story)
    _print(capsys, story)


def _print(capsys: pytest.CaptureFixture[str], story: Story) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{story}")
