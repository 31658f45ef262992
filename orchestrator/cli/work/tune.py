"""The `tune` commands: read, change and restore hosts, without a restart.

Machines are changed in parallel, and each change is in the ledger before it is sent. An original value is
restored where the host still shows what this program wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.interrupts import EARLY
from orchestrator.cli.options import NodeOptions, Output
from orchestrator.cli.prompts import ask, require_terminal
from orchestrator.engine.predicates import by_same_reason
from orchestrator.errors import ExitCode
from orchestrator.model.action import Done
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import encode_event, fields_of
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, TuningProfile
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.tuning import (
    Debt,
    Made,
    Making,
    Owed,
    TunedHosts,
    Undone,
    agreed,
    hosts_to_tune,
    look,
    make,
    selected,
    still_agreed,
    undo,
)
from orchestrator.runtime.database import WITHOUT_IT, DatabaseUse
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.signals import FinalTexts, Signals
from orchestrator.runtime.store import StateMissing
from orchestrator.tuning.boot import script_text
from orchestrator.tuning.undoing import Back, Foreign, Kept, Ours
from orchestrator.untrusted import one_line
from orchestrator.view.checks import Brief, check_lines
from orchestrator.view.text import counted, listed, table
from orchestrator.view.tuning import (
    CHANGE_HEAD,
    STATE_HEAD,
    Found,
    Row,
    by_host,
    by_reason_lines,
    change_rows,
    change_words,
    state_checks,
    state_objects,
    state_rows,
)

_ORIGINALS: Final = (
    "the original values are only in the state of the machine that tuned the hosts: name it by --state"
)
AT_THE_START: Final = ("transparent_hugepage", "khugepaged", "numad", "jvm", "limits", "erlang")
"""Name prefixes of tunables that do not affect a running process. It has already mapped its memory and has
its limits, and numad has moved its pages."""
_NAMES: Final = {
    "overridden": "set to another value at the next boot by another node of the host",
    "restart_needed": "right after the next restart of the service",
}


def check_hosts(
    cluster: str, profile: str | None, nodes: NodeOptions, *, output: Output, script: bool, state: str | None
) -> int:
    """Compare hosts with a profile, or print the boot script. Returns the exit code."""
    context = context_of(output)
    ports = context.ports(context.hosts(cluster))
    wanted = ports.tuning_profile(profile)
    with _hosts(ports, context, state, nodes) as where:
        found = where.read(wanted)
    if script:
        _write_script(found, context)
        return int(verdict_on(found))
    show_states(found, context)
    if context.output.for_people:
        context.say(sentence(found))
    return int(end(verdict_on(found), found, context, profile=wanted.name))


def apply_profile(
    cluster: str, profile: str | None, nodes: NodeOptions, *, yes: bool, output: Output, state: str | None
) -> int:
    """Apply a profile to the hosts, after a question. Returns the exit code."""
    context = context_of(output)
    ports = context.ports(context.hosts(cluster))
    wanted = ports.tuning_profile(profile)
    if not yes:
        require_terminal(context, context.command("tune check", "--cluster", cluster, state=state))
    with ExitStack() as stack:
        where = stack.enter_context(_hosts(ports, context, state, nodes))

        def ledger() -> Ledger:
            return stack.enter_context(context.state(state, DatabaseUse.WRITE)).ledger(where.cluster)

        return int(apply(where, wanted, ledger, context, operator=context.operator, yes=yes))


def revert_hosts(cluster: str, nodes: NodeOptions, *, yes: bool, output: Output, state: str | None) -> int:
    """Restore the original values on these hosts, once that was agreed to; the exit code."""
    context = context_of(output)
    file = context.hosts(cluster)
    with ExitStack() as stack:
        try:
            store = stack.enter_context(context.state(state, DatabaseUse.CONTINUE))
        except StateMissing as error:
            raise StateMissing(f"{str(error).removesuffix(WITHOUT_IT)}{_ORIGINALS}") from error
        ledger = store.ledger(file.spec.name)
        if not ledger.owed():
            return _nothing_owed(file.spec.name, context)
        if not yes:
            require_terminal(context, context.command("tune check", "--cluster", cluster, state=state))
        known, ports = ledger.addresses(), context.ports(file)
        with _hosts(ports, context, state, nodes, known=known) as where:
            meant = {*where.nodes, *where.unplaced}
            owed = selected(ledger.owed(where.machine), meant)
            if not owed:
                return _nothing_owed(file.spec.name, context)
            return int(revert(where, ledger, owed, context, operator=context.operator, yes=yes))


@contextmanager
def _hosts(
    ports: FilePorts,
    context: Context,
    state: str | None,
    nodes: NodeOptions,
    *,
    known: Mapping[NodeName, str] | None = None,
) -> Iterator[TunedHosts]:
    """The hosts that the flags select."""
    with context.connect(ports, state) as connection:
        yield hosts_to_tune(
            connection,
            ports,
            only=tuple(nodes.only or ()),
            exclude=tuple(nodes.exclude or ()),
            zone=nodes.zone,
            known=known,
        )


def _write_script(found: Found, context: Context) -> None:
    """Print the boot script, as it is installed, on standard output, and the nodes' parts as notes."""
    unknown = [(node, one.reason) for node, one in sorted(found.items()) if isinstance(one, Unknown)]
    for line in by_reason_lines((node, f"the part of the script is unknown: {why}") for node, why in unknown):
        context.warn(line)
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            continue
        for path, text in tuning.part.items():
            context.note(f"{node}: {path}", *text.splitlines())
        for state in tuning.unread:
            context.warn(f"{node}: {state.tunable} could not be read: {state.detail or 'unknown'}")
    context.out.write(script_text(""))


