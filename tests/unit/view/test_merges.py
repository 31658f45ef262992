"""What is shown of merges: plan, status, live panel, summary, and the bytes that restarts copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any, Final

from rich.console import Console

from orchestrator.engine.fold import replay
from orchestrator.engine.limits import nearest
from orchestrator.engine.progress import Nodes
from orchestrator.engine.state import RunState
from orchestrator.model.event import Event, NodeRecovered, RunFinished, run_phase
from orchestrator.model.merge_event import IndexMerged, MergeBegun
from orchestrator.model.merging import LoaderLeftover, MergePolicy, MergeTarget
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.turn import REBOOT
from orchestrator.view.history import history_object, history_text, past_run
from orchestrator.view.merge_summary import recovers_by_operations
from orchestrator.view.model import screen_of
from orchestrator.view.panel import ASCII, panel
from orchestrator.view.phrases import awaited
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.progress import half_done, left_to_do
from orchestrator.view.status import status_object, status_text
from orchestrator.view.summary import Summary, summary, summary_lines, summary_object
from tests.states import state_with
from tests.unit.view import samples

Golden = Callable[[str, str], None]
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


ALL_MERGED: Final = (
    begun(1),
    begun(2),
    merged(1),
    merged(2),
    begun(3),
    merged(3, segments=0, bytes=0, why="it is gone"),
)
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
    out = StringIO()
    console = Console(file=out, width=100, color_system=None, force_terminal=False)
    console.print(panel(screen_of(state, None, now=T0 + 65), 100, glyphs=ASCII))
    return out.getvalue()


def test_the_plan_lists_merges_and_what_the_loader_left(golden: Golden) -> None:
    plan = samples.plan(max_segments=5, merges=TARGETS, leftovers=LEFT)
    golden("plan_merges.txt", plan_text(plan))
    shown: dict[str, Any] = dict(plan_object(plan))
    assert (shown["max_segments"], len(shown["leftovers"])) == (5, 4)
    assert shown["merges"][3] == {"index": "posts-04", "segments": 5, "bytes": 10**9, "due": False}


def test_a_restart_says_nothing_of_merges() -> None:
    state, end = samples.run_state(), summary(samples.ended_state(), Outcome.DONE, [*RECOVERED], T0)
    for text in (plan_text(samples.plan()), status_text(state, (), now=T0), *summary_lines(end)):
        assert "merge" not in text
        assert "on disk" not in text
    for shown in (plan_object(samples.plan()), status_object(state, (), now=T0), summary_object(end)):
        assert {"merges", "recovery", "nothing_to_do"}.isdisjoint(shown)


def test_the_status_in_the_middle_of_the_merges() -> None:
    merges = "merges: 1 of 3 indices merged; running: posts-02; 1 to come; 1 with few enough segments before"
    assert f"  {merges}\n" in status_text(MIDDLE, (), now=T0 + 60)
    shown: Any = status_object(MIDDLE, (), now=T0 + 60)["merges"]
    assert [one["state"] for one in shown] == ["merged", "merging", "pending", "few"]
    assert awaited(MIDDLE) == "the merge of posts-02; 1 to come"
    assert awaited(state_after()) == "3 indices to be free for a merge"
    assert nearest(state_after(), T0) is None
    limit = nearest(MIDDLE, T0 + 60)
    assert limit is not None
    assert limit.until == T0 + 5 + 8 * 3600


def test_the_panel_in_the_middle_of_the_merges(golden: Golden) -> None:
    """The plan does not know how long merges take. Merges alone speak of no nodes."""
    assert screen_of(MIDDLE, None, now=T0 + 65).left is None
    golden("panel_merging.txt", "\n".join(line.rstrip() for line in drawn(MIDDLE).splitlines()) + "\n")
    shown = drawn(state_with(state_after(begun(1), nodes=0), request=Request.PAUSE))
    assert "| Time      1m 5s so far" in shown or "| Time      1m 4s so far" in shown
    assert "pause after the current merges" in shown
    assert not [word for word in ("Done", "Nodes") if word in shown]


def test_who_asked_is_told_once_when_the_run_has_ended() -> None:
    said = "asked to pause by ops@bastion1"
    state = state_with(MIDDLE, request=Request.PAUSE, requested_by="ops@bastion1")
    assert f"  {said}\n" in status_text(state, (), now=T0 + 60)
    ended = replace(state, phase=Phase.ENDED, outcome=Outcome.PAUSED, message=said)
    assert status_text(ended, (), now=T0 + 60).count(said) == 1


def test_the_summary_tells_before_and_after_and_the_bytes(golden: Golden) -> None:
    end = the_end(Outcome.DONE, *ALL_MERGED, *RECOVERED)
    golden("summary_merges.txt", "\n".join(summary_lines(end)) + "\n")
    shown: dict[str, Any] = dict(summary_object(end))
    assert (shown["indices_merged"], shown["nothing_to_do"]) == (3, False)
    recovery = shown["recovery"]
    assert (recovery["bytes_reused"], recovery["bytes_copied"]) == (3 * 10**9, 4096)
    nothing = {"bytes_reused": 2 * 10**9, "bytes_copied": 0, "operations_replayed": 0}
    assert (recovery["by_node"]["es2"], recovery["by_node"]["es3"]["bytes_copied"]) == (nothing, None)
    assert "only before version 6" in recovery["note"]


def test_what_is_not_merged_can_be_resumed() -> None:
    lines = summary_lines(the_end(Outcome.INTERRUPTED, begun(1)))
    for line in (
        "    posts-01: its merge continues, 41 segments a copy",
        "    posts-02: not merged, 40 segments a copy",
        "  continue: orchestrate resume run-1",
    ):
        assert line in lines
    alone = summary_lines(the_end(Outcome.HELD, begun(1), merged(1), nodes=0))
    assert "no node was to be restarted" in alone[1]
    assert "  continue: orchestrate resume run-1" in alone
    done = summary_lines(the_end(Outcome.DONE, *ALL_MERGED, nodes=0))
    assert not any("resume" in line for line in done)


def test_where_copies_recover_by_operations() -> None:
    for version, distribution, known in (
        ("0.90.13", "elasticsearch", False),
        ("2.4.6", "elasticsearch", False),
        ("5.6.16", "elasticsearch", False),
        ("6.0.0", "elasticsearch", True),
        ("8.19.0", "elasticsearch", True),
        ("2.19.0", "opensearch", True),
    ):
        assert recovers_by_operations(version, distribution) is known


def test_what_was_done_by_halves_and_what_is_left() -> None:
    assert half_done(MIDDLE) == "1 of 3 indices merged and 0 of 3 nodes restarted"
    back = replace(MIDDLE.nodes[ES1], phase=NodePhase.REJOINED, owed=frozenset({REBOOT}))
    again, waits = (
        replace(MIDDLE, nodes=MIDDLE.nodes.changed(one)) for one in (back, replace(back, owed=frozenset()))
    )
    assert left_to_do(MIDDLE) == left_to_do(again) == "2 indices and 3 nodes", "another turn for owed work"
    assert left_to_do(MIDDLE, without=(ES1,)) == "2 indices and 2 nodes"
    assert left_to_do(waits) == "2 indices, 2 nodes and the wait for 1 restarted node"
    assert half_done(state_after()) == half_done(state_after(*ALL_MERGED, nodes=0)) == ""
    restart = samples.held_state()
    assert half_done(replace(restart, nodes=Nodes(restart.nodes.values()))) == "1 of 3 nodes restarted"
    finished = RunFinished(outcome=Outcome.HELD, exit_code=3, seconds=9.0)
    past = past_run(samples.records(events(begun(1), merged(1), finished)))
    assert past is not None
    assert "1 of 3 indices merged; kernel update" in history_text([past])
    (shown,) = history_object([past])
    assert (shown["indices_to_merge"], shown["indices_merged"]) == (3, 1)
