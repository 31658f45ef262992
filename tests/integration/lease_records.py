"""The lease's records in a real cluster, in both of their forms."""

from __future__ import annotations

from tests.lab.client import LabClient


def lease_records(client: LabClient, *, components: bool = True) -> list[str]:
    """Their names; `components` where the version has component templates (7.8)."""
    names = list(client.ask("GET", "/_template/orchestrate-*", accept=(404,)))
    if components:
        found = client.ask("GET", "/_component_template/orchestrate-*", accept=(404,))
        names += [each["name"] for each in found["component_templates"]]
    return sorted(names)
