"""The way to a host, from settings and SSH configuration."""

from __future__ import annotations

import paramiko
import pytest

from orchestrator.hosts.settings import HostSettings
from orchestrator.hosts.ssh_route import RouteError, find_route

CONFIG = """
Host es1
  HostName 10.0.0.1
  Port 2201
  User deploy
  IdentityFile /keys/es
  IdentitiesOnly yes
  HostKeyAlias es-one
  ProxyJump ops@bastion:2222
Host bastion
  HostName bastion.example.org
  ProxyJump gate
Host gate
  User guard
Host two
  ProxyJump gate,[::1]:2200
Host none
  ProxyJump none
Host circle
  ProxyJump circle
Host wrong
  ProxyJump a:b
Host *
  User anybody
"""


def route(address: str, **changes: object) -> list[str]:
    settings = HostSettings(node="n", address=address, **changes)  # type: ignore[arg-type]  # by keyword
    return [str(hop) for hop in find_route(settings, paramiko.SSHConfig.from_text(CONFIG))]


@pytest.mark.parametrize(
    ("address", "hops"),
    [
        ("plain", ["anybody@plain:22"]),
        ("es1", ["guard@gate:22", "ops@bastion.example.org:2222", "deploy@10.0.0.1:2201"]),
        ("two", ["guard@gate:22", "anybody@::1:2200", "anybody@two:22"]),
        ("none", ["anybody@none:22"]),
    ],
)
def test_routes(address: str, hops: list[str]) -> None:
    assert route(address) == hops


def test_the_cluster_file_beats_the_configuration() -> None:
    assert route("es1", user="root", port=22)[-1] == "root@10.0.0.1:22"


def test_the_rest_of_a_hop_comes_from_the_configuration() -> None:
    settings = HostSettings(node="n", address="es1", identities=("/keys/mine",), known_hosts=("/known",))
    *_, hop = find_route(settings, paramiko.SSHConfig.from_text(CONFIG))
    assert hop.identities == ("/keys/mine", "/keys/es")
    assert hop.identities_only
    assert hop.key_name == "es-one"
    assert hop.known_hosts == ("/known",)


@pytest.mark.parametrize(("address", "words"), [("circle", "circles"), ("wrong", "is not")])
def test_what_cannot_be_followed_is_said(address: str, words: str) -> None:
    with pytest.raises(RouteError, match=words):
        route(address)
