"""What `orchestrate explain` prints and a TAB completes: `make docs` writes it as a file of the program.

So the program need not load what the explanations are made from.
"""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Final, get_args

import typer

from docs import messages
from docs.configuration import ANNOTATED, Key, keys
from orchestrator.cli.program import COMMANDS, app
from orchestrator.cli.work.explain import Entry
from orchestrator.elasticsearch.rules import settings
from orchestrator.elasticsearch.rules.merge import OWN_RULES
from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.engine import limits
from orchestrator.engine.grid import NODE_STEPS, NODE_STEPS_BY_COMMAND
from orchestrator.engine.phases import MAY_WAIT_WITHHELD, RUN_STEPS
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.hosts.check import MEANINGS
from orchestrator.model.action import ACTION_NAMES, Purpose
from orchestrator.model.event import Event
from orchestrator.model.observation import SettingsView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Kind, Policy
from orchestrator.next_command import AFTER
from orchestrator.riak.rules.predicates import PREDICATES as RIAK_PREDICATES
from orchestrator.steps import step_of_node, step_of_run
from orchestrator.view.phrases import PHASES, awaited

NODE_PHASES: Final[Mapping[NodePhase, str]] = {
    NodePhase.PENDING: "Its turn has not begun.",
    NodePhase.STOPPING: "A stop has been sent; nothing says yet that the service has ended.",
    NodePhase.STOPPED: "The service has ended. Hooks of `while_stopped`, install steps and tuning run now.",
    NodePhase.STARTING: "A start has been sent, or the host reboots; the node is no member yet.",
    NodePhase.REJOINED: "The node is a member again. Its copies may still be on their way.",
    NodePhase.RECOVERED: "Its copies are back and its `after_recovery` hooks have run: its turn is over.",
    NodePhase.FAILED: "Its stop, start or a hook failed. A command continues, or it rejoins by itself.",
    NodePhase.SKIPPED: "It is left out of this run.",
}
"""Phase of a node to what it is."""

TERMS: Final[Mapping[str, str]] = {
    "run": (
        "One restart of a cluster, with an id and a journal. It ends when every selected node is restarted, "
        "or earlier; `resume` continues an unfinished run. `history` lists past runs."
    ),
    "wave": (
        "The nodes that are restarted at the same time: one node with `--strategy node`, up to a whole zone "
        "with `--strategy zone`. A wave ends when its nodes and their copies have recovered."
    ),
    "phase": "What a run, or one of its nodes, does now. Each phase has its own limits.",
    "zone": (
        "A group of nodes that may fail together, such as a rack: those with the same value of the node "
        "attribute that `zone_attribute` names, or of the cluster's awareness attribute. `--strategy zone` "
        "restarts a zone at once if the other zones have copies of its shards."
    ),
    "copies": (
        "The copies of a shard: one primary, and its replicas on other nodes. A search needs a started copy "
        "of each shard. A copy is unassigned while no node has it, and on the way while it recovers or moves."
    ),
    "primaries": (
        "The value of `cluster.routing.allocation.enable` while nodes are down: only primaries are allocated "
        "and no replica is built elsewhere."
    ),
    "candidate": "A node that may go into the next wave. All predicates are checked for it before its stop.",
    "predicate": (
        "A named safety condition that is checked before every stop. `orchestrate explain` lists all "
        "predicates; `--disable-predicate` disables one for a run, if that is allowed."
    ),
    "hold": (
        "A predicate that is not met, with its evidence; it holds the run before the next stop. The run "
        "waits until the hold clears, at most `deadlines.hold`, or ends with exit code 3 if waiting cannot "
        "clear it."
    ),
    "gate": (
        "A condition outside the cluster, from the playbook, such as the length of a queue. While it is "
        "closed, no node is stopped."
    ),
    "snapshot": (
        "A backup of indices that the cluster takes. While one runs, no node is stopped: the run waits "
        "(`no_running_snapshot`). An upgrade needs a recent one (`snapshot_is_recent`)."
    ),
    "lease": (
        "The record that one run works on this cluster: in the state database and in the cluster, or on the "
        "hosts of a Riak cluster. A second run exits with code 6."
    ),
    "holder": "The account and machine whose run holds the lease.",
    "baseline": (
        "The first reading of a run: the members, and the copies that were missing already. The run does not "
        "wait for those."
    ),
    "good reading": (
        "A reading in which all nodes of the wave are members with a new process. Several in a row count."
    ),
    "to restore": (
        "The panel's row of changes that the run has made and not restored yet. It restores them before it "
        "ends; `orchestrate restore RUN` does if the run cannot."
    ),
    "allocation": (
        "The assignment of shard copies to nodes. The panel's row shows how long a run has disabled it: at "
        "most `deadlines.withheld`."
    ),
    "owed work": (
        "Hooks, tuning, a reboot, a version or a restart that a node of the run still needs. It is done in a "
        "later wave, or after `resume`."
    ),
    "in doubt": (
        "The result of a command is unknown, because its connection was lost. The run waits for the effect, "
        "within a limit."
    ),
    "rescue": (
        "The immediate start of a node, because a shard has no started copy after its stop. Its owed work is "
        "done in a later wave."
    ),
    "second failure": (
        "Another node leaves, or a shard turns red, while a wave is down. The run stands down."
    ),
    "epoch": (
        "The number of a lease. Each process that takes the lease of a cluster from another one writes the "
        "next number, so a process that was cut off detects the takeover."
    ),
    "exit code": "The number with which the program ends. `orchestrate explain 3` explains the number 3.",
    "mishap": "A fault that `rehearse --seed` invents, such as a stop that never ends. Real runs have none.",
    "stand down": (
        "To stop a run safely: start the nodes that are down, restore all settings, and end. The run can be "
        "resumed later."
    ),
}
"""Term to its meaning, in the order in which a reader meets them."""

ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "snapshot": ("backup", "backups"),
    "stand down": ("abort", "give up"),
    "zone": ("rack", "availability zone"),
    "copies": ("replica", "replicas", "shard"),
    "run": ("job",),
    "wave": ("batch",),
}
"""Term to what others call it."""