def _nothing_owed(cluster: str, context: Context) -> int:
    context.note(
        f"{cluster}: nothing to restore: no host was tuned from here, or all original values are restored"
    )
    return int(context.end(ExitCode.DONE, undone=0, owed=0, failed=[]))


def apply(
    where: TunedHosts,
    profile: TuningProfile,
    open_ledger: Callable[[], Ledger],
    context: Context,
    *,
    operator: str,
    yes: bool,
) -> ExitCode:
    """Show the changes, ask, make them, and read the hosts again.

    Args:
        where: the hosts.
        profile: the wanted settings.
        open_ledger: opens the state for writing. Nothing is written before the answer.
        context: the process.
        operator: for the ledger.
        yes: do not ask.

    Raises:
        LeaseError: a run is active on the cluster.
        JournalError: the state cannot be written. Either nothing was changed, or the message lists the
            changes.
        typer.Abort: the answer is no.
    """
    where.check_free()
    found = where.read(profile)
    rows = change_rows(found)
    if not rows:
        show_states(found, context)
        return _applied(found, (), context)
    if context.output.for_people:
        context.say(*table(CHANGE_HEAD, rows, width=context.columns))
        _say_unread(found, context)
    if not yes:
        hosts = sum(1 for tuning in found.values() if isinstance(tuning, HostTuning) and tuning.drifted)
        ask(
            f"Make these {counted(len(rows), 'change')} on {counted(hosts, 'host')} of {where.cluster}?",
            context,
        )
        where.check_free()
        found = agreed(found, where.read(profile))
    ledger = open_ledger()
    with _signals(f"a change may be half made. {_undo(where)}", context) as signals:
        making = make(where, profile, ledger, found, operator=operator, stop=signals.interrupted)
        interrupted = signals.interrupted()
    tell(making, context)
    if making.broken is not None:
        raise making.broken
    if interrupted and making.left_out:
        context.note(f"interrupted: {counted(making.left_out, 'tunable')} not begun; {_undo(where)}")
        return context.end(ExitCode.INTERRUPTED, changed=len(making.made), left_out=making.left_out)
    now = where.read(profile)
    show_states(now, context)
    _warn_of_processes(making.made, where, context)
    return _applied(now, making.made, context)


