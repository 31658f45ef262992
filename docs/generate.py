"""Write the reference pages from the code that they describe: `make docs`.

A page is a function that returns its text; `PAGES` says where each one goes. A test compares what the
functions return with what is committed, so a page cannot say what the code no longer does.
"""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import typer

from orchestrator.cli.program import app
from orchestrator.cli.work.explain import EXIT_MEANINGS, PHASE_LIMITS, paragraph, question_of
from orchestrator.config import reference
from orchestrator.config.lookup import shipped
from orchestrator.config.tuning import load_profile
from orchestrator.engine.kinds.elasticsearch import settings
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.predicates import Predicate
from orchestrator.engine.kinds.riak.catalogue import PREDICATES as RIAK_PREDICATES
from orchestrator.engine.node import TABLE, Move, Sight
from orchestrator.engine.phases import (
    MAY_WAIT_WITHHELD,
    NODE_STEPS,
    NODE_STEPS_BY_COMMAND,
    READS,
    RUN_STEPS,
)
from orchestrator.engine.run import exit_code_of
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.hosts.tunables import (
    devices,
    erlang,
    huge_pages,
    io_scheduler,
    jvm,
    kernel_parameters,
    limits,
    numad,
    persisting,
    queues,
    rc_local,
    registry,
    sysctls,
    tmpfiles,
    tuned,
    udev,
)
from orchestrator.hosts.tunables.standing import shown as _shown
from orchestrator.merging.rules import MERGE_RULES, OWN_RULES
from orchestrator.model.action import SettingChange
from orchestrator.model.event import Event
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.tuning import TuningSetting
from orchestrator.view.terms import TERMS
from orchestrator.view.waits import awaited

FOLDER: Final = Path(__file__).parent / "reference"

_JSON: Final[Mapping[object, str]] = {str: "text", int: "integer", float: "number", bool: "true or false"}

_PREDICATES: Final = """\
A predicate is a safety rule with a public name. All of them are asked before every stop: when the wave is
chosen, and again at the last reading, when allocation is withheld already. A part of a reading that is
unknown is a refusal, never a pass.

`--disable-predicate NAME` switches one off for a run, `--disable-predicate NAME=SUBJECT` for one subject;
that is recorded in the journal. A refusal that does not pass with time ends a run that has changed nothing
yet at once (exit code 3); every other is waited for, at most `deadlines.hold`.

A rule about the nodes of a wave together makes a wave of `--strategy zone` smaller before it holds it:
[zones](../explanation/zones.md).

One name in the journal is not in this list: `allocation_is_withheld`. The last reading before a stop did not
show the setting that had been written.
"""
_EVENTS: Final = """\
The journal of a run is a list of these; everything that the program knows of a run comes from it.
`--output json` writes one object a line: `ts` (RFC 3339, UTC), `run`, `event`, `sequence`, and the fields
below. Two lines are no journal events: `waiting` (what is awaited, since when, for how long at most) and
`summary`, the last one. A [rehearsal](../how-to/rehearse.md) has two more: `mishap` (`what` went wrong) and,
before the summary, `rehearsed` (`seed`, `mishaps`, `kills`, `simulated_seconds`, `seconds`,
`settings_not_as_found`, `nodes_down`, `against_rules`). A reader passes over fields that it does not know.
"""
_SETTINGS: Final = """\
Every change is journalled with what was found before it is made, and put back exactly so: each level apart,
and absent apart from set. A change is written persistently, and transiently only where a transient value
stands above it. A limit is raised, never lowered. If somebody else changes one of these meanwhile, theirs is
left, and the journal says so.

What stands here is computed by the program for the shipped playbook.
"""
_ALSO_WRITTEN: Final = """\
## What else is written

- An index template `orchestrate-lease-N`, which matches no index, for the whole run (unless `lease: state`).
  It is removed at the end; after a kill it stays, for `restore`.
- `number_of_replicas` 1 on an index that has none, only with `zero_replica_indices: add_replica`; taken away
  again when all its copies are started.
- A voting exclusion of the elected master, only with `master_step_down: true` and five voters or more; taken
  away before the node's stop.
- `logger.orchestrate.settings-probe` is unset, where it never stood: that changes nothing, and proves before
  the first change that settings can be written.
"""


