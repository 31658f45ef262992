"""Each file of `docs/development/changes/` has the form that its README asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/development/changes"
NAME = re.compile(r"(added|changed|fixed|removed|security)-[a-z0-9]+(-[a-z0-9]+)*\.md")
END_OF_SENTENCE = re.compile(r"[.?](?=\s|$)")


def _faults(name: str, text: str) -> list[str]:
    sentences = len(END_OF_SENTENCE.findall(re.sub(r"`[^`]*`", "", text)))
    found = {
        "name": NAME.fullmatch(name) is None,
        "paragraph": re.fullmatch(r"[A-Z`](.*\S\n)+", text) is None,
        "link": "](" in text,
        "sentences": sentences not in (1, 2) or not text.endswith(".\n"),
    }
    return [fault for fault, is_there in found.items() if is_there]


def test_every_change_has_the_form() -> None:
    files = [file for file in FOLDER.iterdir() if file.name != "README.md"]
    found = {file.name: _faults(file.name, file.read_text()) for file in files}
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_a_fault_of_a_change_is_found(subtests: pytest.Subtests) -> None:
    good = "`status` names each host.\nIt named the first one.\n"
    for name, text, faults in [
        ("fixed-status.md", good, []),
        ("added-es-9.1.md", good, ["name"]),
        ("status.md", good, ["name"]),
        ("fixed-status.txt", good, ["name"]),
        ("fixed-status.md", f"# Status\n\n{good}", ["paragraph"]),
        ("fixed-status.md", f"- {good}", ["paragraph"]),
        ("fixed-status.md", "See [it](status.md).\n", ["link"]),
        ("fixed-status.md", "One. Two. Three.\n", ["sentences"]),
        ("fixed-status.md", "Status names each host\n", ["sentences"]),
        ("fixed-status.md", "", ["paragraph", "sentences"]),
    ]:
        with subtests.test(name=name, text=text):
            assert _faults(name, text) == faults
