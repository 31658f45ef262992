"""`tune revert`: what the ledger owes is put back as found, where the host still shows what we wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event

from orchestrator.cli.asking import ask
from orchestrator.cli.options import Output
from orchestrator.cli.surroundings import Surroundings
from orchestrator.cli.tune_apply import NO_LIMIT
from orchestrator.cli.tune_scene import Scene, TuningPort
from orchestrator.cli.tune_show import show_rows
from orchestrator.errors import ExitCode, JournalError
from orchestrator.hosts.parallel import in_parallel
from orchestrator.hosts.undoing import Back, Foreign, Ours, Standing, again, rank, reads_for, standing
from orchestrator.model.action import ActionResult, Done, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.codec import encode_change
from orchestrator.runtime.ledger import Ledger, OwedChange
from orchestrator.runtime.signals import LastWords, Signals
from orchestrator.view.tuning import CHANGE_HEAD, Row, change_words
from orchestrator.view.units import counted, one_line, visible

Owed = Mapping[str, tuple[OwedChange, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """One subject that is owed, and how its host stands to it.

    Attributes:
        reached: False when the host could not be read at all.
    """

    node: NodeName
    owed: OwedChange
    stands: Reading[Standing]
    reached: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What came of undoing one subject; `result` is None when it was not begun."""

    debt: Debt
    result: ActionResult | None


def revert(where: Scene, ledger: Ledger, owed: Owed, *, operator: str, yes: bool) -> ExitCode:
    """Show what will be put back, ask, put it back.

    Args:
        where: the hosts.
        ledger: says when something is undone.
        owed: by machine, in the order in which it is undone.
        operator: for the ledger.
        yes: whether not to ask.

    Raises:
        LeaseError: a run is at work on the cluster.
        JournalError: the state cannot be written; what was undone until then is said.
        typer.Abort: the answer is no.
    """
    around = where.around
    where.check_free()
    debts = look(where, owed)
    ours = [debt for debt in debts if isinstance(debt.stands, Ours)]
    if around.output is Output.TEXT:
        show_rows(CHANGE_HEAD, [_row(debt) for debt in debts], around)
    if ours and not yes:
        ask(f"Undo {counted(len(ours), 'change')} on hosts of {visible(where.cluster)}?", around)
        where.check_free()
        debts = _still(debts, look(where, owed))
    with Signals(around.clock.wake, _last_words) as signals:
        undone, broken = undo(where, ledger, debts, operator=operator, stop=signals.interrupted)
        interrupted = signals.interrupted()
    _tell(undone, around)
    if broken is not None:
        raise broken
    return _end(undone, around, interrupted=interrupted)


def look(where: Scene, owed: Owed) -> list[Debt]:
    """Read the hosts, each machine once, and see how they stand to what is owed."""
    spokesmen: dict[str, NodeName] = {}
    for machine, some in owed.items():
        names = [node for one in some for node in one.nodes]
        spokesmen[machine] = next((node for node in names if node in where.nodes), names[0])
    reads = {
        node: reads_for([one.wrote[0] for one in owed[machine]])
        for machine, node in spokesmen.items()
        if node in where.nodes
    }
    facts = where.port.facts(reads) if reads else {}
    debts: list[Debt] = []
    for machine, node in spokesmen.items():
        told = facts.get(node) or where.unplaced.get(node) or Unknown(reason=f"where {node} is, is not known")
        debts += [_debt(node, one, told) for one in sorted(owed[machine], key=lambda one: rank(one.wrote[0]))]
    return debts


def _debt(node: NodeName, one: OwedChange, told: Reading[HostFacts]) -> Debt:
    if isinstance(told, Unknown):
        return Debt(node=node, owed=one, stands=told, reached=False)
    return Debt(node=node, owed=one, stands=standing(told, one.undoing))


def _still(shown: Sequence[Debt], now: Sequence[Debt]) -> list[Debt]:
    """What was agreed to: where the host shows something else by now, it is left for another time."""
    agreed = {(debt.node, debt.owed.subject): debt.stands for debt in shown}
    later = Unknown(reason="it changed while the question stood there: look again")
    return [
        Debt(node=debt.node, owed=debt.owed, stands=later)
        if isinstance(debt.stands, Ours) and agreed.get((debt.node, debt.owed.subject)) != debt.stands
        else debt
        for debt in now
    ]


