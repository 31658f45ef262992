"""Fixtures of several test folders: real nodes as processes, and real hosts in containers."""

from hypothesis import settings

pytest_plugins = [
    "tests.integration.fixtures_bastions",
    "tests.integration.fixtures_hosts",
    "tests.integration.fixtures_processes",
]

# Real nodes run beside these tests: how long one example takes says nothing.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")
