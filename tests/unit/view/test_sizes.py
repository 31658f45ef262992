"""The lines of a plan and of the checks of `validate`: 3 to 300 nodes, 60 to 120 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from rich.cells import cell_len

from orchestrator.model.cluster import NodeName, Zone
from orchestrator.model.event import Hold
from orchestrator.model.merging import LoaderLeftover, MergeTarget
from orchestrator.model.plan import Plan, PlannedWave, ValueToday
from orchestrator.model.policy import Strategy
from orchestrator.model.prediction import Prediction
from orchestrator.view.checks import Brief, Check, check_lines, verdict
from orchestrator.view.plan import plan_text
from tests.unit.view import samples

WIDTHS: Final = (60, 80, 120)
SCREEN: Final = {3: 24, 30: 40, 300: 40}
"""Nodes to the lines that a screen has for them."""
LIMITS: Final = {
    "cluster.routing.allocation.enable": (None, "primaries"),
    "cluster.routing.rebalance.enable": (None, "none"),
    "cluster.routing.allocation.node_concurrent_recoveries": (None, "15"),
    "cluster.routing.allocation.node_initial_primaries_recoveries": (None, "15"),
    "indices.recovery.max_bytes_per_sec": (None, "100mb"),
}
IN_ORDER: Final = "one node at a time, zone by zone"
BASED_ON: Final = "no restart of this cluster is on record; published times of other clusters: 96 s a node"


def names(count: int) -> list[NodeName]:
    return [NodeName(f"es{number:03d}") for number in range(1, count + 1)]


def planned(
    *waves: tuple[Sequence[NodeName], str, str], likely: Sequence[float] = (90.0,), **more: Any
) -> Plan:
    """A plan of these waves: nodes, zone, reason. Their times are the `likely` ones, in turn."""
    found = tuple(
        PlannedWave(
            number=number,
            nodes=tuple(nodes),
            zone=Zone(zone),
            why=why,
            predicted=Prediction(low=5.0, likely=likely[number % len(likely)], high=600.0),
        )
        for number, (nodes, zone, why) in enumerate(waves, start=1)
    )
    usual: dict[str, Any] = {"settings_changed": LIMITS, "predicted_from": BASED_ON}
    return samples.plan(waves=found, steps=(), **{**usual, **more})


def one_by_one(count: int, **more: Any) -> Plan:
    nodes = names(count)
    size = count // 3
    waves = [([node], "abc"[place // size], IN_ORDER) for place, node in enumerate(nodes[1:])]
    last = "the elected master goes last, so that mastership moves once"
    return planned(*waves, (nodes[:1], "a", last), **more)


HELD: Final = tuple(
    Hold(
        predicate=predicate,
        subject=subjects[0],
        evidence="[logs-7][0]: 0 started in-sync copies elsewhere, 1 wanted: give the index more replicas",
        count=count,
        subjects=tuple(subjects[:5]),
        reasons=tuple(
            f"[{subject}][0] would not come back: {'a rule of allocation ' * 12}" for subject in subjects[:5]
        ),
        ways=("--disable-predicate 'copies_can_return=index logs-7'",),
    )
    for predicate, subjects, count in (
        ("every_shard_keeps_started_copies", [f"index logs-{n}" for n in range(5)], 300),
        ("copies_can_return", [f"index metrics-{n}" for n in range(5)], 280),
        ("selected_hosts_ready", [f"host of {name}" for name in names(5)], 120),
        ("no_running_snapshot", ["snapshot repository/nightly-2026.11.28"], 1),
        ("zero_replica_indices", [f"index bare-{n}" for n in range(5)], 40),
        ("capacity_remains", ["tier data_hot"], 1),
        ("pending_tasks_drained", ["cluster"], 1),
        ("gates_open", ["alertmanager"], 1),
    )
)


def plans(count: int) -> Iterator[tuple[str, Plan]]:
    """Of so many nodes: usual ones, and those that would be the longest."""
    nodes, third = names(count), count // 3
    yield "usual", one_by_one(count)
    yield "no two waves with one time", one_by_one(count, likely=[60.0 + 7 * n for n in range(40)])
    yield "held", one_by_one(count, holds=HELD[:1], lasting=(HELD[0].predicate,))
    yield "held by much", one_by_one(count, holds=HELD)
    yield "a canary", replace(one_by_one(count), nodes_selected=count * 2, pauses=True)
    zones = [(nodes[n * third : (n + 1) * third], "abc"[n], f"all of zone {'abc'[n]}") for n in range(3)]
    yield "zones", planned(*zones, strategy=Strategy.ZONE)
    parts = [nodes[n : n + max(1, count // 30)] for n in range(0, count, max(1, count // 30))]
    why = "zone a without es008, es009 (budget_not_exceeded: wave: 3 nodes would be away, 2 allowed) and more"
    sets = [
        (part, "abcdefghij"[n % 10], f"{why}; then {len(parts) - n} more sets")
        for n, part in enumerate(parts)
    ]
    bound = {
        "lower_bound_waves": len(parts),
        "lower_bound_reason": "the nodes, by the default of max_unavailable",
    }
    yield "sets", planned(*sets, strategy=Strategy.SHARD_SAFE, overlaps=True, **bound)
    yield (
        "each wave for a reason of its own",
        planned(
            *((part, "a", f"{chr(97 + n % 26) * 3}{chr(97 + n // 26)} {why}") for n, part in enumerate(parts))
        ),
    )
    merges = tuple(
        MergeTarget(index=f"posts-{n:03d}", index_uuid="u", segments=40, bytes=10**9, due=True)
        for n in range(count)
    )
    left = tuple(
        LoaderLeftover(
            index=f"posts-{n:03d}", setting="index.refresh_interval", found="-1", put_right=True, wanted=None
        )
        for n in range(count)
    )
    yield "merges", one_by_one(count, max_segments=5, merges=merges, leftovers=left)
    yield (
        "an upgrade of some",
        one_by_one(
            count, target_version="9.1.0", other_versions=dict.fromkeys(names(count), "8.19.0"), timeout=60.0
        ),
    )


def too_wide(lines: Sequence[str], width: int) -> list[str]:
    return [line for line in lines if cell_len(line) > width]


def test_a_plan_fits_a_screen_with_its_question(subtests: pytest.Subtests) -> None:
    """In 60 columns the longest plans of three nodes have five lines more."""
    for count, screen in SCREEN.items():
        for what, plan in plans(count):
            for width in WIDTHS:
                with subtests.test(count=count, what=what, width=width):
                    lines = plan_text(plan, width=width).splitlines()
                    assert too_wide(lines, width) == []
                    more = 5 if (count, width) == (3, 60) else 0
                    assert len(lines) + 1 <= screen + more, "\n".join(lines)


def test_a_plan_in_brief_names_what_it_leaves_out(subtests: pytest.Subtests) -> None:
    """Each wave is in a row, each hold is named, and the verdict is the end."""
    for count in SCREEN:
        for what, plan in plans(count):
            with subtests.test(count=count, what=what):
                text = plan_text(plan, width=80)
                numbers = re.findall(r"^(\d+)(?:-(\d+))? +es", text, re.MULTILINE)
                rows = [n for first, last in numbers for n in range(int(first), int(last or first) + 1)]
                assert rows == [wave.number for wave in plan.waves]
                verdict = (
                    f"HELD by {len(plan.holds)} of 25 checks. "
                    if plan.holds
                    else "Ready: all 25 checks pass."
                )
                assert "\n\n" not in text[text.index(verdict) :]
                assert [hold for hold in plan.holds if hold.predicate not in text] == []
                whole = plan_text(plan, steps=True)
                assert all(name in whole for name in plan.nodes)
                assert all(f"✗ {hold.predicate}" in whole for hold in plan.holds)


def test_few_settings_are_all_named_in_one_line_each() -> None:
    """With the value in force, as in full; on a narrow terminal limits are counted."""
    today = {key: ValueToday(value="2", source="default", times=7.5) for key in LIMITS}
    plan = replace(one_by_one(3), settings_today=today)
    brief, full = plan_text(plan, width=80).splitlines(), plan_text(plan, steps=True)
    for key, (_, wanted) in LIMITS.items():
        change = f": 2 (default) → {wanted}"
        assert sum(line.startswith(f"  {key}{change}") for line in brief) == 1
        assert f"{change}, 7.5 times, so that " in full
    assert "  … 3 limits of recovery (--steps shows each)\n" in plan_text(plan, width=60)


def test_a_hold_that_a_playbook_passes_names_its_page() -> None:
    way = "`zero_replica_indices: {accept: [bare]}` in the playbook"
    hold = replace(HELD[4], ways=(way,))
    more = "More: orchestrate explain zero_replica_indices"
    for one, last in ((hold, f"{more}, orchestrate explain playbook"), (HELD[4], more)):
        assert plan_text(one_by_one(3, holds=(one,))).splitlines()[-1] == last


def test_a_plan_after_a_restore_says_so() -> None:
    text = plan_text(one_by_one(3), restores=True)
    assert "\nReady once the changes of the earlier run are restored: all 25 checks pass. " in text


POINTS: Final = ("resolve", "connect", "host_key", "log_in", "service", "right_stop", "right_start", "lock")


def host(name: str, **wrong: str) -> Iterator[Check]:
    """The checks of a host; what is wrong at a point, after which nothing is checked."""
    failed = False
    for point in POINTS:
        said = wrong.get(point, "" if not failed else "not checked")
        good = None if failed else point not in wrong
        failed = failed or point in wrong
        yield Check(
            subject=name, point=point, good=good, message=said or f"{point} of {name} is right", of_host=True
        )


def checks(count: int, wrong: Mapping[str, Mapping[str, str]]) -> list[Check]:
    found = [
        Check(
            subject="config",
            point="files",
            good=True,
            message="/etc/orchestrate/prod.yml is sound",
            news=True,
        )
    ]
    what = f"elasticsearch 9.1.0, {count} nodes, master es001"
    found.append(Check(subject="cluster", point="identity", good=True, message=what, news=True))
    parts = ("expect", "endpoint", "settings", "health", "activity", "disks", "copies")
    found += [Check(subject="cluster", point=point, good=True, message="readable") for point in parts]
    found += [check for name in names(count) for check in host(name, **wrong.get(name, {}))]
    found.append(Check(subject="cluster", point="lease", good=True, message="no run holds it"))
    return found


SUDO: Final = (
    "sudo refuses `systemctl stop elasticsearch`: add the line of docs/reference/sudoers to /etc/sudoers.d"
)


def test_checks_fit_a_screen(subtests: pytest.Subtests) -> None:
    for count, screen in SCREEN.items():
        three, all_ = names(count)[-3:], names(count)
        for what, wrong, ready in (
            ("all ready", {}, count),
            (
                "one",
                {three[0]: {"connect": f"no route to {three[0]}: check address and firewall"}},
                count - 1,
            ),
            ("alike", {name: {"right_stop": SUDO} for name in three}, count - 3),
            ("each in its way", {name: {"service": f"unit {name}{n}"} for n, name in enumerate(all_)}, 0),
        ):
            for width in WIDTHS:
                with subtests.test(count=count, what=what, width=width):
                    made = checks(count, wrong)
                    lines = [
                        *check_lines(made, brief=Brief(), width=width),
                        verdict(made, before="a restart"),
                    ]
                    assert len(lines) <= screen
                    assert too_wide(lines[:-1], width) == []
                    text = "\n".join(lines)
                    assert (f"ok   {ready} host" in text) is (ready > 0)
                    assert lines[-1].startswith("NOT READY: " if wrong else "Ready for a restart: all ")
                    assert ("not checked" in text) is False
                    for point in {point for each in wrong.values() for point in each}:
                        assert f" {point} " in text


def test_of_many_failures_at_one_point_the_first_are_shown() -> None:
    made = checks(300, {name: {"service": f"unit {name}{n} is unknown"} for n, name in enumerate(names(300))})
    (line,) = [line for line in check_lines(made, brief=Brief(), width=80) if "more like these" in line]
    assert "297 more like these (--verbose shows each)" in line
    assert sum("is unknown" in line for line in check_lines(made, brief=Brief(), width=80)) == 3
    assert sum("is unknown" in line for line in check_lines(made, brief=None, width=80)) == 300
