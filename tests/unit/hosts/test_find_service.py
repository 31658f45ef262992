"""The service of a node, by its process and else by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.find_service import FoundService, find_services, read_search, search_script
from orchestrator.hosts.managers.docker import Docker
from orchestrator.hosts.managers.manager import ServiceReading
from orchestrator.hosts.script import Section, read_sections, untranslated
from orchestrator.hosts.settings import HostSettings, ServiceSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.hosts import Connect, Manager
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown
from tests.fakes.framing import part

DEAD = "elasticsearch.service loaded inactive dead Elasticsearch"
ACTIVE = "elasticsearch@a.service loaded active running Elasticsearch"
GONE = "opensearch.service not-found inactive dead opensearch.service"


def answer(**parts: str | None) -> str:
    """What a host prints; None = that part failed."""
    return "\n".join(part(name, text or "", 0 if text is not None else 1) for name, text in parts.items())


FOUND: list[tuple[dict[str, str | None], str]] = [
    ({"process": "0::/system.slice/elasticsearch.service"}, "systemd elasticsearch"),
    ({"process": "0::/docker/12/system.slice/es-a.service", "units": DEAD}, "systemd es-a"),
    ({"process": "4:memory:/x\n1:name=systemd:/system.slice/system-es.slice/es@a.service"}, "systemd es@a"),
    (
        {
            "process": "0::/system.slice/docker-12.scope",
            "containers": "/es1 local/elasticsearch:9.1.0 false\n/db pg:1 false",
        },
        "docker es1",
    ),
    ({"process": None, "units": f"{DEAD}\n{ACTIVE}\n{GONE}", "systemd": ""}, "systemd elasticsearch@a"),
    ({"process": None, "units": f"{DEAD}\n{GONE}", "systemd": ""}, "systemd elasticsearch"),
    ({"systemd": None, "units": None, "scripts": "README\nopensearch\nssh"}, "sysv opensearch"),
]
NOT_FOUND: list[tuple[dict[str, str | None], str]] = [
    ({}, "no unit, container or init script"),
    ({"process": "0::/user.slice/user-7.slice/user@7.service/app.slice/es.service"}, "no unit"),
    ({"units": GONE, "systemd": "", "scripts": "elasticsearch"}, "no unit"),
    ({"units": f"{ACTIVE}\n{ACTIVE.replace('@a', '@b')}"}, "several services may run the node (systemd"),
    ({"containers": "/es1 elasticsearch:9 false", "units": DEAD}, "docker es1, systemd elasticsearch"),
    ({"containers": "/es1 elasticsearch:9 true", "units": ACTIVE}, "container es1 is removed when it stops"),
    ({"containers": "/es1 elasticsearch:9 true", "starters": ACTIVE}, "(units seen: elasticsearch@a)"),
    ({"containers": "/$(id) elasticsearch:9 false"}, "no unit"),
]


def test_read_search_finds_one_service_or_says_why_not(subtests: pytest.Subtests) -> None:
    for parts, service in FOUND:
        with subtests.test(parts=parts):
            manager, unit = service.split()
            found = FoundService(manager=Manager(manager), unit=unit)
            assert read_search(answer(**parts, doas=None)) == found
            assert read_search(answer(**parts, doas="/bin/doas")) == replace(found, only_doas=True)
    for parts, says in NOT_FOUND:
        with subtests.test(parts=parts):
            found = read_search(answer(**parts))
            assert isinstance(found, Unknown)
            assert says in found.reason


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


def test_a_container_with_auto_remove_cannot_be_started_again() -> None:
    settings = HostSettings(
        node=NodeName("es1"), address="es1", service=ServiceSettings(manager=Manager.DOCKER)
    )
    for removed in ("true", "false"):
        read = Docker().read(settings, Section(exit=0, text=f"running|0|2026-11-28T10:00:00Z||{removed}"))
        assert isinstance(read, ServiceReading)
        assert ("(`--rm`)" in read.barred) is (removed == "true")
    for state, wanted in (("stopped", "STOPPED"), ("configured", "STOPPED"), ("stopping", "STOPPING")):
        read = Docker().read(settings, Section(exit=0, text=f"{state}|0|x||false"))
        assert isinstance(read, ServiceReading)
        assert read.state is ServiceState[wanted], "a state of Podman"
