"""A new cluster file is read back as what it was written from, whatever a cluster calls its parts."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.cluster import ClusterSpec
from orchestrator.config.draft import (
    Draft,
    HostsDraft,
    Service,
    checked,
    cluster_text,
    mode_of,
    require_free,
    scalar,
    write_new,
)
from orchestrator.config.services import Manager
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.hosts import Connect

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=30)
FULL = Draft(
    name="prod",
    endpoints=("https://es1:9200", "https://[::1]:9200"),
    username="on",
    password="command:pass show 'es: prod' # it",  # noqa: S106  (a reference)
    ca="ca.pem",
    nodes=3,
    hosts=HostsDraft(
        connect="openssh",
        user="deploy",
        port=2222,
        known_hosts="/etc/ssh/known",
        service=Service(manager="systemd", unit="elasticsearch@{node}"),
        overrides={"7": Service(manager="docker", unit="es")},
        remarks=("found on es1",),
    ),
    head=("Cluster prod",),
    zones=("no zones",),
    endpoint_remarks=("no further",),
)


def spec_of(draft: Draft) -> ClusterSpec:
    spec = checked(draft, path=Path("/nowhere/new.yml"), home=Path("/home/op")).spec
    assert isinstance(spec, ClusterSpec)
    return spec


def test_every_key_is_read_back() -> None:
    spec = spec_of(FULL)
    assert (spec.name, spec.endpoints, spec.tls.ca, spec.expect.nodes) == (
        "prod",
        FULL.endpoints,
        "ca.pem",
        3,
    )
    assert spec.auth is not None
    assert spec.auth.basic is not None
    assert (spec.auth.basic.username, str(spec.auth.basic.password)) == ("on", FULL.password)
    hosts = spec.hosts
    assert (hosts.connect, hosts.user, hosts.port) == (Connect.OPENSSH, "deploy", 2222)
    assert hosts.known_hosts == "/etc/ssh/known"
    assert (hosts.service.manager, hosts.service.unit) == (Manager.SYSTEMD, "elasticsearch@{node}")
    other = hosts.overrides["7"].service
    assert other is not None
    assert (other.manager, other.unit) == (Manager.DOCKER, "es")


def test_a_key_and_a_fingerprint_are_read_back() -> None:
    spec = spec_of(Draft(name="a", endpoints=("https://es1:9200",), api_key="env:KEY", fingerprint="12" * 32))
    assert spec.auth is not None
    assert (str(spec.auth.api_key), spec.tls.fingerprint) == ("env:KEY", "12" * 32)


@given(PRINTABLE)
def test_a_text_is_read_as_the_same_text(text: str) -> None:
    content = parse(f"key: {scalar(text)} # said\n{scalar(text)}: 1\n", "file").content
    assert content["key"] == text
    assert text in content


def test_what_could_be_read_otherwise_is_in_quotes(subtests: pytest.Subtests) -> None:
    for text in ["true", "No", "null", "1e3", "0x10", "~", "a: b", "-", "a #b", "{node}", "ö"]:
        with subtests.test(text=text):
            assert scalar(text) == f'"{text}"'


@given(st.text(max_size=200))
def test_a_remark_cannot_leave_its_comment(text: str) -> None:
    draft = Draft(
        name="a",
        endpoints=("http://es1:9200",),
        head=(text,),
        zones=(text,),
        endpoint_remarks=(text,),
        hosts=HostsDraft(remarks=(f"x\nuser: root {text}",), assumed=(f"x\nuser: root {text}",)),
    )
    spec = spec_of(draft)
    assert (spec.name, spec.endpoints, spec.hosts.user) == ("a", ("http://es1:9200",), None)


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "new.yml"
    write_new(path, cluster_text(FULL), 0o644)
    assert path.read_text() == cluster_text(FULL)
    for refusing in (lambda: require_free(path), lambda: write_new(path, "other", 0o644)):
        with pytest.raises(ConfigError, match="exist"):
            refusing()
    assert path.read_text() == cluster_text(FULL)
    (link := tmp_path / "link.yml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="exists"):
        require_free(link)
    with pytest.raises(ConfigError, match="exists"):  # planted after that
        write_new(link, "other", 0o644)
    assert not (tmp_path / "nowhere").exists()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "deep", link]


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(
    ("reference", "mode"),
    [
        ("env:X", 0o644),
        ("file:/x", 0o644),
        ("keyring:es/orch", 0o644),
        ("command:curl -H x-token:t https://v", 0o600),
    ],
)
@pytest.mark.parametrize("key", ["password", "api_key"])
def test_no_umask_changes_the_mode_of_the_file(tmp_path: Path, key: str, reference: str, mode: int) -> None:
    path = tmp_path / "deep" / "er" / "new.yml"
    draft = Draft(name="a", endpoints=("https://es1:9200",), **{key: reference})
    write_new(path, cluster_text(draft), mode_of(draft))
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [one.stat().st_mode & 0o022 for one in (path.parent, path.parent.parent)] == [0, 0]


def test_half_a_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "new.yml"
    with pytest.raises(UnicodeEncodeError):
        write_new(path, "a\ud800", 0o644)
    assert list(tmp_path.iterdir()) == []


def killed_at(number: int, path: Path, text: str) -> bool:
    """Write it in a process that is killed at this line of Python; whether it came so far."""
    if (child := os.fork()) == 0:
        left = number

        def trace(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal left
            left -= event == "line"
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        write_new(path, text, 0o644)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_at_any_line_it_leaves_the_whole_file_or_none(tmp_path: Path) -> None:
    text, whole, number = cluster_text(FULL), [], 0
    while killed_at(number, path := tmp_path / f"{number}.yml", text):
        if path.exists():
            assert path.read_text() == text, number
            whole.append(number)
        else:
            write_new(path, text, 0o644)
            assert path.read_text() == text
        number += 1
    assert 0 < len(whole) < number
