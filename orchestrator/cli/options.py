"""Options that several commands share. Each is declared once, so that it is the same everywhere."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

import typer

from orchestrator.cli import completion
from orchestrator.errors import UsageError
from orchestrator.next_command import passwords_in
from orchestrator.runtime.state_file import VARIABLE

if TYPE_CHECKING:
    from orchestrator.config.merging import MergeFlags
    from orchestrator.config.policy import Overrides


class Output(Enum):
    """Output format of a command. Plain text never moves the cursor and has no colours and no drawn lines."""

    TEXT = "text"
    PLAIN = "plain"
    JSON = "json"

    @property
    def for_people(self) -> bool:
        """Whether it is text, and not JSON for programs."""
        return self is not Output.JSON


class Tabular(Enum):
    """Output format of a command whose result is a table, too."""

    TEXT = "text"
    PLAIN = "plain"
    JSON = "json"
    CSV = "csv"

    @property
    def of_messages(self) -> Output:
        """The format of what the command prints beside the table."""
        return Output.TEXT if self is Tabular.CSV else Output(self.value)


def by_name(flag: str, help_: str, offered: Callable[[str], list[str]]) -> Any:
    """A flag for the name or path of a file. Completion offers the names."""
    return typer.Option(flag, help=help_, metavar="NAME_OR_PATH", autocompletion=offered)


def by_node(flag: str, help_: str) -> Any:
    """A flag for nodes. Completion offers the nodes of the last run."""
    return typer.Option(
        flag, help=help_, metavar="NODE,…", autocompletion=completion.nodes, callback=separated
    )


def separated(option: typer.CallbackParam, values: list[str] | None) -> list[str] | None:
    """The names in the values of an option, of which each may be a list with commas.

    A comma between brackets belongs to a glob.
    """
    return _parts(r",(?![^\[]*\])", option, values)


def separated_predicates(option: typer.CallbackParam, values: list[str] | None) -> list[str] | None:
    """Predicates with their subjects. A comma that no name of a predicate follows is part of a subject."""
    return _parts(r",(?=\s*[a-z]+(?:_[a-z]+)+(?:[=,]|$))", option, values)


def _parts(comma: str, option: typer.CallbackParam, values: list[str] | None) -> list[str] | None:
    """The parts of the values.

    Raises:
        UsageError: one is empty, as of a variable that is not set: nothing is not everything.
    """
    if values is None:
        return None
    parts = {value: [part.strip() for part in re.split(comma, value)] for value in values}
    if (wrong := next((value for value, found in parts.items() if "" in found), None)) is not None:
        raise UsageError(f"{option.opts[0]} {shlex.quote(wrong)}: a name is empty; name each, as in a,b")
    return [part for value in values for part in parts[value]]


def without_a_password(context: typer.Context, url: str | None) -> str | None:
    """The URL of a state. One with a password is refused as an argument: every account can list those."""
    source = context.get_parameter_source("state")
    if source is not None and source.name == "COMMANDLINE" and passwords_in(url or ""):
        raise UsageError(
            "--state: a password in an argument can be read by every account of this machine; put the whole "
            f"URL into {VARIABLE}, or the password into ~/.pgpass"
        )
    return url


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
        envvar=VARIABLE,
        help="Database of journals (SQLAlchemy URL, without a password). "
        "Default: /var/lib/orchestrate/state.db if writable, else ~/.local/state/orchestrate/state.db.",
        metavar="URL",
        callback=without_a_password,
    ),
]
OutputMode = Annotated[
    Output,
    typer.Option(
        "--output",
        help="Text, plain text for logs and screen readers (no colours, no redrawing), or JSON lines.",
    ),
]
TabularMode = Annotated[
    Tabular,
    typer.Option("--output", help="Text, plain text, JSON lines, or CSV with a row for each node."),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", help="Write the page to this file, for its owner alone.", metavar="FILE"),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Required without a terminal.")]
YesToOne = Annotated[bool, typer.Option("--yes", help="Do not ask, if there is exactly one such run.")]
AcceptRecorded = Annotated[
    bool,
    typer.Option(
        "--accept-recorded-commands",
        help="Run the recorded commands even if they differ from the playbook; for a state that others can "
        "write.",
    ),
]
Playbook = Annotated[str | None, by_name("--playbook", "Name or path of a playbook.", completion.playbooks)]
Only = Annotated[list[str] | None, by_node("--only", "Only these nodes, by name or glob (repeatable).")]
Exclude = Annotated[list[str] | None, by_node("--exclude", "Not these nodes, by name or glob (repeatable).")]
Zone = Annotated[
    str | None,
    typer.Option(
        "--zone",
        help="Only nodes of this zone; of hosts without a cluster, only those of this group.",
        metavar="ZONE",
    ),
]
DisablePredicate = Annotated[
    list[str] | None,
    typer.Option(
        "--disable-predicate",
        help="Disable a predicate, for all subjects or one; recorded in the journal (repeatable).",
        metavar="NAME[=SUBJECT],…",
        callback=separated_predicates,
        autocompletion=completion.predicates,
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", help="Stand down after this time, such as 6h. `resume` continues.", metavar="DURATION"
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", help="Reason for the run; recorded in the journal, shown by `history`.", metavar="TEXT"
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan (as `plan` does) and change nothing.")
]
Steps = Annotated[
    bool,
    typer.Option(
        "--steps",
        help="Show the plan in full: every wave, setting and hold, and each step with its exact call.",
    ),
]
_TO: Final = "the version that every selected node runs afterwards, such as 9.1.0."
To = Annotated[str, typer.Option("--to", help=_TO.capitalize(), metavar="VERSION")]
OptionalTo = Annotated[
    str | None, typer.Option("--to", help=f"Of an upgrade: {_TO} Default: a restart.", metavar="VERSION")
]
Index = Annotated[
    list[str],
    typer.Option(
        "--index",
        help="Loaded indices: names, globs, aliases or data streams (repeatable).",
        metavar="PATTERN,…",
    ),
]
MaxSegments = Annotated[
    int | None,
    typer.Option(
        "--max-segments",
        help="Maximum segments per copy. Default: that of the playbook, or 5.",
        metavar="N",
    ),
]
AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="Also merge indices that are being written to.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options that select nodes whose hosts are tuned."""

    only: Only = None
    exclude: Exclude = None
    zone: Zone = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The options of each command that begins a run."""

    reason: Reason = None
    yes: Yes = False
    output: OutputMode = Output.TEXT
    state: State = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """The options that select nodes and change the policy of a run."""

    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="How nodes are grouped into waves: `node`, `zone` (awareness zone), or `shard-safe` "
            "(sets of nodes that no shard, and in Riak no key, needs together). "
            "Default: that of the playbook, or `node`.",
            metavar="STRATEGY",
        ),
    ] = None
    max_unavailable: Annotated[
        str | None,
        typer.Option(
            "--max-unavailable",
            help="Maximum number of nodes that are down at once. "
            "Default: that of the playbook, or 1 (with `zone`: the whole zone; with `shard-safe`: as many as "
            "the largest zone has, without zones a third).",
            metavar="N|N%",
        ),
    ] = None
    only: Only = None
    exclude: Exclude = None
    zone: Annotated[
        str | None, typer.Option("--zone", help="Only nodes of this awareness zone.", metavar="ZONE")
    ] = None
    started_before: Annotated[
        str | None,
        typer.Option(
            "--started-before",
            help="Only nodes whose process started before this time: 2026-11-01T00:00Z, or 30d ago.",
            metavar="TIME_OR_AGE",
        ),
    ] = None
    due: Annotated[
        list[str] | None,
        typer.Option(
            "--due",
            help="Only nodes that run an older version, whose host needs a reboot (with `--reboot`), or with "
            "configuration files changed since their start (repeatable: any of them).",
            metavar="version:V|reboot-required|config,…",
            callback=separated,
        ),
    ] = None
    tune: Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune",
            help="Tune hosts while nodes are down, with the playbook's profile or the default one. "
            "Default: if the playbook names a profile.",
        ),
    ] = None
    reboot: Annotated[
        bool, typer.Option("--reboot", help="Reboot each node's machine instead of starting the service.")
    ] = False
    pause_after: Annotated[
        int | None,
        typer.Option(
            "--pause-after", help="Pause after this many nodes (a canary). `resume` continues.", metavar="N"
        ),
    ] = None
    begin_anyway: Annotated[
        bool,
        typer.Option(
            "--begin-anyway",
            help="Skip nodes that the plan holds, restart the others, and exit 3 with the list. "
            "Not for an upgrade.",
        ),
    ] = False
    disable_predicate: DisablePredicate = None
    timeout: Timeout = None

    def overrides(
        self, *, reason: str | None = None, merge: MergeFlags | None = None, to: str | None = None
    ) -> Overrides:
        """The same for the policy. An option that is not given has the default of the policy."""
        from orchestrator.config.policy import Overrides  # noqa: PLC0415  (loads slowly)

        given = {each.name: getattr(self, each.name) for each in fields(self)}
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        return Overrides(**known, reason=reason, merge=merge, to=to)


_Command = TypeVar("_Command", bound=Callable[..., int])


def takes_groups(command: _Command) -> _Command:
    """Give a command the options of its parameters that are groups: dataclasses with an option per field.

    typer reads the options from a function's signature. So the signature lists the fields of a group in
    place of the group, and the command receives the group.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
    }
    options = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    def with_options(**given: Any) -> int:
        filled = {
            name: group(**{option: given.pop(option) for option in options[name]})
            for name, group in groups.items()
        }
        return command(**given, **filled)

    parameters: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        parameters += options[name].values() if name in groups else (each,)
    with_options.__doc__ = command.__doc__
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # for typer
    return cast("_Command", with_options)
