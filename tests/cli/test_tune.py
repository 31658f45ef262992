"""`tune apply` and `revert` over hosts that are dictionaries: what is changed, said, kept and undone."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune_apply import apply
from orchestrator.cli.work.tune_revert import revert
from orchestrator.cli.work.tune_show import by_verdict, sentence, show_states, verdict_on
from orchestrator.errors import ExitCode, JournalError, LeaseError, UsageError
from orchestrator.model.action import TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    HostTuning,
    TunableState,
    TuningProfile,
    TuningSetting,
    ValueChange,
    Verdict,
)
from orchestrator.runs.host_tuning import Maker, agreed
from orchestrator.runs.tuned_hosts import TunedHosts, select
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.database import Access
from orchestrator.runtime.ledger import Ledger, Tuning
from orchestrator.runtime.store import StateStore, open_store
from tests.fakes.valued_hosts import ValuedHosts, path_of

ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
SWAP, ZONE, THP = "vm.swappiness", "vm.zone_reclaim_mode", "transparent_hugepage.enabled"
FOUND = {path_of(SWAP): "60", path_of(ZONE): "1", path_of(THP): "always"}
WANTED = {path_of(SWAP): "1", path_of(ZONE): "0", path_of(THP): "never"}
HEAD = ("host", "tunable", "wanted", "running", "at", "next", "boot", "verdict")
PROFILE = TuningProfile(
    name="elasticsearch",
    applies_to="elasticsearch",
    settings=tuple(
        TuningSetting(tunable=name, wanted=value)
        for name, value in ((SWAP, "1"), (ZONE, "0"), (THP, "never"))
    ),
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=Access.WRITE)
    yield opened
    opened.close()


@pytest.fixture
def ledger(store: StateStore) -> Ledger:
    return store.ledger("prod")


@pytest.fixture
def hosts() -> ValuedHosts:
    return ValuedHosts(values={node: dict(FOUND) for node in (ES1, ES2)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene(TunedHosts):
    """Hosts, and the context of the command that works on them."""

    around: Context


def scene_of(
    hosts: ValuedHosts,
    *,
    output: Output = Output.TEXT,
    out: io.StringIO | None = None,
    environment: Mapping[str, str] | None = None,
    unplaced: Mapping[NodeName, Unknown] | None = None,
    **more: Any,
) -> Scene:
    around = Context(
        environment=environment or {},
        home=Path("/nowhere"),
        clock=SystemClock(),
        output=output,
        out=out if out is not None else io.StringIO(),
        err=io.StringIO(),
    )
    nodes = tuple(hosts.machines) or tuple(NodeName(name) for name in hosts.values)
    return Scene(
        around=around,
        clock=around.clock,
        cluster="prod",
        port=hosts,
        nodes=nodes,
        addresses={node: f"10.0.0.{number}" for number, node in enumerate(nodes, 1)},
        machines=hosts.machines,
        unplaced=unplaced or {},
        command=lambda verb: f"orchestrate {verb} --cluster prod",
        **more,
    )


def said(where: Scene) -> str:
    assert isinstance(where.around.out, io.StringIO)
    return where.around.out.getvalue()


def noted(where: Scene) -> str:
    assert isinstance(where.around.err, io.StringIO)
    return where.around.err.getvalue()


def lines(where: Scene) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(where).splitlines()]


def tune(where: Scene, ledger: Ledger) -> ExitCode:
    return apply(where, PROFILE, lambda: ledger, where.around, operator="anna", yes=True)


def undo(where: Scene, ledger: Ledger) -> ExitCode:
    return revert(where, ledger, ledger.owed(where.machine), where.around, operator="ben", yes=True)


def test_hosts_are_made_as_the_profile_wants_and_brought_back(hosts: ValuedHosts, ledger: Ledger) -> None:
    where = scene_of(hosts)
    assert tune(where, ledger) is ExitCode.DONE
    assert hosts.values == {ES1: WANTED, ES2: WANTED}
    assert "every host is as the profile wants it" in said(where)
    assert "transparent_hugepage.enabled: applies to processes that start from now on" in noted(where)
    assert "`orchestrate restart --cluster prod`" in noted(where)
    assert ledger.addresses() == {ES1: "10.0.0.1", ES2: "10.0.0.2"}
    back = scene_of(hosts)
    assert undo(back, ledger) is ExitCode.DONE
    assert hosts.values == {ES1: FOUND, ES2: FOUND}
    assert ledger.owed() == {}
    assert said(back).endswith("all original values are restored\n")
    undone = [action.tunable for action in hosts.performed[6:] if action.node == ES1]
    assert undone == [THP, ZONE, SWAP]


def test_a_host_that_is_right_is_only_read(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.values = {ES1: dict(WANTED)}
    where = scene_of(hosts)
    assert apply(where, PROFILE, _never, where.around, operator="anna", yes=False) is ExitCode.DONE
    assert hosts.performed == []
    assert said(where).splitlines()[0].split() == [*HEAD]
    assert said(where).endswith("every host is as the profile wants it\n")
    assert ledger.owed() == {}


def _never() -> Ledger:
    raise AssertionError("nothing is written where nothing is changed")


def test_what_is_changed_stands_in_the_ledger_before(hosts: ValuedHosts, ledger: Ledger) -> None:
    def look(action: TuneHost) -> None:
        owed = {one.subject: one.undoing for one in ledger.owed()[action.node]}
        assert owed[path_of(action.tunable)] == (action.changes[0].undone(),)

    hosts.before = look
    assert tune(scene_of(hosts), ledger) is ExitCode.DONE
    assert len(hosts.performed) == 6


def test_without_a_ledger_nothing_is_changed(hosts: ValuedHosts, ledger: Ledger, store: StateStore) -> None:
    where = scene_of(hosts)
    store.close()
    with pytest.raises(JournalError, match="ledger"):
        apply(where, PROFILE, lambda: _broken(ledger), where.around, operator="anna", yes=True)
    assert hosts.performed == []
    assert hosts.values == {ES1: FOUND, ES2: FOUND}


def _broken(ledger: Ledger) -> Ledger:
    from sqlalchemy import create_engine  # noqa: PLC0415  (this test's alone)

    del ledger
    return Ledger(create_engine("sqlite://"), "prod")


def test_a_refused_tunable_is_named_and_the_others_are_set(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.refused = {ZONE}
    where = scene_of(hosts)
    assert tune(where, ledger) is ExitCode.FAILED
    assert hosts.values[ES1] == WANTED | {path_of(ZONE): "1"}
    assert "FAILED  es1, es2  vm.zone_reclaim_mode: sudo says no" in said(where)
    assert said(where).endswith("failed: vm.zone_reclaim_mode (es1, es2)\n")
    # It stands in the ledger, and was never made: the host itself tells.
    assert undo(scene_of(hosts), ledger) is ExitCode.DONE
    assert hosts.values == {ES1: FOUND, ES2: FOUND}
    assert ledger.owed() == {}


def test_unknown_is_never_fine(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.unreadable = {ZONE}
    where = scene_of(hosts)
    assert tune(where, ledger) is ExitCode.HELD
    assert "es1, es2: vm.zone_reclaim_mode: may not be read" in noted(where)
    assert "UNKNOWN: may not be read" in said(where)
    assert said(where).endswith("unknown: es1, es2\n")


def test_a_host_that_is_away_leaves_the_others_to_be_tuned(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.away = {ES1}
    nowhere = {ES3: Unknown(reason="es3: its address is not known")}
    where = scene_of(hosts, unplaced=nowhere)
    assert tune(where, ledger) is ExitCode.FAILED
    assert hosts.values == {ES1: FOUND, ES2: WANTED}
    assert "NOT REACHED: host of es1: no route" in said(where)
    assert "NOT REACHED: es3: its address is not known" in said(where)
    assert said(where).endswith("unreachable: es1, es3\n")


def test_json_tells_everything_a_line(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.refused, hosts.away = {ZONE}, {ES2}
    where = scene_of(hosts, output=Output.JSON)
    assert tune(where, ledger) is ExitCode.FAILED
    told = lines(where)
    assert [(line["event"], line.get("tunable")) for line in told] == [
        ("tuning_applied", SWAP),
        ("tuning_missed", ZONE),
        ("tuning_applied", THP),
        ("tunable", SWAP),
        ("tunable", ZONE),
        ("tunable", THP),
        ("host_unreachable", None),
        ("summary", None),
    ]
    assert {line["run"] for line in told} == {None}
    change = {"change": "value", "path": path_of(ZONE), "found": "1", "wanted": "0"}
    assert told[4] == {
        "ts": told[4]["ts"],
        "run": None,
        "event": "tunable",
        "node": "es1",
        "tunable": ZONE,
        "wanted": "0",
        "running": "1",
        "at_boot": "1",
        "verdict": "drift",
        "detail": "",
        "changes": [change],
    }
    summary = told[-1]
    assert (summary["outcome"], summary["exit_code"], summary["changed"]) == ("failed", 4, 2)
    assert (summary["failed"], summary["drifted"]) == (["es1 vm.zone_reclaim_mode"], ["es1"])
    assert (summary["unknown"], summary["unreachable"], summary["hosts"]) == ([], ["es2"], 2)


def test_json_of_a_revert(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.values = {ES1: dict(FOUND)}
    tune(scene_of(hosts), ledger)
    hosts.values[ES1][path_of(SWAP)] = "30"
    hosts.refused = {ZONE}
    where = scene_of(hosts, output=Output.JSON)
    assert undo(where, ledger) is ExitCode.FAILED
    told = {line.get("tunable"): line for line in lines(where)}
    assert (told[THP]["event"], told[THP]["change"]["wanted"]) == ("tuning_reverted", "always")
    assert (told[ZONE]["event"], told[ZONE]["why"]) == ("tuning_missed", "sudo says no")
    assert (told[SWAP]["event"], told[SWAP]["subject"]) == ("tuning_left", path_of(SWAP))
    assert "shows 30, which the record in this state does not have" in told[SWAP]["why"]
    assert (told[None]["undone"], told[None]["owed"], told[None]["exit_code"]) == (1, 2, 4)


def test_what_somebody_else_set_since_is_left(hosts: ValuedHosts, ledger: Ledger) -> None:
    tune(scene_of(hosts), ledger)
    hosts.values[ES1][path_of(SWAP)] = "30"
    where = scene_of(hosts)
    assert undo(where, ledger) is ExitCode.HELD
    assert hosts.values == {ES1: FOUND | {path_of(SWAP): "30"}, ES2: FOUND}
    assert "/proc/sys/vm/swappiness: NOT RESTORED: it shows 30" in said(where)
    assert said(where).endswith("5 restored, 1 not restored\n")
    hosts.values[ES1][path_of(SWAP)] = "1"
    assert undo(scene_of(hosts), ledger) is ExitCode.DONE
    assert hosts.values == {ES1: FOUND, ES2: FOUND}


def test_a_revert_of_a_part_is_run_again(hosts: ValuedHosts, ledger: Ledger) -> None:
    tune(scene_of(hosts), ledger)
    hosts.away, hosts.refused = {ES2}, {ZONE}
    where = scene_of(hosts)
    assert undo(where, ledger) is ExitCode.FAILED
    assert "NOT READ: host of es2: no route" in said(where)
    assert hosts.values[ES1] == FOUND | {path_of(ZONE): "0"}
    hosts.away, hosts.refused = set(), set()
    assert undo(scene_of(hosts), ledger) is ExitCode.DONE
    assert hosts.values == {ES1: FOUND, ES2: FOUND}
    assert ledger.owed() == {}


def test_nodes_of_one_machine_are_tuned_one_after_the_other(ledger: Ledger) -> None:
    """The second finds what the first one left; both at once would both take the first value for found."""
    hosts = ValuedHosts(values={"m": dict(FOUND)}, machines={ES1: "m", ES2: "m"})
    assert tune(scene_of(hosts), ledger) is ExitCode.DONE
    assert [action.node for action in hosts.performed] == [ES1] * 3
    assert undo(scene_of(hosts), ledger) is ExitCode.DONE
    assert hosts.values == {"m": FOUND}


def test_while_a_run_holds_the_cluster_nothing_is_changed(hosts: ValuedHosts, ledger: Ledger) -> None:
    tune(scene_of(hosts), ledger)
    made = len(hosts.performed)

    def held() -> None:
        raise LeaseError("another run holds the lease on prod")

    where = scene_of(hosts, check_free=held)
    for command in (tune, undo):
        with pytest.raises(LeaseError):
            command(where, ledger)
    assert len(hosts.performed) == made


def _interrupt_at(hosts: ValuedHosts, where: Scene, number: int) -> None:
    """Have a signal come while this change is made."""

    def interrupt(_action: TuneHost) -> None:
        if len(hosts.performed) == number - 1:
            os.kill(os.getpid(), signal.SIGINT)
            where.around.clock.wait(30)  # until it is noticed: a change takes longer than that

    hosts.before = interrupt


@pytest.mark.parametrize("number", [1, 2])
def test_a_signal_ends_it_after_the_change_in_hand(hosts: ValuedHosts, ledger: Ledger, number: int) -> None:
    hosts.values = {ES1: dict(FOUND)}
    where = scene_of(hosts, output=Output.JSON)
    _interrupt_at(hosts, where, number)
    assert tune(where, ledger) is ExitCode.INTERRUPTED
    assert [action.tunable for action in hosts.performed] == [SWAP, ZONE, THP][:number]
    assert f"interrupted: {3 - number} tunable" in noted(where)
    assert "`orchestrate tune revert --cluster prod` restores the original values" in noted(where)
    told = lines(where)
    assert [line["event"] for line in told] == [*["tuning_applied"] * number, "summary"]
    assert (told[-1]["outcome"], told[-1]["changed"]) == ("interrupted", number)
    assert len(ledger.owed()[ES1]) == number


def test_a_signal_ends_a_revert_and_another_goes_on(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.values = {ES1: dict(FOUND)}
    tune(scene_of(hosts), ledger)
    hosts.performed = []
    where = scene_of(hosts)
    _interrupt_at(hosts, where, 1)
    assert undo(where, ledger) is ExitCode.INTERRUPTED
    assert hosts.values[ES1] == WANTED | {path_of(THP): "always"}
    assert "es1  /proc/sys/vm/swappiness: not begun" in said(where)
    hosts.performed = [*hosts.performed] * 9  # no further signal
    assert undo(scene_of(hosts), ledger) is ExitCode.DONE
    assert hosts.values == {ES1: FOUND}


def test_a_queue_is_put_back_after_its_scheduler(ledger: Ledger) -> None:
    """The kernel sets the length anew with the scheduler: put back first, it would be lost."""
    scheduler, length = (f"/sys/block/sdb/queue/{name}" for name in ("scheduler", "nr_requests"))
    for path, found, wanted in ((scheduler, "bfq", "none"), (length, "512", "64")):
        change = ValueChange(path=path, found=found, wanted=wanted)
        tuning = Tuning(node=ES1, tunable=path, changes=(change,), operator="anna")
        ledger.record(tuning, 1.0)
    hosts = ValuedHosts(values={ES1: {scheduler: "none", length: "64"}})
    where = scene_of(hosts)
    assert undo(where, ledger) is ExitCode.DONE, said(where)
    assert [action.tunable for action in hosts.performed] == [scheduler, length]


def test_a_change_made_during_the_question_is_not_touched(hosts: ValuedHosts) -> None:
    where = scene_of(hosts)
    shown = where.read(PROFILE)
    hosts.values[ES1][path_of(SWAP)] = "30"
    hosts.away = {ES2}
    kept = agreed(shown, where.read(PROFILE))
    assert isinstance(kept[ES2], Unknown)
    one = kept[ES1]
    assert isinstance(one, HostTuning)
    assert [state.tunable for state in one.drifted] == [ZONE, THP]


class Answer(io.StringIO):
    """Somebody who says yes, but not at once: meanwhile something happens."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__("y\n")
        self.meanwhile = meanwhile

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # of IOBase, for StringIO alike
        self.meanwhile()
        return super().readline(size)


