"""The service of a node, by its process and else by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.find_service import FoundService, find_services, read_search, search_script
from orchestrator.hosts.script import read_sections, untranslated
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Unknown
from tests.fakes.cases import rows
from tests.fakes.framing import part


def test_read_search_finds_one_service_or_says_why_not(subtests: pytest.Subtests) -> None:
    for row in rows("hosts/searches.yml"):
        with subtests.test(row=row):
            parts = {name: text for name, text in row.items() if name not in ("finds", "says")}
            answer = "\n".join(
                part(name, text or "", 0 if text is not None else 1) for name, text in parts.items()
            )
            found = read_search(answer + part("doas", "", 1))
            if "says" in row:
                assert isinstance(found, Unknown)
                assert row["says"] in found.reason
            else:
                manager, unit = row["finds"].split()
                expected = FoundService(manager=Manager(manager), unit=unit)
                assert found == expected
                assert read_search(answer + part("doas", "/bin/doas")) == replace(expected, only_doas=True)


@pytest.mark.parametrize("pid", [None, 1])
def test_the_script_runs_to_its_end_on_this_machine(pid: int | None) -> None:
    done = LocalConnection().run(untranslated(search_script(pid)), timeout=20.0)
    assert isinstance(done, CommandResult)
    assert len(read_sections(done.stdout)) == (6 if pid is None else 7)


def test_a_host_that_is_not_reached_is_unknown_with_the_reason() -> None:
    here = HostSettings(node=NodeName("es1"), address="127.0.0.1", connect=Connect.LOCAL)
    away = HostSettings(node=NodeName("es2"), address="127.0.0.1", port=1, ssh_config=())
    connections = Connections()
    found = find_services([here, away], {}, connections)
    connections.close()
    assert set(found) == {"es1", "es2"}
    reason = found[NodeName("es2")]
    assert isinstance(reason, Unknown)
    assert "port 1 refuses the connection" in reason.reason
