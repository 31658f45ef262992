"""`tune revert`: original values are restored where the host still shows what this program wrote."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.context import Context
from orchestrator.cli.interrupts import EARLY
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import ask
from orchestrator.cli.work.tune_show import show_rows
from orchestrator.engine.kinds.predicates import by_same_reason
from orchestrator.errors import ExitCode
from orchestrator.hosts.undoing import Back, Foreign, Kept, Ours
from orchestrator.model.action import Done
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.runs.tuning import Debt, Owed, TunedHosts, Undone, look, still_agreed, undo
from orchestrator.runtime.codec import encode_change
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.signals import LastWords, Signals
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, listed
from orchestrator.view.tuning import CHANGE_HEAD, Row, by_host, change_words


def revert(
    where: TunedHosts, ledger: Ledger, owed: Owed, context: Context, *, operator: str, yes: bool
) -> ExitCode:
    """Show what will be restored, ask, restore it.

    Args:
        where: the hosts.
        ledger: receives a record of each restored value.
        owed: unrestored changes by machine, in the order of restoring.
        context: the process.
        operator: for the ledger.
        yes: do not ask.

    Raises:
        LeaseError: a run is active on the cluster.
        JournalError: the state cannot be written. The message lists what was restored until then.
        typer.Abort: the answer is no.
    """
    where.check_free()
    debts = look(where, owed)
    ours = [debt for debt in debts if isinstance(debt.stands, Ours)]
    if context.output.for_people:
        rows: dict[NodeName, list[Row]] = {}
        for debt in debts:
            rows.setdefault(debt.node, []).append(_row(debt))
        show_rows(CHANGE_HEAD, by_host(rows), context)
    if ours and not yes:
        ask(f"Restore {counted(len(ours), 'original value')} on hosts of {where.cluster}?", context)
        where.check_free()
        debts = still_agreed(debts, look(where, owed))
    EARLY.overtaken()
    with Signals(context.clock.wake, lambda: _last_words(where)) as signals:
        undone, broken = undo(where, ledger, debts, operator=operator, stop=signals.interrupted)
        interrupted = signals.interrupted()
    _tell(undone, context)
    if broken is not None:
        raise broken
    return _end(undone, context, interrupted=interrupted)


def _row(debt: Debt) -> Row:
    match debt.stands:
        case Ours(change=change):
            words = change_words(change)
        case Back(why=why):
            words = f"{debt.owed.subject}: {why}, nothing to restore"
        case _:
            words = _left(debt)
    return (debt.owed.tunable, words)


def _left(debt: Debt) -> str:
    """Why a value is not restored."""
    match debt.stands:
        case Foreign(shows=shows):
            shown = one_line(shows)
            why = "which the record in this state does not have: another cluster or program wrote it"
            return f"{debt.owed.subject}: NOT RESTORED: it shows {shown}, {why}"
        case Kept(why=why):
            return f"{debt.owed.subject}: NOT RESTORED: {why}"
        case Unknown(reason=reason):
            return f"{debt.owed.subject}: NOT READ: {one_line(reason)}"
        case _:
            return f"{debt.owed.subject}: not begun"


def _tell(undone: Sequence[Undone], context: Context) -> None:
    results: dict[str, dict[NodeName, str]] = {}
    for one in undone:
        debt, result = one.debt, one.result
        line: dict[str, object] = {
            "node": debt.node,
            "tunable": debt.owed.tunable,
            "subject": debt.owed.subject,
        }
        if isinstance(result, Done):
            name, words = "tuning_reverted", "restored"
            change = debt.stands.change if isinstance(debt.stands, Ours) else None
            line["change"] = None if change is None else encode_change(change)
        elif result is not None:
            name, words = "tuning_missed", f"FAILED: {one_line(result.reason)}"
            line["why"] = result.reason
        else:
            name, words = "tuning_left", _left(debt).removeprefix(f"{debt.owed.subject}: ")
            line["why"] = words
        if context.output is Output.JSON:
            context.say_json({"event": name, **line})
        else:
            results.setdefault(debt.owed.subject, {})[debt.node] = words
    for subject, reasons in results.items():
        for words, nodes in by_same_reason(reasons.items()).items():
            context.say(f"{listed(nodes)}  {subject}: {words}")


def _end(undone: Sequence[Undone], context: Context, *, interrupted: bool) -> ExitCode:
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
    if context.output.for_people:
        context.say(
            f"{len(done)} restored, {still} not restored" if still else "all original values are restored"
        )
    return context.end(code, undone=len(done), owed=still, failed=[_name(one) for one in failed])


def _name(one: Undone) -> str:
    return f"{one.debt.node} {one.debt.owed.subject}"


def _last_words(where: TunedHosts) -> LastWords:
    return LastWords(
        error=f"orchestrate: left at once on a second signal; `{where.command('tune revert')}` continues\n"
    )
