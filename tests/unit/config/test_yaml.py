"""Values, lines and places of a YAML file."""

from __future__ import annotations

from orchestrator.config.yaml import Text, dotted, parse


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