SHIPPED: Final = (
    *("docs/tutorial", "docs/how-to", "docs/explanation", "docs/reference"),
    *("configs/clusters", "configs/observability", "playbooks"),
)
"""Folders of pages and files for operators, which are in the package."""
_ROOT: Final = Path(__file__).parents[1]

EXIT_MEANINGS: Final[Mapping[ExitCode, tuple[str, str]]] = {
    ExitCode.DONE: (
        (
            "Done, as planned. Also if there was nothing to do: no selected node started before "
            "`--started-before`, all run the version of the upgrade, or the indices are merged already."
        ),
        "Nothing. After a restore: `orchestrate resume RUN` restarts the nodes that are left.",
    ),
    ExitCode.DEFECT: ("A defect of the program.", "Report it, with the trace and the journal of the run."),
    ExitCode.USAGE: (
        (
            "Wrong command line, file or state, or a cluster that cannot be reached; the message names it. "
            "Nothing was changed."
        ),
        "Correct what the message names, or make the cluster reachable; then run the command again.",
    ),
    ExitCode.HELD: (
        (
            "Held: a predicate is not met, a gate is closed, copies are not back, the time of `--timeout` is "
            "over, or the lease is unreachable. No node is left half done. Also: `plan` shows a hold, a "
            "check of `validate` failed, `diagnose` found a problem, or `tune` found a value that is not as "
            "wanted; these changed no node."
        ),
        (
            "Or begin another run, with the flag or key that the end names. After `plan`, `validate`, "
            "`diagnose` or `tune`: correct what it lists, then run the command again."
        ),
    ),
    ExitCode.FAILED: (
        (
            "A node, a host or an install step failed. The run stood down and restored its settings; it can "
            "be resumed. Also: `restore` found nodes that stay down and names them; `diagnose` or `tune` "
            "could not read a host, or `tune` could not change one."
        ),
        "After `diagnose` or `tune`: make the host reachable or repair it, then run the command again.",
    ),
    ExitCode.INTERRUPTED: (
        "Interrupted (SIGINT, SIGTERM, SIGHUP, `orchestrate stop`); stood down, resumable.",
        "",
    ),
    ExitCode.LEASED: (
        (
            "Another run holds the lease of this cluster; the message says who, since when and from where. "
            "Also: another process took this run over while it was suspended or cut off, and restores its "
            "settings."
        ),
        (
            "Where no run has begun: wait for that run, or stop it on its machine, then run the command "
            "again. If the message says that its process is suspended, continue it there: `kill -CONT PID`; "
            "with `kill PID` before that, it stands down."
        ),
    ),
    ExitCode.PLAN_MISMATCH: ("The saved plan no longer fits the cluster.", "Make a new plan."),
    ExitCode.NOT_RESTORED: (
        "**Not restored**: settings or nodes are left as listed, with the command that restores them.",
        "",
    ),
    ExitCode.PAUSED: (
        "Paused by request (`pause`, `--pause-after`). Settings are restored, the lease is released.",
        "",
    ),
}
"""Exit code to its meaning, which is that of the contract, and what to do where no run has ended with it."""


