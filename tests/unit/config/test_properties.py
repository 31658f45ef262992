"""Whatever a user writes, the answer is a model or one clear error, and no secret stands in it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.cluster import ClusterFile, check_cluster
from orchestrator.config.elasticsearch import ClusterSpec, PlaybookSpec
from orchestrator.config.playbook import Playbook, check_playbook
from orchestrator.config.riak import RiakClusterSpec, RiakPlaybookSpec
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError, NotInThisVersion

PATH = Path("f.yml")
HOME = Path("/home/op")

SHIPPED = [
    Path(__file__).parents[3].joinpath(*parts).read_text()
    for parts in (
        ("configs", "clusters", "example.yml"),
        ("configs", "clusters", "riak-example.yml"),
        ("docs", "reference", "playbook.yml"),
        ("docs", "reference", "riak-playbook.yml"),
    )
]

KEYS = sorted(
    {
        *ClusterSpec.model_fields,
        *RiakClusterSpec.model_fields,
        *PlaybookSpec.model_fields,
        *RiakPlaybookSpec.model_fields,
        "nodes",
        "admin",
        "service",
        "overrides",
        "password",
        "basic",
        "run",
    }
)
WORDS = st.sampled_from(
    ["elasticsearch", "riak", "node", "zone", "ssh", "env:A", "10m", "50%", "none", "http://a:1"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)
SECRET = st.from_regex(
    r"[*&!%@|>{\[a-zA-Z0-9'\": #-]{0,6}s3cr3t-VALUE[*}\]a-zA-Z0-9'\": #-]{0,6}", fullmatch=True
)


def _check(text: str) -> ClusterFile | Playbook | str:
    """A model, or the whole tracebacks of both refusals, as a crash would print them."""
    refusals: list[ConfigError | NotInThisVersion] = []
    try:
        document = parse(text, "f.yml")
        for check in (
            lambda: check_cluster(document, path=PATH, home=HOME),
            lambda: check_playbook(document, path=PATH, name="f"),
        ):
            try:
                return check()
            except (ConfigError, NotInThisVersion) as error:
                refusals.append(error)
    except ConfigError as error:
        refusals.append(error)
    assert all(str(error).startswith("f.yml:") for error in refusals)
    return "".join(line for error in refusals for line in traceback.format_exception(error))


@settings(max_examples=160, deadline=None)
@given(st.text(max_size=80) | st.text(alphabet="ab:-{}[]\"'|>&*!%@#,? \n\t", max_size=40))
def test_no_text_leads_to_anything_but_a_clear_error(text: str) -> None:
    assert _check(text)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["elasticsearch", "riak"]), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_value_of_a_known_key_is_taken_or_a_clear_error(kind: str, content: dict[str, Any]) -> None:
    assert _check(f"kind: {kind}\n" + "".join(f"{key}: {_flow(value)}\n" for key, value in content.items()))


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(SHIPPED), st.data())
def test_any_slip_of_the_keyboard_is_taken_or_a_clear_error(text: str, data: st.DataObject) -> None:
    lines = [line for line in text.splitlines() if line.split("#")[0].strip()]
    index = data.draw(st.integers(min_value=0, max_value=len(lines) - 1))
    column = data.draw(st.integers(min_value=0, max_value=len(lines[index])))
    slip = data.draw(st.text(alphabet="ab:-{}[]\"'|>&*!%@#,? \t", min_size=1, max_size=3))
    lines[index] = lines[index][:column] + slip + lines[index][column:]
    assert _check("\n".join(lines))


PLACES = [
    "auth: {secret}",
    "auth: {{api_key: {secret}}}",
    "auth:\n  api_key: {secret}",
    "auth:\n  api_key: '{secret}",
    "auth:\n  {secret}:",
    "auth:\n  basic:\n    username: u\n    password: {secret}",
    "auth:\n  basic: {secret}",
    "auth:\n  basic: [{secret}]",
    "hosts:\n  sudo: {secret}",
    "hosts:\n  sudo:\n    password: {secret}",
    "hosts:\n  password: {secret}",
    "hosts:\n  overrides:\n    es7:\n      sudo: {{password: {secret}}}",
]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(["elasticsearch", "riak"]), st.sampled_from(PLACES), SECRET)
def test_no_message_repeats_a_literal_secret(kind: str, place: str, secret: str) -> None:
    head = f"kind: {kind}\nname: x\nendpoints: ['http://localhost:9200']\n"
    result = _check(head + place.format(secret=secret) + "\n")
    # A `#` or a quote may end the value before the secret, and what is left may be right.
    assert "s3cr3t" not in (result if isinstance(result, str) else repr(result))


@settings(max_examples=25, deadline=None)
@given(st.from_regex(r"[a-zA-Z0-9._~-]{0,8}s3cr3t[a-zA-Z0-9._~-]{0,8}", fullmatch=True))
def test_no_message_repeats_a_password_in_an_endpoint(secret: str) -> None:
    for kind in ("elasticsearch", "riak"):
        result = _check(f"kind: {kind}\nname: x\nendpoints: ['https://elastic:{secret}@es1:9200']\n")
        assert isinstance(result, str)
        assert "s3cr3t" not in result
        assert "f.yml:3: endpoints[0]: must not hold a user or a password" in result


def _flow(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_flow(str(key))}: {_flow(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool() | None:
            return str(value).lower() if value is not None else "~"
        case _:
            return str(value)
