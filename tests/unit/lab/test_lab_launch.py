"""The command lines and the bytes that a lab node is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.distributions import DISTRIBUTIONS, download_command, find_distribution
from tests.lab.errors import LabError
from tests.lab.launch import java_command, standard_input

HOME, JAVA, FOLDER = Path("/home-of-server"), Path("/java"), Path("/lab/es1")


def command(version: str) -> tuple[str, ...]:
    return java_command(find_distribution(version), home=HOME, java=JAVA, folder=FOLDER, heap_mb=300)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at


def read_text(data: bytes, at: int) -> tuple[str, int]:
    length, at = read_number(data, at)
    return data[at : at + length].decode(), at + length


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda each: each.name)
def test_the_lab_folder_stands_in_every_command_line(distribution) -> None:  # noqa: ANN001  (a table row)
    line = java_command(distribution, home=HOME, java=JAVA, folder=FOLDER, heap_mb=300)
    assert line[0] == "/java/bin/java"
    assert any("/lab/es1/" in part for part in line), "nodectl knows its processes by it"
    assert {"-Xms300m", "-Xmx300m"} <= set(line)


def test_each_generation_has_its_main_class() -> None:
    assert command("9.1.0")[-1] == "org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch"
    assert command("7.17.28")[-1] == "org.elasticsearch.bootstrap.Elasticsearch"
    assert command("2.19.0")[-1] == "org.opensearch.bootstrap.OpenSearch"
    assert command("1.7.6")[-1] == "org.elasticsearch.bootstrap.Elasticsearch", "no word `start`"
    assert command("0.90.13")[-1] == "org.elasticsearch.bootstrap.ElasticSearch"
    assert "-Des.path.conf=/lab/es1/config" in command("7.17.28")
    assert "-Dopensearch.path.conf=/lab/es1/config" in command("2.19.0")


def test_only_nine_opens_lucene_to_the_server() -> None:
    assert any(part.startswith("--add-opens=org.apache.lucene.core") for part in command("9.1.0"))
    assert not any(part.startswith("--add-opens") for part in command("8.19.0"))


def test_servers_before_eight_read_nothing() -> None:
    for version in ("7.17.28", "opensearch-2.19.0"):
        distribution = find_distribution(version)
        assert standard_input(distribution, home=HOME, folder=FOLDER, settings={"a": "b"}) == b""


def test_the_oldest_archives_have_a_group_of_their_own() -> None:
    line = download_command(find_distribution("0.90.13"), Path("/cache"))
    assert "-Dartifact=org.elasticsearch:elasticsearch:0.90.13:zip" in line


def test_the_settings_come_whole_through_the_server_arguments() -> None:
    seeds = ",".join(["127.0.0.1:20000"] * 20)
    settings = {"cluster.name": "lab", "discovery.seed_hosts": seeds, "node.roles": ""}
    data = standard_input(find_distribution("9.1.0"), home=HOME, folder=FOLDER, settings=settings)
    assert data[:3] == b"\x01\x00\x00"
    keystore, at = read_text(data, 3)
    assert keystore == "org.elasticsearch.common.settings.KeyStoreWrapper"
    assert data[at : at + 7] == b"\x00\x00\x00\x07\x00\x00\x01"
    entry, at = read_text(data, at + 7)
    assert entry == "keystore.seed"
    for length in (20, 32):
        size, at = read_number(data, at)
        assert size == length
        at += size
    assert data[at] == 0
    count, at = read_number(data, at + 1)
    found = {}
    for _ in range(count):
        key, at = read_text(data, at)
        if data[at : at + 2] == b"\x07\x00":  # the type of a list, and that it is empty
            found[key], at = "", at + 2
            continue
        assert data[at] == 0, "the type of a text"
        found[key], at = read_text(data, at + 1)
    assert found == {**settings, "path.home": "/home-of-server"}
    config, at = read_text(data, at)
    logs, at = read_text(data, at)
    assert (config, logs, at) == ("/lab/es1/config", "/lab/es1/logs", len(data))


def test_a_node_keeps_its_keystore_seed_from_start_to_start() -> None:
    nine = find_distribution("9.1.0")
    first, second = (standard_input(nine, home=HOME, folder=FOLDER, settings={}) for _ in range(2))
    assert first == second
    assert first != standard_input(nine, home=HOME, folder=Path("/lab/es2"), settings={})


def test_coordinates() -> None:
    assert "-Dartifact=org.opensearch.distribution.integ-test-zip:opensearch:2.19.0:zip" in download_command(
        find_distribution("2.19.0"), Path("/x")
    )
    assert find_distribution("elasticsearch-8.19.0").coordinate == (
        "org.elasticsearch.distribution.integ-test-zip:elasticsearch:8.19.0:zip"
    )
    with pytest.raises(LabError, match=r"1\.2\.3.*elasticsearch-9\.1\.0"):
        find_distribution("1.2.3")
