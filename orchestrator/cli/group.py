"""The commands by name. A command's module is loaded when the command is given, or listed by `--help`.

A command is the function of its name: `force-merge` is `force_merge`. Its signature is the command line. A
group of commands (`group`) stands in place of a function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from orchestrator.errors import UsageError

_OF_RUNS: Final = (
    *("restart", "upgrade", "post-bulk-index", "force-merge", "plan", "apply", "resume", "restore"),
    *("pause", "stop", "status", "history", "report", "serve"),
)
_OTHERS: Final = ("init", "validate", "notify", "rehearse", "tune", "diagnose", "explain")
COMMANDS: Final = (*_OF_RUNS, *_OTHERS)
"""The commands, in the order of the help."""


class _Quick:
    """A command that needs typer's validation, which loads pydantic, only for values that are given.

    So its help and the completion of its words are quick.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the typer class beside it
        for parameter in found:
            if "process_value" not in vars(parameter):
                parameter.process_value = _validating_on_use(parameter)
        return found


def _validating_on_use(parameter: Any) -> Callable[[typer.Context, object], object]:
    """The parameter's validation, without the part that only a given value needs."""
    validated: Callable[[typer.Context, object], object] = parameter.process_value

    def process(context: typer.Context, value: object) -> object:
        if context.resilient_parsing:
            return value  # a TAB: the words are completed, and not used
        if value is not None or parameter.required:
            return validated(context, value)
        return None if parameter.callback is None else parameter.callback(context, parameter, None)

    return process


class Command(_Quick, TyperCommand):
    """A single command. It refuses an option with one value that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line.

        Raises:
            UsageError: an option with one value is given twice. typer would use the last value.
        """
        words = args[: args.index("--")] if "--" in args else args
        given = Counter(word.partition("=")[0] for word in words)
        options: list[Any] = list(self.params)
        for option in options:
            if ctx.resilient_parsing:
                break  # a TAB: nothing is printed between the person's words
            if option.param_type_name == "option" and not option.is_flag and not option.multiple:
                twice = [name for name in option.opts if given[name] > 1]
                if twice:
                    raise UsageError(f"{twice[0]} is given twice; give it once")
        return super().parse_args(ctx, args)


class Group(_Quick, TyperGroup):
    """A group of commands."""


def group(help_: str) -> typer.Typer:
    """A group of commands that shows its help without one of them, like the program itself."""
    made = typer.Typer(cls=Group, help=help_, add_completion=False, rich_markup_mode=None)

    @made.callback(invoke_without_command=True)
    def bare(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return made


class LoadedOnUse(Mapping[str, Any]):
    """The commands by name. Only a command that is looked up is loaded."""

    def __getitem__(self, name: str) -> Any:
        """Load a command.

        Raises:
            KeyError: there is no such command.
        """
        if name not in COMMANDS:
            raise KeyError(name)
        module = "run_commands" if name in _OF_RUNS else "other_commands"
        found = getattr(import_module(f"orchestrator.cli.{module}"), name.replace("-", "_"))
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(name, cls=Command)(found)
            found = single
        return typer.main.get_command(found)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Program(Group):
    """The program as a group of commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = cast("Any", LoadedOnUse())
