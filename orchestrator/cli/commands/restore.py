"""`orchestrate restore`: restore what a run changed, and start the nodes that it left down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from orchestrator.cli import options as opt

if TYPE_CHECKING:
    from orchestrator.runs.connection import Connection
    from orchestrator.runs.recorded import PastRun
    from orchestrator.runtime.store import RunEntry, StateStore

InServiceNodes = Annotated[
    list[str] | None,
    opt.by_node("--in-service", "With --cluster: an operator has put this node into service (repeatable)."),
]


def restore(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    playbook: opt.Playbook = None,
    in_service: InServiceNodes = None,
    accept_recorded_commands: opt.AcceptRecorded = False,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restore settings, and start nodes that a run left down.

    Stops no node. Without RUN and --cluster, it shows the run that it found, and asks. With --cluster it
    needs no state: it then uses the record that the run left in the cluster. If hooks of that run took nodes
    out of service, name its playbook (--playbook).
    """
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import agrees_to_recorded, ask, confirm_run, has_terminal
    from orchestrator.runs.find_run import RunPassed
    from orchestrator.runs.takeover import InService
    from orchestrator.runs.unfinished import restore_meant

    context = context_of(output)
    file = context.cluster(cluster) if cluster else None

    agrees = agrees_to_recorded(context, accepted=accept_recorded_commands, yes=yes)

    def reach(past: PastRun | None) -> Connection:
        to = file or context.cluster(past.cluster_file if past else "")
        return context.connect(to, state, agrees)

    def confirm(entry: RunEntry, store: StateStore) -> None:
        confirm_run("restore", entry, store, context, yes=yes)

    def ended(run: str | None) -> int:
        return context.ended(
            restore_meant(
                lambda access: context.open_state(state, access),
                reach,
                run=run,
                cluster=file.spec.name if file else None,
                serving=InService(playbook=playbook, by_hand=in_service or ()),
                confirm=confirm,
            )
        )

    try:
        return ended(run)
    except RunPassed as passed:
        if yes or not has_terminal(context):
            raise
        context.note(*passed.lines)
        ask(f"Restore run {passed.entry.run}?", context)
        return ended(passed.entry.run)
