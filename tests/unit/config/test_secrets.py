from __future__ import annotations

import copy
import json
import pickle
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from orchestrator.config.secrets import (
    Secret,
    SecretResolver,
    look_up_keyring,
    parse_reference,
    run_command,
)
from orchestrator.config.yaml import FilePlace
from orchestrator.errors import ConfigError, how_to_add

PLACE = FilePlace(file="prod.yml", line=5, key="auth.api_key")


def _resolver(folder: Path, **environment: str) -> SecretResolver:
    return SecretResolver(environment=environment, folder=folder, home=folder / "home")


def _failure(resolver: SecretResolver, reference: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolver.resolve(parse_reference(reference, PLACE))
    assert (caught.value.file, caught.value.line, caught.value.key) == ("prod.yml", 5, "auth.api_key")
    program, *more = reference.split()
    shown = f"{program} …" if more and program.startswith("command:") else reference
    said = str(caught.value)
    assert said.startswith(f"prod.yml:5: auth.api_key: secret {shown}: ")
    return said.removeprefix(f"prod.yml:5: auth.api_key: secret {shown}: ")


def test_a_secret_shows_itself_to_nobody_who_does_not_ask_for_it() -> None:
    secret = Secret("s3cret", origin="env:KEY")
    assert secret.reveal() == "s3cret"
    assert [repr(secret), str(secret), f"{secret:>40}"] == [
        "Secret(env:KEY)", "<secret from env:KEY>", "<secret from env:KEY>"
    ]  # fmt: skip


def test_a_secret_cannot_be_stored_by_accident() -> None:
    @dataclass
    class Event:
        payload: object

    secret = Secret("s3cret", origin="env:KEY")
    for store in (json.dumps, pickle.dumps, copy.deepcopy, lambda value: asdict(Event(payload=value)), vars):
        with pytest.raises(TypeError) as caught:
            store(secret)
        assert "s3cret" not in str(caught.value)


def test_each_scheme_finds_its_secret(tmp_path: Path) -> None:
    (tmp_path / "es.key").write_text("from-file\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "es.key").write_text("from-home")
    keyring = {("es/prod", "op"): "from-keyring"}
    resolver = SecretResolver(
        environment={"KEY": "from-env"},
        folder=tmp_path,
        home=tmp_path / "home",
        keyring=lambda service, user: keyring.get((service, user)),
    )
    found = {
        reference: resolver.resolve(parse_reference(reference)).reveal()
        for reference in (
            "env:KEY",
            "file:es.key",
            f"file:{tmp_path}/es.key",
            "file:~/es.key",
            "command:printf '%s\\n' 'two words'",
            "keyring:es/prod/op",
        )
    }
    assert list(found.values()) == [
        "from-env",
        "from-file",
        "from-file",
        "from-home",
        "two words",
        "from-keyring",
    ]


def _hangs(words: Sequence[str]) -> bytes:
    raise subprocess.TimeoutExpired(list(words), 30.0, output=b"s3cret")


def _no_package(service: str, user: str) -> str | None:
    raise ModuleNotFoundError(f"no keyring for {service}, {user}")


def test_what_is_wrong_with_a_secret_is_said_and_not_shown(subtests: pytest.Subtests, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "huge").write_bytes(b"x" * 70_000)
    values = {"EMPTY": "", "LINES": "s3\ncret"}
    usual = SecretResolver(environment=values, folder=tmp_path, home=tmp_path, keyring=lambda *_: None)
    hanging = SecretResolver(environment={}, folder=tmp_path, home=tmp_path, command=_hangs)
    without = SecretResolver(environment={}, folder=tmp_path, home=tmp_path, keyring=_no_package)
    for resolver, reference, said in [
        (usual, "env:KEY", "the environment variable KEY is not set"),
        (usual, "file:/nowhere/x", "/nowhere/x cannot be read: No such file or directory"),
        (usual, "command:/nowhere/x", "the command cannot be run: No such file or directory"),
        (usual, "keyring:es/op", "the key ring holds nothing for service es, user op"),
        (usual, "env:EMPTY", "is empty"),
        (usual, "env:LINES", "is not one line of printable text"),
        (usual, "file:binary", "is not UTF-8 text"),
        (usual, "file:huge", "holds more than 64 KiB"),
        (
            usual,
            "command:sh -c 'echo s3cret; echo s3cret >&2; exit 3'",
            "the command ended with exit code 3; run it by hand to see why",
        ),
        (hanging, "command:pass show es", "the command did not end within 30 s"),
        (without, "keyring:es/op", f"needs the extra `keyring`: {how_to_add('keyring')}"),
    ]:
        with subtests.test(reference=reference):
            assert _failure(resolver, reference) == said


def test_a_key_that_fits_no_header_is_refused_and_not_shown(tmp_path: Path) -> None:
    resolver = _resolver(tmp_path, KEY="ключ")
    reference = parse_reference("env:KEY", PLACE)
    with pytest.raises(ConfigError, match=r"prod.yml:5: auth.api_key: .*outside ASCII") as caught:
        resolver.resolve(reference, header=True)
    assert "ключ" not in str(caught.value)
    assert resolver.resolve(reference).reveal() == "ключ", "a password is encoded"


def test_a_command_gets_no_terminal_to_ask_on() -> None:
    assert run_command(["sh", "-c", "read answer || printf none"]) == b"none"


def test_the_key_ring_is_asked_through_the_package_alone() -> None:
    # Whether or not the extra is installed here: nothing but these two may come out.
    with pytest.raises((ModuleNotFoundError, RuntimeError)):
        look_up_keyring("orchestrate-test", "nobody")


def test_a_reference_is_shown_as_it_was_written() -> None:
    assert str(parse_reference("file:/run/secrets/es", PLACE)) == "file:/run/secrets/es"
