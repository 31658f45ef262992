"""Erlang terms by themselves: what is one, what is none, and names that go into commands again."""

from __future__ import annotations

import pytest

from orchestrator.stores.riak.output import Malformed
from orchestrator.stores.riak.terms import (
    atoms,
    counts_by_node,
    node_name,
    node_names,
    parse_term,
    printed_node,
)


def test_a_term_is_read(subtests: pytest.Subtests) -> None:
    for text, term in [
        ("ok", "ok"),
        ("'a b'", "a b"),
        (r"'it\'s'", "it's"),
        (r"'a\\b'", "a\\b"),
        ("riak@host", "riak@host"),
        ("42", 42),
        ("-7", -7),
        ("2.5", 2.5),
        ("[]", []),
        ("{}", ()),
        (" [ 1 ,\n  {a, 'b'} , [] ]\n", [1, ("a", "b"), []]),
        ("{1,{2,{3}}}", (1, (2, (3,)))),
        ("9" * 60, int("9" * 60)),
        ("a" * 200, "a" * 200),
        ("[" * 21 + "]" * 21, None),
    ]:
        with subtests.test(text=text, term=term):
            found = parse_term(text)
            assert term is None or (found == term and type(found) is not bool)


def test_what_is_cut_or_odd_is_no_term(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        " ",
        "[",
        "[1",
        "[1,",
        "[1 2]",
        "[1 2 3]",
        "[1{2,3]",
        "[}1}]",
        "[1}",
        "{1]",
        "[,1]",
        "[1,]",
        ",",
        "]",
        "}",
        "1 2",
        "[] ]",
        "[1],",
        "Variable",
        "1abc",
        "1@a",
        "1.2.3",
        "'open",
        "'over\nlines'",
        '"text"',
        "<<1>>",
        "#{}",
        "9" * 61,
        "[" * 22 + "]" * 22,
    ]:
        with subtests.test(text=text), pytest.raises(Malformed):
            parse_term(text)


@pytest.mark.parametrize("name", ["riak@10.0.0.1", "a_b-c.d@h-1.example.net", "r@::1", "dev1@127.0.0.1"])
def test_a_node_has_a_name_and_a_host(name: str) -> None:
    assert node_name(name) == name
    assert printed_node(f" {name} ") == printed_node(f"'{name}'") == name


def test_what_could_be_more_than_a_name_is_none(subtests: pytest.Subtests) -> None:
    for name in [
        "",
        "riak",
        "@h",
        "riak@",
        "a@b@c",
        "a b@h",
        "a@h;reboot",
        "a@$(id)",
        "a@h\n",
        "ä@h",
        "'a@h'",
        "*@h",
        7,
    ]:
        with subtests.test(name=name), pytest.raises(Malformed):
            node_name(name)


def test_a_name_is_quoted_on_both_sides_or_not_at_all(subtests: pytest.Subtests) -> None:
    for text in ["'", "''", "'a@h", "a@h'", '"a@h"', "''a@h''"]:
        with subtests.test(text=text), pytest.raises(Malformed):
            printed_node(text)


def test_lists_of_nodes_and_of_atoms() -> None:
    assert node_names("['a@h','b@h']") == ("a@h", "b@h")
    assert atoms("[riak_kv,'riak pipe']") == ("riak_kv", "riak pipe")
    assert node_names("[]") == atoms("[]") == ()


def test_what_is_no_list_of_nodes_is_refused(subtests: pytest.Subtests) -> None:
    for text in ["['a@h','a@h']", "['a@h',b]", "'a@h'", "{'a@h'}", "[1]", "[['a@h']]"]:
        with subtests.test(text=text), pytest.raises(Malformed):
            node_names(text)


def test_what_is_no_list_of_atoms_is_refused(subtests: pytest.Subtests) -> None:
    for text in ["riak_kv", "{riak_kv}", "[riak_kv,1]", "[[riak_kv]]", "[{riak_kv}]"]:
        with subtests.test(text=text), pytest.raises(Malformed):
            atoms(text)


def test_a_list_of_counts() -> None:
    assert counts_by_node("[{'a@h',3},{'b@h',0}]") == {"a@h": 3, "b@h": 0}
    assert counts_by_node("[]") == {}


def test_what_is_no_list_of_counts_is_refused(subtests: pytest.Subtests) -> None:
    for text in [
        "[{'a@h',3},{'a@h',3}]",
        "[{'a@h',3,4}]",
        "[{'a@h'}]",
        "[{'a@h','3'}]",
        "[{'a@h',3.0}]",
        "[{3,'a@h'}]",
        "[['a@h',3]]",
        "['a@h',3]",
        "{'a@h',3}",
        "[{a,3}]",
    ]:
        with subtests.test(text=text), pytest.raises(Malformed):
            counts_by_node(text)
