from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.hosts.blocks import block_in, with_block

TEXT = "kernel.sysrq = 0\n"
BLOCK = "# BEGIN orchestrate vm.swappiness\nvm.swappiness = 1\n# END orchestrate vm.swappiness\n"


def test_a_block_is_appended_found_and_taken_away() -> None:
    written = with_block(TEXT, "vm.swappiness", "vm.swappiness = 1")
    assert written == TEXT + BLOCK
    assert block_in(written, "vm.swappiness") == "vm.swappiness = 1"
    assert with_block(written, "vm.swappiness", None) == TEXT


def test_a_block_is_rewritten_in_place_and_others_are_left() -> None:
    text = BLOCK + TEXT + BLOCK.replace("swappiness", "other")
    written = with_block(text, "vm.swappiness", "vm.swappiness = 9")
    assert written == BLOCK.replace("= 1", "= 9") + TEXT + BLOCK.replace("swappiness", "other")


@pytest.mark.parametrize(
    "text", [TEXT, "", "# BEGIN orchestrate vm.swappiness\nx\n", BLOCK.replace("vm", "um")]
)
def test_where_there_is_no_whole_block_there_is_none(text: str) -> None:
    assert block_in(text, "vm.swappiness") is None
    assert with_block(text, "vm.swappiness", None) == text


def test_a_begin_without_an_end_removes_no_other_line() -> None:
    text = "# BEGIN orchestrate vm.swappiness\nprecious\n" + BLOCK
    assert with_block(text, "vm.swappiness", None) == "# BEGIN orchestrate vm.swappiness\nprecious\n"


@given(st.text(alphabet="ab#\n ", max_size=40), st.text(alphabet="xy= \n", max_size=20))
def test_removing_a_block_restores_all_but_the_last_line_end(text: str, lines: str) -> None:
    written = with_block(text, "n", lines)
    ended = text if not text or text.endswith("\n") else text + "\n"
    assert with_block(written, "n", None) == ended
    assert block_in(written, "n") == lines.removesuffix("\n")