_TUNING: Final = """\
A tuning profile says what is wanted of a host's kernel and services. Each tunable tells how the host stands,
running and at the next boot, and names the changes that make it right; each change knows what was found, so
that it can be undone. `tune check` changes nothing.

| verdict | means |
|---|---|
| `ok` | right, and it will be after the next boot |
| `drift` | there is something to do; the changes are listed |
| `not_applicable` | the host has no such thing |
| `unknown` | it could not be read, or it is wrong and cannot be changed from here: the detail says which |

Tunables are made in the order of this table, whatever the order of the profile.
"""
_STORES: Final = ("elasticsearch", "riak", "cassandra", "hadoop")
_TUNABLE_MODULES: Final = (
    ("tuned", tuned),
    ("numad", numad),
    ("Huge pages", huge_pages),
    ("Disks", devices),
    ("The scheduler", io_scheduler),
    ("Queue depth and read-ahead", queues),
    ("Kernel parameters", kernel_parameters),
    ("Huge pages of the JVM", jvm),
    ("Limits of the service", limits),
    ("Erlang's schedulers", erlang),
)
_LASTING_MODULES: Final = (
    ("Files of our own", persisting),
    ("Kernel parameters", sysctls),
    ("Huge pages, with systemd", tmpfiles),
    ("Disks, with systemd", udev),
    ("Huge pages and disks, on RHEL 6", rc_local),
)


def tuning() -> str:
    """Every tunable, what a profile may say of it, and what the shipped profiles do say."""
    folder = shipped("configs") / "tuning"
    profiles = {store: load_profile(folder / f"{store}.yml", rules=registry.RULES) for store in _STORES}
    values = {
        store: {setting.tunable: setting for setting in profile.settings}
        for store, profile in profiles.items()
    }
    rows = [
        (
            f"`{name}`",
            (rule(TuningSetting(tunable=name, wanted="?")) or "").removeprefix("must be "),
            *(f"`{_shown(values[store][name])}`" if name in values[store] else "" for store in _STORES),
        )
        for name, rule in registry.RULES.items()
    ]
    reasons = [
        (f"`{setting.tunable}`", f"`{_shown(setting)}`", store, setting.why, setting.source)
        for store, profile in profiles.items()
        for setting in profile.settings
    ]
    return _page(
        "Host tuning",
        "orchestrator/hosts/tunables/` and `configs/tuning/",
        _TUNING,
        _table(("tunable", "takes", *_STORES), rows),
        "## What they do\n",
        *(f"### {title}\n\n{inspect.getdoc(module)}\n" for title, module in _TUNABLE_MODULES),
        "## How it is made to last\n",
        *(f"### {title}\n\n{inspect.getdoc(module)}\n" for title, module in _LASTING_MODULES),
        "## Reasons and sources of the shipped values\n",
        _table(("tunable", "value", "profile", "why", "source"), reasons),
    )


_MERGE_RULES: Final = """\
## Before a merge

`post-bulk-index` and `force-merge` ask these about each index, each time before its merge is begun. All
indices are asked about before the first, so that a run which is going to hold holds with nothing merged.
"""


_RIAK_RULES: Final = """\
## On Riak

Asked before every stop of a Riak node, in this order. Those that are not described above are Riak's own:
no single command of Riak tells all, so each asks for its own proof.
"""


def predicates() -> str:
    """Every safety rule, in the order in which it is asked."""
    source = "orchestrator/engine/kinds/elasticsearch/catalogue.py` and `…/riak/catalogue.py"
    riak = [rule for rule in RIAK_PREDICATES if rule.name not in {known.name for known in PREDICATES}]
    return _page(
        "Predicates",
        source,
        _PREDICATES,
        _overview(PREDICATES),
        _rules(PREDICATES, "##"),
        _merge_rules(),
        _RIAK_RULES,
        _overview(RIAK_PREDICATES),
        _rules(riak, "###"),
    )


