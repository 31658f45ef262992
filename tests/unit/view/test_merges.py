"""What is shown of merges: plan, status, live panel, summary, and the bytes that restarts copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from orchestrator.engine.fold import replay
from orchestrator.engine.limits import nearest
from orchestrator.engine.progress import Nodes
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, NodeRecovered, RunFinished, RunStarted, run_phase
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

Golden = Callable[[str, str], None]
TARGETS = tuple(
    MergeTarget(index=f"posts-0{number}", index_uuid=f"u{number}", segments=segments, bytes=size, due=due)
    for number, segments, size, due in (
        (1, 41, 3 * 10**9, True),
        (2, 40, 2 * 10**9, True),
        (3, 39, 10**9, True),
        (4, 5, 10**9, False),
    )
)
LEFT = (
    LoaderLeftover(index="posts-01", setting="index.number_of_replicas", found="0", put_right=False),
    LoaderLeftover(index="posts-02", setting="index.number_of_replicas", found="0", put_right=False),
    LoaderLeftover(
        index="posts-01", setting="index.refresh_interval", found="-1", put_right=True, wanted="30s"
    ),
    LoaderLeftover(index="posts-02", setting="index.refresh_interval", found="-1", put_right=True),
)


def begun(number: int) -> MergeBegun:
    target = TARGETS[number - 1]
    return MergeBegun(
        index=target.index, index_uuid=target.index_uuid, segments=target.segments, bytes=target.bytes
    )


def merged(number: int, **changes: Any) -> IndexMerged:
    target = TARGETS[number - 1]
    usual: dict[str, Any] = {
        "index": target.index,
        "index_uuid": target.index_uuid,
        "segments": 5,
        "bytes": target.bytes - 10**8,
        "seconds": 372.0,
        "incarnations": {},
    }
    return IndexMerged(**{**usual, **changes})


def events(samples: Any, *more: Event, nodes: int = 3) -> list[Event]:
    """A run of four indices, three of them due, that has come to its merges; then what is given."""
    first = next(one for one in samples.examples() if isinstance(one, RunStarted))
    policy = replace(samples.policy, merge=MergePolicy(patterns=("posts-*",)))
    started = replace(first, policy=policy, indices=TARGETS, nodes=first.nodes[:nodes])
    return [started, run_phase(Phase.PREPARING, Phase.MERGING), *more]


def state_after(samples: Any, *more: Event, nodes: int = 3) -> RunState:
    return replay("run-1", samples.records(events(samples, *more, nodes=nodes)))


def in_the_middle(samples: Any) -> RunState:
    return state_after(samples, begun(1), merged(1), begun(2))


def test_the_plan_lists_merges_and_what_the_loader_left(samples: Any, golden: Golden) -> None:
    plan = samples.plan(max_segments=5, merges=TARGETS, leftovers=LEFT)
    golden("plan_merges.txt", plan_text(plan))
    shown = plan_object(plan)
    assert shown["max_segments"] == 5
    assert shown["merges"][3] == {"index": "posts-04", "segments": 5, "bytes": 10**9, "due": False}
    assert len(shown["leftovers"]) == 4


def test_the_plan_of_a_restart_says_nothing_of_merges(samples: Any) -> None:
    assert "merge" not in plan_text(samples.plan())
    assert "merges" not in plan_object(samples.plan())


def test_the_status_in_the_middle_of_the_merges(samples: Any) -> None:
    state = in_the_middle(samples)
    text = status_text(state, (), now=samples.t0 + 60)
    assert (
        "  merges: 1 of 3 indices merged; running: posts-02; 1 to come; 1 with few enough segments before\n"
        in text
    )
    shown = status_object(state, (), now=samples.t0 + 60)["merges"]
    assert [one["state"] for one in shown] == ["merged", "merging", "pending", "few"]  # type: ignore[attr-defined]  # it is a list


def test_the_status_of_a_restart_says_nothing_of_merges(samples: Any) -> None:
    assert "merge" not in status_text(samples.run_state(), (), now=samples.t0)
    assert "merges" not in status_object(samples.run_state(), (), now=samples.t0)


def test_what_is_awaited_and_until_when(samples: Any) -> None:
    assert awaited(in_the_middle(samples)) == "the merge of posts-02; 1 to come"
    assert awaited(state_after(samples)) == "3 indices to be free for a merge"
    assert nearest(state_after(samples), samples.t0) is None
    limit = nearest(in_the_middle(samples), samples.t0 + 60)
    assert limit is not None
    assert limit.until == samples.t0 + 5 + 8 * 3600


def test_the_panel_in_the_middle_of_the_merges(samples: Any, golden: Golden) -> None:
    out = StringIO()
    console = Console(file=out, width=100, color_system=None, force_terminal=False)
    screen = screen_of(in_the_middle(samples), None, now=samples.t0 + 65)
    assert screen.left is None, "the plan does not know how long merges take"
    console.print(panel(screen, 100, glyphs=ASCII))
    golden("panel_merging.txt", "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n")


def test_the_panel_of_merges_alone_speaks_of_no_nodes(samples: Any) -> None:
    out = StringIO()
    console = Console(file=out, width=100, color_system=None, force_terminal=False)
    state = state_with(state_after(samples, begun(1), nodes=0), request=Request.PAUSE)
    console.print(panel(screen_of(state, None, now=samples.t0 + 65), 100, glyphs=ASCII))
    shown = out.getvalue()
    assert "| Time      1m 5s so far" in shown or "| Time      1m 4s so far" in shown
    assert "Done" not in shown
    assert "Nodes" not in shown
    assert "pause after the current merges" in shown


def test_who_asked_is_told_once_when_the_run_has_ended(samples: Any) -> None:
    by = "ops@bastion1"
    state = state_with(in_the_middle(samples), request=Request.PAUSE, requested_by=by)
    assert f"  asked to pause by {by}\n" in status_text(state, (), now=samples.t0 + 60)
    ended = replace(state, phase=Phase.ENDED, outcome=Outcome.PAUSED, message=f"asked to pause by {by}")
    assert status_text(ended, (), now=samples.t0 + 60).count(f"asked to pause by {by}") == 1


def the_end(samples: Any, outcome: Outcome, *more: Event, nodes: int = 3) -> Summary:
    happened = events(samples, *more, nodes=nodes)
    state = replay("run-1", samples.records(happened))
    if outcome is Outcome.DONE:
        back = {name: replace(node, phase=NodePhase.RECOVERED) for name, node in state.nodes.items()}
        state = replace(state, nodes=back)
    return summary(state, outcome, happened, samples.t0 + 900)


def recovered(node: str, reused: int | None, copied: int | None, replayed: int | None) -> NodeRecovered:
    return NodeRecovered(
        node=node,
        seconds=60.0,
        bytes_reused=reused,
        bytes_copied=copied,
        operations_replayed=replayed,
    )


ALL_MERGED = (
    begun(1),
    begun(2),
    merged(1),
    merged(2),
    begun(3),
    merged(3, segments=0, bytes=0, why="it is gone"),
)
RECOVERED = (
    recovered("es1", 10**9, 4096, 12),
    recovered("es2", 2 * 10**9, 0, 0),
    recovered("es3", None, None, None),
)


def test_the_summary_tells_before_and_after_and_the_bytes(samples: Any, golden: Golden) -> None:
    end = the_end(samples, Outcome.DONE, *ALL_MERGED, *RECOVERED)
    golden("summary_merges.txt", "\n".join(summary_lines(end)) + "\n")
    shown = summary_object(end)
    assert (shown["indices_merged"], shown["nothing_to_do"]) == (3, False)
    recovery: Any = shown["recovery"]
    assert (recovery["bytes_reused"], recovery["bytes_copied"]) == (3 * 10**9, 4096)
    assert recovery["by_node"]["es2"] == {
        "bytes_reused": 2 * 10**9,
        "bytes_copied": 0,
        "operations_replayed": 0,
    }
    assert recovery["by_node"]["es3"]["bytes_copied"] is None
    assert "only before version 6" in recovery["note"]


def test_a_merge_that_goes_on_is_not_called_merged(samples: Any) -> None:
    end = the_end(samples, Outcome.INTERRUPTED, begun(1))
    lines = summary_lines(end)
    assert "    posts-01: its merge continues, 41 segments a copy" in lines
    assert "    posts-02: not merged, 40 segments a copy" in lines
    assert "  continue: orchestrate resume run-1" in lines


def test_merges_alone_restart_no_node_and_can_be_resumed(samples: Any) -> None:
    lines = summary_lines(the_end(samples, Outcome.HELD, begun(1), merged(1), nodes=0))
    assert "no node was to be restarted" in lines[1]
    assert "  continue: orchestrate resume run-1" in lines
    done = summary_lines(the_end(samples, Outcome.DONE, *ALL_MERGED, nodes=0))
    assert not any("resume" in line for line in done)


def test_the_summary_of_a_restart_says_nothing_of_merges(samples: Any) -> None:
    end = summary(samples.ended_state(), Outcome.DONE, [*RECOVERED], samples.t0)
    assert not any("merge" in line or "on disk" in line for line in summary_lines(end))
    assert not {"merges", "recovery", "nothing_to_do"} & set(summary_object(end))


@pytest.mark.parametrize(
    ("version", "distribution", "known"),
    [
        ("0.90.13", "elasticsearch", False),
        ("2.4.6", "elasticsearch", False),
        ("5.6.16", "elasticsearch", False),
        ("6.0.0", "elasticsearch", True),
        ("8.19.0", "elasticsearch", True),
        ("2.19.0", "opensearch", True),
    ],
)
def test_where_copies_recover_by_operations(version: str, distribution: str, *, known: bool) -> None:
    assert recovers_by_operations(version, distribution) is known


def test_what_was_done_by_halves_and_what_is_left(samples: Any) -> None:
    state = in_the_middle(samples)
    assert half_done(state) == "1 of 3 indices merged and 0 of 3 nodes restarted"
    assert left_to_do(state) == "2 indices and 3 nodes"
    assert left_to_do(state, without=("es1",)) == "2 indices and 2 nodes"
    back = replace(state.nodes[NodeName("es1")], phase=NodePhase.REJOINED, owed=frozenset({REBOOT}))
    again = replace(state, nodes=state.nodes.changed(back))
    assert left_to_do(again) == "2 indices and 3 nodes", "it gets another turn for its owed work"
    waits = replace(state, nodes=state.nodes.changed(replace(back, owed=frozenset())))
    assert left_to_do(waits) == "2 indices, 2 nodes and the wait for 1 restarted node"
    assert half_done(state_after(samples)) == ""
    assert half_done(state_after(samples, *ALL_MERGED, nodes=0)) == ""
    phases = (NodePhase.RECOVERED, NodePhase.PENDING, NodePhase.PENDING)
    nodes = samples.run_state().nodes
    restart = replace(
        samples.run_state(),
        nodes=Nodes(replace(one, phase=p) for one, p in zip(nodes.values(), phases, strict=True)),
    )
    assert half_done(restart) == "1 of 3 nodes restarted"


def test_the_history_tells_how_many_were_merged(samples: Any) -> None:
    finished = RunFinished(outcome=Outcome.HELD, exit_code=3, seconds=9.0)
    past = past_run(samples.records(events(samples, begun(1), merged(1), finished)))
    assert past is not None
    assert "1 of 3 indices merged; kernel update" in history_text([past])
    (shown,) = history_object([past])
    assert (shown["indices_to_merge"], shown["indices_merged"]) == (3, 1)