def what_to_do(code: ExitCode) -> str:
    """The next step of an operator: after a run, the command that its end shows too."""
    step, more = AFTER.get(code), EXIT_MEANINGS[code][1]
    first = f"{step.first}, then " if step is not None and step.first else ""
    instead = (
        "" if step is None or step.instead is None else f", or `{step.instead.command('RUN')}` to continue"
    )
    after = "" if step is None else f"After a run: {first}`{step.command('RUN')}`{instead}."
    return f"{after} {more}".strip()


_PURPOSES: Final[Mapping[Purpose, str]] = {
    Purpose.WITHHOLD: (
        "Disable the allocation of replicas while nodes are down, so that the cluster does not build their "
        "copies elsewhere."
    ),
    Purpose.RAISE_LIMITS: "Raise the limits of recovery, so that copies come back sooner.",
    Purpose.REASSIGN: (
        "Restore the original allocation once the nodes of the wave have rejoined, so their copies start."
    ),
    Purpose.RESTORE: "Restore the original values of all settings that the run has changed.",
}


@cache
def all_entries() -> tuple[Entry, ...]:
    """Everything that can be explained, grouped by kind."""
    parts = (
        _terms,
        _commands,
        _predicates,
        _phases,
        _exit_codes,
        _steps,
        _checks,
        _events,
        _cluster_settings,
        _keys,
    )
    entries = tuple(entry for part in parts for entry in part())
    return (*entries, *_pages({name for entry in entries for name in entry.names}))


def _terms() -> Iterator[Entry]:
    for term, meaning in TERMS.items():
        plural = term if term.endswith(("s", "ed")) else f"{term}s"
        names = (term, term.replace(" ", "-"), term.replace(" ", "_"), plural, *ALSO.get(term, ()))
        yield Entry(names=names, kind="term", text=(meaning,))


def paragraph(doc: str | None) -> str:
    """A docstring without its sections, one line per paragraph."""
    whole = re.split(r"\n\n(?:Attributes|Args|Raises|Returns):\n", doc or "")[0]
    return "\n\n".join(" ".join(part.split()) for part in whole.split("\n\n"))


def _predicates() -> Iterator[Entry]:
    shared = {rule.name for rule in PREDICATES}
    for kind, rules in (
        ("predicate", PREDICATES),
        ("predicate before a merge", OWN_RULES),
        ("predicate of Riak", tuple(rule for rule in RIAK_PREDICATES if rule.name not in shared)),
    ):
        for rule in rules:
            passes = "in part" if rule.lasting else "yes" if rule.passes_with_time else "no"
            disable = f"--disable-predicate {rule.name}" if rule.may_be_disabled else "not possible"
            facts = (("passes with time", passes), ("to disable it", disable))
            text = (paragraph(inspect.getdoc(rule.check)), f"Why: {rule.why}", f"What to do: {rule.then}")
            yield Entry(
                names=(rule.name,),
                kind=kind,
                text=text,
                facts=facts,
                messages=messages.of_check(rule.check),
                may_be_disabled=rule.may_be_disabled,
            )


def _phases() -> Iterator[Entry]:
    for phase in Phase:
        state = RunState(run="") if phase is Phase.PREPARING else RunState(run="", phase=phase)
        shown = step_of_run(phase.value)
        facts = (
            ("shown as", shown),
            ("waits for", awaited(state)),
            ("at most (`deadlines`)", limits.in_words(phase)),
            ("allocation may be disabled", "yes" if phase in MAY_WAIT_WITHHELD else "no"),
            ("next", ", ".join(each.value for each in Phase if each in RUN_STEPS[phase])),
        )
        names = tuple(dict.fromkeys((phase.value, shown)))
        yield Entry(names=names, kind="phase of a run", text=(PHASES[phase].what,), facts=facts)
    for node in NodePhase:
        following = ", ".join(_following(node))
        shown = step_of_node(node.value)
        names = tuple(dict.fromkeys((node.value, shown, *shown.split(" and "))))
        facts = (("shown as", shown), ("next", following))
        yield Entry(names=names, kind="phase of a node", text=(NODE_PHASES[node],), facts=facts)


def _following(node: NodePhase) -> Iterator[str]:
    """The phases that may follow; those that a command leads to, with the command."""
    commands = NODE_STEPS_BY_COMMAND.get(node, {})
    for each in NodePhase:
        if each in commands:
            yield f"{each.value} (`{commands[each]}`)"
        elif each in NODE_STEPS[node]:
            yield each.value


def _exit_codes() -> Iterator[Entry]:
    for code in ExitCode:
        meaning, then = EXIT_MEANINGS[code][0], what_to_do(code)
        outcomes = tuple(outcome.value for outcome in Outcome if outcome.exit_code is code)
        facts = (("outcome", ", ".join(outcomes) or "refused"), ("what to do", then))
        names = (f"{code.value}", code.name, *outcomes)
        said = tuple(outcome.words for outcome in Outcome if outcome.exit_code is code)
        kind = f"exit code, {code.name}"
        yield Entry(names=names, kind=kind, text=(meaning,), facts=facts, messages=said)


