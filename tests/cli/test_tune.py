"""`tune apply` and `revert` over hosts that are dictionaries: what is changed, said, kept and undone."""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune import apply, by_verdict, revert, sentence, show_states, verdict_on
from orchestrator.errors import ExitCode, JournalError, LeaseError
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
from orchestrator.runs.tuning import TunedHosts, agreed, make
from orchestrator.runtime.database import DatabaseUse, empty_engine
from orchestrator.runtime.ledger import Ledger, Tuning
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock
from tests.cli.console import REPOSITORY, Said, Terminal
from tests.fakes.valued_hosts import ValuedHosts, path_of

ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
SWAP, ZONE, THP = "vm.swappiness", "vm.zone_reclaim_mode", "transparent_hugepage.enabled"
FOUND = {path_of(SWAP): "60", path_of(ZONE): "1", path_of(THP): "always"}
WANTED = {path_of(SWAP): "1", path_of(ZONE): "0", path_of(THP): "never"}
PROFILE = TuningProfile(
    name="elasticsearch",
    applies_to="elasticsearch",
    settings=tuple(
        TuningSetting(tunable=name, wanted=value)
        for name, value in ((SWAP, "1"), (ZONE, "0"), (THP, "never"))
    ),
)


class Answer(Terminal):
    """A person who says yes, but not at once: meanwhile something happens."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__("y\n")
        self.meanwhile = meanwhile

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # of IOBase, for StringIO alike
        self.meanwhile()
        return super().readline(size)


class Bench:
    """Two hosts that are not as the profile wants them, and a ledger."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger, self._monkeypatch = ledger, monkeypatch
        self.hosts = ValuedHosts(values={node: dict(FOUND) for node in (ES1, ES2)})
        self.around, self.where = self.scene()

    def scene(
        self,
        output: Output = Output.TEXT,
        out: io.StringIO | None = None,
        environment: Mapping[str, str] | None = None,
        **more: Any,
    ) -> tuple[Context, TunedHosts]:
        around = Context(
            environment=environment or {},
            home=Path("/nowhere"),
            clock=SystemClock(),
            output=output,
            out=out if out is not None else io.StringIO(),
            err=io.StringIO(),
        )
        nodes = tuple(self.hosts.machines) or tuple(NodeName(name) for name in self.hosts.values)
        where = TunedHosts(
            clock=around.clock,
            cluster="prod",
            port=self.hosts,
            nodes=nodes,
            addresses={node: f"10.0.0.{number}" for number, node in enumerate(nodes, 1)},
            machines=self.hosts.machines,
            command=lambda verb: f"orchestrate {verb} --cluster prod",
            running="for running nodes: `orchestrate restart --cluster prod`",
            **more,
        )
        return around, where

    def tune(
        self,
        output: Output = Output.TEXT,
        *,
        ledger: Callable[[], Ledger] | None = None,
        meanwhile: Callable[[], None] | None = None,
        **more: Any,
    ) -> Said:
        """`tune apply`, with `--yes` or with an answer before which something happens."""
        self.around, self.where = self.scene(output, **more)
        self._typed(meanwhile)
        code = apply(
            self.where,
            PROFILE,
            ledger or (lambda: self.ledger),
            self.around,
            operator="anna",
            yes=meanwhile is None,
        )
        return self._said(code)

    def undo(
        self, output: Output = Output.TEXT, *, meanwhile: Callable[[], None] | None = None, **more: Any
    ) -> Said:
        """`tune revert`, likewise."""
        self.around, self.where = self.scene(output, **more)
        self._typed(meanwhile)
        owed = self.ledger.owed(self.where.machine)
        yes = meanwhile is None
        return self._said(revert(self.where, self.ledger, owed, self.around, operator="ben", yes=yes))

    def _typed(self, meanwhile: Callable[[], None] | None) -> None:
        if meanwhile is not None:
            self._monkeypatch.setattr("sys.stdin", Answer(meanwhile))

    def _said(self, code: ExitCode) -> Said:
        assert isinstance(self.around.out, io.StringIO)
        assert isinstance(self.around.err, io.StringIO)
        return Said(command=(), code=code, out=self.around.out.getvalue(), err=self.around.err.getvalue())

    def write(self, node: NodeName, **values: str) -> Callable[[], None]:
        """Other values of these tunables, once it is called."""
        names = {"swap": SWAP, "zone": ZONE}
        return lambda: self.hosts.values[node].update(
            {path_of(names[name]): value for name, value in values.items()}
        )

    def interrupt_at(self, number: int) -> None:
        """Have a signal come while this change is made."""

        def interrupt(_action: TuneHost) -> None:
            if len(self.hosts.performed) == number - 1:
                os.kill(os.getpid(), signal.SIGINT)
                self.around.clock.wait(30)  # until it is noticed: a change takes longer than that

        self.hosts.before = interrupt


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    store = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=DatabaseUse.WRITE)
    yield Bench(store.ledger("prod"), monkeypatch)
    store.close()


