"""The `tune` commands: read, change and restore hosts, without a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Nodes, Output
from orchestrator.cli.prompts import require_terminal
from orchestrator.cli.work.tune_apply import apply as apply_changes
from orchestrator.cli.work.tune_revert import revert as revert_changes
from orchestrator.cli.work.tune_show import end, sentence, show_states, verdict_on
from orchestrator.errors import ExitCode
from orchestrator.hosts.tuning.boot_files import script_text
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.tuning import TunedHosts, hosts_to_tune, selected
from orchestrator.runtime.database import WITHOUT_IT, Access
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.store import StateMissing
from orchestrator.view.tuning import Found, by_reason_lines

_ORIGINALS = (
    "the original values are only in the state of the machine that tuned the hosts: name it by --state"
)


def check_hosts(
    cluster: str, profile: str | None, nodes: Nodes, *, output: Output, script: bool, state: str | None
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
    cluster: str, profile: str | None, nodes: Nodes, *, yes: bool, output: Output, state: str | None
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
            return stack.enter_context(context.state(state, Access.WRITE)).ledger(where.cluster)

        return int(apply_changes(where, wanted, ledger, context, operator=context.operator, yes=yes))


def revert_hosts(cluster: str, nodes: Nodes, *, yes: bool, output: Output, state: str | None) -> int:
    """Restore the original values on these hosts, once that was agreed to; the exit code."""
    context = context_of(output)
    file = context.hosts(cluster)
    with ExitStack() as stack:
        try:
            store = stack.enter_context(context.state(state, Access.GO_ON))
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
            return int(revert_changes(where, ledger, owed, context, operator=context.operator, yes=yes))


@contextmanager
def _hosts(
    ports: FilePorts,
    context: Context,
    state: str | None,
    nodes: Nodes,
    *,
    known: Mapping[NodeName, str] | None = None,
) -> Iterator[TunedHosts]:
    """The hosts that the flags select."""
    with context.connect_over(ports, state) as connection:
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
