"""Fixtures of several folders: nodes as processes, hosts in containers; how tests are shared out."""

import pytest
from hypothesis import settings

# A scene that fails shows both sides of what it compares, as a test does.
pytest.register_assert_rewrite("tests.simulation.scene", "tests.simulation.scenes")

pytest_plugins = [
    "tests.budget",
    "tests.integration.fixtures_bastions",
    "tests.integration.fixtures_hosts",
    "tests.integration.fixtures_processes",
    "tests.parts",
    "tests.workers",
]

# Real nodes run beside these tests: how long one example takes says nothing.
settings.register_profile("busy machine", deadline=None, derandomize=True)
settings.load_profile("busy machine")