@pytest.fixture
def one(bench: Bench) -> Bench:
    """One host alone."""
    bench.hosts.values = {ES1: dict(FOUND)}
    bench.around, bench.where = bench.scene()
    return bench


def test_apply_makes_hosts_as_wanted_and_revert_restores_them(bench: Bench) -> None:
    said = bench.tune()
    assert (said.code, bench.hosts.values) == (ExitCode.DONE, {ES1: WANTED, ES2: WANTED})
    assert "every host is as the profile wants it" in said.out
    assert "transparent_hugepage.enabled: applies to processes that start from now on" in said.err
    assert "`orchestrate restart --cluster prod`" in said.err
    assert bench.ledger.addresses() == {ES1: "10.0.0.1", ES2: "10.0.0.2"}
    said = bench.undo()
    assert (said.code, bench.hosts.values) == (ExitCode.DONE, {ES1: FOUND, ES2: FOUND})
    assert bench.ledger.owed() == {}
    assert said.out.endswith("all original values are restored\n")
    undone = [action.tunable for action in bench.hosts.performed[6:] if action.node == ES1]
    assert undone == [THP, ZONE, SWAP]


def shown(bench: Bench, said: Said) -> str:
    """A command as a user sees it; then the values of the hosts that it left, and how many are owed."""
    text = re.sub(r'("ts": )"[^"]*"', r"\1…", f"exit code {ExitCode(said.code).name}\n{said.out}{said.err}")
    names = {path: path.rpartition("/")[2] for path in FOUND}
    hosts = [
        f"{host}: {', '.join(f'{names.get(path, path)} {value}' for path, value in values.items())}"
        for host, values in bench.hosts.values.items()
    ]
    owed = sum(map(len, bench.ledger.owed().values()))
    return "\n".join([text.rstrip(), *hosts, f"{len(bench.hosts.performed)} sent, {owed} owed"])


def right(bench: Bench) -> Iterator[Said]:
    """Nothing is written where nothing is changed."""
    bench.hosts.values = {ES1: dict(WANTED)}

    def never() -> Ledger:
        raise AssertionError("the ledger of hosts that are right")

    yield bench.tune(ledger=never)


def refused(bench: Bench) -> Iterator[Said]:
    """The ledger lists it, and it was never made: the host itself shows that."""
    bench.hosts.refused = {ZONE}
    yield bench.tune()
    yield bench.undo()


def unknown(bench: Bench) -> Iterator[Said]:
    bench.hosts.unreadable = {ZONE}
    yield bench.tune()


def away(bench: Bench) -> Iterator[Said]:
    bench.hosts.values[ES2] = dict(FOUND)
    bench.hosts.away = {ES1}
    yield bench.tune(unplaced={ES3: Unknown(reason="es3: its address is not known")})


def apply_in_json(bench: Bench) -> Iterator[Said]:
    bench.hosts.values[ES2] = dict(FOUND)
    bench.hosts.refused, bench.hosts.away = {ZONE}, {ES2}
    yield bench.tune(Output.JSON)


def revert_in_json(bench: Bench) -> Iterator[Said]:
    bench.tune()
    bench.write(ES1, swap="30")()
    bench.hosts.refused = {ZONE}
    yield bench.undo(Output.JSON)


