"""Values under `/sys` that RHEL 6 writes at the end of its boot, in rc.local.

It runs as the last script (S99local): after ktune, whose values it overrides, but also after the services. A
store that is started at boot maps its first pages before it; only the kernel command line is earlier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.hosts.tunables.persisting import first_that_holds, own_block
from orchestrator.hosts.tunables.standing import AtBoot
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change

PATHS: Final = ("/etc/rc.d/rc.local", "/etc/rc.local")
"""The first that exists is used; on Red Hat the second is a link to it."""
_ECHO: Final = re.compile(r"""\becho\s+(?:-n\s+)?["']?([\w+.-]+)["']?\s*>>?\s*["']?(/[^\s"';&|]+)""")
_EXIT: Final = re.compile(r"^(exit|return|exec)\b")


def at_boot(facts: HostFacts, path: str) -> AtBoot:
    """The value that rc.local gives a path: its last `echo` into it, before an `exit` on a separate line."""
    file = _file(facts)
    text = None if file is None else facts.text(file)
    if isinstance(text, Unknown):
        return AtBoot(unsure=f"{file} could not be read: {text.reason}")
    passed_over = facts.not_executable
    if isinstance(passed_over, Unknown):
        return AtBoot(unsure=f"whether {PATHS[0]} may be executed is not known: {passed_over.reason}")
    if file in passed_over:
        return AtBoot(unsure=f"{file} may not be executed: the boot passes it over")
    found = AtBoot()
    for line in (text or "").splitlines():
        if _EXIT.match(line):
            break
        for value, where in _ECHO.findall(line.partition("#")[0]):
            if where == path:
                found = AtBoot(value=value, by=f"{file}, after the services")
    return found


def persisted(
    facts: HostFacts, name: str, lines: Sequence[tuple[str, str]], holds: Callable[[HostFacts], bool]
) -> tuple[Change, ...]:
    """Lines of this program in rc.local, if they make the next boot right."""
    file = _file(facts)
    if file is None:
        return ()
    block = "\n".join(f"if [ -e {path} ]; then echo {value} > {path}; fi" for path, value in lines)
    return first_that_holds(facts, (own_block(facts, file, name, block),), holds)


def _file(facts: HostFacts) -> str | None:
    return next((path for path in PATHS if facts.text(path) is not None), None)
