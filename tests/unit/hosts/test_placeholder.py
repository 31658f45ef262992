"""The name of a node in a command line: no shell and no program behind it ever runs a part of it."""

from __future__ import annotations

import itertools
import shlex
import shutil
import string
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.hosts import services
from orchestrator.hosts.services import ServiceVerb, for_node, require_names
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.policy import (
    Hook,
    Hooks,
    Kind,
    Policy,
)
from orchestrator.model.upgrade import InstallStep, Upgrade
from tests import tools
from tests.fakes.cases import rows
from tests.tools import shell_words

SHELLS = (*tools.SHELLS, *(name for name in ("ksh", "zsh") if shutil.which(name)))
"""What `/bin/sh` may be, and two that an account may have instead, where this machine has them."""
ROWS = rows("hosts/placeholders.yml")
HOSTILE = (
    *ROWS["names"],
    *(f"a{one}b" for one in string.printable if not one.isalnum() and one not in "._@:+,-"),
)


def test_a_name_that_could_be_code_is_in_no_line() -> None:
    for line, node in itertools.product(ROWS["lines"], HOSTILE):
        with pytest.raises(ConfigError) as refused:
            for_node(line, node)
        assert 'Rename the node, or write "$ORCHESTRATE_NODE" in place of `{node}`' in str(refused.value)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_plain_name_is_data_through_four_shells(shell: str, tmp_path: Path) -> None:
    """A name is data for shells behind shells, unquoted and in quotes, first in a word and last in it."""
    allowed = [chr(code) for code in range(1, 0x250) if _is_plain(f"a{chr(code)}a")]
    first = [one for one in allowed if _is_plain(f"{one}a")]
    assert {*"@:+,-._"} | {"a", "Z", "9"} <= {*allowed}
    names = [f"{one}{''.join(allowed)}{last}" for one in first for last in ("@", ":", "+", ",", "-", ".")]
    inner = "eval eval printf %s@ {node} '{node}'"
    nested = shlex.join([*shell_words(shell), "-c", f"sh -c {shlex.quote(inner)}"])
    line = f"{nested}; printf '%s@' {{node}} \"x{{node}}\""
    names = names[::25]
    said = _run(shell, "\n".join(for_node(line, name) for name in names), tmp_path)
    assert said == "".join(f"{name}@{name}@{name}@x{name}@" for name in names)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_variable_takes_every_name_and_runs_none(shell: str, tmp_path: Path) -> None:
    names = [name for name in HOSTILE if "\0" not in name and not name.endswith("\n")]
    script = "\n".join(f"( {for_node(line, name)}\n)" for name in names for line in ROWS["variable_lines"])
    assert _run(shell, script, tmp_path) == "".join(
        f"{name}@" * len(ROWS["variable_lines"]) for name in names
    )
    assert not list(tmp_path.iterdir())


def test_a_plain_name_leaves_a_line_as_it_was_written() -> None:
    line = """x '{node}' "{node}" {node} http://x/{node} ${node} -d '{"a": "{node} b"}'"""
    assert for_node(line, "riak@es-1.example") == (
        """x 'riak@es-1.example' "riak@es-1.example" riak@es-1.example http://x/riak@es-1.example"""
        """ ${node} -d '{"a": "riak@es-1.example b"}'"""
    )
    assert for_node("depool ${node}", "$(x)") == "depool ${node}"


@pytest.mark.parametrize("form", ["stop", "start", "status"])
def test_a_service_that_cannot_have_the_name_is_refused(form: str) -> None:
    lines = {"stop": "s", "start": "t", "status": "u", form: "ctl 'x {node}'"}
    made = ServiceSettings(manager=Manager.COMMAND, **lines)
    settings = HostSettings(node="Baron Blood", address="h", service=made)
    fault = str(services.fault(settings))
    assert "'Baron Blood'" in fault
    assert '"$ORCHESTRATE_NODE"' in fault
    assert services.fault(replace(settings, node="es1")) is None
    fixed = replace(settings, service=replace(made, **{form: 'ctl "$ORCHESTRATE_NODE"'}))
    assert services.fault(fixed) is None


@pytest.mark.parametrize("mode", [Sudo.OFF, Sudo.PASSWORDLESS])
def test_a_stop_has_the_variable_behind_sudo_too(mode: Sudo, tmp_path: Path) -> None:
    node = "it's $(touch canary)"
    made = ServiceSettings(
        manager=Manager.COMMAND, stop='printf %s "$ORCHESTRATE_NODE"', start="x", status="x"
    )
    settings = HostSettings(node=node, address="h", service=made, sudo=mode)
    assert _run("dash", services.plain_command(settings, ServiceVerb.STOP), tmp_path) == node
    assert not list(tmp_path.iterdir())


def test_every_line_of_a_policy_is_tried_with_every_node() -> None:
    bad, good = Hook(run="x '{node}'"), Hook(run='x "$ORCHESTRATE_NODE"')
    upgrade = Upgrade(target="9.1.0", install=(InstallStep(run="i {version}"),))
    plain = Policy(kind=Kind.ELASTICSEARCH, cluster="logs")
    for policy in (
        replace(plain, hooks=Hooks(before_stop=(good, bad))),
        replace(plain, hooks=Hooks(while_stopped=(bad,))),
        replace(plain, hooks=Hooks(after_recovery=(bad,))),
        replace(plain, upgrade=replace(upgrade, install=(InstallStep(run="i {version} {node}"),))),
        replace(plain, upgrade=replace(upgrade, verify=("v {node}",))),
        replace(plain, upgrade=replace(upgrade, installed="v {node}")),
    ):
        require_names(policy, ["es1", "es-2.example"])
        with pytest.raises(ConfigError, match="Jean Grey"):
            require_names(policy, ["es1", "Jean Grey"])
    require_names(replace(plain, hooks=Hooks(before_stop=(good,)), upgrade=upgrade), HOSTILE)


def _is_plain(name: str) -> bool:
    try:
        return for_node("{node}", name) == name
    except ConfigError:
        return False


def _run(shell: str, script: str, folder: Path) -> str:
    """What a script prints, run in a folder of its own: a name that runs makes a file there."""
    done = subprocess.run(  # noqa: S603  (the lines of these tests)
        [*shell_words(shell), "-c", script], cwd=folder, capture_output=True, check=False, timeout=60
    )
    return done.stdout.decode()