def _steps() -> Iterator[Entry]:
    """The steps that a plan lists."""
    texts = {name: paragraph(inspect.getdoc(action)) for action, name in ACTION_NAMES.items()}
    texts |= {purpose.value: text for purpose, text in _PURPOSES.items()}
    for name, text in texts.items():
        yield Entry(names=(name,), kind="step of a run", text=(text,))


def _checks() -> Iterator[Entry]:
    for point, text in MEANINGS.items():
        yield Entry(names=(point.value,), kind="check of a host", text=(text,))


def _commands() -> Iterator[Entry]:
    todo = [(name, typer.main.get_command(app).commands[name]) for name in COMMANDS]  # type: ignore[attr-defined]  # a group
    for name, command in todo:
        todo += [(f"{name} {each}", one) for each, one in getattr(command, "commands", {}).items()]
        said, line = getattr(command, "example", ("", ""))
        facts = (
            ("all options", f"`orchestrate {name} --help`"),
            ("for example", f"`{line}`: {said}" if line else ""),
        )
        yield Entry(names=(name,), kind="command", text=(paragraph(command.help),), facts=facts)


def _events() -> Iterator[Entry]:
    for event in get_args(Event):
        name = next(str(each.default) for each in fields(event) if each.name == "event")
        said = messages.of_events().get(event.__name__, ())
        yield Entry(names=(name,), kind="event", text=(paragraph(inspect.getdoc(event)),), messages=said)


def _cluster_settings() -> Iterator[Entry]:
    """Cluster settings that a run writes with the shipped playbook, if none of them was set before."""
    policy = Policy(kind=Kind.ELASTICSEARCH, cluster="prod")
    view = SettingsView(
        files={
            settings.BANDWIDTH: "40mb",
            settings.INITIAL_PRIMARIES: "4",
            settings.CONCURRENT_RECOVERIES: "2",
            settings.REBALANCE: "all",
        }
    )
    moments = (
        (Purpose.WITHHOLD, "while a node is down", settings.withhold_changes(view, policy)),
        (Purpose.RAISE_LIMITS, "for the whole run", settings.limit_changes(view, policy)),
    )
    for purpose, moment, changes in moments:
        for change in changes:
            facts = (("during a run", f"{change.wanted} ({change.level.value}), {moment}"),)
            text = ("A run changes it, and restores the original value, or its absence, at each level.",)
            yield Entry(names=(change.key, purpose.value), kind="cluster setting", text=text, facts=facts)


def _keys() -> Iterator[Entry]:
    """Keys of files. A key with the same text in several files is one entry."""
    files: dict[Key, list[str]] = {}
    for key in keys():
        files.setdefault(replace(key, file=""), []).append(key.file)
    for key, names in files.items():
        yield Entry(
            names=(key.path, key.path.rpartition(".")[2], *_beside_a_file(key)),
            kind=f"key of {' and '.join(names)}",
            text=(key.meaning,),
            facts=(("takes", key.takes), ("default", key.default)),
        )


def _beside_a_file(key: Key) -> tuple[str, ...]:
    """Another name of a key of which a file has the name: that one is printed for it."""
    return (f"cluster.{key.path}",) if f"{key.path}.yml" in ANNOTATED else ()


def _pages(taken: Collection[str]) -> Iterator[Entry]:
    """Pages and files that are in the package, by name: with the folder if the name is taken."""
    files = [file for folder in SHIPPED for file in sorted((_ROOT / folder).rglob("*")) if file.is_file()]
    for file in files:
        path = file.relative_to(_ROOT).as_posix()
        name = path.removeprefix("docs/").removesuffix(".md")
        short = name.rpartition("/")[2]
        whole = [short.removesuffix(".yml")] if short in ANNOTATED else []
        names = (*whole, *([] if short in taken else [short]), name, path)
        kind = "page" if file.suffix == ".md" else "file"
        yield Entry(names=names, kind=kind, text=(_title(file),), page=path)


def _title(file: Path) -> str:
    """The title of a page; of another file, its first sentence."""
    text = file.read_text()
    if file.suffix == ".md":
        return text.partition("\n")[0].strip("# ")
    said = " ".join(re.findall(r"^# ?(.*)$", text.partition("\n#\n")[0], re.MULTILINE))
    return f"{said.partition('. ')[0].rstrip('.')}." if said else f"The file {file.name}."


def text() -> str:
    """The file: an explanation in each line."""
    return "".join(f"{json.dumps(asdict(entry), ensure_ascii=False)}\n" for entry in all_entries())
