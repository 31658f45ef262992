"""The commands as one program. Every error ends here with one message and the right exit code."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from time import time
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from orchestrator.cli import other_commands, run_commands
from orchestrator.cli.group import Command, Group, summary
from orchestrator.cli.help_format import Formatter
from orchestrator.cli.interrupts import EARLY, InterruptedEarly
from orchestrator.cli.suggest import suggested
from orchestrator.errors import ExitCode, OrchestratorError
from orchestrator.next_command import next_command

PROGRAM: Final = "orchestrate"
COMPLETING: Final = "_ORCHESTRATE_COMPLETE"
"""The variable with which a shell asks for the words of a TAB."""
_WORDS: Final = {
    r"Value error, ": "",
    r"Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    r"Input should be greater than or equal to (\d+)": r"must be at least \1",
    r"Input should be less than or equal to (\d+)": r"must be at most \1",
    r"Got unexpected extra argument\(s\)": "Unexpected argument",
    r" \(Possible options: .*\)": "",
}
"""Messages of the flag validator, in the program's own words."""
_LOGIN: Final = re.compile(r"://[^/\s]*@")
"""User and password in a URL. A message that repeats an argument leaves them out."""
_LONG_WORD: Final = re.compile(r"(\S{300})\S{300,}")
"""A word that fills the screen: its beginning is enough to find it."""
_BROKEN_PIPE: Final = 141
"""What a shell reports of a program that SIGPIPE ended: 128 + 13."""
_BETWEEN_COLLECTIONS: Final = 500_000
"""New objects between two searches for cycles. A reading of a cluster makes more, and has no cycles."""
GROUPS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Before a restart": {
        "init": other_commands.init,
        "validate": other_commands.validate,
        "notify": other_commands.notify,
        "plan": run_commands.plan,
        "rehearse": other_commands.rehearse,
    },
    "Restart": {
        "restart": run_commands.restart,
        "upgrade": run_commands.upgrade,
        "apply": run_commands.apply,
        "post-bulk-index": run_commands.post_bulk_index,
        "force-merge": run_commands.force_merge,
    },
    "A run in progress, or one that ended early": {
        "status": run_commands.status,
        "pause": run_commands.pause,
        "stop": run_commands.stop,
        "resume": run_commands.resume,
        "restore": run_commands.restore,
    },
    "Past runs": {
        "history": run_commands.history,
        "report": run_commands.report,
        "serve": run_commands.serve,
    },
    "Hosts": {
        "tune": other_commands.tune,
        "diagnose": other_commands.diagnose,
    },
    "Words in a message or a file": {
        "explain": other_commands.explain,
    },
}
"""The commands and groups of commands by what they are for, in the order of the help."""
COMMANDS: Final[Mapping[str, Any]] = {name: one for group in GROUPS.values() for name, one in group.items()}


def _command(name: str, given: Any) -> Any:
    if isinstance(given, typer.Typer):
        return typer.main.get_command(given)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=Command)(given)
    return typer.main.get_command(single)


class _Commands(Mapping[str, Any]):
    """The commands by name, each made when it is used: a command line needs one of them.

    Made for each program: a command keeps the options for help of its first use.
    """

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, COMMANDS[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _summary(name: str) -> str:
    """What a command is, in one sentence, without making it."""
    given = COMMANDS[name]
    return summary(str(given.info.help if isinstance(given, typer.Typer) else given.__doc__))


class Program(Group):
    """The program as a group of commands; its help lists them by what they are for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": _Commands()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        del ctx
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each group of commands under its title."""
        del ctx
        widest = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), _summary(name)) for name in group])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write where to read on."""
        del ctx
        formatter.write_paragraph()
        formatter.write_text(f"All options of a command, and an example: `{PROGRAM} COMMAND --help`.")

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands and options that begin so."""
        from typer._click.shell_completion import CompletionItem  # noqa: PLC0415  (only at a TAB)

        names = (name for name in COMMANDS if name.startswith(incomplete))
        options = super(TyperGroup, self).shell_complete(ctx, incomplete)
        return [*(CompletionItem(name, help=_summary(name)) for name in names), *options]


