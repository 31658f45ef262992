"""A new cluster file is read back as what it was written from, whatever a cluster calls its parts."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import draft
from orchestrator.config.draft import (
    Draft,
    Service,
    checked,
    cluster_text,
    mode_of,
    require_free,
    scalar,
    write_new,
)
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.host import Connect, Manager

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=30)
FULL = Draft(
    name="prod",
    endpoints=("https://es1:9200", "https://[::1]:9200"),
    username="on",
    password="command:pass show 'es: prod' # it",  # noqa: S106  (a reference)
    ca="ca.pem",
    nodes=3,
    connect="openssh",
    ssh_user="deploy",
    ssh_port=2222,
    known_hosts="/etc/ssh/known",
    service=Service(manager="systemd", unit="elasticsearch@{node}"),
    overrides={"7": Service(manager="docker", unit="es")},
    service_remarks=("found on es1",),
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
    spec = spec_of(Draft(name="a", endpoints=("https://es1:9200",), api_key="env:KEY", fingerprint="12" * 32))
    assert spec.auth is not None
    assert (str(spec.auth.api_key), spec.tls.fingerprint) == ("env:KEY", "12" * 32)


@given(PRINTABLE)
def test_a_text_is_read_as_the_same_text(text: str) -> None:
    content = parse(f"key: {scalar(text)} # said\n{scalar(text)}: 1\n", "file").content
    assert content["key"] == text
    assert text in content


@given(st.text(max_size=200))
def test_a_remark_cannot_leave_its_comment(text: str) -> None:
    key = (f"x\nuser: root {text}",)
    remarks = {"head": (text,), "zones": (text,), "endpoint_remarks": (text,)}
    remarks |= {"service_remarks": key, "assumed": key, "why_connect": key}
    spec = spec_of(replace(Draft(name="a", endpoints=("http://es1:9200",)), **remarks))
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


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_no_umask_changes_the_mode_of_the_file(
    subtests: pytest.Subtests, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    """A command line may hold a token; any other reference is no secret."""
    references = {"env:X": 0o644, "file:/x": 0o644, "keyring:es/orch": 0o644, "command:curl -H x:t v": 0o600}
    cases = itertools.product((0o000, 0o022, 0o077), ("password", "api_key"), references.items())
    for number, (mask, key, (reference, mode)) in enumerate(cases):
        with subtests.test(mask=oct(mask), key=key, reference=reference):
            umask(mask)
            path = tmp_path / str(number) / "er" / "new.yml"
            written = Draft(name="a", endpoints=("https://es1:9200",), **{key: reference})
            write_new(path, cluster_text(written), mode_of(written))
            assert stat.S_IMODE(path.stat().st_mode) == mode
            assert [one.stat().st_mode & 0o022 for one in (path.parent, path.parent.parent)] == [0, 0]


def test_half_a_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "new.yml"
    with pytest.raises(UnicodeEncodeError):
        write_new(path, "a\ud800", 0o644)
    assert list(tmp_path.iterdir()) == []


def killed_at(number: int, path: Path, text: str) -> bool:
    """Write it in a process that is killed before this line of `draft`; whether it came so far."""
    if (child := os.fork()) == 0:
        left = number

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal left
            left -= event == "line" and frame.f_code.co_filename == draft.__file__
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
