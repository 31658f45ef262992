"""The shell files that are sent to hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.hosts import script
from tests.tools import needs
from tests.unit.sources import ROOT

FILES = sorted((ROOT / "orchestrator" / "hosts" / "shell").glob("*.sh"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_shellcheck_finds_nothing_in_a_file(file: Path) -> None:
    words = [needs("shellcheck"), "--shell=sh", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  (a file of this program)
    assert done.stdout == ""


def test_comments_are_not_sent() -> None:
    assert "#" not in script.text("detached.sh").replace("#*", "").replace("$#", "")