def set_by_somebody_since(bench: Bench) -> Iterator[Said]:
    bench.tune()
    bench.write(ES1, swap="30")()
    yield bench.undo()
    bench.write(ES1, swap="1")()
    yield bench.undo()


def interrupted(bench: Bench) -> Iterator[Said]:
    """A signal ends `apply` after the change that is being made."""
    bench.interrupt_at(2)
    yield bench.tune(Output.JSON)


def interrupted_revert(bench: Bench) -> Iterator[Said]:
    bench.tune()
    bench.hosts.performed = []
    bench.interrupt_at(1)
    yield bench.undo()
    bench.hosts.performed = [*bench.hosts.performed] * 9  # no further signal
    yield bench.undo()


def ours_came_during_the_question(bench: Bench) -> Iterator[Said]:
    bench.tune()
    bench.write(ES1, swap="30")()
    yield bench.undo(meanwhile=bench.write(ES1, swap="1"))


SCENES = (
    *(right, refused, unknown, away, apply_in_json, revert_in_json, set_by_somebody_since, interrupted),
    *(interrupted_revert, ours_came_during_the_question),
)
GOLDEN = REPOSITORY / "tests/data/tuning/commands.txt"


@pytest.mark.parametrize("scene", SCENES)
def test_a_command_says_and_leaves_what_is_agreed(
    one: Bench, scene: Callable[[Bench], Iterator[Said]]
) -> None:
    """With ORCHESTRATE_REWRITE_GOLDEN=1, the file is written again."""
    text = "".join(f"{shown(one, said)}\n" for said in scene(one))
    found = dict(part.split("\n", 1) for part in GOLDEN.read_text().split("== ")[1:])
    if os.environ.get("ORCHESTRATE_REWRITE_GOLDEN"):
        found[scene.__name__] = text
        GOLDEN.write_text("".join(f"== {each.__name__}\n{found.get(each.__name__, '')}" for each in SCENES))
    assert found[scene.__name__] == text


def test_each_change_is_in_the_ledger_before_it_is_made(bench: Bench) -> None:
    def look(action: TuneHost) -> None:
        owed = {each.subject: each.undoing for each in bench.ledger.owed()[action.node]}
        assert owed[path_of(action.tunable)] == (action.changes[0].undone(),)

    bench.hosts.before = look
    assert bench.tune().code is ExitCode.DONE
    assert len(bench.hosts.performed) == 6


def test_without_a_ledger_nothing_is_changed(bench: Bench) -> None:
    engine = empty_engine()
    with pytest.raises(JournalError, match="ledger"):
        bench.tune(ledger=lambda: Ledger(engine, "prod"))
    engine.dispose()
    assert (bench.hosts.performed, bench.hosts.values) == ([], {ES1: FOUND, ES2: FOUND})


def test_a_ledger_that_fails_in_the_middle_ends_it(one: Bench) -> None:
    class Full(Ledger):
        def record(self, tuning: Any, at: float) -> None:
            if tuning.tunable == ZONE:
                raise JournalError("no space is left")
            one.ledger.record(tuning, at)

    full = Full(one.ledger._engine, "prod")
    making = make(one.where, PROFILE, full, one.where.read(PROFILE), operator="anna", stop=lambda: False)
    assert [each.state.tunable for each in making.made] == [SWAP]
    assert (making.left_out, str(making.broken)) == (2, "no space is left")
    with pytest.raises(JournalError, match="no space"):
        one.tune(ledger=lambda: full)
    assert one.hosts.values[ES1] == FOUND | {path_of(SWAP): "1"}


def test_revert_of_a_part_is_run_again(bench: Bench) -> None:
    bench.tune()
    bench.hosts.away, bench.hosts.refused = {ES2}, {ZONE}
    said = bench.undo()
    assert (said.code, "NOT READ: host of es2: no route" in said.out) == (ExitCode.FAILED, True)
    assert bench.hosts.values[ES1] == FOUND | {path_of(ZONE): "0"}
    bench.hosts.away, bench.hosts.refused = set(), set()
    assert bench.undo().code is ExitCode.DONE
    assert (bench.hosts.values, bench.ledger.owed()) == ({ES1: FOUND, ES2: FOUND}, {})