def _overview(predicates: Sequence[Predicate]) -> str:
    rows = [
        (
            f"{number}",
            f"`{rule.name}`",
            "yes" if rule.may_be_disabled else "**no**",
            "in part" if rule.lasting else "yes" if rule.passes_with_time else "no",
            "the wave" if rule.about_wave else "the cluster",
        )
        for number, rule in enumerate(predicates, 1)
    ]
    return _table(("", "predicate", "may be disabled", "passes with time", "is about"), rows)


def _rules(rules: Sequence[Predicate], level: str) -> str:
    return "\n".join(f"{level} {rule.name}\n\n{question_of(rule)}\n\n*Why:* {rule.why}\n" for rule in rules)


def _merge_rules() -> str:
    rows = [
        (
            f"`{rule.name}`",
            "yes" if rule.may_be_disabled else "**no**",
            "yes" if rule.passes_with_time else "no",
        )
        for rule in OWN_RULES
    ]
    shared = ", ".join(f"`{rule.name}`" for rule in MERGE_RULES if rule not in OWN_RULES)
    overview = _table(("predicate", "may be disabled", "passes with time"), rows)
    rules = "\n".join(f"### {rule.name}\n\n{question_of(rule)}\n\n*Why:* {rule.why}\n" for rule in OWN_RULES)
    return f"{_MERGE_RULES}Asked as before a stop: {shared}. Beside them:\n\n{overview}\n{rules}"


def terms() -> str:
    """The words that messages and docs use."""
    head = "`orchestrate explain TERM` prints the same.\n"
    return _page(
        "Terms", "orchestrator/view/terms.py", head, _table(("term", "meaning"), tuple(TERMS.items()))
    )


def phases() -> str:
    """Both transition tables as diagrams, and what each phase waits for."""
    head = (
        "Drawn from the tables that the program itself reads: a step that is not here cannot be taken, and\n"
        "an event that claims one is refused.\n\n## A run\n"
    )
    rows = [
        (
            f"`{phase.value}`",
            awaited(RunState(run="")) if phase is Phase.PREPARING else awaited(RunState(run="", phase=phase)),
            PHASE_LIMITS[phase],
            "yes" if phase in MAY_WAIT_WITHHELD else "no",
        )
        for phase in Phase
    ]
    waits = _table(("phase", "waits for", "at most (`deadlines`)", "allocation may be withheld"), rows)
    bound = (
        "`deadlines.withheld` bounds allocation off over all phases together. Every phase but the last two "
        "can\nstand down; the arrows to `standing_down` are left out of the picture.\n\n## A node\n"
    )
    run = _diagram(RUN_STEPS, start=Phase.PREPARING, quiet=Phase.STANDING_DOWN)
    node = _diagram(NODE_STEPS, start=NodePhase.PENDING)
    source = "orchestrator/engine/phases.py` and `orchestrator/engine/node.py"
    commanded = [
        (f"`{old.value}`", f"`{new.value}`", f"`{command}`")
        for old, steps in NODE_STEPS_BY_COMMAND.items()
        for new, command in steps.items()
    ]
    by_command = "A command leads to these too:\n\n" + _table(("from", "to", "command"), commanded)
    return _page("Phases", source, head, run, waits, _reads(), bound, node, by_command, _moves())


def _reads() -> str:
    """What each phase reads for its next decision."""
    rows = [
        (
            f"`{phase.value}`",
            ", ".join(sorted(look.name.lower() for look in reads.look)) or "nothing",
            reads.hosts.name.lower(),
            "yes" if reads.failures else "no",
        )
        for phase, reads in READS.items()
    ]
    table = _table(("phase", "reads", "hosts of", "a member that leaves is a second failure"), rows)
    return f"What the next decision of each phase reads, as little as it needs:\n\n{table}"


