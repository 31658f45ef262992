"""The variables of this process that the programs started by it get: none that holds a secret of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_SECRET: Final = {"ORCHESTRATE_STATE", "PGPASSWORD"}
"""The URL of a state may have a password. Names from `env:` references are added when these are read."""
_OF_COMMANDS: Final = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "DOCKER_HOST")


def hold_back(name: str) -> None:
    """Pass this variable on to no program from now on: a file names it as the place of a secret."""
    _SECRET.add(name)


def for_programs() -> Mapping[str, str]:
    """For a program with a configuration of its own, such as `ssh`, its proxy commands and password stores.

    They need an agent, Kerberos or a display, whose variables have any name.
    """
    return {name: value for name, value in os.environ.items() if name not in _SECRET}


def for_commands() -> Mapping[str, str]:
    """For a command of a file: few variables, so no secret of another program either, and untranslated."""
    kept = {name: value for name, value in for_programs().items() if name in _OF_COMMANDS}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}
