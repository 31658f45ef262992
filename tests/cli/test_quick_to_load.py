"""What is asked often, and by a TAB, loads only what the command line itself needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

SLOW = ("elasticsearch", "paramiko", "rich.console", "ruamel", "sqlalchemy", "tenacity")
OURS = ("config", "diagnosis", "engine", "hosts", "runs", "runtime.store", "simulation", "stores", "view")
LOADED = f"""
import sys
from orchestrator.cli.main import main
try:
    main()
finally:
    names = {(*SLOW, *(f"orchestrator.{part}" for part in OURS))!r}
    sys.stderr.write(" ".join(name for name in names if name in sys.modules))
"""
TAB = {"_ORCHESTRATE_COMPLETE": "complete_bash", "COMP_WORDS": "orchestrate restart --cl", "COMP_CWORD": "2"}


@pytest.mark.parametrize(
    ("words", "variables", "shown"),
    [
        (("--version",), {}, "orchestrate "),
        (("--help",), {}, "post-bulk-index"),
        (("restart", "--help"), {}, "--strategy"),
        (("init", "--help"), {}, "--fingerprint"),
        (("tune", "apply", "--help"), {}, "--profile"),
        ((), TAB, "--cluster"),
    ],
    ids=["version", "help", "help of restart", "help of init", "help of tune apply", "a tab"],
)
def test_it_loads_nothing_that_takes_long(
    words: tuple[str, ...], variables: Mapping[str, str], shown: str
) -> None:
    done = subprocess.run(  # noqa: S603  (the program under test)
        [sys.executable, "-c", f"import sys; sys.argv = {['orchestrate', *words]!r}\n{LOADED}"],
        check=False,
        capture_output=True,
        env={**os.environ, **variables},
        text=True,
        timeout=60.0,
    )
    assert done.returncode == 0, done
    assert shown in done.stdout
    assert done.stderr == ""
