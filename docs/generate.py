"""Write the reference pages from the code that they describe: `make docs`.

A page is a function that returns its text; `PAGES` says where each one goes. A test compares what the
functions return with what is committed, so a page cannot say what the code no longer does.
"""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from functools import partial
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import typer

from docs import configuration, explained, man_pages, pictures, witnesses
from docs.explained import EXIT_MEANINGS, TERMS, all_entries, paragraph, what_to_do
from orchestrator.cli.program import app
from orchestrator.cli.work.explain import FILE
from orchestrator.config.lookup import shipped
from orchestrator.config.tuning import load_profile
from orchestrator.elasticsearch.dialect import FAMILIES, NEWEST, Dialect
from orchestrator.elasticsearch.eras import ERAS, EVERY, NEVER, Span
from orchestrator.elasticsearch.rules.merge import MERGE_RULES, OWN_RULES
from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.engine.predicates import Predicate
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event
from orchestrator.model.phase import Outcome
from orchestrator.model.tuning import TuningSetting
from orchestrator.riak.rules.predicates import PREDICATES as RIAK_PREDICATES
from orchestrator.tuning import boot, registry
from orchestrator.tuning.tunable import shown as _shown

FOLDER: Final = Path(__file__).parent / "reference"

_JSON: Final[Mapping[object, str]] = {str: "text", int: "integer", float: "number", bool: "true or false"}

_PREDICATES: Final = """\
A predicate is a named safety condition. All predicates are checked before every stop, in this order: when
the wave is chosen, and again at the last reading, when allocation is disabled. A predicate is not met if a
part of its reading is unknown.

`--disable-predicate NAME` switches a predicate off for a run, `--disable-predicate NAME=SUBJECT` for one
subject; the journal records it. If waiting cannot clear a hold ("passes with time": no), a run that has
changed nothing ends at once with exit code 3. The run waits for other holds, and for answers of a busy
cluster (429, 502 to 504, no answer in time), at most `deadlines.hold`.

A run keeps its policy, also after `resume`. If nothing in the cluster or on its hosts can clear a hold, such
as on a server that cannot list its deprecations, the hold names the flag or key for another run (`ways`).

With `--strategy zone`, a predicate about the wave first makes the wave smaller
([zones](../explanation/zones.md)). If it is not met for a single node, the run holds.

The journal can name one more hold, `allocation_is_withheld`: the last reading before a stop did not show that
allocation is disabled.
"""
_VERSIONS: Final = """\
The program asks and reads every cluster in the form of the newest Elasticsearch. The second table of a
product lists what other versions have otherwise: their requests are written in their own form, and their
answers are brought into the newest form before anything reads them. A version that is not restarted is
refused by name.

In a cluster of mixed versions, such as during an upgrade, the lowest version among all nodes decides. If one
node has a version that is not restarted, or another product, the cluster is refused with the names of these
nodes. If such a node joins during a run, no further node is stopped; settings are still restored. The lease
has one form for every version, so that runs through different endpoints see each other.

Before Elasticsearch 5 a setting cannot be removed. A setting that was not set is then restored to its
effective value, and the journal records that. Before Elasticsearch 7, a wave is held if
`discovery.zen.minimum_master_nodes` is below a majority of the master-eligible nodes.
"""
_EVENTS: Final = """\
The journal of a run is a list of these events. The state of a run is computed from its journal alone.

`--output json` writes one object a line: `ts` (RFC 3339, UTC), `run`, `event`, `sequence`, and the fields
below. Two kinds of lines are not in the journal: `waiting` (what the run waits for, since when, and the
limit) and `summary`, the last line. A [rehearsal](../how-to/rehearse.md) has two more: `mishap` (`what`
went wrong) and, before the summary, `rehearsed` (`seed`, `mishaps`, `kills`, `simulated_seconds`,
`seconds`, `settings_not_as_found`, `settings_changed_by_others`, `nodes_down`, `nodes_not_in_cluster`,
`nodes_stopping`, `against_rules`). Ignore fields that you do not know: a later version may add some.
"""
_SETTINGS: Final = """\
The original value of a setting is journalled before the change, and restored at its level afterwards; a
setting that was not set is removed. A change is written at the persistent level; if the setting has a
transient value, at the transient level too. A limit is raised, never lowered. If someone else changes one of
these settings during the run, the new value is kept, and the journal records that.

With the shipped playbook, on a cluster on which none of these settings is set:
"""
_OTHER_CASES: Final = """\
In other cases:

- A limit that is higher already stays, such as a persistent `max_bytes_per_sec` of `200mb`.
- With `allocation_while_down: none`, `allocation.enable` is `none` while a node is down.
- Before Elasticsearch 5, `indices.recovery.concurrent_streams` is raised to 5 too. A setting that was not
  set is restored to its effective value.
- Before Elasticsearch 1.0, `cluster.routing.allocation.disable_replica_allocation` is `true` in place of
  `allocation.enable`; with `allocation_while_down: none` it is `disable_allocation`.
"""
_PHASES: Final = """\
JSON names the phase of a run and of each of its nodes; text for people names the step. `orchestrate explain
PHASE` prints the same, and the phases that may follow.

## A run

Each wave goes from `gated` to `settled`. In each phase but the last two the run can stand down
(`standing_down`). `deadlines.withheld` limits the time with allocation disabled, over all phases together. In
brackets: with which [outcome](exit-codes.md) the run ends after a limit, if it could restore everything.
"""
_NODE_PHASES: Final = """\
## A node

Work that a node still needs is done in a later wave: the node is `pending` again until then. With
`resume --retry-failed` a run continues with failed nodes; `resume --skip` leaves nodes out.
"""
_ALSO_WRITTEN: Final = """\
## Other changes

- A component template `orchestrate-lease-N`, which no index template names, during the whole run (not with
  `lease: state`). While a node is older than 7.8, it is a legacy template, which matches no index. It is
  removed at the end. After a kill it stays, for `restore`.
- `number_of_replicas` 1 on an index that has none, only with `zero_replica_indices: add_replica`. The
  original number is restored when all copies of the index are started.
- A voting exclusion of the elected master, only with `master_step_down: true` and at least five voters. It
  is removed before the node's stop.
- The upgrade mode of machine learning, `false` to `true` for a whole `upgrade`, where there is machine
  learning (from Elasticsearch 6.7 on).
- `logger.orchestrate.settings-probe`, which nothing uses, is unset. This changes nothing; it shows, before
  the first change, that settings can be written.
"""


