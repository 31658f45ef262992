"""Flags that several commands share, each declared once, so that they are the same everywhere."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from orchestrator.cli import completion

if TYPE_CHECKING:
    from orchestrator.config.policy import Overrides

    Selection = Overrides
else:
    Selection = object
    """The values of the flags, a command's `overrides`. typer never sees it, and its module loads slowly."""


class Output(Enum):
    """Output format of a command."""

    TEXT = "text"
    JSON = "json"


def by_name(flag: str, help_: str, offered: Callable[[str], list[str]]) -> Any:
    """A flag for the name or path of a file. Completion offers the names."""
    return typer.Option(flag, help=help_, metavar="NAME_OR_PATH", autocompletion=offered)


def by_node(flag: str, help_: str) -> Any:
    """A flag for a node. Completion offers the nodes of the last run."""
    return typer.Option(flag, help=help_, metavar="NODE", autocompletion=completion.nodes)


Cluster = Annotated[str, by_name("--cluster", "The cluster: name or path of its file.", completion.clusters)]
AnyCluster = Annotated[str | None, by_name("--cluster", "Only runs of this cluster.", completion.clusters)]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Id of the run, its beginning or its last part. Default: the unfinished run.",
        autocompletion=completion.runs,
    ),
]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        envvar="ORCHESTRATE_STATE",
        help="Database of journals (SQLAlchemy URL). "
        "Default: /var/lib/orchestrate/state.db if writable, else ~/.local/state/orchestrate/state.db.",
        metavar="URL",
    ),
]
OutputMode = Annotated[Output, typer.Option("--output", help="Text, or one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation; required without a terminal.")]
YesToOne = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation if only one run matches.")]
Playbook = Annotated[str | None, by_name("--playbook", "Name or path of a playbook.", completion.playbooks)]
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="How nodes are grouped into waves: `node` or `zone` (awareness zone). "
        "Default: that of the playbook, or `node`.",
        metavar="STRATEGY",
    ),
]
MaxUnavailable = Annotated[
    str | None,
    typer.Option(
        "--max-unavailable",
        help="Maximum number of nodes that are down at once. "
        "Default: that of the playbook, or 1 (with `zone`: the whole zone).",
        metavar="N|N%",
    ),
]
Only = Annotated[list[str] | None, by_node("--only", "Only these nodes (glob; repeatable).")]
Exclude = Annotated[list[str] | None, by_node("--exclude", "Not these nodes (glob; repeatable).")]
Zone = Annotated[
    str | None, typer.Option("--zone", help="Only nodes of this awareness zone.", metavar="ZONE")
]
StartedBefore = Annotated[
    str | None,
    typer.Option(
        "--started-before",
        help="Only nodes whose process started before this time: 2026-11-01T00:00Z, or 30d ago.",
        metavar="TIME_OR_AGE",
    ),
]
Tune = Annotated[
    bool | None,
    typer.Option(
        "--tune/--no-tune",
        help="Tune hosts while nodes are down, with the playbook's profile or the default one. "
        "Default: if the playbook names a profile.",
    ),
]
Reboot = Annotated[
    bool, typer.Option("--reboot", help="Reboot each node's machine instead of starting the service.")
]
PauseAfter = Annotated[
    int | None,
    typer.Option(
        "--pause-after", help="Pause after this many nodes (a canary). `resume` continues.", metavar="N"
    ),
]
BeginAnyway = Annotated[
    bool,
    typer.Option(
        "--begin-anyway",
        help="Skip nodes that the plan holds, restart the others, and exit 3 with the list.",
    ),
]
DisablePredicate = Annotated[
    list[str] | None,
    typer.Option(
        "--disable-predicate",
        help="Disable a predicate, for all subjects or one; recorded in the journal (repeatable).",
        metavar="NAME[=SUBJECT]",
        autocompletion=completion.predicates,
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", help="Reason for the run; recorded in the journal, shown by `history`.", metavar="TEXT"
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", help="Stand down after this time, such as 6h. `resume` continues.", metavar="DURATION"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Values of `--only` and `--exclude`, as globs."""

    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def nodes(only: list[str] | None, exclude: list[str] | None) -> Nodes:
    """Build it from typer's values: None for a flag that was not given."""
    return Nodes(only=tuple(only or ()), exclude=tuple(exclude or ()))


_Command = TypeVar("_Command", bound=Callable[..., int])


def takes_selection(command: _Command) -> _Command:
    """Give a command the flags that select nodes and set policy. It receives them as one `overrides`.

    typer reads the flags from a function's signature. So the signature lists all of them in place of
    `overrides`.
    """
    flags = inspect.signature(_selection, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def with_flags(**given: Any) -> int:
        overrides = _selection(**{name: given.pop(name) for name in flags})
        return command(**given, overrides=overrides)

    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += flags.values() if parameter.name == "overrides" else [parameter]
    ordered = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    with_flags.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]  # for typer
    with_flags.__annotations__ = {each.name: each.annotation for each in ordered}
    return cast("_Command", with_flags)


def _selection(
    *,
    strategy: Strategy = None,
    max_unavailable: MaxUnavailable = None,
    only: Only = None,
    exclude: Exclude = None,
    zone: Zone = None,
    started_before: StartedBefore = None,
    tune: Tune = None,
    reboot: Reboot = False,
    pause_after: PauseAfter = None,
    begin_anyway: BeginAnyway = False,
    disable_predicate: DisablePredicate = None,
    reason: Reason = None,
    timeout: Timeout = None,
) -> Selection:
    from orchestrator.config.policy import Overrides  # noqa: PLC0415  (loads slowly)

    return Overrides(
        strategy=strategy,
        max_unavailable=max_unavailable,
        only=tuple(only or ()),
        exclude=tuple(exclude or ()),
        zone=zone,
        started_before=started_before,
        tune=tune,
        reboot=reboot,
        pause_after=pause_after,
        begin_anyway=begin_anyway,
        disable_predicate=tuple(disable_predicate or ()),
        reason=reason,
        timeout=timeout,
    )
