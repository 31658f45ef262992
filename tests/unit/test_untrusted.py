"""Values from outside: what is accepted, what is refused, and what people see of the rest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.untrusted import UntrustedValue, one_line, unit, visible
from orchestrator.untrusted_json import parsed

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def _seen(value: object) -> object:
    match value:
        case str():
            return visible(value)
        case list():
            return [_seen(one) for one in value]
        case dict():
            return {visible(key): _seen(one) for key, one in value.items()}
        case _:
            return value


@given(st.text())
def test_what_is_visible_is_one_line_and_stays_as_it_is(text: str) -> None:
    assert len(visible(text).splitlines()) <= 1
    assert visible(visible(text)) == visible(text)
    assert not text.isprintable() or visible(text) == text


@given(st.text(), st.integers(10, 400))
def test_one_line_is_one_line_of_limited_length(text: str, limit: int) -> None:
    assert len(one_line(text, limit)) <= limit
    assert len(one_line(text, limit).splitlines()) <= 1


@given(ANY_JSON)
def test_every_text_of_an_answer_is_visible(value: object) -> None:
    """However the server writes it: as an escape, or as the character."""
    assert parsed(json.dumps(value)) == _seen(value)
    assert parsed(json.dumps(value, ensure_ascii=False).encode()) == _seen(value)


def test_an_ordinary_answer_is_not_changed() -> None:
    value = {"näme": ["es1", "C:\\data", 'a "quoted" word', "/var/lib"], "count": 3, "none": None}
    assert parsed(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", '{"a":' * 5000 + "1" + "}" * 5000, '["\\u001b"' + ',["\n"' * 300]
)
def test_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)


def test_an_answer_nested_too_deep_to_be_checked_is_refused() -> None:
    with pytest.raises(ValueError, match="nested"):
        parsed("[" * 500 + '"\\u001b"' + "]" * 500)


def test_unit_takes_the_name_of_a_service_alone() -> None:
    for name in ("elasticsearch", "elasticsearch@es-1.service", "riak", "es_1:9200", "x\\x2dy"):
        assert unit(name) == name
    wrong = ("", "-f", "--root=/", "../../evil", "a/b", "es@*", "es?", "es[12]", "a b")
    for name in (*wrong, "a\tb", "a\nb", "a\0", "a\x7f", "\u202ees"):
        with pytest.raises(UntrustedValue, match="cannot be the name of a service"):
            unit(name)


def test_a_command_is_not_cut_in_two() -> None:
    """Half a command would be typed as it is printed: `resume RUN --sta` fails, or finds another run."""
    text = "free space, then `orchestrate resume RUN --state X`"
    for limit in range(12, 40):
        assert one_line(text, limit) == text[: min(limit - 3, text.index("`"))] + "..."
    assert one_line("`orchestrate status` shows it in full", 30) == "`orchestrate status` shows ..."
    assert one_line("it`s a long, long reason for this", 20) == "it`s a long, long..."
