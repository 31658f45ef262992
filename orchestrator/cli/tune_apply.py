"""`tune apply`: the changes that hosts need, each in the ledger before it is sent, machines in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock
from typing import Final

from orchestrator.cli.asking import ask
from orchestrator.cli.options import Output
from orchestrator.cli.surroundings import Surroundings
from orchestrator.cli.tune_scene import Scene
from orchestrator.cli.tune_show import end, sentence, show_rows, show_states, verdict_on
from orchestrator.errors import ExitCode, JournalError
from orchestrator.hosts.parallel import in_parallel
from orchestrator.model.action import ActionResult, Done, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.model.tuning import HostTuning, TunableState, TuningProfile
from orchestrator.model.tuning_event import TuningApplied, TuningMissed
from orchestrator.runtime.codec import encode_event
from orchestrator.runtime.ledger import Ledger, Tuning
from orchestrator.runtime.signals import LastWords, Signals
from orchestrator.view.tuning import CHANGE_HEAD, Found, change_rows
from orchestrator.view.units import counted, one_line, visible

NO_LIMIT: Final[Seconds] = 24 * 3600.0
"""For all hosts together: each call is bounded by itself, and a change under way is never abandoned."""
AT_THE_START: Final = ("transparent_hugepage", "khugepaged", "numad", "jvm", "limits", "erlang")
"""Tunables, by how their names begin, that a process which runs already does not get: it has mapped its
memory, has its limits, and numad has moved its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What came of the changes of one tunable on one host."""

    node: NodeName
    state: TunableState
    result: ActionResult

    @property
    def failed(self) -> bool:
        """Whether it is not known to be done."""
        return not isinstance(self.result, Done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Everything that was begun.

    Attributes:
        left_out: tunables that were not begun, because of a signal or of a state that cannot be written.
        broken: why the ledger could not be written; nothing was changed after that.
    """

    made: tuple[Made, ...]
    left_out: int = 0
    broken: JournalError | None = None


def apply(
    where: Scene,
    profile: TuningProfile,
    open_ledger: Callable[[], Ledger],
    *,
    operator: str,
    yes: bool,
) -> ExitCode:
    """Show what will be changed, ask, change it, and look again.

    Args:
        where: the hosts.
        profile: what is wanted of them.
        open_ledger: opens the state for writing; nothing is written before the answer.
        operator: for the ledger.
        yes: whether not to ask.

    Raises:
        LeaseError: a run is at work on the cluster.
        JournalError: the state cannot be written; nothing was changed, or what is said was.
        typer.Abort: the answer is no.
    """
    around = where.around
    where.check_free()
    found = where.read(profile)
    rows = change_rows(found)
    if not rows:
        show_states(found, around)
        return _end(found, (), around)
    if around.output is Output.TEXT:
        show_rows(CHANGE_HEAD, rows, around)
        _say_unread(found, around)
    if not yes:
        hosts = sum(1 for tuning in found.values() if isinstance(tuning, HostTuning) and tuning.drifted)
        ask(
            f"Make these {counted(len(rows), 'change')} on {counted(hosts, 'host')} of "
            f"{visible(where.cluster)}?",
            around,
        )
        where.check_free()
        found = agreed(found, where.read(profile))
    ledger = open_ledger()
    with Signals(around.clock.wake, lambda: _last_words(where.cluster)) as signals:
        maker = Maker(where, profile, ledger, operator=operator, stop=signals.interrupted)
        making = maker.make(found)
        interrupted = signals.interrupted()
    tell(making, around)
    if making.broken is not None:
        raise making.broken
    if interrupted and making.left_out:
        around.note(f"interrupted: {counted(making.left_out, 'tunable')} not begun; {_undo(where.cluster)}")
        return around.end(ExitCode.INTERRUPTED, changed=len(making.made), left_out=making.left_out)
    now = where.read(profile)
    show_states(now, around)
    _warn_of_processes(making.made, where)
    return _end(now, making.made, around)


def agreed(shown: Found, now: Found) -> Found:
    """What was shown and is still so: a host may have changed while the question stood there."""
    kept: dict[NodeName, HostTuning | Unknown] = {}
    for node, tuning in now.items():
        before = shown.get(node)
        if isinstance(tuning, Unknown) or not isinstance(before, HostTuning):
            kept[node] = tuning if isinstance(tuning, Unknown) else HostTuning(states=())
        else:
            asked_for = [(state.tunable, state.changes) for state in before.drifted]
            same = tuple(state for state in tuning.drifted if (state.tunable, state.changes) in asked_for)
            kept[node] = HostTuning(states=same)
    return kept


