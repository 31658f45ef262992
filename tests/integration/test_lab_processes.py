"""The lab itself, on real nodes: what `tests/unit/lab` cannot show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.killing import QUICKEST
from tests.lab.errors import LabError
from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]


def test_a_folder_that_the_nodes_cannot_enter_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user's nodes run as that user, who can enter its own folders")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(LabError, match="cannot enter"):
        LabCluster.start(version=QUICKEST, directory=closed / "lab")
    assert not (closed / "lab").exists()
