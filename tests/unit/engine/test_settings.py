"""Settings go to what is wanted and back to what was found, level by level, absent apart from set."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.elasticsearch.rules.settings import (
    BANDWIDTH,
    CONCURRENT_RECOVERIES,
    INITIAL_PRIMARIES,
    REBALANCE,
    awareness_of,
    bytes_of,
    limit_changes,
    size_of,
    withhold_changes,
)
from orchestrator.model.action import SettingChange
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import Zone
from orchestrator.model.observation import Level, SettingsView, SettingValue
from orchestrator.model.policy import Awareness, RecoveryLimits
from orchestrator.simulation.world import DEFAULTS
from tests.simulation.play import policy

P, T = Level.PERSISTENT, Level.TRANSIENT


def _view(
    persistent: Mapping[str, SettingValue], transient: Mapping[str, SettingValue], **files: SettingValue
) -> SettingsView:
    return SettingsView(persistent=persistent, transient=transient, files={**DEFAULTS, **files})


def test_disabling_writes_persistent_and_shadowing_transient(
    subtests: pytest.Subtests,
) -> None:
    for persistent, transient, changes in [
        ({}, {}, [(P, None)]),
        ({ALLOCATION: "all"}, {}, [(P, "all")]),
        ({}, {ALLOCATION: "all"}, [(P, None), (T, "all")]),
        ({ALLOCATION: "all"}, {ALLOCATION: "all"}, [(P, "all"), (T, "all")]),
        ({ALLOCATION: "primaries"}, {}, []),
        ({ALLOCATION: "primaries"}, {ALLOCATION: "all"}, [(T, "all")]),
        ({ALLOCATION: "all"}, {ALLOCATION: "primaries"}, [(P, "all")]),
    ]:
        with subtests.test(persistent=persistent, transient=transient, changes=changes):
            made = withhold_changes(_view(persistent, transient), policy())
            assert [(change.level, change.found) for change in made] == changes
            assert {change.wanted for change in made} <= {"primaries"}


def test_limits_are_raised_and_never_lowered(subtests: pytest.Subtests) -> None:
    for key, found, wanted in [
        (CONCURRENT_RECOVERIES, "2", "15"),
        (CONCURRENT_RECOVERIES, "15", None),
        (CONCURRENT_RECOVERIES, "40", None),
        (CONCURRENT_RECOVERIES, "many", None),
        (INITIAL_PRIMARIES, "4", None),
        (INITIAL_PRIMARIES, "1", "4"),
        (BANDWIDTH, "40mb", "100mb"),
        (BANDWIDTH, "100mb", None),
        (BANDWIDTH, "250mb", None),
        (BANDWIDTH, "1gb", None),
        (BANDWIDTH, "0b", None),  # no limit
        (BANDWIDTH, "-1", None),
        (BANDWIDTH, "nonsense", None),
        (REBALANCE, "all", "none"),
        (REBALANCE, "none", None),
    ]:
        with subtests.test(key=key, found=found, wanted=wanted):
            for level in (
                {"persistent": {key: found}, "transient": {}},
                {"persistent": {}, "transient": {key: found}},
            ):
                view = _view(level["persistent"], level["transient"])
                made = [change for change in limit_changes(view, policy()) if change.key == key]
                assert {change.wanted for change in made} == ({wanted} if wanted else set())


def test_a_value_in_the_files_counts_and_stays() -> None:
    made = limit_changes(_view({}, {}, **{CONCURRENT_RECOVERIES: "30"}), policy())
    assert CONCURRENT_RECOVERIES not in {change.key for change in made}
    off = policy(recovery_limits=RecoveryLimits(max_bytes_per_sec=None), rebalance_while_running=None)
    assert {change.key for change in limit_changes(_view({}, {}), off)} == {CONCURRENT_RECOVERIES}


def test_sizes_as_elasticsearch_writes_them(subtests: pytest.Subtests) -> None:
    for text, size in [
        ("40mb", 40 << 20),
        ("40MB", 40 << 20),
        ("1.5gb", 3 << 29),
        ("100b", 100),
        ("100", 100),
        ("512k", 512 << 10),
        ("-1", -1),
        ("", None),
        ("fast", None),
        ("1 parsec", None),
        (("1mb",), None),
        (None, None),
    ]:
        with subtests.test(text=text, size=size):
            assert bytes_of(text) == size


def _applied(view: SettingsView, changes: tuple[SettingChange, ...]) -> SettingsView:
    """What the cluster makes of an update; None takes a setting away."""
    levels = {P: dict(view.persistent), T: dict(view.transient)}
    for change in changes:
        levels[change.level].pop(change.key, None)
        if change.wanted is not None:
            levels[change.level][change.key] = change.wanted
    return SettingsView(persistent=levels[P], transient=levels[T], files=view.files)


_VALUES = {
    ALLOCATION: st.sampled_from(["all", "none", "primaries", "new_primaries"]),
    REBALANCE: st.sampled_from(["all", "none", "primaries"]),
    INITIAL_PRIMARIES: st.sampled_from(["1", "4", "9", "junk"]),
    CONCURRENT_RECOVERIES: st.sampled_from(["1", "15", "16"]),
    BANDWIDTH: st.sampled_from(["20mb", "40mb", "1gb", "0", "junk"]),
    "index.unrelated": st.sampled_from(["a", "b"]),
}
_LEVEL = st.fixed_dictionaries({}, optional=_VALUES)


@given(persistent=_LEVEL, transient=_LEVEL, files=_LEVEL)
def test_put_back_after_withhold_is_what_was_found(
    persistent: dict[str, SettingValue], transient: dict[str, SettingValue], files: dict[str, SettingValue]
) -> None:
    found = _view(persistent, transient, **files)
    changes = (*withhold_changes(found, policy()), *limit_changes(found, policy()))
    during = _applied(found, changes)
    assert during.effective(ALLOCATION) == "primaries"
    assert withhold_changes(during, policy()) == ()
    assert limit_changes(during, policy()) == ()
    after = _applied(during, tuple(change.undone() for change in changes))
    assert (after.persistent, after.transient) == (found.persistent, found.transient)


ATTRIBUTES = "cluster.routing.allocation.awareness.attributes"
FORCED = "cluster.routing.allocation.awareness.force.zone.values"


def _layers(
    persistent: Mapping[str, SettingValue],
    transient: Mapping[str, SettingValue] | None = None,
    *,
    files: Mapping[str, SettingValue] | None = None,
) -> SettingsView:
    return SettingsView(persistent=persistent, transient=transient or {}, files=files or {})


def test_zones_go_by_the_clusters_awareness_unless_the_file_says(subtests: pytest.Subtests) -> None:
    for settings, chosen, attribute, attributes, forced in [
        (SettingsView(), None, None, (), ()),
        (SettingsView(files={ATTRIBUTES: ()}), None, None, (), ()),
        (SettingsView(files={ATTRIBUTES: ("zone",)}), None, "zone", ("zone",), ()),
        (SettingsView(files={ATTRIBUTES: "rack , zone"}), None, "rack", ("rack", "zone"), ()),
        (_layers({ATTRIBUTES: "rack"}, files={ATTRIBUTES: ("zone",)}), None, "rack", ("rack",), ()),
        (_layers({ATTRIBUTES: "rack"}, {ATTRIBUTES: "zone,rack"}), None, "zone", ("zone", "rack"), ()),
        # Switched off in a higher layer: no awareness, whatever the files say.
        (_layers({ATTRIBUTES: ""}, files={ATTRIBUTES: ("zone",)}), None, None, (), ()),
        (_layers({ATTRIBUTES: "zone"}), "rack", "rack", ("zone",), ()),
        (SettingsView(), "rack", "rack", (), ()),
        (_layers({ATTRIBUTES: "zone"}, files={FORCED: ("a", "b")}), None, "zone", ("zone",), ("a", "b")),
        (_layers({ATTRIBUTES: "zone", FORCED: "a, b"}), None, "zone", ("zone",), ("a", "b")),
        (_layers({ATTRIBUTES: "rack", FORCED: "a,b"}), None, "rack", ("rack",), ()),
        (_layers({ATTRIBUTES: "rack", FORCED: "a"}), "zone", "zone", ("rack",), ("a",)),
        (_layers({FORCED: "a,b"}), None, "zone", (), ("a", "b")),
        (_layers({FORCED: ""}, files={FORCED: ("a",)}), None, None, (), ()),
    ]:
        with subtests.test(settings=settings, chosen=chosen):
            wanted = Awareness(attributes=attributes, forced=tuple(map(Zone, forced)))
            assert awareness_of(settings, chosen) == (attribute, wanted)


@pytest.mark.parametrize(
    ("count", "text"), [(104_857_600, "100mb"), (1 << 30, "1gb"), (3 << 29, "1536mb"), (1025, "1025b")]
)
def test_a_size_is_written_as_an_operator_writes_it(count: int, text: str) -> None:
    assert size_of(count) == text
    assert bytes_of(text) == count
