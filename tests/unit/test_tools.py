"""A program that this machine lacks: a skip that names it, and a failure under `make test`."""

from __future__ import annotations

import pytest

from tests.tools import ALL_TOOLS, needs


@pytest.mark.parametrize(("value", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_a_missing_program_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv(ALL_TOOLS, value)
    with pytest.raises(outcome, match="no-such-tool is not on this machine: apt-get install no-such-tool"):
        needs("no-such-tool")