_TUNING: Final = """\
A tuning profile has the wanted values of a host's kernel and services. For each tunable the program reads
the running value, and lists the needed changes. The row `boot` is the script that sets these values at each
boot; "at next boot" shows whether the script has the value and its unit is enabled. Each change is recorded
with the original value, for `tune revert`. `tune check` changes nothing.

| verdict | meaning |
|---|---|
| `ok` | has the wanted value now; of `boot`: the script is as wanted, and enabled |
| `drift` | has another value now; of `boot`: the script is not as wanted; the changes are listed |
| `not_applicable` | the host does not have this tunable |
| `unknown` | could not be read, or has another value that the program cannot change: the detail says which |

Tunables are applied in the order of this table; the order in the profile does not matter.
"""
_STORES: Final = ("elasticsearch", "riak", "cassandra", "hadoop")


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
    kinds: dict[type, str] = {}
    for name, tunable in registry.TUNABLES.items():
        names = kinds.get(type(tunable))
        kinds[type(tunable)] = f"`{name}`" if names is None else f"{names}, `{name}`"
    return _page(
        "Host tuning",
        "orchestrator/tuning/` and `configs/tuning/",
        _TUNING,
        _table(("tunable", "takes", *_STORES), rows),
        "## What they do\n",
        *(f"### {names}\n\n{inspect.getdoc(kind)}\n" for kind, names in kinds.items()),
        "## How values last over a boot\n",
        f"{_of_module(boot)}\n",
        "## Reasons and sources of the shipped values\n",
        _table(("tunable", "value", "profile", "why", "source"), reasons),
    )


def _of_module(module: ModuleType) -> str:
    """What a module says of itself, without the word for one that neither reads nor writes."""
    return (inspect.getdoc(module) or "").replace(" Pure.", "")


_MERGE_RULES: Final = """\
## Before a merge

`post-bulk-index` and `force-merge` check these predicates for all indices before the first merge, and for
each index again before its own merge.
"""


_RIAK_RULES: Final = """\
## On Riak

Checked before every stop of a Riak node, in this order. Riak has predicates of its own, because no single
command of Riak shows the whole state of the cluster.
"""


