"""The lab gives this machine's kernel back as it found it: also what a killed run has left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.hostlab import docker
from tests.integration.hostlab.flavours import find_flavour
from tests.integration.hostlab.images import build
from tests.integration.hostlab.kernel import kept, read_kernel, write_kernel
from tests.integration.mistuned import HUGE_PAGES

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

FLAVOUR = "tuning"
pytestmark = [pytest.mark.docker, pytest.mark.part(name="tuning"), pytest.mark.timeout(2400)]  # the lab alone
KILLED = """
import os, sys
from tests.integration.hostlab.kernel import kept, write_kernel
with kept(sys.argv[1], print):
    write_kernel(sys.argv[1], dict([sys.argv[2:]]))
    os._exit(9)
"""


@pytest.fixture
def image(fresh_host_cluster: HostClusterFactory) -> Iterator[str]:
    """The hosts' image, while no cluster of ours runs; whatever happens, the kernel is as before."""
    assert fresh_host_cluster
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    name = build(find_flavour(FLAVOUR), progress=print)
    found = read_kernel(name)
    yield name
    now = read_kernel(name)
    write_kernel(name, {path: value for path, value in found.items() if now[path] != value})


def other(found: dict[str, str]) -> dict[str, str]:
    """Values that are not those found; `min_free_kbytes` follows the first."""
    thp, swappiness = f"{HUGE_PAGES}/enabled", "/proc/sys/vm/swappiness"
    return {
        thp: "madvise" if found[thp] == "never" else "never",
        swappiness: str(int(found[swappiness]) - 1 if int(found[swappiness]) else 1),
    }


def test_what_was_written_meanwhile_is_put_back(image: str) -> None:
    before = read_kernel(image)
    with kept(image, print):
        write_kernel(image, other(before))
        assert read_kernel(image).items() >= other(before).items()
    assert read_kernel(image) == before


def test_what_a_killed_run_left_is_put_back_before_the_next(image: str) -> None:
    before = read_kernel(image)
    path, value = next(iter(other(before).items()))
    command = (sys.executable, "-c", KILLED, image, path, value)
    root = Path(__file__).parents[2]
    assert subprocess.run(command, cwd=root, check=False, timeout=120).returncode == 9  # noqa: S603  (ours)
    assert read_kernel(image)[path] == value
    with kept(image, print):
        assert read_kernel(image) == before