def _change(hosts: ValuedHosts) -> None:
    hosts.values[ES1][path_of(SWAP)] = "30"


def test_an_answer_covers_only_what_was_shown(
    hosts: ValuedHosts, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Answer(lambda: _change(hosts)))
    where = scene_of(hosts)
    assert apply(where, PROFILE, lambda: ledger, where.around, operator="anna", yes=False) is ExitCode.HELD
    assert hosts.values[ES1] == WANTED | {path_of(SWAP): "30"}
    assert hosts.values[ES2] == WANTED

    def written_again() -> None:
        hosts.values[ES2][path_of(SWAP)] = "60"
        hosts.values[ES2][path_of(ZONE)] = "7"

    monkeypatch.setattr("sys.stdin", Answer(written_again))
    back = scene_of(hosts)
    assert revert(back, ledger, ledger.owed(), back.around, operator="ben", yes=False) is ExitCode.HELD
    assert hosts.values[ES1] == FOUND | {path_of(SWAP): "30"}
    assert hosts.values[ES2] == FOUND | {path_of(ZONE): "7"}


def test_our_value_that_came_during_the_question_is_left(
    hosts: ValuedHosts, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(scene_of(hosts), ledger)
    hosts.values[ES1][path_of(SWAP)] = "30"

    def ours_again() -> None:
        hosts.values[ES1][path_of(SWAP)] = "1"

    monkeypatch.setattr("sys.stdin", Answer(ours_again))
    where = scene_of(hosts)
    assert revert(where, ledger, ledger.owed(), where.around, operator="ben", yes=False) is ExitCode.HELD
    assert hosts.values[ES1] == FOUND | {path_of(SWAP): "1"}
    assert "it changed after the question was shown" in said(where)


def test_a_run_that_began_during_the_question_goes_first(
    hosts: ValuedHosts, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def check_free() -> None:
        if runs:
            raise LeaseError("another run holds the lease on prod")

    def begun() -> None:
        runs.append("a run")

    where = scene_of(hosts, check_free=check_free)
    monkeypatch.setattr("sys.stdin", Answer(begun))
    with pytest.raises(LeaseError):
        apply(where, PROFILE, lambda: ledger, where.around, operator="anna", yes=False)
    assert hosts.performed == []
    runs.clear()
    made = len(hosts.performed) if tune(where, ledger) is ExitCode.DONE else 0
    monkeypatch.setattr("sys.stdin", Answer(begun))
    with pytest.raises(LeaseError):
        revert(where, ledger, ledger.owed(), where.around, operator="ben", yes=False)
    assert len(hosts.performed) == made


def test_a_ledger_that_fails_in_the_middle_ends_it(hosts: ValuedHosts, ledger: Ledger) -> None:
    hosts.values = {ES1: dict(FOUND)}

    class Full(Ledger):
        def record(self, tuning: Any, at: float) -> None:
            if tuning.tunable == ZONE:
                raise JournalError("no space is left")
            ledger.record(tuning, at)

    where = scene_of(hosts)
    full = Full(ledger._engine, "prod")
    maker = Maker(where, PROFILE, full, operator="anna", stop=lambda: False)
    making = maker.make(where.read(PROFILE))
    assert [one.state.tunable for one in making.made] == [SWAP]
    assert (making.left_out, str(making.broken)) == (2, "no space is left")
    with pytest.raises(JournalError, match="no space"):
        apply(where, PROFILE, lambda: full, where.around, operator="anna", yes=True)
    assert hosts.values[ES1] == FOUND | {path_of(SWAP): "1"}


def test_verdicts() -> None:
    fine = HostTuning(states=())
    assert verdict_on({}) is ExitCode.DONE
    assert verdict_on({ES1: fine}) is ExitCode.DONE
    assert verdict_on({ES1: fine, ES2: Unknown(reason="x")}) is ExitCode.FAILED


def test_an_older_limit_of_the_process_is_named() -> None:
    late = TunableState(
        tunable=SWAP, wanted="1", running="60", at_boot="1", verdict=Verdict.OK, restart_needed=True
    )
    found = {ES1: HostTuning(states=(late,))}
    assert verdict_on(found) is ExitCode.DONE, "`tune apply` cannot correct it"
    assert sentence(found) == "right after the next restart of the node: es1"
    assert by_verdict(found)["drifted"] == []
    assert by_verdict(found)["restart_needed"] == [ES1]


def test_a_terminal_gets_a_table_and_colours_unless_refused(hosts: ValuedHosts) -> None:
    drawn: dict[str, str] = {}
    for name, environment in {"plain": {"NO_COLOR": "1"}, "coloured": {}}.items():
        where = scene_of(hosts, out=Terminal(), environment={"TERM": "xterm-256color", **environment})
        show_states(where.read(PROFILE), where.around)
        drawn[name] = said(where)
    assert "\x1b[" in drawn["coloured"]
    assert "\x1b[" not in drawn["plain"]
    assert all("vm.swappiness" in text and "DRIFT" in text for text in drawn.values())


def test_what_a_host_says_cannot_drive_the_terminal(hosts: ValuedHosts) -> None:
    hosts.values[ES1][path_of(SWAP)] = "60\x1b[2J"
    for out in (io.StringIO(), Terminal()):
        where = scene_of(hosts, out=out, environment={"TERM": "xterm", "NO_COLOR": "1"})
        show_states(where.read(PROFILE), where.around)
        assert "\x1b" not in said(where)
        assert "\\x1b" in said(where)


def test_nodes_are_chosen_by_name_and_glob() -> None:
    nodes = [ES3, ES1, ES2]
    assert select(nodes, (), ()) == [ES1, ES2, ES3]
    assert select(nodes, ("es[12]",), ("es2",)) == [ES1]
    with pytest.raises(UsageError, match="no node is called es9; there is es1, es2, es3"):
        select(nodes, ("es9",), ())
    with pytest.raises(UsageError, match="the selection leaves no node"):
        select(nodes, ("es1",), ("*",))
