"""What a rehearsal shows beside its run: each mishap, what it led to by the journal, and the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, StartNode, action_name, action_target
from orchestrator.model.encoding import fields_of, public_record
from orchestrator.model.event import (
    ActionFailed,
    ActionSent,
    Event,
    Hold,
    HoldsCleared,
    LeaseLost,
    LeaseRegained,
    PhaseEntered,
    Record,
    Rescued,
    RunResumed,
    SecondFailure,
    SettingRestored,
    StandingDown,
    StoodStill,
    WaveStarted,
)
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.work_event import Answered, FellSilent, StartFailed
from orchestrator.untrusted import one_line
from orchestrator.view.text import clock_time, counted, duration, listed, wrapped

MARK: Final = "rehearsal: "
"""What every line for people begins with: in a log it cannot be taken for a line of a real run."""


def beginning(what: str, cluster: str, seed: int) -> str:
    """The first line: that nothing is real, which mishaps there will be, and how there are others."""
    mishaps = f"with the mishaps of seed {seed}" if seed else "without mishaps (--seed 1 invents some)"
    return f"rehearsing {what} on a simulation of {cluster}, {mishaps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Befallen:
    """A mishap of a rehearsal when it happens."""

    at: Instant
    words: str  # what happens, for people
    names: frozenset[str] = frozenset()  # of nodes, indices, settings; empty: it befalls program or cluster
    kills: bool = False  # whether the program is killed


@dataclass(slots=True, kw_only=True)
class Story:
    """A mishap and the events of the journal that it led to."""

    mishap: Befallen
    facts: list[Record] = field(default_factory=list)
    cleared: Instant | None = None  # when the first of its holds did not hold the run any more
    again: bool = False  # whether an action that failed was sent again

    def retries(self, action: Action) -> bool:
        """Whether this action failed before, by its events."""
        events = [record.event for record in self.facts]
        started = isinstance(action, StartNode) and any(
            isinstance(event, StartFailed) and event.node == action.node for event in events
        )
        return started or any(isinstance(event, ActionFailed) and event.action == action for event in events)

    def of(self, *kinds: type[Event]) -> list[Record]:
        """Its events of these kinds."""
        return [record for record in self.facts if isinstance(record.event, kinds)]


class Stories:
    """The mishaps of a rehearsal with what each led to: the one place where events are assigned to mishaps.

    An event belongs to the latest mishap whose node, index or setting it names; without such a one, to the
    latest that befell the program or the whole cluster.
    """

    def __init__(self) -> None:
        self.all: list[Story] = []

    def befell(self, mishap: Befallen) -> None:
        """This happens now."""
        self.all.append(Story(mishap=mishap))

    def add(self, records: Sequence[Record]) -> None:
        """These were committed."""
        for record in records:
            match record.event:
                case HoldsCleared() | WaveStarted() | RunResumed():
                    for story in self.all:
                        story.cleared = (
                            record.at if story.of(Hold) and story.cleared is None else story.cleared
                        )
                case ActionSent(action=action):
                    for story in self.all:
                        story.again = story.again or story.retries(action)
                case _:
                    pass
            if _may_follow(record.event) and (led := self._of(record)) is not None:
                led.facts.append(record)

    def _of(self, record: Record) -> Story | None:
        before = [story for story in self.all if story.mishap.at <= record.at]
        if isinstance(record.event, RunResumed):
            return next((story for story in reversed(before) if story.mishap.kills), None)
        text = str(public_record(record))
        named = (story for story in reversed(before) if _names(text, story.mishap.names))
        of_all = (story for story in reversed(before) if not (story.mishap.names or story.mishap.kills))
        return next(named, None) or next(of_all, None)


def _names(text: str, names: frozenset[str]) -> bool:
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) for name in names)


def _may_follow(event: Event) -> bool:
    """Whether an event may be what a mishap led to."""
    match event:
        case (
            ActionFailed() | Hold() | LeaseLost() | LeaseRegained() | Rescued() | RunResumed() | StartFailed()
        ):
            return True
        case SecondFailure() | StandingDown() | StoodStill() | FellSilent() | Answered():
            return True
        case PhaseEntered(node=str(), to=to):
            return to == NodePhase.FAILED.value
        case SettingRestored(note=note):
            return bool(note)
        case _:
            return False


def led_to(story: Story) -> str:
    """What a mishap led to, by the gravest of its events."""
    for says in (_stood_down, _held, _lease, _acted, _waited):
        said = says(story)
        if said:
            return said
    return "it was not resumed" if story.mishap.kills else "no effect on the run"


def _stood_down(story: Story) -> str:
    if story.of(SecondFailure):
        return "the run stood down, as it must after a second failure"
    for record in story.facts:
        match record.event:
            case StandingDown(reason=reason):
                return f"the run stood down: {one_line(reason, _LONGEST)}"
            case PhaseEntered(node=str(node), why=why):
                return f"{node} failed{': ' if why else ''}{one_line(why, _LONGEST)}"
            case _:
                pass
    return ""


_LONGEST: Final = 160
"""Characters of a reason."""


def _held(story: Story) -> str:
    held = story.of(Hold)
    if not held:
        return ""
    names = listed(list(dict.fromkeys(one.event.predicate for one in held if isinstance(one.event, Hold))), 3)
    if story.cleared is None:
        return f"the run was held by {names} to its end"
    return f"the run was held by {names} for {duration(story.cleared - held[0].at)}, then went on"


def _lease(story: Story) -> str:
    if not story.of(LeaseLost):
        return ""
    until = " until it had the lease again" if story.of(LeaseRegained) else ""
    return f"the run lost its lease, and stopped no node{until}"


def _acted(story: Story) -> str:
    if story.of(Rescued):
        return "the run started its nodes at once"
    times = len(story.of(StartFailed) or story.of(ActionFailed))
    failed = f"failed {'once' if times == 1 else counted(times, 'time')}"
    again = ", and was sent again" if story.again else ""
    for record in story.facts:
        match record.event:
            case StartFailed(node=node):
                return f"the start of {node} {failed}{again}"
            case ActionFailed(action=action, in_doubt=True) if not again:
                what = f"{action_name(action)} of {action_target(action)}"
                return f"the run did not know whether {what} was done, until it had read it"
            case ActionFailed(action=action):
                return f"{action_name(action)} of {action_target(action)} {failed}{again}"
            case SettingRestored(key=key, note=note):
                return f"{key}: {note}"
            case _:
                pass
    return ""


def _waited(story: Story) -> str:
    silent = story.of(FellSilent)
    for record in reversed(story.facts):
        match record.event:
            case RunResumed():
                return f"resumed {duration(record.at - story.mishap.at)} later, from its journal"
            case Answered() if silent:
                since = min(one.at - one.event.seconds for one in silent if isinstance(one.event, FellSilent))
                return f"the run waited {duration(record.at - since)} for an answer"
            case FellSilent():
                return "the run waited for an answer"
            case StoodStill(seconds=seconds):
                return f"limits were extended by {duration(seconds)}"
            case _:
                pass
    return ""


News = Callable[[], Sequence[Befallen]]
"""The mishaps since the last call."""


class Narrator:
    """A `Reporter` of the mishaps of a rehearsal, before the one of its run.

    Args:
        news: the mishaps since the last call.
        tell: writes one mishap when it happens.
        end: called at the end of the run, with each mishap and what it led to.
    """

    def __init__(
        self, news: News, tell: Callable[[Befallen], None], end: Callable[[Sequence[Story]], None]
    ) -> None:
        self._news, self._tell, self._end, self._stories = news, tell, end, Stories()

    def _catch_up(self) -> None:
        for mishap in self._news():
            self._stories.befell(mishap)
            self._tell(mishap)

    def events(self, records: Sequence[Record]) -> None:
        """What went wrong before them, and what it led to."""
        self._catch_up()
        self._stories.add(records)

    def waiting(self, _state: RunState, _decision: Decision) -> None:
        """What went wrong before it."""
        self._catch_up()

    def finished(self, _state: RunState, _outcome: Outcome) -> None:
        """What went wrong at last, and the end."""
        self._catch_up()
        self._end(self._stories.all)


class Progress:
    """A `Reporter` of how far a rehearsal is, on one line that changes.

    Args:
        simulated: how much simulated time has passed.
        show: replaces the line.
        clear: removes it, before the summary is written.
    """

    def __init__(
        self, simulated: Callable[[], Seconds], show: Callable[[str], None], clear: Callable[[], None]
    ) -> None:
        self._simulated, self._show, self._clear = simulated, show, clear

    def events(self, records: Sequence[Record]) -> None:
        """They come with a decision."""

    def waiting(self, state: RunState, _decision: Decision) -> None:
        """So many nodes are back."""
        done = sum(node.phase is NodePhase.RECOVERED for node in state.nodes.values())
        nodes = counted(len(state.nodes), "node")
        self._show(f"{done} of {nodes} restarted, {duration(self._simulated())} of simulated time")

    def finished(self, _state: RunState, _outcome: Outcome) -> None:
        """The summary follows."""
        self._clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The result of a rehearsal; its fields are those of the JSON."""

    seed: int  # the same seed on the same cluster gives the same rehearsal
    mishaps: tuple[str, ...]  # all mishaps, in order
    kills: int  # how often the program was killed and resumed
    simulated_seconds: Seconds  # of the simulated cluster; `seconds`: of real time
    seconds: Seconds
    settings_not_as_found: tuple[str, ...]  # settings that differ from before the run
    settings_changed_by_others: tuple[str, ...] = ()  # those that somebody else has changed since it began
    nodes_down: tuple[str, ...]  # nodes that do not run
    nodes_not_in_cluster: tuple[str, ...] = ()  # nodes that run, and that are not in the cluster
    nodes_stopping: tuple[str, ...] = ()  # nodes whose stop has not ended: they still run
    # actions of the run against the program's rules, of which some are disabled
    against_rules: tuple[str, ...] = ()