def predicates() -> str:
    """Every safety rule, in the order in which it is asked."""
    source = "orchestrator/elasticsearch/rules/predicates.py` and `orchestrator/riak/rules/predicates.py"
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
            f"`{rule.name}`",
            "yes" if rule.may_be_disabled else "**no**",
            "in part" if rule.lasting else "yes" if rule.passes_with_time else "no",
            "the wave" if rule.about_wave else "the cluster",
        )
        for rule in predicates
    ]
    return _table(("predicate", "may be disabled", "passes with time", "is about"), rows)


def _rules(rules: Sequence[Predicate], level: str) -> str:
    return "\n".join(
        f"{level} {rule.name}\n\n{paragraph(inspect.getdoc(rule.check))}\n\n*Why:* {rule.why}\n\n"
        f"*What to do:* {rule.then}\n"
        for rule in rules
    )


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
    return (
        f"{_MERGE_RULES}Four are the same as before a stop: {shared}. The others:\n\n"
        f"{overview}\n{_rules(OWN_RULES, '###')}"
    )


def versions() -> str:
    """By product, which versions are restarted, and what each era has otherwise than later ones."""
    parts = [_VERSIONS]
    for product, families in FAMILIES.items():
        title = {"elasticsearch": "Elasticsearch", "opensearch": "OpenSearch"}[product]
        taken = [(".".join(map(str, first)), "yes" if accepted else "no") for first, _, accepted in families]
        parts.append(f"## {title}\n\n{_table(('from version', 'restarted'), taken)}")
        rows = [
            (_of_versions(span), f"`{pattern}`", _difference(function))
            for era in ERAS
            if (span := getattr(era, product)) != NEVER
            for pattern, function in (*era.spell.items(), *era.reshape.items())
        ]
        parts.append(_table(("versions", "request", "otherwise than later ones"), rows))
    meanings = _field_comments(Dialect)
    names = [each.name for each in fields(Dialect) if each.name not in ("family", "accepted", "eras")]
    facts = [
        (_spaced(name), meanings[name], _said(getattr(NEWEST, name)), "; ".join(_facts(name)))
        for name in names
    ]
    parts.append("## Facts\n\nWhat is decided by them is not a matter of requests and answers alone.\n")
    parts.append(_table(("fact", "meaning", "newest Elasticsearch", "Elasticsearch"), facts))
    return _page("Server versions", "orchestrator/elasticsearch/eras.py", "\n".join(parts), "")


def _facts(name: str) -> Iterator[str]:
    """The other values of a fact, with the versions that have them."""
    for era in ERAS:
        if name in era.facts:
            yield f"{_of_versions(era.elasticsearch)}: {_said(era.facts[name])}"


def _of_versions(span: Span) -> str:
    """Versions, for people."""
    (first, end) = (".".join(map(str, one)) for one in span)
    if span == EVERY:
        return "all"
    if span[1] == EVERY[1]:
        return f"from {first}"
    return f"before {end}" if span[0] == EVERY[0] else f"from {first}, before {end}"


def _difference(function: Callable[..., object]) -> str:
    """What a function of an era says that its servers have otherwise."""
    said, _, _ = (inspect.getdoc(function) or "").partition("\n\nRaises:")
    return " ".join(said.split())


