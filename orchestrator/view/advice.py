"""What to do after a run: the row of `AFTER` that fits it, with the names of its nodes and of its files."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.engine.left_over import by_hand
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.next_command import AFTER, lead, next_command, shell_lines
from orchestrator.untrusted import one_line
from orchestrator.view.progress import left_to_do, not_restored
from orchestrator.view.text import hung, listed

NOW: Final = "Now"
"""The label of the last lines of a run's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A command, what a person does before it, and what it does."""

    command: str
    does: str  # as the end of a sentence: `continue`
    first: str = ""  # what comes before it: `repair es3`; empty if nothing
    instead: str = ""  # the command that is named before it; empty if there is only one

    def lines(
        self, width: int | None = None, *, column: int = 8, margin: str = "  ", simulated: bool = False
    ) -> list[str]:
        """The last lines of a screen: what to do, then the command alone.

        Args:
            width: columns of the terminal; None where lines are not broken.
            column: characters of the labels above.
            margin: that of these.
            simulated: whether it is after a rehearsal, which nothing continues.
        """
        said = f"{'in a real run: ' if simulated else ''}{lead(self.first, self.does)}:"
        commands = (
            line for one in (self.instead, self.command) if one for line in shell_lines(one, width, indent=4)
        )
        return [*hung(f"{margin}{NOW:<{column}}  ", said, width), *commands]


_WITHOUT_REST: Final = frozenset({Outcome.DONE, Outcome.RESTORED, Outcome.DEPOSED})
"""After these nothing is restored: it is done, or another run does it."""


def advice(
    state: RunState, *, outcome: Outcome | None = None, restored: bool = False, run: str = ""
) -> Advice | None:
    """The next command for a run that has ended or was killed; None if there is nothing to do.

    Args:
        state: its last state.
        outcome: how it ended, where the state does not have that.
        restored: whether another run has restored its changes, which its own journal does not show.
        run: what to call it, where that is not its id.
    """
    ended = Outcome.RESTORED if restored else outcome or state.outcome
    code = ExitCode.INTERRUPTED if ended is None else ended.exit_code
    failed = [node.name for node in state.nodes.of(NodePhase.FAILED)]
    if ended not in _WITHOUT_REST and any(one.name not in failed for one in not_restored(state)):
        code = ExitCode.NOT_RESTORED  # also of a run that was killed
    if code is ExitCode.DONE:
        if ended is not Outcome.RESTORED or not left_to_do(state):
            return None
        code = ExitCode.INTERRUPTED  # restored by hand: its other nodes are restarted by a resume
    other = _another_run(state) if code is ExitCode.HELD else None
    if other is not None:
        return other
    step, place = AFTER[code], state.process.state
    if state.unserved and code is ExitCode.NOT_RESTORED:
        first = f"put {listed(state.unserved)} into service"
        return Advice(command=by_hand(state), does=step.does, first=first)
    if state.begun.repairs is not None:  # it has no other nodes, and a restore starts those that failed
        step = replace(AFTER[ExitCode.NOT_RESTORED], first=step.first)
    if code is ExitCode.FAILED and failed:
        step = replace(step, first=f"repair {listed(failed)}")
    if code is ExitCode.NOT_RESTORED and state.process.refused is not None:
        step = replace(step, first="have the credentials accepted")
    if code is ExitCode.LEASED and state.process.deposed is not None:
        step = replace(step, first=f"wait until run {state.process.deposed.successor} has ended")
    name, does, instead = run or state.run, step.does, ""
    if step.instead is not None and left_to_do(state):
        instead, does = step.instead.command(name, state=place), f"{step.instead.does}, or only {does}"
    return Advice(command=step.command(name, state=place), does=does, first=step.first, instead=instead)


def closing(state: RunState) -> Advice:
    """The command that ends a run of which all is restored, and which does not know that."""
    return Advice(command=state.command("restore"), does="close the run")


_ANOTHER: Final = "begin another run, with the options of this one"


def _another_run(state: RunState) -> Advice | None:
    """A held run keeps its policy: the run that passes what no change of cluster and hosts clears."""
    holds = (*state.in_phase.holds, *state.process.held_by)
    ways = list(dict.fromkeys(way for hold in holds for way in hold.ways))
    skipped = [node.name for node in state.nodes_in(NodePhase.SKIPPED) if node.failure]
    if ways:
        flags = [word for way in ways if way.startswith("--") for word in shlex.split(way)]
        others = [way for way in ways if not way.startswith("--")]
        also = f" and {', '.join(others)}" if others else ""
        return Advice(command=_again(state, *flags), does=one_line(f"{_ANOTHER}{also}", _LONGEST))
    if skipped and not left_to_do(state):
        only = [word for name in skipped for word in ("--only", name)]
        first = f"correct what holds {listed(skipped)}"
        return Advice(command=_again(state, *only), does=_ANOTHER, first=first)
    return None


_LONGEST: Final = 700
"""Characters of what a run needs: it may name owners of a preference list with long names."""


def _again(state: RunState, *more: str) -> str:
    """The command with which a run like this one begins."""
    begun, policy = state.begun, state.begun.policy
    verb, words = "restart", ["--cluster", begun.cluster_file or begun.cluster]
    if policy.upgrade is not None:
        verb, words = "upgrade", [*words, "--to", policy.upgrade.target]
    elif policy.merge is not None:
        verb = "post-bulk-index" if begun.nodes else "force-merge"
        words += [word for pattern in policy.merge.patterns for word in ("--index", pattern)]
    return next_command(verb, *words, *more, state=state.process.state)