def rehearsed_object(end: Rehearsed) -> dict[str, object]:
    """The result as a line of `--output json`."""
    whole = replace(end, simulated_seconds=round(end.simulated_seconds, 3), seconds=round(end.seconds, 3))
    return {"event": "rehearsed", **fields_of(whole)}


def rehearsed_lines(end: Rehearsed, stories: Sequence[Story], width: int | None = None) -> list[str]:
    """The result for people: each mishap with what it led to, and what is left."""
    took = f"{duration(end.simulated_seconds)} of a simulated cluster in {duration(end.seconds)}"
    wrong = f"{counted(len(stories), 'mishap')}:" if stories else "no mishap."
    how = f"with seed {end.seed}" if end.seed else "the undisturbed run"
    down, stopping, apart = end.nodes_down, end.nodes_stopping, end.nodes_not_in_cluster
    others, against = end.settings_changed_by_others, end.against_rules
    left: list[tuple[str, Sequence[str]]] = [
        (
            f"Settings: {'NOT RESTORED' if end.settings_not_as_found else 'restored'}",
            end.settings_not_as_found,
        ),
        ("Settings that others changed during the run (new values kept):" if others else "", others),
        (f"Nodes down: {listed(down) if down else 'none'}", ()),
        (f"Nodes whose stop has not ended: {listed(stopping)}" if stopping else "", ()),
        (f"Nodes that run and are not in the cluster: {listed(apart)}" if apart else "", ()),
        (
            "Against the rules, of which some are switched off (--disable-predicate):" if against else "",
            against,
        ),
    ]
    return [
        *wrapped(f"Rehearsed {how}: {took}, {wrong}", width),
        *(line for story in stories for line in wrapped(_line(story), width, first="  ", then=" " * 11)),
        *(
            line
            for title, items in left
            if title
            for line in (
                *wrapped(title, width),
                *(below for item in items for below in wrapped(item, width, first="  ")),
            )
        ),
        "",
    ]


def _line(story: Story) -> str:
    words = story.mishap.words.partition("; ")[0] if story.mishap.kills else story.mishap.words
    return f"{clock_time(story.mishap.at)} {words}: {led_to(story)}"