def test_nodes_of_one_machine_are_tuned_one_after_the_other(bench: Bench) -> None:
    """The second finds what the first one left; both at once would both take the first value for found."""
    bench.hosts = ValuedHosts(values={"m": dict(FOUND)}, machines={ES1: "m", ES2: "m"})
    assert bench.tune().code is ExitCode.DONE
    assert [action.node for action in bench.hosts.performed] == [ES1] * 3
    assert bench.undo().code is ExitCode.DONE
    assert bench.hosts.values == {"m": FOUND}


def test_a_lease_that_is_held_bars_apply_and_revert(bench: Bench) -> None:
    """Also that of a run which began during the question."""
    runs: list[str] = []

    def check_free() -> None:
        if runs:
            raise LeaseError("another run holds the lease on prod")

    def begun() -> None:
        runs.append("a run")

    with pytest.raises(LeaseError):
        bench.tune(meanwhile=begun, check_free=check_free)
    assert bench.hosts.performed == []
    runs.clear()
    assert bench.tune(check_free=check_free).code is ExitCode.DONE
    made = len(bench.hosts.performed)
    with pytest.raises(LeaseError):
        bench.undo(meanwhile=begun, check_free=check_free)
    for command in (bench.tune, bench.undo):
        with pytest.raises(LeaseError):
            command(check_free=check_free)
    assert len(bench.hosts.performed) == made


def test_revert_restores_a_queue_after_its_scheduler(one: Bench) -> None:
    """The kernel sets the length anew with the scheduler: restored first, it would be lost."""
    scheduler, length = (f"/sys/block/sdb/queue/{name}" for name in ("scheduler", "nr_requests"))
    for path, found, wanted in ((scheduler, "bfq", "none"), (length, "512", "64")):
        change = ValueChange(path=path, found=found, wanted=wanted)
        one.ledger.record(Tuning(node=ES1, tunable=path, changes=(change,), operator="anna"), 1.0)
    one.hosts.values = {ES1: {scheduler: "none", length: "64"}}
    said = one.undo()
    assert said.code is ExitCode.DONE, said.out
    assert [action.tunable for action in one.hosts.performed] == [scheduler, length]


def test_agreed_leaves_out_a_change_made_during_the_question(bench: Bench) -> None:
    shown = bench.where.read(PROFILE)
    bench.write(ES1, swap="30")()
    bench.hosts.away = {ES2}
    kept = agreed(shown, bench.where.read(PROFILE))
    assert isinstance(kept[ES2], Unknown)
    host = kept[ES1]
    assert isinstance(host, HostTuning)
    assert [state.tunable for state in host.drifted] == [ZONE, THP]


def test_an_answer_covers_only_what_was_shown(bench: Bench) -> None:
    assert bench.tune(meanwhile=bench.write(ES1, swap="30")).code is ExitCode.HELD
    assert bench.hosts.values == {ES1: WANTED | {path_of(SWAP): "30"}, ES2: WANTED}
    assert bench.undo(meanwhile=bench.write(ES2, swap="60", zone="7")).code is ExitCode.HELD
    assert bench.hosts.values[ES1] == FOUND | {path_of(SWAP): "30"}
    assert bench.hosts.values[ES2] == FOUND | {path_of(ZONE): "7"}


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
    assert sentence(found) == "right after the next restart of the service: es1"
    assert by_verdict(found)["drifted"] == []
    assert by_verdict(found)["restart_needed"] == [ES1]


def test_no_text_of_a_host_drives_a_terminal(bench: Bench) -> None:
    bench.write(ES1, swap="60\x1b[2J")()
    drawn = {}
    for verdict, out in (("BAD", Terminal()), ("DRIFT", io.StringIO())):
        around, where = bench.scene(out=out, environment={"TERM": "xterm-256color"})
        show_states(where.read(PROFILE), around)
        drawn[verdict] = out.getvalue()
    for verdict, text in drawn.items():
        assert "\x1b" not in text
        for part in ("\\x1b", "vm.swappiness", verdict):
            assert part in text
