"""Help, the version and a TAB load only what the command line itself needs.

What is loaded is counted, not how long it takes: seconds depend on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from orchestrator.cli.other_commands import tune
from orchestrator.cli.program import COMMANDS
from tests.cli.console import LIMIT_SECONDS, Console
from tests.cli.runs import RUN, ended_run

SLOW = (
    *("cryptography", "elastic_transport", "elasticsearch", "jinja2", "paramiko", "pydantic", "rich"),
    *("ruamel", "sqlalchemy", "tenacity", "urllib3"),
)
OURS = (
    *("config.cluster", "diagnosis", "engine", "hosts", "runs", "runtime.store", "simulation", "stores"),
    "view",
)
LOADED = f"""
import contextlib, io, json, os, sys
from orchestrator.cli.program import run
slow = {(*SLOW, *(f"orchestrator.{part}" for part in OURS))!r}
lines, found = json.loads(sys.stdin.read()), {{}}
for line, (words, variables) in lines.items():
    os.environ.update(variables)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        run(words)
    found[line] = out.getvalue(), [name for name in slow if name in sys.modules]
print(json.dumps([found, len(sys.modules)]))
"""
"""One process for all lines: it names the first line after which something slow is there."""
MOST_MODULES = 300
"""About 240 are loaded: Python's, typer's and those of the command lines."""
HELP = {"--version": "orchestrate ", "--help": "post-bulk-index"}
HELP |= {f"{command} --help": f"Usage: orchestrate {command}" for command in COMMANDS}
HELP |= {f"tune {each.name} --help": "--cluster" for each in tune.registered_commands}
HELP |= {"notify test --help": "--cluster"}
TABS = {
    "res": "restart",
    "restart --cl": "--cluster",
    "restart --cluster ": "prod",
    "restart --playbook ": "elasticsearch-rolling-restart",
    "restart --cluster prod --only ": "es1",
    "restart --disable-predicate ": "no_other_maintenance",
    "resume ": RUN,
    "resume --skip ": "es1",
    "init --kind ": "riak",
    "tune apply --profile ": "elasticsearch",
    "explain ": "stand-down",
}


def outputs(console: Console, lines: Mapping[str, tuple[list[str], dict[str, str]]]) -> dict[str, str]:
    """Run command lines, with these words and variables, in a new process; none loads anything slow."""
    done = subprocess.run(  # noqa: S603  (the program under test)
        [sys.executable, "-c", LOADED],
        check=False,
        capture_output=True,
        cwd=console.folder,
        env={**os.environ, **console.variables()},
        input=json.dumps(lines),
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done
    found, modules = json.loads(done.stdout)
    assert {line: slow for line, (_, slow) in found.items() if slow} == {}
    assert modules < MOST_MODULES
    return {line: out for line, (out, _) in found.items()}


def test_help_and_the_version_load_nothing_that_takes_long(console: Console) -> None:
    shown = outputs(console, {line: (line.split(), {}) for line in HELP})
    assert {line: shown[line] for line, part in HELP.items() if part not in shown[line]} == {}


def test_a_tab_loads_nothing_that_takes_long(console: Console) -> None:
    file = console.folder / "configs/clusters/prod.yml"
    file.parent.mkdir(parents=True)
    file.write_text("kind: elasticsearch\nname: prod\n")
    ended_run(console, cluster="prod")
    words = {line: f"orchestrate {line}" for line in TABS}
    bash = {"_ORCHESTRATE_COMPLETE": "complete_bash"}
    places = {line: {"COMP_WORDS": said, "COMP_CWORD": str(said.count(" "))} for line, said in words.items()}
    offered = outputs(console, {line: ([], {**bash, **places[line]}) for line in TABS})
    assert {line: offered[line] for line, word in TABS.items() if word not in offered[line].split()} == {}