app = typer.Typer(
    name="orchestrate",
    cls=Program,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    suggest_commands=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415  (takes as long as all that help needs)

        typer.echo(f"{PROGRAM} {version('orchestrator')}")
        raise typer.Exit


@app.callback()
def _program(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Restart Elasticsearch, OpenSearch and Riak clusters on your own machines, in safe waves."""
    del show_version  # the callback has answered


def _commands() -> str:
    """What is printed without a command: the commands by what they are for, on one screen."""
    formatter = Formatter()
    formatter.write_usage(PROGRAM, "COMMAND [OPTIONS]")
    formatter.write_paragraph()
    formatter.write_text(_program.__doc__ or "")
    formatter.write_paragraph()
    formatter.write_dl([(f"{title}:", ", ".join(group)) for title, group in GROUPS.items()])
    formatter.write_paragraph()
    formatter.write_text(
        f"What each does: `{PROGRAM} --help`. Its options, and an example: `{PROGRAM} COMMAND --help`."
    )
    return formatter.getvalue()


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    EARLY.begin()
    try:
        if not arguments and COMPLETING not in os.environ:
            typer.echo(_commands(), nl=False)
            return int(ExitCode.DONE)
        code = app(args=list(arguments), standalone_mode=False, prog_name=PROGRAM)
    except typer.Abort:
        return _refuse(arguments, ExitCode.INTERRUPTED, EARLY.declined)
    except typer.TyperException as error:
        return _refuse(arguments, ExitCode.USAGE, _usage(error, arguments))
    except (KeyboardInterrupt, InterruptedEarly):
        return _refuse(arguments, ExitCode.INTERRUPTED, EARLY.said)
    except OrchestratorError as error:
        return _refuse(arguments, error.exit_code, *error.lines)
    except BrokenPipeError:
        # The reader of the output has closed it (`| head -1`), so no message can be shown.
        _fall_silent()
        return _BROKEN_PIPE
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _fall_silent()  # typer makes 1 of a closed pipe, which is the code of a defect here
        return _BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  (the last resort: a defect is reported as one, with its trace)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and _output_is_full():
            _fall_silent()
            return _refuse(arguments, ExitCode.USAGE, f"standard output cannot be written: {error.strerror}")
        if COMPLETING in os.environ:
            return int(ExitCode.USAGE)  # a TAB whose words cannot be read: nothing is offered
        _print_trace()
        message = "a defect of the program; please report it with the lines above and the run's journal"
        named = "; ".join(getattr(error, "__notes__", ())) or f"`{next_command('status')}` names the run"
        return _refuse(arguments, ExitCode.DEFECT, *f"{message} ({named})".split("\n"))
    return int(code or ExitCode.DONE)


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """What is wrong with the command line, and where its correct form is explained; in one line."""
    said = " ".join(error.format_message().split()).rstrip(".")
    for theirs, ours in _WORDS.items():
        said = re.sub(theirs, ours, said)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else " ".join((PROGRAM, *_named(arguments)))
    after = arguments[len(command.split()) - 1 :]
    if context is not None:
        said += _suggestion(said, context)
    if said == "Missing option '--cluster'" and after and not after[0].startswith("-"):
        said = _cluster_hint(after[0])
    if said == "Missing option '--index'":
        return "--index: name the indices that were loaded, such as --index 'posts-*'"
    if said == "Missing option '--endpoint'" and any(not word.startswith("-") for word in after):
        said = "The endpoint is an option: --endpoint URL"  # not repeated: it may hold a password
    joined = f"{said} See" if said.endswith("?") else f"{said}; see"
    return f"{joined} `{command} --help`"


def _named(arguments: Sequence[str]) -> Sequence[str]:
    """The command in a command line that could not be read."""
    return [word for word in arguments[:1] if word in COMMANDS]


def _suggestion(said: str, context: Any) -> str:
    """What to type instead of a wrong option, command or argument; empty if nothing is near."""
    options = [name for each in context.command.get_params(context) for name in each.opts]
    if wrong := re.match(r"No such option: (\S+)", said):
        near = suggested(wrong[1], options)
    elif wrong := re.match(r"No such command '([^']*)'", said):
        near = suggested(wrong[1], [*getattr(context.command, "commands", {}), *options])
    elif "--only" in options and said.startswith("Unexpected argument"):
        return "; nodes are a list with commas: --only es1,es2"
    else:
        near = ()
    return f". Did you mean {' or '.join(near)}?" if near else ""


def _cluster_hint(word: str) -> str:
    """How the cluster is named, for a word that was given without the option. A URL may hold a password."""
    known = re.fullmatch(r"[\w./~-]+", word)
    return f"The cluster is an option: --cluster {word if known else 'NAME_OR_PATH'}"


def _print_trace() -> None:
    from orchestrator.view.text import printed  # noqa: PLC0415  (as above)

    sys.stderr.write(printed(traceback.format_exc().splitlines(), sys.stderr))


def _refuse(arguments: Sequence[str], code: ExitCode, *said: str) -> int:
    from orchestrator.view.text import noted  # noqa: PLC0415  (as above, and the next ones too)

    lines = [_LONG_WORD.sub(r"\1…", _LOGIN.sub("://…@", line)) for line in said]
    prefixed = (line if line.startswith(" ") else f"{PROGRAM}: {line}" for line in lines)
    sys.stderr.write(noted(prefixed, sys.stderr))
    if wants_json(arguments):
        from orchestrator.view.reporters import json_line  # noqa: PLC0415
        from orchestrator.view.summary import refusal_object  # noqa: PLC0415

        try:
            sys.stdout.write(json_line(refusal_object("\n".join(lines), code), at=time(), run=None) + "\n")
        except BrokenPipeError:
            _fall_silent()
    return int(code)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line requests JSON, even if the rest of it is wrong."""
    joined = "\0".join(arguments)
    return "--output\0json" in joined or "--output=json" in joined


def _output_is_full() -> bool:
    """Whether standard output accepts no more bytes; another file may be the full one."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False


def _fall_silent() -> None:
    """Discard the remaining output, because the interpreter flushes standard output at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def run_heeding(arguments: Sequence[str], came: list[int]) -> int:
    """Run one command line after loading the program. A signal ends it with the documented exit code.

    A command with a run catches signals itself, from the moment it takes its lease.

    Args:
        arguments: as given to the program.
        came: signals that arrived during loading; more are added while the command's own modules load.

    Returns:
        The exit code. Standard output is flushed.
    """
    gc.set_threshold(_BETWEEN_COLLECTIONS)
    try:
        EARLY.keep(came)
        code = _refuse(arguments, ExitCode.INTERRUPTED, EARLY.said) if came else run(arguments)
    except InterruptedEarly:
        code = _refuse(arguments, ExitCode.INTERRUPTED, EARLY.said)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _fall_silent()
    except OSError as error:
        _fall_silent()
        sys.stderr.write(f"{PROGRAM}: standard output cannot be written: {error.strerror}\n")
    return code