def tell(making: Making, context: Context) -> None:
    """Print what was done and what was not."""
    results: dict[str, dict[NodeName, str]] = {}
    for one in making.made:
        if context.output is Output.JSON:
            context.say_json(encode_event(one.event))
            continue
        why = "" if isinstance(one.result, Done) else one.result.reason.removeprefix(f"{one.state.tunable}: ")
        results.setdefault(one.state.tunable, {})[one.node] = why
    for tunable, reasons in results.items():
        for why, nodes in by_same_reason(reasons.items()).items():
            said = f"FAILED  {listed(nodes)}  {tunable}: {one_line(why)}"
            context.say(said if why else f"done    {listed(nodes)}  {tunable}")


def _applied(now: Found, made: Sequence[Made], context: Context) -> ExitCode:
    failed = [f"{one.node} {one.state.tunable}" for one in made if one.failed]
    code = ExitCode.FAILED if failed else verdict_on(now)
    if context.output.for_people:
        nodes: dict[str, list[NodeName]] = {}
        for one in made:
            if one.failed:
                nodes.setdefault(one.state.tunable, []).append(one.node)
        said = [f"{tunable} ({listed(names)})" for tunable, names in nodes.items()]
        context.say(f"failed: {', '.join(said)}" if failed else sentence(now))
    done = sum(1 for one in made if not one.failed)
    return end(code, now, context, changed=done, failed=failed)


def _say_unread(found: Found, context: Context) -> None:
    reasons: list[tuple[NodeName, str]] = []
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            reasons.append((node, tuning.reason))
        else:
            reasons += [(node, f"{state.tunable}: {state.detail}") for state in tuning.unread]
    for line in by_reason_lines(reasons):
        context.warn(line)


def _warn_of_processes(made: Sequence[Made], where: TunedHosts, context: Context) -> None:
    late = [one for one in made if not one.failed and one.state.tunable.startswith(AT_THE_START)]
    if late:
        names = ", ".join(dict.fromkeys(one.state.tunable for one in late))
        context.warn(f"{names}: applies to processes that start from now on; {where.running}")


def _undo(where: TunedHosts) -> str:
    return f"`{where.command('tune revert')}` restores the original values"


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
    ours = [debt for debt in debts if isinstance(debt.standing, Ours)]
    if context.output.for_people:
        rows: dict[NodeName, list[Row]] = {}
        for debt in debts:
            rows.setdefault(debt.node, []).append(_row(debt))
        context.say(*table(CHANGE_HEAD, by_host(rows), width=context.columns))
    if ours and not yes:
        ask(f"Restore {counted(len(ours), 'original value')} on hosts of {where.cluster}?", context)
        where.check_free()
        debts = still_agreed(debts, look(where, owed))
    with _signals(f"`{where.command('tune revert')}` continues", context) as signals:
        undone, broken = undo(where, ledger, debts, operator=operator, stop=signals.interrupted)
        interrupted = signals.interrupted()
    _tell_undone(undone, context)
    if broken is not None:
        raise broken
    return _reverted(undone, context, interrupted=interrupted)


def _row(debt: Debt) -> Row:
    match debt.standing:
        case Ours(change=change):
            words = change_words(change)
        case Back(why=why):
            words = f"{debt.owed.subject}: {why}, nothing to restore"
        case _:
            words = f"{debt.owed.subject}: {_left(debt)}"
    return (debt.owed.tunable, words)


def _left(debt: Debt) -> str:
    """Why a value is not restored."""
    match debt.standing:
        case Foreign(shows=shows):
            shown = one_line(shows)
            why = "which the record in this state does not have: another cluster or program wrote it"
            return f"NOT RESTORED: it shows {shown}, {why}"
        case Kept(why=why):
            return f"NOT RESTORED: {why}"
        case Unknown(reason=reason):
            return f"NOT READ: {one_line(reason)}"
        case _:
            return "not begun"


