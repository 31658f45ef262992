from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.choices import parse
from orchestrator.hosts.tunables.huge_pages import DEFRAG, ENABLED, KHUGEPAGED_DEFRAG, HugePages
from orchestrator.model.host_facts import HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import BlockChange, FileChange, TunableState, ValueChange, Verdict
from tests.fakes.tuned_hosts import THP, THP_RHEL6, current, profile, rhel6, rhel7, setting, with_files

TMPFILES = "/etc/tmpfiles.d/orchestrate-transparent_hugepage.enabled.conf"
LINE = f"w {THP}/enabled - - - - never\n"


def check(tunable: HugePages, facts: HostFacts, wanted: str, *others: str) -> TunableState:
    line = setting(tunable.name, wanted)
    return tunable.check(facts, line, profile(line, *(setting(name, "override") for name in others)))


def files_of(state: TunableState) -> dict[str, str | None]:
    return {change.path: change.wanted for change in state.changes if isinstance(change, FileChange)}


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
    (block,) = (change for change in state.changes if isinstance(change, BlockChange))
    assert block.wanted is not None
    assert block.wanted.count("echo never") == 2


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


def test_sizes_that_the_command_line_sets_are_written_at_boot_too() -> None:
    host = replace(current(), command_line=("thp_anon=64K:always",))
    state = check(ENABLED, host, "never")
    assert f"w {THP}/hugepages-*/enabled - - - - never" in str(files_of(state)[TMPFILES])


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
    ("files", "command_line", "verdict", "told"),
    [
        ({}, ("transparent_hugepage=never",), Verdict.OK, "never by the kernel command line"),
        ({}, ("transparent_hugepage=never", "transparent_hugepage=always"), Verdict.DRIFT, "always by"),
        ({}, (), Verdict.DRIFT, "not made to last"),
        ({TMPFILES: LINE}, (), Verdict.OK, TMPFILES),
        ({"/etc/tmpfiles.d/thp.conf": LINE}, (), Verdict.OK, "/etc/tmpfiles.d/thp.conf"),
        ({"/usr/lib/tmpfiles.d/thp.conf": f"w! {THP}/ena*  -  -  -  -  never"}, (), Verdict.OK, "thp.conf"),
        ({"/etc/tmpfiles.d/thp.conf": f"# {LINE}"}, (), Verdict.DRIFT, "not made to last"),
        ({"/etc/tmpfiles.d/thp.conf": LINE}, ("transparent_hugepage=always",), Verdict.OK, "thp.conf"),
        # Of two lines for one path the one in the file whose name sorts first counts.
        (
            {TMPFILES: LINE, "/etc/tmpfiles.d/a.conf": LINE.replace("never", "always")},
            (),
            Verdict.DRIFT,
            "always",
        ),
        (
            {TMPFILES: LINE, "/etc/tmpfiles.d/p.conf": LINE.replace("never", "always")},
            (),
            Verdict.OK,
            "never",
        ),
        # A file of the same name in /etc hides the packages' one.
        (
            {"/usr/lib/tmpfiles.d/thp.conf": LINE, "/etc/tmpfiles.d/thp.conf": "\n"},
            (),
            Verdict.DRIFT,
            "not made",
        ),
    ],
)
def test_the_next_boot_is_told_from_what_stands_there(
    files: dict[str, str], command_line: tuple[str, ...], verdict: Verdict, told: str
) -> None:
    host = replace(with_files(current(), **RIGHT, **files), command_line=command_line)
    state = check(ENABLED, host, "never")
    assert state.verdict is verdict
    assert told in state.at_boot
    assert not any(isinstance(change, ValueChange) for change in state.changes)


def test_a_file_of_ours_that_would_be_outvoted_gets_a_name_that_is_not() -> None:
    host = with_files(current(), **RIGHT, **{"/etc/tmpfiles.d/a.conf": LINE.replace("never", "always")})
    assert list(files_of(check(ENABLED, host, "never"))) == [
        "/etc/tmpfiles.d/00-orchestrate-transparent_hugepage.enabled.conf"
    ]


def test_tuned_comes_after_all_of_it_unless_the_command_line_speaks() -> None:
    right = with_files(rhel7(), **RIGHT, **{TMPFILES: LINE})
    state = check(ENABLED, right, "never")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert state.at_boot == "always by tuned's profile throughput-performance"
    assert "the tunable `tuned` overrides that" in state.detail
    quiet = replace(right, command_line=("transparent_hugepage=never",))
    assert check(ENABLED, quiet, "never").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (f"if test -f {THP_RHEL6}/enabled; then\n  echo never > {THP_RHEL6}/enabled\nfi\n", Verdict.OK),
        (f"echo 'never' >{THP_RHEL6}/enabled\necho always > {THP_RHEL6}/enabled\n", Verdict.DRIFT),
        (f"#echo never > {THP_RHEL6}/enabled\n", Verdict.DRIFT),
        (f"exit 0\necho never > {THP_RHEL6}/enabled\n", Verdict.UNKNOWN),
    ],
)
def test_rc_local_of_rhel_6(text: str, verdict: Verdict) -> None:
    right = {f"{THP_RHEL6}/enabled": "always madvise [never]\n", "/etc/rc.d/rc.local": f"#!/bin/sh\n{text}"}
    assert check(ENABLED, with_files(rhel6(), **right), "never").verdict is verdict


def test_a_host_without_a_known_init_system_is_set_and_told_not_to_last() -> None:
    host = replace(current(), init=InitSystem.OTHER)
    state = check(ENABLED, host, "never")
    assert [type(change) for change in state.changes] == [ValueChange]
    after = check(ENABLED, with_files(host, **RIGHT), "never")
    assert after.verdict is Verdict.UNKNOWN
    assert "nothing is written for its next boot" in after.detail


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
