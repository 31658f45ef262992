"""`{node}` in a command line of the operator: only a name that no shell can read as code replaces it. Pure.

A line may have any number of shells and programs behind the first one that read it again (`sh -c`, `eval`,
`trap`, `ssh`, `xargs`), which no reading of the line finds, and no quotes hold for all of them. So the name
decides: a plain one means nothing to any of them, wherever it is. Every other name is only the value of a
variable, which a shell does not read as code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Final

from orchestrator.errors import ConfigError
from orchestrator.model.policy import Policy
from orchestrator.untrusted import UntrustedValue, one_line, plain_name

VARIABLE: Final = "ORCHESTRATE_NODE"
"""Has the node's name in every command line that names it: for names that cannot replace `{node}`."""
_NODE: Final = re.compile(r"(?<!\$)\{node\}")  # not `${node}`, a variable of the shell


def for_node(text: str, node: str) -> str:
    """A command line for one node: `{node}` replaced by its name, and `$ORCHESTRATE_NODE` set to it.

    Raises:
        ConfigError: the line has `{node}`, and a shell could read a part of the name as code.
    """
    if _NODE.search(text):
        try:
            text = _NODE.sub(plain_name(node), text)
        except UntrustedValue as error:
            raise ConfigError(
                f"{error}: a shell could run a part of it in `{one_line(text, 80)}`. Rename the node, or"
                f' write "${VARIABLE}" in place of `{{node}}`; within a second shell in single quotes:'
                f""" sh -c 'COMMAND "${VARIABLE}"'"""
            ) from None
    return f"{VARIABLE}={shlex.quote(node)}; export {VARIABLE}; {text}" if VARIABLE in text else text


def require_names(policy: Policy, nodes: Iterable[str]) -> None:
    """See that every command line of a policy can be made for every node.

    Raises:
        ConfigError: one cannot; the node and the line are named.
    """
    hooks, upgrade = policy.hooks, policy.upgrade
    lines = [hook.run for hook in (*hooks.before_stop, *hooks.while_stopped, *hooks.after_recovery)]
    if upgrade is not None:
        lines += [*(step.run for step in upgrade.install), *upgrade.verify, upgrade.installed or ""]
    for node in nodes:
        for line in lines:
            for_node(line, node)
