"""Where an `n_val` of its own may stand: no type is overlooked, and no number is taken for another one."""

from __future__ import annotations

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.parse_bucket_types import parse_bucket_types, parse_n_val
from tests.unit.stores.riak_outputs import V29, V30, V32, out

LIST = "default (active)\nwide (not active)\nlast (active)\n"
NAMES = ("default", "wide", "last")


@pytest.mark.parametrize("term", ["ok", "true"])
def test_the_list_ends_with_what_closing_its_iterator_returned(term: str) -> None:
    assert parse_bucket_types(out(f"{LIST}{term}\n"), V32) == NAMES


@pytest.mark.parametrize("version", [V29, V30], ids=["2.9", "3.0"])
def test_before_the_return_term_the_last_type_is_the_last_line(version: object) -> None:
    assert parse_bucket_types(out(LIST), version) == NAMES  # type: ignore[arg-type]  # a dialect
    assert parse_bucket_types(out("default (active)\n"), version) == ("default",)  # type: ignore[arg-type]  # a dialect


def test_a_line_that_says_more_or_something_else_hides_no_type(subtests: pytest.Subtests) -> None:
    for text in [
        "default (active)\nwide (active) and one more\nok\n",
        "default (active) wide (active)\nok\n",
        "default (active)\nok\nwide (active)\nok\n",
        "default (active)\nwide (active)\nfalse\n",
        "default (active)\nwide (unknown)\nok\n",
    ]:
        with subtests.test(text=text):
            assert isinstance(parse_bucket_types(out(text), V32), Unknown)


def test_a_list_with_a_bad_exit_code_is_unknown() -> None:
    assert isinstance(parse_bucket_types(out(f"{LIST}ok\n", 1), V32), Unknown)
    assert isinstance(parse_bucket_types(out(f"{LIST}ok\n", None), V32), Unknown)


def status(*lines: str, head: str = "wide is active") -> str:
    return "\n".join((head, "", *lines)) + "\n"


@pytest.mark.parametrize("head", ["wide is active", "wide has been created and may be activated"])
def test_the_n_val_may_be_the_first_or_last_property(head: str) -> None:
    """Where it stands is by chance."""
    assert parse_n_val(out(status("n_val: 5", "ok", head=head)), "wide") == 5
    assert parse_n_val(out(status("r: quorum", "n_val: 1", "w: quorum", head=head)), "wide") == 1


def test_what_is_not_just_one_n_val_of_this_type_is_unknown(subtests: pytest.Subtests) -> None:
    for text in [
        status("r: quorum", "n_val: 5"),
        status("n_val: 0", "ok"),
        status("n_val: 3", "n_val: 5", "ok"),
        status("n_val: 3 or 5", "ok"),
        status("n_val: 3.5", "ok"),
        status("n_val: -3", "ok"),
        status("old_n_val: 3", "ok"),
        status("r: quorum", "ok"),
        status("n_val: 3", "ok", head="wide is active no more"),
        status("n_val: 3", "ok", head="wider is active"),
        status("n_val: 3", "ok", head="wide is not active"),
        "",
    ]:
        with subtests.test(text=text):
            assert isinstance(parse_n_val(out(text), "wide"), Unknown)


def test_an_n_val_with_a_bad_exit_code_is_unknown() -> None:
    whole = status("n_val: 3", "ok")
    assert parse_n_val(out(whole), "wide") == 3
    assert isinstance(parse_n_val(out(whole, 1), "wide"), Unknown)
    assert isinstance(parse_n_val(out(whole, None), "wide"), Unknown)
