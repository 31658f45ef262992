"""Values, lines and places of a YAML file."""

from __future__ import annotations

from orchestrator.config.yaml import Text, dotted, parse


def test_words_and_numbers_are_those_of_yaml_1_2() -> None:
    text = "%YAML 1.1\n---\na: off\nb: NO\nc: y\nd: 12:30\ne: 2026-11-01T00:00Z\nf: '7'\n7: g\n"
    assert parse(text, "f.yml").content == {
        "a": "off", "b": "NO", "c": "y", "d": "12:30", "e": "2026-11-01T00:00Z", "f": "7", "7": "g"
    }  # fmt: skip
    text = "a: 017\nb: 0o17\nc: 0x1f\nd: -3\ne: 1.5\nf: true\ng: ~\nh:\ni: 1_000\n"
    assert parse(text, "f.yml").content == {
        "a": 17, "b": 15, "c": 31, "d": -3, "e": 1.5, "f": True, "g": None, "h": None, "i": "1_000"
    }  # fmt: skip
    assert parse("a: &x {b: 1}\nc: *x\nd: &x 2\n", "f.yml").content == {"a": {"b": 1}, "c": {"b": 1}, "d": 2}


def test_every_key_and_item_knows_its_line() -> None:
    document = parse("a: 1\nb:\n  c:\n  - x\n  - d: 1\n    e: 2\n", "f.yml")
    assert document.lines == {
        ("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "c", 0): 4, ("b", "c", 1): 5, ("b", "c", 1, "d"): 5,
        ("b", "c", 1, "e"): 6,
    }  # fmt: skip
    assert document.line(("b", "c", 1, "missing")) == 5
    assert document.line(("missing",)) is None
    text = parse("a:\n  b: x\n", "f.yml").content["a"]["b"]
    assert isinstance(text, Text)
    assert str(text.place) == "f.yml:2: a.b"


def test_keys_are_shown_as_they_are_found() -> None:
    dots = dotted(("hosts", "overrides", "es7.example.org", "port"))
    assert dots == 'hosts.overrides["es7.example.org"].port'
    assert dotted(("endpoints", 0)) == "endpoints[0]"
    assert dotted(("hosts", "overrides", "es-*", "port")) == "hosts.overrides.es-*.port"
