"""Riak hosts in containers for tests: `riak_hosts(formed=True)`; see `riaklab/running.py`.

Registered by the conftest at the root. The hosts of one test are nobody else's, unless its file keeps them
for all of its tests (`kept_hosts`): they take seconds to start.
Without a Docker engine these tests fail; with SKIP_REAL=1 they are skipped, and the summary says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.hostlab import docker
from tests.integration.riaklab.hosts import RiakHosts
from tests.integration.riaklab.running import running

RiakHostsFactory = Callable[..., RiakHosts]


@pytest.fixture
def riak_hosts(capsys: pytest.CaptureFixture[str]) -> Iterator[RiakHostsFactory]:
    """Gives running hosts: `riak_hosts(hosts=5, formed=True, plain=("riak2",))`."""
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"lab: {line}", flush=True)  # noqa: T201  (minutes without a word look like a hang)

    with contextlib.ExitStack() as stack:

        def start(**settings: Any) -> RiakHosts:
            return stack.enter_context(running(progress=say, **settings))

        yield start


@contextlib.contextmanager
def kept_hosts(request: pytest.FixtureRequest, **settings: Any) -> Iterator[RiakHosts]:
    """Hosts for all tests of a file: to be used by a fixture of its own, of the scope that it likes."""
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"lab: {line}", flush=True)  # noqa: T201  (as above)

    with running(progress=say, **settings) as lab:
        yield lab
