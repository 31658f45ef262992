"""Texts and tables as wide as a terminal: no word is broken, and what does not fit goes below."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from orchestrator.view.signs import SIGNS
from orchestrator.view.text import noted, printed, table, wrapped

KEY = "cluster.routing.allocation.node_concurrent_recoveries"


def test_a_text_is_wrapped_between_words(subtests: pytest.Subtests) -> None:
    for text, width, more, lines in (
        ("one two three", None, {}, ["one two three"]),
        ("one two three", 13, {}, ["one two three"]),
        ("one two three", 9, {}, ["one two", "    three"]),
        ("one two three", 9, {"first": "- ", "then": "  "}, ["- one two", "  three"]),
        (f"set {KEY} now", 20, {"first": "  "}, ["  set", f"      {KEY}", "      now"]),
        ("日本 語", 6, {}, ["日本", "    語"]),
        ("", 10, {"first": "  "}, [""]),
    ):
        with subtests.test(text=text, width=width):
            assert wrapped(text, width, **more) == lines


HEAD, ROWS = (
    ("WAVE", "NODES", "WHY"),
    [("1", "es1", "it has no data and no vote, so it is the first"), ("2", "es2", "")],
)


def test_a_note_breaks_no_word_and_its_commands_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "orchestrate restore 20261201-0853-qbm5 --state sqlite:////tmp/s.db"
    noted_lines = noted(["Its folder is not there; make it first, or name another:", f"    {command}"], Tty())
    assert noted_lines.splitlines() == [
        "Its folder is not there; make it first,",
        "    or name another:",
        "    orchestrate restore \\",
        "      20261201-0853-qbm5 \\",
        "      --state sqlite:////tmp/s.db",
    ]
    assert noted([f"    {command}"], io.StringIO()) == f"    {command}\n"
    assert noted(["    orchestrate 'an open quote"], Tty()) == "    orchestrate 'an open quote\n"


class Tty(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_table_becomes_narrower(subtests: pytest.Subtests) -> None:
    """Its last column is wrapped; if little is left for it, it goes below; then each cell is a line."""
    for width, lines in (
        (None, ["WAVE  NODES  WHY", f"1     es1    {ROWS[0][2]}", "2     es2"]),
        (
            40,
            [
                "WAVE  NODES  WHY",
                "1     es1    it has no data and no vote,",
                "             so it is the first",
                "2     es2",
            ],
        ),
        (
            34,
            [
                "WAVE  NODES",
                "1     es1",
                "      it has no data and no vote,",
                "      so it is the first",
                "2     es2",
            ],
        ),
        (
            10,
            ["WAVE 1", "  NODES", "      es1", "  WHY it"]
            + [f"      {word}" for word in ROWS[0][2].split()[1:]]
            + ["WAVE 2", "  NODES", "      es2"],
        ),
    ):
        with subtests.test(width=width):
            assert table(HEAD, ROWS, width=width) == lines


def test_a_table_without_a_head_has_rows_alone() -> None:
    assert table((), [("a", "1"), ("bb", "20")], numbers=(1,)) == ["a    1", "bb  20"]
    assert table((), []) == []


def test_no_line_of_a_table_is_wider_than_its_terminal() -> None:
    for width in range(20, 120):
        assert max(map(cell_len, table(HEAD, ROWS, width=width))) <= width


def test_every_sign_has_an_ascii_form() -> None:
    """`LC_ALL=C` and a pipe: the bar of a status was a hundred escapes."""
    line = "".join(sign for sign, *_ in SIGNS.values()) + "→…"
    ascii_only = printed([line], io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert ascii_only == "".join(plain for _, plain, _ in SIGNS.values()) + "->...\n"
    assert printed([line, "ä"], io.TextIOWrapper(io.BytesIO(), "utf-8")) == f"{line}\nä\n"