def undo(
    where: Scene, ledger: Ledger, debts: Sequence[Debt], *, operator: str, stop: Callable[[], bool]
) -> tuple[list[Undone], JournalError | None]:
    """Undo what shows our values, machine by machine in its order; what is as it was found is written off.

    Returns:
        Everything with what came of it; and why the ledger could not be written: then no more was undone.
    """
    halt, broken = Event(), list[JournalError]()
    by_node: dict[NodeName, list[Debt]] = {}
    for debt in debts:
        by_node.setdefault(debt.node, []).append(debt)

    def work(of_machine: Sequence[Debt]) -> list[Undone]:
        done: list[Undone] = []
        ranks = [rank(debt.owed.wrote[0]) for debt in of_machine if isinstance(debt.stands, Ours)]
        lowest = min(ranks, default=0)
        for debt in of_machine:
            result: ActionResult | None = None
            if not (stop() or halt.is_set()):
                result = _undo(where.port, debt, set_anew=lowest < rank(debt.owed.wrote[0]))
            if isinstance(result, Done):
                try:
                    ledger.undone(debt.owed, operator=operator, at=where.around.clock.now())
                except JournalError as error:
                    broken.append(error)
                    halt.set()
            done.append(Undone(debt=debt, result=result))
        return done

    results = in_parallel({node: partial(work, some) for node, some in by_node.items()}, timeout=NO_LIMIT)
    return [one for node in by_node for one in results[node]], next(iter(broken), None)


def _undo(port: TuningPort, debt: Debt, *, set_anew: bool) -> ActionResult | None:
    """Undo one subject; None where that is not ours to do.

    Where something was undone before that may have `set_anew` a value that stood right, it is set once more.
    """
    match debt.stands:
        case Ours(change=change):
            pass
        case Back(why=why) as back:
            kept = again(debt.owed.wrote[0], back) if set_anew else None
            if kept is None:
                return Done(output=why)
            change = kept
        case _:
            return None
    return port.perform(TuneHost(node=debt.node, tunable=debt.owed.tunable, changes=(change,)))


def _row(debt: Debt) -> Row:
    match debt.stands:
        case Ours(change=change):
            words = change_words(change)
        case Back(why=why):
            words = f"{debt.owed.subject}: {why}, nothing to undo"
        case _:
            words = _left(debt)
    return (debt.node, debt.owed.tunable, words)


def _left(debt: Debt) -> str:
    """Why something is left as it is."""
    match debt.stands:
        case Foreign(shows=shows):
            return f"{debt.owed.subject}: LEFT, it shows {one_line(shows)}, which is not what we wrote"
        case Unknown(reason=reason):
            return f"{debt.owed.subject}: NOT READ: {one_line(reason)}"
        case _:
            return f"{debt.owed.subject}: not begun"


def _tell(undone: Sequence[Undone], around: Surroundings) -> None:
    for one in undone:
        debt, result = one.debt, one.result
        line: dict[str, object] = {
            "node": debt.node,
            "tunable": debt.owed.tunable,
            "subject": debt.owed.subject,
        }
        if isinstance(result, Done):
            name, words = "tuning_reverted", "undone"
            change = debt.stands.change if isinstance(debt.stands, Ours) else None
            line["change"] = None if change is None else encode_change(change)
        elif result is not None:
            name, words = "tuning_missed", f"FAILED: {one_line(result.reason)}"
            line["why"] = result.reason
        else:
            name, words = "tuning_left", _left(debt).removeprefix(f"{debt.owed.subject}: ")
            line["why"] = words
        if around.output is Output.JSON:
            around.say_json({"event": name, **line})
        else:
            around.say(f"{visible(debt.node)}  {visible(debt.owed.subject)}: {words}")


def _end(undone: Sequence[Undone], around: Surroundings, *, interrupted: bool) -> ExitCode:
    done = [one for one in undone if isinstance(one.result, Done)]
    failed = [one for one in undone if one.result is not None and not isinstance(one.result, Done)]
    away = [one for one in undone if not one.debt.reached]
    left_out = [one for one in undone if one.result is None and isinstance(one.debt.stands, Ours | Back)]
    if interrupted and left_out:
        code = ExitCode.INTERRUPTED
    elif failed or away:
        code = ExitCode.FAILED
    else:
        code = ExitCode.DONE if len(done) == len(undone) else ExitCode.HELD
    still = len(undone) - len(done)
    if around.output is Output.TEXT:
        around.say(f"{len(done)} undone, {still} still owed" if still else "everything is as it was found")
    return around.end(code, undone=len(done), owed=still, failed=[_name(one) for one in failed])


def _name(one: Undone) -> str:
    return f"{one.debt.node} {one.debt.owed.subject}"


def _last_words() -> LastWords:
    return LastWords(
        error="orchestrate: left at once on a second signal; `orchestrate tune revert` goes on from there\n"
    )