def _tell_undone(undone: Sequence[Undone], context: Context) -> None:
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
            change = debt.standing.change if isinstance(debt.standing, Ours) else None
            line["change"] = None if change is None else fields_of(change)
        elif result is not None:
            name, words = "tuning_missed", f"FAILED: {one_line(result.reason)}"
            line["why"] = result.reason
        else:
            name, words = "tuning_left", _left(debt)
            line["why"] = words
        if context.output is Output.JSON:
            context.say_json({"event": name, **line})
        else:
            results.setdefault(debt.owed.subject, {})[debt.node] = words
    for subject, reasons in results.items():
        for words, nodes in by_same_reason(reasons.items()).items():
            context.say(f"{listed(nodes)}  {subject}: {words}")


def _reverted(undone: Sequence[Undone], context: Context, *, interrupted: bool) -> ExitCode:
    done = [one for one in undone if isinstance(one.result, Done)]
    failed = [one for one in undone if one.result is not None and not isinstance(one.result, Done)]
    away = [one for one in undone if not one.debt.reached]
    left_out = [one for one in undone if one.result is None and isinstance(one.debt.standing, Ours | Back)]
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


def _signals(then: str, context: Context) -> Signals:
    """The signals while hosts are changed. A second one leaves at once, with these last words."""
    EARLY.overtaken()
    words = FinalTexts(error=f"orchestrate: left at once on a second signal; {then}\n")
    return Signals(context.clock.wake, lambda: words)


def show_states(found: Found, context: Context) -> None:
    """Print the state of the hosts: in brief on a terminal, else a table, or a JSON line per tunable."""
    if context.output is Output.JSON:
        for line in state_objects(found):
            context.say_json(line)
    elif context.output is Output.TEXT and context.columns is not None:
        brief = Brief(good="as wanted", each="--output plain shows each")
        context.say(*check_lines(state_checks(found), brief=brief, width=context.columns))
    else:
        context.say(*table(STATE_HEAD, state_rows(found)))


def verdict_on(found: Found) -> ExitCode:
    """The exit code of a reading: an unreachable host ranks before drift, and unknown is never fine."""
    if any(isinstance(tuning, Unknown) for tuning in found.values()):
        return ExitCode.FAILED
    read = [tuning for tuning in found.values() if not isinstance(tuning, Unknown)]
    wrong = any(tuning.drifted or tuning.unread or tuning.overridden for tuning in read)
    return ExitCode.HELD if wrong else ExitCode.DONE


def by_verdict(found: Found) -> dict[str, list[NodeName]]:
    """Hosts with a problem, by verdict."""
    read = {node: tuning for node, tuning in found.items() if not isinstance(tuning, Unknown)}
    return {
        "drifted": sorted(node for node, tuning in read.items() if tuning.drifted),
        "unknown": sorted(node for node, tuning in read.items() if tuning.unread),
        "overridden": sorted(node for node, tuning in read.items() if tuning.overridden),
        "restart_needed": sorted(node for node, tuning in read.items() if tuning.restart_needed),
        "unreachable": sorted(set(found) - set(read)),
    }


def end(code: ExitCode, found: Found, context: Context, **more: object) -> ExitCode:
    """Print the JSON summary, if JSON is requested. Returns the exit code."""
    return context.end(code, run=None, hosts=len(found), **{**by_verdict(found), **more})


def sentence(found: Found) -> str:
    """The same as a sentence for people."""
    parts = [
        f"{_NAMES.get(name, name)}: {', '.join(nodes)}" for name, nodes in by_verdict(found).items() if nodes
    ]
    return "; ".join(parts) or "every host is as the profile wants it"
