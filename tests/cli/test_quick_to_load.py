"""Help, the version and a TAB load only what the command line itself needs.

What is loaded is counted, not how long it takes: seconds depend on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from orchestrator.cli.commands.tune import tune
from orchestrator.cli.group import COMMANDS
from tests.cli.console import Console
from tests.cli.runs import RUN, ended_run

SLOW = (
    "cryptography",
    "elastic_transport",
    "elasticsearch",
    "jinja2",
    "paramiko",
    "pydantic",
    "rich",
    "ruamel",
    "sqlalchemy",
    "tenacity",
    "urllib3",
)
OURS = (
    "config.cluster",
    "diagnosis",
    "engine",
    "hosts",
    "runs",
    "runtime.store",
    "simulation",
    "stores",
    "view",
)
LOADED = f"""
import json, sys
from orchestrator.cli.main import main
try:
    main()
finally:
    slow = {(*SLOW, *(f"orchestrator.{part}" for part in OURS))!r}
    sys.stderr.write(json.dumps([[name for name in slow if name in sys.modules], len(sys.modules)]))
"""
MOST_MODULES = 260
"""About 200 are loaded: Python's, typer's and those of the command line."""
HELP = {"--version": "orchestrate ", "--help": "post-bulk-index"}
HELP |= {f"{command} --help": f"Usage: orchestrate {command}" for command in COMMANDS}
HELP |= {f"tune {each.name} --help": "--cluster" for each in tune.registered_commands}
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


def run(console: Console, words: list[str], variables: Mapping[str, str]) -> str:
    """Run the program in a new process, and see that it loads nothing slow. Returns its output."""
    done = subprocess.run(  # noqa: S603  (the program under test)
        [sys.executable, "-c", f"import sys; sys.argv = {['orchestrate', *words]!r}\n{LOADED}"],
        check=False,
        capture_output=True,
        cwd=console.folder,
        env={**os.environ, **console.variables(), **variables},
        text=True,
        timeout=60.0,
    )
    assert done.returncode == 0, done
    slow, modules = json.loads(done.stderr)
    assert slow == []
    assert modules < MOST_MODULES
    return done.stdout


@pytest.mark.parametrize("line", HELP)
def test_help_and_the_version_load_nothing_that_takes_long(console: Console, line: str) -> None:
    assert HELP[line] in run(console, line.split(), {})


@pytest.mark.parametrize("line", TABS)
def test_a_tab_loads_nothing_that_takes_long(console: Console, line: str) -> None:
    file = console.folder / "configs/clusters/prod.yml"
    file.parent.mkdir(parents=True)
    file.write_text("kind: elasticsearch\nname: prod\n")
    ended_run(console, cluster="prod")
    words = f"orchestrate {line}"
    place = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert TABS[line] in run(console, [], {"_ORCHESTRATE_COMPLETE": "complete_bash", **place}).split()
