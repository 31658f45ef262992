"""All tuning changes of each host as one shell script that a person reads and runs as root. Pure.

It uses the same shell functions as the program itself: found values are compared, and each change is read
back. Values that are already as wanted are skipped, so the script can be run twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from orchestrator.hosts import change_shell
from orchestrator.hosts.file_shell import FILE_FUNCTIONS
from orchestrator.hosts.settings import Sudo
from orchestrator.hosts.tuning_script import call
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import HostTuning, TunableState, Verdict

_TITLE: Final = """\
#!/bin/sh
# Host tuning by `orchestrate tune check`. Read it, then run it as root on a host:
#
#   sh SCRIPT [NODE]
#
# Without an argument it takes the part of the host's own name. The parts are at the end; above them is how a
# change is made: only where a file still has the text that was found, and read back. A value that is as
# wanted is left alone, so the script may be run twice. It exits 0 when all is as wanted, 1 when something is
# not, 2 when nothing was tried.
#
# shellcheck disable=SC2016,SC2317  # texts are written as they stand; functions are called through `change`
"""
_RUNNER: Final = rf"""
failed=0 broken=''
# One tunable after the other; a change that fails ends its own tunable alone.
tunable() {{ name=$1 broken=''; }}
change() {{
    if [ -n "$broken" ]; then return; fi
    said='' why='' what="$2${{3:+ $3}}"
    "$@"
    case $? in
        {change_shell.MADE}) printf '%s: made: %.200s\n' "$name" "$what" ;;
        {change_shell.ALREADY}) printf '%s: was so: %.200s\n' "$name" "$what" ;;
        *) printf '%s: NOT made: %.200s: %s\n' "$name" "$what" "$why" >&2; failed=1 broken=yes ;;
    esac
}}

if [ "$(id -u)" -ne 0 ]; then echo "to be run as root" >&2; exit 2; fi
alone || {{ busy || echo "$why" >&2; exit 2; }}
"""
_NOBODY: Final = """\
    *) printf 'no part for %s; name one: %s\\n' "$node" {known} >&2; exit 2 ;;
esac
exit "$failed"
"""


def script_of(states: Mapping[NodeName, HostTuning], *, root: str = "") -> str:
    """The script for these hosts.

    Args:
        states: by node, as read; hosts that could not be read are left out.
        root: a folder used in place of `/`.
    """
    lines = [
        f"{_TITLE}{change_shell.HEAD}root={shlex.quote(root)}",
        change_shell.AS_ROOT[Sudo.OFF].strip("\n"),
        f"{change_shell.ALONE}{change_shell.FUNCTIONS}{FILE_FUNCTIONS}{_RUNNER}",
        "node=${1:-$(uname -n)}",
        "case $node in",
    ]
    # The longest name first: `es1` also matches es1.example.com, but not if a node has that name.
    for node in sorted(states, key=lambda name: (-len(name), name)):
        lines += [f"    {shlex.quote(node)}|{shlex.quote(node)}.*)", *_part(states[node]), "        ;;"]
    return "\n".join(lines) + "\n" + _NOBODY.format(known=shlex.quote(" ".join(sorted(states))))


def _part(tuning: HostTuning) -> Iterator[str]:
    for state in tuning.states:
        yield f"        # {_comment(state)}"
        if state.verdict is not Verdict.DRIFT:
            continue
        yield f"        tunable {shlex.quote(state.tunable)}"
        for change in state.changes:
            yield f"        change {call(change)}"
    if not tuning.drifted:
        yield "        echo 'nothing to change'"


def _comment(state: TunableState) -> str:
    """The host's text on one line, as a comment."""
    match state.verdict:
        case Verdict.OK:
            text = f"as wanted: {state.running}"
        case Verdict.DRIFT:
            text = f"found {state.running} (at boot: {state.at_boot}), wanted {state.wanted}"
        case Verdict.NOT_APPLICABLE:
            text = f"not on this host: {state.detail}"
        case Verdict.UNKNOWN:
            text = f"NOT IN THIS SCRIPT: {state.detail}"
        case _:
            assert_never(state.verdict)
    detail = f"; {state.detail}" if state.verdict is Verdict.DRIFT and state.detail else ""
    return " ".join(f"{state.tunable}: {text}{detail}".split())
