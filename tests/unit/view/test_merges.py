"""What is shown of merges: plan, status, live panel, summary, and the bytes that restarts copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any, Final

from rich.console import Console

from orchestrator.engine.fold import replay
from orchestrator.engine.limits import nearest
from orchestrator.engine.progress import Nodes
from orchestrator.engine.state import RunState
from orchestrator.model.event import Event, NodeRecovered, RunFinished, run_phase
from orchestrator.model.merging import LoaderLeftover, MergePolicy, MergeTarget
from orchestrator.model.phase import REBOOT, NodePhase, Outcome, Phase, Request
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.view.history import history_object, history_text, past_run
from orchestrator.view.merge_summary import recovers_by_operations
from orchestrator.view.panel import panel
from orchestrator.view.phrases import awaited
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.progress import half_done, left_to_do
from orchestrator.view.screen import Screen
from orchestrator.view.status import Reader, status_object, status_text
from orchestrator.view.summary import Summary, summary, summary_lines, summary_object
from tests.states import state_with
from tests.unit.view import samples

Views = Callable[[str, Iterator[tuple[str, object]]], None]
T0: Final = samples.t0
ES1, ES2, ES3 = samples.ES
TARGETS: Final = tuple(
    MergeTarget(index=f"posts-0{number}", index_uuid=f"u{number}", segments=segments, bytes=size, due=due)
    for number, segments, size, due in (
        (1, 41, 3 * 10**9, True),
        (2, 40, 2 * 10**9, True),
        (3, 39, 10**9, True),
        (4, 5, 10**9, False),
    )
)
REPLICAS: Final = LoaderLeftover(
    index="posts-01", setting="index.number_of_replicas", found="0", put_right=False
)
REFRESH: Final = LoaderLeftover(
    index="posts-01", setting="index.refresh_interval", found="-1", put_right=True, wanted="30s"
)
LEFT: Final = (
    REPLICAS,
    replace(REPLICAS, index="posts-02"),
    REFRESH,
    replace(REFRESH, index="posts-02", wanted=None),
)


def begun(number: int) -> MergeBegun:
    target = TARGETS[number - 1]
    uuid, segments = target.index_uuid, target.segments
    return MergeBegun(index=target.index, index_uuid=uuid, segments=segments, bytes=target.bytes)


def merged(number: int, **changes: Any) -> IndexMerged:
    target = TARGETS[number - 1]
    usual: dict[str, Any] = {
        "segments": 5,
        "bytes": target.bytes - 10**8,
        "seconds": 372.0,
        "incarnations": {},
    }
    return IndexMerged(index=target.index, index_uuid=target.index_uuid, **{**usual, **changes})


def recovered(reused: int | None, copied: int | None, replayed: int | None, name: Any) -> NodeRecovered:
    return NodeRecovered(
        node=name, seconds=60.0, bytes_reused=reused, bytes_copied=copied, operations_replayed=replayed
    )


GONE: Final = merged(3, segments=0, bytes=0, why="it is gone")
ALL_MERGED: Final = (begun(1), begun(2), merged(1), merged(2), begun(3), GONE)
RECOVERED: Final = (
    recovered(10**9, 4096, 12, ES1),
    recovered(2 * 10**9, 0, 0, ES2),
    recovered(None, None, None, ES3),
)


def events(*more: Event, nodes: int = 3) -> list[Event]:
    """A run of four indices, three of them due, that has come to its merges; then what is given."""
    policy = replace(samples.policy, merge=MergePolicy(patterns=("posts-*",)))
    started = replace(samples.started, policy=policy, indices=TARGETS, nodes=samples.ES[:nodes])
    return [started, run_phase(Phase.PREPARING, Phase.MERGING), *more]


def state_after(*more: Event, nodes: int = 3) -> RunState:
    return replay("run-1", samples.records(events(*more, nodes=nodes)))


MIDDLE: Final = state_after(begun(1), merged(1), begun(2))


def the_end(outcome: Outcome, *more: Event, nodes: int = 3) -> Summary:
    state = state_after(*more, nodes=nodes)
    if outcome is Outcome.DONE:
        back = {name: replace(node, phase=NodePhase.RECOVERED) for name, node in state.nodes.items()}
        state = state_with(state, nodes=back)
    return summary(state, outcome, events(*more, nodes=nodes), T0 + 900)


def drawn(state: RunState) -> str:
    out = samples.Ascii()
    console = Console(file=out, width=100, color_system=None, force_terminal=False)
    console.print(panel(Screen(state, None, now=T0 + 65), 100))
    return out.getvalue()


def _status(state: RunState) -> str:
    return status_text(state, (), now=T0 + 60, reader=Reader(zone=UTC))


def views() -> Iterator[tuple[str, object]]:
    plan = samples.plan(max_segments=5, merges=TARGETS, leftovers=LEFT)
    yield "plan", plan_text(plan)
    yield "plan as JSON", {k: plan_object(plan)[k] for k in ("max_segments", "merges", "leftovers")}
    yield "status in the middle", _status(MIDDLE)
    yield "status as JSON", status_object(MIDDLE, (), now=T0 + 60)["merges"]
    yield "panel in the middle", [line.rstrip() for line in drawn(MIDDLE).splitlines()]
    merges_alone = state_with(state_after(begun(1), nodes=0), request=Request.PAUSE)
    yield "panel of merges alone, to be paused", [line.rstrip() for line in drawn(merges_alone).splitlines()]
    yield "awaited", [awaited(MIDDLE), awaited(state_after())]
    asked = state_with(MIDDLE, request=Request.PAUSE, requested_by="ops@bastion1")
    yield "who asked to pause", _status(asked)
    said = "asked to pause by ops@bastion1"
    ended = replace(asked, phase=Phase.ENDED, outcome=Outcome.PAUSED, message=said)
    yield (
        "who asked to pause, once it has ended",
        _status(ended),
    )
    end = the_end(Outcome.DONE, *ALL_MERGED, *RECOVERED)
    yield "summary", summary_lines(end)
    yield "summary as JSON", summary_object(end)
    yield "summary of a run to be resumed", summary_lines(the_end(Outcome.INTERRUPTED, begun(1)))
    held = the_end(Outcome.HELD, begun(1), merged(1), nodes=0)
    yield "summary of merges alone, to be resumed", summary_lines(held)
    yield "summary of merges alone", summary_lines(the_end(Outcome.DONE, *ALL_MERGED, nodes=0))
    finished = RunFinished(outcome=Outcome.HELD, exit_code=3, seconds=9.0)
    past = past_run(samples.records(events(begun(1), merged(1), finished)))
    assert past is not None
    yield "history", history_text([past], zone=UTC)
    yield "history as JSON", list(history_object([past]))


def test_merges_are_shown_as_agreed(golden_views: Views) -> None:
    golden_views("merges.txt", views())


def test_a_restart_says_nothing_of_merges() -> None:
    state, end = samples.run_state(), summary(samples.ended_state(), Outcome.DONE, [*RECOVERED], T0)
    for text in (plan_text(samples.plan()), status_text(state, (), now=T0), *summary_lines(end)):
        assert "merge" not in text
        assert "on disk" not in text
    for shown in (plan_object(samples.plan()), status_object(state, (), now=T0), summary_object(end)):
        assert {"merges", "recovery", "nothing_to_do"}.isdisjoint(shown)


def test_the_limit_of_merges_begins_with_the_first() -> None:
    """The plan does not know how long merges take."""
    assert nearest(state_after(), T0) is None
    assert nearest(MIDDLE, T0 + 60) == (T0 + 5 + 8 * 3600, Outcome.FAILED)
    assert Screen(MIDDLE, None, now=T0 + 65).left is None


def test_where_copies_recover_by_operations() -> None:
    for version in ("0.90.13", "2.4.6", "5.6.16"):
        assert not recovers_by_operations(version, "elasticsearch")
    for version, distribution in (("6.0.0", "elasticsearch"), ("2.19.0", "opensearch")):
        assert recovers_by_operations(version, distribution)


def test_what_was_done_by_halves_and_what_is_left() -> None:
    assert half_done(MIDDLE) == "1 of 3 indices merged and 0 of 3 nodes restarted"
    back = replace(MIDDLE.nodes[ES1], phase=NodePhase.REJOINED, owed=frozenset({REBOOT}))
    again, waits = (
        replace(MIDDLE, nodes=MIDDLE.nodes.changed(one)) for one in (back, replace(back, owed=frozenset()))
    )
    assert left_to_do(MIDDLE) == left_to_do(again) == "2 indices and 3 nodes", "another turn for owed work"
    assert left_to_do(MIDDLE, without=(ES1,)) == "2 indices and 2 nodes"
    assert left_to_do(waits) == "es1 (in progress: recover), 2 indices and 2 more nodes"
    down = [replace(MIDDLE.nodes[name], phase=NodePhase.STOPPED) for name in (ES1, ES2)]
    begun = replace(MIDDLE, nodes=MIDDLE.nodes.changed(*down))
    assert left_to_do(begun) == "es1, es2 (in progress: work), 2 indices and 1 more node"
    assert half_done(state_after()) == half_done(state_after(*ALL_MERGED, nodes=0)) == ""
    restart = samples.held_state()
    assert half_done(replace(restart, nodes=Nodes(restart.nodes.values()))) == "1 of 3 nodes restarted"
