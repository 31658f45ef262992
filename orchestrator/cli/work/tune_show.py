"""Output of the `tune` commands, and the exit code of their findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.view import tuning as view
from orchestrator.view.live import live_console, wants_live
from orchestrator.view.text import table
from orchestrator.view.tuning import Found, Row

_NAMES: Final = {
    "overridden": "set to another value at the next boot by another node of the host",
    "restart_needed": "right after the next restart of the service",
}


def show_states(found: Found, context: Context) -> None:
    """Print the state of the hosts: a table, or a JSON line per host and tunable."""
    if context.output is Output.JSON:
        for line in view.state_objects(found):
            context.say_json(line)
    else:
        show_rows(view.STATE_HEAD, view.state_rows(found), context)


def show_rows(head: Row, rows: Sequence[Row], context: Context) -> None:
    """Print a table: drawn in a terminal, plain and aligned elsewhere."""
    if context.output is Output.TEXT and wants_live(context.out, context.environment):
        live_console(context.out, context.environment).print(view.grid(head, rows))
    else:
        context.say(*table(head, rows))


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