def _moves() -> str:
    """The node's automaton: every phase, sight and goal."""
    head = (
        "## What follows from a reading\n\n"
        "What a reading shows of a node is one of eight sights. For each\n"
        "phase, sight and goal one move follows, and nothing else decides about a node. The goal is to\n"
        "restart it, or to bring it up (a rescue, a stand-down, `restore`, a takeover). The first sight\n"
        "that fits counts:\n"
    )
    sights = _table(("sight", "the reading shows"), [(f"`{s.name.lower()}`", s.value) for s in Sight])
    moves = _table(("move", "what follows"), [(f"`{one.name.lower()}`", one.value) for one in Move])
    cells = [
        (f"`{phase.value}`", f"`{one.name.lower()}`", restart.name.lower(), bring_up.name.lower())
        for phase, row in TABLE.items()
        for one, (restart, bring_up) in row.items()
    ]
    table = _table(("phase", "sight", "to restart", "to bring up"), cells)
    return f"{head}\n{sights}\n{moves}\n{table}"


def _diagram(steps: Mapping[Any, Collection[Any]], *, start: Enum, quiet: Enum | None = None) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.value}"]
    order = list(type(start))
    for old in order:
        lines += [
            f"    {old.value} --> {new.value}"
            for new in sorted(steps[old], key=order.index)
            if new is not quiet
        ]
        if not steps[old]:
            lines.append(f"    {old.value} --> [*]")
    return "\n".join([*lines, "```", ""])


def exit_codes() -> str:
    """Every exit code with its meaning."""
    rows = [
        (
            f"{code.value}",
            f"`{code.name}`",
            EXIT_MEANINGS[code][0],
            ", ".join(f"`{o.value}`" for o in Outcome if exit_code_of(o) is code) or "`refused`",
            EXIT_MEANINGS[code][1],
        )
        for code in ExitCode
    ]
    head = (
        "Fixed: scripts and pipelines may be written against them. What to do, in full, is in\n"
        "[It stopped: what now?](../how-to/it-stopped-what-now.md).\n"
    )
    table = _table(("code", "name", "meaning", "outcome", "what to do"), rows)
    tail = (
        "The last line of `--output json` carries the same: `outcome` and `exit_code`. A command that is "
        "refused\nbefore there is a run has the outcome `refused`, whatever its code; a restore that came to "
        "its end is\nshown there as `done`.\n"
    )
    return _page("Exit codes", "orchestrator/errors.py", head, table, tail)


def commands() -> str:
    """Every command's help, as `--help` prints it."""
    group: Any = typer.main.get_command(app)
    top = typer.Context(group, info_name="orchestrate", terminal_width=100, max_content_width=100)
    parts = ["What `--help` prints.\n", _console(group.get_help(top))]
    for name, command in group.commands.items():
        if not command.hidden:
            parts += _help(command, name, top)
    later = ", ".join(f"`{name}`" for name, command in group.commands.items() if command.hidden)
    parts.append(f"## Not in this version\n\nRefused by name, with exit code 2: {later}.\n")
    return _page("Commands", "orchestrator/cli/", *parts)


def _help(command: Any, name: str, parent: typer.Context) -> list[str]:
    """A command's help, and that of the commands below it."""
    context = typer.Context(command, info_name=name, parent=parent, terminal_width=100)
    parts = [f"## {context.command_path}\n\n{_console(command.get_help(context))}"]
    for below, each in getattr(command, "commands", {}).items():
        parts += _help(each, below, context)
    return parts


def events() -> str:
    """Every journal event with its fields, as `--output json` shows them."""
    head = _EVENTS
    parts = []
    for event in get_args(Event):
        names = {f.name: f for f in fields(event)}
        hints, said = get_type_hints(event), _attributes(inspect.getdoc(event))
        rows = [
            (f"`{name.rstrip('_')}`", _json_type(hints[name]), said.get(name, ""))
            for name in names
            if name != "event"
        ]
        table = _table(("field", "is", ""), rows) if rows else "No fields.\n"
        parts.append(f"## {names['event'].default}\n\n{paragraph(inspect.getdoc(event))}\n\n{table}")
    return _page("Journal events", "orchestrator/model/event.py", head, *parts)