class Maker:
    """Makes the changes that hosts need; machines in parallel, the nodes of one machine one after the other.

    Args:
        where: the hosts.
        profile: for a second reading of machines with several nodes.
        ledger: written before each change.
        operator: for the ledger.
        stop: whether to begin nothing more.
    """

    def __init__(
        self,
        where: Scene,
        profile: TuningProfile,
        ledger: Ledger,
        *,
        operator: str,
        stop: Callable[[], bool],
    ) -> None:
        self._where, self._profile, self._ledger = where, profile, ledger
        self._operator, self._stop = operator, stop
        self._halt, self._lock = Event(), Lock()
        self._left_out = 0
        self._broken: JournalError | None = None

    def make(self, found: Found) -> Making:
        """Make what drifted; no later than at a signal or a failed ledger, nothing more is begun."""
        wanted = {node: states for node in found if (states := _drifted(found, node))}
        work = {
            nodes: partial(self._machine, {node: wanted[node] for node in nodes})
            for nodes in self._where.by_machine(wanted)
        }
        results = in_parallel(work, timeout=NO_LIMIT)
        made = sorted((one for some in results.values() for one in some), key=lambda one: one.node)
        return Making(made=tuple(made), left_out=self._left_out, broken=self._broken)

    def _machine(self, wanted: Mapping[NodeName, tuple[TunableState, ...]]) -> list[Made]:
        """The nodes of one machine; each after the first is read again, for its host is changed by then."""
        done: list[Made] = []
        for place, (node, states) in enumerate(wanted.items()):
            if place == 0 or self._ends():
                done += self._tune(node, states)
                continue
            again = self._where.port.tuning([node], self._profile)[node]
            if isinstance(again, Unknown):
                why = Refused(reason=again.reason)
                done += [Made(node=node, state=state, result=why) for state in states]
            else:
                names = {state.tunable for state in states}
                done += self._tune(node, [state for state in again.drifted if state.tunable in names])
        return done

    def _tune(self, node: NodeName, states: Sequence[TunableState]) -> list[Made]:
        done: list[Made] = []
        for place, state in enumerate(states):
            if self._ends() or not self._recorded(node, state):
                with self._lock:
                    self._left_out += len(states) - place
                break
            action = TuneHost(
                node=node,
                tunable=state.tunable,
                changes=state.changes,
                found=state.running,
                wanted=state.wanted,
            )
            done.append(Made(node=node, state=state, result=self._where.port.perform(action)))
        return done

    def _recorded(self, node: NodeName, state: TunableState) -> bool:
        """Commit to the ledger what is about to be changed; without that nothing is changed any more."""
        tuning = Tuning(
            node=node,
            tunable=state.tunable,
            changes=state.changes,
            operator=self._operator,
            address=self._where.addresses.get(node, ""),
        )
        try:
            self._ledger.record(tuning, self._where.around.clock.now())
        except JournalError as error:
            self._broken = error
            self._halt.set()
            return False
        return True

    def _ends(self) -> bool:
        return self._stop() or self._halt.is_set()


def tell(making: Making, around: Surroundings) -> None:
    """What was done, and what was not."""
    for one in making.made:
        if around.output is Output.JSON:
            around.say_json(encode_event(_event(one)))
        elif isinstance(one.result, Done):
            around.say(f"done    {visible(one.node)}  {visible(one.state.tunable)}")
        else:
            around.say(
                f"FAILED  {visible(one.node)}  {visible(one.state.tunable)}: {one_line(one.result.reason)}"
            )


def _event(one: Made) -> TuningApplied | TuningMissed:
    if isinstance(one.result, Done):
        return TuningApplied(
            node=one.node, tunable=one.state.tunable, found=one.state.running, wanted=one.state.wanted
        )
    return TuningMissed(
        node=one.node,
        tunable=one.state.tunable,
        why=one.result.reason,
        on_failure=one.state.on_failure,
    )


def _end(now: Found, made: Sequence[Made], around: Surroundings) -> ExitCode:
    failed = [f"{one.node} {one.state.tunable}" for one in made if one.failed]
    code = ExitCode.FAILED if failed else verdict_on(now)
    if around.output is Output.TEXT:
        around.say(f"failed: {', '.join(visible(name) for name in failed)}" if failed else sentence(now))
    done = sum(1 for one in made if not one.failed)
    return end(code, now, around, changed=done, failed=failed)


def _drifted(found: Found, node: NodeName) -> tuple[TunableState, ...]:
    tuning = found[node]
    return () if isinstance(tuning, Unknown) else tuning.drifted


def _say_unread(found: Found, around: Surroundings) -> None:
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            around.warn(f"{node}: {one_line(tuning.reason)}")
        else:
            for state in tuning.unread:
                around.warn(f"{node}, {state.tunable}: {one_line(state.detail)}")


def _warn_of_processes(made: Sequence[Made], where: Scene) -> None:
    late = [one for one in made if not one.failed and one.state.tunable.startswith(AT_THE_START)]
    if late:
        names = ", ".join(dict.fromkeys(one.state.tunable for one in late))
        where.around.warn(
            f"{names}: counts for processes that start from now on; the nodes that run have it after "
            f"`orchestrate restart --cluster {where.cluster}`"
        )


def _undo(cluster: str) -> str:
    return f"`orchestrate tune revert --cluster {cluster}` undoes what was done"


def _last_words(cluster: str) -> LastWords:
    return LastWords(
        error=f"orchestrate: left at once on a second signal; a change may be half made. {_undo(cluster)}\n"
    )
