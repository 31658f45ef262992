"""`orchestrate tune`: how hosts stand to a tuning profile, without a restart: checked, applied, undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from enum import Enum
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.commands.tune_apply import apply as apply_changes
from orchestrator.cli.commands.tune_revert import revert as revert_changes
from orchestrator.cli.commands.tune_show import end, sentence, show_states, verdict_on
from orchestrator.cli.context import Context, context_of
from orchestrator.cli.prompts import require_terminal
from orchestrator.config.cluster import ClusterFile
from orchestrator.errors import ExitCode
from orchestrator.hosts.reviewed_script import script_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.tuned_hosts import TunedHosts, hosts_to_tune
from orchestrator.runtime.database import Access
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.store import StateMissing
from orchestrator.view.tuning import Found

_LOOK = "orchestrate tune check"


class CheckOutput(Enum):
    """How `tune check` speaks."""

    TEXT = "text"
    JSON = "json"
    SCRIPT = "script"


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Name or path of a tuning profile; else the playbook's `tune`, else that of the cluster's kind.",
        metavar="NAME_OR_PATH",
    ),
]
CheckOutputMode = Annotated[
    CheckOutput,
    typer.Option(
        "--output", help="A table, one JSON object a line, or a shell script that would make the changes."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Check, apply and undo the tuning of hosts, without a restart.")
    group.callback(invoke_without_command=True)(_bare)
    group.command("check")(check)
    group.command("apply")(apply)
    group.command("revert")(revert)
    app.add_typer(group, name="tune")


def _bare(context: typer.Context) -> None:
    """Show the help, as the bare program does, where no command of the group is named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def check(
    cluster: opt.Cluster,
    profile: Profile = None,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    output: CheckOutputMode = CheckOutput.TEXT,
) -> int:
    """Show how the hosts stand to a tuning profile. Changes nothing. Exits 3 on drift, 4 without a host."""
    context = context_of(opt.Output.JSON if output is CheckOutput.JSON else opt.Output.TEXT)
    ports = context.ports(context.cluster(cluster))
    wanted = ports.tuning_profile(profile)
    with _hosts(ports, context, None, only, exclude) as where:
        found = where.read(wanted)
    if output is CheckOutput.SCRIPT:
        _write_script(found, context)
        return int(verdict_on(found))
    show_states(found, context)
    if context.output is opt.Output.TEXT:
        context.say(sentence(found))
    return int(end(verdict_on(found), found, context, profile=wanted.name))


def apply(
    cluster: opt.Cluster,
    profile: Profile = None,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Make the hosts as a tuning profile wants them, now and from the next boot on. `revert` undoes it."""
    context = context_of(output)
    ports = context.ports(context.cluster(cluster))
    wanted = ports.tuning_profile(profile)
    if not yes:
        require_terminal(context, _LOOK)
    with ExitStack() as stack:
        where = stack.enter_context(_hosts(ports, context, state, only, exclude))

        def ledger() -> Ledger:
            return stack.enter_context(context.state(state, Access.WRITE)).ledger(where.cluster)

        return int(apply_changes(where, wanted, ledger, context, operator=context.operator, yes=yes))


def revert(
    cluster: opt.Cluster,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Put back what `tune apply` and restarts changed on hosts. Exits 3 if a host shows something else."""
    context = context_of(output)
    file = context.cluster(cluster)
    with _owing(file, context, state) as ledger:
        if ledger is None or not ledger.owed():
            return _nothing_owed(file.spec.name, context)
        if not yes:
            require_terminal(context, _LOOK)
        known, ports = ledger.addresses(), context.ports(file)
        with _hosts(ports, context, state, only, exclude, known=known) as where:
            meant = {*where.nodes, *where.unplaced}
            owed = {
                machine: some
                for machine, some in ledger.owed(where.machine).items()
                if any(node in meant for one in some for node in one.nodes)
            }
            if not owed:
                return _nothing_owed(file.spec.name, context)
            return int(revert_changes(where, ledger, owed, context, operator=context.operator, yes=yes))


@contextmanager
def _hosts(
    ports: FilePorts,
    context: Context,
    state: str | None,
    only: list[str] | None,
    exclude: list[str] | None,
    *,
    known: Mapping[NodeName, str] | None = None,
) -> Iterator[TunedHosts]:
    """The hosts that the flags select."""
    with context.connect_over(ports, state) as connection:
        yield hosts_to_tune(
            connection, ports, only=tuple(only or ()), exclude=tuple(exclude or ()), known=known
        )


def _write_script(found: Found, context: Context) -> None:
    """The script alone on standard output, as it is: what is not in it is told beside it."""
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            context.warn(f"{node} is not in the script: {tuning.reason}")
        for state in () if isinstance(tuning, Unknown) else tuning.unread:
            context.warn(f"{node}, {state.tunable} is not in the script: {state.detail or 'unknown'}")
    context.out.write(script_of({node: it for node, it in found.items() if not isinstance(it, Unknown)}))


@contextmanager
def _owing(file: ClusterFile, context: Context, state: str | None) -> Iterator[Ledger | None]:
    """The ledger; None where nothing was ever written."""
    try:
        store = context.open_state(state, Access.GO_ON)
    except StateMissing:
        yield None
        return
    with closing(store):
        yield store.ledger(file.spec.name)


def _nothing_owed(cluster: str, context: Context) -> int:
    context.note(f"{cluster}: nothing is owed: no host was tuned from here, or all of it is undone")
    return int(context.end(ExitCode.DONE, undone=0, owed=0, failed=[]))
