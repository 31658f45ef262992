from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.choices import parse
from orchestrator.hosts.tunables.huge_pages import DEFRAG, ENABLED, KHUGEPAGED_DEFRAG, HugePages
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TunableState, ValueChange, Verdict
from tests.fakes.tuned_hosts import THP, THP_RHEL6, current, profile, rhel6, rhel7, setting, with_files


def check(tunable: HugePages, facts: HostFacts, wanted: str) -> TunableState:
    line = setting(tunable.name, wanted)
    return tunable.check(facts, line, profile(line))


@pytest.mark.parametrize(
    ("text", "current_word", "offered", "bracketed"),
    [
        ("always [madvise] never\n", "madvise", ("always", "madvise", "never"), True),
        ("always defer [defer+madvise] madvise never", "defer+madvise", None, True),
        ("[yes] no\n", "yes", ("yes", "no"), True),
        ("noop deadline [cfq] \n", "cfq", ("noop", "deadline", "cfq"), True),
        ("none\n", "none", ("none",), False),
        ("[none]", "none", ("none",), True),
        ("1\n", "1", ("1",), False),
        ("a b\n", None, ("a", "b"), False),
        ("\n", None, (), False),
    ],
)
def test_choices(
    text: str,
    current_word: str | None,
    offered: tuple[str, ...] | None,
    bracketed: bool,  # noqa: FBT001  (a column)
) -> None:
    choices = parse(text)
    assert (choices.current, choices.bracketed) == (current_word, bracketed)
    assert offered is None or choices.offered == offered


def test_both_folders_are_set_where_a_kernel_has_both() -> None:
    both = with_files(rhel6(), **{f"{THP}/enabled": "[always] madvise never\n"})
    state = check(ENABLED, both, "never")
    assert {change.path for change in state.changes if isinstance(change, ValueChange)} == {
        f"{THP}/enabled",
        f"{THP_RHEL6}/enabled",
    }


@pytest.mark.parametrize("wanted", ["0", "no"])
def test_khugepaged_is_written_in_the_words_of_its_kernel(wanted: str) -> None:
    words = [
        next(change.wanted for change in check(KHUGEPAGED_DEFRAG, host, wanted).changes)
        for host in (rhel6(), current())
    ]
    assert words == ["no", "0"]


@pytest.mark.parametrize(
    ("word", "wanted", "written"),
    [
        ("inherit", "never", None),
        ("never", "never", None),
        ("always", "never", "never"),
        ("madvise", "never", "never"),
        ("never", "always", None),
        ("always", "madvise", "madvise"),
    ],
)
def test_a_size_drifts_unless_it_follows_or_is_as_wanted(word: str, wanted: str, written: str | None) -> None:
    words = ("always", "inherit", "madvise", "never")
    path = f"{THP}/hugepages-64kB/enabled"
    host = with_files(current(), **{path: " ".join(f"[{w}]" if w == word else w for w in words)})
    made = {c.path: c.wanted for c in check(ENABLED, host, wanted).changes if isinstance(c, ValueChange)}
    assert made.get(path) == written


def test_a_word_that_is_not_offered_is_unknown_and_not_tried() -> None:
    state = check(DEFRAG, rhel7(), "defer+madvise")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert "defer+madvise is not offered" in state.detail


def test_a_kernel_without_them_is_fine() -> None:
    bare = replace(current(), files={})
    assert check(ENABLED, bare, "never").verdict is Verdict.NOT_APPLICABLE


def test_a_file_that_cannot_be_read_is_unknown() -> None:
    state = check(ENABLED, with_files(current(), **{f"{THP}/enabled": Unknown(reason="denied")}), "never")
    assert state.verdict is Verdict.UNKNOWN
    assert "denied" in state.detail


RIGHT = {f"{THP}/enabled": "always madvise [never]\n"}


@pytest.mark.parametrize(
    ("tunable", "good", "bad"),
    [(ENABLED, "madvise", "defer"), (DEFRAG, "defer+madvise", "0"), (KHUGEPAGED_DEFRAG, "no", "never")],
)
def test_words_of_a_profile(tunable: HugePages, good: str, bad: str) -> None:
    assert tunable.valid(setting(tunable.name, good)) is None
    wrong = tunable.valid(setting(tunable.name, bad))
    assert wrong is not None
    assert good in wrong
    assert tunable.valid(setting(tunable.name, {"ssd": good})) is not None
