"""`force_merge` of a playbook and the flags of the commands that merge, as one policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.cluster import check_cluster
from orchestrator.config.disabling import PredicateNames
from orchestrator.config.merging import MergeFlags
from orchestrator.config.playbook import check_playbook
from orchestrator.config.policy import Overrides, build_policy
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.model.merging import LoaderSettings, MergePolicy
from orchestrator.model.policy import Policy

HEAD = "kind: elasticsearch\nname: prod\nendpoints: ['http://localhost:9200']\n"
BOOK = "kind: elasticsearch\n"
WHOLE = """force_merge:
  max_segments: 3
  at_once: 4
  per_node: 2
  deadline: 2h
  put_right: {number_of_replicas: 2, refresh_interval: 30s, translog_durability: request}
"""


def _policy(flags: MergeFlags | None, playbook: str = "") -> Policy:
    return build_policy(
        check_cluster(parse(HEAD, "prod.yml"), path=Path("prod.yml"), home=Path("/home/op")),
        check_playbook(parse(BOOK + playbook, "b.yml"), path=Path("b.yml"), name="b"),
        Overrides(merge=flags),
        predicates=PredicateNames(known=(), always_on=()),
        nodes=3,
        now=0.0,
    )


def test_without_the_flags_nothing_is_merged() -> None:
    assert _policy(None, WHOLE).merge is None


def test_an_empty_playbook_means_the_defaults_of_the_model() -> None:
    assert _policy(MergeFlags(patterns=("posts-*",))).merge == MergePolicy(patterns=("posts-*",))


def test_every_key_reaches_the_policy() -> None:
    assert _policy(MergeFlags(patterns=("a",)), WHOLE).merge == MergePolicy(
        patterns=("a",),
        max_segments=3,
        at_once=4,
        per_node=2,
        deadline=7200,
        put_right=LoaderSettings(number_of_replicas=2, refresh_interval="30s", translog_durability="request"),
    )


def test_flags_win_over_the_playbook() -> None:
    flags = MergeFlags(patterns=("a,b", "b", " c"), max_segments=1, allow_writes=True)
    merge = _policy(flags, WHOLE).merge
    assert merge is not None
    assert (merge.patterns, merge.max_segments, merge.allow_writes) == (("a", "b", "c"), 1, True)


def test_a_refresh_interval_can_be_taken_away() -> None:
    merge = _policy(MergeFlags(patterns=("a",)), "force_merge: {put_right: {refresh_interval: ''}}\n").merge
    assert merge is not None
    assert merge.put_right == LoaderSettings(refresh_interval="")


def test_wrong_flags_are_named(subtests: pytest.Subtests) -> None:
    for flags, message in [
        (MergeFlags(patterns=()), "--index: name the indices that were loaded, such as --index 'posts-*'"),
        (MergeFlags(patterns=("a,",)), "--index: the name of an index, or a glob, is needed"),
        (MergeFlags(patterns=(" ",)), "--index: the name of an index, or a glob, is needed"),
        (MergeFlags(patterns=("a*", "-ab")), "--index -ab: takes an index out; name those"),
        (MergeFlags(patterns=("far:posts",)), "--index far:posts: names indices of another cluster"),
        (MergeFlags(patterns=("a",), max_segments=0), "--max-segments 0: must be at least 1"),
    ]:
        with subtests.test(flags=flags, message=message):
            with pytest.raises(UsageError) as caught:
                _policy(flags)
            assert str(caught.value).startswith(message)
            assert caught.value.exit_code is ExitCode.USAGE


def test_wrong_values_are_told_with_line_and_key(subtests: pytest.Subtests) -> None:
    for written, message in [
        ("{max_segments: 0}", "force_merge.max_segments: must be at least 1"),
        ("{max_segments: 5.5}", "force_merge.max_segments: must be a whole number"),
        ("{at_once: 0}", "force_merge.at_once: must be at least 1"),
        ("{per_node: 0}", "force_merge.per_node: must be at least 1"),
        ("{deadline: 8}", "force_merge.deadline: must be a duration"),
        ("{segments: 5}", "force_merge: unknown key `segments`; did you mean `max_segments`?"),
        (
            "{put_right: {number_of_replicas: 0}}",
            "force_merge.put_right.number_of_replicas: must be at least",
        ),
        ("{put_right: {refresh_interval: '-1'}}", "force_merge.put_right.refresh_interval: must be a time"),
        ("{put_right: {refresh_interval: }}", "force_merge.put_right.refresh_interval: has no value"),
        ("{put_right: {translog_durability: async}}", "force_merge.put_right.translog_durability: must be"),
        ("true", "force_merge: must be a mapping"),
    ]:
        with subtests.test(written=written, message=message):
            with pytest.raises(ConfigError) as caught:
                _policy(None, f"flush: true\nforce_merge: {written}\n")
            assert str(caught.value).startswith(f"b.yml:3: {message}")