def _said(value: object) -> str:
    """A fact of a dialect, for people."""
    if isinstance(value, tuple):
        return " or ".join(f"`{one}`" for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    said = str(value.value if isinstance(value, Enum) else value)
    return f"`{said}`" if "_" in said else said


def _spaced(name: str) -> str:
    """The name of a fact of a dialect, for people."""
    return name.replace("_", " ")


def terms() -> str:
    """The words that messages and docs use."""
    head = "`orchestrate explain TERM` prints the same.\n"
    return _page("Terms", "docs/explained.py", head, _table(("term", "meaning"), tuple(TERMS.items())))


def phases() -> str:
    """What a run or a node does in each phase, and what ends it: what `explain` prints of each."""
    columns = ("waits for", "at most (`deadlines`)", "allocation may be disabled")
    of_run = [
        (
            f"`{entry.names[0]}`",
            dict(entry.facts)["shown as"],
            entry.text[0],
            *(dict(entry.facts)[name] for name in columns),
        )
        for entry in all_entries()
        if entry.kind == "phase of a run"
    ]
    of_nodes = [
        (f"`{entry.names[0]}`", dict(entry.facts)["shown as"], entry.text[0])
        for entry in all_entries()
        if entry.kind == "phase of a node"
    ]
    return _page(
        "Phases",
        "orchestrator/view/phrases.py",
        _PHASES,
        _table(("phase", "step", "meaning", *columns), of_run),
        _NODE_PHASES,
        _table(("phase", "step", "meaning"), of_nodes),
    )


def exit_codes() -> str:
    """Every exit code with its meaning."""
    rows = [
        (
            f"{code.value}",
            what_to_do(code),
            EXIT_MEANINGS[code][0],
            f"`{code.name}`",
            ", ".join(f"`{o.value}`" for o in Outcome if o.exit_code is code) or "`refused`",
        )
        for code in ExitCode
    ]
    head = (
        "Scripts and pipelines can rely on these codes. What to do in each case:\n"
        "[it stopped, what now?](../how-to/it-stopped-what-now.md)\n"
    )
    table = _table(("code", "what to do", "meaning", "name", "outcome"), rows)
    tail = (
        "The last line of `--output json` has both, as `outcome` and `exit_code`. A command that is refused "
        "before\na run begins has the outcome `refused` with every code. A complete restore has the outcome "
        "`done`.\n"
    )
    return _page("Exit codes", "orchestrator/errors.py", head, table, tail)


def commands() -> str:
    """Every command's help, as `--help` prints it."""
    group: Any = typer.main.get_command(app)
    top = typer.Context(
        group,
        info_name="orchestrate",
        terminal_width=100,
        max_content_width=100,
        help_option_names=(app.info.context_settings or {})["help_option_names"],
    )
    parts = ["What `--help` prints.\n", _console(group.get_help(top))]
    for name, command in group.commands.items():
        parts += _help(command, name, top)
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
        hints, said = get_type_hints(event), _field_comments(event)
        rows = [
            (f"`{name.rstrip('_')}`", _json_type(hints[name]), said.get(name, ""))
            for name in names
            if name != "event"
        ]
        table = _table(("field", "type", "meaning"), rows) if rows else "No fields.\n"
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
        return "object, by node" if arms[0] is NodeName else "object"
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [one.name.lower() if issubclass(hint, IntEnum) else one.value for one in hint]
        return " or ".join(f"`{value}`" for value in values)
    if is_dataclass(hint):
        return "object" if "verb" not in str(hint) else "verb"
    return _json_type(getattr(hint, "__supertype__", str))


def cluster_settings() -> str:
    """What a run writes to the cluster: what `explain` prints of each setting."""
    rows = [
        (f"`{entry.names[0]}`", dict(entry.facts)["during a run"])
        for entry in all_entries()
        if entry.kind == "cluster setting"
    ]
    return _page(
        "Cluster settings that a run changes",
        "orchestrator/elasticsearch/rules/settings.py",
        _SETTINGS,
        _table(("setting", "during a run"), rows),
        _OTHER_CASES,
        _ALSO_WRITTEN,
    )


def _page(title: str, source: str, *parts: str) -> str:
    head = f"# {title}\n\n<!-- Generated by `make docs` from `{source}`; edit that instead. -->\n"
    return "\n".join([head, *parts]).rstrip() + "\n"


def _table(head: tuple[str, ...], rows: Collection[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
    return "\n".join(lines) + "\n"


def _console(text: str) -> str:
    return "```console\n" + "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n```\n"


def _field_comments(owner: type) -> dict[str, str]:
    """What is said of each field of a class: the comment on its own line, or on the lines before it."""
    said: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(owner).splitlines():
        comment, field = re.match(r"    # (.*)", line), re.match(r"    (\w+): [^#]*(?:# (.*))?", line)
        if comment:
            above.append(comment.group(1))
        elif field:
            text = field.group(2) or " ".join(above)
            said[field.group(1)] = text if text.endswith((".", "?", ".)")) or not text else f"{text}."
        above = above if comment else []
    return said


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands,
    "configuration.md": configuration.page,
    "events.md": events,
    "exit-codes.md": exit_codes,
    "phases.md": phases,
    "predicates.md": predicates,
    "settings.md": cluster_settings,
    "terms.md": terms,
    "tuning.md": tuning,
    "versions.md": versions,
    **{name: partial(configuration.annotated, which) for name, which in configuration.ANNOTATED.items()},
}
"""File name under `docs/reference/` to the function that writes it."""


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
        sys.stdout.write(f"docs/reference/{name}\n")
    FILE.write_text(explained.text())
    man_pages.write()
    witnesses.write()
    pictures.write()


if __name__ == "__main__":
    main()
