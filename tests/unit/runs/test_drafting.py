"""What the first cluster file says of zones and services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.config.draft import Draft, Service
from orchestrator.hosts.connection import UnknownKey, unknown_keys
from orchestrator.hosts.find_service import FoundService, NotAsked
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Manager
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.first_file import Found, Zones, no_root, not_found, with_cluster, with_services
from orchestrator.simulation import views
from tests.simulation.play import cluster

NO_ZONES = "The cluster has no zones: it has no allocation awareness."
VIEW = views.cluster(cluster(3))
EMPTY = Draft(name="new", endpoints=("http://es1:9200",))


def systemd(unit: str) -> FoundService:
    return FoundService(manager=Manager.SYSTEMD, unit=unit)


def named(services: Mapping[str, Reading[FoundService]]) -> dict[NodeName, Reading[FoundService]]:
    return {NodeName(node): one for node, one in services.items()}


def test_the_service_of_most_nodes_is_that_of_all_hosts(subtests: pytest.Subtests) -> None:
    for services, usual, overrides in [
        ({"es1": systemd("es"), "es2": systemd("es")}, "es", {}),
        ({"es1": systemd("es@es1"), "es2": systemd("es@es2")}, "es@{node}", {}),
        ({"es1": systemd("es"), "es2": systemd("es"), "es3": systemd("cold")}, "es", {"es3": "cold"}),
        ({"es1": systemd("es"), "es2": Unknown(reason="no host")}, "es", {}),
        ({"e": systemd("elasticsearch")}, "elasticsearch", {}),
    ]:
        with subtests.test(services=services, usual=usual, overrides=overrides):
            draft = with_services(EMPTY, named(services), "elasticsearch")
            assert draft.service == Service(manager="systemd", unit=usual)
            assert {node: one.unit for node, one in draft.overrides.items()} == overrides
            missing = [node for node, one in services.items() if isinstance(one, Unknown)]  # type: ignore[attr-defined]
            assert [f"Service not found on {node}: no host" for node in missing] == list(
                draft.service_remarks[1:]
            )


def test_a_host_with_doas_alone_is_named() -> None:
    services = named({"es1": replace(systemd("es"), only_doas=True), "es2": systemd("es")})
    said = "no command as root on es1: there is doas and no sudo, which is not supported: install sudo, or"
    assert [one.startswith(said) for one in no_root(services)] == [True]
    assert with_services(EMPTY, services, "elasticsearch").service_remarks[1].startswith(f"N{said[1:]}")


def test_a_named_unit_is_for_nodes_without_a_found_one() -> None:
    gone = Unknown(reason="no host")
    draft = with_services(EMPTY, named({"es1": gone, "es2": gone}), "elasticsearch", "data")
    assert (draft.service, draft.assumed) == (Service(manager="systemd", unit="data"), ())
    assert draft.service_remarks[0] == "The unit was given to `init`; no service was found on a host."
    services = {"es1": systemd("es"), "es2": systemd("es"), "es3": gone}
    draft = with_services(EMPTY, named(services), "elasticsearch", "data")
    assert draft.service == Service(manager="systemd", unit="es")
    assert draft.overrides == {"es3": Service(manager="systemd", unit="data")}
    assert draft.service_remarks[:2] == (
        "The service was found over SSH on es1, es2.",
        "The unit of es3 was given to `init`.",
    )
    draft = with_services(EMPTY, named(services), "elasticsearch")
    assert draft.assumed == ("the service of es3 is that of the other nodes",)


def test_zones_are_said_as_they_are(subtests: pytest.Subtests) -> None:
    for zones, says in [
        (
            Zones(attribute=None, nodes={}, others=()),
            (NO_ZONES,),
        ),
        (
            Zones(attribute="zone", nodes={"a": 2}, others=("rack",)),
            ("Zones: the cluster's awareness attribute is zone: a (2 nodes), 1 node without.",),
        ),
        (
            Zones(attribute="zone", nodes={}, others=()),
            ("Zones: the cluster's awareness attribute is zone: no node has it.",),
        ),
        (
            Zones(attribute=None, nodes={}, others=("rack",)),
            (
                f"{NO_ZONES} All nodes have these attributes: rack. Name one of them for zones:",
                "zone_attribute: rack",
            ),
        ),
        (
            Zones(attribute=None, nodes={}, others=(), unread="403"),
            ("Zones are not known: the cluster's settings cannot be read (403).",),
        ),
    ]:
        with subtests.test(zones=zones, says=says):
            found = Found(view=VIEW, zones=zones, endpoints=EMPTY.endpoints, left_out={})
            draft = with_cluster(EMPTY, found)
            assert draft.zones == says
            assert draft.nodes == 3
            assert draft.endpoint_remarks == (
                "Add those of other nodes, unless it is a load balancer: one must answer while it is down.",
            )


def test_an_unknown_host_key_is_not_a_service_that_is_not_found() -> None:
    def unknown(node: str) -> NotAsked:
        key = UnknownKey(name=node, host=node, port=22, shown=f"SHA256:{node}", files=("~/.ssh/known_hosts",))
        return NotAsked(reason=unknown_keys([key]), key=key)

    services = {**{node: unknown(node) for node in ("es1", "es2")}, "es3": NotAsked(reason="gone", key=None)}
    services["es4"] = Unknown(reason="no unit")
    assert not_found(named(services)) == (
        "no connection to es1, es2: the host key is not known",
        "no connection to es3: gone",
        "service not found on es4: no unit",
    )
    keys = [one.key for one in services.values() if isinstance(one, NotAsked) and one.key is not None]
    said = unknown_keys(keys)
    assert "the host keys of es1, es2 are in none of ~/.ssh/known_hosts: es1 shows SHA256:es1; es2" in said
    assert "then run `ssh-keyscan -p 22 es1 es2 >> ~/.ssh/known_hosts`;" in said
    other = replace(keys[1], port=2222)
    assert "-p 22 es1 >> ~/.ssh/known_hosts` and `ssh-keyscan -p 2222 es2 >>" in unknown_keys(
        [keys[0], other]
    )