def _json_type(hint: Any) -> str:
    """What a field is in JSON."""
    if hint in _JSON:
        return _JSON[hint]
    origin, arms = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        shown = [_json_type(arm) for arm in arms if arm is not type(None)]
        return " or ".join(dict.fromkeys([*shown, *(["null"] if type(None) in arms else [])]))
    if origin is Literal:
        return " or ".join(f"`{arm}`" for arm in arms)
    if origin is tuple:
        return f"list of {_json_type(arms[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return "object, by node"
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [one.name.lower() if issubclass(hint, IntEnum) else one.value for one in hint]
        return " or ".join(f"`{value}`" for value in values)
    if is_dataclass(hint):
        return "object" if "verb" not in str(hint) else "verb"
    return _json_type(getattr(hint, "__supertype__", str))


def cluster_settings() -> str:
    """What a run writes to the cluster, computed by the functions that a run uses."""
    policy = Policy(kind=Kind.ELASTICSEARCH, cluster="prod")
    defaults = {
        settings.BANDWIDTH: "40mb",
        settings.INITIAL_PRIMARIES: "4",
        settings.CONCURRENT_RECOVERIES: "2",
        settings.REBALANCE: "all",
    }
    fresh = SettingsView(files=defaults)
    lived_in = SettingsView(
        persistent={settings.ALLOCATION: "all", settings.BANDWIDTH: "200mb"},
        transient={settings.CONCURRENT_RECOVERIES: "3"},
        files=defaults,
    )
    head, tail = _SETTINGS, _ALSO_WRITTEN
    return _page(
        "Cluster settings that a run changes",
        "orchestrator/engine/kinds/elasticsearch/settings.py",
        head,
        "## On a cluster whose settings nobody has touched\n\n" + _changes(fresh, policy),
        "## On a cluster that has been lived in\n\nPersistently `allocation.enable: all` and "
        "`max_bytes_per_sec: 200mb`, transiently `node_concurrent_recoveries: 3`:\n\n"
        + _changes(lived_in, policy),
        tail,
    )


def _changes(found: SettingsView, policy: Policy) -> str:
    whole: list[tuple[str, SettingChange]] = [
        ("while a node is down", change) for change in settings.withhold_changes(found, policy)
    ]
    whole += [("for the whole run", change) for change in settings.limit_changes(found, policy)]
    rows = [
        (f"`{c.key}`", c.level.value, "absent" if c.found is None else f"`{c.found}`", f"`{c.wanted}`", when)
        for when, c in whole
        if c.level in Level
    ]
    return _table(("setting", "level", "found", "during the run", "how long"), rows)


def _page(title: str, source: str, *parts: str) -> str:
    head = f"# {title}\n\n<!-- Generated by `make docs` from `{source}`; edit that instead. -->\n"
    return "\n".join([head, *parts]).rstrip() + "\n"


def _table(head: tuple[str, ...], rows: Collection[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
    return "\n".join(lines) + "\n"


def _console(text: str) -> str:
    return "```console\n" + "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n```\n"


def _attributes(doc: str | None) -> dict[str, str]:
    """What a docstring says of each attribute."""
    section = re.search(r"\nAttributes:\n((?:    .*\n?)+)", doc or "")
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section.group(1), re.MULTILINE) if section else []
    return {name: " ".join(text.split()) for name, text in found}


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands,
    "configuration.md": reference.page,
    "events.md": events,
    "exit-codes.md": exit_codes,
    "phases.md": phases,
    "predicates.md": predicates,
    "settings.md": cluster_settings,
    "terms.md": terms,
    "tuning.md": tuning,
}
"""File name under `docs/reference/` to the function that writes it."""


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
        sys.stdout.write(f"docs/reference/{name}\n")


if __name__ == "__main__":
    main()
